"""After every test: no engine contradicts itself, and nothing is left behind.

The environment chooses where the tests run: ``VMFLOW_TEST_DEVICE=sim`` puts what names no device on the simulated
accelerator (``VMFLOW_SIM`` says how that behaves), ``VMFLOW_TEST_CPU_WORKER=always`` or ``never`` fixes where the CPU's
work runs, ``VMFLOW_RACE_CHECK=1`` watches for unordered accesses, and ``VMFLOW_JIT=1`` computes in C what can be.
"""

# ruff: noqa: E402 (the environment has to be set before numpy is imported)

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

# Two threads of OpenBLAS stall each other for milliseconds where cores are shared, and the
# matrices here are too small for a second thread to help.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# What a compiler has finished meanwhile must not decide what a test sees, nor take the time of the others.
os.environ.setdefault("VMFLOW_JIT", "0")

import pytest
from hypothesis import HealthCheck, settings

import vmflow as flow
from vmflow.context import MODE
from vmflow.cuda import availability
from vmflow.functions import LATE_FUNCTIONS
from vmflow.streams.cuda import registry
from vmflow.vm import stream_table
from vmflow.vm.machine_fields import DEFAULT
from vmflow.vm.virtual_machine import VirtualMachine, current_machine, live_machines

# Many tests go through the table of all ops, which has to be the same whichever tests run.
for _module in sorted({*LATE_FUNCTIONS.values()}):
    importlib.import_module(_module)

# How long examples take says something about the machine, and about other tests that run beside.
settings.register_profile("vmflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vmflow")

TEST_DEVICE = os.environ.get("VMFLOW_TEST_DEVICE", "cpu")
CPU_WORKER = os.environ.get("VMFLOW_TEST_CPU_WORKER", "auto")

if CPU_WORKER != "auto":
    DEFAULT.append(VirtualMachine("default", cpu_worker=CPU_WORKER))


def pytest_report_header() -> str:
    """So that a failure can be repeated."""
    chosen = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("VMFLOW_")]
    return f"vmflow: {' '.join(chosen) or 'on the CPU'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what emulated CUDA devices have run, and which functions of CuPy were numpy's; of this process alone."""
    emulation = sys.modules.get("vmflow.streams.cuda.emulation.driver")
    if emulation is None or not emulation.LAUNCHES:
        return
    launches, calls = emulation.LAUNCHES, emulation.ARRAY_MODULE.calls
    terminalreporter.section("emulated CUDA devices")
    terminalreporter.line(f"{launches.total()} launches of {len(launches)} kernels")
    stood_in = ", ".join([f"{name.removeprefix('cupy.')} {count}" for name, count in calls.most_common()])
    terminalreporter.line(f"{calls.total()} calls of functions for which numpy stood in: {stood_in}")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that tests start would each compile all that they import, where nothing is to be written next to it."""
    if sys.dont_write_bytecode and sys.pycache_prefix is None:
        folder = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="vmflow-bytecode-")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # One that was left behind may still write to it.
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the host say nothing about another device, and some need a thread for ops."""
    if CPU_WORKER == "never":
        for item in items:
            if item.get_closest_marker("worker") is not None:
                item.add_marker(pytest.mark.skip(reason="without a worker, an op would wait on the thread of the test"))
    if TEST_DEVICE == "cuda":
        for item in items:
            if item.get_closest_marker("host_arrays") is not None:
                item.add_marker(pytest.mark.skip(reason="kernels of CUDA devices are given no arrays of the host"))
            if item.get_closest_marker("not_on_cuda") is not None:
                item.add_marker(pytest.mark.skip(reason="graphs of CUDA devices fail, copy or are traced otherwise"))
    if TEST_DEVICE != "cpu":
        for item in items:
            if item.get_closest_marker("host") is not None or isinstance(item, pytest.DoctestItem):
                item.add_marker(pytest.mark.skip(reason="about the host, whatever the device"))


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """What has been imported, collected and kept so far need not be looked at, which takes a third of a second."""
    gc.collect()
    # A machine that something still holds, such as a thread at its end, may be garbage soon, and its memory is wanted.
    if all([machine in DEFAULT for machine in live_machines()]):
        gc.freeze()


@pytest.fixture(autouse=True)
def _on_the_device() -> Iterator[None]:
    """New tensors go where the environment says."""
    if TEST_DEVICE == "cpu":
        yield
        return
    before = MODE.get().device
    flow.set_default_device(TEST_DEVICE)
    yield
    MODE.set(MODE.get().replace(device=before))


@pytest.fixture(autouse=True)
def _devices_work() -> Iterator[None]:
    """A device that has stopped working in a test is opened anew for the next."""
    yield
    if [device for device in registry.opened() if device.lost is not None]:
        registry.replace_devices([])
        stream_table.replace_memories({})
        DEFAULT.clear()


@pytest.fixture(autouse=True)
def _engines_are_sound() -> Iterator[None]:
    yield
    for machine in live_machines():
        machine.engine.check_invariants()
        if machine.races is not None:
            assert machine.races.detector.races == []
    machine = current_machine()
    # The end of what held tensors may be the beginning of their release.
    for _ in range(5):
        machine.drain()
    machine.engine.check_invariants()
    assert machine.engine.idle()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    flow.manual_seed(0)


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CUDA is off, whatever GPUs this machine has."""
    monkeypatch.setenv("VMFLOW_CUDA", "off")
    availability.forget()
    yield
    availability.forget()


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect garbage before and after, for tests that count objects."""
    gc.collect()
    yield
    gc.collect()
