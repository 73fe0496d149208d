"""The op `fused` is equal to its steps, in all layouts, in tiles and in place, and keeps the contract."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.dtypes import by_name, from_numpy
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.choosing import Kernel
from vmflow.kernels.numpy import fused
from vmflow.kernels.numpy.fused import tiles
from vmflow.ops.fused import FUSED, Step, can_fuse
from vmflow.ops.table import OPS, decoded, encoded

from .oracle import KernelContract

Array = NDArray[Any]


def _step(op: str, *operands: int, attributes: tuple[Any, ...] = (), scalars: tuple[Any, ...] = ()) -> Step:
    return op, attributes, tuple([encoded(scalar) for scalar in scalars]), operands


# The ops of one operand.
UNARY = frozenset(
    {
        *("erfcx", "i0", "i0e", "i1", "i1e", "ndtri"),
        *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cast", "ceil", "conj", "cos"),
        *(
            "cosh",
            "digamma",
            "entr",
            "erf",
            "erfc",
            "erfinv",
            "exp",
            "exp2",
            "expm1",
            "floor",
            "gelu",
            "isfinite",
            "isinf",
        ),
        *("isnan", "lgamma", "log", "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "relu", "round"),
        *(
            "rsqrt",
            "sigmoid",
            "sign",
            "signbit",
            "silu",
            "sin",
            "sinc",
            "sinh",
            "sqrt",
            "square",
            "tan",
            "tanh",
            "trunc",
        ),
    }
)

# x, y -> (x * 1.5 + y, exp of that, and whether it is less than y)
STEPS = (
    _step("mul_scalar", 0, scalars=(1.5,)),
    _step("add", 2, 1),
    _step("exp", 3),
    _step("lt", 4, 1),
)


def _alone(steps: Sequence[Step], outputs: Sequence[int], arrays: Sequence[Array]) -> list[Array]:
    """Each step by itself."""
    values = list(arrays)
    for name, attributes, scalars, operands in steps:
        given = [values[operand] for operand in operands]
        numbers = [decoded(scalar) for scalar in scalars]
        metas, kinds = _metas(given), tuple([type(number) for number in numbers])
        plan = OPS[name].plan((metas, attributes, kinds, None), attributes, metas, kinds)
        out = np.empty(plan.outputs[0].shape, plan.outputs[0].dtype.numpy)
        with np.errstate(all="ignore"):
            values.append(np.asarray(plan.kernel.function(*given, *numbers, out)))
    return [values[len(arrays) + output] for output in outputs]


def _metas(arrays: Sequence[Array]) -> tuple[TensorMeta, ...]:
    return tuple([meta(array.shape, from_numpy(array.dtype), flow.device("cpu")) for array in arrays])


def _kernel(steps: tuple[Step, ...], outputs: tuple[int, ...], metas: tuple[TensorMeta, ...]) -> Kernel:
    attributes = (steps, outputs)
    return FUSED.plan((metas, attributes, (), None), attributes, metas, ()).kernel


def _check(steps: tuple[Step, ...], outputs: tuple[int, ...], arrays: Sequence[Array]) -> None:
    kernel = _kernel(steps, outputs, _metas(arrays))
    with np.errstate(all="ignore"):
        found = kernel.function(*arrays, None)
    for one, other in zip(found if len(outputs) > 1 else [found], _alone(steps, outputs, arrays), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@pytest.fixture(params=[1 << 9, 1 << 12, 1 << 17])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "TILE", request.param)


def _numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(by_name(dtype).numpy)


@pytest.mark.parametrize("outputs", [(3,), (0, 3), (1, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (1000,), (37, 41), (3, 700), (700, 3), (5, 7, 64)])
def test_a_fused_op_is_equal_to_its_steps(tile: None, shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    _check(STEPS, outputs, [_numbers(shape), _numbers(shape, seed=1)])


@pytest.mark.parametrize("shapes", [((60, 70), (70,)), ((60, 70), (60, 1)), ((60, 1), (1, 70)), ((4, 5, 600), (5, 1))])
def test_operands_broadcast(tile: None, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    steps = (_step("add", 0, 1), _step("mul", 2, 1), _step("tanh", 3), _step("sub", 4, 0))
    _check(steps, (3,), [_numbers(shapes[0]), _numbers(shapes[1], seed=1)])
    _check(steps, (3,), [_numbers(shapes[0]), np.asarray(_numbers((), seed=1))])


def test_layouts_of_all_kinds(tile: None) -> None:
    whole = _numbers((120, 130))
    seen = [whole[::2, ::2], whole[60:, :65], whole.T[65:, 60:].T, whole[::-2, ::-2], whole[:60, 64::-1]]
    for one, other in itertools.product(seen, repeat=2):
        _check(STEPS, (1, 3), [one, other])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "bool", "complex64"])
def test_dtypes(tile: None, dtype: str) -> None:
    steps = [
        _step("mul", 0, 1),
        _step("cast", 2, attributes=(flow.float32,)),
        _step("add", 3, 1),
        _step("ne", 4, 0),
        _step("where", 5, 0, 1),
        _step("where", 5, 0, attributes=("reversed",), scalars=(1,)),
        _step("eq", 6, 7),
    ]
    _check(tuple(steps), (4, 5, 6), [_numbers((900,), dtype), _numbers((900,), dtype, 1)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", sorted(name for name in OPS if can_fuse(name, ())))
def test_every_op_that_may_be_a_step_is_equal_in_tiles(op: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "TILE", 64 * 4)
    x = _numbers((1003,), dtype)
    attributes = (flow.float64,) if op == "cast" else ()
    takes: tuple[int, tuple[Any, ...]] = (1, (1.5,)) if op.endswith("_scalar") else (1, ()) if op in UNARY else (2, ())
    count, scalars = {"where": (3, ()), "clamp": (1, (-1.0, 1.5))}.get(op, takes)
    operands = [x > 0, x, x[::-1]] if op == "where" else [x, _numbers((1003,), dtype, 1)][:count]
    if op.startswith("bitwise_") or op in ("gcd", "lcm"):
        operands = [np.abs(operand).astype(np.int32) for operand in operands]
        scalars = tuple([int(scalar) for scalar in scalars])
    _check((_step(op, *range(count), attributes=attributes, scalars=scalars),), (0,), operands)


def test_where_chooses_bits() -> None:
    odd = np.array([np.nan, -np.nan, -0.0, 0.0, np.inf, 1.0], np.float32)
    condition = np.array([True, False, True, False, True, False])
    steps = (_step("where", 0, 1, 2), _step("where", 0, 1, scalars=(-0.0,)))
    _check(steps, (0, 1), [condition, odd, odd[::-1]])


def test_errors_of_whole_numbers_are_not_hidden_in_a_group() -> None:
    whole, broken = _metas([np.ones(3, np.int64)]), _metas([np.ones(3, np.float32)])
    assert not can_fuse("floor_divide", (*whole, *whole))
    assert not can_fuse("remainder_scalar", whole)
    assert can_fuse("floor_divide", (*broken, *broken))
    assert can_fuse("add", whole)
    assert not can_fuse("sum", broken)


@pytest.mark.parametrize(
    "value", [True, False, 0, 1, -7, 1.0, 0.0, -0.0, 0.1, float("inf"), -float("inf"), 1 << 62, 2 + 3j, 1e-320]
)
def test_scalars_come_back_as_they_were(value: Any) -> None:
    found = decoded(encoded(value))
    assert type(found) is type(value)
    assert repr(found) == repr(value)


def test_scalars_that_are_equal_and_not_the_same_are_told_apart() -> None:
    assert len({encoded(entry) for entry in (1, 1.0, True, 1 + 0j)}) == 4
    assert encoded(0.0) != encoded(-0.0)
    nan = float("nan")
    for value in (nan, -nan):
        found = decoded(encoded(value))
        assert np.signbit(found) == np.signbit(value)
    with pytest.raises(TypeError, match="expected a Python number"):
        encoded("1")


def test_steps_of_several_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have one shape, not \[3\] and \[2, 3\]"):
        _kernel((_step("exp", 0), _step("add", 2, 1)), (1,), _metas([_numbers((3,)), _numbers((2, 3))]))


# Memory


def test_a_chain_works_in_one_tile() -> None:
    steps = (_step("exp", 0), *[_step("add", index, 0) for index in range(1, 8)])
    kernel = _kernel(steps, (7,), _metas([_numbers((1 << 16,))]))
    assert kernel.scratch == fused.TILE
    small = _kernel(steps, (7,), _metas([_numbers((100,))]))
    assert small.scratch == 448  # of 100 floats, aligned
    assert _kernel(steps, tuple(range(8)), _metas([_numbers((100,))])).scratch == 0


def test_results_of_other_sizes_have_places_of_their_own() -> None:
    steps = (_step("lt", 0, 0), _step("cast", 1, attributes=(flow.float32,)), _step("add", 2, 0))
    kernel = _kernel(steps, (2,), _metas([_numbers((100,))]))
    assert kernel.scratch == 128 + 448


def test_outputs_may_lie_where_inputs_were_read_for_the_last_time(tile: None) -> None:
    steps = (_step("add", 0, 1), _step("mul", 2, 1), _step("add", 3, 2))
    x, y = _numbers((900,)), _numbers((900,), seed=1)
    kernel = _kernel(steps, (0, 2), _metas([x, y]))
    assert kernel.sharing == [(0, 0), (0, 1), (1, 1)]
    expected = _alone(steps, (0, 2), [x, y])
    for number, output in kernel.sharing:
        arrays = [x.copy(), y.copy()]
        outs = [np.empty_like(x), np.empty_like(x)]
        outs[output] = arrays[number]
        kernel.function(*arrays, tuple(outs))
        for one, other in zip(outs, expected, strict=True):
            assert one.tobytes() == other.tobytes()


def test_nothing_lies_where_an_input_is_still_to_be_read() -> None:
    steps = (_step("lt", 0, 1), _step("where", 2, 0, 1))
    kernel = _kernel(steps, (0, 1), _metas([_numbers((9,)), _numbers((9,))]))
    assert kernel.sharing == [(0, 1), (1, 1)]


def test_tiles_cover_everything_once() -> None:
    for shape in [(1000,), (10, 100), (3, 5, 77), (2, 1, 900)]:
        out = np.zeros(shape, np.int64)
        inner = np.zeros((*shape[:-1], shape[-1] * 2), np.int64)[..., ::2]
        for given, wanted, size in tiles([inner, np.ones((), np.int64)], [out], shape, 128):
            assert given[0].shape == wanted[0].shape == size
            assert given[1].shape == ()
            assert wanted[0].size <= 128
            wanted[0] += 1
        assert (out == 1).all()


# As an op


@pytest.mark.parametrize("outputs", [(3,), (0, 2)])
@pytest.mark.parametrize("shapes", [((), ()), ((5,), (5,)), ((3, 4), (4,)), ((400, 300), (300,)), ((7, 1), (1, 1))])
def test_a_fused_kernel_keeps_the_contract_of_kernels(
    shapes: tuple[tuple[int, ...], ...], outputs: tuple[int, ...]
) -> None:
    x, y = [_numbers(shape, seed=seed) for seed, shape in enumerate(shapes)]
    metas = _metas([x, y])
    # Not entered: it would look at the steps' kernels too, and these see tiles here.
    contract = KernelContract()
    kernel = _kernel(STEPS, outputs, metas).function  # as the contract has it
    kernel(x, y, None)
    out = [np.empty(shapes[0], np.float32 if output < 3 else bool) for output in outputs]
    kernel(x.T.copy().T, y[::-1][::-1] if y.ndim else y, tuple(out) if len(outputs) > 1 else out[0])
    assert not contract.broken


def test_a_fused_op_can_be_dispatched() -> None:
    x, y = _numbers((400, 300)), _numbers((300,), seed=1)
    found = interpreter.dispatch_several(FUSED, (flow.tensor(x), flow.tensor(y)), (STEPS, (0, 3)))
    for one, other in zip(found, _alone(STEPS, (0, 3), [x, y]), strict=True):
        assert one.numpy().tobytes() == other.tobytes()


def test_plans_of_steps_differ_by_kinds_of_scalars() -> None:
    x = flow.tensor([3], dtype=flow.int64)
    for scalar, dtype in ((1, flow.int64), (1.0, flow.float32)):
        steps = (_step("mul_scalar", 0, scalars=(scalar,)), _step("neg", 1))
        result = interpreter.dispatch(FUSED, (x,), (steps, (1,)))
        assert result.dtype is dtype
