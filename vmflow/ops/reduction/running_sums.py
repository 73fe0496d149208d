"""Running sums and products."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import INTEGER, dtype as DType
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered, written
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.elementwise.inference import CHEAP, result_dtype
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.shape.joining import cat, flip, roll
from vmflow.ops.table import (
    Attributes,
    Dim,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    common_device,
    normalize_dim,
)

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def widen_integers(dtype: DType) -> DType:
    return dtypes.int64 if dtype.category <= INTEGER else dtype


def _infer_running(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    output = meta(source.shape, widen_integers(source.dtype), source.device)
    return Inferred(output, source.numel * CHEAP * 4)


# Attributes: (the dimension, whether the sum or product runs from the end of the dimension)
_CUMSUM = OpExpr("cumsum", _infer_running, Form(1, tuple[Dim, bool]), "running")
_CUMPROD = OpExpr("cumprod", _infer_running, Form(1, tuple[Dim, bool]), "running")


@public(numpy_names=True)
@copied_in_place()
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """The running sum along `dim`, as `dtype`; by default int64 for bools and integers.

    Raises:
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.cumsum(flow.tensor([1, 2, 3]), 0)
        tensor([1, 3, 6])
    """
    check_tensors("cumsum", input)
    axis = normalize_dim("cumsum", dim, input.ndim)
    if out is not None and dtype is None:
        return written(_CUMSUM, out, (input,), (axis, False))
    if out is not None:
        return delivered("cumsum", out, (input,), lambda: cumsum(input, dim, dtype=dtype))
    result = _interpreter.dispatch(
        _CUMSUM, (input if dtype is None else input.to(dtypes.checked("cumsum", dtype)),), (axis, False)
    )
    return result if dtype is None else result.to(dtype)


@public(numpy_names=True)
@copied_in_place()
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None) -> Tensor:
    """The running product along `dim`, as `dtype`; by default int64 for bools and integers.

    Raises:
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.cumprod(flow.tensor([1, 2, 3]), 0)
        tensor([1, 2, 6])
    """
    check_tensors("cumprod", input)
    axis = normalize_dim("cumprod", dim, input.ndim)
    if out is not None and dtype is None:
        return written(_CUMPROD, out, (input,), (axis, False))
    if out is not None:
        return delivered("cumprod", out, (input,), lambda: cumprod(input, dim, dtype=dtype))
    result = _interpreter.dispatch(
        _CUMPROD, (input if dtype is None else input.to(dtypes.checked("cumprod", dtype)),), (axis, False)
    )
    return result if dtype is None else result.to(dtype)


@_CUMSUM.gradient()
def _cumsum_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of `cumsum`: the running sum of `gradient` from the opposite end of the dimension."""
    dim, reverses = cast("tuple[int, bool]", node.attributes)
    return (_interpreter.dispatch(_CUMSUM, (gradient,), (dim, not reverses)),)


@_CUMPROD.gradient(inputs=(0,))
def _cumprod_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of `cumprod` without division by elements, which would give nan at zeros.

    The gradient by x[j] is x[0] ... x[j-1], times the sum over k >= j of g[k] x[j+1] ... x[k]; that sum is the solution
    s[j] of the recurrence s[j] = g[j] + x[j+1] s[j+1].
    """
    dim, reverses = cast("tuple[int, bool]", node.attributes)
    assert not reverses  # no caller runs products from the end
    if gradient.ndim == 0 or gradient.numel() == 0:
        return (gradient,)
    source = conj_if_complex(node.input(0))
    return (product_before(source, dim) * _recurrence(source, gradient, dim),)


def _infer_recurrence(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (dim,) = cast("tuple[int]", attributes)
    _, terms = metas
    device = common_device("recurrence", metas)
    output = meta(terms.shape, result_dtype(metas), device)
    length = terms.shape[dim]
    return Inferred(output, output.numel * CHEAP * 8 * builtins.max(length, 2).bit_length())


_RECURRENCE = OpExpr("recurrence", _infer_recurrence, Form(2, tuple[Dim]), "running")


@_RECURRENCE.gradient(inputs=(0,), outputs=(0,))
def _recurrence_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Compute the gradients of `_recurrence` by its factors and terms, by a recurrence from the opposite end."""
    (dim,) = cast("tuple[int]", node.attributes)
    factors = conj_if_complex(node.input(0))
    terms = flipped(_recurrence(roll(flipped(factors, dim), 1, dim), flipped(gradient, dim), dim), dim)
    by_factors = None
    if node.needs[0]:
        first = terms.narrow(dim, 0, 1)
        before = cat([first.new_zeros(first.shape), terms.narrow(dim, 0, terms.shape[dim] - 1)], dim)
        by_factors = before * conj_if_complex(node.output(0))
    return by_factors, terms


def _recurrence(factors: Tensor, terms: Tensor, dim: int) -> Tensor:
    """Solve the recurrence ``s[j] = terms[j] + factors[j + 1] * s[j + 1]`` along `dim`, where s is 0 behind the end."""
    return _interpreter.dispatch(_RECURRENCE, (factors, terms), (dim,))


def product_before(input: Tensor, dim: int) -> Tensor:
    """Return, for each element, the product of all elements before it along `dim`, which must not be empty."""
    shape = list(input.shape)
    shape[dim] = 1
    return cumprod(cat([input.new_ones(shape), input.narrow(dim, 0, input.shape[dim] - 1)], dim), dim)


def flipped(input: Tensor, dim: int) -> Tensor:
    return flip(input, (dim,))
