"""Fourier transforms: against numpy and PyTorch, their gradients twice, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import fft, interpreter
from vmflow.ops.fourier.fourier import _WEIGHTED

from .oracle import KernelContract, Row, Shapes, check, forward_test, gradient_test, sample, values

SHAPES: tuple[Shapes, ...] = (((3, 4),), ((5,),), ((1,),), ((2, 3, 5),), ((0, 3),))
FLOATS = ("float64", "float32", "int64", "bool")


def _abs(x: Any) -> Any:
    """A real function of complex numbers whose gradient depends on both parts."""
    return (x * (0.5 - 1j)).abs() if isinstance(x, flow.Tensor) else np.abs(x * (0.5 - 1j))


def _half(x: flow.Tensor, length: int) -> flow.Tensor:
    return interpreter.dispatch(_WEIGHTED, (x,), (x.ndim - 1, length, 0.5))


ROWS: list[Row] = [
    Row(
        "fft",
        lambda x: _abs(fft.fft(x * (1 + 2j)) + 20j),
        lambda x: _abs(np.fft.fft(x * (1 + 2j)) + 20j),
        FLOATS,
        "float",
        shapes=SHAPES,
        order=2,
        tolerance=1e-5,
    ),
    Row(
        "rfft",
        lambda x: _abs(fft.rfft(x, norm="ortho") + 20j),
        lambda x: _abs(np.fft.rfft(x, norm="ortho") + 20j),
        FLOATS,
        "float",
        shapes=SHAPES,
        graded=((2, 5),),
        order=2,
        tolerance=1e-5,
    ),
    Row(
        "irfft",
        lambda x: fft.irfft(x * (1 + 2j), 5, norm="forward").square(),
        lambda x: np.fft.irfft(x * (1 + 2j), 5, norm="forward") ** 2,
        FLOATS,
        "float",
        shapes=SHAPES,
        order=2,
        tolerance=1e-5,
    ),
    Row(
        "weighted_half",
        lambda x: _half(x, 2 * x.shape[-1] - 1),
        lambda x: x * np.where(np.arange(x.shape[-1]), 0.5, 1),
        ("complex64", "complex128"),
        shapes=(((3, 4),), ((5,),), ((2, 0, 3),)),
    ),
    Row(
        "weighted_half",
        lambda x: _half(x, 2 * x.shape[-1] - 2),
        lambda x: x * np.where(np.arange(x.shape[-1]) % (x.shape[-1] - 1), 0.5, 1),
        ("complex64", "complex128"),
        shapes=(((3, 4),), ((5,),), ((2, 0, 3),)),
        label="-even",
    ),
]

test_forward = forward_test(ROWS)
test_gradients = gradient_test(ROWS)

REAL_INPUT = ("rfft", "ihfft")
NAMES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
PLACES: list[dict[str, Any]] = [
    {},
    {"s": (5, -1), "dim": (0, 2)},
    {"dim": (2, 0)},
    {"s": (3, 7), "dim": (1, 0)},
    {"s": (2, 6)},
]


def _input(name: str, dtype: str = "float64") -> Any:
    real = sample((3, 4, 5), dtype, 1)
    return real if name.startswith(REAL_INPUT) else real + real.dtype.type(0.5) * sample((3, 4, 5), dtype, 2) * 1j


def _compare(name: str, array: Any, *args: Any, **named: Any) -> None:
    torch = pytest.importorskip("torch")
    expected = getattr(torch.fft, name)(torch.tensor(array), *args, **named).resolve_conj().numpy()
    found = getattr(fft, name)(flow.tensor(array), *args, **named)
    check(found, expected, expected.dtype.name, tolerance=1e-12)


@pytest.mark.parametrize("norm", [None, "forward", "backward", "ortho"])
@pytest.mark.parametrize("name", NAMES)
def test_one_dimension_as_in_pytorch(name: str, norm: str | None) -> None:
    for length in (None, 1, 3, 4, 7):
        for dim in (-1, 0):
            _compare(name, _input(name), length, dim, norm)


@pytest.mark.parametrize("norm", [None, "forward", "ortho"])
@pytest.mark.parametrize("name", [name + ending for name in NAMES for ending in "2n"])
def test_several_dimensions_as_in_pytorch(name: str, norm: str | None) -> None:
    for named in PLACES:
        _compare(name, _input(name), norm=norm, **named)


@pytest.mark.parametrize("name", [name + "n" for name in NAMES])
def test_both_gradients_as_in_pytorch(name: str, contract: KernelContract) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        x = library.tensor(_input(name), requires_grad=True)
        result = getattr(library.fft, name)(x, (5, 6), (0, 2), norm="ortho")
        (gradient,) = library.autograd.grad((result.abs() ** 3).sum(), x, create_graph=True)
        (second,) = library.autograd.grad((gradient.abs() ** 2).sum(), x)
        found.append((gradient.detach(), second))
    for have, want in zip(*found, strict=True):
        check(have, want.resolve_conj().numpy(), str(want.numpy().dtype), tolerance=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_is_kept(name: str) -> None:
    result = getattr(fft, name)(flow.tensor(_input(name, "float32")))
    assert result.dtype is (flow.float32 if name in ("irfft", "hfft") else flow.complex64)
    assert fft.fft(flow.ones(3, dtype=flow.int64)).dtype is flow.complex64


def test_inverse_transforms() -> None:
    x = flow.tensor(sample((3, 5), "float64"))
    check(fft.ifft2(fft.fft2(x)).abs(), np.abs(values(x)), "float64", tolerance=1e-12)
    check(fft.irfftn(fft.rfftn(x), s=(3, 5)), values(x), "float64", tolerance=1e-12)
    check(fft.hfft(fft.ihfft(x), 5), values(x), "float64", tolerance=1e-12)
    check(fft.ifftshift(fft.fftshift(x)), values(x), "float64")


def test_frequencies_and_shifts() -> None:
    for count in (1, 4, 5):
        check(fft.fftfreq(count, 0.5), np.fft.fftfreq(count, 0.5), "float32")
        check(fft.rfftfreq(count, 2.0, dtype=flow.float64), np.fft.rfftfreq(count, 2.0), "float64")
        numbers = np.arange(count)
        check(fft.fftshift(flow.tensor(numbers)), np.fft.fftshift(numbers), "int64")
        check(fft.ifftshift(flow.tensor(numbers)), np.fft.ifftshift(numbers), "int64")
    x = sample((3, 4, 5), "float32")
    check(fft.fftshift(flow.tensor(x), (0, -1)), np.fft.fftshift(x, (0, -1)), "float32")
    check(fft.fftshift(flow.tensor(x), 1), np.fft.fftshift(x, 1), "float32")
    check(fft.fftshift(flow.tensor(3.0)), 3.0, "float32")
    assert fft.fftfreq(4, requires_grad=True).requires_grad
    out = flow.zeros(4, dtype=flow.float64)
    assert fft.fftfreq(4, out=out) is out
    check(out, np.fft.fftfreq(4), "float64")


def test_out() -> None:
    x = flow.tensor(sample((3, 4), "float64"))
    out = flow.zeros(3, 3, dtype=flow.complex128)
    assert fft.rfft(x, out=out) is out
    check(out, np.fft.rfft(values(x)), "complex128", tolerance=1e-12)
    with pytest.raises(RuntimeError, match="does not fit the tensor of shape"):
        fft.fft(x, out=out)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: fft.rfft(x * 1j), TypeError, "rfft: expected a real tensor, got complex64"),
        (lambda x: fft.fft(x.half()), TypeError, "fft: float16 has no Fourier transform"),
        (lambda x: fft.fft(x.numpy()), TypeError, "expected tensors, got ndarray"),
        (lambda x: fft.fftn(x, 2.5, 0), TypeError, "a length must be an integer, not 2.5"),  # type: ignore[arg-type]
        (lambda x: fft.fft(x, norm="both"), ValueError, "norm must be 'forward', 'backward' or 'ortho'"),
        (lambda x: fft.fft(x, 0), ValueError, "at least one element along dimension 1, got 0"),
        (lambda x: fft.irfft(x[:, :1]), ValueError, "irfft: expected at least one element along dimension 1"),
        (lambda x: fft.fft(x, dim=2), IndexError, "fft: dim 2 is out of range"),
        (lambda x: fft.fft(x[0, 0]), IndexError, "0-d tensor has no dimension"),
        (lambda x: fft.fftn(x, dim=(0, -2)), ValueError, "names one dimension twice"),
        (lambda x: fft.fftn(x, (2, 2), (0,)), ValueError, r"2 lengths \[2, 2\] for 1 dimensions"),
        (lambda x: fft.fftn(x, (2, 2, 2)), ValueError, "3 lengths for a tensor of 2 dimensions"),
        (lambda x: fft.rfftn(x, dim=()), ValueError, "expected at least one dimension to transform"),
        (lambda x: fft.irfftn(x, dim=()), ValueError, "expected at least one dimension to transform"),
        (lambda x: fft.fftfreq(0), ValueError, "n must be at least 1"),
        (lambda x: fft.rfftfreq(3, 0.0), ValueError, "distance d of samples cannot be 0"),
        (lambda x: fft.fftfreq(3, 1j), TypeError, "the distance d must be a real number, not 1j"),  # type: ignore[arg-type]
        (lambda x: fft.fftfreq(3, dtype=flow.int64), TypeError, "expected a floating-point dtype, got int64"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
