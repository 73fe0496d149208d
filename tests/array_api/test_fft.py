"""Fourier transforms of the standard against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import vmflow as flow
from vmflow import array_api as xp

from .support import COMPLEX, FLOATING, FLOATS, few, full_shapes, made, seeds, some, tensor

norms = st.sampled_from(["backward", "ortho", "forward"])
ONE = {"fft": COMPLEX, "ifft": COMPLEX, "rfft": FLOATS, "irfft": COMPLEX, "hfft": COMPLEX, "ihfft": FLOATS}
SEVERAL = {"fftn": COMPLEX, "ifftn": COMPLEX, "rfftn": FLOATS, "irfftn": COMPLEX}


def close(ours: flow.Tensor, theirs: Any) -> None:
    """Assert close values, and numpy's dtype, which has the precision of the input."""
    assert (tuple(ours.shape), ours.dtype.name) == (theirs.shape, theirs.dtype.name)
    limit = 1e-3 if ours.dtype.name in ("float32", "complex64") else 1e-9
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=limit, atol=limit)


@pytest.mark.parametrize("function", ONE)
def test_transforms_along_one_dimension(function: str) -> None:
    @some
    @given(full_shapes, st.sampled_from(ONE[function]), seeds, st.none() | st.integers(1, 6), norms, st.data())
    def test(shape: tuple[int, ...], name: str, seed: int, n: int | None, norm: Any, data: st.DataObject) -> None:
        array = made(shape, name, seed)
        axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
        assume(function not in ("irfft", "hfft") or n is not None or shape[axis] > 1)
        ours = getattr(xp.fft, function)(tensor(array), n=n, axis=axis, norm=norm)
        close(ours, getattr(np.fft, function)(array, n, axis, norm))

    test()


@pytest.mark.parametrize("function", SEVERAL)
def test_transforms_along_several_dimensions(function: str) -> None:
    @some
    @given(full_shapes, st.sampled_from(SEVERAL[function]), seeds, norms, st.booleans(), st.data())
    def test(shape: tuple[int, ...], name: str, seed: int, norm: Any, sized: bool, data: st.DataObject) -> None:
        array = made(shape, name, seed)
        axes = data.draw(st.none() | st.permutations(range(len(shape))).map(lambda x: tuple(x[: len(x) // 2 + 1])))
        s = None
        if axes is not None and sized:
            s = tuple(data.draw(st.lists(st.integers(1, 5), min_size=len(axes), max_size=len(axes))))
        last = shape[-1 if axes is None else axes[-1]]
        assume(function != "irfftn" or s is not None or last > 1)
        ours = getattr(xp.fft, function)(tensor(array), s=s, axes=axes, norm=norm)
        close(ours, getattr(np.fft, function)(array, s, axes, norm))

    test()


@some
@given(st.integers(1, 12), st.sampled_from([1.0, 0.25, 3.0]), st.sampled_from([None, *FLOATS]))
def test_frequencies(n: int, d: float, name: str | None) -> None:
    for function in ("fftfreq", "rfftfreq"):
        dtype = None if name is None else getattr(xp, name)
        found = getattr(xp.fft, function)(n, d=d, dtype=dtype, device="cpu")
        close(found, getattr(np.fft, function)(n, d).astype(name or "float32"))
    assert xp.fft.fftfreq(3, device=flow.device("sim")).device.type == "sim"


@few
@given(full_shapes, st.sampled_from(FLOATING), seeds, st.data())
def test_shifts(shape: tuple[int, ...], name: str, seed: int, data: st.DataObject) -> None:
    array = made(shape, name, seed)
    axes = data.draw(st.sampled_from([None, 0, -1, (0,), tuple(range(len(shape)))]))
    for function in ("fftshift", "ifftshift"):
        close(getattr(xp.fft, function)(tensor(array), axes=axes), getattr(np.fft, function)(array, axes))


def test_gradients_flow() -> None:
    x = flow.ones(4, dtype=flow.float64, requires_grad=True)
    xp.sum(xp.real(xp.fft.fft(x))).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [4.0, 0.0, 0.0, 0.0], atol=1e-12)
