"""Chains of elementwise ops in C: every op that can be written, of hard numbers, in every way that arrays may lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vmflow as flow
from vmflow.dtypes import by_name, from_numpy
from vmflow.instructions.blob import meta
from vmflow.kernels.expressions.rules import C_TYPES, RULES
from vmflow.kernels.native import arrays as by_hand, loops
from vmflow.kernels.native.elementwise import layout_of
from vmflow.kernels.numpy.fused import FusedKernel
from vmflow.ops.fused import infer_fused
from vmflow.ops.table import encoded

from .support import INEXACT, Array, check_alike, hard_numbers, in_both_ways, same_bits, steps_apart

BINARY = frozenset(
    {
        *("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "copysign", "relu_gradient"),
        *("fmax", "fmin"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "gelu_gradient"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    }
)


def _step(op: str, *operands: int, attributes: tuple[Any, ...] = (), scalars: tuple[Any, ...] = ()) -> Any:
    return op, attributes, tuple([encoded(scalar) for scalar in scalars]), operands


def _kernel(steps: Sequence[Any], outputs: Sequence[int], arrays: Sequence[Array]) -> FusedKernel:
    metas = tuple([meta(array.shape, from_numpy(array.dtype), flow.device("cpu")) for array in arrays])
    return FusedKernel(infer_fused(tuple(steps), tuple(outputs), metas).details, metas)


def _results(kernel: FusedKernel, arrays: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        found = kernel.compute(*arrays, None)
    return list(found) if isinstance(found, tuple) else [found]


def _run(kernel: FusedKernel, arrays: Sequence[Array], outs: Sequence[Array]) -> None:
    for function, arguments, _ in kernel.placed(arrays, outs, None):
        function(*arguments)


def _both(steps: Sequence[Any], outputs: Sequence[int], arrays: Sequence[Array]) -> list[tuple[Array, Array]]:
    """The results of numpy and of C, which must be able to compute it."""
    expected, found = in_both_ways(lambda: _results(_kernel(steps, outputs, arrays), arrays))
    assert _kernel(steps, outputs, arrays).native(arrays, found) is not None
    return list(zip(expected, found, strict=True))


def test_every_rule_is_of_an_op_and_tested() -> None:
    from vmflow.ops.table import OPS

    assert RULES.keys() <= OPS.keys()
    assert RULES.keys() >= BINARY
    assert {name for name, rule in RULES.items() if not rule.exact} == INEXACT.keys()


# Many ops are one chain here: each has a result of its own, and the compiler is called once.


# The larger integers differ from int64 by their types alone; smaller ones are promoted to int by C.
DTYPES = [
    pytest.param(dtype, marks=pytest.mark.exhaustive if dtype in ("int32", "uint32", "uint64") else ())
    for dtype in sorted(C_TYPES)
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_is_numpys(dtype: str, compiled: None) -> None:
    ops = [name for name, rule in RULES.items() if dtype in rule.dtypes]
    arrays = [hard_numbers((3001,), dtype, seed) for seed in range(2)]
    steps = [_step(op, *range(2 if op in BINARY else 1)) for op in ops]
    for op, (expected, found) in zip(ops, _both(steps, range(len(ops)), arrays), strict=True):
        check_alike(op, expected, found)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scalar"),
    [
        *[("float32", 1.5), ("int64", 2)],
        *[pytest.param(*case, marks=pytest.mark.exhaustive) for case in (("float64", -0.1), ("int32", 3))],
    ],
)
def test_numbers_among_the_operands(reverse: bool, dtype: str, scalar: float, compiled: None) -> None:
    ops = sorted(BINARY - {"copysign", "fmax", "fmin", "relu_gradient", "gelu_gradient"})
    ops = [op for op in ops if dtype in RULES[op].dtypes]
    attributes = ("reversed",) if reverse else ()
    steps = [_step(f"{op}_scalar", 0, attributes=attributes, scalars=(scalar,)) for op in ops]
    for op, (expected, found) in zip(ops, _both(steps, range(len(ops)), [hard_numbers((999,), dtype)]), strict=True):
        assert same_bits(expected, found), op


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype: str, compiled: None) -> None:
    arrays = [hard_numbers((515,), dtype)]
    unsaid = [type_ for type_ in C_TYPES if dtype.startswith("float") and type_.strip("u").startswith("int")]
    targets = [type_ for type_ in sorted(C_TYPES) if type_ not in unsaid]
    steps = [_step("cast", 0, attributes=(by_name(target),)) for target in targets]
    for to, (expected, found) in zip(targets, _both(steps, range(len(steps)), arrays), strict=True):
        assert same_bits(expected, found), to
    # C does not define the conversion of a fraction out of range.
    for to in unsaid:
        kernel = _kernel([_step("cast", 0, attributes=(by_name(to),))], [0], arrays)
        assert kernel.native(arrays, _results(kernel, arrays)) is None


def test_choosing_limiting_and_powers(compiled: None) -> None:
    x, y = hard_numbers((2047,)), hard_numbers((2047,), seed=1)
    steps = [
        _step("lt", 0, 1),
        _step("where", 2, 0, 1),
        _step("where", 2, 0, scalars=(0.25,)),
        _step("where", 2, 0, attributes=("reversed",), scalars=(-2,)),
        _step("clamp", 1, scalars=(-0.5, 0.75)),
        _step("pow_scalar", 0, scalars=(2,)),
        _step("pow_scalar", 0, scalars=(0.5,)),
        _step("pow_scalar", 0, scalars=(-0.5,)),
        _step("pow_scalar", 0, scalars=(-1,)),
        _step("where", 2, scalars=(1.0, 2.0)),
    ]
    for expected, found in _both(steps, range(len(steps)), [x, y]):
        assert same_bits(expected, found)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([_step("pow_scalar", 0, scalars=(3.5,))], id="power"),
        pytest.param([_step("sin", 0)], id="sine"),
        pytest.param([_step("add", 0, 1), _step("lgamma", 2), _step("mul", 3, 0)], id="in the middle"),
    ],
)
def test_unknown_steps_are_left_to_numpy(steps: list[Any], compiled: None) -> None:
    arrays = [np.abs(hard_numbers((300,))), hard_numbers((300,), seed=1)]
    kernel = _kernel(steps, [len(steps) - 1], arrays)
    expected, found = in_both_ways(lambda: _results(kernel, arrays)[0])
    assert kernel.native(arrays, [found]) is None
    assert same_bits(expected, found)


@pytest.mark.parametrize("dtype", ["float16", "complex64"])
def test_dtypes_that_are_not_known_stay_with_numpy(dtype: str, compiled: None) -> None:
    arrays = [np.arange(64).astype(dtype), np.ones(64, dtype)]
    kernel = _kernel([_step("add", 0, 1), _step("mul", 2, 0)], [1], arrays)
    assert kernel.native(arrays, _results(kernel, arrays)) is None


# How arrays may lie

SHAPES = (
    ((7,), (7,)),
    ((5, 1), (5, 6)),
    ((6,), (5, 6)),
    ((), (5, 6)),
    ((1, 1), (5, 6)),
    ((4, 1, 3), (1, 5, 1)),
    ((4, 1, 3, 1), (2, 1, 5)),
    ((3, 1), (1, 4)),
    ((1,), (1,)),
    ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1)),
)


@pytest.mark.parametrize("shapes", SHAPES)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...], compiled: None) -> None:
    arrays = [hard_numbers(shape, seed=seed) for seed, shape in enumerate(shapes)]
    ((expected, found),) = _both([_step("mul", 0, 1), _step("add", 2, 1)][:1], [0], arrays)
    assert same_bits(expected, found)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    dropped=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 31)), min_size=2, max_size=2),
    order=st.permutations(range(5)),
    step=st.sampled_from([1, 1, 2, -1]),
    seed=st.integers(0, 99),
)
def test_any_layout(
    shape: list[int], dropped: list[tuple[int, int]], order: list[int], step: int, seed: int, compiled: None
) -> None:
    """Operands that lack dimensions or have them of size one, are transposed, or have gaps."""
    arrays: list[Array] = []
    for number, (leading, ones) in enumerate(dropped):
        own = [1 if ones >> axis & 1 else size for axis, size in enumerate(shape)][leading % (len(shape) + 1) :]
        array = hard_numbers(tuple(own), seed=seed + number)
        if number == 0:
            axes = [value for value in order if value < array.ndim]
            array = array.transpose(np.argsort(axes)).copy().transpose(axes)
        elif array.ndim:
            array = np.repeat(array, abs(step), -1)[..., ::step]
        arrays.append(array)
    steps = [_step("add", 0, 1), _step("maximum", 2, 0), _step("gt", 3, 1)]
    if np.broadcast_shapes(*[value.shape for value in arrays]) != arrays[0].shape:
        steps = [_step("add", 0, 1), _step("mul", 2, 2), _step("gt", 3, 1)]
    kernel = _kernel(steps, [1, 2], arrays)
    expected, found = in_both_ways(lambda: _results(kernel, arrays))
    for one, other in zip(expected, found, strict=True):
        assert same_bits(one, other)


def test_gaps_between_elements_are_left_to_numpy(compiled: None) -> None:
    whole = hard_numbers((300, 2))
    arrays = [whole[:, 0], np.ones(300, np.float32)]
    kernel = _kernel([_step("add", 0, 1), _step("square", 2)], [1], arrays)
    expected, found = in_both_ways(lambda: _results(kernel, arrays)[0])
    assert kernel.native(arrays, [found]) is None
    assert same_bits(expected, found)


def test_rows_with_gaps_between_them_are_not(compiled: None) -> None:
    arrays = [hard_numbers((30, 40))[:, 3:20], hard_numbers((17,), seed=1)]
    ((expected, found),) = _both([_step("add", 0, 1)], [0], arrays)
    assert same_bits(expected, found)


def test_more_loops_than_there_are() -> None:
    shape = (2,) * 6
    alternating = tuple([1 if axis % 2 else 2 for axis in range(6)])
    arrays = [np.empty(value, np.float32) for value in (shape, alternating, shape)]
    assert layout_of(arrays, shape) is None


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 31, 33, 63, 65, 1000, 4097])
def test_sizes_that_are_no_multiples_of_a_vector(size: int, compiled: None) -> None:
    x = hard_numbers((size + 2,))
    # Not at the beginning of a cache line either.
    arrays = [x[1:-1], x[2:]]
    before = x.copy()
    steps = [_step("sigmoid", 0), _step("mul", 2, 1), _step("relu_gradient", 3, 0)]
    for expected, found in _both(steps, [0, 2], arrays):
        check_alike("sigmoid", expected, found)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("size", [*range(35), 4099])
def test_exp_in_a_chain_is_exp_alone(size: int, compiled: None) -> None:
    """Where vectors are wide it is written in another way there."""
    arrays = [np.concatenate([hard_numbers((size,)), np.linspace(-106, 90, 999, dtype=np.float32)])]
    ((_, found),) = _both([_step("exp", 0)], [0], arrays)
    single = by_hand.Single.of("exp", arrays[0].dtype, arrays[0].size)
    assert single is not None
    alone = single.call(arrays, None)
    assert alone is not None
    assert same_bits(alone, found)


def test_results_may_lie_where_operands_do(compiled: None) -> None:
    x, y = hard_numbers((777,)), hard_numbers((777,), seed=1)
    kernel = _kernel([_step("mul", 0, 1), _step("sub", 2, 0)], [1], [x, y])
    (expected,) = _results(kernel, [x, y])
    _run(kernel, [x, y], [x])
    assert same_bits(x, expected)


@pytest.mark.parametrize("shift", [0, 1, 16])
@pytest.mark.parametrize("shape", [(1,), (63,), (64,), (1000,), (3, 200), (5, 64)])
def test_results_may_be_written_past_the_cache(
    shape: tuple[int, ...], shift: int, compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they begin with a line of it, where they do not, and of elements of all sizes."""
    arrays = [hard_numbers(shape), hard_numbers(shape[-1:], seed=1)]
    steps = [
        *(_step("mul", 0, 1), _step("lt", 0, 2), _step("cast", 2, attributes=(flow.float64,))),
        *(_step("where", 3, 0, 2), _step("cast", 3, attributes=(flow.int16,))),
    ]
    expected = _results(_kernel(steps, range(5), arrays), arrays)
    monkeypatch.setattr(loops, "streamed_from", lambda: 0)
    kernel = _kernel(steps, range(5), arrays)
    outs = [_at_a_line(value, shift) for value in expected]
    assert kernel.native(arrays, outs) is not None
    _run(kernel, arrays, outs)
    for one, other in zip(expected, outs, strict=True):
        assert same_bits(one, other)


def _at_a_line(like: Array, shift: int) -> Array:
    """An empty array so many elements behind a multiple of 64 bytes; with room, and untouched, behind it."""
    room = np.full(like.nbytes + 64 + shift * like.itemsize, 77, np.uint8)
    start = -room.ctypes.data % 64 + shift * like.itemsize
    return np.ndarray(like.shape, like.dtype, room, start)


def test_functions_are_close_to_double_precision(compiled: None) -> None:
    """Over every size of number there is."""
    functions: dict[str, Any] = {"tanh": np.tanh, "expm1": np.expm1, "log1p": np.log1p, "exp": np.exp, "log": np.log}
    values = np.arange(0, 1 << 32, 6007, dtype=np.uint64).astype(np.uint32).view(np.float32)
    found = _both([_step(op, 0) for op in functions], range(len(functions)), [values])
    for (op, function), (_, single) in zip(functions.items(), found, strict=True):
        with np.errstate(all="ignore"):
            exact = function(values.astype(np.float64)).astype(np.float32)
        assert steps_apart(exact, single) <= (1 if op in ("exp", "log") else 4), op


def test_a_chain_computes_the_same_as_its_ops(compiled: None) -> None:
    """However the arrays lie, also where the chain is left to numpy because of gaps."""
    names = sorted(entry for entry in INEXACT if entry != "gelu_gradient")
    plain, row = hard_numbers((70, 90)), hard_numbers((70,), seed=1)
    for array in (plain.T, np.repeat(plain, 2, 0)[::2].T, np.repeat(plain.T, 3, 1)[:, ::3], plain.T.copy()):
        steps = [_step("mul", 0, 1), *[_step(name, 2 + place) for place, name in enumerate(names)]]
        found = _results(_kernel(steps, range(len(steps)), [array, row]), [array, row])
        value = flow.tensor(array) * flow.tensor(row)
        for name, result in zip(names, found[1:], strict=True):
            value = getattr(flow.nn.functional if name == "silu" else flow, name)(value)
            assert same_bits(value.numpy(), result), name
