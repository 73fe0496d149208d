"""New tensors: dtypes inferred from data, memory shared with numpy, ranges and their ends."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow.ops.creation.creation import from_array

from .oracle import ALL, KernelContract, check, sample, values

INF, NAN = math.inf, math.nan


# From data


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, "int64"),
        (True, "bool"),
        (1.5, "float32"),
        (1j, "complex64"),
        ([1, 2], "int64"),
        ([1, 2.5], "float32"),
        ([True, 2], "int64"),
        ([True, False], "bool"),
        ([True, 2.5], "float32"),
        ([1, 2j], "complex64"),
        ([], "float32"),
        ([[], []], "float32"),
        ([[1], [2.5]], "float32"),
        (((1, 2), [3, 4]), "int64"),
        (range(3), "int64"),
        (np.float64(1), "float64"),
        (np.float32(1), "float32"),
        (np.int8(1), "int8"),
        (np.bool_(True), "bool"),
        (np.complex64(1j), "complex64"),
        (ml_dtypes.bfloat16(1.5), "bfloat16"),
        ([np.float64(1)], "float64"),
        ([np.float32(1), 2], "float32"),
        ([np.int32(1), 2], "int64"),
        ([np.float16(1), np.float64(2)], "float64"),
        ([np.array([1, 2]), np.array([3, 4])], "int64"),
        ([np.array([1.0]), [2.0]], "float64"),
        (np.array([1.0, 2.0]), "float64"),
        (np.array([1, 2], np.uint8), "uint8"),
        (np.zeros((2, 0), np.float16), "float16"),
        (np.array([1.5], ml_dtypes.bfloat16), "bfloat16"),
        (np.array([1.0, 2.0]).astype(">f8"), "float64"),
        (np.arange(6)[::-2], "int64"),
        (np.array(5), "int64"),
    ],
)
def test_dtypes_follow_from_the_data(data: Any, dtype: str) -> None:
    check(flow.tensor(data), np.array(data), dtype)


def test_tensors_in_the_data() -> None:
    one = flow.tensor(1.5, dtype=flow.float64, requires_grad=True)
    check(flow.tensor([one, 2]), [1.5, 2.0], "float64")
    check(flow.tensor([[one, one], [2.0, 3.0]]), [[1.5, 1.5], [2.0, 3.0]], "float64")
    check(flow.tensor([flow.tensor([1, 2]), flow.tensor([3, 4])]), [[1, 2], [3, 4]], "int64")
    source = flow.tensor([1.0, 2.0], requires_grad=True)
    copy = flow.tensor(source)
    assert not copy.requires_grad
    copy[0] = 5.0
    check(source, [1.0, 2.0], "float32")
    check(flow.tensor(source, dtype=flow.int64), [1, 2], "int64")
    assert flow.tensor(source, requires_grad=True).is_leaf


def test_dtype_of_data_as_asked() -> None:
    for dtype in (*ALL, "complex128"):
        check(flow.tensor([0, 1, 1], dtype=getattr(flow, dtype)), np.array([0, 1, 1]), dtype)
    check(flow.tensor([1.7, -1.7], dtype=flow.int64), [1, -1], "int64")
    check(flow.tensor([1e300]), [INF], "float32")
    check(flow.tensor([1e300], dtype=flow.float64), [1e300], "float64")
    check(flow.tensor(np.array([300]), dtype=flow.uint8), [44], "uint8")
    check(flow.tensor([1.5], dtype=flow.bool), [True], "bool")
    previous = flow.get_default_dtype()
    flow.set_default_dtype(flow.float64)
    try:
        check(flow.tensor([1.5]), [1.5], "float64")
        check(flow.tensor(1j), 1j, "complex128")
        assert flow.ones(1).dtype is flow.float64
        assert (flow.tensor([1]) / 2).dtype is flow.float64
    finally:
        flow.set_default_dtype(previous)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.tensor("a"), TypeError, "expected numbers"),
        (lambda: flow.tensor(None), TypeError, "expected numbers"),
        (lambda: flow.tensor([1, None]), TypeError, "expected numbers"),
        (lambda: flow.tensor({1: 2}), TypeError, "expected numbers"),
        (lambda: flow.tensor(["a"]), TypeError, "expected numbers"),
        (lambda: flow.tensor(np.array(["a"])), TypeError, "no vmflow dtype holds"),
        (lambda: flow.tensor(np.array([None])), TypeError, "no vmflow dtype holds"),
        (lambda: flow.tensor(np.datetime64(2, "s")), TypeError, "no vmflow dtype holds numpy's datetime64"),
        (lambda: flow.tensor(np.zeros(2, "datetime64[s]")), TypeError, "no vmflow dtype holds"),
        (lambda: flow.tensor([[1, 2], [3]]), ValueError, "equal lengths"),
        (lambda: flow.tensor([1, [2]]), ValueError, "equal lengths"),
        (lambda: flow.tensor([NAN], dtype=flow.int64), ValueError, "cannot convert float NaN"),
        (lambda: flow.tensor([300], dtype=flow.uint8), OverflowError, "out of bounds for uint8"),
        (lambda: flow.tensor([300.0], dtype=flow.uint8), OverflowError, "out of bounds for uint8"),
        (lambda: flow.tensor([1 << 63]), OverflowError, "tensor: "),
        (lambda: flow.tensor(1 << 100), OverflowError, "tensor: "),
        (lambda: flow.tensor(10**400, dtype=flow.float32), OverflowError, "tensor: "),
        (lambda: flow.tensor([1j], dtype=flow.float32), TypeError, "complex"),
        (lambda: flow.tensor([1], dtype=np.float32), TypeError, "must be a vmflow dtype"),  # type: ignore[arg-type]
        (lambda: flow.tensor([1], dtype=float), TypeError, "must be a vmflow dtype"),  # type: ignore[arg-type]
        (lambda: flow.tensor([1], requires_grad=True), RuntimeError, "only floating-point and complex"),
        (lambda: flow.tensor([1], device="cuda:99"), RuntimeError, "cannot be used"),
        (lambda: flow.tensor([1], device="tpu"), ValueError, "unknown device type"),
        (lambda: flow.zeros(2, -1), ValueError, "cannot be negative"),
        (lambda: flow.zeros(2.0), TypeError, "sizes are integers"),
        (lambda: flow.zeros(), TypeError, "expected sizes"),
        (lambda: flow.zeros(2, shape=(2,)), TypeError, "unexpected arguments"),
        (lambda: flow.zeros(2, dtype=float), TypeError, "must be a vmflow dtype"),  # type: ignore[arg-type]
        (lambda: flow.ones_like(flow.ones(2), dtype="float"), TypeError, "must be a vmflow dtype"),  # type: ignore[arg-type]
        (lambda: flow.full((2,), NAN, dtype=flow.int64), ValueError, "does not fit into int64"),
        (lambda: flow.full((2,), 300, dtype=flow.uint8), ValueError, "does not fit into uint8"),
        (lambda: flow.full((2,), 1e300, dtype=flow.float32), ValueError, "does not fit into float32"),
        (lambda: flow.full((2,), 1j, dtype=flow.float32), TypeError, "cannot become float32"),
        (lambda: flow.full((2,), 1 << 63), ValueError, "does not fit into int64"),
        (lambda: flow.full((2,), 1 << 64), OverflowError, "fits neither into int64 nor into uint64"),
        (lambda: flow.full_like(flow.ones(2), 1 << 64), OverflowError, "full_like: .* fits neither into int64 nor"),
        (lambda: flow.full_like(flow.ones(2), flow.ones(2)), ValueError, "has 2 elements, not one"),  # type: ignore[arg-type]
        (lambda: flow.full((2,), "a"), TypeError, "expected a tensor or a number"),  # type: ignore[arg-type]
        (lambda: flow.arange(0, 3, 0), ValueError, "step must not be 0"),
        (lambda: flow.arange(0, 2, 0.5, dtype=flow.int64), ValueError, "the step 0.5 is 0 as int64"),
        (lambda: flow.arange(3, 0), ValueError, "does not lead from 3 to 0"),
        (lambda: flow.arange(-3), ValueError, "does not lead"),
        (lambda: flow.arange(0, INF), ValueError, "must be finite"),
        (lambda: flow.arange(NAN), ValueError, "must be finite"),
        (lambda: flow.arange(1 << 63, (1 << 63) + 1), ValueError, "9223372036854775808 does not fit into int64"),
        (lambda: flow.arange(1 << 63, (1 << 63) + 1, dtype=flow.int8), ValueError, "does not fit into int8"),
        (lambda: flow.arange(2, dtype=flow.bool), TypeError, "no range of bools"),
        (lambda: flow.linspace(0, 1, 2, dtype=flow.bool), TypeError, "linspace is not defined for bool"),
        (lambda: flow.logspace(0, 1, 2, dtype=flow.bool), TypeError, "logspace is not defined for bool"),
        (lambda: flow.arange("a"), TypeError, "expected a tensor or a number"),  # type: ignore[arg-type]
        (lambda: flow.linspace(0, 1, -1), ValueError, "cannot be negative"),
        (lambda: flow.linspace(flow.ones(2), 1, 3), ValueError, "has 2 elements, not one"),  # type: ignore[arg-type]
        (lambda: flow.as_tensor(np.ones(1), dtype=float), TypeError, "as_tensor: dtype must be"),  # type: ignore[arg-type]
        (lambda: flow.frombuffer(b"a", dtype=bool), TypeError, "frombuffer: dtype must be"),  # type: ignore[arg-type]
        (lambda: flow.ones(1).new_zeros(2, dtype=float), TypeError, "new_zeros: dtype must be"),  # type: ignore[arg-type]
        (lambda: flow.eye(-1), ValueError, "cannot be negative"),
        (lambda: flow.from_numpy([1]), TypeError, "expected a numpy array"),
        (lambda: flow.from_numpy(np.zeros(2, "datetime64[s]")), TypeError, "no vmflow dtype holds"),
        (lambda: flow.from_numpy(np.arange(3)[::-1]), ValueError, "negative stride"),
        (lambda: flow.from_numpy(np.zeros(3, ">f4")), ValueError, "byte-swapped"),
        (lambda: flow.from_numpy(np.broadcast_to(np.zeros(1), (3,))), ValueError, "read-only"),
        (lambda: flow.from_numpy(np.zeros(3, "i1,f4")["f1"]), ValueError, "a part of larger elements"),
    ],
)
def test_bad_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# Memory shared with numpy


def _shared(array: Any) -> bool:
    tensor = flow.from_numpy(array)
    check(tensor, array, str(tensor.dtype).split(".")[1])
    before = array.copy()
    tensor.add_(1)
    flow.synchronize()
    np.testing.assert_array_equal(array, before + 1)
    array -= 1
    np.testing.assert_array_equal(values(tensor), before)
    return True


def test_from_numpy_shares_memory() -> None:
    base = np.arange(24.0).reshape(2, 3, 4)
    assert _shared(base)
    assert _shared(base.T)
    assert _shared(base[:, 1:, ::2])
    assert _shared(base[1])
    assert _shared(base.transpose(2, 0, 1)[1:, :, ::-1][:, :, ::-1])
    assert _shared(np.asfortranarray(base))
    assert _shared(np.asfortranarray(base)[:, 1])
    assert _shared(np.zeros(()))
    assert _shared(np.arange(10, dtype=np.int32)[3:8:2])
    assert _shared(base.reshape(-1).view(np.int64)[1:5])
    assert flow.from_numpy(base.T).stride() == (1, 4, 12)
    assert flow.from_numpy(np.zeros((0, 3))).shape == (0, 3)


@given(st.data())
@settings(max_examples=100)
def test_from_numpy_shares_or_refuses(data: st.DataObject) -> None:
    array = np.arange(60.0).reshape(3, 4, 5)
    if data.draw(st.booleans()):
        array = np.asfortranarray(array)
    for axis in range(3):
        step = data.draw(st.sampled_from([1, 1, 2, 3, -1]))
        start = data.draw(st.integers(0, 2))
        array = array[(slice(None),) * axis + (slice(start, None, step) if step > 0 else slice(None, None, step),)]
    array = array.transpose(data.draw(st.permutations(range(3))))
    if any(stride < 0 for stride in array.strides) and not array.flags.c_contiguous:
        with pytest.raises(ValueError, match="negative stride"):
            flow.from_numpy(array)
        check(flow.tensor(array), array, "float64")
        return
    assert _shared(array)


@pytest.mark.host  # arrays share memory with tensors of the CPU
def test_as_tensor_copies_only_where_it_must() -> None:
    array = np.arange(3.0)
    flow.as_tensor(array).add_(1)
    flow.synchronize()
    np.testing.assert_array_equal(array, [1.0, 2.0, 3.0])
    check(flow.as_tensor(array[::-1]), [3.0, 2.0, 1.0], "float64")
    check(flow.as_tensor(np.broadcast_to(array, (2, 3))), [[1.0, 2.0, 3.0]] * 2, "float64")
    check(flow.as_tensor(array, dtype=flow.float32), [1.0, 2.0, 3.0], "float32")
    tensor = flow.ones(2)
    assert flow.as_tensor(tensor) is tensor
    check(flow.as_tensor(tensor, dtype=flow.int64), [1, 1], "int64")
    check(flow.as_tensor([1, 2]), [1, 2], "int64")
    with pytest.raises(RuntimeError, match="cannot be used"):
        flow.as_tensor(array, device="cuda:99")


def test_tensor_copies_and_numpy_gives_a_copy_back() -> None:
    array = np.arange(3.0)
    tensor = flow.tensor(array)
    array[0] = 9.0
    check(tensor, [0.0, 1.0, 2.0], "float64")
    found = tensor.numpy()
    found[0] = 9.0
    check(tensor, [0.0, 1.0, 2.0], "float64")
    check(from_array(np.arange(2), flow.device("cpu")), [0, 1], "int64")


# From sizes


def test_filled(contract: KernelContract) -> None:
    for function, expected in ((flow.zeros, 0), (flow.ones, 1)):
        for dtype in ALL:
            check(function(2, 3, dtype=getattr(flow, dtype)), np.full((2, 3), expected), dtype)
        check(function((2, 3)), np.full((2, 3), expected), "float32")
        check(function([2]), [expected] * 2, "float32")
        check(function(()), expected, "float32")
        check(function(size=(2,)), [expected] * 2, "float32")
        check(function(0, 3), np.zeros((0, 3)), "float32")
        check(function(flow.ones(2, 3).shape), np.full((2, 3), expected), "float32")
        check(function(np.int64(2)), [expected] * 2, "float32")
    check(flow.full((2,), True), [True, True], "bool")
    check(flow.full((2,), 3), [3, 3], "int64")
    check(flow.full((2,), 2.5), [2.5, 2.5], "float32")
    check(flow.full((2,), 1j), [1j, 1j], "complex64")
    check(flow.full((), -INF), -INF, "float32")
    check(flow.full((2,), 2.9, dtype=flow.int64), [2, 2], "int64")
    check(flow.full((2,), 7, dtype=flow.bool), [True, True], "bool")
    check(flow.full((2,), np.float64(2.5)), [2.5, 2.5], "float32")
    check(flow.full((2,), flow.tensor(3.5)), [3.5, 3.5], "float32")
    check(flow.full((2,), 1 << 62), [1 << 62] * 2, "int64")
    assert flow.empty(2, 3).shape == (2, 3)
    assert flow.empty(0, dtype=flow.int8).dtype is flow.int8
    assert flow.ones(2, requires_grad=True).requires_grad
    check(flow.ones(300, 300), np.ones((300, 300)), "float32")


def test_like_another(contract: KernelContract) -> None:
    source = flow.tensor(sample((2, 3), "float64"))
    check(flow.zeros_like(source), np.zeros((2, 3)), "float64")
    check(flow.ones_like(source.T), np.ones((3, 2)), "float64")
    check(flow.ones_like(source, dtype=flow.int64), np.ones((2, 3)), "int64")
    check(flow.full_like(source, 2.5), np.full((2, 3), 2.5), "float64")
    check(flow.full_like(source, 2.5, dtype=flow.int64), np.full((2, 3), 2), "int64")
    assert flow.empty_like(source).dtype is flow.float64
    assert flow.ones_like(source, requires_grad=True).requires_grad
    check(source.new_zeros(2), np.zeros(2), "float64")
    check(source.new_ones((2, 1)), np.ones((2, 1)), "float64")
    check(source.new_full((2,), 3), np.full(2, 3), "float64")
    check(flow.full_like(source, flow.tensor(3)), np.full((2, 3), 3.0), "float64")  # type: ignore[arg-type]
    check(source.new_full((2,), flow.tensor(3)), np.full(2, 3.0), "float64")
    check(source.new_tensor([1, 2]), [1, 2], "float64")


def test_eye(contract: KernelContract) -> None:
    for rows, columns in ((3, 3), (2, 4), (4, 2), (0, 0), (0, 3)):
        check(flow.eye(rows, columns), np.eye(rows, columns), "float32")
    check(flow.eye(2, dtype=flow.bool), np.eye(2), "bool")
    check(flow.eye(2, dtype=flow.complex64), np.eye(2), "complex64")
    check(flow.eye(2, dtype=flow.bfloat16), np.eye(2), "bfloat16")


# Ranges


@pytest.mark.parametrize(
    ("arguments", "expected", "dtype"),
    [
        ((3,), [0, 1, 2], "int64"),
        ((3.0,), [0, 1, 2], "float32"),
        ((0,), [], "int64"),
        ((5, 5), [], "int64"),
        ((2, 5), [2, 3, 4], "int64"),
        ((3, 0, -1), [3, 2, 1], "int64"),
        ((5, 0, -2), [5, 3, 1], "int64"),
        ((1, 2, 0.3), [1.0, 1.3, 1.6, 1.9], "float32"),
        ((1.0, 1.4, 0.1), [1.0, 1.1, 1.2, 1.3], "float32"),
        ((0, 1, 0.1), [index / 10 for index in range(10)], "float32"),
        ((0, -1, -0.25), [0, -0.25, -0.5, -0.75], "float32"),
        ((1 << 62, (1 << 62) + 3), [(1 << 62) + index for index in range(3)], "int64"),
        ((-(1 << 62), 1 << 62, 1 << 61), [-(1 << 62), -(1 << 61), 0, 1 << 61], "int64"),
        ((True,), [0], "int64"),
        ((np.int64(3),), [0, 1, 2], "int64"),
        ((flow.tensor(3),), [0, 1, 2], "int64"),
    ],
)
def test_arange(arguments: tuple[Any, ...], expected: list[Any], dtype: str, contract: KernelContract) -> None:
    check(flow.arange(*arguments), np.array(expected), dtype)


def test_arange_in_a_dtype(contract: KernelContract) -> None:
    for dtype in ("float64", "float16", "bfloat16", "int8", "complex64"):
        check(flow.arange(1, 4, dtype=getattr(flow, dtype)), [1, 2, 3], dtype)
    check(flow.arange(0.5, 3, dtype=flow.int64), [0, 1, 2], "int64")
    # Each number is computed on its own: adding up 0.1 would be off in the last places.
    check(flow.arange(0, 1000, 0.1, dtype=flow.float64), np.arange(10_000) * 0.1, "float64")


def test_arange_beyond_int64(contract: KernelContract) -> None:
    most = (1 << 64) - 1
    for start, end, step in ((most - 3, most, 1), (most, most - 3, -1), (0, most, 1 << 63)):
        expected = np.array(range(start, end, step), np.uint64)
        check(flow.arange(start, end, step, dtype=flow.uint64), expected, "uint64")
    for start in (1 << 63, 10**19):
        check(flow.arange(start, start + 8192, 4096, dtype=flow.float64), [start, start + 4096.0], "float64")
    check(flow.arange(1 << 63, (1 << 63) + 1, dtype=flow.complex64), [float(1 << 63)], "complex64")


def test_complex_limits_of_linspace_and_logspace(contract: KernelContract) -> None:
    check(flow.linspace(0, 1j, 3), [0, 0.5j, 1j], "complex64")
    check(flow.linspace(1, 3 - 4j, 3, dtype=flow.complex128), [1, 2 - 2j, 3 - 4j], "complex128")
    check(flow.logspace(0, 1j, 2), [1, 10**1j], "complex64", tolerance=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: flow.linspace(0, 1j, 3, dtype=flow.float32), TypeError, "linspace: the complex number 1j"),
        (lambda: flow.logspace(0, 1j, 3, dtype=flow.float32), TypeError, "logspace: complex limits"),
        (lambda: flow.linspace(-1, 300, 3, dtype=flow.uint8), ValueError, "linspace: -1 does not fit into uint8"),
        (lambda: flow.linspace(0, math.inf, 3, dtype=flow.int64), ValueError, "linspace: inf does not fit"),
        (lambda: flow.arange(1j), TypeError, "arange: the limits and"),  # type: ignore[arg-type]
        (lambda: flow.arange(0, 3, 0.5, dtype=flow.int32), ValueError, "arange: the step 0.5 is 0 as int32"),
        (lambda: flow.arange(3, dtype=float), TypeError, "arange: dtype must be a vmflow dtype"),  # type: ignore[arg-type]
    ],
)
def test_ranges_that_a_dtype_does_not_hold(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_limits_of_linspace_and_logspace_may_be_tensors(contract: KernelContract) -> None:
    check(flow.linspace(flow.tensor(0), flow.tensor([4.0]), 3), [0, 2, 4], "float32")  # type: ignore[arg-type]
    check(flow.logspace(flow.tensor(0), 2, 3), [1, 10, 100], "float32")  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 10, 101, 1000])
def test_linspace_meets_both_ends(steps: int, contract: KernelContract) -> None:
    for start, end in ((0.1, 0.7), (-3.0, 3.0), (1.0, -1.0), (1e-3, 1e9), (2.0, 2.0)):
        found = flow.linspace(start, end, steps, dtype=flow.float64)
        check(found, np.linspace(start, end, steps), "float64", tolerance=1e-12)
        if steps:
            assert found[0].item() == start
        if steps > 1:
            assert found[-1].item() == end
            single = flow.linspace(start, end, steps)
            assert single[-1].item() == np.float32(end)


def test_linspace_of_integers(contract: KernelContract) -> None:
    check(flow.linspace(0, 10, 5, dtype=flow.int64), [0, 2, 5, 7, 10], "int64")
    check(flow.linspace(3, -3, 7), [3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0], "float32")


# Arguments that all have in common


MAKERS: dict[str, tuple[Any, ...]] = {
    **{f"{name}_window": (4,) for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
    "arange": (3,),
    "empty": (2, 3),
    "empty_like": (flow.ones(2),),
    "empty_strided": ((2, 3), (3, 1)),
    "eye": (3,),
    "full": ((2, 3), 1.5),
    "full_like": (flow.ones(2), 1.5),
    "linspace": (0, 1, 3),
    "logspace": (0, 1, 3),
    "normal": (0.0, 1.0, (2, 3)),
    "ones": (2, 3),
    "ones_like": (flow.ones(2),),
    "rand": (2, 3),
    "rand_like": (flow.ones(2),),
    "randint": (0, 4, (2, 3)),
    "randint_like": (flow.ones(2, 3), 4),
    "scalar_tensor": (2.5,),
    "randn": (2, 3),
    "randn_like": (flow.ones(2),),
    "randperm": (3,),
    "tensor": ([1, 2],),
    "tril_indices": (2, 2),
    "triu_indices": (2, 2),
    "zeros": (2, 3),
    "zeros_like": (flow.ones(2),),
}
METHODS = {"new_empty": (2, 3), "new_full": ((2, 3), 1), "new_ones": (2, 3), "new_tensor": ([1],), "new_zeros": (2, 3)}


def takes(function: Any, name: str) -> bool:
    return name in inspect.signature(function).parameters


def test_functions_with_requires_grad_have_pin_memory() -> None:
    """The list is that of PyTorch's functions that make tensors."""
    named = {name: getattr(flow, name) for name in dir(flow) if not name.startswith("_")}
    public = {name: value for name, value in named.items() if inspect.isfunction(value)}
    # PyTorch's functions that share memory have no such argument either.
    shares = {"asarray", "frombuffer"}
    assert {name for name, value in public.items() if takes(value, "requires_grad")} - shares <= set(MAKERS)
    assert {name for name, value in public.items() if takes(value, "pin_memory")} == set(MAKERS)
    methods = {name: var for name, var in vars(flow.Tensor).items() if inspect.isfunction(var)}
    assert {name for name, method in methods.items() if takes(method, "pin_memory")} == set(METHODS)
    for name in ("fftfreq", "rfftfreq"):
        assert getattr(flow.fft, name)(4, pin_memory=True).tolist() == getattr(flow.fft, name)(4).tolist()


@pytest.mark.parametrize("name", MAKERS)
def test_memory_is_not_pinned_and_programs_that_ask_for_it_run(name: str) -> None:
    maker = getattr(flow, name)
    found = []
    for more in ({}, {"pin_memory": False}, {"pin_memory": True}):
        flow.manual_seed(3)
        found.append(maker(*MAKERS[name], **more))
    for other in found[1:]:
        assert (other.shape, other.dtype, other.device) == (found[0].shape, found[0].dtype, found[0].device)
        if "empty" not in name:
            assert other.tolist() == found[0].tolist()


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_make_tensors_take_pin_memory(name: str) -> None:
    made = getattr(flow.ones(1, dtype=flow.int32), name)(*METHODS[name], pin_memory=True)
    assert made.dtype is flow.int32
