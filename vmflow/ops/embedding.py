"""Embedding: rows of a table, by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import no_grad
from vmflow.instructions.blob import Array, TensorMeta, meta

from .elementwise import CHEAP, full_of, where, zeros_of
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def check_rows(name: str, index: Array, rows: int) -> None:
    """Raise IndexError unless every index names one of so many rows; none counts from the end."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= rows:
            raise IndexError(f"{name}: index {low if low < 0 else high} is out of range for a table of {rows} rows")


def _infer_embedding(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    index, table = metas
    device = common_device("embedding", metas)
    if index.dtype.category != dtypes.INTEGER:
        raise TypeError(f"embedding: the indices must be integers, not {index.dtype.name}")
    if len(table.shape) != 2:
        raise ValueError(f"embedding: the table must be a matrix, got shape {list(table.shape)}")
    rows, width = table.shape
    output = meta((*index.shape, width), table.dtype, device)
    xp = array_module(device)

    def kernel(places: Array, values: Array, out: Array | None) -> Array:
        check_rows("embedding", places, rows)
        return xp.take(values, places, axis=0)

    return Inferred(output, kernel, output.numel * CHEAP * 2)


_EMBEDDING = OpExpr("embedding", _infer_embedding)


@_EMBEDDING.gradient(inputs=(0,))
def _embedding_gradient(node: OpNode, gradient: Tensor) -> tuple[None, Tensor]:
    padding, by_frequency = node.attributes
    table = node.meta(1)
    index = node.input(0)
    if by_frequency:
        counts = zeros_of(meta((table.shape[0],), gradient.dtype, table.device)).scatter_add(
            0, index.reshape(-1), full_of(meta((index.numel(),), gradient.dtype, table.device), 1)
        )
        gradient = gradient / counts[index].unsqueeze(-1)
    output = meta(tuple(table.shape), gradient.dtype, table.device)
    return None, _interpreter.dispatch(_ADD_ROWS, (gradient, index), (output, padding))


def _infer_add_rows(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, padding = cast("tuple[TensorMeta, int]", attributes)
    rows, width = output.shape
    xp = array_module(output.device)

    def kernel(part: Array, places: Array, out: Any) -> Array:
        check_rows("embedding", places, rows)
        table = xp.zeros(output.shape, output.dtype.numpy)
        xp.add.at(table, places.reshape(-1), part.reshape(-1, width))
        if padding >= 0:
            table[padding] = 0
        return table

    return Inferred(output, kernel, metas[0].numel * 10 + output.numel * CHEAP)


_ADD_ROWS = OpExpr("embedding_add_rows", _infer_add_rows)


@_ADD_ROWS.gradient(inputs=(1,))
def _add_rows_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    _, padding = cast("tuple[TensorMeta, int]", node.attributes)
    index = node.input(1)
    rows = _interpreter.dispatch(_EMBEDDING, (index, gradient), (-1, False))
    if padding >= 0:
        rows = rows.masked_fill((index == padding).unsqueeze(-1), 0)
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
    """The rows of `weight` that `input` names: (...) of integers and (rows, width) give (..., width).

    Args:
        input: integers from 0 up to, without, rows; checked when the op runs.
        weight: the table.
        padding_idx: a row that gets no gradient; may count from the end.
        max_norm: if given, the rows named are first scaled down, in place, to this norm.
        norm_type: which norm.
        scale_grad_by_freq: divide a row's gradient by how often `input` names it.
        sparse: must be False; gradients are dense.

    Raises:
        TypeError: if `input` holds no integers.
        ValueError: if `weight` is no matrix or has no row `padding_idx`, or for sparse gradients.
    """
    if sparse:
        raise ValueError("embedding: sparse gradients are not supported; leave sparse=False")
    if weight.ndim != 2:
        raise ValueError(f"embedding: the table must be a matrix, got shape {list(weight.shape)}")
    padding = -1
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: padding_idx {padding_idx} names no row of a table of {rows}")
        padding = padding_idx % rows
    if max_norm is not None:
        with no_grad():
            _limit_norms(input, weight.detach(), max_norm, norm_type)
    return _interpreter.dispatch(_EMBEDDING, (input, weight), (padding, bool(scale_grad_by_freq)))


def _limit_norms(index: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down, in place, the rows named whose norm is above the limit."""
    ones = full_of(meta((index.numel(),), weight.dtype, weight.device), 1)
    named = weight.new_zeros(weight.shape[0]).scatter(0, index.reshape(-1), ones) > 0
    norms = weight.norm(norm_type, 1, keepdim=True)
    too_long = (norms > max_norm) & named.unsqueeze(-1)
    weight.copy_(where(too_long, weight * (max_norm / (norms + 1e-7)), weight))
