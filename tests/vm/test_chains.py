"""Elementwise ops on large arrays that go on with each other run as one; nobody can tell but by the time they take."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow.context import MODE
from vmflow.errors import Cancelled, OutOfMemory, RaceDetected
from vmflow.instructions.chain import LONGEST
from vmflow.kernels.numpy.fused import FusedKernel
from vmflow.ops import table
from vmflow.ops.table import OPS
from vmflow.vm import VirtualMachine, VirtualMachineEngine

pytestmark = pytest.mark.host

SIDE = 1024
NBYTES = SIDE * SIDE * 4


@pytest.fixture(params=["never", "always"])
def machine(request: pytest.FixtureRequest) -> Iterator[VirtualMachine]:
    """A stream that remembers its launches."""
    machine = VirtualMachine("chaining", cpu_worker=request.param, race_check=False)
    machine.engine = VirtualMachineEngine(story=1 << 10)
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
    for op in OPS.values():
        op.forget()  # and with it, how often calls have waited without a successor
    yield machine
    flow.set_memory_limit(None)
    MODE.set(before)
    machine.drain()
    machine.engine.check_invariants()
    machine.close()


def chains(machine: VirtualMachine) -> list[str]:
    """The ops of each chain that was launched."""
    return [
        " ".join([member.name.removesuffix("_scalar") for member in value.members])
        for turn in machine.engine.story.turns
        for value in turn.launched
        if value.members is not None and value.name == "chain"
    ]


def numbers(seed: int = 0) -> Any:
    """An array of a megapixel."""
    return np.random.default_rng(seed).standard_normal((SIDE, SIDE)).astype(np.float32)


def allocated(which: str) -> int:
    return flow.memory_stats("cpu")[f"allocated_bytes.all.{which}"]


def test_ops_that_read_each_others_results_are_one_instruction(machine: VirtualMachine) -> None:
    a, b = numbers(), numbers(1)
    x, y = flow.tensor(a), flow.tensor(b)
    z = ((x + y) * 1.5 - y).abs()
    np.testing.assert_array_equal(z.numpy(), np.abs((a + b) * np.float32(1.5) - b))
    assert chains(machine) == ["add mul sub abs"]


def test_a_result_that_is_passed_on_takes_no_memory(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    machine.drain()
    before = allocated("current")
    flow.reset_peak_memory_stats("cpu")
    z = (x + 1) * 2 - 3
    z.numpy()
    assert chains(machine) == ["add mul sub"]
    assert NBYTES <= allocated("peak") - before < 1.1 * NBYTES


def test_memory_is_counted_with_ops_that_wait_for_others(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    before = flow.memory_allocated("cpu")
    y = x + 1
    assert not machine.engine.idle()
    assert flow.memory_allocated("cpu") - before >= NBYTES
    del y


def test_a_result_that_is_still_held_exists(machine: VirtualMachine) -> None:
    a = numbers()
    x = flow.tensor(a)
    y = x + 1
    z = y * 2
    w = z - y
    for found, wanted in ((y, a + 1), (z, (a + 1) * 2), (w, (a + 1) * 2 - (a + 1))):
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert chains(machine) == ["add mul sub"]


def test_a_result_that_nobody_reads_is_computed_too(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    machine.drain()
    before = allocated("current")
    flow.reset_peak_memory_stats("cpu")
    for _ in range(3):
        x * 2 + 1
    machine.drain()
    assert chains(machine) == ["mul add"] * 3
    assert allocated("peak") - before >= NBYTES


def test_an_op_that_does_not_fit_a_chain_ends_it(machine: VirtualMachine) -> None:
    a = numbers()
    x = flow.tensor(a)
    small = flow.ones(3)
    y = x + 1
    apart = x * 2  # reads nothing of it
    y = y * 3
    part = y[1:] - 1  # reads a view of it
    total = (y + 1).sum() + small.sum()
    np.testing.assert_array_equal(apart.numpy(), a * 2)
    np.testing.assert_array_equal(part.numpy(), ((a + 1) * 3)[1:] - 1)
    np.testing.assert_array_equal(total.item(), ((a + 1) * 3 + 1).sum() + np.float32(3))
    assert chains(machine) == []


def test_a_chain_changes_nothing_that_is_written_in_place_later(machine: VirtualMachine) -> None:
    a = numbers()
    x = flow.tensor(a)
    y = (x + 1) * 2
    x.mul_(0)
    y.add_(1)
    z = y - x
    np.testing.assert_array_equal(z.numpy(), (a + 1) * 2 + 1)
    assert chains(machine) == ["add mul"]


def test_chains_have_an_end(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    y = x
    for _ in range(LONGEST + 3):
        y = y + 1
    np.testing.assert_allclose(y.numpy(), x.numpy() + LONGEST + 3, rtol=1e-6)
    assert [len(chain.split()) for chain in chains(machine)] == [LONGEST, 3]


def test_an_op_without_successors_waits_only_now_and_then(machine: VirtualMachine) -> None:
    if machine.devices.cpu_worker == "always":
        pytest.skip("nothing runs inline if everything is for the worker")
    x = flow.tensor(numbers())
    waited = []
    for _ in range(60):
        y = x * 7
        waited.append(not machine.engine.idle())
        y.numpy()
    assert waited == [True] * 4 + [False] * 16 + [True] + [False] * 32 + [True] + [False] * 6
    for _ in range(64):
        z = x * 7 + 1
    z.numpy()
    assert chains(machine)[-1] == "mul add"
    y = x * 7
    assert not machine.engine.idle()


def test_ops_that_come_while_a_chain_waits_are_in_order(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    y = x * 0 + 2
    tiny = flow.ones(2) * 3
    z = y * tiny[0]
    assert (z[0, 0].item(), tiny.tolist()) == (6.0, [3.0, 3.0])


def test_gradients_are_the_same(machine: VirtualMachine) -> None:
    a, b = numbers(), numbers(1)
    found = []
    for width in (SIDE, 8):  # below a size nothing is chained
        x, y = (flow.tensor(value[:width, :width].copy(), requires_grad=True) for value in (a, b))
        z = flow.exp((x * y - 1) * 0.5) / (y * y + 1)
        (z * z).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        found.append((x.grad.numpy()[:8, :8], y.grad.numpy()[:8, :8]))
    assert chains(machine)
    for large, small in zip(*found, strict=True):
        np.testing.assert_array_equal(large, small)


def test_another_default_dtype_is_minded(machine: VirtualMachine) -> None:
    n = flow.arange(SIDE * SIDE)
    # The fixture puts the mode back, with its default dtype.
    for dtype in (flow.float32, flow.float64):
        flow.set_default_dtype(dtype)
        root = (n + 1).sqrt() * 2
        assert root.dtype is dtype
        wanted = np.sqrt((n.numpy() + 1).astype(dtype.numpy)) * dtype.numpy.type(2)
        np.testing.assert_array_equal(root.numpy(), wanted)


def test_a_dropped_scope_drops_its_chain_and_no_other(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    with flow.scope(name="given up") as scope:
        y = x + 1
        z = y * 2
        scope.cancel()
    kept = x * 3 + 1
    for tensor in (y, z):
        with pytest.raises(Cancelled):
            tensor.numpy()
    np.testing.assert_array_equal(kept.numpy(), x.numpy() * 3 + 1)


def test_a_failed_operand_spoils_only_dependent_results(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    bad = flow.gather(x, 0, flow.full((SIDE, SIDE), SIDE + 7))
    good = x + 1
    spoilt = good * bad
    also_good = good - 1
    for tensor in (spoilt, spoilt + 1):
        with pytest.raises(IndexError):
            tensor.numpy()
    np.testing.assert_array_equal(also_good.numpy(), x.numpy() + 1 - 1)


@pytest.mark.slow
def test_out_of_memory_in_the_middle_leaves_earlier_results(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    machine.drain()
    flow.empty_cache("cpu")
    reserved = flow.memory_stats("cpu")["reserved_bytes.all.current"]
    flow.set_memory_limit(reserved + 3 * NBYTES, "cpu")
    made = [x]
    for number in range(24):
        made.append(made[-1] + number)
    wanted, there = x.numpy(), 0
    told: list[str] = []
    for number, tensor in enumerate(made[1:]):
        wanted = wanted + np.float32(number)
        try:
            found = tensor.numpy()
        except OutOfMemory as error:
            told += error.__notes__
            continue
        np.testing.assert_array_equal(found, wanted)
        assert there == number, "results after a failure cannot exist"
        there += 1
    assert 1 <= there < 24
    assert all(["add_scalar" in value or __file__ in value for value in told])
    flow.set_memory_limit(None, "cpu")


def test_a_chain_needs_no_more_memory_than_its_members_one_by_one(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    wanted = x.numpy() * 2
    x = x * 1
    machine.drain()
    flow.empty_cache("cpu")
    flow.set_memory_limit(flow.memory_stats("cpu")["reserved_bytes.all.current"] + NBYTES, "cpu")
    y = x * 2
    del x
    z = y + 1  # both are kept, and memory suffices for two arrays, not for a third
    np.testing.assert_array_equal(z.numpy(), wanted + 1)
    np.testing.assert_array_equal(y.numpy(), wanted)


def test_shared_memory_is_read_before_others_can_write_it(machine: VirtualMachine) -> None:
    if machine.devices.cpu_worker == "always":
        pytest.skip("instructions that the worker has not begun must be waited for")
    buffer = numbers()
    before = buffer.copy()
    for x in (flow.from_numpy(buffer), flow.from_dlpack(buffer), flow.from_numpy(buffer)[1:]):
        y = x * 2
        z = flow.ones(*x.shape) * 1
        z = z + x  # joins the waiting chain
        buffer[:] = 100
        np.testing.assert_array_equal(y.numpy(), before[: len(y)] * 2 if len(y) == SIDE else before[1:] * 2)
        np.testing.assert_array_equal(z.numpy(), 1 + before[SIDE - len(z) :])
        buffer[:] = before
    lent = flow.tensor(before)
    array = np.asarray(lent)
    y = lent * 2
    array[:] = 100
    np.testing.assert_array_equal(y.numpy(), before * 2)


def test_a_kernel_that_cannot_be_made_leaves_it_to_the_members(
    machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*arguments: object) -> None:
        raise MemoryError("no memory for a kernel")

    x = flow.tensor(numbers())
    machine.drain()
    monkeypatch.setattr(FusedKernel, "__init__", made)
    np.testing.assert_array_equal(((x + 5) * 2 - 7).numpy(), (x.numpy() + 5) * 2 - 7)
    assert chains(machine) == ["add mul sub"]


def test_a_kernel_that_fails_fails_all_and_says_which_line(
    machine: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> None:
        raise MemoryError("no memory for a tile")

    x = flow.tensor(numbers())
    machine.drain()
    monkeypatch.setattr(FusedKernel, "compute", run)
    y = x + 1
    z = y * 2
    for tensor in (y, z):
        with pytest.raises(MemoryError, match="no memory for a tile") as caught:
            tensor.numpy()
    assert any([__file__ in note for note in caught.value.__notes__])
    assert chains(machine) == ["add mul"]


def test_a_waiter_on_another_thread_does_not_wait_for_ever(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    y = x + 1  # waits for a successor, which never comes
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(y.numpy()))
    thread.start()
    thread.join(30)
    np.testing.assert_array_equal(found[0], x.numpy() + 1)


def test_coroutines_chain_and_the_loop_goes_on() -> None:
    async def main() -> None:
        async with VirtualMachine("served", cpu_worker="always") as machine:
            x = flow.ones(SIDE, SIDE)
            results = await asyncio.gather(*[_of_three(x, number) for number in range(4)])
            assert [result[0, 0] for result in results] == [2.0 * number - 1 for number in range(4)]
            assert "mul sub" in chains(machine)[0]

    async def _of_three(x: flow.Tensor, number: int) -> Any:
        y = (x + 1) * number - 1
        return (await y).numpy()

    asyncio.run(main())


def test_a_chain_can_be_seen_in_a_profile(machine: VirtualMachine) -> None:
    x = flow.tensor(numbers())
    with flow.profiler.profile() as profile:
        y = (x + 1) * 2 - 3
        y.numpy()
    assert chains(machine) == ["add mul sub"]
    counts = {row.name: row.calls for row in profile.key_averages()}
    assert [counts[name] for name in ("add_scalar", "mul_scalar", "sub_scalar")] == [1, 1, 1]


def test_watched_accesses_are_those_of_single_ops() -> None:
    machine = VirtualMachine("watched", race_check=True)
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
    try:
        x = flow.ones(SIDE, SIDE)
        assert ((x + 1) * 2 - 3)[0, 0].item() == 1.0
    finally:
        MODE.set(before)
        machine.close()


def test_accesses_of_a_chain_that_lacks_memory_are_watched() -> None:
    machine = VirtualMachine("watched", race_check=True, gather=1 << 60)
    assert machine.races is not None
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
    try:
        x = flow.tensor(numbers()) * 1
        machine.drain()
        flow.empty_cache("cpu")
        for op in OPS.values():
            op.forget()
        allocator = machine.memory.allocator(flow.device("cpu"))
        flow.set_memory_limit(allocator.memory.used, "cpu")
        statistics = allocator.statistics()
        free = statistics["reserved_bytes.all.current"] - statistics["allocated_bytes.all.current"]
        made = [x + 1]
        for _ in range(free // NBYTES):
            made.append(made[-1] + 1)
        machine.races.detector.freed(0, 0, 0, x._blob.storage.dependence)
        with pytest.raises(RaceDetected, match="use after release"):
            made[0].numpy()
        with pytest.raises((RaceDetected, OutOfMemory)):
            made[-1].numpy()
        assert "add_scalar" in str(machine.races.detector.races.pop())
    finally:
        flow.set_memory_limit(None)
        MODE.set(before)
        machine.close()


@pytest.mark.parametrize("nbytes", [1 << 16, 1 << 15])
def test_bytes_of_fused_results_are_given_back(nbytes: int) -> None:
    machine = VirtualMachine("counting", gather=1 << 60)
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
    try:
        x = flow.ones(nbytes // 4)
        for _ in range(20):
            x = x + 1
        x.numpy()
        machine.drain()
        assert machine.back_pressure.outstanding_bytes() == 0
    finally:
        MODE.set(before)
        machine.close()


# Random programs

UNARY = ("abs", "neg", "relu", "square", "exp", "sign", "floor")
BINARY = ("add", "sub", "mul", "maximum")
NAMES = (*UNARY, *BINARY, "less", "where", "cast", "view", "add_", "tiny")


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int, bool]]:
    """Ops, where their operands stand among the values so far, and whether the result is kept."""
    count = draw(st.integers(2, 24))
    place = st.integers(0, 3)
    return [(draw(st.sampled_from(NAMES)), draw(place), draw(place), draw(st.booleans())) for _ in range(count)]


def _run(program: list[tuple[str, int, int, bool]], values: list[flow.Tensor]) -> list[Any]:
    kept = list(values)
    recent = list(values)
    for op, first, second, keep in program:
        x, y = recent[-1 - first % len(recent)], recent[-1 - second % len(recent)]
        if op in UNARY:
            made = getattr(flow, op)(x)
        elif op == "less":
            made = (x < y).to(flow.float32)
        elif op == "where":
            made = flow.where(x > 0, x, y)
        elif op == "cast":
            made = x.to(flow.float64).to(flow.float32)
        elif op == "view":
            made = x.transpose(0, 1)
        elif op == "add_":
            made = (x * 1).add_(y)
        elif op == "tiny":
            made = x * (flow.ones(2) * 0.5)[0]
        else:
            made = getattr(flow, op)(x, y)
        recent = [*recent[-3:], made]
        if keep:
            kept.append(made)
    return [tensor.numpy() for tensor in [*kept, recent[-1]]]


@pytest.mark.slow
@settings(max_examples=40)
@given(program=programs(), worker=st.sampled_from(["never", "always"]))
def test_random_programs_have_the_results_of_single_ops(program: list[tuple[str, int, int, bool]], worker: str) -> None:
    side = 512  # large enough for two ops out of three
    arrays = [numbers(seed)[:side, :side].copy() for seed in (0, 1)]
    found: list[list[Any]] = []
    before = MODE.get()
    for fuse_below in (0, None):
        machine = VirtualMachine("random", cpu_worker=worker)
        machine.engine = VirtualMachineEngine(**({} if fuse_below is None else {"fuse_below": fuse_below}))
        MODE.set(before.replace(machine=machine, device=flow.device("cpu")))
        try:
            with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
                patch.setattr(table, "CHAINED_FROM", 50_000)
                for op in OPS.values():
                    op.forget()
                found.append(_run(program, [flow.tensor(array) for array in arrays]))
            machine.drain()
            machine.engine.check_invariants()
        finally:
            MODE.set(before)
            machine.close()
    for alone, chained in zip(*found, strict=True):
        np.testing.assert_array_equal(alone, chained)
