"""Discrete Fourier transforms: the extension ``fft`` of the array API standard, version 2024.12.

Each is the function of `vmflow.fft` with the standard's names of arguments, and raises the same errors.
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
    """The discrete Fourier transform of `x` along the dimension `axis`, complex."""
    return _fft.fft(x, n, axis, norm)


def ifft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The inverse discrete Fourier transform of `x` along the dimension `axis`, complex."""
    return _fft.ifft(x, n, axis, norm)


def fftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """`fft` over the dimensions `axes`; for the default, see `vmflow.fft.fftn`."""
    return _fft.fftn(x, s, axes, norm)


def ifftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """`ifft` over the dimensions `axes`; for the default, see `vmflow.fft.ifftn`."""
    return _fft.ifftn(x, s, axes, norm)


def rfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The first half of the discrete Fourier transform of the real `x` along the dimension `axis`."""
    return _fft.rfft(x, n, axis, norm)


def irfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The real signal of `n` elements whose spectrum has `x` as its first half; for None, see `vmflow.fft.irfft`."""
    return _fft.irfft(x, n, axis, norm)


def rfftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """The spectrum of a real signal over several dimensions; only the first half along the last of `axes`."""
    return _fft.rfftn(x, s, axes, norm)


def irfftn(
    x: _Tensor, /, *, s: _Sequence[int] | None = None, axes: _Sequence[int] | None = None, norm: str = "backward"
) -> _Tensor:
    """The real signal over several dimensions of a spectrum that `rfftn` halved along the last of `axes`."""
    return _fft.irfftn(x, s, axes, norm)


def hfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The real spectrum (`n` elements) of a signal with Hermitian symmetry, whose first half is `x`."""
    return _fft.hfft(x, n, axis, norm)


def ihfft(x: _Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> _Tensor:
    """The first half of the Hermitian-symmetric signal whose spectrum is the real `x`; the inverse of `hfft`."""
    return _fft.ihfft(x, n, axis, norm)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: _DType | None = None, device: _Device | str | None = None) -> _Tensor:
    """The frequencies that the elements of a result of `fft` belong to, in cycles per unit of `d`.

    Args:
        n: the length of the signal.
        d: the distance between samples.
        dtype: a floating-point or complex dtype; None for the default.
        device: None for the default.
    """
    return _fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: _DType | None = None, device: _Device | str | None = None) -> _Tensor:
    """The frequencies that the elements of a result of `rfft` belong to; see `fftfreq`."""
    return _fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: _Tensor, /, *, axes: int | _Sequence[int] | None = None) -> _Tensor:
    """Roll a spectrum so that frequency 0 is in the middle of the dimensions `axes`, of all if `axes` is None."""
    return _fft.fftshift(x, axes)


def ifftshift(x: _Tensor, /, *, axes: int | _Sequence[int] | None = None) -> _Tensor:
    """The inverse of `fftshift`."""
    return _fft.ifftshift(x, axes)
