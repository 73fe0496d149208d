"""The frequencies of the elements of Fourier transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import real_number
from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.creation.creation import sized_meta
from vmflow.ops.destination import delivered
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Count, Form, Inferred, Kinds, Metas, OpExpr

from .fourier import length_of

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _infer_frequencies(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, length, half = cast("tuple[TensorMeta, int, bool]", attributes)
    if output.dtype.category < FLOATING:
        raise TypeError(f"frequencies: expected a floating-point dtype, got {output.dtype.name}")
    if output.shape != (length // 2 + 1 if half else length,):
        raise ValueError(
            f"frequencies: a signal of {length} elements cannot have frequencies of shape {list(output.shape)}"
        )
    return Inferred(output, output.numel * CHEAP * 4)


# Attributes: (meta of the result, the signal's length, whether to omit the negative frequencies, as for `rfft`).  The
# scalar is the distance between samples.
_FREQUENCIES = OpExpr("frequencies", _infer_frequencies, Form(0, tuple[TensorMeta, Count, bool], scalars=1), "fourier")


def _frequencies(
    name: str,
    n: int,
    d: float,
    half: bool,
    dtype: DType | None,
    device: Any,
    requires_grad: bool,
    out: Tensor | None,
) -> Tensor:
    result_dtype = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
    if result_dtype.category < FLOATING:
        raise TypeError(f"{name}: expected a floating-point dtype, got {result_dtype.name}")
    output = sized_meta(name, (n // 2 + 1 if half else n,), result_dtype, device)
    frequencies = _interpreter.dispatch(_FREQUENCIES, (), (output, n, half), (real_number(name, "the distance d", d),))
    if out is not None:
        return delivered(name, out, (), lambda: frequencies.to(out.device))
    return frequencies.requires_grad_() if requires_grad else frequencies


def _check_frequencies(name: str, n: int, d: float) -> int:
    count = length_of(name, n)
    if count < 1:
        raise ValueError(f"{name}: n must be at least 1, not {n}")
    if d == 0:
        raise ValueError(f"{name}: the distance d of samples cannot be 0")
    return count


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The frequencies of the elements of an `fft`, (n,): for a positive `d` from 0 up, then the negative ones.

    Args:
        n: the length of the signal.
        d: the distance between samples; frequencies are in cycles per unit of it.
        out: the tensor to write the result into; `dtype` is by default that of `out`.
        dtype, device, requires_grad, pin_memory: see `vmflow.zeros`.

    Raises:
        TypeError: if `n` is no integer, `d` is no real number, or the dtype is integer or bool.
        ValueError: if `n` is below 1, or `d` is 0.

    Example:
        >>> flow.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    count = _check_frequencies("fftfreq", n, d)
    return _frequencies("fftfreq", count, d, False, dtype, device, requires_grad, out)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The frequencies of the elements of an `rfft`, (n // 2 + 1,); for the arguments, see `fftfreq`.

    Raises:
        TypeError, ValueError: as `fftfreq`.

    Example:
        >>> flow.fft.rfftfreq(4)
        tensor([0.0000, 0.2500, 0.5000])
    """
    count = _check_frequencies("rfftfreq", n, d)
    return _frequencies("rfftfreq", count, d, True, dtype, device, requires_grad, out)
