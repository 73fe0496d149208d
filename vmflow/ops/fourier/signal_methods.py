"""The methods of tensors that are Fourier transforms, which few programs call: loaded when first called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.ops.declaration import method

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@method()
def stft(
    self: Tensor,
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
    """The spectra of pieces of the signal; see `vmflow.stft`."""
    from .short_time import stft as compute

    return compute(
        self,
        n_fft,
        hop_length,
        win_length,
        window,
        center,
        pad_mode,
        normalized,
        onesided,
        return_complex,
        align_to_window,
    )


@method()
def istft(
    self: Tensor,
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
    """The signal of which `vmflow.stft` gives these spectra; see `vmflow.istft`."""
    from .short_time import istft as compute

    return compute(self, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex)
