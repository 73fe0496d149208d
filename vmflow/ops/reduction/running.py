"""Running extrema, `cummax` and `cummin`, and `logcumsumexp`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.inference import CHEAP, EXPENSIVE
from vmflow.ops.elementwise.selection import where
from vmflow.ops.elementwise.transcendental import exp, log
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.nn.layer_operands import check_floating
from vmflow.ops.shape.joining import flip
from vmflow.ops.table import Attributes, Dim, Form, Inferred, Kinds, Metas, OpExpr, normalize_dim

from .extrema import ValuesIndices

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


def _places(name: str) -> OpExpr:
    """Declare an op that returns, for each position along a dimension, the index of the extremum up to that position.

    The last of equal elements counts as the extremum."""

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (source,) = metas
        if source.dtype.category > FLOATING:
            raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")
        return Inferred(meta(source.shape, dtypes.int64, source.device), source.numel * CHEAP * 12)

    return OpExpr(name, infer, Form(1, tuple[Dim]), "running")


_CUMMAX = _places("cummax")
_CUMMIN = _places("cummin")


def _chosen(op: OpExpr, input: Tensor, dim: int) -> ValuesIndices:
    axis = normalize_dim(op.name, dim, input.ndim)
    indices = _interpreter.dispatch(op, (input,), (axis,))
    return ValuesIndices(gather(input, axis, indices), indices)


@public(numpy_names=True)
@outs_by_copy()
def cummax(input: Tensor, dim: int, *, out: tuple[Tensor, Tensor] | None = None) -> ValuesIndices:
    """The largest element so far along `dim`, and its index, of equal elements the last: a pair (values, indices).

    Raises:
        TypeError: for complex tensors.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.cummax(flow.tensor([1, 3, 2]), 0)
        ValuesIndices(values=tensor([1, 3, 3]), indices=tensor([0, 1, 1]))
    """
    check_tensors("cummax", input)
    return _chosen(_CUMMAX, input, dim)


@public(numpy_names=True)
@outs_by_copy()
def cummin(input: Tensor, dim: int, *, out: tuple[Tensor, Tensor] | None = None) -> ValuesIndices:
    """The smallest element so far along `dim`, and its index, of equal elements the last: a pair (values, indices).

    Raises:
        TypeError, IndexError: as `cummax`.

    Example:
        >>> flow.cummin(flow.tensor([2, 3, 1]), 0)
        ValuesIndices(values=tensor([2, 2, 1]), indices=tensor([0, 0, 2]))
    """
    check_tensors("cummin", input)
    return _chosen(_CUMMIN, input, dim)


def _infer_logcumsumexp(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    check_floating("logcumsumexp", source)
    return Inferred(source, source.numel * EXPENSIVE * 3)


_LOGCUMSUMEXP = OpExpr("logcumsumexp", _infer_logcumsumexp, Form(1, tuple[Dim]), "running")


@_LOGCUMSUMEXP.gradient(inputs=(0,), outputs=(0,))
def _logcumsumexp_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient ``exp(x[i]) * sum over j >= i of g[j] / exp(out[j])`` in logarithms, which do not overflow.

    Positive and negative elements of the gradient are summed separately."""
    (dim,) = cast("tuple[int]", node.attributes)
    if gradient.ndim == 0 or gradient.numel() == 0:
        return (gradient,)
    total = node.output(0)
    # A result of -inf is a sum of no positive terms, and passes no gradient on.
    counted = total != -math.inf
    total = where(counted, total, 0.0)

    def shares(positive: Tensor) -> Tensor:
        chosen = (positive > 0) & counted
        terms = where(chosen, log(where(chosen, positive, 1.0)) - total, -math.inf)
        return exp(flip(logcumsumexp(flip(terms, dim), dim), dim) + node.input(0))

    return (shares(gradient) - shares(-gradient),)


@public(numpy_names=True)
@out_by_copy()
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the running sum of ``exp(input)`` along `dim`, without overflow.

    Raises:
        TypeError: for bools, integers and complex tensors.
        IndexError: if the dimension does not exist.

    Example:
        >>> flow.logcumsumexp(flow.tensor([0.0, 0.0]), 0)
        tensor([0.0000, 0.6931])
    """
    check_tensors("logcumsumexp", input)
    return _interpreter.dispatch(_LOGCUMSUMEXP, (input,), (normalize_dim("logcumsumexp", dim, input.ndim),))
