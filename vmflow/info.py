"""Versions, devices and settings: `collect_info`, and `show_config` as text for people and bug reports."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, Final, NamedTuple

import numpy as np

from . import __version__
from .cuda import availability as cuda_availability
from .devices import device as Device
from .errors import DeviceUnavailable
from .kernels import blas_core
from .kernels.codegen import describe, one_line
from .kernels.intra_op import get_num_threads, usable_cpus
from .streams.cuda.emulation.driver import DEFAULT_BYTES as EMULATED_BYTES
from .streams.cuda.setting import EMULATED_DEVICES
from .vm.memory import format_bytes
from .vm.stall_watch import STALL_SECONDS
from .vm.stream_table import SIMULATED_BYTES, device_memory, known_devices

_PREFIX: Final = "VMFLOW_"

_UNKNOWN: Final = "unknown"


class Variable(NamedTuple):
    """An environment variable that vmflow reads, its default and its meaning, for `collect_info`."""

    name: str
    default: str
    meaning: str


VARIABLES: Final = (
    Variable("VMFLOW_CACHE_DIR", "vmflow in XDG_CACHE_HOME", "the folder in which compiled kernels are kept"),
    Variable("VMFLOW_C_CHECKS", "0", "1: compiled kernels check their arguments, and end the process if one is wrong"),
    Variable("VMFLOW_C_FLAGS", "none", "further flags for the C compiler, such as -fsanitize=undefined"),
    Variable(
        "VMFLOW_CUDA",
        "auto",
        "off: no CUDA devices; emulated: by the CPU, in a mode of VMFLOW_SIM as in emulated:eager",
    ),
    Variable("VMFLOW_CUDA_DEVICES", str(EMULATED_DEVICES), "how many CUDA devices are emulated"),
    Variable("VMFLOW_CUDA_MEMORY", str(EMULATED_BYTES), "bytes that an emulated CUDA device has"),
    Variable("VMFLOW_DEBUG_COMM", "0", "1: ranks compare each op of global tensors before they run it; slow"),
    Variable("VMFLOW_GRAPH_ACTORS", "0", "1: run every plan of a graph by actors, also one of a single task"),
    Variable("VMFLOW_JIT", "background", "0: numpy alone; 1: wait for the C compiler; else numpy until it is done"),
    Variable("VMFLOW_RACE_CHECK", "0", "1: watch for unordered accesses to the same memory; slow"),
    Variable("VMFLOW_SIM", "lazy", "how simulated devices run: lazy, eager or random, with a seed as in random:17"),
    Variable("VMFLOW_SIM_MEMORY", str(SIMULATED_BYTES), "bytes that a simulated device has"),
    Variable("VMFLOW_STALL_SECONDS", f"{STALL_SECONDS:g}", "seconds without progress before waiting is reported"),
)


def collect_info() -> dict[str, Any]:
    """Collect versions, build, machine, devices, memory and environment, as strings, numbers, lists and dicts.

    A value is None if there is none or it is not known; a reason why something cannot be used is None if it can.
    """
    core = blas_core.loaded_core()
    return {
        "vmflow": {
            "version": __version__,
            "folder": os.path.dirname(os.path.abspath(__file__)),
            "compiled_modules": compiled_modules(),
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "numpy": {
            "version": np.__version__,
            "blas": _blas(),
            "blas_threads": _blas_threads(),
            "blas_core": core,
            "blas_hint": blas_core.hint(core, blas_core.cpu_flags()),
        },
        "platform": {
            "system": platform.platform(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "usable_cpus": usable_cpus(),
            "kernel_threads": get_num_threads(),
        },
        "kernels": describe(),
        "cuda": cuda_availability.describe(),
        "devices": {name: _availability(name) for name in ("cpu", "cuda", "sim")},
        "memory": {str(device): _memory(device) for device in dict.fromkeys([Device("cpu"), *known_devices()])},
        "environment": _environment(),
    }


def show_config() -> str:
    """The result of `collect_info` as text, for people and bug reports; ``python -m vmflow info`` prints it.

    Example:
        >>> flow.show_config().startswith("vmflow")
        True
    """
    return format_info(collect_info())


def format_info(info: dict[str, Any]) -> str:
    """Format `info`, a result of `collect_info`, as lines of text."""
    numpy, system, environment = info["numpy"], info["platform"], info["environment"]
    compiled = info["vmflow"]["compiled_modules"]
    core = f"yes (mypyc), {len(compiled)} modules: {', '.join(compiled)}" if compiled else "no"
    threads = numpy["blas_threads"]
    lines = [
        f"vmflow    {info['vmflow']['version']} in {info['vmflow']['folder']}",
        f"          compiled core: {core}",
        f"Python    {info['python']['version']} ({info['python']['implementation']}), {info['python']['executable']}",
        f"numpy     {numpy['version']}, BLAS {numpy['blas'] or _UNKNOWN}",
        f"          BLAS kernels for {numpy['blas_core'] or _UNKNOWN}",
        *([f"          hint: {numpy['blas_hint']}"] if numpy["blas_hint"] else []),
        f"platform  {system['system']}, {system['machine']}",
        f"CPUs      {system['cpus'] or _UNKNOWN}, of which this process may use {system['usable_cpus'] or _UNKNOWN}",
        f"threads   BLAS {threads if threads is not None else f'{_UNKNOWN} (threadpoolctl is not installed)'}",
        f"          other kernels {system['kernel_threads']}",
        f"C kernels {one_line(info['kernels'])}",
        *_cuda_lines(info["cuda"]),
        "devices",
    ]
    for name, reason in info["devices"].items():
        lines.append(f"  {name:<6}  {'available' if reason is None else f'not available: {reason}'}")
    lines.append("memory")
    for name, memory in info["memory"].items():
        limit = "no limit" if memory["limit"] is None else f"limit {format_bytes(memory['limit'])}"
        lines.append(
            f"  {name:<6}  {format_bytes(memory['used'])} in use, at most {format_bytes(memory['peak'])}; {limit}"
        )
    lines.append("environment")
    width = max([len(name) for name in environment])
    for name, variable in environment.items():
        value = variable["value"]
        shown = f"{value!r}" if value is not None else f"not set, as {variable['default']!r}"
        lines.append(f"  {name:<{width}}  {shown}: {variable['meaning']}")
    return "\n".join(lines)


def _cuda_lines(cuda: dict[str, Any]) -> list[str]:
    driver = _UNKNOWN if cuda["driver"] is None else f"for CUDA {cuda['driver']} at most"
    packages = ", ".join([f"{package} {version}" for package, version in cuda["cupy"].items()])
    return [
        f"CUDA      driver {driver}",
        *[f"          GPU {index}: {name}" for index, name in enumerate(cuda["devices"])],
        f"          {packages or 'cupy not installed'}",
        f"          NVRTC {cuda['nvrtc'] or 'not found'}",
    ]


def compiled_modules() -> list[str]:
    """The names of vmflow's imported modules that are compiled extensions instead of Python files."""
    return [
        name
        for name, module in sorted(sys.modules.items())
        if name.startswith("vmflow.")
        and not name.endswith("__mypyc")  # the shared library of mypyc's modules
        and (getattr(module, "__file__", None) or "").endswith(tuple(EXTENSION_SUFFIXES))
    ]


def _blas() -> str | None:
    """Name and version of the BLAS that numpy was built with; None if numpy does not know it."""
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    name = blas.get("name")
    return None if name is None else f"{name} {blas.get('version', _UNKNOWN)}"


def _blas_threads() -> int | None:
    try:
        # Imported by name, since threadpoolctl need not be installed, and has no type information.
        threadpoolctl: Any = import_module("threadpoolctl")
    except ImportError:
        return None
    counts = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return max(counts) if counts else None


def _availability(name: str) -> str | None:
    """A sentence that says why the device `name` cannot be used (or that a variable is malformed); None if it can."""
    try:
        Device(name).require()
    except (DeviceUnavailable, ValueError) as error:
        return str(error)
    return None


def _memory(device: Device) -> dict[str, Any]:
    memory = device_memory(device)
    return {"used": memory.used, "peak": memory.peak, "limit": memory.limit}


def _environment() -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {
        variable.name: {
            "value": os.environ.get(variable.name),
            "default": variable.default,
            "meaning": variable.meaning,
        }
        for variable in VARIABLES
    }
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in found:
            found[name] = {
                "value": os.environ[name],
                "default": None,
                "meaning": "not known to this version, and ignored",
            }
    return found
