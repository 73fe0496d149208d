"""The dtype of the result of two operands: PyTorch's table, and its rules for numbers and 0-d tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import vmflow as flow
from vmflow import dtypes
from vmflow.dtypes import by_name, promote_types

NAMES = {
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "b": "bool",
}
# In the order of the names; each row is one operand, each column the other; "-" where no dtype holds both.
TABLE = {
    "u8": "u8 u16 u32 u64 i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128 u8",
    "u16": "u16 u16 u32 u64 i32 i32 i32 i64 f16 bf16 f32 f64 c64 c128 u16",
    "u32": "u32 u32 u32 u64 i64 i64 i64 i64 f16 bf16 f32 f64 c64 c128 u32",
    "u64": "u64 u64 u64 u64 - - - - f16 bf16 f32 f64 c64 c128 u64",
    "i8": "i16 i32 i64 - i8  i16 i32 i64 f16 bf16 f32 f64 c64 c128 i8",
    "i16": "i16 i32 i64 - i16 i16 i32 i64 f16 bf16 f32 f64 c64 c128 i16",
    "i32": "i32 i32 i64 - i32 i32 i32 i64 f16 bf16 f32 f64 c64 c128 i32",
    "i64": "i64 i64 i64 - i64 i64 i64 i64 f16 bf16 f32 f64 c64 c128 i64",
    "f16": "f16 f16 f16 f16 f16 f16 f16 f16 f16 f32 f32 f64 c64 c128 f16",
    "bf16": "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64 c64 c128 bf16",
    "f32": "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128 f32",
    "f64": "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128 f64",
    "c64": "c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128 c64",
    "c128": "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128",
    "b": "u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128 b",
}


def _ones(name: str, *shape: int) -> flow.Tensor:
    return flow.ones(*shape, dtype=by_name(name)) if shape else flow.ones((), dtype=by_name(name))


PAIRS = [
    (NAMES[first], NAMES[second], NAMES.get(result, ""))
    for first, row in TABLE.items()
    for second, result in zip(NAMES, row.split(), strict=True)
]


def test_the_table_is_symmetric_and_complete() -> None:
    assert len(PAIRS) == len(dtypes.ALL) ** 2
    found = {(first, second): result for first, second, result in PAIRS}
    assert all(found[second, first] == result for first, second, result in PAIRS)


def test_only_dtypes_promote() -> None:
    with pytest.raises(TypeError, match=r"promote_types: dtype must be a vmflow dtype such as vmflow.float32, not str"):
        flow.promote_types(flow.float32, "int64")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"promote_types: dtype must be a vmflow dtype .*, not None"):
        flow.promote_types(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second", "result"), PAIRS)
def test_two_tensors(first: str, second: str, result: str) -> None:
    if not result:
        with pytest.raises(TypeError, match=f"no integer dtype holds both {first} and {second}; convert one"):
            promote_types(by_name(first), by_name(second))
        with pytest.raises(TypeError, match="no integer dtype holds both"):
            _ones(first, 2) + _ones(second, 2)
        return
    assert promote_types(by_name(first), by_name(second)) is by_name(result)
    expected = by_name(result)
    assert (_ones(first, 2) + _ones(second, 2)).dtype is expected
    assert (_ones(first) * _ones(second)).dtype is expected
    assert flow.where(flow.tensor(True), _ones(first, 2), _ones(second, 2)).dtype is expected
    assert flow.cat([_ones(first, 2), _ones(second, 2)]).dtype is expected
    assert flow.eq(_ones(first, 2), _ones(second, 2)).dtype is flow.bool
    quotient = _ones(first, 2) / _ones(second, 2)
    assert quotient.dtype is (expected if expected.category >= dtypes.FLOATING else flow.float32)
    assert (quotient == 1).all().item()


@pytest.mark.parametrize(("first", "second", "result"), PAIRS)
def test_a_tensor_and_a_0d_tensor(first: str, second: str, result: str) -> None:
    """The 0-d tensor counts only if its category is higher, and then as the smallest fitting dtype of that category."""
    sized, unsized = by_name(first), by_name(second)
    if unsized.category <= sized.category:
        expected = sized
    elif unsized.category == dtypes.COMPLEX and sized.category == dtypes.FLOATING:
        expected = flow.complex128 if sized is flow.float64 else flow.complex64
    else:
        expected = unsized
    assert (_ones(first, 3) + _ones(second)).dtype is expected
    assert (_ones(second) + _ones(first, 3)).dtype is expected
    assert (_ones(second) + _ones(first, 0)).dtype is expected


NUMBERS: list[tuple[Any, int]] = [
    (True, dtypes.BOOL),
    (2, dtypes.INTEGER),
    (2.5, dtypes.FLOATING),
    (2j, dtypes.COMPLEX),
]


@pytest.mark.parametrize(("name", "number"), [*itertools.product(NAMES.values(), NUMBERS)])
def test_a_tensor_and_a_number(name: str, number: tuple[Any, int]) -> None:
    value, category = number
    kind = by_name(name)
    if category <= kind.category:
        expected = kind
    elif category == dtypes.COMPLEX:
        expected = flow.complex128 if kind is flow.float64 else flow.complex64
    else:
        expected = flow.float32 if category == dtypes.FLOATING else flow.int64
    for tensor in (_ones(name, 2), _ones(name)):
        assert (tensor + value).dtype is expected
        assert (value + tensor).dtype is expected
        assert flow.where(flow.tensor(True), value, tensor).dtype is expected
        assert (tensor == value).dtype is flow.bool


def test_floats_become_the_default_dtype() -> None:
    integers = flow.ones(2, dtype=flow.int64)
    for default in (flow.float64, flow.float16, flow.bfloat16, flow.float32):
        flow.set_default_dtype(default)
        assert (integers + 1.5).dtype is default
        assert (integers / 2).dtype is default
        assert integers.exp().dtype is default
        assert (integers + 1j).dtype is (flow.complex128 if default is flow.float64 else flow.complex64)


def test_three_operands() -> None:
    half, single, integer = _ones("float16", 2), _ones("float32", 2), _ones("int64", 2)
    assert flow.cat([integer, half, single]).dtype is flow.float32
    assert flow.where(half > 0, half, integer).dtype is flow.float16
    assert (half + integer).dtype is flow.float16
    assert flow.addcmul(half, half, half).dtype is flow.float16
    assert flow.clamp(integer, half, single).dtype is flow.float32


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (flow.exp, flow.float32),
        (flow.sin, flow.float32),
        (flow.sqrt, flow.float32),
        (flow.sigmoid, flow.float32),
        (flow.erf, flow.float32),
        (flow.reciprocal, flow.float32),
        (flow.abs, flow.int64),
        (flow.floor, flow.int64),
        (flow.round, flow.int64),
        (flow.relu, flow.int64),
        (flow.sum, flow.int64),
        (flow.prod, flow.int64),
        (flow.isnan, flow.bool),
        (flow.all, flow.bool),
        (flow.argmax, flow.int64),
    ],
)
def test_functions_of_integers(function: Callable[[flow.Tensor], flow.Tensor], expected: flow.dtype) -> None:
    assert function(flow.ones(2, dtype=flow.int64)).dtype is expected
    if expected is not flow.int64 or function in (flow.sum, flow.prod, flow.argmax):
        assert function(flow.ones(2, dtype=flow.uint8)).dtype is expected
    else:
        assert function(flow.ones(2, dtype=flow.uint8)).dtype is flow.uint8


def test_dtype_objects() -> None:
    import copy
    import pickle

    for kind in dtypes.ALL:
        assert pickle.loads(pickle.dumps(kind)) is kind
        assert copy.deepcopy(kind) is kind
        assert repr(kind) == f"vmflow.{kind.name}"
        assert dtypes.from_numpy(kind.numpy) is kind
        assert kind.itemsize == kind.numpy.itemsize
    assert flow.float is flow.float32
    assert flow.long is flow.int64
    assert flow.half is flow.float16
    assert flow.complex128.to_real() is flow.float64
    assert flow.int8.is_signed
    assert not flow.uint8.is_signed
    assert not flow.uint64.is_signed
    assert not flow.bool.is_signed
    assert flow.bfloat16.is_floating_point
    assert flow.complex64.is_complex
    with pytest.raises(TypeError, match=r"no vmflow dtype holds numpy's datetime64"):
        dtypes.from_numpy("datetime64")
    with pytest.raises(TypeError, match="must be a floating-point dtype"):
        flow.set_default_dtype(flow.int64)
    with pytest.raises(TypeError, match="must be a floating-point dtype"):
        flow.set_default_dtype("float32")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a number"):
        dtypes.of_scalar(str)


def test_limits() -> None:
    assert flow.finfo(flow.float32).max == pytest.approx(3.4028235e38)
    assert flow.finfo(flow.bfloat16).eps == 0.0078125
    assert flow.finfo(flow.float16).bits == 16
    assert flow.finfo().dtype == "float32"
    assert flow.finfo(flow.complex128).dtype == "float64"
    assert flow.finfo(flow.float64).tiny == flow.finfo(flow.float64).smallest_normal
    assert flow.iinfo(flow.int8).min == -128
    assert flow.iinfo(flow.uint8).max == 255
    assert "int64" in repr(flow.iinfo(flow.int64))
    assert "float16" in repr(flow.finfo(flow.float16))
    with pytest.raises(TypeError, match="use iinfo"):
        flow.finfo(flow.int32)
    with pytest.raises(TypeError, match="use finfo"):
        flow.iinfo(flow.float32)
    with pytest.raises(TypeError, match="use finfo"):
        flow.iinfo(flow.bool)
    with pytest.raises(TypeError, match="finfo: dtype must be a vmflow dtype"):
        flow.finfo(float)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="iinfo: dtype must be a vmflow dtype"):
        flow.iinfo(int)  # type: ignore[arg-type]


def test_resolutions_are_powers_of_ten() -> None:
    kinds = (flow.float16, flow.bfloat16, flow.float32, flow.float64)
    assert [flow.finfo(kind).resolution for kind in kinds] == [1e-3, 1e-2, 1e-6, 1e-15]
