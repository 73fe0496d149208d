"""Kernels are compiled in the background, before they are launched."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.errors import DeviceLost
from vmflow.kernels.background import BACKGROUND, Background
from vmflow.kernels.choosing import Problem
from vmflow.kernels.cuda import arrays, nvrtc
from vmflow.kernels.cuda.rehearsal import RehearsingLauncher, rehearse
from vmflow.kernels.cuda.sources import CudaKernel
from vmflow.kernels.native.loading import LOADER
from vmflow.streams.cuda.driver import CompileTarget
from vmflow.streams.cuda.launching import Loadable
from vmflow.streams.cuda.registry import device_of

from . import table_cases
from .compiling import loaded_kernels
from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]


def test_launches_of_all_ops_can_be_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[tuple[Any, Problem]] = []
    rehearsed: set[Loadable] = set()
    monkeypatch.setattr(arrays, "rehearse_soon", lambda launch, problem: chosen.append((launch, problem)))
    monkeypatch.setattr(RehearsingLauncher, "function", lambda self, kernel: rehearsed.add(kernel))
    with emulated("lazy"):
        for case in table_cases.cases(dtypes=["float32"]):
            case.results("cuda")
        flow.synchronize()
        for launch, problem in chosen:
            rehearse(launch, problem, device_of(0))
        loaded = set(loaded_kernels())
    # All except those for operands of strides that could not be known.
    assert len(loaded & rehearsed) >= 0.95 * len(loaded) > 100


def test_a_kernel_is_compiled_before_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _watch_compiler(monkeypatch)
    with emulated("lazy"):
        x = flow.ones(3, device="cuda")
        flow.synchronize()
        y = x.asinh()
        assert BACKGROUND.wait(60)
        threads = dict(compiled)
        assert y.tolist() == [np.arcsinh(np.float32(1))] * 3
    (name,) = [name for name in threads if name.startswith("asinh")]
    assert threads[name] != threading.get_ident()


@pytest.mark.parametrize("mode", ["background", "wait"])
def test_a_chain_is_computed_one_by_one_until_its_kernel_is_there(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOADER, "mode", mode)
    go_on = threading.Event()
    compile_kernel = CudaKernel.compile

    def compile_chains_late(kernel: CudaKernel, target: CompileTarget) -> bytes:
        if kernel.name.startswith("atan_mul_scalar") and mode == "background":
            assert go_on.wait(60)
        return compile_kernel(kernel, target)

    monkeypatch.setattr(CudaKernel, "compile", compile_chains_late)
    with emulated("lazy") as devices:
        x = flow.linspace(-2, 2, 50, device="cuda")

        def chained() -> tuple[list[float], int]:
            flow.synchronize()
            before = devices.driver.launches
            found = ((x.atan() * 2.5).asinh() + x).tolist()
            return found, devices.driver.launches - before

        found, launches = chained()
        assert launches == (4 if mode == "background" else 1)
        go_on.set()
        assert BACKGROUND.wait(60)
        assert chained() == (found, 1)


def test_a_launch_that_cannot_be_rehearsed_is_launched_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: RehearsingLauncher, kernel: Loadable) -> None:
        raise ValueError("not today")

    monkeypatch.setattr(RehearsingLauncher, "function", fail)
    with emulated("lazy"), caplog.at_level("DEBUG", "vmflow.cuda"):
        x = flow.ones(3, device="cuda")
        flow.synchronize()
        assert x.acosh().tolist() == [0, 0, 0]
        assert BACKGROUND.wait(60)
    assert "the launch of acosh could not be rehearsed" in caplog.text


def test_nothing_is_rehearsed_for_a_device_that_has_stopped_working(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = _watch_compiler(monkeypatch)
    with emulated("lazy"):
        x = flow.ones(3, device="cuda")
        flow.synchronize()
        device_of(0).lose(DeviceLost("unplugged"))
        y = x.atanh()
        assert BACKGROUND.wait(60)
        with pytest.raises(DeviceLost):
            y.tolist()
    assert not [name for name in compiled if name.startswith("atanh")]


def test_a_kernel_that_cannot_be_compiled_fails_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: CudaKernel, target: CompileTarget) -> bytes:
        raise nvrtc.CompileError(kernel.name, "too many atoms", "", "")

    with emulated("lazy"):
        x = flow.ones(3, device="cuda")
        flow.synchronize()
        monkeypatch.setattr(CudaKernel, "compile", refuse)
        with pytest.raises(nvrtc.CompileError, match="too many atoms"):
            x.erfinv().tolist()
        assert BACKGROUND.wait(60)
        monkeypatch.undo()
        assert (x + 1).tolist() == [2, 2, 2]


def _watch_compiler(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By the name of a kernel, the thread that has called the compiler first."""
    found: dict[str, int] = {}
    compile_source = nvrtc.Nvrtc.compile

    def watched(self: nvrtc.Nvrtc, source: str, name: str = "", *rest: Any, **options: Any) -> nvrtc.Compiled:
        found.setdefault(name, threading.get_ident())
        return compile_source(self, source, name, *rest, **options)

    monkeypatch.setattr(nvrtc.Nvrtc, "compile", watched)
    return found


# The threads


class Busy:
    """A background with one thread, whose first task goes on when it is let go.

    Attributes:
        background: with the thread.
        go_on: lets the first task go on.
        done: the tasks that have been done.
    """

    def __init__(self) -> None:
        self.background = Background(1)
        self.go_on = threading.Event()
        self.done: list[str] = []
        begun = threading.Event()

        def first() -> None:
            begun.set()
            assert self.go_on.wait(60)
            self.done.append("first")

        self.background.add(first, 1)
        assert begun.wait(60)

    def add(self, name: str, purpose: int) -> None:
        """Add a task behind the first."""
        self.background.add(lambda: self.done.append(name), purpose)


def test_tasks_are_done_in_order_and_once_for_each_purpose() -> None:
    busy = Busy()
    busy.add("second", 2)
    busy.add("second again", 2)
    busy.add("third", 3)
    assert busy.background.pending() == 3
    assert not busy.background.wait(0)
    busy.go_on.set()
    assert busy.background.wait(60)
    assert busy.done == ["first", "second", "third"]
    assert busy.background.pending() == 0


def test_a_task_behind_a_running_one_gets_a_thread_of_its_own() -> None:
    background = Background(2)
    both = threading.Barrier(2, timeout=60)

    begun = threading.Event()

    def meet() -> None:
        begun.set()
        both.wait()

    background.add(meet, 1)
    assert begun.wait(60)
    background.add(meet, 2)
    assert background.wait(60)
    assert not both.broken


def test_without_memory_for_a_thread_no_task_stays_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    background = Background(2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        background.add(lambda: None, 1)
    assert background.pending() == 0
    assert background.wait(0)


def test_no_further_task_is_begun_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy()
    busy.add("second", 2)
    wait = busy.background.wait

    def let_go(timeout: float | None) -> bool:
        busy.go_on.set()
        return wait(timeout)

    monkeypatch.setattr(busy.background, "wait", let_go)
    busy.background.end()
    assert busy.done == ["first"]
