"""The profiler shows when a CUDA device has computed, by the times of its events."""

from __future__ import annotations

import re
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn, profiler
from vmflow.streams.cuda import policy as policies
from vmflow.streams.cuda.emulation import driver as emulation
from vmflow.streams.cuda.emulation.driver import EmulatedDriver, EmulatedEvent
from vmflow.streams.cuda.policy import CudaStreamPolicy
from vmflow.streams.cuda.registry import device_of

from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]


@pytest.mark.parametrize("race_check", [False, True])
def test_the_work_of_a_device_has_a_track_of_its_own(race_check: bool) -> None:
    with emulated("random", 3, race_check=race_check):
        x = flow.arange(6.0, device="cuda")
        graph = nn.Graph.trace(lambda x: x.softmax(0))
        graph(x).tolist()
        flow.synchronize()
        with profiler.profile() as prof:
            (x.softmax(0) + x.cumsum(0)).tolist()
            graph(x).tolist()
            flow.synchronize()
        computed = [event for event in prof.events() if event.kind == "compute"]
        names = [event.name for event in computed]
        assert {"softmax", "cumsum"} <= set(names)
        assert any("launch_lazy_job" in name for name in names)
        assert {"cuda:0:compute on the device", "cuda:0:device_to_host on the device"} <= {
            value.track for value in computed
        }
        runs = {event.number: event for event in prof.events() if event.kind == "run"}
        for track in {event.track for event in computed}:
            ends = [event.end for event in computed if event.track == track]
            assert ends == sorted(ends)
        for event in computed:
            assert event.begin <= event.end
            assert event.number in runs


def test_the_table_has_the_time_in_which_the_device_has_computed() -> None:
    with emulated("random", 3):
        with profiler.profile() as prof:
            (flow.arange(6.0).exp().cuda().softmax(0) + 1).tolist()
            flow.synchronize()
        computed: dict[tuple[str, str], float] = defaultdict(float)
        for event in prof.events():
            if event.kind == "compute":
                computed[event.name, event.track.removesuffix(" on the device")] += event.duration
        averages = prof.key_averages()
    assert computed["softmax", "cuda:0:compute"] > 0
    assert {(average.name, average.stream): average.device for average in averages if average.device} == pytest.approx(
        computed
    )
    lines = averages.table(sort_by="device").splitlines()
    assert re.split(r"  +", lines[0])[6:8] == ["host", "device"]
    assert averages.table(sort_by="cuda_time_total").splitlines() == lines
    assert re.search(r"devices [\d.]+ us; host", lines[-1])


def test_the_bytes_of_a_device_are_those_of_all_its_streams() -> None:
    with emulated("lazy") as devices, profiler.profile() as prof:
        x = flow.ones(1000, 1000, device="cuda")
        side = flow.cuda.Stream()
        with flow.cuda.stream(side):
            small = [flow.ones(10, device="cuda")]
            small.append(small[0] + 1)
        large = x + 1
        large.cpu().numpy()
        allocators = devices.machine.memory.of_device(x.device)
        held = [allocator.statistics()["allocated_bytes.all.current"] for allocator in allocators]
    values = [value.value for value in prof._laid_out().counters if value.name == "bytes on cuda:0"]
    assert len(held) == 2
    assert values == sorted(values)
    assert values[-1] == sum(held)


def test_times_have_their_digits_in_long_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA tells the milliseconds between two events in float32: after an hour, it counts quarters of a millisecond."""
    now = 0

    def elapsed(driver: EmulatedDriver, start: EmulatedEvent, end: EmulatedEvent) -> float:
        return float(np.float32((end.time - start.time) / 1e6))

    monkeypatch.setattr(emulation, "_note_time", lambda event, device: setattr(event, "time", now))
    monkeypatch.setattr(EmulatedDriver, "elapsed", elapsed)
    monkeypatch.setattr(policies, "time", SimpleNamespace(perf_counter_ns=lambda: now))
    with emulated("eager") as devices:
        policy = CudaStreamPolicy("compute", device_of(0), devices.driver.create_stream())
        for pause in (0, 3_600_000_000_000, *[700_000_000] * 200, 9_000_000_000, 11_000_000_000):
            now += pause
            times, marks = [], []
            for _ in range(4):
                now += 5_000
                times.append(now)
                mark = policy.mark()
                assert mark is not None
                marks.append(mark)
            found = [policy.nanoseconds(mark) for mark in marks]
            assert found == pytest.approx(times, rel=0, abs=5_000)
            assert np.diff(found) == pytest.approx(5_000, rel=0, abs=1_500)


def test_a_lost_device_has_no_times() -> None:
    with emulated("lazy") as devices:
        x = flow.arange(6.0, device="cuda")
        flow.synchronize()
        with profiler.profile() as prof:
            devices.driver.lose(RuntimeError("pulled out"))
            with pytest.raises(flow.DeviceLost):
                (x + 1).tolist()
        assert not [event for event in prof.events() if event.kind == "compute"]
