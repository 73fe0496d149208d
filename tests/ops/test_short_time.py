"""Short-time Fourier transforms and windows: there and back, gradients, graphs, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

from .oracle import KernelContract, check, sample


def _there(x: flow.Tensor, **how: Any) -> flow.Tensor:
    return flow.stft(x, 4, 2, return_complex=True, **how)


@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(16,), (3, 16)], ids=str)
def test_istft_inverts_stft(size: int, center: bool, shape: tuple[int, ...], contract: KernelContract) -> None:
    array = sample(shape, "float64")
    window = flow.hamming_window(size, dtype=flow.float64)
    how: dict[str, Any] = {"hop_length": 2, "window": window, "center": center, "normalized": True}
    spectra = flow.stft(flow.tensor(array), size, return_complex=True, **how)
    back = spectra.istft(size, length=15, **how)
    check(back, array[..., :15], "float64", tolerance=1e-12)


def test_istft_inverts_stft_of_complex_signals(contract: KernelContract) -> None:
    array = sample((2, 16), "float64") + 1j * sample((2, 16), "float64", 1)
    spectra = flow.stft(flow.tensor(array), 4, 1)
    assert tuple(spectra.shape) == (2, 4, 17)
    check(flow.istft(spectra, 4, 1, return_complex=True), array, "complex128", tolerance=1e-12)


def test_gradients(contract: KernelContract) -> None:
    signal, window = sample((2, 9), "float64"), sample((3,), "float64", 1)

    def sized(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        return flow.view_as_real(_there(x, win_length=3, window=w)).square()

    def restored(x: flow.Tensor, w: flow.Tensor) -> flow.Tensor:
        return flow.istft(_there(x).square(), 4, 2, window=w)

    check_gradients(sized, signal, window, second=True)
    check_gradients(restored, signal, np.array([0.5, 1.0, 1.0, 0.7]))


def test_in_a_graph_and_under_autocast(contract: KernelContract) -> None:
    class Magnitude(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return _there(x, window=flow.hann_window(4)).abs()

    x = flow.tensor(sample((2, 9), "float32"))
    wanted = _there(x, window=flow.hann_window(4)).abs()
    check(Magnitude()(x), wanted.numpy(), "float32", tolerance=1e-5)
    with flow.autocast(x.device.type, dtype=flow.bfloat16):
        found = _there(x.bfloat16(), window=flow.hann_window(4)).abs()
    check(found, wanted.numpy(), "float32", tolerance=3e-2)


def test_a_zero_sum_of_windows_gives_nan_or_inf(contract: KernelContract) -> None:
    """PyTorch reads the sum and raises an error; vmflow does not wait for it."""
    spectra = _there(flow.ones(8), window=flow.hann_window(4), center=False)
    found = flow.istft(spectra, 4, 2, window=flow.hann_window(4), center=False).numpy()
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:7], 1, 1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.stft(x, 4), ValueError, "give return_complex=True"),
        (lambda x: flow.stft(x, 0, return_complex=True), ValueError, "a positive n_fft"),
        (lambda x: flow.stft(x, 4, 0, return_complex=True), ValueError, "hop_length"),
        (lambda x: flow.stft(x, 4, 1, 5, return_complex=True), ValueError, "a win_length from 1"),
        (lambda x: flow.stft(x, 4.0, return_complex=True), TypeError, "a length must be"),  # type: ignore[arg-type]
        (lambda x: flow.stft(x, 4, window=flow.ones(3), return_complex=True), ValueError, r"window of shape \[4\]"),
        (lambda x: flow.stft(x, 9, center=False, return_complex=True), ValueError, "shorter than a piece of 9"),
        (lambda x: flow.stft(x, 4, return_complex=True, align_to_window=True), ValueError, "for center=False"),
        (lambda x: flow.stft(x.long(), 4, return_complex=True), TypeError, "not defined for int64"),
        (lambda x: flow.stft(x.half(), 4, return_complex=True), TypeError, "float16 has no Fourier transform"),
        (lambda x: flow.stft(x + 1j, 4, onesided=True), ValueError, "no onesided spectrum"),
        (lambda x: flow.stft(x.reshape(1, 2, 4), 4, return_complex=True), ValueError, r"\(samples, length\)"),
        (lambda x: flow.istft(x.reshape(2, 4), 4), TypeError, "expected complex spectra"),
        (lambda x: flow.istft(x + 1j, 4), ValueError, "expected spectra"),
        (lambda x: flow.istft((x + 1j).reshape(2, 4), 4), ValueError, "expected 3 frequencies"),
        (lambda x: flow.istft((x + 1j).reshape(4, 2), 4, onesided=True), ValueError, "expected 3 frequencies"),
        (lambda x: flow.istft((x + 1j).reshape(4, 2), 4, 3, 2), ValueError, "leaves gaps"),
        (lambda x: flow.istft((x + 1j)[:6].reshape(3, 2), 4, return_complex=True), ValueError, "no complex signal"),
        (lambda x: flow.istft((x + 1j).reshape(4, 2), 4, window=flow.ones(4) + 1j), ValueError, "complex window"),
        (lambda x: flow.istft((x + 1j).reshape(4, 2), 4, length=0), ValueError, "positive length"),
        (lambda x: flow.hann_window(-1), ValueError, "must be at least 0, not -1"),
        (lambda x: flow.hann_window(2.5), TypeError, "must be an integer"),  # type: ignore[arg-type]
        (lambda x: flow.kaiser_window(3, dtype=flow.int64), TypeError, "must be floating-point"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(8))
