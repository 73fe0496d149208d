"""Generated kernels: a launch for a chain, the bits of the C kernels, and compiling for GPUs that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.kernels.conftest import compiled as compiled, kept as kept
from tests.kernels.support import hard_numbers, same_bits
from tests.kernels.test_chains import BINARY
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.kernels.cuda import pointwise
from vmflow.kernels.cuda.generated import single
from vmflow.kernels.cuda.pointwise import Pointwise
from vmflow.kernels.cuda.rules import LIBRARY, RULES as ON_CUDA
from vmflow.kernels.cuda.sources import VARIABLES
from vmflow.kernels.expressions.rules import C_TYPES, COMPLEX, HALVES, RULES, held_in
from vmflow.ops.table import OPS, encoded

from .compiling import ARCHITECTURES, check_usage
from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]


def _step(op: str, *operands: int, scalars: tuple[Any, ...] = (), attributes: tuple[Any, ...] = ()) -> Any:
    return op, attributes, tuple([encoded(scalar) for scalar in scalars]), operands


def _fused(
    steps: Sequence[Any], outputs: Sequence[int], arrays: Sequence[Any], device: str
) -> list[np.ndarray[Any, Any]]:
    tensors = tuple([flow.tensor(array, device=device) for array in arrays])
    with np.errstate(all="ignore"):
        found = interpreter.dispatch_several(OPS["fused"], tensors, (tuple(steps), tuple(outputs)))
    return [tensor.to("cpu").numpy() for tensor in found]


def _rules(dtype: str) -> list[str]:
    return [name for name, rule in RULES.items() if held_in(dtype) in rule.dtypes]


@pytest.mark.parametrize("dtype", sorted(C_TYPES))
def test_every_rule_has_the_bits_of_c(dtype: str, compiled: None) -> None:
    ops = _rules(dtype)
    arrays = [hard_numbers((3001,), dtype, seed) for seed in range(2)]
    steps = [_step(op, *range(2 if op in BINARY else 1)) for op in ops]
    expected = _fused(steps, range(len(ops)), arrays, "cpu")
    with emulated("lazy") as devices:
        # Not all in one: too many results make it one kernel for each op.
        for first in range(0, len(ops), 16):
            some = range(first, min(first + 16, len(ops)))
            for op, found in zip(some, _fused(steps, some, arrays, "cuda"), strict=True):
                assert same_bits(expected[op], found), ops[op]
        assert devices.driver.launches


# `sigmoid` and `silu` of float32 are those of C.
@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op in LIBRARY for dtype in ("float32", "float64")] + [("sigmoid", "float64"), ("silu", "float64")],
)
def test_functions_of_the_library_are_nearly_right(op: str, dtype: str) -> None:
    operands = [hard_numbers((3001,), dtype, seed) for seed in range(2 if op in {"hypot", "atan2"} else 1)]
    expected = _fused(
        [_step(op, *range(len(operands)))], [0], [operand.astype(np.float64) for operand in operands], "cpu"
    )[0]
    with emulated("lazy"):
        (found,) = _fused([_step(op, *range(len(operands)))], [0], operands, "cuda")
    assert found.dtype == dtype
    with np.errstate(over="ignore"):
        wanted = expected.astype(dtype)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    units = np.spacing(np.maximum(np.abs(wanted), np.finfo(dtype).tiny)).astype(np.float64)
    within = np.isfinite(wanted)
    # A unit more in float64, which numpy is wrong by itself.
    limit = (6 if op == "erfc" else 3) + (dtype == "float64")
    apart = np.abs(found[within].astype(np.float64) - expected[within]) / units[within]
    assert apart.max() <= limit, operands[0][within][apart.argmax()]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_chain_is_one_launch_with_the_bits_of_its_ops(dtype: str) -> None:
    numbers = by_name(dtype).numpy
    shapes = ((4, 1, 33), (5, 33))
    with np.errstate(over="ignore"):
        x, y = [hard_numbers(shape, "float32", seed).astype(numbers) for seed, shape in enumerate(shapes)]
    steps = [
        _step("mul", 0, 1),
        _step("add_scalar", 2, scalars=(0.3,)),
        _step("gelu", 3),
        _step("sub_scalar", 4, scalars=(1.1,), attributes=("reversed",)),
        _step("gt_scalar", 5, scalars=(0.5,)),
        _step("where", 6, 5, 0),
        _step("clamp", 7, scalars=(-3.3, 70.7)),
    ]
    with emulated("lazy") as devices:
        a, b = flow.tensor(x, device="cuda"), flow.tensor(y, device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        found, kept_too = interpreter.dispatch_several(OPS["fused"], (a, b), (tuple(steps), (6, 2)))
        flow.synchronize()
        assert devices.driver.launches == before + 1
        gelu = flow.nn.functional.gelu(a * b + 0.3)
        result = 1.1 - gelu
        result = flow.where(result > 0.5, result, a).clamp(-3.3, 70.7)
        for one, other in ((found, result), (kept_too, gelu)):
            assert same_bits(one.to("cpu").numpy().astype(np.float32), other.to("cpu").numpy().astype(np.float32))


def test_integers_wrap_around_within_a_chain() -> None:
    numbers = np.array([2**31 - 1, -(2**31), 5], np.int32)
    steps = [_step("add_scalar", 0, scalars=(1,)), _step("gt", 1, 0), _step("neg", 0), _step("mul", 0, 0)]
    with emulated("lazy"):
        added, larger, negative, squared = _fused(steps, range(4), [numbers], "cuda")
    assert added.tolist() == [-(2**31), -(2**31) + 1, 6]
    assert larger.tolist() == [False, True, True]
    assert negative.tolist() == [-(2**31) + 1, -(2**31), -5]
    assert squared.tolist() == [1, 0, 25]


def test_results_that_lie_where_operands_do() -> None:
    with emulated("lazy"):
        x = flow.arange(6.0, device="cuda").reshape(2, 3)
        flow.add(x[:, :2], x[:, 1:], out=x[:, 1:])
        assert x.tolist() == [[0, 1, 3], [3, 7, 9]]


_TESTS = {
    *("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
}


def _kernels(dtype: str) -> list[Pointwise]:
    found = []
    for op, rule in ON_CUDA.items():
        if held_in(dtype) not in rule.dtypes or op not in OPS:
            continue
        real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        to = by_name("bool" if op in _TESTS else real if op == "abs" else dtype)
        form = OPS[op].form
        assert form is not None
        numbers = 1 if op == "pow_scalar" else 0
        assert isinstance(form.inputs, int)
        given = form.inputs + numbers
        made = single(op, [dtype] * (given - numbers), numbers, range(given), by_name(dtype), to)
        assert made is not None
        found.append(made)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", sorted({*C_TYPES, *HALVES, *COMPLEX}))
def test_kernels_compile_for_gpus_without_spills(dtype: str, architecture: int) -> None:
    for function in _kernels(dtype):
        # Functions of the library are long to compile, and how arrays lie is no matter to them.
        for rank in (0,) if function.name in LIBRARY or dtype in COMPLEX else (0, 4):
            check_usage([pointwise.kernel_of(function, rank)], architecture)


def test_every_dtype_has_a_variable() -> None:
    assert VARIABLES.keys() >= {*C_TYPES, *HALVES, *COMPLEX}


def test_more_results_than_a_kernel_has_room_for_are_computed_one_by_one() -> None:
    steps = [_step("add_scalar", 0, scalars=(number,)) for number in range(70)]
    with emulated("lazy") as devices:
        found = _fused(steps, range(70), [np.arange(3.0)], "cuda")
        assert devices.driver.launches == 70
    assert [array.tolist() for array in found] == [[number, number + 1, number + 2] for number in range(70)]
