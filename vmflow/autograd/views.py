"""What autograd does about tensors that share memory: a view that is changed in place, and views of what was changed.

A view made while autograd records knows its base, the tensor that has the whole memory.  A recorded change of the view
gives the base a new history, in which the new part replaces the old one.  Views from before a change get a new history
when they are next looked at: they become parts of the base as it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow import interpreter as _interpreter

from . import node as _node

if TYPE_CHECKING:
    from vmflow.ops.table import Attributes, OpExpr, ViewExpr
    from vmflow.tensors import Tensor

    from .node import AutogradMeta


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
    from vmflow.ops import complex_parts, strided  # their modules need this one

    real = _seen(complex_parts.VIEW_AS_REAL, base) if base.dtype.is_complex and not tensor.dtype.is_complex else base
    if tensor.dtype is real.dtype:
        tensor._autograd = _history(strided.AS_STRIDED, (real,), tensor, (_geometry(tensor), _geometry(real)))
        return True
    pairs = _alias(complex_parts.VIEW_AS_REAL, tensor)
    pairs._autograd = _history(strided.AS_STRIDED, (base,), pairs, (_geometry(pairs), _geometry(base)))
    tensor._autograd = _history(complex_parts.VIEW_AS_COMPLEX, (pairs,), tensor)
    return True


def rebase(base: Tensor, view: Tensor) -> None:
    """Record that `view`, a part of `base`, was changed in place; its own history is the change's already."""
    from vmflow.ops import complex_parts, indexing  # their modules need this one

    if base.dtype is view.dtype:
        base._autograd = _history(indexing.STRIDED_PUT, (base, view), base, (_geometry(view),), in_place=True)
        return
    # One is complex and the other real: the change is recorded among real numbers.
    if view.dtype.is_complex:
        pairs = _seen(complex_parts.VIEW_AS_REAL, view)
        base._autograd = _history(indexing.STRIDED_PUT, (base, pairs), base, (_geometry(pairs),), in_place=True)
        return
    before, after = _seen(complex_parts.VIEW_AS_REAL, base), _alias(complex_parts.VIEW_AS_REAL, base)
    after._autograd = _history(indexing.STRIDED_PUT, (before, view), after, (_geometry(view),), in_place=True)
    base._autograd = _history(complex_parts.VIEW_AS_COMPLEX, (after,), base)


def _geometry(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _history(
    op: OpExpr, inputs: tuple[Tensor, ...], result: Tensor, attributes: Attributes = (), in_place: bool = False
) -> AutogradMeta:
    """What is to be known of `result` if `op` made it."""
    node = _node.OpNode(op, inputs, attributes, (), (result,), in_place)
    return _node.AutogradMeta(True, node, 0, result._blob.storage.history)


def _alias(op: ViewExpr, tensor: Tensor) -> Tensor:
    """A view of `tensor` without a history."""
    return _interpreter.new_tensor(_interpreter.view_of(op, tensor._blob, (), tensor._blob.storage), tensor._lease)


def _seen(op: ViewExpr, tensor: Tensor) -> Tensor:
    """A view of `tensor` as it is now, with its history."""
    seen = _alias(op, tensor)
    seen._autograd = _history(op, (tensor,), seen)
    return seen
