"""Streams and events as programs use them."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator

import numpy as np
import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.errors import DeviceLost, OutOfMemory
from vmflow.instructions.builder import physical_run
from vmflow.streams.cuda import pinned as pinned_memory
from vmflow.streams.cuda.device import CudaDevice
from vmflow.streams.cuda.emulation.driver import EmulatedDriver, EmulatedMachine
from vmflow.streams.cuda.waiter import EventWaiter
from vmflow.vm.stream_table import device_memory
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

from .emulated import emulated
from .multi_stream import run

pytestmark = pytest.mark.emulated

MODES = ["lazy", "eager", "random"]


@pytest.mark.parametrize("mode", MODES)
def test_ops_go_to_the_stream_of_the_block(mode: str) -> None:
    with emulated(mode, 3):
        side = flow.cuda.Stream()
        x = flow.tensor([1.0, 2.0]).cuda()
        with flow.cuda.stream(side) as entered:
            assert entered is side
            assert flow.cuda.current_stream() == side
            y = x.clone()
        assert flow.cuda.current_stream() == flow.cuda.default_stream() != side
        assert y._blob.storage.stream is side.on(current_machine())
        assert (y.neg().tolist(), x.tolist()) == ([-1.0, -2.0], [1.0, 2.0])


def test_setting_no_stream_changes_nothing() -> None:
    flow.cuda.set_stream(None)
    assert MODE.get().streams is None


def test_threads_that_ask_for_a_default_stream_at_once_get_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EmulatedMachine(1).drivers[0]
    create = driver.create_stream
    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(driver.stream_at(1)))

    def create_slowly() -> object:
        made = create()
        if not other.ident:
            other.start()
            other.join(0.1)
        return made

    monkeypatch.setattr(driver, "create_stream", create_slowly)
    mine = driver.stream_at(1)
    other.join()
    assert found == [mine]


def test_a_priority_is_an_integer() -> None:
    with emulated(), pytest.raises(TypeError, match=r"Stream: priority must be an integer, not -0\.5"):
        flow.cuda.Stream(priority=-0.5)  # type: ignore[arg-type]


def test_a_stream_of_another_device_changes_nothing_for_the_first() -> None:
    with emulated():
        other = flow.cuda.Stream("cuda:1")
        with other:
            assert flow.cuda.current_stream(0) == flow.cuda.default_stream(0)
            assert flow.cuda.current_stream(1) == other
        assert flow.cuda.current_stream(1) == flow.cuda.default_stream(1)


def test_a_stream_may_be_entered_by_several_tasks_at_the_same_time() -> None:
    async def nested(outer: flow.cuda.Stream, side: flow.cuda.Stream, turns: list[asyncio.Event]) -> bool:
        with outer:
            with side:
                turns[0].set()
                await turns[1].wait()
            return flow.cuda.current_stream() == outer

    async def single(side: flow.cuda.Stream, turns: list[asyncio.Event]) -> bool:
        await turns[0].wait()
        with side:
            turns[1].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return flow.cuda.current_stream() == flow.cuda.default_stream()

    async def program() -> list[bool]:
        outer, side = flow.cuda.Stream(), flow.cuda.Stream()
        turns = [asyncio.Event(), asyncio.Event()]
        return [*await asyncio.gather(nested(outer, side, turns), single(side, turns))]

    with emulated():
        assert asyncio.run(program()) == [True, True]


def test_a_block_of_a_stream_may_be_left_in_another_task() -> None:
    async def steps() -> AsyncGenerator[flow.cuda.Stream, None]:
        with flow.cuda.Stream() as side:
            assert flow.cuda.current_stream() == side
            yield side

    async def program() -> bool:
        opened = steps()
        await asyncio.create_task(opened.__anext__())
        with flow.cuda.Stream() as other:
            await opened.aclose()
            return flow.cuda.current_stream() == other

    with emulated():
        assert asyncio.run(program())


def test_the_device_that_cuda_means_is_chosen_by_block_and_task() -> None:
    async def task() -> int:
        flow.cuda.set_device(1)
        await asyncio.sleep(0)
        return flow.cuda.current_device()

    async def program() -> list[int]:
        return [*await asyncio.gather(task(), task()), flow.cuda.current_device()]

    with emulated():
        assert asyncio.run(program()) == [1, 1, 0]
        with flow.cuda.device(1):
            assert flow.zeros(2, device="cuda").device == flow.device("cuda:1")
            with flow.cuda.device(-1):
                assert flow.cuda.current_device() == 1
        assert flow.cuda.current_device() == 0
        with pytest.raises(flow.DeviceUnavailable, match=r"cuda:7 .*2 "):
            flow.cuda.set_device(7)


def test_a_block_with_a_device_may_be_left_in_another_task() -> None:
    async def steps() -> AsyncGenerator[int, None]:
        with flow.cuda.device(1), flow.cuda.device(None):
            yield flow.cuda.current_device()

    async def program() -> list[int]:
        opened = steps()
        inside = await asyncio.create_task(opened.__anext__())
        await opened.aclose()
        return [inside, flow.cuda.current_device()]

    with emulated():
        assert asyncio.run(program()) == [1, 0]
        assert flow.cuda.current_device() == 0


def test_one_block_of_a_device_may_be_entered_by_several_tasks_at_the_same_time() -> None:
    async def first(shared: flow.cuda.device, turns: list[asyncio.Event]) -> int:
        flow.cuda.set_device(1)
        with shared:
            turns[0].set()
            await turns[1].wait()
        return flow.cuda.current_device()

    async def second(shared: flow.cuda.device, turns: list[asyncio.Event]) -> int:
        await turns[0].wait()
        with shared:
            turns[1].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return flow.cuda.current_device()

    async def program() -> list[int]:
        turns = [asyncio.Event(), asyncio.Event()]
        shared = flow.cuda.device(0)
        return [*await asyncio.gather(first(shared, turns), second(shared, turns))]

    with emulated():
        assert asyncio.run(program()) == [1, 0]


@pytest.mark.parametrize("mode", MODES)
def test_an_event_is_reached_when_the_work_before_it_has_ended(mode: str) -> None:
    with emulated(mode, 1) as devices:
        event = flow.cuda.Event(enable_timing=True)
        assert event.query()  # nothing was recorded
        x = flow.ones(100_000).cuda()
        event.record()
        if mode == "lazy":
            assert not event.query()
            assert not flow.cuda.current_stream().query()
        event.synchronize()
        assert event.query()
        later = flow.cuda.Event(enable_timing=True)
        x.add_(1)
        later.record()
        with pytest.raises(ValueError, match="enable_timing"):
            event.elapsed_time(flow.cuda.Event())
        later.synchronize()
        assert event.elapsed_time(later) > 0
        assert later.elapsed_time(event) < 0
        assert devices.machine.engine.idle()


async def _polled(asked: flow.cuda.Stream | flow.cuda.Event) -> bool:
    """Whether the stream or event says within many iterations of the loop that its work has ended."""
    for _ in range(1000):
        if asked.query():
            return True
        await asyncio.sleep(0)
    return False


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("asked", ["stream", "event"])
def test_a_loop_that_asks_again_and_again_sees_the_work_end(mode: str, asked: str) -> None:
    def issue() -> tuple[flow.Tensor, flow.cuda.Stream | flow.cuda.Event]:
        with flow.cuda.Stream() as side:
            y = flow.ones(1000, device="cuda") + 1
        return y, side if asked == "stream" else side.record_event()

    async def program() -> bool:
        _, issued = issue()
        return not issued.query() and await _polled(issued)

    with emulated(mode, 3):
        assert asyncio.run(program())
        _, before = issue()  # before there is a loop
        assert asyncio.run(_polled(before))
        _, before = issue()
        current_machine().driver.drive()  # handed to the device before there is a loop
        assert asyncio.run(_polled(before))


def test_a_loop_that_asks_for_the_current_stream_sees_the_work_end() -> None:
    async def program() -> bool:
        x = flow.ones(1000, device="cuda") + 1
        for _ in range(1000):
            if flow.cuda.current_stream().query():
                return float(x.sum().item()) == 2000
            await asyncio.sleep(0)
        return False

    with emulated("lazy"), warnings.catch_warnings():
        warnings.simplefilter("ignore", flow.BlockingCallWarning)
        assert asyncio.run(program())


def test_a_stream_that_is_asked_gets_no_work_and_keeps_its_order() -> None:
    with emulated("lazy") as devices:
        stream = flow.cuda.default_stream()
        x = flow.ones(1000, device="cuda") + 1
        before = devices.machine.engine.outstanding()
        assert not stream.query()
        assert devices.machine.engine.outstanding() == before
        assert not stream.on(devices.machine).policy.sequential
        assert flow.cuda.Stream("cuda:1").query()
        assert sum(x.tolist()) == 2000
        assert stream.query()


def test_a_stream_of_another_library_says_whether_the_librarys_work_has_ended() -> None:
    with emulated("lazy") as devices:
        theirs = devices.driver.create_stream()
        stream = flow.cuda.ExternalStream(devices.driver.stream_address(theirs))
        assert stream.query()
        memory = devices.driver.allocate(100)
        devices.driver.fill(memory, 1, theirs)
        assert not stream.query()
        devices.driver.synchronize_stream(theirs)
        assert stream.query()


def test_a_stream_of_a_lost_device_has_no_work_left() -> None:
    with emulated("lazy") as devices:
        x = flow.ones(10).cuda()
        devices.driver.lose(RuntimeError("gone"))
        with pytest.raises(DeviceLost):
            x.numpy()
        assert flow.cuda.current_stream().query()


def test_the_time_of_an_event_that_was_not_reached_is_refused() -> None:
    with emulated():
        start, end = flow.cuda.Event(enable_timing=True), flow.cuda.Event(enable_timing=True)
        start.record()
        with pytest.raises(RuntimeError, match="record and synchronize"):
            start.elapsed_time(end)


@pytest.mark.parametrize("mode", MODES)
def test_events_streams_and_devices_are_awaited(mode: str) -> None:
    async def program() -> list[float]:
        side = flow.cuda.Stream()
        x = flow.ones(1000).cuda()
        with flow.cuda.stream(side):
            y = x.add(1)
        event = side.record_event()
        await event
        assert event.query()
        flow.cuda.default_stream().wait_stream(side)
        await side.synchronize()
        await flow.cuda.synchronize()
        return [float(await y.sum()), float(await x.sum())]

    with emulated(mode, 2):
        assert asyncio.run(program()) == [2000.0, 1000.0]


def test_an_event_of_another_machine_is_refused() -> None:
    with emulated():
        event = flow.cuda.current_stream().record_event()
        with emulated(), pytest.raises(RuntimeError, match="was recorded on the virtual machine"):
            event.wait()


def test_waiting_for_a_stream_keeps_program_order_on_both() -> None:
    with emulated("lazy") as devices:
        first, second = flow.cuda.Stream(), flow.cuda.Stream()
        x = flow.zeros(10).cuda()
        with first:
            x.add_(1)
        second.wait_stream(first)
        with second:
            y = flow.ones(10).cuda()
        devices.machine.drain()
        assert (x.tolist(), y.tolist()) == ([1.0] * 10, [1.0] * 10)


def test_a_waiter_wakes_each_once_when_its_event_is_reached() -> None:
    with emulated("lazy") as devices:
        device = CudaDevice(devices.driver)
        stream = device.driver.create_stream()
        event = device.record(stream)
        waiter, woken = EventWaiter("test"), []
        waiter.add(event, lambda: woken.append("first"))
        assert waiter.wait_until_idle()
        assert event.query()
        assert woken == ["first"]
        waiter.stop()
        waiter.add(event, lambda: woken.append("second"))
        assert not waiter.wait_until_idle()
        assert woken == ["first"]


def test_a_loop_is_woken_by_threads_that_end_with_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    # The devices go on only where a thread waits for them, as if they went on by themselves.
    monkeypatch.setattr(EmulatedDriver, "step", lambda driver: False)

    async def program() -> list[float]:
        side = flow.cuda.Stream()
        x = flow.ones(1000).cuda()
        with flow.cuda.stream(side):
            y = x.add(1)
        return [float((await tensor.sum().cpu()).item()) for tensor in (x, y)]

    with emulated("lazy"):
        assert asyncio.run(program()) == [1000.0, 2000.0]
        waiters = [thread for thread in threading.enumerate() if thread.name.startswith("cuda:0:")]
        assert waiters
    for thread in waiters:
        thread.join(10)
        assert not thread.is_alive()


def test_an_event_is_recorded_by_code_that_the_driving_thread_runs() -> None:
    with emulated("lazy") as devices:
        machine, events = devices.machine, []
        physical_run(machine, lambda builder: builder.barrier(lambda: events.append(flow.cuda.Event())))
        physical_run(machine, lambda builder: builder.barrier(lambda: events[0].record()))
        machine.drain()
        assert events[0].query()


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_equal_numpy_and_leave_nothing(seed: int) -> None:
    run(seed)


def test_a_lost_device_fails_all_work_and_says_that_the_process_must_restart() -> None:
    with emulated("lazy") as devices:
        x = flow.ones(10).cuda()
        y = x.add(1)
        devices.machine.driver.drive()
        devices.driver.lose(RuntimeError("an uncorrectable error of the memory"))
        with pytest.raises(DeviceLost, match="the process must be started again") as caught:
            y.numpy()
        assert "uncorrectable" in str(caught.value)
        with pytest.raises(DeviceLost):
            x.add(2).numpy()
        devices.machine.drain()
        assert devices.machine.engine.idle()
        assert flow.ones(3).to("cuda:1").tolist() == [1.0, 1.0, 1.0]


def test_events_that_a_lost_device_could_not_create_are_awaited_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated("lazy") as devices:
        device, other = [CudaDevice(driver) for driver in devices.cuda.drivers]
        stream, elsewhere = device.driver.create_stream(), other.driver.create_stream()
        begin = device.record(stream, timing=True)
        begin.synchronize()
        devices.driver.lose(RuntimeError("gone"))
        event = device.record(stream, timing=True)
        assert (event.handle, event.query()) == (None, True)
        waited: list[object] = []
        monkeypatch.setattr(EmulatedDriver, "stream_wait", lambda *arguments: waited.append(arguments))
        device.let_wait(stream, event)
        other.let_wait(elsewhere, event)
        assert not waited
        assert other.lost is None
        with pytest.raises(DeviceLost, match="gone"):
            begin.milliseconds_until(event)


async def test_a_lost_device_wakes_all_awaiting_tasks() -> None:
    with emulated("lazy") as devices:
        y = flow.ones(10).cuda().add(1)
        waiting = asyncio.ensure_future(_value(y))
        await asyncio.sleep(0)
        devices.driver.lose(RuntimeError("gone"))
        with pytest.raises(DeviceLost):
            await waiting
        await devices.machine.synchronize()


async def _value(tensor: flow.Tensor) -> float:
    return float((await tensor)[0].item())


def test_a_bad_index_is_told_at_the_line_that_used_it() -> None:
    with emulated("lazy"):
        table = flow.arange(10.0).cuda()
        places = flow.tensor([1, 2, 99]).cuda()
        found = table[places]  # the line
        behind = found.add(1)
        with pytest.raises(IndexError, match="99") as caught:
            behind.numpy()
        assert any("the line" in line or "test_streams.py" in line for line in caught.value.__notes__)
        with pytest.raises(IndexError):
            found.numpy()
        # The memory that held it is used again, and a new value is one.
        assert table[flow.tensor([1]).cuda()].tolist() == [1.0]


def test_an_overwritten_tensor_has_a_value_again_after_a_bad_index() -> None:
    with emulated("lazy"):
        table = flow.arange(10.0).cuda()
        found = table[flow.tensor([99]).cuda()]
        found.fill_(5)
        assert found.tolist() == [5.0]


def test_the_error_of_a_full_device_names_the_largest_owners() -> None:
    with emulated("random", 5, nbytes=4 << 20):
        kept = flow.ones(500_000).cuda()
        with pytest.raises(OutOfMemory, match="largest tensors alive"):
            flow.ones(2_000_000).cuda().numpy()
        assert float(kept.sum().item()) == 500_000
        # A tensor that is dropped makes room.
        del kept
        assert float(flow.ones(700_000).cuda().sum().item()) == 700_000


def test_memory_of_other_devices_is_refused() -> None:
    with emulated():
        for count in (
            flow.cuda.memory_allocated,
            flow.cuda.max_memory_allocated,
            flow.cuda.memory_reserved,
            flow.cuda.max_memory_reserved,
        ):
            assert count("cuda:1") >= 0
            with pytest.raises(ValueError, match="a CUDA device was expected, not cpu"):
                count("cpu")


def test_memory_is_counted() -> None:
    with emulated("lazy"):
        before = flow.cuda.memory_allocated()
        x = flow.ones(1 << 20).cuda()
        x.numpy()
        assert flow.cuda.memory_allocated() - before == 4 << 20
        assert flow.cuda.max_memory_allocated() >= 4 << 20
        free, total = flow.cuda.mem_get_info()
        assert 0 < free < total
        del x
        flow.cuda.synchronize()
        flow.cuda.empty_cache()
        assert device_memory(flow.device("cuda")).used == 0


def test_page_locked_memory_that_nobody_has_is_given_up_where_more_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated() as devices:
        pinned = CudaDevice(devices.driver).pinned
        held = pinned.array((1000,), np.dtype(np.uint8))
        del held
        assert pinned.reserved == 1024
        pinned.array((900,), np.dtype(np.uint8))
        assert pinned.reserved == 1024, "the block is used again"
        monkeypatch.setattr(pinned_memory, "KEPT", 4096)
        kept = pinned.array((2048,), np.dtype(np.uint8))
        assert pinned.reserved == 3072
        pinned.array((4096,), np.dtype(np.uint8))
        assert pinned.reserved == 2048 + 4096
        take = devices.driver.pinned

        def refuse_once(nbytes: int) -> np.ndarray:
            if pinned.reserved > kept.nbytes:
                raise MemoryError("no more pages can be locked")
            return take(nbytes)

        monkeypatch.setattr(devices.driver, "pinned", refuse_once)
        monkeypatch.setattr(pinned_memory, "KEPT", 1 << 30)
        pinned.array((8192,), np.dtype(np.uint8))
        assert pinned.reserved == 2048 + 8192
        with pytest.raises(MemoryError, match="no more pages can be locked"):
            pinned.array((8192,), np.dtype(np.uint8)), pinned.array((8192,), np.dtype(np.uint8))


def test_page_locked_memory_of_a_new_size_is_wanted_while_other_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated() as devices:
        pinned = CudaDevice(devices.driver).pinned
        take, wanted = devices.driver.pinned, iter([1 << 12, 1 << 13])
        kept: list[np.ndarray] = []

        def tell_when_it_goes(nbytes: int) -> np.ndarray:
            block = take(nbytes)
            weakref.finalize(block, lambda: kept.extend([pinned.array((size,), np.dtype("u1")) for size in wanted]))
            return block

        monkeypatch.setattr(devices.driver, "pinned", tell_when_it_goes)
        for size in (1 << 9, 1 << 10, 1 << 11):
            pinned.array((size,), np.dtype("u1"))
        pinned.empty_cache()
        assert [array.nbytes for array in kept] == [1 << 12, 1 << 13]
        assert pinned.reserved == (1 << 12) + (1 << 13)
        del kept[:]


def test_pinned_memory_is_copied_from_directly() -> None:
    with emulated("lazy"):
        x = flow.arange(1000.0)
        assert not x.is_pinned()
        pinned = x.pin_memory()
        assert pinned.is_pinned()
        assert pinned.pin_memory() is pinned
        on_device = pinned.to("cuda", non_blocking=True)
        pinned.fill_(0)  # behind the copy
        assert float(on_device.sum().item()) == 499_500
        assert pinned.tolist() == [0.0] * 1000
        with pytest.raises(RuntimeError, match="on the CPU"):
            on_device.pin_memory()


def test_a_tensor_that_other_work_uses_keeps_its_memory() -> None:
    with emulated("lazy") as devices:
        side = flow.cuda.Stream()
        x = flow.ones(100_000).cuda()
        x.record_stream(side)
        storage = x._blob.storage
        del x
        assert storage.stream is side.on(devices.machine)
        again = flow.zeros(100_000).cuda()
        assert float(again.sum().item()) == 0


def test_the_device_is_described() -> None:
    with emulated():
        assert flow.cuda.is_initialized()
        properties = flow.cuda.get_device_properties(0)
        assert properties.name == flow.cuda.get_device_name()
        assert (properties.major, properties.minor) == flow.cuda.get_device_capability()
        assert properties.warp_size == 32


def test_the_state_of_random_numbers_is_that_of_all_devices() -> None:
    with emulated():
        flow.cuda.manual_seed_all(7)
        state = flow.cuda.get_rng_state()
        first = flow.rand(5)
        flow.cuda.set_rng_state(state)
        assert flow.rand(5, device="cuda").tolist() == first.tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_told_that_it_cannot_use_the_device() -> None:
    with emulated("eager"):
        x = flow.ones(3).cuda()
        x.numpy()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                flow.ones(3).cuda().numpy()
                said = "nothing"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        assert "spawn" in said
        assert x.add(1).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("mode", MODES)
def test_a_machine_that_is_closed_lets_others_have_its_memory_when_the_device_has_written_it(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with emulated(mode, 2) as devices:
        x = flow.ones(1000, device="cuda")
        x.tolist()
        y = x + 1
        devices.machine.driver.drive()
        surroundings = MODE.get()
        other = VirtualMachine("other")
        try:
            MODE.set(surroundings.replace(machine=other))
            z = y * 2  # waits for the first machine, and issues an instruction there to be told
            wait = devices.machine.completion.synchronize

            def wait_while_the_other_goes_on() -> None:
                other.driver.drive()
                wait()

            monkeypatch.setattr(devices.machine.completion, "synchronize", wait_while_the_other_goes_on)
            devices.machine.close()
            assert z.sum().item() == 4000
        finally:
            other.close()
            MODE.set(surroundings)


def test_nothing_is_left_of_a_device_that_is_not_used_any_more() -> None:
    def use() -> weakref.ref[EmulatedDriver]:
        with emulated() as devices:
            flow.ones(1000, device="cuda").sum().item()  # by kernels of our own
            return weakref.ref(devices.driver)

    gone = use()
    for _ in range(2):  # destructors of the first time let go of more
        gc.collect()
    assert gone() is None
