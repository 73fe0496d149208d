"""Orders of ops respect all dependences, and need no more memory than the given order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import Literal

import pytest
from hypothesis import given, settings, strategies as st

from vmflow.graph_mode.memory_planning import Op, execution_order, lifetimes, lower_bound

from .programs import Program, programs
from .training_step import gpt

pytestmark = pytest.mark.host

_seeded = settings(derandomize=True, database=None)

Edges = Sequence[tuple[int, int]]


def _peak(program: Program, order: Sequence[int], kept: Sequence[int] = ()) -> int:
    ops = [program.ops[position] for position in order]
    last_uses = dict.fromkeys(kept, len(ops))
    return lower_bound(lifetimes(ops, program.nbytes, program.pinned, last_uses))


def _before(ops: Sequence[Op], edges: Edges) -> list[set[int]]:
    """The ops that have to run before each."""
    producers = {name: position for position, op in enumerate(ops) for name in op.outputs}
    before = [{producers[name] for name in op.inputs if name in producers} for op in ops]
    for source, target in edges:
        before[target].add(source)
    return before


def _least_peak(program: Program) -> int:
    """Among all orders: the bytes alive depend on the ops that have run, not on their order."""
    before = _before(program.ops, [])
    readers: dict[int, set[int]] = {name: set() for name in program.nbytes}
    for position, op in enumerate(program.ops):
        for name in op.inputs:
            readers[name].add(position)

    @cache
    def from_here(done: frozenset[int]) -> int:
        peaks = []
        for position, needs in enumerate(before):
            if position in done or not needs <= done:
                continue
            op = program.ops[position]
            waiting = {output for other in done for output in program.ops[other].outputs if readers[output] - done}
            live = sum(-(-program.nbytes[output] // 64) * 64 for output in waiting | {*op.outputs})
            peaks.append(max(live, from_here(done | {position})))
        return min(peaks, default=0)

    return from_here(frozenset())


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Program, Edges, list[int]]:
    """A program, additional edges, and the buffers needed after its end."""
    program = draw(programs())
    positions = st.integers(0, len(program.ops) - 1)
    pairs = draw(st.lists(st.tuples(positions, positions), max_size=3))
    made = [name for op in program.ops for name in op.outputs]
    return program, [pair for pair in pairs if pair[0] < pair[1]], draw(st.lists(st.sampled_from(made), max_size=2))


@given(_cases(), st.sampled_from(["memory", "speed"]))
@_seeded
def test_orders_are_possible_and_need_no_more(
    case: tuple[Program, Edges, list[int]], prefer: Literal["memory", "speed"]
) -> None:
    program, edges, kept = case
    order = execution_order(program.ops, edges, program.nbytes, prefer, program.pinned, kept)
    assert sorted(order) == list(range(len(program.ops)))
    place = {position: at for at, position in enumerate(order)}
    for position, needs in enumerate(_before(program.ops, edges)):
        assert all(place[need] < place[position] for need in needs)
    assert _peak(program, order, kept) <= _peak(program, range(len(order)), kept)
    assert order == execution_order(program.ops, edges, program.nbytes, prefer, program.pinned, kept)


def _branches(count: int, joined_last: bool) -> Program:
    """Each makes something large and then something small of it; all the small ones are read in the end."""
    large = [Op((), (name,)) for name in range(count)]
    small = [Op((name,), (count + name,)) for name in range(count)]
    ops = large + small if joined_last else [op for pair in zip(large, small, strict=True) for op in pair]
    ops.append(Op(tuple(range(count, 2 * count)), (2 * count,)))
    nbytes = {name: 6400 if name < count else 64 for name in range(2 * count + 1)}
    return Program(ops, nbytes, [])


@pytest.mark.parametrize("prefer", ["memory", "speed"])
def test_branches_run_one_after_the_other(prefer: Literal["memory", "speed"]) -> None:
    program = _branches(10, joined_last=True)
    order = execution_order(program.ops, [], program.nbytes, prefer)
    assert _peak(program, order) == _peak(_branches(10, joined_last=False), range(21)) == 6400 + 10 * 64
    assert _peak(program, range(21)) == 10 * 6400 + 64


def test_an_order_that_is_as_good_stays() -> None:
    program = _branches(10, joined_last=False)
    assert execution_order(program.ops, [], program.nbytes) == list(range(21))


def test_edges_are_respected() -> None:
    program = _branches(3, joined_last=True)
    # The large ones have to come first: so nothing can be won.
    edges = [(large, small) for large in range(3) for small in range(3, 6)]
    assert execution_order(program.ops, edges, program.nbytes) == list(range(7))


def test_pinned_and_kept_buffers_are_not_freed() -> None:
    # The third op frees something large, if that is not kept.
    ops = [Op((), (0,)), Op((), (1,)), Op((0,), (2,)), Op((1, 2), ())]
    sizes = {0: 6400, 1: 640, 2: 64}
    assert execution_order(ops, [], sizes) == [0, 2, 1, 3]
    assert execution_order(ops, [], sizes, kept=[0]) == [0, 1, 2, 3]
    assert execution_order(ops, [], {1: 640, 2: 64}, pinned=[0]) == [0, 1, 2, 3]


def test_depth_first_is_taken_for_speed_where_it_needs_no_more() -> None:
    ops = [Op((), (0,)), Op((), (1,)), Op((0,), (2,)), Op((1,), (3,)), Op((2, 3), ())]
    sizes = dict.fromkeys(range(4), 64)
    assert execution_order(ops, [], sizes, "speed") == [0, 2, 1, 3, 4]
    # Here depth first begins with the large one (2), which is there while the other large one (0) is.
    ops = [Op((), (0,)), Op((0,), (1,)), Op((), (2,)), Op((1,), (3,)), Op((2, 3), ())]
    sizes = {0: 6400, 1: 64, 2: 6400, 3: 64}
    assert execution_order(ops, [], sizes, "speed") == [0, 1, 2, 3, 4]


def test_orders_are_close_to_the_best_there_is() -> None:
    chosen = best = given_order = 0
    for program in _small_programs():
        least = _least_peak(program)
        order = execution_order(program.ops, [], program.nbytes)
        assert _peak(program, order) >= least
        chosen, best = chosen + _peak(program, order), best + least
        given_order += _peak(program, range(len(order)))
    assert chosen <= 1.03 * best
    assert given_order >= 1.1 * best


def _small_programs() -> Iterator[Program]:
    """A hundred in which each op reads one or two of those before."""
    for seed in range(100):
        random = Random(seed)
        ops = [Op((), (0,))]
        for name in range(1, 8):
            ops.append(Op(tuple(random.choices(range(name), k=random.randint(0, 2))), (name,)))
        yield Program(ops, {name: 64 * random.choice([1, 2, 5, 20]) for name in range(8)}, [])


def test_a_training_step_in_a_bad_order_is_put_right() -> None:
    """Given with all gradients of parameters at the end, as a pass that sorts by kind would leave them."""
    step = gpt(4)
    readers: dict[int, int] = {}
    for op in step.ops:
        for name in op.inputs:
            readers[name] = readers.get(name, 0) + 1
    *others, update = step.ops
    of_parameters = [op for op in others if set(op.outputs) & {*update.inputs}]
    rest = [op for op in others if op not in of_parameters]
    bad = [*rest, *of_parameters, update]
    good_peak = _peak(Program(step.ops, step.nbytes, step.pinned), range(len(bad)))
    order = execution_order(bad, [], step.nbytes, pinned=step.pinned)
    program = Program(bad, step.nbytes, step.pinned)
    assert _peak(program, range(len(bad))) > 1.05 * good_peak
    assert _peak(program, order) <= good_peak


@pytest.mark.parametrize(
    ("ops", "edges", "message"),
    [
        ([Op((), (0,)), Op((0,), (1,))], [(1, 0)], "op 1 has to run before op 0, but comes later"),
        ([Op((), (0,)), Op((0,), (1,))], [(1, 1)], "op 1 has to run before op 1"),
        ([Op((), (0,)), Op((0,), (1,))], [(0, 2)], r"the edge \(0, 2\) names an op that does not exist: there are 2"),
        ([Op((), (0,)), Op((0,), (1,))], [(-1, 1)], r"the edge \(-1, 1\) names an op that does not exist"),
        ([Op((1,), (0,)), Op((), (1,))], [], "op 0 reads buffer 1, which op 1 produces only then or later"),
        ([Op((), (0,)), Op((), (0,))], [], "produced twice"),
        ([Op((), (7,))], [], "the size of buffer 7 is not given"),
    ],
)
def test_invalid_orders_are_refused(ops: list[Op], edges: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execution_order(ops, edges, {0: 1, 1: 1})


def test_preferences_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match='prefer must be "memory" or "speed", not \'both\''):
        execution_order([], [], {}, "both")  # type: ignore[arg-type]


def test_nothing_has_an_order() -> None:
    assert execution_order([], [], {}) == []
