"""Window functions: weights for the pieces of a signal of which `vmflow.stft` computes the spectra.

All are computed in double precision and rounded once.  A window of size 1 holds 1.  All take these arguments:

    window_length: the number of elements.
    periodic: whether the window is one period of a periodic function, as spectra need it, so that ``window_length + 1``
        elements would be symmetric; otherwise the window itself is symmetric.
    dtype: floating-point; by default the default dtype.
    device, requires_grad, pin_memory, placement, sbp: as of `vmflow.zeros`.

They raise `TypeError` for other dtypes and a length that is no integer, and `ValueError` for a negative length.

    >>> vmflow.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vmflow import dtypes
from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import FLOATING, dtype as DType
from vmflow.instructions.blob import Array
from vmflow.ops.declaration import function

from .creation import tensor

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _window(
    name: str,
    window_length: int,
    periodic: bool,
    values: Callable[[Array], Array],
    dtype: DType | None,
    device: Device | str | None,
    requires_grad: bool,
    placement: Any,
    sbp: Any,
) -> Tensor:
    """Make a window: the vector of ``values(n / N)``, n from 0, N = `window_length` if `periodic`, else 1 less.

    A window of one element is 1."""
    length = whole_number(name, "the length of a window", window_length, 0)
    kind = dtype or dtypes.get_default_dtype()
    if not isinstance(kind, DType) or kind.category != FLOATING:
        raise TypeError(f"{name}: dtype must be floating-point, such as vmflow.float32, not {dtype!r}")
    if length < 2:
        weights = np.ones(length)
    else:
        weights = values(np.arange(length) / (length if periodic else length - 1))
    return tensor(weights, dtype=kind, device=device, requires_grad=requires_grad, placement=placement, sbp=sbp)


@function()
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """A vector of ``(1 - cos(2 pi n / N)) / 2``, n from 0, where N is `window_length` if `periodic`, else 1 less.

    A window of size 1 holds 1, in all window functions.

    Raises:
        TypeError: if the length is no integer, or the dtype is not floating-point.
        ValueError: if the length is negative.

    Example:
        >>> flow.hann_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window(
        "hann_window",
        window_length,
        periodic,
        lambda place: 0.5 - 0.5 * np.cos(2 * np.pi * place),
        dtype,
        device,
        requires_grad,
        placement,
        sbp,
    )


@function()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """A vector of ``alpha - beta * cos(2 pi n / N)``; for n, N and size 1, see `hann_window`.

    Raises:
        TypeError, ValueError: as `hann_window`.

    Example:
        >>> flow.hamming_window(4)
        tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _window(
        "hamming_window",
        window_length,
        periodic,
        lambda place: alpha - beta * np.cos(2 * np.pi * place),
        dtype,
        device,
        requires_grad,
        placement,
        sbp,
    )


@function()
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """A vector of ``1 - |2 n / N - 1|``, a triangle; for n, N and size 1, see `hann_window`.

    Raises:
        TypeError, ValueError: as `hann_window`.

    Example:
        >>> flow.bartlett_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window(
        "bartlett_window",
        window_length,
        periodic,
        lambda place: 1 - np.abs(2 * place - 1),
        dtype,
        device,
        requires_grad,
        placement,
        sbp,
    )


@function()
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """A vector of ``0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)``; for n, N and size 1, see `hann_window`.

    Raises:
        TypeError, ValueError: as `hann_window`.

    Example:
        >>> flow.blackman_window(4).round(decimals=2).abs()
        tensor([0.0000, 0.3400, 1.0000, 0.3400])
    """
    return _window(
        "blackman_window",
        window_length,
        periodic,
        lambda place: 0.42 - 0.5 * np.cos(2 * np.pi * place) + 0.08 * np.cos(4 * np.pi * place),
        dtype,
        device,
        requires_grad,
        placement,
        sbp,
    )


@function()
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
) -> Tensor:
    """A vector of ``i0(beta * sqrt(1 - (2 n / N - 1)**2)) / i0(beta)``, Bessel's i0.

    For n, N and size 1, see `hann_window`.

    Args:
        beta: the larger, the narrower is the window; 0 makes it rectangular.
        window_length, periodic: the number of elements, and whether the window is one period of a periodic function.
        dtype, device, requires_grad, pin_memory, placement, sbp: as of `vmflow.zeros`; the dtype is floating-point.

    Raises:
        TypeError, ValueError: as `hann_window`.

    Example:
        >>> flow.kaiser_window(3, True, 0.0)
        tensor([1., 1., 1.])
    """
    return _window(
        "kaiser_window",
        window_length,
        periodic,
        lambda place: np.i0(beta * np.sqrt(np.maximum(1 - (2 * place - 1) ** 2, 0))) / np.i0(beta),
        dtype,
        device,
        requires_grad,
        placement,
        sbp,
    )
