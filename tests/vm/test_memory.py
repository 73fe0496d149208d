"""Memory of a device: allocated and given back in stream order, reused, limited, and reclaimed when it is short."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import vmflow as flow
from tests.vm.gates import call, entered, gate
from vmflow.context import MODE
from vmflow.info import compiled_modules
from vmflow.instructions.builder import InstructionsBuilder, physical_run
from vmflow.instructions.release_tensor import Lease
from vmflow.streams.worker import Worker
from vmflow.vm import VirtualMachine
from vmflow.vm.stream_table import SIMULATED_BYTES, device_memory
from vmflow.vm.virtual_machine import current_machine

MIB = 1 << 20
DEVICE = flow.device("sim:7")  # nobody else's


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    """One that is made current, with a device of 64 MiB to itself."""
    gc.collect()
    flow.empty_cache(DEVICE)
    flow.set_memory_limit(64 * MIB, DEVICE)
    machine = VirtualMachine("memory")
    before = MODE.get()
    MODE.set(before.replace(machine=machine, device=DEVICE))
    yield machine
    machine.drain()
    machine.engine.check_invariants()
    for allocator in machine.memory.allocators.values():
        allocator.check_invariants()
    MODE.set(before)
    machine.close()
    flow.set_memory_limit(SIMULATED_BYTES, DEVICE)


def mebibytes(count: int) -> flow.Tensor:
    return flow.zeros(count * MIB // 4)


def stats(name: str) -> int:
    return flow.memory_stats(DEVICE)[name]


def test_a_chain_uses_as_much_memory_as_a_sequential_program(machine: VirtualMachine) -> None:
    """Hundreds of results of 8 MiB are issued before any is computed; at most three are there at a time."""
    x = mebibytes(8)
    for _ in range(200):
        x = x + 1
    assert x[0].item() == 200
    # Allocations may be larger than requested, by less than half.
    assert stats("allocated_bytes.all.peak") < 4 * 8 * MIB
    assert stats("num_alloc_retries") == 0


def test_a_loop_that_fits_only_after_shrinking_runs_to_the_end(machine: VirtualMachine) -> None:
    """The cache fills with blocks of sizes that nobody wants again."""
    for round in range(6):
        for size in (5, 30, 45, 11, 60):
            x = mebibytes(size)
            x += round
            assert x[-1].item() == round
            del x
    assert stats("num_alloc_retries") > 0
    assert stats("num_ooms") == 0


async def test_the_same_in_a_coroutine(machine: VirtualMachine) -> None:
    for round in range(3):
        for size in (5, 30, 45, 11, 60):
            x = mebibytes(size)
            x += round
            assert (await x[-1]).item() == round
            del x
    assert stats("num_ooms") == 0


def test_a_tensor_that_cannot_fit_fails_alone_and_the_error_names_the_largest_tensors(machine: VirtualMachine) -> None:
    held = mebibytes(40)  # the line that is named
    failing = mebibytes(30)
    dependent = failing + 1
    other = held[:5] + 1
    with pytest.raises(flow.OutOfMemory) as caught:
        dependent.numpy()
    text = str(caught.value)
    assert "30.00 MiB" in text
    assert "64.00 MiB" in text
    assert "40.0 MiB by fill" in text
    assert f"{__file__}:" in text
    assert "set_memory_limit" in text
    assert (caught.value.requested, caught.value.limit) == (30 * MIB, 64 * MIB)
    assert other.tolist() == [1.0] * 5
    assert stats("num_ooms") == 1
    del held, failing, dependent, caught
    gc.collect()
    assert mebibytes(60)[0].item() == 0


async def test_memory_released_behind_the_waiting_instruction_is_found(machine: VirtualMachine) -> None:
    """Issued together: the tensor that is in the way is released after the request that needs its memory."""
    first = mebibytes(40)
    seen = first[:1] + 1
    second = mebibytes(40)
    del first
    assert (await second[0]).item() == 0
    assert (await seen).item() == 1


async def test_memory_in_use_is_not_taken(machine: VirtualMachine) -> None:
    """It is released behind the one that is stuck, and used in between."""
    first = flow.full((40 * MIB // 4,), 3.0)
    stuck = mebibytes(40)
    used = first.sum()
    del first
    with pytest.raises(flow.OutOfMemory):
        await stuck
    assert (await used).item() == 3 * 40 * MIB // 4


def test_tensors_in_cycles_are_found(machine: VirtualMachine) -> None:
    class Knot:
        def __init__(self) -> None:
            self.tensor = mebibytes(40)
            self.knot = self

    Knot()
    assert mebibytes(50)[0].item() == 0


def test_an_idle_machine_gives_its_cache_to_another(machine: VirtualMachine) -> None:
    mebibytes(50).sum().item()
    gc.collect()
    machine.drain()
    assert flow.memory_reserved(DEVICE) >= 50 * MIB
    other = VirtualMachine("other")
    MODE.set(MODE.get().replace(machine=other))
    try:
        assert mebibytes(50)[0].item() == 0
    finally:
        MODE.set(MODE.get().replace(machine=machine))
        other.close()


def test_memory_of_another_machine_goes_back_when_it_is_no_longer_used(machine: VirtualMachine) -> None:
    x = mebibytes(20)
    x.sum().item()
    other = VirtualMachine("other")
    MODE.set(MODE.get().replace(machine=other))
    try:
        x += 1
        total = x.sum()
        del x
        assert total.item() == 20 * MIB // 4
        other.drain()
    finally:
        MODE.set(MODE.get().replace(machine=machine))
    del total
    gc.collect()
    machine.drain()
    assert flow.memory_allocated(DEVICE) < MIB
    other.close()


def test_empty_cache_and_statistics(machine: VirtualMachine) -> None:
    x = mebibytes(20)
    x = x + 1
    x.sum().item()
    assert 20 * MIB <= flow.memory_allocated(DEVICE) < 22 * MIB
    assert flow.max_memory_allocated(DEVICE) >= 40 * MIB
    assert flow.memory_reserved(DEVICE) >= 40 * MIB
    flow.reset_peak_memory_stats(DEVICE)
    assert flow.max_memory_allocated(DEVICE) == flow.memory_allocated(DEVICE)
    del x
    flow.empty_cache(DEVICE)
    assert flow.memory_allocated(DEVICE) == 0
    assert flow.memory_reserved(DEVICE) == 0
    assert device_memory(DEVICE).used == 0


@pytest.mark.host
def test_the_host_has_a_budget_too() -> None:
    gc.collect()
    flow.empty_cache("cpu")
    before = device_memory(flow.device("cpu")).used
    flow.set_memory_limit(before + 32 * MIB, "cpu")
    try:
        x = flow.zeros(4 * MIB, device="cpu")
        with pytest.raises(flow.OutOfMemory, match="largest tensors alive"):
            flow.zeros(8 * MIB, device="cpu").sum().item()
        assert x.sum().item() == 0
    finally:
        flow.set_memory_limit(None, "cpu")


@pytest.mark.host
def test_memory_that_a_busy_worker_has_yet_to_read_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    flow.empty_cache("cpu")
    monkeypatch.setattr(Worker, "wait_until_idle", lambda worker, timeout=None: False)  # as if the time was up
    with entered(VirtualMachine("busy", cpu_worker="always", gather=1)) as machine:
        x = flow.ones(MIB, device="cpu")
        x.numpy()
        with gate(cost=0):
            y = call(lambda array: array[:1], x)
            del x
            flow.set_memory_limit(device_memory(flow.device("cpu")).used + MIB, "cpu")
            try:
                z = flow.zeros(16 * MIB, device="cpu")  # more than the cached block has
                machine.driver.drive()
            finally:
                flow.set_memory_limit(None, "cpu")
        assert y.item() == 1
        with pytest.raises(flow.OutOfMemory):
            z.numpy()


@pytest.mark.parametrize("worker", ["always", "never"])
def test_results_of_the_host_are_reused(worker: str) -> None:
    machine = VirtualMachine("reuse", cpu_worker=worker)
    before = MODE.get()
    MODE.set(before.replace(machine=machine))
    try:
        x = flow.zeros(MIB, device="cpu")
        for _ in range(50):
            x = x + 1
        assert x[7].item() == 50
        assert machine.memory.allocator(flow.device("cpu")).statistics()["allocated_bytes.all.peak"] <= 3 * (
            4 * MIB + 512
        )
    finally:
        MODE.set(before)
        machine.close()


def test_memory_in_use_is_not_handed_out_twice(machine: VirtualMachine) -> None:
    """Views, in-place writes and releases in an order that would show it."""
    kept: list[tuple[flow.Tensor, float]] = []
    for number in range(40):
        x = flow.full((40_000,), float(number))
        kept.append((x[100:200] + 0.5, number + 0.5))
        x.mul_(2)
        kept.append((x.sum(), 2.0 * number * 40_000))
        if number % 3 == 0:
            kept.append((x, 2.0 * number))
    for tensor, value in kept:
        assert (tensor.cpu().numpy() == value).all()


def test_a_failed_result_holds_no_memory(machine: VirtualMachine) -> None:
    def kernel(out: Any) -> Any:
        raise ZeroDivisionError("planted")

    target = flow.zeros(5 * MIB)
    outputs = (target._blob,)
    physical_run(
        current_machine(),
        partial(InstructionsBuilder.op_call, name="planted", kernel=kernel, inputs=(), outputs=outputs),
    )
    with pytest.raises(ZeroDivisionError):
        target.numpy()
    del target, outputs
    gc.collect()
    machine.drain()
    assert flow.memory_allocated(DEVICE) == 0


def test_bad_limits() -> None:
    for wrong in (1e12, float("nan"), True):
        with pytest.raises(TypeError, match="set_memory_limit: the limit must be an integer"):
            flow.set_memory_limit(wrong, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        flow.set_memory_limit(-1, DEVICE)


@pytest.mark.skipif("vmflow.instructions.release_tensor" in compiled_modules(), reason="compiled, it never is")
def test_a_lease_that_was_interrupted_before_it_had_a_storage_says_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Lease.__new__(Lease)  # as Ctrl-C leaves it, in the first line of its making
    gc.collect()
    assert capsys.readouterr().err == ""


def test_a_malformed_size_of_simulated_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_SIM_MEMORY", "1GB")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"VMFLOW_SIM_MEMORY must be a positive integer such as .*, not '1GB'"):
            device_memory(flow.device("sim:63"))
