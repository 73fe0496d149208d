"""Ops that combine the elements along dimensions: sums, products, means and extrema."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.dtypes import BOOL, COMPLEX, FLOATING, dtype as DType
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered, written
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.elementwise.comparison import ne
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.elementwise.selection import where
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, none_listed, normalize_dims

from .running_sums import flipped, product_before, widen_integers

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Dims = int | tuple[int, ...] | list[int] | None


def reduced_shape(shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> tuple[int, ...]:
    """Return the shape of the result of a reduction over `dims`."""
    if keepdim:
        return tuple([1 if axis in dims else size for axis, size in enumerate(shape)])
    return tuple([size for axis, size in enumerate(shape) if axis not in dims])


def reduced_dims(name: str, dim: Dims, rank: int) -> tuple[int, ...]:
    """Do the same as `normalize_dims`, except that an empty tuple or list means all dimensions, as in PyTorch."""
    return normalize_dims(name, None if none_listed(dim) else dim, rank)


def _reduction(
    name: str,
    output_dtype: Callable[[DType], DType],
    *,
    least: int = BOOL,
    most: int = COMPLEX,
    of_empty: bool = True,
) -> OpExpr:
    """Declare an op that reduces dimensions, with the attributes ``(dims, keepdim)``.

    Args:
        name: of the op.
        output_dtype: a function from the input's dtype to the result's.
        least, most: the lowest and the highest category of dtypes that the op takes.
        of_empty: whether dimensions without elements can be reduced.
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        dims, keepdim = cast("tuple[tuple[int, ...], bool]", attributes)
        (source,) = metas
        if not least <= source.dtype.category <= most:
            raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
        if not of_empty and 0 in [source.shape[axis] for axis in dims]:
            raise IndexError(
                f"{name}: dimensions {list(dims)} of shape {list(source.shape)} have no elements to choose from"
            )
        output = meta(reduced_shape(source.shape, dims, keepdim), output_dtype(source.dtype), source.device)
        return Inferred(output, source.numel * CHEAP)

    return OpExpr(name, infer, Form(1, tuple[tuple[Dim, ...], bool]), "reduction")


def _same(dtype: DType) -> DType:
    return dtype


def _to_bool(dtype: DType) -> DType:
    return dtypes.bool_


_SUM = _reduction("sum", widen_integers)
_PROD = _reduction("prod", widen_integers)
_MEAN = _reduction("mean", _same, least=FLOATING)
_AMAX = _reduction("amax", _same, most=FLOATING, of_empty=False)
_AMIN = _reduction("amin", _same, most=FLOATING, of_empty=False)
_NORM = _reduction("norm", _same, least=FLOATING, most=FLOATING)
_ALL = _reduction("all", _to_bool)
_ANY = _reduction("any", _to_bool)


def _reduce(op: OpExpr, input: Tensor, dim: Dims, keepdim: bool, out: Tensor | None = None) -> Tensor:
    dims = reduced_dims(op.name, dim, input.ndim)
    keepdim = flag(op.name, "keepdim", keepdim)
    if out is not None:
        return written(op, out, (input,), (dims, keepdim))
    return _interpreter.dispatch(op, (input,), (dims, keepdim))


@public(numpy_names=True)
def sum(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The sum along `dim` (None: all), as `dtype`; by default bools and integers sum to int64.

    Raises:
        IndexError: if a dimension does not exist.
        ValueError: if a dimension is named twice.

    Example:
        >>> flow.sum(flow.tensor([[1, 2], [3, 4]]), dim=0)
        tensor([4, 6])
    """
    check_tensors("sum", input)
    if dtype is None:
        return _reduce(_SUM, input, dim, keepdim, out)
    if out is not None:
        return delivered("sum", out, (input,), lambda: sum(input, dim, keepdim, dtype=dtype))
    return _reduce(_SUM, input.to(dtypes.checked("sum", dtype)), dim, keepdim).to(dtype)


@public(numpy_names=True)
def prod(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The product along `dim` (None: all), as `dtype`; by default bools and integers multiply to int64.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.prod(flow.tensor([[1, 2], [3, 4]]), dim=1)
        tensor([ 2, 12])
    """
    check_tensors("prod", input)
    if dtype is None:
        return _reduce(_PROD, input, dim, keepdim, out)
    if out is not None:
        return delivered("prod", out, (input,), lambda: prod(input, dim, keepdim, dtype=dtype))
    return _reduce(_PROD, input.to(dtypes.checked("prod", dtype)), dim, keepdim).to(dtype)


@public(numpy_names=True)
def mean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """The mean along `dim` (None: all), of the elements converted to `dtype` if that is given.

    Raises:
        TypeError: for the mean of bools and integers.
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.mean(flow.tensor([[1.0, 2.0], [3.0, 4.0]]), dim=0)
        tensor([2., 3.])
    """
    check_tensors("mean", input)
    return _reduce(_MEAN, input if dtype is None else input.to(dtypes.checked("mean", dtype)), dim, keepdim, out)


@public(numpy_names=True)
def amax(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The largest element along `dim` (None: all); equal elements share the gradient.

    Raises:
        TypeError: for complex tensors.
        IndexError: if a dimension does not exist or has no elements.
        ValueError: if a dimension is named twice.

    Example:
        >>> flow.amax(flow.tensor([[1, 2], [4, 3]]), dim=1)
        tensor([2, 4])
    """
    check_tensors("amax", input)
    return _reduce(_AMAX, input, dim, keepdim, out)


@public(numpy_names=True)
def amin(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The smallest element along `dim` (None: all); equal elements share the gradient.

    Raises:
        TypeError, IndexError, ValueError: as `amax`.

    Example:
        >>> flow.amin(flow.tensor([[1, 2], [4, 3]]), dim=1)
        tensor([1, 3])
    """
    check_tensors("amin", input)
    return _reduce(_AMIN, input, dim, keepdim, out)


def euclidean_norm(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Compute the Euclidean norm of floats along `dim` (None: all); where the norm is 0, so is its gradient."""
    return _reduce(_NORM, input, dim, keepdim)


@public(numpy_names=True)
def all(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether all elements along `dim` (None: all) are non-zero; with an empty tuple `dim`, whether each element is.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.all(flow.tensor([[1, 2], [0, 3]]), dim=1)
        tensor([ True, False])
    """
    check_tensors("all", input)
    if none_listed(dim):
        return ne(input, 0, out=out)
    return _reduce(_ALL, input, dim, keepdim, out)


@public(numpy_names=True)
def any(input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether any element along `dim` (None: all) is non-zero; with an empty tuple `dim`, whether each element is.

    Raises:
        IndexError, ValueError: as `sum`.

    Example:
        >>> flow.any(flow.tensor([[0, 0], [0, 3]]), dim=1)
        tensor([False,  True])
    """
    check_tensors("any", input)
    if none_listed(dim):
        return ne(input, 0, out=out)
    return _reduce(_ANY, input, dim, keepdim, out)


def half_widened(input: Tensor) -> Tensor:
    """Convert half precision to float32, in which squares of float16 neither overflow nor vanish; else do nothing."""
    return input.to(dtypes.float32) if input.dtype in (dtypes.float16, dtypes.bfloat16) else input


def _spread(node: OpNode, reduced: Tensor) -> Tensor:
    """Expand a tensor of a reduction's result shape to the shape of the reduction's input."""
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", node.attributes)
    shape = node.meta(0).shape
    if not keepdim:
        reduced = reduced.reshape(reduced_shape(shape, dims, True))
    return reduced.expand(shape)


@_SUM.gradient()
def _sum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_spread(node, gradient),)


@_MEAN.gradient()
def _mean_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    count = math.prod([node.meta(0).shape[axis] for axis in dims])
    return (_spread(node, gradient / builtins.max(count, 1)),)


@_PROD.gradient(inputs=(0,))
def _prod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of `prod` by each element: `gradient` times the elements before it and those behind it.

    Dividing the whole product by the element would be wrong for zeros."""
    source = conj_if_complex(node.input(0))
    dims, _ = cast("tuple[tuple[int, ...], bool]", node.attributes)
    gradient = _spread(node, gradient)
    if not source.numel():
        return (gradient,)
    order = [axis for axis in range(source.ndim) if axis not in dims] + list(dims)
    moved = source.permute(order)
    flat = moved.reshape((*moved.shape[: source.ndim - len(dims)], -1))
    behind = flipped(product_before(flipped(flat, -1), -1), -1)
    others = (product_before(flat, -1) * behind).reshape(moved.shape)
    return (gradient * others.permute(sorted(range(len(order)), key=order.__getitem__)),)


def _extremum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    source = node.input(0)
    chosen = source == _spread(node, node.output(0))
    dims, keepdim = cast("tuple[tuple[int, ...], bool]", node.attributes)
    count = sum(chosen, dims, keepdim)
    # Divide half precision in float32: more elements may share the gradient than half precision can count.  A count of
    # 0 means that the extremum is nan, which equals no element: then the gradient is nan.
    share = half_widened(gradient) / count
    rest = where(count == 0, math.nan, 0.0)
    return (where(chosen, _spread(node, share), _spread(node, rest)),)


_AMAX.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)
_AMIN.gradient(inputs=(0,), outputs=(0,))(_extremum_gradient)


@_NORM.gradient(inputs=(0,), outputs=(0,))
def _norm_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of the Euclidean norm: `gradient` times the unit vector, or 0 where the norm is 0."""
    size = node.output(0)
    nothing = size == 0
    share = where(nothing, 0.0, gradient / where(nothing, 1.0, size))
    return (node.input(0) * _spread(node, share),)
