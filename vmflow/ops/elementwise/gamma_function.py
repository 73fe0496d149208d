"""The logarithm of the gamma function and its derivatives.

numpy lacks these functions.  vmflow computes them in float64 for every dtype and rounds once.  The formulas are from
the NIST Digital Library of Mathematical Functions, chapters 5 and 25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.ops.declaration import function, method
from vmflow.ops.destination import out_by_copy
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size

from .inference import EXPENSIVE, TO_FLOAT
from .pointwise import unary

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

lgamma = unary(
    "lgamma",
    TO_FLOAT,
    cost=EXPENSIVE * 20,
    most=FLOATING,
    doc="The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ...",
    example=("flow.lgamma(flow.tensor([1.0, 4.0]))", "tensor([0.0000, 1.7918])"),
)
digamma = unary(
    "digamma",
    TO_FLOAT,
    cost=EXPENSIVE * 15,
    most=FLOATING,
    doc="The derivative of `lgamma`; -inf at 0, nan at -1, -2, ...",
    example=("flow.digamma(flow.tensor([1.0, 2.0]))", "tensor([-0.5772,  0.4228])"),
)


# The largest order n that `polygamma` takes, and the largest order of its derivatives.  The second limit keeps the
# scales of kernels within the range of float64.
_MOST_ORDER: Final = 1000
_MOST_DERIVATIVES: Final = 2000


def _infer_polygamma(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (n,) = cast("tuple[int]", attributes)
    (source,) = metas
    if source.dtype.category > FLOATING:
        raise TypeError(f"polygamma is not defined for {source.dtype.name} tensors")
    if n > _MOST_DERIVATIVES:
        raise ValueError(f"polygamma: the order of a derivative must be at most {_MOST_DERIVATIVES}, not {n}")
    dtype = source.dtype if source.dtype.category == FLOATING else dtypes.get_default_dtype()
    output = meta(source.shape, dtype, source.device)
    return Inferred(output, output.numel * EXPENSIVE * 60)


_POLYGAMMA = OpExpr("polygamma", _infer_polygamma, Form(1, tuple[Size]), "special")


@lgamma.op.gradient(inputs=(0,))
def _lgamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * digamma(node.input(0)),)


@digamma.op.gradient(inputs=(0,))
def _digamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient * polygamma(1, node.input(0)),)


@_POLYGAMMA.gradient(inputs=(0,))
def _polygamma_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    (n,) = cast("tuple[int]", node.attributes)
    # Not `polygamma`, whose orders have a lower limit than those of derivatives.
    return (gradient * _interpreter.dispatch(_POLYGAMMA, (node.input(0),), (n + 1,)),)


@function()
@out_by_copy()
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of `digamma` at each element.

    Args:
        n: from 0, which gives `digamma` itself, to 1000.
        input: of any shape and real dtype; integers give the default dtype.

    Raises:
        TypeError: if `n` is no integer, or `input` is no tensor, or complex.
        ValueError: if `n` is not from 0 to 1000.

    Example:
        >>> flow.polygamma(1, flow.tensor([1.0, 2.0]))
        tensor([1.6449, 0.6449])
    """
    n = whole_number("polygamma", "n", n)
    if not 0 <= n <= _MOST_ORDER:
        raise ValueError(f"polygamma: n must be from 0 to {_MOST_ORDER}, not {n}")
    return _interpreter.dispatch(_POLYGAMMA, (input,), (n,)) if n else digamma(input)


@method("polygamma", own=False)
@copied_in_place("polygamma")
def polygamma_of(input: Tensor, n: int) -> Tensor:
    """The `n`-th derivative of `digamma` at each element; see `vmflow.polygamma`.

    Raises:
        TypeError, ValueError: as `vmflow.polygamma`.

    Example:
        >>> flow.tensor([1.0, 2.0]).polygamma(1)
        tensor([1.6449, 0.6449])
    """
    return polygamma(n, input)
