"""The race detector, against an oracle that keeps every access to every cell, and against planted bugs on a device."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable

import pytest

from vmflow.errors import RaceDetected
from vmflow.streams.races import Clock, RaceDetector, Ticket
from vmflow.streams.simulated import SimulatedDevice, SimulatedEvent

STREAMS = ("compute", "host_to_device", "device_to_host")
CELLS = 24


def unexpected(error: BaseException) -> None:
    raise AssertionError(f"work was made to fail: {error!r}")


class Launch:
    """Something launched, as the oracle sees it: sets of launches are the bits of integers."""

    def __init__(self, number: int, stream: str, ticket: Ticket, behind: int) -> None:
        self.number = number
        self.stream = stream
        self.ticket = ticket
        self.through = behind | 1 << number


class Recorded:
    """One event, as the device, the detector and the oracle see it."""

    def __init__(self, event: SimulatedEvent, clock: Clock, covers: int) -> None:
        self.event = event
        self.clock = clock
        self.covers = covers


class Storage:
    """A named range of cells."""

    def __init__(self, name: str, start: int, stop: int) -> None:
        self.name = name
        self.cells = range(start, stop)


class Bench:
    """A host with a simulated device, a detector that watches, and an oracle that knows.

    The memory is a list of numbers.  Everything launched is computed twice: by the device when it gets there, and at
    once in a second memory, which thus holds the right values.
    """

    def __init__(self, mode: str, seed: int) -> None:
        self.device = SimulatedDevice(mode=mode, seed=seed)
        self.detector = RaceDetector(strict=False)
        self.memory = [0] * CELLS
        self.right = [0] * CELLS
        self.wrong = False
        self.launches: list[Launch] = []
        self.behind = dict.fromkeys(STREAMS, 0)
        self.host = 0
        self.history: list[list[tuple[int, bool]]] = [[] for _ in range(CELLS)]

    # Actions of the host

    def allocate(self, name: str, start: int, stop: int) -> Storage:
        storage = Storage(name, start, stop)
        self.detector.handed_out("block", start, stop, storage)
        return storage

    def free(self, storage: Storage) -> None:
        self.detector.freed("block", storage.cells.start, storage.cells.stop, storage)

    def launch(self, stream: str, reads: tuple[Storage, ...], writes: tuple[Storage, ...]) -> Launch:
        number = len(self.launches)
        kernel = _kernel(number, reads, writes)
        kernel(self.right)
        ticket = self.detector.launched(stream, reads, writes, f"kernel {number}")
        launch = Launch(number, stream, ticket, self.behind[stream] | self.host)
        self.launches.append(launch)
        self.behind[stream] = launch.through
        for storages, wrote in ((reads, False), (writes, True)):
            for cell in _cells(storages):
                self.history[cell].append((number, wrote))
        self.device.queue(stream).enqueue(lambda: kernel(self.memory), unexpected)
        return launch

    def record(self, stream: str) -> Recorded:
        return Recorded(
            self.device.queue(stream).record(), self.detector.recorded(stream), self.behind[stream] | self.host
        )

    def wait(self, stream: str, recorded: Recorded) -> None:
        self.device.queue(stream).wait(recorded.event)
        self.detector.waits(stream, recorded.clock)
        self.behind[stream] |= recorded.covers

    def finish(self, launch: Launch) -> None:
        self.record(launch.stream).event.synchronize()
        self.detector.finished(launch.ticket)
        self.host |= launch.through

    def host_read(self, storage: Storage) -> None:
        self.detector.host_access(storage, False, "numpy()")
        for cell in storage.cells:
            self.wrong = self.wrong or self.memory[cell] != self.right[cell]

    def host_write(self, storage: Storage, value: int) -> None:
        self.detector.host_access(storage, True, "fill()")
        for cell in storage.cells:
            self.memory[cell] = self.right[cell] = value

    def quiet(self) -> None:
        self.device.drain()
        self.detector.quiet()
        self.host = (1 << len(self.launches)) - 1

    def end(self) -> Bench:
        self.device.drain()
        self.wrong = self.wrong or self.memory != self.right
        return self

    # Answers of the oracle

    def unordered(self, behind: int, reads: tuple[Storage, ...], writes: tuple[Storage, ...]) -> int:
        """The launches that such an access has to be behind and is not."""
        found = 0
        for cell in _cells(writes):
            found |= sum({1 << number for number, _ in self.history[cell]})
        for cell in _cells(reads):
            found |= sum({1 << number for number, wrote in self.history[cell] if wrote})
        return found & ~behind & ~self.host


def _cells(storages: tuple[Storage, ...]) -> list[int]:
    return [cell for storage in storages for cell in storage.cells]


def _kernel(number: int, reads: tuple[Storage, ...], writes: tuple[Storage, ...]) -> Callable[[list[int]], None]:
    def compute(memory: list[int]) -> None:
        # Each value depends on all that was read and on the instruction, so that no two orders give the same.
        total = number + 1
        for cell in _cells(reads):
            total = (total * 31 + memory[cell]) % 1_000_003
        for cell in _cells(writes):
            memory[cell] = total + cell

    return compute


class RandomProgram(Bench):
    """Launches, waits, host accesses and reuse of memory as a seed has them.

    Args:
        careful: how likely it is that a wait that is needed is placed.
    """

    def __init__(self, mode: str, seed: int, careful: float, length: int = 50) -> None:
        super().__init__(mode, seed)
        self.random = random.Random(f"{mode} {seed}")
        self.careful = careful
        self.recorded: list[Recorded] = []
        self.live: list[Storage] = []
        # Whether the oracle found a race, after each thing done, up to the first.
        self.racy = False
        for number in range(6):
            self.live.append(self.allocate(f"first {number}", number * 4, number * 4 + 4))
        doings = (self.do_launch,) * 6 + (self.do_record,) * 2 + (self.do_wait, self.do_host, self.do_reuse)
        while length and not self.racy:
            length -= 1
            if self.random.random() < 0.01:
                self.quiet()
            self.random.choice(doings)()
            assert bool(self.detector.races) == self.racy, self.detector.races
        self.end()

    def some(self, most: int) -> tuple[Storage, ...]:
        return tuple(self.random.sample(self.live, self.random.randint(0, min(most, len(self.live)))))

    def do_launch(self) -> None:
        stream, reads, writes = self.random.choice(STREAMS), self.some(2), self.some(2)
        while missing := self.unordered(self.behind[stream], reads, writes):
            if self.random.random() >= self.careful:
                self.racy = True
                break
            self.place_wait(stream, missing)
        self.launch(stream, reads, writes)

    def do_record(self) -> None:
        self.recorded.append(self.record(self.random.choice(STREAMS)))

    def do_wait(self) -> None:
        if self.recorded:
            self.wait(self.random.choice(STREAMS), self.random.choice(self.recorded))

    def do_host(self) -> None:
        if not self.live:
            return
        storage, write = self.random.choice(self.live), self.random.random() < 0.5
        reads, writes = ((), (storage,)) if write else ((storage,), ())
        while missing := self.unordered(0, reads, writes):
            if self.random.random() >= self.careful:
                self.racy = True
                break
            self.finish(self.pick(missing))
        if write:
            self.host_write(storage, self.random.randrange(1000))
        else:
            self.host_read(storage)

    def do_reuse(self) -> None:
        """Free some storages, and cut free memory into others."""
        for storage in self.some(3):
            self.live.remove(storage)
            self.free(storage)
        taken = set(_cells(tuple(self.live)))
        start = self.random.randrange(CELLS)
        while start < CELLS:
            stop = start
            while stop < CELLS and stop not in taken and stop - start < 6:
                stop += 1
            if stop > start:
                self.live.append(self.allocate(f"storage at {start}", start, stop))
            start = stop + 1

    def pick(self, launches: int) -> Launch:
        return self.random.choice([launch for launch in self.launches if launches >> launch.number & 1])

    def place_wait(self, stream: str, missing: int) -> None:
        """Order one of the missing launches in one of the ways that there are."""
        launch = self.pick(missing)
        events = [recorded for recorded in self.recorded if recorded.covers >> launch.number & 1]
        way = self.random.randrange(3)
        if way == 0:
            self.finish(launch)
        elif way == 1 and events:
            self.wait(stream, self.random.choice(events))
        else:
            self.wait(stream, self.record(launch.stream))


# Random programs


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
def test_correct_programs_are_never_flagged_and_compute_right_values(mode: str) -> None:
    launches = 0
    for seed in range(300):
        program = RandomProgram(mode, seed, careful=1.0)
        assert program.detector.races == []
        assert not program.wrong
        launches += len(program.launches)
    assert launches > 300 * 20, "the programs must do something"


def test_careless_programs_are_flagged_exactly_where_the_oracle_finds_a_race() -> None:
    racy = [RandomProgram("lazy", seed, careful=0.95).racy for seed in range(600)]
    assert 100 < sum(racy) < 500, "both kinds must occur"


# Planted bugs: each without its bug must be right and without a report


class Noise:
    """Launches on storages of one stream each, which need no waits and order nothing."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.storages = {stream: bench.allocate(stream, 16 + 2 * n, 18 + 2 * n) for n, stream in enumerate(STREAMS)}

    def __call__(self) -> None:
        for _ in range(self.random.randrange(4)):
            stream = self.random.choice(STREAMS)
            self.bench.launch(stream, (self.storages[stream],), (self.storages[stream],))


def missing_wait(bench: Bench, noise: Noise, planted: bool) -> None:
    x, y = bench.allocate("x", 0, 4), bench.allocate("y", 4, 8)
    noise()
    bench.launch("host_to_device", (), (x,))
    noise()
    if not planted:
        bench.wait("compute", bench.record("host_to_device"))
    bench.launch("compute", (x,), (y,))
    noise()


def missing_wait_of_a_write(bench: Bench, noise: Noise, planted: bool) -> None:
    x, y = bench.allocate("x", 0, 4), bench.allocate("y", 4, 8)
    bench.launch("host_to_device", (), (x,))
    noise()
    bench.wait("compute", bench.record("host_to_device"))
    bench.launch("compute", (x,), (y,))
    noise()
    if not planted:
        bench.wait("host_to_device", bench.record("compute"))
    bench.launch("host_to_device", (), (x,))
    noise()


def missing_wait_between_writes(bench: Bench, noise: Noise, planted: bool) -> None:
    x = bench.allocate("x", 0, 4)
    bench.launch("host_to_device", (), (x,))
    noise()
    if not planted:
        bench.wait("compute", bench.record("host_to_device"))
    bench.launch("compute", (), (x,))
    noise()


def memory_reused_too_early(bench: Bench, noise: Noise, planted: bool) -> None:
    x, y = bench.allocate("x", 0, 4), bench.allocate("y", 4, 8)
    noise()
    bench.launch("compute", (), (x,))
    bench.wait("device_to_host", bench.record("compute"))
    bench.launch("device_to_host", (x,), (y,))
    noise()
    bench.free(x)
    z = bench.allocate("z", 2, 4)
    if not planted:
        bench.wait("compute", bench.record("device_to_host"))
    bench.launch("compute", (), (z,))
    noise()


def host_reads_too_early(bench: Bench, noise: Noise, planted: bool) -> None:
    x = bench.allocate("x", 0, 4)
    noise()
    launch = bench.launch("device_to_host", (), (x,))
    noise()
    if not planted:
        bench.finish(launch)
    bench.host_read(x)


def host_writes_too_early(bench: Bench, noise: Noise, planted: bool) -> None:
    x, y = bench.allocate("x", 0, 4), bench.allocate("y", 4, 8)
    bench.host_write(x, 7)
    launch = bench.launch("host_to_device", (x,), (y,))
    noise()
    if not planted:
        bench.finish(launch)
    bench.host_write(x, 8)


def released_out_of_order(bench: Bench, noise: Noise, planted: bool) -> None:
    x, y = bench.allocate("x", 0, 4), bench.allocate("y", 4, 8)
    bench.launch("compute", (), (x,))
    noise()
    if planted:
        bench.free(x)
        bench.launch("compute", (x,), (y,))
    else:
        bench.launch("compute", (x,), (y,))
        bench.free(x)
    noise()


Scenario = Callable[[Bench, Noise, bool], None]

KINDS: dict[Scenario, str] = {
    missing_wait: "read after write",
    missing_wait_of_a_write: "write after read",
    missing_wait_between_writes: "write after write",
    memory_reused_too_early: "reuse of memory",
    host_reads_too_early: "read after write",
    host_writes_too_early: "write after read",
    released_out_of_order: "use after release",
}

# Those that make values wrong on a device that is late.  A release out of order needs a second mistake for that.
HARMFUL = [scenario for scenario in KINDS if scenario is not released_out_of_order]


def played(scenario: Scenario, mode: str, seed: int, planted: bool) -> Bench:
    bench = Bench(mode, seed)
    scenario(bench, Noise(bench, seed), planted)
    return bench.end()


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
@pytest.mark.parametrize("scenario", KINDS)
def test_a_planted_bug_is_always_flagged(scenario: Scenario, mode: str) -> None:
    for seed in range(100):
        bench = played(scenario, mode, seed, planted=True)
        assert [race.kind for race in bench.detector.races] == [KINDS[scenario]]


@pytest.mark.parametrize("mode", ["eager", "lazy", "random"])
@pytest.mark.parametrize("scenario", KINDS)
def test_without_its_bug_it_is_right_and_not_flagged(scenario: Scenario, mode: str) -> None:
    for seed in range(100):
        bench = played(scenario, mode, seed, planted=False)
        assert bench.detector.races == []
        assert not bench.wrong


@pytest.mark.parametrize("scenario", HARMFUL)
def test_an_eager_device_shows_no_bug_a_late_one_does(scenario: Scenario) -> None:
    wrong = {
        mode: sum(played(scenario, mode, seed, planted=True).wrong for seed in range(100))
        for mode in ("eager", "lazy", "random")
    }
    assert wrong["eager"] == 0
    assert wrong["random"] > 0
    if scenario in (host_reads_too_early, host_writes_too_early):
        assert wrong["lazy"] == 100
    else:
        assert 25 < wrong["lazy"] < 100


# One thing at a time


def test_the_report_names_both_accesses_and_is_written_only_when_needed() -> None:
    class Instruction:
        def __init__(self, name: str, line: int) -> None:
            self.text = f"{name} at train.py:{line}"
            self.asked = 0

        def __str__(self) -> str:
            self.asked += 1
            return self.text

    add, mul = Instruction("add", 3), Instruction("mul", 4)
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), add)
    detector.launched("copy", ("x",), (), add)
    assert add.asked == 0
    with pytest.raises(RaceDetected) as caught:
        detector.launched("compute", ("x",), ("y",), mul)
    assert str(caught.value) == (
        "read after write: nothing orders two accesses to the same memory\n"
        "  earlier: add at train.py:3, on copy (writes)\n"
        "  later:   mul at train.py:4, on compute (reads)\n"
        "the later must wait for an event behind the earlier, or the host must know that the earlier has ended"
    )
    assert detector.races == [caught.value]


def test_the_report_names_streams_by_their_names_and_the_host() -> None:
    detector = RaceDetector()
    detector.launched(SimulatedDevice().queue("copy"), ("x",), (), "upload")
    with pytest.raises(RaceDetected, match=r"upload, on copy \(reads\)\n.*fill, on the host \(writes\)"):
        detector.host_access("x", True, "fill")


def test_a_strict_detector_takes_nothing_of_a_launch_that_it_refuses() -> None:
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), "upload")
    with pytest.raises(RaceDetected, match="write after write"):
        detector.launched("compute", (), ("fresh", "x"), "mul")
    # Neither was written: the stream of the refused launch is not waited for.
    detector.launched("copy", ("fresh", "x"), (), "download")


def test_a_lenient_detector_reports_one_mistake_once() -> None:
    detector = RaceDetector(strict=False)

    def kinds() -> list[str]:
        found = [race.kind for race in detector.races]
        detector.races.clear()
        return found

    detector.launched("copy", (), ("x",), "upload")
    for _ in range(2):
        detector.launched("compute", ("x",), ("x",), "add_")
    assert kinds() == ["read after write"]
    detector.launched("copy", ("y",), (), "download")
    for _ in range(2):
        detector.launched("compute", (), ("y",), "fill")
    assert kinds() == ["write after read"]
    for _ in range(2):
        detector.host_access("y", True, "fill")
    assert kinds() == ["write after write"]
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", ("a",), (), "download")
    detector.freed("block", 0, 10, "a")
    detector.handed_out("block", 0, 10, "b")
    for _ in range(2):
        detector.launched("compute", (), ("b",), "fill")
    assert kinds() == ["reuse of memory"]


def test_an_event_covers_launches_before_it_and_not_after() -> None:
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), "upload x")
    event = detector.recorded("copy")
    detector.launched("copy", (), ("y",), "upload y")
    detector.waits("compute", event)
    detector.launched("compute", ("x",), (), "use x")
    with pytest.raises(RaceDetected, match="upload y"):
        detector.launched("compute", ("y",), (), "use y")


def test_a_wait_orders_later_launches_even_through_a_third_stream() -> None:
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), "upload")
    detector.waits("compute", detector.recorded("copy"))
    # Nothing is launched between the wait and the next event: that event is behind the first all the same.
    detector.waits("download", detector.recorded("compute"))
    detector.launched("download", ("x",), (), "download")
    with pytest.raises(RaceDetected):
        detector.launched("fourth", ("x",), (), "elsewhere")


def test_reads_need_no_order_among_themselves() -> None:
    detector = RaceDetector()
    for stream in STREAMS:
        detector.launched(stream, ("x",), (), "read")
    detector.host_access("x", False, "read")
    for stream in STREAMS[1:]:
        detector.waits(STREAMS[0], detector.recorded(stream))
    detector.launched(STREAMS[0], (), ("x",), "write")


def test_a_write_waits_for_the_readers_of_every_stream() -> None:
    detector = RaceDetector()
    for stream in STREAMS:
        detector.launched(stream, ("x",), (), f"read on {stream}")
    detector.waits(STREAMS[0], detector.recorded(STREAMS[1]))
    with pytest.raises(RaceDetected, match=f"read on {STREAMS[2]}"):
        detector.launched(STREAMS[0], (), ("x",), "write")


def test_the_hosts_knowledge_orders_later_launches_on_every_stream() -> None:
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), "upload x")
    detector.waits("compute", detector.recorded("copy"))
    ticket = detector.launched("compute", (), ("y",), "make y")
    later = detector.launched("compute", (), ("z",), "make z")
    detector.finished(ticket)
    for key in ("x", "y"):
        detector.host_access(key, False, "numpy()")
        detector.launched("third", (key,), (), "use")
    for access in (
        lambda: detector.host_access("z", False, "numpy()"),
        lambda: detector.launched("third", ("z",), (), "use"),
    ):
        with pytest.raises(RaceDetected, match="make z"):
            access()
    detector.finished(later)
    detector.finished(ticket)
    detector.launched("third", ("z",), (), "use")


def test_memory_is_reused_by_range() -> None:
    detector = RaceDetector()
    detector.handed_out("block", 0, 100, "a")
    detector.launched("copy", ("a",), (), "download a")
    detector.freed("block", 0, 100, "a")
    detector.handed_out("block", 100, 200, "beside")
    detector.handed_out("another block", 0, 100, "elsewhere")
    detector.handed_out("block", 40, 60, "middle")
    detector.handed_out("block", 50, 50, "empty")
    detector.launched("compute", (), ("beside", "elsewhere", "empty"), "fine")
    detector.launched("compute", ("middle",), (), "two reads of the same memory")
    for start, stop in ((0, 40), (60, 100)):
        detector.handed_out("block", start, stop, (start, stop))
        with pytest.raises(RaceDetected, match=r"reuse of memory(.|\n)*download a, on copy \(reads its memory under"):
            detector.launched("compute", (), ((start, stop),), "reuse")
    with pytest.raises(RaceDetected, match="reuse of memory"):
        detector.launched("compute", (), ("middle",), "reuse")
    detector.waits("compute", detector.recorded("copy"))
    detector.launched("compute", (), ("middle", (0, 40), (60, 100)), "reuse")


def test_an_unused_storage_passes_on_earlier_accesses_to_its_memory() -> None:
    detector = RaceDetector()
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", (), ("a",), "upload a")
    detector.freed("block", 0, 10, "a")
    for number in range(3):
        detector.handed_out("block", 2, 8, number)
        detector.freed("block", 2, 8, number)
    detector.handed_out("block", 4, 6, "b")
    with pytest.raises(RaceDetected, match="upload a"):
        detector.launched("compute", ("b",), (), "read a storage that another still writes")
    with pytest.raises(RaceDetected, match="upload a"):
        detector.host_access("b", True, "fill")


def test_only_the_part_that_was_used_is_passed_on() -> None:
    detector = RaceDetector()
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", ("a",), (), "download a")
    detector.freed("block", 0, 10, "a")
    detector.handed_out("block", 8, 16, "across")
    detector.freed("block", 8, 16, "across")
    detector.handed_out("block", 10, 16, "never a's")
    detector.launched("compute", (), ("never a's",), "fine")
    detector.handed_out("block", 8, 10, "once a's")
    with pytest.raises(RaceDetected, match="reuse of memory"):
        detector.launched("compute", (), ("once a's",), "reuse")


def test_memory_may_be_freed_from_another_thread() -> None:
    detector = RaceDetector()
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", ("a",), (), "download a")
    thread = threading.Thread(target=detector.freed, args=("block", 0, 10, "a"))
    thread.start()
    thread.join()
    detector.handed_out("block", 0, 10, "b")
    with pytest.raises(RaceDetected, match="reuse of memory"):
        detector.launched("compute", (), ("b",), "reuse")


def test_a_storage_may_get_memory_again_or_be_forgotten() -> None:
    detector = RaceDetector()
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", (), ("a",), "upload")
    detector.freed("block", 0, 10, "a")
    with pytest.raises(RaceDetected, match=r"use after release(.|\n)*last used by upload, on copy"):
        detector.launched("copy", ("a",), (), "use")
    detector.handed_out("block", 0, 10, "a")
    detector.launched("copy", ("a",), (), "use")
    detector.freed("block", 0, 10, "a")
    detector.forget("a")
    detector.launched("compute", ("a",), (), "another storage of the same name")


def test_a_forgotten_storage_has_no_past() -> None:
    detector = RaceDetector()
    detector.launched("copy", (), ("x",), "upload")
    detector.forget("x")
    detector.launched("compute", ("x",), (), "use")


def test_knowledge_from_before_quiet_orders_no_later_launches() -> None:
    detector = RaceDetector()
    tickets = [detector.launched("copy", (), ("x",), "old") for _ in range(5)]
    event = detector.recorded("copy")
    detector.quiet()
    detector.launched("compute", ("x",), (), "no need to wait")
    detector.launched("copy", (), ("y",), "new")
    detector.finished(tickets[-1])
    detector.waits("compute", event)
    with pytest.raises(RaceDetected, match="new, on copy"):
        detector.launched("compute", ("y",), (), "use")


@pytest.mark.parametrize("tell", [RaceDetector.freed, RaceDetector.handed_out])
def test_ranges_end_where_they_start_or_later(tell: Callable[[RaceDetector, str, int, int, str], None]) -> None:
    detector = RaceDetector()
    with pytest.raises(ValueError, match="must not end before it starts, as 5 to 4 does"):
        tell(detector, "block", 5, 4, "a")


class Work:
    """Something launched, or a stream or a storage, that can be seen to be let go."""


def test_nothing_is_remembered_longer_than_needed() -> None:
    detector = RaceDetector()
    seen: list[weakref.ref[Work]] = []

    def launch(stream: str, reads: tuple[str, ...], writes: tuple[str, ...]) -> Ticket:
        work = Work()
        seen.append(weakref.ref(work))
        return detector.launched(stream, reads, writes, work)

    def alive() -> int:
        return sum(reference() is not None for reference in seen)

    for _ in range(100):
        launch("compute", ("x",), ("x",))
        launch("compute", ("x",), ())
    assert alive() <= 2
    for number in range(100):
        detector.handed_out("block", 0, 10, number)
        work = Work()
        seen.append(weakref.ref(work))
        detector.finished(detector.launched("compute", (), (number,), work))
        detector.freed("block", 0, 10, number)
        detector.handed_out("block", 0, 10, "next")
        detector.freed("block", 0, 10, "next")
        detector.forget(number)
        detector.forget("next")
    del work
    assert alive() <= 2
    launch("copy", (), ("y",))
    detector.quiet()
    assert alive() == 0


def test_streams_and_storages_are_let_go_when_it_is_quiet() -> None:
    detector = RaceDetector()
    stream, used, freed = Work(), Work(), Work()
    detector.finished(detector.launched(stream, (used,), (freed,), "use"))
    detector.freed("block", 0, 10, freed)
    detector.handed_out("block", 20, 30, used)
    seen = [weakref.ref(each) for each in (stream, used, freed)]
    detector.quiet()
    del stream, used, freed
    assert [reference() for reference in seen] == [None] * 3
