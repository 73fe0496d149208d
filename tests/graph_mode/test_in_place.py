"""Outputs that take over an input's memory: only where the program cannot notice, and where it saves something."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from vmflow.graph_mode.memory_planning import Op, check, choose_in_place, lifetimes, lower_bound, plan

from .programs import Program, apart, in_one, programs, run
from .training_step import SHARE, gpt

pytestmark = pytest.mark.host

_seeded = settings(derandomize=True, database=None)


@given(programs(), st.sampled_from([1, 64]))
@_seeded
def test_programs_compute_the_same_in_planned_memory(program: Program, alignment: int) -> None:
    shares = choose_in_place(program.ops, program.nbytes, program.pinned, alignment=alignment)
    buffers = lifetimes(program.ops, program.nbytes, program.pinned, shares=shares)
    layout = plan(buffers, search_steps=10, alignment=alignment)
    check(layout, buffers, alignment)
    expected: list[list[np.typing.NDArray[np.uint8]]] = []
    found: list[list[np.typing.NDArray[np.uint8]]] = []
    alone, together = apart(program), in_one(program, layout)
    run(program, alone, expected)
    run(program, together, found)
    for step, (read, should_be) in enumerate(zip(found, expected, strict=True)):
        for one, other in zip(read, should_be, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"read by op {step}")
    for name in program.pinned:
        np.testing.assert_array_equal(together[name], alone[name])


@given(programs(), st.sampled_from([1, 64]), st.data())
@_seeded
def test_sharing_is_allowed_and_never_raises_the_bound(program: Program, alignment: int, data: st.DataObject) -> None:
    later = {
        name: data.draw(st.integers(0, 15)) for name in data.draw(st.sets(st.sampled_from(sorted(program.nbytes))))
    }
    shares = choose_in_place(program.ops, program.nbytes, program.pinned, later, alignment)
    plain = lifetimes(program.ops, program.nbytes, program.pinned, later)
    shared = lifetimes(program.ops, program.nbytes, program.pinned, later, shares)
    assert lower_bound(shared, alignment) <= lower_bound(plain, alignment)
    by_id = {value.id: value for value in plain}
    for output, giver in shares.items():
        op = program.ops[by_id[output].first]
        assert by_id[giver].last == by_id[output].first >= later.get(giver, 0)
        assert output in op.outputs
        places = [at for at, name in enumerate(op.inputs) if name == giver]
        assert places
        assert {(at, op.outputs.index(output)) for at in places} <= {*op.may_share}
    assert len({*shares.values()}) == len(shares)


def test_a_chain_of_elementwise_ops_needs_the_memory_of_one() -> None:
    ops = [Op((), (0,)), *(Op((name,), (name + 1,), SHARE) for name in range(9))]
    sizes = dict.fromkeys(range(10), 1000)
    shares = choose_in_place(ops, sizes)
    assert shares == {name + 1: name for name in range(9)}
    assert plan(lifetimes(ops, sizes, shares=shares)).nbytes == 1024
    assert plan(lifetimes(ops, sizes)).nbytes == 2048


@pytest.mark.parametrize(
    ("ops", "pinned", "last_uses"),
    [
        pytest.param([Op((), (0,)), Op((0,), (1,))], [], {}, id="the op does not allow it"),
        pytest.param([Op((), (0,)), Op((0,), (1,), SHARE), Op((0,), (2,))], [], {}, id="it is read later"),
        pytest.param([Op((), (0,)), Op((0,), (1,), SHARE)], [], {0: 2}, id="it is needed later"),
        pytest.param([Op((), (0,)), Op((0,), (1,), SHARE)], [0], {}, id="the input is pinned"),
        pytest.param([Op((), (0,)), Op((0,), (1,), SHARE)], [1], {}, id="the output is pinned"),
        pytest.param([Op((0,), (1,), SHARE)], [], {}, id="no op has produced it"),
        pytest.param([Op((), (0,)), Op((0, 0), (1,), SHARE)], [], {}, id="it is read in another way as well"),
        pytest.param([Op((), (3,)), Op((3,), (1,), SHARE)], [], {}, id="it is too small"),
        pytest.param([Op((), (0,)), Op((0,), (4,), SHARE)], [], {}, id="there is nothing to save"),
    ],
)
def test_memory_is_shared_only_where_allowed(ops: list[Op], pinned: list[int], last_uses: dict[int, int]) -> None:
    sizes = {0: 100, 1: 100, 2: 100, 3: 64, 4: 0}
    assert choose_in_place(ops, sizes, pinned, last_uses) == {}


def test_both_places_of_an_input_may_allow_it() -> None:
    assert choose_in_place([Op((), (0,)), Op((0, 0), (1,), ((0, 0), (1, 0)))], {0: 8, 1: 8}) == {1: 0}


def test_sizes_are_compared_aligned() -> None:
    ops = [Op((), (0,)), Op((0,), (1,), SHARE)]
    assert choose_in_place(ops, {0: 65, 1: 128}) == {1: 0}
    assert choose_in_place(ops, {0: 65, 1: 128}, alignment=1) == {}


def test_the_pair_that_saves_most_comes_first() -> None:
    ops = [Op((), (0,)), Op((0,), (1, 2), ((0, 0), (0, 1)))]
    assert choose_in_place(ops, {0: 1000, 1: 64, 2: 1000}) == {2: 0}


def test_a_small_output_does_not_hold_on_to_large_memory_at_the_peak() -> None:
    ops = [Op((), (0,)), Op((0,), (1,), SHARE), Op((), (2,)), Op((1, 2), ())]
    sizes = {0: 1000, 1: 64, 2: 1000}
    assert choose_in_place(ops, sizes) == {}
    # With little besides, it may as well.
    assert choose_in_place(ops, {**sizes, 2: 64}) == {1: 0}


def test_an_alike_output_deep_in_a_chain_finds_its_room() -> None:
    """The second takes over from one that has taken over itself: the memory of the first counts."""
    ops = [Op((), (0,)), Op((0,), (1,), SHARE), Op((1,), (2,), SHARE), Op((), (3,)), Op((2, 3), ())]
    sizes = {0: 640, 1: 128, 2: 64, 3: 640}
    shares = choose_in_place(ops, sizes)
    assert shares == {1: 0}
    assert lower_bound(lifetimes(ops, sizes, shares=shares)) <= lower_bound(lifetimes(ops, sizes))


def test_a_training_step_shares_much() -> None:
    step = gpt(4)
    shares = choose_in_place(step.ops, step.nbytes, step.pinned)
    assert shares == choose_in_place(step.ops, step.nbytes, step.pinned)
    assert len(shares) > 50
    plain = lifetimes(step.ops, step.nbytes, step.pinned)
    shared = lifetimes(step.ops, step.nbytes, step.pinned, shares=shares)
    assert plan(shared).nbytes < 0.9 * plan(plain).nbytes


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([Op((), (0,)), Op((), (0,))], "buffer 0 is produced twice, by op 0 and by op 1"),
        ([Op((1,), (0,)), Op((), (1,))], "op 0 reads buffer 1, which op 1 produces only then or later"),
        ([Op((0,), (0,))], "op 0 reads buffer 0, which op 0 produces"),
        ([Op((), (9,))], "the size of buffer 9 is not given"),
        ([Op((), (0,)), Op((0,), (1,), ((1, 0),))], "op 1 has no input 1 or no output 0"),
        ([Op((), (0,)), Op((0,), (1,), ((0, -1),))], "op 1 has no input 0 or no output -1"),
    ],
)
def test_ops_that_cannot_be_are_refused(ops: list[Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_in_place(ops, {0: 1, 1: 1})
