"""Extrema: of two tensors element by element, and of one tensor along dimensions, with their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered_all, outs_by_copy, written
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.pointwise import binary
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, normalize_dim

from .reduction import amax, amin, reduced_shape

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


# Two tensors

maximum = binary(
    "maximum",
    most=FLOATING,
    in_place=False,
    doc="""The larger of two elements; nan if either is.  The tensors broadcast.

    Raises:
        TypeError: for complex tensors.
        ValueError: if the shapes do not broadcast.

    Example:
        >>> flow.maximum(flow.tensor([3, 2]), flow.tensor([4, 1]))
        tensor([4, 2])
    """,
)
minimum = binary(
    "minimum",
    most=FLOATING,
    in_place=False,
    doc="""The smaller of two elements; nan if either is.  The tensors broadcast.

    Raises:
        TypeError, ValueError: as `maximum`.

    Example:
        >>> flow.minimum(flow.tensor([3, 2]), flow.tensor([4, 1]))
        tensor([3, 1])
    """,
)


@maximum.op.tensors.gradient(inputs=(0, 1))
def _maximum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.input(0), node.input(1)
    return _shared_gradient(node, gradient, first < second, second < first)


@minimum.op.tensors.gradient(inputs=(0, 1))
def _minimum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    first, second = node.input(0), node.input(1)
    return _shared_gradient(node, gradient, second < first, first < second)


def _shared_gradient(
    node: OpNode, gradient: Tensor, second_wins: Tensor, first_wins: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Compute the gradients of `maximum` or `minimum` by both operands; equal elements get half each, as in PyTorch."""
    shared = where(node.input(0) == node.input(1), gradient * 0.5, gradient)
    needs_first, needs_second = node.needs
    return (
        where(second_wins, 0.0, shared) if needs_first else None,
        where(first_wins, 0.0, shared) if needs_second else None,
    )


@maximum.op.scalar.gradient(inputs=(0,))
def _maximum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    return (where(operand < value, 0.0, where(operand == value, gradient * 0.5, gradient)),)


@minimum.op.scalar.gradient(inputs=(0,))
def _minimum_scalar_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    operand, value = node.input(0), node.scalars[0]
    return (where(operand > value, 0.0, where(operand == value, gradient * 0.5, gradient)),)


# One tensor


class ValuesIndices(NamedTuple):
    """The result of functions such as `max` and `sort`: extrema or sorted elements, and their int64 indices."""

    values: Tensor
    indices: Tensor


def _arg(name: str) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        dim, keepdim = cast("tuple[int | None, bool]", attributes)
        (source,) = metas
        if not source.dtype.category <= FLOATING:
            raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
        dims = tuple(range(len(source.shape))) if dim is None else (dim,) if source.shape else ()
        if 0 in [source.shape[axis] for axis in dims]:
            what = "a tensor" if dim is None else f"dimension {dim}"
            raise IndexError(f"{name}: {what} of shape {list(source.shape)} has no elements to choose from")
        output = meta(reduced_shape(source.shape, dims, keepdim), dtypes.int64, source.device)
        return Inferred(output, source.numel * CHEAP)

    return OpExpr(name, infer, Form(1, tuple[Dim | None, bool]), "reduction")


_ARGMAX = _arg("argmax")
_ARGMIN = _arg("argmin")


@public(numpy_names=True)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index, int64, of the largest element along `dim`, or in the flattened tensor; of equal elements the first.

    A nan counts as the largest.

    Raises:
        TypeError: for complex tensors.
        IndexError: if the dimension does not exist or there are no elements to choose from.

    Example:
        >>> flow.argmax(flow.tensor([1, 5, 5]))
        tensor(1)
    """
    axis = None if dim is None else normalize_dim("argmax", dim, input.ndim)
    keepdim = flag("argmax", "keepdim", keepdim)
    if out is not None:
        return written(_ARGMAX, out, (input,), (axis, keepdim))
    return _interpreter.dispatch(_ARGMAX, (input,), (axis, keepdim))


@public(numpy_names=True)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index, int64, of the smallest element along `dim`, or in the flattened tensor; of equal elements the first.

    A nan counts as the smallest.

    Raises:
        TypeError, IndexError: as `argmax`.

    Example:
        >>> flow.argmin(flow.tensor([[3, 1], [0, 2]]), dim=1)
        tensor([1, 0])
    """
    axis = None if dim is None else normalize_dim("argmin", dim, input.ndim)
    keepdim = flag("argmin", "keepdim", keepdim)
    if out is not None:
        return written(_ARGMIN, out, (input,), (axis, keepdim))
    return _interpreter.dispatch(_ARGMIN, (input,), (axis, keepdim))


def _along(input: Tensor, dim: int, keepdim: bool, indices: Tensor) -> ValuesIndices:
    if input.ndim == 0:
        return ValuesIndices(input.clone(), indices)
    values = gather(input, dim, indices)
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(values.squeeze(dim), indices.squeeze(dim))


@public(numpy_names=True)
def max(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """The largest element; with `dim` a pair (values, indices); with another tensor the element-wise `maximum`.

    A nan counts as the largest.

    Args:
        input: of any real dtype.
        dim: a dimension, or the other tensor.
        keepdim: whether the dimension stays, with size 1.
        other: the other tensor, as a keyword.
        out: for the results: a pair of tensors if `dim` is a dimension, else one.

    Raises:
        TypeError: for complex tensors, a `dim` of another type, or a `dim` or `keepdim` beside another tensor.
        ValueError: if the shape of the other tensor does not broadcast.
        IndexError: if the dimension does not exist or there are no elements to choose from.

    Example:
        >>> flow.max(flow.tensor([[3, 1], [0, 2]]), dim=1)
        ValuesIndices(values=tensor([3, 2]), indices=tensor([0, 1]))
    """
    check_tensors("max", input)
    return _max_or_min("max", input, dim, keepdim, other, out, amax, argmax, maximum)


@public(numpy_names=True)
def min(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """The smallest element; with `dim` a pair (values, indices); with another tensor the element-wise `minimum`.

    The arguments are those of `max`.  A nan counts as the smallest.

    Raises:
        TypeError, ValueError, IndexError: as `max`.

    Example:
        >>> flow.min(flow.tensor([3, 1, 2]))
        tensor(1)
    """
    check_tensors("min", input)
    return _max_or_min("min", input, dim, keepdim, other, out, amin, argmin, minimum)


def _max_or_min(
    name: str,
    input: Tensor,
    dim: Any,
    keepdim: bool,
    other: Tensor | None,
    out: Any,
    extremum: Any,
    position: Any,
    pairwise: Any,
) -> Tensor | ValuesIndices:
    if other is not None:
        if dim is not None:
            raise TypeError(f"{name}: give either a dimension or another tensor, not both")
        dim = other
    keepdim = flag(name, "keepdim", keepdim)
    if dim is None:
        return cast("Tensor", extremum(input, out=out))
    if not isinstance(dim, (int, np.integer)):
        if isinstance(dim, float):
            raise TypeError(f"{name}: dim must be an integer, or a tensor to compare with, not {dim}; see clamp()")
        if keepdim:
            raise TypeError(f"{name}: keepdim belongs to a dimension, and not to another tensor")
        return cast("Tensor", pairwise(input, dim, out=out))
    dim = cast("int", dim)
    if out is None:
        return _along(input, dim, keepdim, position(input, dim, True))
    return delivered_all(name, out, (input,), lambda: _along(input, dim, keepdim, position(input, dim, True)))


class MinMax(NamedTuple):
    """The result of `aminmax`: the smallest and the largest element."""

    min: Tensor
    max: Tensor


@public(numpy_names=True)
@outs_by_copy()
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: tuple[Tensor, Tensor] | None = None
) -> MinMax:
    """The pair (`amin`, `amax`) along `dim`, or of all elements.

    Raises:
        TypeError, IndexError: as `amax`.

    Example:
        >>> flow.aminmax(flow.tensor([3, 1, 2]))
        MinMax(min=tensor(1), max=tensor(3))
    """
    check_tensors("aminmax", input)
    return MinMax(amin(input, dim, keepdim), amax(input, dim, keepdim))
