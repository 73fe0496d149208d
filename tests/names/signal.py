"""Names of signals: short-time Fourier transforms, windows, and what OneFlow has for parts of tensors and images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from . import loops
from .case import Case


def _signal(t: Any, *shape: int, dtype: Any = None) -> Any:
    count = 1
    for size in shape:
        count *= size
    return (t.arange(count, dtype=dtype or t.float64) * 0.7).sin().reshape(*shape) * 2 + 0.1


def _complex_signal(t: Any, *shape: int) -> Any:
    return t.complex(_signal(t, *shape), _signal(t, *shape).flip(-1))


def _back(t: Any, **how: Any) -> Any:
    """There and back, with a window that has no zeros."""
    window = t.hamming_window(8, dtype=t.float64)
    spectra = t.stft(_signal(t, 2, 40), 8, window=window, return_complex=True)
    return spectra.istft(8, window=window, **how)


def _aligned(t: Any, length: int, align: bool) -> Any:
    window = t.hamming_window(3, dtype=t.float64)
    return t.stft(_signal(t, length), 8, 2, 3, window, center=False, return_complex=True, align_to_window=align)


def _with(array: Any, values: Any, place: Any) -> Any:
    array[place] = values
    return array


def quiet(call: Any) -> Any:
    """Without the warnings with which PyTorch discourages a call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return call()


def each(name: str, call: Callable[[Any, Any], Any], options: Iterable[Any]) -> list[Case]:
    """A case for each option, with which the call is made."""

    def case(option: Any) -> Case:
        return Case(name, lambda t: call(t, option))

    return [case(option) for option in options]


def _windows(name: str) -> list[Case]:
    lengths = ((0, True), (1, True), (2, True), (2, False), (7, True), (8, False))
    return each(name, lambda t, option: getattr(t, name)(option[0], periodic=option[1]), lengths)


_IMAGES: Final = np.sin(np.arange(2 * 2 * 5 * 6) * 0.37).reshape(2, 2, 5, 6)
_REGIONS: Final = np.array([[0, 0.5, 0.25, 4.0, 3.5], [1, 1.0, 2.0, 9.0, 3.0]])
_OFFSET: Final = np.cos(np.arange(2 * 8 * 4 * 5) * 0.71).reshape(2, 8, 4, 5)
_WEIGHT: Final = np.sin(np.arange(3 * 2 * 2 * 2) * 0.9).reshape(3, 2, 2, 2)

CASES: Final = [
    *[case for name in ("hann", "hamming", "bartlett", "blackman", "kaiser") for case in _windows(f"{name}_window")],
    Case("hann_window", lambda t: t.hann_window(6, False, dtype=t.float64, requires_grad=True)),
    Case("hamming_window", lambda t: t.hamming_window(6, True, 0.5, 0.4, dtype=t.float64)),
    Case("kaiser_window", lambda t: t.kaiser_window(9, False, 3.5, dtype=t.float64)),
    Case("bartlett_window", lambda t: t.bartlett_window(6, dtype=t.float16), tolerance=1e-3),
    Case("stft", lambda t: t.stft(_signal(t, 20), 8, window=t.ones(8), return_complex=True)),
    Case("stft", lambda t: quiet(lambda: t.stft(_signal(t, 2, 20, dtype=t.float32), 8, return_complex=True))),
    Case("stft", lambda t: quiet(lambda: t.stft(_signal(t, 2, 20), 8, return_complex=False))),
    Case("stft", lambda t: t.stft(_signal(t, 2, 21), 7, 3, return_complex=True, normalized=True, onesided=False)),
    Case("stft", lambda t: t.stft(_signal(t, 21), 8, 3, 5, t.hann_window(5), return_complex=True)),
    Case("stft", lambda t: t.stft(_signal(t, 21), 8, center=False, return_complex=True)),
    Case("stft", lambda t: t.stft(_signal(t, 21), 8, center=True, pad_mode="constant", return_complex=True)),
    Case("stft", lambda t: t.stft(_signal(t, 21), 8, center=True, pad_mode="replicate", return_complex=True)),
    Case("stft", lambda t: _aligned(t, 20, True)),
    Case("stft", lambda t: _aligned(t, 21, False)),
    Case("stft", lambda t: t.stft(_complex_signal(t, 2, 20), 8)),
    Case("stft", lambda t: t.stft(_complex_signal(t, 20), 8, window=t.hann_window(8), return_complex=False)),
    Case("stft", lambda t: t.stft(_signal(t, 20), 8, window=_complex_signal(t, 8))),
    Case("Tensor.stft", lambda t: _signal(t, 20).stft(8, 2, window=t.hann_window(8), return_complex=True)),
    Case("istft", lambda t: t.istft(_complex_signal(t, 5, 6), 8, window=t.hamming_window(8, dtype=t.float64))),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 5, 6), 8, 3, normalized=True, window=t.ones(8))),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 5, 6), 8, center=False, window=t.ones(8))),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 8, 6), 8, window=t.ones(8), return_complex=True)),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 8, 6), 8, window=t.ones(8))),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 8, 6), 8, window=_complex_signal(t, 8), return_complex=True)),
    Case("istft", lambda t: t.istft(_complex_signal(t, 2, 5, 6), 8, 2, 6, window=t.ones(6))),
    Case("Tensor.istft", _back),
    Case("Tensor.istft", lambda t: _back(t, length=33)),
    Case("Tensor.istft", lambda t: quiet(lambda: _back(t, length=50))),
    Case(
        "slice",
        lambda t: t.slice(t.arange(24).reshape(2, 3, 4), [[None, None, None], [0, 3, 2], [-3, None, None]]),
        lambda: np.arange(24).reshape(2, 3, 4)[:, 0:3:2, -3:],
    ),
    Case("slice", lambda t: t.slice(t.arange(6), ((9, 12, 1),)), lambda: np.arange(6)[9:12]),
    Case(
        "slice_update",
        lambda t: t.slice_update(t.ones(5), t.tensor([2, 3, 4]), slice_tup_list=[[1, 4, 1]]),
        lambda: np.array([1, 2, 3, 4, 1], "float32"),
    ),
    Case(
        "slice_update",
        lambda t: t.slice_update(t.zeros(3, 4, 5), t.arange(4).reshape(2, 2, 1), [(0, 3, 2), (1, None, 2)]),
        lambda: _with(np.zeros((3, 4, 5), "float32"), np.arange(4).reshape(2, 2, 1), np.s_[0:3:2, 1::2]),
    ),
    Case(
        "batch_gather",
        lambda t: t.batch_gather(t.arange(24).reshape(2, 3, 4), t.tensor([[0, 0, 2, 1], [2, 1, 1, 0]])),
        lambda: np.take_along_axis(
            np.arange(24).reshape(2, 3, 4), np.array([[0, 0, 2, 1], [2, 1, 1, 0]])[..., None], 1
        ),
    ),
    Case("batch_gather", lambda t: t.batch_gather(t.arange(4), t.tensor([3, 3])), lambda: np.array([3, 3])),
    Case(
        "in_top_k",
        lambda t: t.in_top_k(
            t.tensor([3, 1, 1, 4]), t.tensor([[0.0, 1, 2, 3], [3, 2, 1, 0], [1, 1, 1, 1], [1] * 4]), 1
        ),
        lambda: np.array([True, False, True, False]),
    ),
    Case(
        "in_top_k",
        lambda t: t.in_top_k(t.tensor([1, 0], dtype=t.int32), t.tensor([[3.0, 2, 1], [float("nan"), 1, 2]]), k=2),
        lambda: np.array([True, False]),
    ),
    Case(
        "add_n",
        lambda t: t.add_n([t.ones(2, 3), t.arange(3), t.full((2, 1), 0.5)]),
        lambda: (np.arange(3) + np.full((2, 1), 1.5)).astype("float32"),
    ),
    Case("add_n", lambda t: t.add_n([t.arange(3)]), lambda: np.arange(3)),
    Case(
        "roi_align",
        lambda t: t.roi_align(t.tensor(_IMAGES), t.tensor(_REGIONS), 0.8, 2, 3, -1, True),
        lambda: loops.roi_align(_IMAGES, _REGIONS, 0.8, 2, 3, -1, True),
    ),
    Case(
        "nn.functional.deform_conv2d",
        lambda t: t.nn.functional.deform_conv2d(t.tensor(_IMAGES), t.tensor(_OFFSET), t.tensor(_WEIGHT)),
        lambda: loops.deform_conv2d(_IMAGES, _OFFSET, _WEIGHT),
    ),
]
