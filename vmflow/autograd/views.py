"""What autograd does about tensors that share memory: a view that is changed in place, and views of what was changed.

A view made while autograd records knows its base, the tensor that has the whole memory.  A recorded change of the view
gives the base a new history, in which the new part replaces the old one.  Views from before a change get a new history
when they are next looked at: they become parts of the base as it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import node as _node

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def base_for(source: Tensor) -> Tensor | None:
    """The base of a view of `source`; None if it has none, because `source` is a view made while nothing recorded."""
    if source._base is not None:
        return source._base
    return source if source._blob.strides is None else None


def renewed(tensor: Tensor) -> bool:
    """Bring the history of a view up to date with its base's; whether gradients flow into it."""
    autograd, base = tensor._autograd, tensor._base
    assert base is not None
    history = tensor._blob.storage.history
    if autograd is not None and (autograd.requires_grad if autograd.node is None else autograd.history == history):
        return autograd.requires_grad
    whole = base._autograd
    # Requiring a gradient later does not reach views from before; only what was recorded of the memory does.
    if whole is None or whole.node is None or whole.history != history:
        return autograd is not None and autograd.requires_grad
    from vmflow.ops import strided  # its module needs this one

    seen = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    own = tuple(base.shape), tuple(base.stride()), base.storage_offset()
    node = _node.OpNode(strided.AS_STRIDED, (base,), (seen, own), (), (tensor,), False)
    tensor._autograd = _node.AutogradMeta(True, node, 0, history)
    return True


def rebase(base: Tensor, view: Tensor) -> None:
    """Record that `view`, a part of `base`, was changed in place; its own history is the change's already."""
    from vmflow.ops import indexing  # its module needs this one

    part = tuple(view.shape), tuple(view.stride()), view.storage_offset()
    node = _node.OpNode(indexing.STRIDED_PUT, (base, view), (part,), (), (base,), True)
    base._autograd = _node.AutogradMeta(True, node, 0, view._blob.storage.history)
