"""Kernels that run tile by tile: their accuracy over a dense range, at the extremes, and in every layout of memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.ops.oracle import Array
from vmflow.kernels.numpy.activation import erf_of_single
from vmflow.kernels.numpy.special import erf_of_double, erfc_of_double
from vmflow.kernels.numpy.tiles import TILE, in_tiles
from vmflow.nn import functional as F

INF, NAN = math.inf, math.nan
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _dense(lowest: float, highest: float, step: int) -> Array:
    """Every so many-eth float32 from one positive number to another, and their negatives."""
    bits = np.arange(np.float32(lowest).view(np.int32), np.float32(highest).view(np.int32), step, dtype=np.int32)
    return np.concatenate([bits.view(np.float32), -bits.view(np.float32)])


def _units(found: Array, exact: Array) -> float:
    """The largest error in units of the last place of float32."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(found.astype(np.float64) - exact) / spacing))


def test_erf_of_float32_is_within_two_units() -> None:
    numbers = np.concatenate([_dense(2**-12, 4.5, 499), _dense(1e-45, 2**-12, 19_997), _dense(4.5, 3e38, 99_991)])
    assert _units(flow.erf(flow.tensor(numbers)).numpy(), _erf(numbers.astype(np.float64))) < 1.6


def test_erfc_of_float32_is_rounded_once() -> None:
    numbers = np.concatenate([_dense(2**-12, 10.5, 997), _dense(1e-45, 2**-12, 99_991)])
    assert _units(flow.erfc(flow.tensor(numbers)).numpy(), _erfc(numbers.astype(np.float64))) < 0.501


def test_erf_and_its_complement_of_float64() -> None:
    numbers = np.concatenate([np.linspace(-7, 27, 30_001), [0.46875, 4.0, -4.0, 6.0, 1e300, -1e300, 5e-324]])
    assert np.all(np.abs(erf_of_double(numbers, None) - _erf(numbers)) <= 5e-16 * np.abs(_erf(numbers)))
    exact = _erfc(numbers)
    assert np.all(np.abs(erfc_of_double(numbers, None) - exact) <= 2e-15 * exact + 1e-320)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes(dtype: str) -> None:
    ends = flow.tensor(np.array([-INF, -0.0, 0.0, INF, NAN], dtype))
    for function, expected in (
        (flow.erf, [-1.0, -0.0, 0.0, 1.0, NAN]),
        (flow.erfc, [2.0, 1.0, 1.0, 0.0, NAN]),
        (flow.erfinv, [NAN, -0.0, 0.0, NAN, NAN]),
        (flow.sigmoid, [0.0, 0.5, 0.5, 1.0, NAN]),
    ):
        found = function(ends).numpy()
        np.testing.assert_array_equal(found, np.array(expected, dtype))
        np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(expected[:-1]))
    tiny = flow.tensor(np.array([1e-45, -1e-45], "float32"))
    np.testing.assert_array_equal(flow.erf(tiny).numpy(), tiny.numpy())
    far = flow.tensor(np.array([-1e30, -1e4, -40.0, 1e4, INF], dtype))
    np.testing.assert_array_equal(F.gelu(far).numpy(), np.array([0, 0, 0, 1e4, INF], dtype))


def _gelu(x: Array) -> Array:
    return np.asarray(x * _erfc(-x / math.sqrt(2)) / 2)


def _gelu_slope(x: Array) -> Array:
    return np.asarray(_erfc(-x / math.sqrt(2)) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def _gelu_and_slope(numbers: Array) -> tuple[Array, Array]:
    tensor = flow.tensor(numbers).requires_grad_()
    result = F.gelu(tensor)
    (slope,) = flow.autograd.grad(result, tensor, flow.ones_like(result))
    assert slope is not None
    return result.detach().numpy(), slope.numpy()


def test_gelu_of_float32_and_its_slope() -> None:
    numbers = np.concatenate([_dense(2**-12, 8.0, 997), _dense(1e-38, 2**-12, 99_991)])
    exact = _gelu(numbers.astype(np.float64))
    found, slope = _gelu_and_slope(numbers)
    error = np.abs(found - exact)
    assert np.max(error) < 3e-7
    assert np.max(error[np.abs(numbers) < 2] / np.abs(exact[np.abs(numbers) < 2])) < 4e-6
    # In the negative tail something is left: by 1 + erf there would be nothing below -5.5.
    tail = (numbers < -2) & (numbers > -5)
    assert np.max(error[tail] / np.abs(exact[tail])) < 5e-3
    assert np.max(np.abs(slope - _gelu_slope(numbers.astype(np.float64)))) < 7e-7


def test_gelu_is_as_accurate_as_torch() -> None:
    torch = pytest.importorskip("torch")
    numbers = _dense(2**-8, 8.0, 997)
    exact = _gelu(numbers.astype(np.float64))
    theirs = torch.nn.functional.gelu(torch.from_numpy(numbers)).numpy()
    assert np.max(np.abs(_gelu_and_slope(numbers)[0] - exact)) < np.max(np.abs(theirs - exact)) + 1e-7


def test_gelu_of_float64_keeps_its_digits() -> None:
    numbers = np.linspace(-20, 20, 4001)
    found, slope = _gelu_and_slope(numbers)
    np.testing.assert_allclose(found, _gelu(numbers), rtol=3e-13, atol=0)
    np.testing.assert_allclose(slope, _gelu_slope(numbers), rtol=3e-13, atol=1e-16)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [flow.erf, flow.sigmoid, F.gelu, F.silu], ids=lambda x: x.__name__)
def test_half_precision_is_rounded_once(function: Callable[[flow.Tensor], flow.Tensor], dtype: str) -> None:
    numbers = flow.linspace(-6, 6, 1001).to(getattr(flow, dtype))
    found = function(numbers)
    assert found.dtype is numbers.dtype
    assert flow.equal(found, function(numbers.float()).to(numbers.dtype))


@pytest.mark.parametrize("count", [TILE // 4 - 1, TILE // 4, TILE // 4 + 1, TILE // 2 + 5])
def test_tiles_meet(count: int) -> None:
    numbers = np.linspace(-3, 3, count).astype(np.float32)
    whole = flow.erf(flow.tensor(numbers)).numpy()
    pieces = [flow.erf(flow.tensor(value)).numpy() for value in np.array_split(numbers, 7)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_memory_that_overlaps() -> None:
    numbers = np.linspace(-3, 3, TILE).astype(np.float32)
    expected = erf_of_single(numbers[:-1].copy(), None)
    np.testing.assert_array_equal(erf_of_single(numbers[:-1], numbers[1:]), expected)
    same = numbers.copy()
    assert erf_of_single(same, same) is same
    np.testing.assert_array_equal(same, erf_of_single(numbers.copy(), None))
    square = np.linspace(-3, 3, 400 * 400).astype(np.float32).reshape(400, 400)
    expected = erf_of_single(square.T.copy(), None)
    np.testing.assert_array_equal(erf_of_single(square.T, square), expected)


def test_a_step_sees_all_operands_alike() -> None:
    seen: list[tuple[Any, ...]] = []

    def step(first: Array, second: Array, out: Array, *scratch: Array) -> None:
        seen.append(tuple([(tensor.dtype.name, tensor.size) for tensor in (first, second, out, *scratch)]))
        np.add(first, second, out)

    kernel = in_tiles(step, 2, single=True)
    first, second = np.arange(6, dtype=np.float16).reshape(2, 3), np.ones((2, 3), np.float16)
    np.testing.assert_array_equal(kernel(first, second, None), first + 1)
    assert seen == [(("float32", 6),) * 5]
    assert kernel(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), None).shape == (0, 3)


@pytest.mark.parametrize("shape", [(300, 200), (3, 130, 140), (257, 129)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64"])
def test_large_transposed_copies(shape: tuple[int, ...], dtype: str) -> None:
    array = (np.arange(math.prod(shape)) % 97).astype(dtype).reshape(shape)
    across = flow.tensor(array).transpose(-1, -2)
    np.testing.assert_array_equal(across.contiguous().numpy(), np.swapaxes(array, -1, -2))
    np.testing.assert_array_equal(across.to(flow.float64).numpy(), np.swapaxes(array, -1, -2).real.astype(np.float64))
    target = flow.zeros(across.shape, dtype=across.dtype)
    target.copy_(across)
    np.testing.assert_array_equal(target.numpy(), np.swapaxes(array, -1, -2))


def test_transposing_a_matrix_into_itself() -> None:
    array = np.arange(200 * 200, dtype=np.float32).reshape(200, 200)
    tensor = flow.tensor(array)
    tensor.copy_(tensor.t())
    np.testing.assert_array_equal(tensor.numpy(), array.T)


@pytest.mark.parametrize("shape", [(1, 1), (130, 200), (200, 130), (2, 65, 64), (0, 3), (3, 0)])
def test_triangles_of_any_height(shape: tuple[int, ...]) -> None:
    array = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    array.reshape(-1)[:1] = INF
    for diagonal in (-300, -70, -1, 0, 1, 63, 64, 129, 300):
        for name, function in (("tril", np.tril), ("triu", np.triu)):
            found = getattr(flow, name)(flow.tensor(array), diagonal).numpy()
            np.testing.assert_array_equal(found, function(array, diagonal))


@pytest.mark.parametrize("shape", [(300, 200), (2, 40_000), (1, 70_000), (3, 150, 130)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_softmax_of_many_rows(shape: tuple[int, ...], dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal(shape) * 5
    tensor = flow.tensor(array).to(getattr(flow, dtype))
    exact = tensor.double().numpy()
    exact = exact - np.log(np.exp(exact).sum(-1, keepdims=True))
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-2}[dtype]
    np.testing.assert_allclose(tensor.log_softmax(-1).double().numpy(), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(tensor.softmax(-1).double().numpy(), np.exp(exact), rtol=tolerance * 5, atol=1e-30)


def test_clamping_between_numbers_is_one_op_and_its_gradient() -> None:
    tensor = flow.tensor([-2.0, -1.0, 0.5, 1.0, NAN], requires_grad=True)
    tensor.clamp(-1, 1).backward(flow.ones(5))
    assert tensor.grad is not None
    np.testing.assert_array_equal(tensor.grad.numpy(), [0.0, 1.0, 1.0, 1.0, 1.0])
    assert flow.tensor([1, 5]).clamp(1.5, 3).tolist() == [1.5, 3.0]
    half = flow.tensor([-2.0, 0.5, 3.0]).bfloat16()
    assert half.clamp(-1, 1).tolist() == [-1.0, 0.5, 1.0]
    assert half.clamp_(3, 2).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(TypeError, match="clamp is not defined for complex64"):
        flow.ones(2, dtype=flow.complex64).clamp(0, 1)


def test_index_select_raises_for_an_index_out_of_range() -> None:
    table = flow.arange(12.0).reshape(3, 4)
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
            table.index_select(0, flow.tensor([0, wrong])).tolist()
    assert table.t().index_select(1, flow.tensor([2, 0])).tolist() == [[8.0, 0.0], [9.0, 1.0], [10.0, 2.0], [11.0, 3.0]]


@pytest.mark.parametrize("step", [1, 3])
def test_steps_get_contiguous_operands(step: int) -> None:
    seen: list[bool] = []

    def copied(array: Array, out: Array) -> None:
        seen.append(array.flags.c_contiguous)
        np.copyto(out, array)

    array = np.arange(30.0)[::step]
    assert in_tiles(copied, 0, single=False)(array, None).tolist() == array.tolist()
    assert seen == [True]
