"""Mistakes that a GPU would seldom show are planted, and are found for any timing of the device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.errors import DeviceLost, RaceDetected
from vmflow.instructions.stream_events import StreamWait
from vmflow.kernels.cuda.sources import CudaKernel
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import CudaDevice, CudaEvent
from vmflow.streams.cuda.emulation.driver import EmulatedMachine
from vmflow.streams.cuda.launching import Launcher
from vmflow.vm.releases import Releases

from .emulated import emulated

pytestmark = pytest.mark.emulated

SEEDS = range(20)


def launcher_of(cuda: EmulatedMachine) -> Launcher:
    device = CudaDevice(cuda.drivers[0])
    return Launcher(device, device.driver.create_stream())


# Through the driver


def uploaded(launcher: Launcher, values: np.ndarray[Any, Any]) -> DeviceArray:
    out = launcher.driver.allocate(values.nbytes).strided(values.shape, values.dtype)
    staged = launcher.device.pinned.array(values.shape, values.dtype)
    launcher.driver.host_access(staged, write=True)
    staged[...] = values
    launcher.copy(out, staged)
    return out


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_wait_for_an_event_is_found(seed: int) -> None:
    launcher = launcher_of(EmulatedMachine(1, "random", seed=seed))
    driver, other = launcher.driver, launcher.driver.create_stream()
    x = uploaded(launcher, np.arange(64, dtype=np.float32))
    landed = launcher.device.pinned.array(x.shape, x.dtype)
    with pytest.raises(RaceDetected, match="read after write"):
        driver.copy(landed, x, other)
    event = driver.create_event()
    driver.record(event, launcher.stream)
    driver.stream_wait(other, event)
    driver.copy(landed, x, other)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_by_the_host_before_the_copy_has_ended_is_found(seed: int) -> None:
    launcher = launcher_of(EmulatedMachine(1, "random", seed=seed))
    driver = launcher.driver
    x = uploaded(launcher, np.arange(64, dtype=np.float32))
    landed = launcher.device.pinned.array(x.shape, x.dtype)
    launcher.copy(landed, x)
    with pytest.raises(RaceDetected, match="read after write"):
        driver.host_access(landed, write=False)
    driver.synchronize_stream(launcher.stream)
    driver.host_access(landed, write=False)
    assert landed.tolist() == list(range(64))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_by_the_host_that_has_waited_for_another_device_is_found(seed: int) -> None:
    first, second = EmulatedMachine(2, "random", seed=seed).drivers
    stream, memory, landed = second.create_stream(), second.allocate(1024), second.pinned(1024)
    second.fill(memory, 7, stream)
    second.copy(landed, memory, stream)
    first.synchronize()
    with pytest.raises(RaceDetected, match="read after write"):
        second.host_access(landed, write=False)
    second.synchronize()
    second.host_access(landed, write=False)
    assert set(landed.tolist()) == {7}


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_that_is_freed_before_its_last_use_has_ended_is_found(seed: int) -> None:
    launcher = launcher_of(EmulatedMachine(1, "lazy", seed=seed))
    x = uploaded(launcher, np.arange(64, dtype=np.float32))
    landed = launcher.device.pinned.array(x.shape, x.dtype)
    launcher.driver.copy(landed, x, launcher.stream)
    launcher.take_launched()  # which kept the memory alive
    del x
    with pytest.raises(DeviceLost, match="freed before it had ended"):
        launcher.driver.synchronize_stream(launcher.stream)


SUM = """
extern "C" __global__ void total(float* out, const float* in) {
    __shared__ float shared[64];
    shared[threadIdx.x] = in[threadIdx.x OFFSET];
    BARRIER;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < 64; ++i) sum += shared[i];
        out[0] = sum;
    }
}
"""


def run_sum(seed: int, offset: str = "", barrier: str = "__syncthreads()") -> float:
    launcher = launcher_of(EmulatedMachine(1, "random", seed=seed))
    kernel = CudaKernel("total", SUM.replace("OFFSET", offset).replace("BARRIER", barrier))
    x = uploaded(launcher, np.arange(64, dtype=np.float32))
    out = launcher.driver.allocate(4).strided((1,), np.dtype(np.float32))
    kernel.launch(launcher, 1, (out, x), threads=64)
    landed = launcher.device.pinned.array((1,), out.dtype)
    launcher.copy(landed, out)
    launcher.driver.synchronize_stream(launcher.stream)
    return float(landed[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_barrier_is_found(seed: int) -> None:
    with pytest.raises(DeviceLost, match="total"):
        run_sum(seed, barrier="")
    assert run_sum(seed) == 2016


@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_past_the_end_is_found(seed: int) -> None:
    with pytest.raises(DeviceLost, match="total"):
        run_sum(seed, offset="+ 1")


def test_an_integer_for_a_double_is_found() -> None:
    """A GPU takes the eight bytes of an argument as they are."""
    launcher = launcher_of(EmulatedMachine(1, "lazy"))
    kernel = CudaKernel("put", 'extern "C" __global__ void put(double* out, double x) { *out = x; }')
    out = launcher.driver.allocate(8).strided((1,), np.dtype(np.float64))
    with pytest.raises(TypeError, match="put_param_1 is a double, and gets the integer 3"):
        kernel.launch(launcher, 1, (out, 3))
    kernel.launch(launcher, 1, (out, 3.0), threads=1)


# In the virtual machine: programs of a random size, and the value that each should find


def on_two_streams(size: int) -> tuple[float, float]:
    side = flow.cuda.Stream()
    x = flow.arange(float(size)).cuda()
    with flow.cuda.stream(side):
        y = x.to(flow.float64)
    z = y.to(flow.float32)
    return float(z.double().sum().item()), size * (size - 1) / 2


def with_memory_used_again(size: int) -> tuple[float, float]:
    side = flow.cuda.Stream()
    x = flow.arange(float(size)).cuda()
    with flow.cuda.stream(side):
        y = x.to(flow.float64)
    del x
    again = flow.ones(size).cuda()
    return float(again.double().sum().item()) + float(y.sum().item()), size + size * (size - 1) / 2


def read_back(size: int) -> tuple[float, float]:
    return float(flow.arange(float(size)).cuda().cpu().numpy().astype(float).sum()), size * (size - 1) / 2


def wait_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """A stream does not wait for the one that used a tensor before."""
    patch.setattr(StreamWait, "prepare", lambda policy, instruction: None)


def free_at_once(patch: pytest.MonkeyPatch) -> None:
    """Memory is free when its tensor is gone, even if work on it is running."""

    def issue(releases: Any) -> None:
        while releases.noted:
            storage = releases.noted.popleft()
            if storage.allocation is not None:
                storage.allocation.free()

    patch.setattr(Releases, "issue", issue)


def reach_at_once(patch: pytest.MonkeyPatch) -> None:
    """An event counts as reached before the device comes to it."""
    patch.setattr(CudaEvent, "query", lambda event: True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("plant", "program", "mode"),
    [
        # With a quick device, the host may hear that the work has ended before it relies on that.
        (wait_for_nothing, on_two_streams, "lazy"),
        (free_at_once, with_memory_used_again, "lazy"),
        (reach_at_once, read_back, "random"),
    ],
)
def test_a_mistake_of_the_machine_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    program: Callable[[int], tuple[float, float]],
    mode: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = random.Random(seed).randrange(20_000, 60_000)
    with emulated(mode, seed):
        found, right = program(size)
        assert found == right
    # The devices have to find it, and not the machine's own detector.
    with emulated(mode, seed, race_check=False), monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises((RaceDetected, DeviceLost)):
            program(size)
