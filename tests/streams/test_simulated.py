"""The simulated device: order, events, faults, and its use by threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from vmflow.errors import DeviceDeadlock, DeviceLost
from vmflow.streams.simulated import (
    SimulatedDevice,
    SimulatedEvent,
    SimulatedQueue,
    SimulatedStreamPolicy,
    parse_mode,
)

QUEUES = ("compute", "host_to_device", "device_to_host")


def unexpected(error: BaseException) -> None:
    raise AssertionError(f"work was made to fail: {error!r}")


class Log:
    """Work that notes that it ran, or how it failed."""

    def __init__(self) -> None:
        self.ran: list[object] = []
        self.failed: list[tuple[object, BaseException]] = []

    def put(self, queue: SimulatedQueue, name: object) -> None:
        def work() -> None:
            self.ran.append(name)

        def fail(error: BaseException) -> None:
            self.failed.append((name, error))

        queue.enqueue(work, fail)


class Program:
    """A random program, and the required order of its pieces of work: sets of them, as the bits of integers."""

    def __init__(self, mode: str, seed: int, length: int = 40) -> None:
        self.device = SimulatedDevice(mode=mode, seed=seed)
        self.queues = [self.device.queue(name) for name in QUEUES]
        self.log = Log()
        self.home: list[int] = []
        self.behind: list[int] = []
        self.events: list[tuple[SimulatedEvent, int]] = []
        self._known = [0] * len(QUEUES)
        self._random = random.Random(f"{mode} {seed}")
        for _ in range(length):
            self._random.choice((self._enqueue, self._enqueue, self._record, self._wait))()
            self.after_each()

    def _enqueue(self) -> None:
        queue, piece = self._random.randrange(len(QUEUES)), len(self.behind)
        self.home.append(queue)
        self.behind.append(self._known[queue])
        self._known[queue] |= 1 << piece
        self.log.put(self.queues[queue], piece)

    def _record(self) -> None:
        queue = self._random.randrange(len(QUEUES))
        self.events.append((self.queues[queue].record(), self._known[queue]))

    def _wait(self) -> None:
        if self.events:
            queue = self._random.randrange(len(QUEUES))
            event, covers = self._random.choice(self.events)
            self._known[queue] |= covers
            self.queues[queue].wait(event)

    def after_each(self) -> None:
        """An event says that it has been reached exactly when everything before it has run."""
        if self.device.mode == "lazy":
            assert self.log.ran == []
        if self.device.mode == "eager":
            assert len(self.log.ran) == len(self.behind)
        for event, covers in self.events:
            reached = event.query()
            assert reached == (covers & ~self.done() == 0)

    def done(self) -> int:
        return sum(1 << piece for piece in self.log.ran if isinstance(piece, int))

    def check_order(self) -> None:
        done = 0
        for piece in self.log.ran:
            assert isinstance(piece, int)
            assert self.behind[piece] & ~done == 0
            done |= 1 << piece


# Order


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
@pytest.mark.parametrize("seed", range(5))
def test_a_queue_keeps_order(mode: str, seed: int) -> None:
    device = SimulatedDevice(mode=mode, seed=seed)
    log = Log()
    for number in range(20):
        for name in QUEUES:
            log.put(device.queue(name), (name, number))
    device.drain()
    for name in QUEUES:
        assert [entry for entry in log.ran if isinstance(entry, tuple) and entry[0] == name] == [
            (name, number) for number in range(20)
        ]
    assert device.ran == device.enqueued == 60


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
def test_random_programs_keep_every_order_that_they_ask_for(mode: str) -> None:
    for seed in range(200):
        program = Program(mode, seed)
        for event, covers in program.events:
            event.synchronize()
            assert covers & ~program.done() == 0
        program.device.drain()
        program.check_order()
        assert len(program.log.ran) == len(program.behind) == program.device.ran
        assert not any(queue.busy for queue in program.queues)


def test_one_seed_means_one_order_and_others_mean_others() -> None:
    orders = set()
    for seed in range(20):
        first, second = (Program("random", 7) for _ in range(2))
        assert first.log.ran == second.log.ran
        device, log = SimulatedDevice(seed=seed), Log()
        for number in range(6):
            for name in QUEUES:
                log.put(device.queue(name), (name, number))
        device.drain()
        orders.add(tuple(log.ran))
    assert len(orders) == 20


def test_a_random_device_is_both_ahead_of_the_host_and_behind_it() -> None:
    ran = []
    for seed in range(20):
        device, log = SimulatedDevice(mode="random", seed=seed), Log()
        for number in range(5):
            log.put(device.queue("compute"), number)
        ran.append(len(log.ran))
    assert min(ran) < 5
    assert max(ran) == 5


def test_a_random_device_goes_on_while_the_host_polls() -> None:
    device, log = SimulatedDevice(mode="random", seed=3), Log()
    gate = device.event()
    device.queue("compute").wait(gate)
    for number in range(100):
        log.put(device.queue("compute"), number)
    event = device.queue("compute").record()
    device.queue("other").record(gate)
    polls = 0
    while not event.query():
        polls += 1
    assert polls > 1
    assert device.host_waits == 0


def test_nothing_runs_on_a_lazy_device_before_the_host_waits() -> None:
    device, log = SimulatedDevice(), Log()
    queue = device.queue("compute")
    log.put(queue, "a")
    event = queue.record()
    log.put(queue, "b")
    assert not any(event.query() for _ in range(100))
    assert log.ran == []
    assert device.host_waits == 0
    event.synchronize()
    assert log.ran == ["a"]
    assert event.query()
    event.synchronize()
    assert device.host_waits == 1
    assert (device.ran, device.enqueued, len(queue)) == (1, 2, 1)


def test_an_event_behind_nothing_has_been_reached_at_once() -> None:
    device = SimulatedDevice()
    event = device.queue("compute").record()
    assert event.query()
    device.queue("device_to_host").wait(event)
    assert not device.queue("device_to_host").busy
    assert device.queue("device_to_host"), "an idle queue is still a queue"


def test_a_wait_holds_its_own_queue_and_no_other() -> None:
    device, log = SimulatedDevice(mode="eager"), Log()
    gate = device.event()
    device.queue("compute").wait(gate)
    log.put(device.queue("compute"), "held")
    log.put(device.queue("device_to_host"), "free")
    assert log.ran == ["free"]
    assert device.queue("compute").busy
    device.queue("device_to_host").record(gate)
    assert log.ran == ["free", "held"]


def test_a_step_runs_one_piece() -> None:
    device, log = SimulatedDevice(), Log()
    assert not device.step()
    log.put(device.queue("compute"), 1)
    device.queue("compute").record()
    log.put(device.queue("compute"), 2)
    assert device.step()
    assert log.ran == [1]
    assert device.step()
    assert not device.step()
    assert log.ran == [1, 2]


def test_a_queue_is_the_same_under_the_same_name() -> None:
    device = SimulatedDevice()
    assert device.queue("compute") is device.queue("compute")
    assert device.queue("compute") is not device.queue("copy")


# Mistakes of the caller


@pytest.mark.parametrize(
    ("text", "result"), [("lazy", ("lazy", 0)), ("eager", ("eager", 0)), ("random:17", ("random", 17))]
)
def test_modes_are_parsed(text: str, result: tuple[str, int]) -> None:
    assert parse_mode(text) == result


@pytest.mark.parametrize("text", ["", "slow", "random:", "random:x", "random:-1", ":3", "random:1:2", "random:²"])
def test_other_modes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"'eager', 'lazy' or 'random', or one of them and a seed as 'random:17'"):
        parse_mode(text)


def test_a_device_refuses_a_mode_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="mode must be 'eager', 'lazy' or 'random', not 'random:3'"):
        SimulatedDevice(mode="random:3")


def test_events_of_another_device_are_refused() -> None:
    device, other = SimulatedDevice("sim:0"), SimulatedDevice("sim:1")
    event = other.queue("compute").record()
    queue = device.queue("compute")
    with pytest.raises(ValueError, match="event 1 of compute belongs to sim:1, and sim:0 cannot wait for it"):
        queue.wait(event)
    with pytest.raises(ValueError, match="belongs to sim:1"):
        device.run_until(event)
    with pytest.raises(ValueError, match="belongs to sim:1"):
        queue.record(other.event())
    assert not queue.busy


def test_an_event_is_recorded_once() -> None:
    queue = SimulatedDevice().queue("compute")
    event = queue.record()
    with pytest.raises(ValueError, match="event 1 of compute has been recorded already"):
        queue.record(event)


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ("enqueue more", lambda device, event: device.queue("compute").enqueue(lambda: None, unexpected)),
        ("record an event", lambda device, event: device.queue("compute").record()),
        ("wait for an event", lambda device, event: device.queue("compute").wait(event)),
        ("wait for an event", lambda device, event: event.synchronize()),
        ("make it go on", lambda device, event: device.step()),
        ("drain it", lambda device, event: device.drain()),
    ],
)
def test_work_may_not_use_its_device(what: str, act: Callable[[SimulatedDevice, SimulatedEvent], None]) -> None:
    device, log = SimulatedDevice(), Log()
    queue = device.queue("compute")
    event = queue.record()
    queue.enqueue(lambda: act(device, event), unexpected)
    log.put(queue, "after")
    with pytest.raises(RuntimeError, match=f"a piece of work that runs on sim:0 tried to {what}: only the host may"):
        device.drain()
    device.drain()
    assert log.ran == ["after"]
    assert device.enqueued == 2


@pytest.mark.parametrize("mode", ["lazy", "random"])
def test_work_may_look_at_an_event_and_moves_nothing(mode: str) -> None:
    device, log = SimulatedDevice(mode=mode), Log()
    gate = device.event()
    seen: list[bool] = []
    device.queue("compute").wait(gate)
    for number in range(50):
        log.put(device.queue("compute"), number)
    end = device.queue("compute").record()
    device.queue("other").enqueue(lambda: seen.extend(end.query() for _ in range(50)), unexpected)
    device.queue("other").record(gate)
    device.drain()
    assert seen == [False] * 50
    assert log.ran == list(range(50))


def test_an_error_that_escapes_comes_out_and_the_queue_goes_on() -> None:
    device, log = SimulatedDevice(), Log()
    queue = device.queue("compute")

    def broken() -> None:
        raise ZeroDivisionError("escaped")

    queue.enqueue(broken, unexpected)
    log.put(queue, "after")
    event = queue.record()
    with pytest.raises(ZeroDivisionError, match="escaped"):
        device.run_until(event)
    device.run_until(event)
    assert log.ran == ["after"]
    assert device.ran == 2


# Deadlock


def test_queues_that_wait_for_each_other_are_found_and_described() -> None:
    device, log = SimulatedDevice(seed=5), Log()
    compute, copy = device.queue("compute"), device.queue("copy")
    first, second = device.event(), device.event()
    compute.wait(second)
    log.put(compute, "a")
    compute.record(first)
    copy.wait(first)
    log.put(copy, "b")
    copy.record(second)
    log.put(device.queue("free"), "c")
    with pytest.raises(DeviceDeadlock) as caught:
        first.synchronize()
    assert str(caught.value) == (
        "the host waits for event 1 of compute, which can never come:\n"
        "sim:0 (lazy, seed 5): 1 of 3 pieces of work run\n"
        "  compute: 3 left, held by event 1 of copy\n"
        "  copy: 3 left, held by event 1 of compute\n"
        "  free: idle"
    )
    with pytest.raises(DeviceDeadlock):
        device.drain()
    with pytest.raises(DeviceDeadlock):
        device.proceed()
    assert log.ran == ["c"]
    assert not device.step()


def test_an_event_that_nobody_records_is_named_as_such() -> None:
    device = SimulatedDevice()
    event = device.event()
    with pytest.raises(DeviceDeadlock, match="the host waits for an event that was never recorded"):
        event.synchronize()
    device.queue("compute").wait(event)
    with pytest.raises(DeviceDeadlock, match="compute: 1 left, held by an event that was never recorded"):
        device.drain()


def test_the_description_names_the_work_at_the_head() -> None:
    device = SimulatedDevice("sim:3", "random", seed=2)

    def kernel() -> None: ...

    device.queue("compute").wait(device.event())
    lazy = SimulatedDevice("sim:4")
    lazy.queue("compute").enqueue(kernel, unexpected)
    lazy.lose()
    assert "sim:4 (lazy, seed 0, lost): 0 of 1 pieces of work run\n  compute: 1 left, next is " in lazy.describe()
    assert "kernel" in lazy.describe()
    assert "sim:3 (random, seed 2): 0 of 0 pieces of work run" in device.describe()


# Faults


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
def test_a_planted_failure_hits_the_piece_that_was_counted(mode: str) -> None:
    device, log = SimulatedDevice(mode=mode, seed=1), Log()
    queue = device.queue("compute")
    log.put(queue, 0)
    device.drain()
    error = MemoryError("planted")
    device.fail_after(3, error)
    for number in range(1, 6):
        log.put(queue, number)
    device.drain()
    assert log.ran == [0, 1, 2, 4, 5]
    assert log.failed == [(3, error)]
    assert device.ran == device.enqueued == 6


def test_several_failures_can_be_planted() -> None:
    device, log = SimulatedDevice(), Log()
    first, second = ValueError("first"), ValueError("second")
    device.fail_after(1, first)
    device.fail_after(3, second)
    for number in range(4):
        log.put(device.queue("compute"), number)
    device.drain()
    assert log.failed == [(0, first), (2, second)]


def test_a_failure_cannot_be_planted_in_the_past() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, for the next piece of work, not 0"):
        SimulatedDevice().fail_after(0, ValueError())


def test_a_lost_device_fails_pending_work_and_wakes_all_waiters() -> None:
    device, log = SimulatedDevice("sim:1"), Log()
    compute, copy = device.queue("compute"), device.queue("copy")
    log.put(compute, "before")
    compute.record().synchronize()
    cause = OSError("unplugged")
    log.put(compute, "a")
    copy.wait(compute.record())
    log.put(copy, "b")
    event = copy.record()
    device.lose(cause)
    event.synchronize()
    assert log.ran == ["before"]
    assert [name for name, _ in log.failed] == ["a", "b"]
    errors = [error for _, error in log.failed]
    assert all(isinstance(error, DeviceLost) and error.__cause__ is cause for error in errors)
    assert str(errors[0]) == "sim:1 was lost before this ran"
    assert errors[0] is not errors[1], "a note that is added to one must not change the other"
    device.restore()
    log.put(compute, "after")
    device.drain()
    assert log.ran == ["before", "after"]


def test_restoring_forgets_planted_failures() -> None:
    device, log = SimulatedDevice(), Log()
    device.fail_after(1, ValueError())
    device.restore()
    log.put(device.queue("compute"), 1)
    device.drain()
    assert log.ran == [1]
    assert log.failed == []


# Threads


class Held:
    """Work that ends when the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(60)


def started(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def joined(thread: threading.Thread) -> None:
    thread.join(60)
    assert not thread.is_alive()


def until_waiting(device: SimulatedDevice) -> None:
    """Return when the one host thread that is about to wait does: it counts itself under the lock that it waits on."""
    while device.host_waits == 0:
        device.describe()
    device.describe()


def test_a_thread_waits_for_another_that_steps() -> None:
    device, log, held = SimulatedDevice(), Log(), Held()
    queue = device.queue("compute")
    queue.enqueue(held, unexpected)
    behind_held = queue.record()
    log.put(queue, "after")
    end = queue.record()
    stepping = started(device.step)
    assert held.begun.wait(60)
    assert not behind_held.query()
    waiting = started(end.synchronize)
    until_waiting(device)
    assert log.ran == []
    assert device.ran == 1
    held.may_end.set()
    joined(stepping)
    joined(waiting)
    assert behind_held.query()
    assert log.ran == ["after"]


def test_a_thread_that_waits_is_let_go_by_anothers_step_and_not_later() -> None:
    device, first, second = SimulatedDevice(), Held(), Held()
    queue = device.queue("compute")
    queue.enqueue(first, unexpected)
    event = queue.record()
    queue.enqueue(second, unexpected)
    stepping = started(device.drain)
    assert first.begun.wait(60)
    waiting = started(event.synchronize)
    first.may_end.set()
    joined(waiting)
    second.may_end.set()
    joined(stepping)
    assert device.ran == 2


@pytest.mark.parametrize("mode", ["lazy", "random"])
def test_neither_enqueueing_nor_polling_waits_for_a_step(mode: str) -> None:
    device, log, held = SimulatedDevice(mode=mode), Log(), Held()

    def hold() -> None:
        device.queue("held").enqueue(held, unexpected)
        device.drain()

    stepping = started(hold)
    assert held.begun.wait(60)
    queue = device.queue("compute")
    for number in range(50):
        log.put(queue, number)
    event = queue.record()
    assert not any(event.query() for _ in range(50))
    held.may_end.set()
    joined(stepping)
    device.drain()
    assert log.ran == list(range(50))


def test_an_event_recorded_during_a_step_is_not_reached_before_its_end() -> None:
    device, held = SimulatedDevice(), Held()
    queue = device.queue("compute")
    queue.enqueue(held, unexpected)
    stepping = started(device.step)
    assert held.begun.wait(60)
    event = queue.record()
    assert not event.query()
    held.may_end.set()
    joined(stepping)
    assert event.query()


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
def test_many_threads_share_a_device(mode: str) -> None:
    device, log = SimulatedDevice(mode=mode, seed=9), Log()

    def use(thread: int) -> None:
        queue = device.queue(f"queue {thread}")
        for number in range(50):
            log.put(queue, (thread, number))
            if number % 5 == 0:
                queue.record().synchronize()
                assert (thread, number) in log.ran
        queue.record().synchronize()

    threads = [started(lambda thread=thread: use(thread)) for thread in range(4)]  # type: ignore[misc]
    for thread in threads:
        joined(thread)
    assert device.ran == 200
    for index in range(4):
        mine = [entry for entry in log.ran if isinstance(entry, tuple) and entry[0] == index]
        assert mine == [(index, number) for number in range(50)]


# The policy


def test_the_policy_hands_over_and_waits() -> None:
    device, log = SimulatedDevice(), Log()
    compute = SimulatedStreamPolicy("compute", device.queue("compute"))
    copy = SimulatedStreamPolicy("device_to_host", device.queue("device_to_host"))
    assert compute.asynchronous
    assert not compute.sequential
    assert compute.on_scheduler_thread(10**9, True)
    compute.enqueue(lambda: log.ran.append("a"), unexpected)
    copy.wait(compute.record())
    copy.enqueue(lambda: log.ran.append("b"), unexpected)
    log.put(compute.queue, "c")
    copy.synchronize()
    assert log.ran.index("a") < log.ran.index("b")
    assert not copy.queue.busy
    compute.synchronize()
    assert sorted(str(name) for name in log.ran) == ["a", "b", "c"]
    assert repr(copy) == "SimulatedStreamPolicy('device_to_host', 'device_to_host' of 'sim:0')"


def test_the_policy_makes_one_step_while_the_host_has_nothing_else_to_do() -> None:
    device, log = SimulatedDevice(), Log()
    policy = SimulatedStreamPolicy("compute", device.queue("compute"))
    for number in range(2):
        log.put(policy.queue, number)
    for ran in ([0], [0, 1], [0, 1]):
        woken: list[list[object]] = []
        policy.await_progress(device.event(), lambda woken=woken: woken.append(list(log.ran)))  # type: ignore[misc]
        assert woken == [ran]
    policy.wait(device.event())
    with pytest.raises(DeviceDeadlock):
        policy.await_progress(device.event(), lambda: None)


def test_the_policy_raises_for_events_that_it_cannot_wait_for() -> None:
    class OtherEvent:
        def query(self) -> bool:
            return True

        def synchronize(self) -> None: ...

    queue = SimulatedDevice().queue("compute")
    with pytest.raises(ValueError, match="is no event of a simulated device"):
        SimulatedStreamPolicy("compute", queue).wait(OtherEvent())
    with pytest.raises(ValueError, match="kind must be 'compute', 'host_to_device' or 'device_to_host', not 'copy'"):
        SimulatedStreamPolicy("copy", queue)
