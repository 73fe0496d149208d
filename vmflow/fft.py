"""``vmflow.fft``: discrete Fourier transforms, under PyTorch's names.

The transforms take ``norm``, by which some are divided by the product of the transformed lengths: "backward" (the
inverse ones, the default), "forward" (the others), or "ortho" (all, by its square root).  Lengths (`n`, `s`) cut off
the input or add zeros at its end, to fit; -1 is the default length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .ops.fourier.fourier import (
    completed as _completed,
    fftshift as fftshift,
    halved as _halved,
    ifftshift as ifftshift,
    transformed as _transformed,
)
from .ops.fourier.frequencies import fftfreq as fftfreq, rfftfreq as rfftfreq

if TYPE_CHECKING:
    from .tensors import Tensor


def fft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The discrete Fourier transform of `input` along the dimension `dim`; complex.

    Raises:
        TypeError: for half precision, or if `n` or `dim` is no integer.
        ValueError: if `n` is 0 or below -1, for an empty dimension without `n`, or for an unknown `norm`.
        IndexError: if there is no such dimension.
        RuntimeError: if `out` has another shape, or a dtype that cannot hold the result.

    Example:
        >>> flow.fft.fft(flow.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _transformed("fft", input, n, dim, norm, out, inverse=False)


def ifft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse discrete Fourier transform of `input` along the dimension `dim`; complex.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`.

    Example:
        >>> flow.fft.ifft(flow.tensor([1.0, 1.0, 1.0, 1.0])).real
        tensor([1., 0., 0., 0.])
    """
    return _transformed("ifft", input, n, dim, norm, out, inverse=True)


def rfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The first half of the spectrum of a real `input` along one dimension, ``n // 2 + 1`` elements.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`; TypeError for complex input.

    Example:
        >>> flow.fft.rfft(flow.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor([10.+0.j, -2.+2.j, -2.+0.j])
    """
    return _halved("rfft", input, n, dim, norm, out)


def irfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of `rfft`: the real signal of which `input` is the first half of the spectrum along `dim`.

    The signal has `n` elements, by default ``2 * (m - 1)`` for m elements of `input`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`; ValueError for one element along `dim` without `n`.

    Example:
        >>> flow.fft.irfft(flow.tensor([10, -2 + 2j, -2]))
        tensor([1., 2., 3., 4.])
    """
    return _completed("irfft", input, n, dim, norm, out)


def hfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The real spectrum of a Hermitian-symmetric signal, of which `input` is the first half along `dim`.

    The spectrum has `n` elements, by default ``2 * (m - 1)`` for m elements of `input`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`; ValueError for one element along `dim` without `n`.

    Example:
        >>> flow.fft.hfft(flow.tensor([10, -2 + 2j, -2]))
        tensor([ 4., 16., 12.,  8.])
    """
    return _completed("hfft", input, n, dim, norm, out, hermitian=True)


def ihfft(
    input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None
) -> Tensor:
    """The inverse of `hfft`: the first half, ``n // 2 + 1`` elements, of the signal with the real spectrum `input`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`; TypeError for complex input.

    Example:
        >>> flow.fft.ihfft(flow.tensor([4.0, 16.0, 12.0, 8.0])).real
        tensor([10., -2., -2.])
    """
    return _halved("ihfft", input, n, dim, norm, out, hermitian=True)


def fft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The discrete Fourier transform over two dimensions, by default the last two; see `fft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fftn`.

    Example:
        >>> flow.fft.fft2(flow.eye(2)).real
        tensor([[2., 0.],
                [0., 2.]])
    """
    return _transformed("fft2", input, s, dim, norm, out, inverse=False)


def fftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The discrete Fourier transform over `dim`, by default the last ``len(s)`` dimensions or all; see `fft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fft`; ValueError for repeated dimensions, or if `s` has
            not one length for each of `dim`, or more lengths than `input` has dimensions.

    Example:
        >>> flow.fft.fftn(flow.eye(2)).real
        tensor([[2., 0.],
                [0., 2.]])
    """
    return _transformed("fftn", input, s, dim, norm, out, inverse=False)


def ifft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse discrete Fourier transform over two dimensions, by default the last two; see `ifft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fftn`.

    Example:
        >>> flow.fft.ifft2(flow.eye(2) * 2).real
        tensor([[1., 0.],
                [0., 1.]])
    """
    return _transformed("ifft2", input, s, dim, norm, out, inverse=True)


def ifftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse discrete Fourier transform over `dim`, by default the last ``len(s)`` dimensions or all; see `ifft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `fftn`.

    Example:
        >>> flow.fft.ifftn(flow.eye(2) * 2).real
        tensor([[1., 0.],
                [0., 1.]])
    """
    return _transformed("ifftn", input, s, dim, norm, out, inverse=True)


def rfft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`fft2` of a real `input`, halved along the last dimension in `dim` as in `rfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `rfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.rfft2(flow.ones(2, 4)).shape
        vmflow.Size([2, 3])
    """
    return _halved("rfft2", input, s, dim, norm, out)


def rfftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """`fftn` of a real `input`, halved along the last transformed dimension as in `rfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `rfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.rfftn(flow.ones(2, 4)).shape
        vmflow.Size([2, 3])
    """
    return _halved("rfftn", input, s, dim, norm, out)


def irfft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse of `rfft2`: the real signal over two dimensions, by default the last two; see `irfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `irfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.irfft2(flow.ones(2, 3)).shape
        vmflow.Size([2, 4])
    """
    return _completed("irfft2", input, s, dim, norm, out)


def irfftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse of `rfftn`, with the same default of `dim`: a real signal; see `irfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `irfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.irfftn(flow.ones(2, 3)).shape
        vmflow.Size([2, 4])
    """
    return _completed("irfftn", input, s, dim, norm, out)


def hfft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The real spectrum of a Hermitian-symmetric signal over two dimensions, by default the last two; see `hfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `hfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.hfft2(flow.ones(2, 3)).shape
        vmflow.Size([2, 4])
    """
    return _completed("hfft2", input, s, dim, norm, out, hermitian=True)


def hfftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The real spectrum of a Hermitian-symmetric signal over several dimensions, by default as in `fftn`; see `hfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `hfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.hfftn(flow.ones(2, 3)).shape
        vmflow.Size([2, 4])
    """
    return _completed("hfftn", input, s, dim, norm, out, hermitian=True)


def ihfft2(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse of `hfft2`: half of the signal with a real spectrum over two dimensions; see `ihfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `ihfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.ihfft2(flow.ones(2, 4)).shape
        vmflow.Size([2, 3])
    """
    return _halved("ihfft2", input, s, dim, norm, out, hermitian=True)


def ihfftn(
    input: Tensor,
    s: Sequence[int] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The inverse of `hfftn`: half of the signal with a real spectrum over several dimensions; see `ihfft`.

    Raises:
        TypeError, ValueError, IndexError, RuntimeError: as `ihfft` and `fftn`; ValueError if no dim is transformed.

    Example:
        >>> flow.fft.ihfftn(flow.ones(2, 4)).shape
        vmflow.Size([2, 3])
    """
    return _halved("ihfftn", input, s, dim, norm, out, hermitian=True)
