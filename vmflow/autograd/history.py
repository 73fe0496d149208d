"""Recording: each recorded op makes a node, to which the edges of its results lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmflow.tensor_fields import TensorFields

from . import views
from .node import PACKING_BLOCKS, AutogradMeta, Edge, OpNode, PackingOpNode, packing_here

if TYPE_CHECKING:
    from vmflow.ops.table import Attributes, OpExpr
    from vmflow.tensors import Tensor


def edge_of(tensor: Tensor) -> Edge:
    """The place of a tensor of any shape in the graph now; None if no gradient flows into it.

    The history of a view is updated first: its base may have changed in place since the view was recorded.  Raises no
    errors.

    Example:
        >>> print(flow.autograd.edge_of(flow.ones(2)))
        None
    """
    fields: TensorFields = tensor
    if fields._base is not None:
        views.renewed(tensor)
    autograd = fields._autograd
    return None if autograd is None else autograd.edge()


def check_history(name: str, operands: tuple[Tensor, ...]) -> None:
    """Raise if the history of an operand that an op made, of any shape, lacks a recorded change of its memory.

    Raises:
        RuntimeError: if autograd has recorded a change in place of such an operand's memory through another tensor,
            unless the operand is a view whose history can be updated.

    Example:
        >>> flow.autograd.check_history("exp", (flow.ones(2),))
    """
    for tensor in operands:
        fields: TensorFields = tensor
        if fields._base is not None:
            views.renewed(tensor)
        autograd = fields._autograd
        if autograd is None or autograd.node is None or autograd.history == fields._blob.storage.history:
            continue
        raise RuntimeError(
            f"{name}: an operand shares its memory with a tensor that was changed in place since; its gradient would "
            "miss the change, so make the view anew"
        )


def record(
    op: OpExpr,
    inputs: tuple[Tensor, ...],
    attributes: Attributes,
    scalars: tuple[Any, ...],
    results: tuple[Tensor, ...],
    in_place: bool = False,
) -> None:
    """Give the differentiable ones of `results` a node; first `check_history`, unless `in_place`."""
    if not in_place:
        check_history(op.name, inputs)
    packing = packing_here() if PACKING_BLOCKS else None
    if packing is None:
        node = OpNode(op, inputs, attributes, scalars, results, in_place)
    else:
        node = PackingOpNode(op, inputs, attributes, scalars, results, in_place, packing)
    for index, result in enumerate(results):
        fields: TensorFields = result
        if fields._blob.meta.differentiable:
            made = AutogradMeta(True, node, index, fields._blob.storage.history)
            fields._autograd = made.follow(fields._autograd) if in_place else made
