"""Fixtures and hooks of all tests; after each test, engines must be consistent and the current one idle.

The environment chooses where the tests run: ``VMFLOW_TEST_DEVICE=sim`` puts new tensors on the simulated accelerator
(``VMFLOW_SIM`` says how that behaves), ``cuda`` on a CUDA device, ``VMFLOW_TEST_CPU_WORKER=always`` or ``never`` fixes
where the CPU's work runs, ``VMFLOW_RACE_CHECK=1`` watches for unordered accesses, and ``VMFLOW_JIT=1`` uses kernels
compiled from C.
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

# No kernels are compiled: results must not depend on which are ready by then, and compiling would slow other tests.
os.environ.setdefault("VMFLOW_JIT", "0")

# Collecting tests and parsing sources make millions of objects that stay, which the usual thresholds visit many times.
gc.set_threshold(50_000, 20, 100)

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

# Many tests go through the table of all ops, so all modules that add to it are imported, whichever tests run.
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
    """Show the environment variables of vmflow, so that a failure can be repeated."""
    chosen = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("VMFLOW_")]
    return f"vmflow: {' '.join(chosen) or 'on the CPU'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the launches of emulated CUDA devices, and the calls of CuPy that numpy answered; of this process alone."""
    emulation = sys.modules.get("vmflow.streams.cuda.emulation.driver")
    if emulation is None or not emulation.LAUNCHES:
        return
    launches, calls = emulation.LAUNCHES, emulation.ARRAY_MODULE.calls
    terminalreporter.section("emulated CUDA devices")
    terminalreporter.line(f"{launches.total()} launches of {len(launches)} kernels")
    stood_in = ", ".join([f"{name.removeprefix('cupy.')} {count}" for name, count in calls.most_common()])
    terminalreporter.line(f"{calls.total()} calls of functions for which numpy stood in: {stood_in}")


def pytest_configure(config: pytest.Config) -> None:
    """Where no bytecode may be written next to sources, give programs that tests start another folder for it."""
    if sys.dont_write_bytecode and sys.pycache_prefix is None:
        folder = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="vmflow-bytecode-")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # A program that a test left behind may still write to the folder.
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that do not fit the device, and, without a worker, tests that need a thread for ops."""
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
    """Let later garbage collections pass over all objects that exist now, which would take a third of a second."""
    gc.collect()
    # Not if another machine runs: it may be garbage soon, once a thread ends, and frozen garbage is never freed.
    if all([machine in DEFAULT or machine.closed for machine in live_machines()]):
        gc.freeze()


@pytest.fixture(autouse=True)
def _on_the_device() -> Iterator[None]:
    """Make VMFLOW_TEST_DEVICE the default device of new tensors."""
    if TEST_DEVICE == "cpu":
        yield
        return
    before = MODE.get().device
    flow.set_default_device(TEST_DEVICE)
    yield
    MODE.set(MODE.get().replace(device=before))


@pytest.fixture(autouse=True)
def _devices_work() -> Iterator[None]:
    """If a CUDA device has stopped working in a test, let the next test open all anew."""
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
    # When an instruction that held tensors ends, their release may issue another: drain repeatedly.
    for _ in range(5):
        machine.drain()
    machine.engine.check_invariants()
    assert machine.engine.idle()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    flow.manual_seed(0)


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turn CUDA off, even on a machine with GPUs."""
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
