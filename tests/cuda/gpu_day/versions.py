"""The stage that reports the hardware and the versions of the software."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Final

import numpy as np

import vmflow as flow
from vmflow.kernels.cuda import nvrtc

from .findings import Findings

_PACKAGES: Final = (
    *("cupy-cuda12x", "cupy-cuda13x", "nvmath-python", "cuda-bindings", "cuda-core", "ml-dtypes", "torch"),
    *("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc", "nvidia-cublas-cu12", "nvidia-cublas", "pytest"),
)
_ASKED_OF_NVIDIA: Final = (
    "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,memory.used,mig.mode.current"
)
_PATIENCE: Final = 20


def run(findings: Findings) -> None:
    """See the module.

    Raises:
        DeviceUnavailable: if there is no device to try anything on.
    """
    findings.fact("python", platform.python_version())
    findings.fact("numpy", np.__version__)
    findings.fact("vmflow", flow.__version__)
    findings.fact("commit", commit())
    findings.fact("digest of the sources", digest())
    findings.fact("packages", _packages())
    findings.fact("cpu", f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    findings.fact("settings", {name: value for name, value in os.environ.items() if name.startswith("VMFLOW_")})
    asked = _output("nvidia-smi", f"--query-gpu={_ASKED_OF_NVIDIA}", "--format=csv")
    findings.fact("nvidia-smi", asked or _output("nvidia-smi", "-L"))
    if not flow.cuda.is_available():
        raise flow.DeviceUnavailable(flow.cuda.why_not())
    findings.fact("nvrtc", ".".join(map(str, nvrtc.library().version)))
    findings.fact("devices", [_properties(index) for index in range(flow.cuda.device_count())])
    if not findings.task.emulated:
        findings.fact("cuda", _of_cupy())
    with findings.check("a kernel runs"):
        x = flow.arange(6.0, device="cuda")
        assert (x + 1).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def commit() -> str:
    """The commit that is checked out, and whether files differ from it; "unknown" where git cannot tell."""
    found = _output("git", "rev-parse", "HEAD")
    if not found:
        return "unknown"
    return found + (", and changes" if _output("git", "status", "--porcelain", "--untracked-files=no") else "")


def digest() -> str:
    """A digest of all of vmflow's sources, for where there is no git."""
    made = hashlib.sha256()
    assert flow.__file__ is not None
    paths: list[Path] = []
    for folder, _, names in os.walk(Path(flow.__file__).parent, followlinks=True):
        paths += [Path(folder, name) for name in names if name.endswith((".py", ".c", ".h"))]
    for path in sorted(paths):
        made.update(path.read_bytes())
    return made.hexdigest()[:16]


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _properties(index: int) -> dict[str, object]:
    return flow.cuda.get_device_properties(index)._asdict()


def _of_cupy() -> dict[str, int]:
    from cupy.cuda import runtime  # which a machine without a GPU may lack

    return {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}


def _output(*command: str) -> str:
    """The output of a program; nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
