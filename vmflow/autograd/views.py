"""Histories of tensors that share memory: of a view that is changed in place, of its base, and of other views.

A view made while autograd records knows its base, the tensor that has the whole memory.  A recorded change of the view
gives the base a new history, in which the new part replaces the old one.  Views from before a change get a new history
at their next use: that of parts of the changed base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vmflow.ops.table import OPS, ViewExpr
from vmflow.tensor_fields import new_alias, new_tensor, view_of

from . import node as _node

if TYPE_CHECKING:
    from vmflow.ops.table import Attributes
    from vmflow.tensors import Tensor

    from .node import AutogradMeta


# A value of `AutogradMeta.history` that belongs to no version of any memory.
NEVER: Final = -1

# The names of ops in the histories of views.  Modules that `import vmflow` loads must declare them: a program that uses
# views need not call one of them.
_VIEW_AS_REAL: Final = "view_as_real"
_VIEW_AS_COMPLEX: Final = "view_as_complex"
_AS_STRIDED: Final = "as_strided"
_STRIDED_PUT: Final = "strided_put"


def base_for(source: Tensor) -> Tensor | None:
    """The base of a view of `source`: that of `source`, else `source` itself unless it is strided, else None."""
    if source._base is not None:
        return source._base
    return source if source._blob.strides is None else None


def renewed(tensor: Tensor) -> bool:
    """Update the history of a view from its base's, if outdated; return whether gradients flow into the view."""
    autograd, base = tensor._autograd, tensor._base
    assert base is not None
    while base._base is not None:  # `transpose_` and the like have turned the base into a view
        tensor._base = base = base._base
    history = tensor._blob.storage.history
    if autograd is not None and (autograd.requires_grad if autograd.node is None else autograd.history == history):
        return autograd.requires_grad
    whole = base._autograd
    # Views made before their base required a gradient stay without one; only recorded changes of the memory count.
    if whole is None or whole.node is None or whole.history != history:
        return autograd is not None and autograd.requires_grad
    real = _seen(_VIEW_AS_REAL, base) if base.dtype.is_complex and not tensor.dtype.is_complex else base
    if tensor.dtype is real.dtype:
        made = _history(_AS_STRIDED, (real,), tensor, (_geometry(tensor), _geometry(real)))
        between = None if real is base else real._autograd
    else:
        pairs = _alias(_VIEW_AS_REAL, tensor)
        between = pairs._autograd = _history(_AS_STRIDED, (base,), pairs, (_geometry(pairs), _geometry(base)))
        made = _history(_VIEW_AS_COMPLEX, (pairs,), tensor)
    # The new nodes get numbers right behind the base's, not the next ones: otherwise a checkpoint that is the first to
    # use the view would take these nodes for its own.
    if between is not None and between.node is not None:
        between.node.sequence = whole.node.sequence + 1
    assert made.node is not None
    made.node.sequence = whole.node.sequence + 2
    tensor._autograd = made.follow(autograd)
    return True


def unchanged(tensor: Tensor) -> Tensor:
    """An alias of a tensor before its change in place, to be recorded as the change's operand.

    Hooks of a view get the gradients from other uses of it, not from the change, which counts as a change of the base.
    """
    alias, autograd, base = new_alias(tensor), tensor._autograd, tensor._base
    if autograd is not None and base is not None and _watched(autograd, base._autograd):
        alias._autograd = _node.AutogradMeta(True, autograd.node, autograd.index, NEVER)
        renewed(alias)
    return alias


def _watched(autograd: AutogradMeta, base: AutogradMeta | None) -> bool:
    """Whether a view of this meta, or another one between it and its base, has hooks or keeps its gradient."""
    edge: AutogradMeta | None = autograd
    while edge is not None and isinstance(edge.node, _node.OpNode) and isinstance(edge.node.op, ViewExpr):
        if base is None or edge.node is base.node:
            return False
        if edge.node.outputs is not None:
            return True
        edge = edge.node.edges[0]
    return False


def rebase(base: Tensor, view: Tensor) -> None:
    """Record that `view`, a part of `base`, was changed in place; the view's history is the change's already.

    From now on the base's history leads to the change, and the view is a part of the base: its own history is outdated,
    and renewed at its next use.
    """
    changed = view._autograd
    assert changed is not None
    base._autograd = _with_part(base, view).follow(base._autograd)
    view._autograd = stale = _node.AutogradMeta(True, changed.node, changed.index, NEVER)
    # `retain_grad` is for the view's renewed history, not for the change's result.
    stale.grad, stale.retains, changed.retains = changed.grad, changed.retains, False


def _with_part(base: Tensor, view: Tensor) -> AutogradMeta:
    """Make the history of `base` after a recorded change of its part `view`: the new part replaces the old one."""
    if base.dtype is view.dtype:
        return _history(_STRIDED_PUT, (base, view), base, (_geometry(view),), in_place=True)
    # One of base and view is complex, the other real: the change is recorded on real views of the complex tensor.
    if view.dtype.is_complex:
        pairs = _seen(_VIEW_AS_REAL, view)
        return _history(_STRIDED_PUT, (base, pairs), base, (_geometry(pairs),), in_place=True)
    before, after = _seen(_VIEW_AS_REAL, base), _alias(_VIEW_AS_REAL, base)
    after._autograd = _history(_STRIDED_PUT, (before, view), after, (_geometry(view),), in_place=True)
    return _history(_VIEW_AS_COMPLEX, (after,), base)


def _geometry(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _history(
    op: str, inputs: tuple[Tensor, ...], result: Tensor, attributes: Attributes = (), in_place: bool = False
) -> AutogradMeta:
    """Make a node for `op` with `inputs`, and return the place of `result`, its output."""
    node = _node.OpNode(OPS[op], inputs, attributes, (), (result,), in_place)
    return _node.AutogradMeta(True, node, 0, result._blob.storage.history)


def _alias(op: str, tensor: Tensor) -> Tensor:
    """The view of `tensor` by `op`, without a history."""
    view = OPS[op]
    assert isinstance(view, ViewExpr)
    return new_tensor(view_of(view, tensor._blob, (), tensor._blob.storage), tensor._lease)


def _seen(op: str, tensor: Tensor) -> Tensor:
    """The view of `tensor` by `op`, with a history that leads to the tensor's."""
    seen = _alias(op, tensor)
    seen._autograd = _history(op, (tensor,), seen)
    return seen
