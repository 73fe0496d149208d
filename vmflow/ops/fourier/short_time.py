"""The short-time Fourier transform and its inverse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmflow import dtypes
from vmflow.dtypes import COMPLEX, FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import public
from vmflow.ops.elementwise.complex_parts import complex as complex_of, view_as_real
from vmflow.ops.nn.unfolding import fold
from vmflow.ops.shape.padding import pad as padded
from vmflow.ops.shape.strided import unfold
from vmflow.ops.shape.view import sliced

from .fourier import completed, halved, length_of, transformed

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _lengths(
    name: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Tensor | None
) -> tuple[int, int, int]:
    """Check the lengths given to `stft` or `istft`; return `n_fft`, `hop_length` and `win_length`, defaults filled in.

    Raises:
        TypeError: if a length is no integer, or the window no tensor.
        ValueError: if a length is out of range, or the window is not of shape (win_length,).
    """
    transform = length_of(name, n_fft)
    hop = transform // 4 if hop_length is None else length_of(name, hop_length)
    length = transform if win_length is None else length_of(name, win_length)
    if transform < 1 or hop < 1 or not 0 < length <= transform:
        raise ValueError(
            f"{name}: expected a positive n_fft and hop_length (by default n_fft // 4) and a win_length from 1 "
            f"to n_fft, got {transform}, {hop} and {length}"
        )
    if window is not None:
        check_tensors(name, window)
        if tuple(window.shape) != (length,):
            raise ValueError(f"{name}: expected a window of shape [{length}], got {list(window.shape)}")
    return transform, hop, length


def _one_dtype(name: str, input: Tensor, window: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Convert `input` and the window, if any, to the higher of their two precisions; either may be complex.

    Raises:
        TypeError: for integers, bools and half precision.
    """
    for operand in (input, window):
        if operand is not None and operand.dtype.category < FLOATING:
            raise TypeError(f"{name} is not defined for {operand.dtype.name} tensors; convert with .float() first")
        if operand is not None and dtypes.is_half(operand.dtype):
            raise TypeError(f"{name}: {operand.dtype.name} has no Fourier transform; use .float()")
    if window is None:
        return input, None
    wide = dtypes.float64 in (input.dtype.to_real(), window.dtype.to_real())
    real, pairs = (dtypes.float64, dtypes.complex128) if wide else (dtypes.float32, dtypes.complex64)
    return (
        input.to(pairs if input.dtype.is_complex else real),
        window.to(pairs if window.dtype.is_complex else real),
    )


@public()
@autocast_as_op
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The short-time Fourier transform: spectra of windowed pieces of a signal, which may overlap.

    Args:
        input: (length,) or (samples, length), float32, float64, complex64 or complex128.
        n_fft: the length of a transformed piece.
        hop_length: the distance between the starts of neighbouring pieces; ``n_fft // 4`` by default.
        win_length: the length of the window, which gets zeros on both sides up to `n_fft`; `n_fft` by default.
        window: the weights; ones by default.
        center: whether to pad the signal on both sides, so that pieces are centred at 0, `hop_length` and so on.
        pad_mode: the mode of this padding, see `vmflow.nn.functional.pad`.
        normalized: whether to divide spectra by the root of `n_fft`.
        onesided: whether to omit the second half of each spectrum, which mirrors the first half for real signals; by
            default for real signals and windows.
        return_complex: whether the result is complex, else it has a last dimension of real and imaginary parts.  Must
            be given if signal and window are real; True by default otherwise.
        align_to_window: without `center`, whether pieces are as long as the window, and get zeros on both sides.

    Returns:
        (frequencies, pieces) or (samples, frequencies, pieces): ``n_fft // 2 + 1`` frequencies, or `n_fft` if not
        `onesided`.

    Raises:
        TypeError: if the signal or the window is no tensor of such a dtype, or a length is no integer.
        ValueError: if shapes and lengths do not fit, for one-sided spectra of complex signals or windows, without
            `return_complex` for real ones, if `align_to_window` is given with `center`, or for another `pad_mode`.

    Example:
        >>> flow.stft(flow.ones(8), 4, center=False, return_complex=True).shape
        vmflow.Size([3, 5])
    """
    check_tensors("stft", input)
    size, hop, length = _lengths("stft", n_fft, hop_length, win_length, window)
    is_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    half = not is_complex if onesided is None else bool(onesided)
    if half and is_complex:
        raise ValueError("stft: complex signals and windows have no onesided spectrum; set onesided=False")
    if return_complex is None:
        if not is_complex:
            raise ValueError("stft: give return_complex=True, or False for pairs of real and imaginary parts")
        return_complex = True
    if center and align_to_window is not None:
        raise ValueError("stft: align_to_window is for center=False")
    if input.ndim not in (1, 2):
        raise ValueError(f"stft: expected a signal (length,) or (samples, length), got {list(input.shape)}")
    input, window = _one_dtype("stft", input, window)
    signal = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        signal = _continued(signal, size // 2, pad_mode)
    piece = length if align_to_window else size
    if signal.shape[-1] < piece:
        raise ValueError(f"stft: a signal of {signal.shape[-1]} elements is shorter than a piece of {piece}")
    pieces = unfold(signal, -1, piece, hop)
    if window is None and length < size:
        window = pieces.new_ones(length)
    if window is not None:
        pieces = pieces * _surrounded(window, piece)
    pieces = _surrounded(pieces, size)
    norm = "ortho" if normalized else "backward"
    if half:
        spectra = halved("stft", pieces, None, -1, norm, None)
    else:
        spectra = transformed("stft", pieces, None, -1, norm, None, inverse=False)
    spectra = spectra.mT
    if input.ndim == 1:
        spectra = spectra.squeeze(0)
    return spectra if return_complex else view_as_real(spectra)


def _by_parts(tensor: Tensor, change: Any) -> Tensor:
    """Apply `change`, a function of real tensors, to a real tensor, or to both parts of a complex one."""
    if not tensor.dtype.is_complex:
        changed: Tensor = change(tensor)
        return changed
    pairs = view_as_real(tensor)
    return complex_of(change(pairs.select(-1, 0)), change(pairs.select(-1, 1)))


def _continued(signal: Tensor, reach: int, mode: str) -> Tensor:
    return _by_parts(signal, lambda part: padded(part, (reach, reach), mode)) if reach else signal


def _surrounded(pieces: Tensor, size: int) -> Tensor:
    """Pad the last dimension to `size` with zeros on both sides."""
    missing = size - pieces.shape[-1]
    if not missing:
        return pieces
    return _by_parts(pieces, lambda part: padded(part, (missing // 2, missing - missing // 2)))


@public()
@autocast_as_op
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The inverse of `stft`: the signal with the spectra `input`, or for a real window the nearest in least squares.

    The pieces are added up, each weighted by the window, and divided by the sum of the windows' squares (D. Griffin and
    J. Lim, Signal estimation from modified short-time Fourier transform, 1984).  Where that sum is 0 the result is nan
    or inf.

    Args:
        input: (frequencies, pieces) or (samples, frequencies, pieces), complex64 or complex128.
        n_fft, hop_length, win_length, window, center, normalized: the arguments of the call of `stft`.
        onesided: whether the spectra are halves; by default if there are fewer than `n_fft` frequencies.
        length: the length of the signal, with zeros behind the last piece.  By default the pieces define the length,
            without half of `n_fft` on both sides if `center`.
        return_complex: whether the signal is complex.

    Returns:
        (length,) or (samples, length).

    Raises:
        TypeError: if `input` is no complex tensor, the window no floating-point or complex one, or in half precision,
            or a length no integer.
        ValueError: if shapes and lengths do not fit, for one-sided spectra of complex signals, or for a complex window
            of a real signal.

    Example:
        >>> window = flow.ones(4)
        >>> spectra = flow.stft(flow.arange(8.0), 4, window=window, return_complex=True)
        >>> flow.allclose(flow.istft(spectra, 4, window=window), flow.arange(8.0), atol=1e-5)
        True
    """
    check_tensors("istft", input)
    size, hop, win = _lengths("istft", n_fft, hop_length, win_length, window)
    if input.dtype.category != COMPLEX:
        raise TypeError(f"istft: expected complex spectra as of stft(..., return_complex=True), got {input.dtype.name}")
    if input.ndim not in (2, 3) or not input.numel():
        raise ValueError(
            "istft: expected spectra (frequencies, pieces) or (samples, frequencies, pieces) with elements, "
            f"got {list(input.shape)}"
        )
    if hop > win:
        raise ValueError(f"istft: a hop_length of {hop} leaves gaps between windows of {win}")
    frequencies = input.shape[-2]
    half = frequencies != size if onesided is None else bool(onesided)
    if frequencies != (size // 2 + 1 if half else size):
        raise ValueError(
            f"istft: expected {size // 2 + 1 if half else size} frequencies for n_fft={size} and onesided={half}, "
            f"got {frequencies}"
        )
    if return_complex and half:
        raise ValueError("istft: half spectra have no complex signal; set onesided=False, or return_complex=False")
    if window is not None and window.dtype.is_complex and not return_complex:
        raise ValueError("istft: a complex window needs return_complex=True")
    if length is not None and length_of("istft", length) < 1:
        raise ValueError(f"istft: expected a positive length, got {length}")
    input, window = _one_dtype("istft", input, window)
    spectra = (input if input.ndim == 3 else input.unsqueeze(0)).mT
    norm = "ortho" if normalized else "backward"
    if return_complex:
        pieces = transformed("istft", spectra, None, -1, norm, None, inverse=True)
    else:
        # The first half of a real signal's spectrum suffices, since the second half mirrors it.
        pieces = completed("istft", sliced(spectra, 2, 0, size // 2 + 1), size, -1, norm, None)
    if window is None:
        window = pieces.new_ones(win, dtype=pieces.dtype.to_real())
    window = _surrounded(window, size)
    count = pieces.shape[-2]
    total = hop * (count - 1) + size
    signal = _by_parts(pieces * window, lambda part: _added(part, total, hop))
    squares = _by_parts((window * window).expand(1, count, size), lambda part: _added(part, total, hop))
    start = size // 2 if center else 0
    end = start + length if length is not None else total - (size // 2 if center else 0)
    kept = max(min(end, total) - start, 0)
    signal = sliced(signal, 1, start, kept) / sliced(squares, 1, start, kept)
    if end - start > kept:
        missing = end - start - kept
        signal = _by_parts(signal, lambda part: padded(part, (0, missing)))
    return signal if input.ndim == 3 else signal.squeeze(0)


def _added(pieces: Tensor, total: int, hop: int) -> Tensor:
    """Overlap-add: (samples, pieces, length) gives (samples, total), with piece i added from element ``i * hop`` on."""
    image = fold(pieces.mT, (1, total), (1, pieces.shape[-1]), stride=(1, hop))
    return image.reshape(image.shape[0], total)
