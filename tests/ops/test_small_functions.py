"""Functions composed of a few ops: wrong arguments, shared memory, and extreme values."""

from __future__ import annotations

import array
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

X = flow.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.isposinf(X.to(flow.complex64)), TypeError, "isposinf is not defined for complex64"),
        (lambda: flow.polar(X, X.double()), TypeError, "polar: expected two float32"),
        (lambda: flow.frexp(X.int()), TypeError, "frexp is not defined for int32"),
        (lambda: flow.gcd(X, X), TypeError, "gcd is not defined for float32"),
        (lambda: flow.adjoint(flow.ones(2)), ValueError, "adjoint: expected matrices"),
        (lambda: flow.renorm(X, 0, 0, 1), ValueError, "p must be positive, got 0"),
        (lambda: flow.renorm(X, 2, 0, -1), ValueError, "maxnorm cannot be negative, got -1"),
        (lambda: flow.renorm(X[0], 2, 0, 1), ValueError, "at least two dimensions"),
        (lambda: flow.mvlgamma(X, 0), ValueError, "p must be positive, got 0"),
        (lambda: flow.gradient(X, edge_order=3), ValueError, "edge_order must be 1 or 2, not 3"),
        (lambda: flow.gradient(X, dim=0, edge_order=2), ValueError, "has 2 points, but needs at least 3"),
        (lambda: flow.gradient(X, dim=(0, 0)), ValueError, "names one dimension twice"),
        (lambda: flow.gradient(X, spacing=[1.0]), ValueError, "2 dimensions need as many spacings, got 1"),
        (lambda: flow.gradient(X, spacing=(flow.ones(3), flow.ones(3))), ValueError, "must be a vector of 2"),
        (lambda: flow.vander(X), ValueError, "vander: expected a vector"),
        (lambda: flow.addbmm(X, flow.ones(2, 2, 1), flow.ones(1, 1, 3)), ValueError, "batches of 2 and 1"),
        (lambda: flow.addmv(flow.ones(5), flow.ones(2, 3), flow.ones(3)), ValueError, "addmv"),
        (lambda: flow.nn.functional.pad(X.to(flow.int8), (1, 0), value=300), ValueError, "pad: 300"),
        (lambda: flow.bincount(flow.tensor([1]), flow.tensor([1j])), TypeError, "bincount: expected real weights"),
        (lambda: flow.set_printoptions(precision=True), TypeError, "precision must be an integer, not True"),
        (lambda: flow.unravel_index(X, (2, 3)), TypeError, "the indices must be integers, not float32"),
        (lambda: flow.unravel_index(X.long(), (2, -3)), ValueError, "sizes cannot be negative"),
        (lambda: flow.nn.functional.pdist(X[0]), ValueError, "pdist: expected a matrix"),
        (lambda: flow.nn.functional.pdist(X, -1), ValueError, "p must be 0 or more, not -1"),
        (lambda: flow.randint_like(X, 3, 3), ValueError, "randint_like: there is no integer"),
        (lambda: flow.randint_like(X, 0.5), TypeError, "randint_like: expected integers"),  # type: ignore[arg-type]
        (lambda: flow.zeros(2, dtype=flow.int8).random_(0, 300), ValueError, "random_: 299 does not fit into int8"),
        (lambda: X.clone().cauchy_(0, 0), ValueError, "sigma must be positive, got 0"),
        (lambda: X.clone().log_normal_(0, -1), ValueError, "std must be positive, got -1"),
        (lambda: X.int().log_normal_(), TypeError, "log_normal_: expected a floating-point tensor"),
        (lambda: X.clone().geometric_(1), ValueError, "must be between 0 and 1, got 1"),
        (lambda: X[0].clone().fill_diagonal_(1), ValueError, "expected a matrix"),
        (lambda: flow.ones(2, 2, 3).fill_diagonal_(1), ValueError, "dimensions of one size"),
        (lambda: flow.as_strided_scatter(X.t(), X, (2,), (1,)), ValueError, "leave gaps"),
        (lambda: flow.ones(2, requires_grad=True).resize_(1), RuntimeError, "cannot be changed in place"),
        (lambda: X.clone().resize_(2, memory_format=flow.channels_last), ValueError, "resize_: .* stay in C order"),
        (lambda: flow.trapezoid(flow.tensor(1.0)), IndexError, "trapezoid: a 0-d tensor has no dimension"),
        (lambda: flow.index_select(X[0, 0], 0, flow.tensor([0, 0])), ValueError, "takes one index, not 2"),
        (lambda: flow.cast(X, "float64"), TypeError, "cast: expected a dtype such as .*, got 'float64'"),  # type: ignore[arg-type]
        (lambda: flow.arange(flow.inf, dtype=flow.int64), ValueError, "arange: the limits must be finite"),
        (lambda: X.to(flow.int32, flow.float64), TypeError, "to: expected one dtype, one device or one tensor"),
        (lambda: X.to(flow.int32, False, False, True), TypeError, "to: expected one dtype, one device or one tensor"),
        (lambda: X.clone().set_(X.double()), TypeError, "cannot share memory of float64"),
        (lambda: flow.frombuffer(bytearray(3), dtype=flow.int16), ValueError, "no whole number of elements"),
        (
            lambda: flow.frombuffer(bytearray(4), dtype=flow.int16, count=3),
            ValueError,
            "more than the buffer's 4 bytes",
        ),
        (lambda: flow.frombuffer(bytearray(4), dtype=flow.int16, count=0), ValueError, "count must be positive"),
        (lambda: flow.frombuffer(bytearray(0), dtype=flow.int16), ValueError, "not within a buffer of 0"),
        (lambda: flow.asarray([1, 2], copy=False), ValueError, "a list cannot become such a tensor without a copy"),
        (lambda: flow.asarray(X, dtype=flow.int64, copy=False), ValueError, "without a copy"),
        (lambda: flow.kl_div(X, X, 3), ValueError, "the reduction is 0 for none, 1 for the mean or 2"),
        (lambda: flow.kl_div(X, X, "all"), ValueError, "kl_div: the reduction is 0 for none, .* not 'all'"),
        (lambda: flow.kl_div(X, X, 1.0), TypeError, "kl_div: the reduction must be an integer, not 1.0"),  # type: ignore[arg-type]
        (lambda: flow.kl_div(X, X, None), TypeError, "kl_div: the reduction must be an integer, not None"),  # type: ignore[arg-type]
        (lambda: flow.special.xlog1py(1, 2), TypeError, "xlog1py: expected tensors"),
        (lambda: flow.special.i0e(X.to(flow.complex64)), TypeError, "i0e is not defined for complex64"),
    ],
)
def test_arguments_that_raise(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_mantissas_and_exponents_of_all_powers_of_two(dtype: str) -> None:
    kind = getattr(flow, dtype)
    limits = flow.finfo(kind)
    smallest = (
        math.frexp(limits.tiny * limits.eps)[1] if dtype in ("float32", "float64") else math.frexp(limits.tiny)[1]
    )
    powers = np.ldexp(1.0, np.arange(smallest - 1, math.frexp(limits.max)[1]))
    given = flow.tensor(np.concatenate([powers, -powers]), dtype=flow.float64).to(kind)
    mantissa, exponent = flow.frexp(given)
    assert mantissa.dtype is kind
    assert exponent.dtype is flow.int32
    assert set(mantissa.double().tolist()) == {0.5, -0.5}
    assert exponent.tolist() == [math.frexp(value)[1] for value in given.double().tolist()]
    ends = flow.tensor([0.0, math.inf, -math.inf]).to(kind)
    assert flow.frexp(ends).mantissa.double().tolist() == [0.0, math.inf, -math.inf]
    assert flow.frexp(ends).exponent.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_products_with_powers_of_two_from_end_to_end(dtype: str) -> None:
    kind = getattr(flow, dtype)
    largest = math.frexp(flow.finfo(kind).max)[1] - 1
    numbers = flow.tensor([1.5, 0.0, math.inf, -1.0]).to(kind).unsqueeze(1)
    up, down = flow.tensor([largest, 5000, 100_000]), flow.tensor([-largest, -5000, -100_000])
    small = flow.ldexp(numbers, down)
    assert small.dtype is kind
    assert small[:, 1:].tolist() == [[0.0, 0.0], [0.0, 0.0], [math.inf, math.inf], [0.0, 0.0]]
    assert flow.ldexp(small[:, :1], up[:1] * 2).tolist() == flow.ldexp(numbers, up[:1]).tolist()
    assert flow.ldexp(numbers, up)[:, 1:].tolist() == [[math.inf] * 2, [0.0] * 2, [math.inf] * 2, [-math.inf] * 2]


def test_dtypes_of_ldexp_and_xlog1py() -> None:
    for dtype in (flow.float16, flow.bfloat16, flow.float64):
        x, y = flow.ones(2, dtype=dtype), flow.tensor([2, 3], dtype=flow.int8)
        assert flow.ldexp(x, y).dtype is flow.ldexp(y, x).dtype is dtype
        assert flow.special.xlog1py(x, y).dtype is flow.special.xlog1py(y, x).dtype is dtype
        assert flow.special.xlog1py(x, flow.tensor(2.0)).dtype is dtype
    with pytest.raises(TypeError, match="ldexp is not defined for exponents of complex64"):
        flow.ldexp(X, X.to(flow.complex64))


def test_gradients() -> None:
    x = np.array([[0.3, -1.2], [2.6, 0.7]])
    check_gradients(lambda x: flow.frexp(x).mantissa, x)
    check_gradients(flow.ldexp, x, x[::-1].copy(), second=True)
    check_gradients(lambda x: flow.renorm(x, 2, 0, 1.0), x)
    check_gradients(lambda x, y: flow.special.xlog1py(x, y), x, np.abs(x), second=True)
    check_gradients(lambda x: flow.gradient(x, spacing=[0.5, 2.0])[0], x)
    check_gradients(lambda x: flow.cumulative_trapezoid(x, flow.tensor([0.0, 3.0])), x)
    check_gradients(lambda x: flow.polar(x.abs(), x).abs(), x)
    check_gradients(lambda x, y: flow.sgn(flow.complex(x, y)).real, x, x[::-1].copy())
    assert flow.angle(flow.tensor([1.0, -2.0], requires_grad=True)).sum().requires_grad


@pytest.mark.host  # arrays share memory with tensors of the CPU
def test_memory_is_shared_if_possible() -> None:
    buffer = bytearray(8)
    seen = flow.frombuffer(buffer, dtype=flow.int32, offset=4)
    seen.fill_(1)
    flow.synchronize()
    assert list(buffer) == [0, 0, 0, 0, 1, 0, 0, 0]
    array = np.zeros(2)
    assert flow.asarray(array, copy=False).add_(1).tolist() == [1, 1]
    assert array.tolist() == [1, 1]
    assert flow.asarray(array, copy=True).add_(1).tolist() == [2, 2]
    assert array.tolist() == [1, 1]
    x = flow.ones(2)
    assert flow.asarray(x) is x
    assert flow.zeros(3).set_(x).is_set_to(x)
    assert not x.clone().is_set_to(x)


@pytest.mark.host  # arrays share memory with tensors of the CPU
def test_asarray_reads_memory_as_the_dtype() -> None:
    buffer = bytearray([0, 0, 128, 63])
    shared = flow.asarray(buffer, copy=False)
    assert shared.dtype is flow.float32
    assert shared.tolist() == [1.0]
    shared.fill_(0.0)
    flow.synchronize()
    assert buffer == bytearray(4)
    assert flow.asarray(b"\1\0\2\0", dtype=flow.int16).tolist() == [1, 2]
    assert flow.asarray(memoryview(array.array("d", [1.5, 2.5])), dtype=flow.float64).tolist() == [1.5, 2.5]
    assert flow.asarray(array.array("h", [3, 4]), dtype=flow.int16, copy=True).tolist() == [3, 4]
    with pytest.raises(ValueError, match="a bytes cannot become such a tensor without a copy"):
        flow.asarray(b"1234", copy=False)
    with pytest.raises(ValueError, match="5 bytes are no whole number of elements of 4 bytes"):
        flow.asarray(bytearray(5))


def test_asarray_keeps_history_unless_told_otherwise() -> None:
    leaf = flow.ones(2, requires_grad=True)
    result = leaf * 2
    assert flow.asarray(result) is result
    assert flow.asarray(result, requires_grad=True) is result
    for tensor in (leaf, result):
        without = flow.asarray(tensor, requires_grad=False)
        assert not without.requires_grad
        assert without.is_leaf
        assert not flow.asarray(tensor, copy=True, requires_grad=False).requires_grad
    (gradient,) = flow.autograd.grad(flow.asarray(result, copy=True, requires_grad=True).sum(), leaf)
    assert gradient is not None
    assert gradient.tolist() == [2.0, 2.0]
    x = flow.ones(2)
    assert flow.asarray(x, requires_grad=True) is x
    assert x.requires_grad
    with pytest.raises(TypeError, match="asarray: copy must be"):
        flow.asarray(x, copy="yes")  # type: ignore[arg-type]


def test_resizing_keeps_existing_elements() -> None:
    x = flow.arange(6).view(2, 3)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_(5)[:4].tolist() == [0, 1, 2, 3]
    assert flow.arange(6).view(2, 3).t().resize_(4).shape == (4,)
    assert x.resize_as_(flow.zeros(0, 2)).shape == (0, 2)


@pytest.mark.parametrize("dtype", [flow.uint8, flow.int8, flow.uint64])
def test_indices_of_a_shape_whose_sizes_exceed_their_dtype(dtype: flow.dtype) -> None:
    indices = flow.tensor([3, 100], dtype=dtype)
    for shape, expected in (((300,), [[3, 100]]), ((2, 256), [[0, 0], [3, 100]]), ((), [])):
        found = flow.unravel_index(indices, shape)
        assert [part.tolist() for part in found] == expected
        assert all(part.dtype is dtype for part in found)


def test_the_gradient_of_the_number_of_nonzero_elements_is_0() -> None:
    x = flow.tensor([0.0, 2.0, math.nan], requires_grad=True)
    y = flow.norm(x, 0)
    assert y.item() == 2.0
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("p", [-1, -0.5, -2])
def test_norms_of_infinities_for_negative_powers(p: float) -> None:
    assert flow.norm(flow.tensor([math.inf, math.inf]), p).item() == math.inf
    assert flow.norm(flow.tensor([math.inf, 2.0]), p).item() == pytest.approx(2.0)
    assert flow.norm(flow.tensor([0.0, 2.0]), p).item() == 0.0


@pytest.mark.parametrize("elements", [2, 100_000])
@pytest.mark.parametrize("number", [-1, 300, 256, 0])
def test_truth_values_of_numbers_that_do_not_fit(number: int, elements: int) -> None:
    x = flow.arange(elements).remainder(2).to(flow.uint8)
    true, given = bool(number), x.bool()
    assert flow.equal(flow.logical_and(x, number), given & true)
    assert flow.equal(flow.logical_or(x, number), given | true)
    assert flow.equal(flow.logical_xor(x, number), given ^ true)


def test_infinite_elements_do_not_reach_samples_outside_of_the_image() -> None:
    image = flow.tensor([[[[math.inf, 1.0], [2.0, 3.0]]]])
    assert flow.nn.functional.grid_sample(image, flow.full((1, 1, 1, 2), 5.0)).item() == 0.0


def test_pooling_by_the_power_1_keeps_negative_sums() -> None:
    x = flow.tensor([[-3.0, 1.0]])
    assert flow.nn.functional.lp_pool1d(x, 1, 2).tolist() == [[-2.0]]
    assert flow.nn.functional.lp_pool1d(x, -1, 2).item() == pytest.approx(1.5)
    assert flow.nn.functional.lp_pool1d(x, 3, 2).tolist() == [[0.0]]


def test_without_classes_no_target_is_among_the_largest() -> None:
    assert flow.in_top_k(flow.tensor([-1, 0]), flow.zeros(2, 0), 1).tolist() == [False, False]


def test_random_numbers_in_place() -> None:
    with flow.fork_rng():
        flow.manual_seed(0)
        whole = flow.zeros(4000, dtype=flow.int8).random_()
        assert (whole.min().item(), whole.max().item()) == (0, 127)
        assert sorted(set(flow.zeros(200).random_(2, 5).tolist())) == [2, 3, 4]
        trials = flow.zeros(20000, dtype=flow.int64).geometric_(0.25)
        assert trials.double().mean().item() == pytest.approx(4, rel=0.05)
        assert flow.zeros(20001).cauchy_(3, 0.5).median().item() == pytest.approx(3, abs=0.05)
        assert flow.zeros(20000).log_normal_(1, 0.5).log().mean().item() == pytest.approx(1, abs=0.02)
        assert set(flow.randint_like(flow.ones(200, dtype=flow.int16), 2, 4).tolist()) == {2, 3}


def test_in_place_functions_are_the_methods() -> None:
    x = flow.zeros(2)
    assert flow.exp_(x) is x
    assert x.tolist() == [1, 1]
    for name in ("multiply_", "arcsin_", "negative_", "cumsum_", "index_put_", "clamp_"):
        assert getattr(flow, name) is getattr(flow.Tensor, name)
    assert flow.kl_div(X, X, 1).shape == ()
    assert flow.kl_div(X, X, "sum").shape == ()
    assert flow.kl_div(X, X).shape == (2, 3)
