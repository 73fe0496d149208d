"""Embedding: look-up of rows of a table by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.autograd.grad_mode import no_grad
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.operands import check_tensors
from vmflow.ops.copying import full_of
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size, common_device
from vmflow.transfers import beside

from .layer_operands import check_shape

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _check_table(name: str, index: TensorMeta, table: TensorMeta) -> None:
    common_device(name, (index, table))
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"{name}: the indices must be integers, not {index.dtype.name}")
    if len(table.shape) != 2:
        raise ValueError(f"{name}: the table must be a matrix (rows, width), got shape {list(table.shape)}")


# Attributes of the op `embedding`: (the row that gets no gradient, or -1; whether a row's gradient is divided by the
# number of its occurrences).  Its gradient op also has the number of rows of the table.


def _infer_embedding(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    index, table = metas
    _check_table("embedding", index, table)
    output = meta((*index.shape, table.shape[1]), table.dtype, table.device)
    return Inferred(output, output.numel * CHEAP * 2 + index.numel * 5)


def _infer_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    padding, _, rows = cast("tuple[int, bool, int]", attributes)
    gradient, index = metas
    if index.dtype.category != dtypes.INTEGER or gradient.dtype.category < dtypes.FLOATING:
        raise TypeError(f"embedding: a gradient {gradient} does not fit indices {index}")
    width = gradient.shape[-1]
    check_shape("embedding", "a gradient", gradient, (*index.shape, width))
    if padding >= rows:
        raise ValueError(f"embedding: a table of {rows} rows has no row {padding}")
    output = meta((rows, width), gradient.dtype, gradient.device)
    return Inferred(output, gradient.numel * 8 + output.numel * CHEAP)


def _infer_limit_norms(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    table, index = metas
    _check_table("embedding", index, table)
    if table.dtype.category != dtypes.FLOATING:
        raise TypeError(f"embedding: max_norm needs a floating-point table, not {table.dtype.name}")
    return Inferred(table, index.numel * table.shape[1] * CHEAP * 10 + 10000)


_EMBEDDING = OpExpr("embedding", _infer_embedding, Form(2, tuple[int, bool]), "embedding")
_GRADIENT = OpExpr("embedding_gradient", _infer_gradient, Form(2, tuple[int, bool, Size]), "embedding")
_LIMIT_NORMS = OpExpr("embedding_limit_norms", _infer_limit_norms, Form(2, tuple[float, float]), "embedding")


@_EMBEDDING.gradient(inputs=(0,))
def _embedding_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    rows = node.meta(1).shape[0]
    return None, _interpreter.dispatch(_GRADIENT, (gradient, node.input(0)), (*node.attributes, rows))


@_GRADIENT.gradient(inputs=(1,))
def _gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    padding, by_frequency, _ = cast("tuple[int, bool, int]", node.attributes)
    index = node.input(1)
    rows = _interpreter.dispatch(_EMBEDDING, (index, gradient), (-1, False))
    if padding >= 0:
        rows = rows.masked_fill((index == padding).unsqueeze(-1), 0)
    if by_frequency:
        ones = beside(full_of(meta((*index.shape, 1), gradient.dtype, gradient.device), 1), index)
        counts = _interpreter.dispatch(_GRADIENT, (ones, index), (-1, False, gradient.shape[0]))
        rows = rows / _interpreter.dispatch(_EMBEDDING, (index, counts), (-1, False))
    return rows, None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up the rows of `weight` that `input` names: (...) of integers and (rows, width) give (..., width).

    Args:
        input: integers in [0, rows); checked when the op runs.
        weight: the table.
        padding_idx: a row that gets no gradient; may count from the end.
        max_norm: if given, rows that `input` names are first scaled down, in place, to this norm if theirs is larger.
        norm_type: the exponent of that norm.
        scale_grad_by_freq: whether to divide a row's gradient by the number of times that `input` names it.
        sparse: must be False; gradients are dense.

    Raises:
        TypeError: if `input` holds no integers, `padding_idx` is no integer, or `max_norm` is given for a table that is
            not floating-point.
        ValueError: if `weight` is no matrix or has no row `padding_idx`, or for sparse gradients.
        IndexError: if a row does not exist, when the result is read.

    Example:
        >>> flow.nn.functional.embedding(flow.tensor([1, 0]), flow.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    check_tensors("embedding", input, weight)
    if sparse:
        raise ValueError("embedding: sparse gradients are not supported; leave sparse=False")
    _check_table("embedding", input._blob.meta, weight._blob.meta)
    padding = -1
    if padding_idx is not None:
        rows = weight.shape[0]
        padding_idx = whole_number("embedding", "padding_idx", padding_idx)
        if not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: padding_idx {padding_idx} names no row of a table of {rows}")
        padding = padding_idx % rows
    if max_norm is not None:
        with no_grad():
            _interpreter.dispatch_into(_LIMIT_NORMS, weight, (weight, input), (float(max_norm), float(norm_type)))
    return _interpreter.dispatch(_EMBEDDING, (input, weight), (padding, bool(scale_grad_by_freq)))
