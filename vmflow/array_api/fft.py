"""Discrete Fourier transforms, the extension of that name of the array API standard.

Each is vmflow's own under the standard's names of arguments; see `vmflow.fft`.
"""

from __future__ import annotations

from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING as _TYPE_CHECKING

from vmflow import fft as _fft

if _TYPE_CHECKING:
    from vmflow.devices import device as _Device
    from vmflow.dtypes import dtype as _DType
    from vmflow.tensors import Tensor as _Tensor


def fft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The spectrum along a dimension; complex."""
    return _fft.fft(x, n, axis, norm)


def ifft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The signal of a spectrum along a dimension; complex."""
    return _fft.ifft(x, n, axis, norm)


def fftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """As `fft`, over several dimensions."""
    return _fft.fftn(x, s, axes, norm)


def ifftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """As `ifft`, over several dimensions."""
    return _fft.ifftn(x, s, axes, norm)


def rfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The first half of the spectrum of a real signal along a dimension."""
    return _fft.rfft(x, n, axis, norm)


def irfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The real signal of `n` elements of which a half spectrum is given."""
    return _fft.irfft(x, n, axis, norm)


def rfftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """As `rfft`, over several dimensions, of which the last is halved."""
    return _fft.rfftn(x, s, axes, norm)


def irfftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """As `irfft`, over several dimensions, of which the last is completed."""
    return _fft.irfftn(x, s, axes, norm)


def hfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The real spectrum of `n` elements of a signal of which a half is given."""
    return _fft.hfft(x, n, axis, norm)


def ihfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The first half of the signal with a real spectrum."""
    return _fft.ihfft(x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: _DType | None = None, device: _Device | str | None = None) -> _Tensor:
    """The frequencies that belong to the elements of `fft`.

    Args:
        n: the length of the signal.
        d: from one sample to the next.
        dtype: a real floating-point one; None for the default.
        device: None for the default.
    """
    return _fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: _DType | None = None, device: _Device | str | None = None) -> _Tensor:
    """The frequencies that belong to the elements of `rfft`; see `fftfreq`."""
    return _fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: _Tensor, /, *, axes: int | _Sequence[int] | None = None) -> _Tensor:
    """With frequency 0 in the middle of these dimensions, of all if `axes` is None."""
    return _fft.fftshift(x, axes)


def ifftshift(x: _Tensor, /, *, axes: int | _Sequence[int] | None = None) -> _Tensor:
    """The inverse of `fftshift`."""
    return _fft.ifftshift(x, axes)
