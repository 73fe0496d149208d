"""How a tensor is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import dtypes
from .instructions.blob import Array
from .vm.wakers import running_loop

if TYPE_CHECKING:
    from .tensors import Tensor

# Above this many elements only the borders are shown, so many from each end.
_THRESHOLD: Final = 1000
_BORDER: Final = 3
_WIDTH: Final = 80
_DECIMALS: Final = 4


def represent(tensor: Tensor) -> str:
    """As PyTorch does; a value that is not there yet is not waited for on a running loop."""
    name = type(tensor).__name__
    prefix = f"{name} containing:\ntensor(" if name != "Tensor" else "tensor("
    suffix = _suffix(tensor)
    if not tensor.is_ready() and running_loop() is not None:
        return f"{prefix}..., size={tuple(tensor.shape)}, pending{suffix})"
    try:
        array = tensor.detach()._array()
    except Exception as error:
        # Whoever shows a tensor wants to know what has become of it; a repr that raises tells nobody.
        return f"{prefix}..., size={tuple(tensor.shape)}, failed={error!r}{suffix})"
    if array.size == 0:
        size = f", size={tuple(tensor.shape)}" if array.ndim != 1 else ""
        return f"{prefix}[]{size}{suffix})"
    if tensor.dtype is dtypes.bfloat16:
        array = array.astype(np.float32)
    text = np.array2string(
        array,
        separator=", ",
        prefix=prefix.rpartition("\n")[2],
        threshold=_THRESHOLD,
        edgeitems=_BORDER,
        max_line_width=_WIDTH,
        formatter={"all": _formatter(_borders(array))},
    )
    return f"{prefix}{text}{suffix})"


def _suffix(tensor: Tensor) -> str:
    parts = ""
    if tensor.device.type != "cpu":
        parts += f", device='{tensor.device}'"
    default = dtypes.get_default_dtype()
    usual: tuple[dtypes.dtype, ...] = (default, dtypes.of_scalar(complex))
    if tensor.numel():
        usual += (dtypes.int64, dtypes.bool_)
    if tensor.dtype not in usual:
        parts += f", dtype={tensor.dtype!r}"
    if tensor.grad_fn is not None:
        parts += f", grad_fn={tensor.grad_fn!r}"
    elif tensor.requires_grad:
        parts += ", requires_grad=True"
    return parts


def _borders(array: Array) -> Array:
    """The elements that will be shown."""
    if array.size > _THRESHOLD:
        for axis, size in enumerate(array.shape):
            if size > 2 * _BORDER:
                array = np.take(array, [*range(_BORDER), *range(size - _BORDER, size)], axis)
    return array


def _formatter(array: Array) -> Callable[[Any], str]:
    """How each of these is written, so that they line up."""
    if array.dtype.kind == "c":
        real, imaginary = _number_format(array.real), _number_format(array.imag)
        width = _width(real, array.real)
        return lambda value: f"{real(value.real):>{width}}{_signed(imaginary(value.imag))}j"
    write = _number_format(array) if array.dtype.kind == "f" else str
    width = _width(write, array)
    return lambda value: f"{write(value):>{width}}"


def _signed(text: str) -> str:
    return text if text.startswith("-") else f"+{text}"


def _width(write: Callable[[Any], str], array: Array) -> int:
    if array.dtype.kind == "f":
        # A single nan must not push the others apart.
        array = array[np.isfinite(array) & (array != 0)]
    return max([len(write(value)) for value in array.reshape(-1)], default=0)


def _number_format(array: Array) -> Callable[[Any], str]:
    """With an exponent where the sizes are far apart, without decimals where there are none."""
    sizes = np.abs(array[np.isfinite(array) & (array != 0)].astype(np.float64))
    if not sizes.size:
        return lambda value: f"{value:.0f}." if math.isfinite(value) else str(float(value))
    whole = bool((sizes == np.floor(sizes)).all())
    if sizes.max() / sizes.min() > 1000 or sizes.max() > 1e8 or (sizes.min() < 1e-4 and not whole):
        return lambda value: f"{value:.{_DECIMALS}e}"
    if whole:
        return lambda value: f"{value:.0f}." if math.isfinite(value) else str(float(value))
    return lambda value: f"{value:.{_DECIMALS}f}"
