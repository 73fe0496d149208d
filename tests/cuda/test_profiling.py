"""The profiler shows when a CUDA device has computed, by the times of its events."""

from __future__ import annotations

import pytest

import vmflow as flow
from vmflow import nn, profiler

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


def test_a_lost_device_has_no_times() -> None:
    with emulated("lazy") as devices:
        x = flow.arange(6.0, device="cuda")
        flow.synchronize()
        with profiler.profile() as prof:
            devices.driver.lose(RuntimeError("pulled out"))
            with pytest.raises(flow.DeviceLost):
                (x + 1).tolist()
        assert not [event for event in prof.events() if event.kind == "compute"]
