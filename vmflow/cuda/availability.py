"""Finds out whether this process can use CUDA devices; if not, one sentence names the missing part and a remedy.

The parts are looked at in this order: the variable ``VMFLOW_CUDA``, the driver, its GPUs, the installed package of
cupy, and the import of cupy; for emulated devices, NVRTC instead.  If an earlier part is missing, cupy is not imported.

The answer is remembered, even if ``VMFLOW_CUDA`` changes; a forked child asks again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from vmflow.forking import lock_held_while_forking
from vmflow.kernels.cuda import nvrtc
from vmflow.streams.cuda.setting import DEVICES_VARIABLE, VARIABLE, Setting, emulated_devices_of, setting_of

from . import libcuda

# The oldest version of cupy that is known to work, and the first newer one that is not known to work.
OLDEST_CUPY: Final = (14, 0, 1)
NEXT_CUPY: Final = (15,)

# The packages of cupy for NVIDIA GPUs, and the CUDA that each is built for: None for the package of sources.
CUPY_PACKAGES: Final[dict[str, int | None]] = {
    "cupy-cuda11x": 11,
    "cupy-cuda12x": 12,
    "cupy-cuda13x": 13,
    "cupy": None,
}

# For each major version of CUDA: vmflow's extra that installs a cupy for it, and the first Linux driver that runs it.
_EXTRAS: Final = {13: "cuda13", 12: "cuda12"}
_DRIVERS: Final = {13: 580, 12: 525}

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def find_nvrtc() -> Path | None:
    """The path of NVRTC, the library that compiles CUDA C++; None if it is not installed."""
    return nvrtc.find()


def installed_cupy() -> dict[str, str]:
    """The packages of `CUPY_PACKAGES` that are installed, with their versions."""
    found: dict[str, str] = {}
    for package in CUPY_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


class Probes(NamedTuple):
    """The environment and functions by which `find` looks for the parts of CUDA on this machine; tests replace them.

    Attributes:
        environment: the environment variables.
        load_driver: returns the driver's library, or raises OSError.
        installed_cupy: returns the packages that contain cupy, with their versions.
        import_cupy: imports cupy.
        find_nvrtc: returns the path of NVRTC, or None if it is not installed.
    """

    environment: Mapping[str, str] = os.environ
    load_driver: Callable[[], Any] = libcuda.load
    installed_cupy: Callable[[], dict[str, str]] = installed_cupy
    import_cupy: Callable[[], object] = lambda: import_module("cupy")
    find_nvrtc: Callable[[], Path | None] = find_nvrtc


class Findings(NamedTuple):
    """The CUDA devices that can be used, or the reason why none can.

    Attributes:
        setting: the parsed value of VMFLOW_CUDA.
        devices: the names of the devices by index; empty if they cannot be used.
        reason: one sentence that names the missing part and a remedy; None if the devices can be used.
    """

    setting: Setting
    devices: tuple[str, ...] = ()
    reason: str | None = None


def find(probes: Probes | None = None) -> Findings:
    """Find out anew whether CUDA devices can be used; see `findings` for the remembered answer.

    Args:
        probes: the functions that look at the machine; None for the real ones, others in tests.

    Raises:
        ValueError: if VMFLOW_CUDA or, for emulated devices, VMFLOW_CUDA_DEVICES is malformed.
    """
    probes = probes or Probes()
    setting = setting_of(probes.environment)
    if setting.kind == "off":
        return Findings(setting, reason=f"{VARIABLE}=off turns CUDA off; unset it to use CUDA devices")
    if setting.kind == "emulated":
        return _find_emulated(setting, probes)
    try:
        driver = libcuda.ask(probes.load_driver())
    except OSError as error:
        return Findings(setting, reason=_no_driver(error))
    reason = _refused_by_driver(driver, probes.environment.get(_VISIBLE))
    if reason is None:
        packages = probes.installed_cupy()
        reason = _unsuitable_package(packages, driver) or _failed_import(packages, probes.import_cupy)
    return Findings(setting, driver.devices if reason is None else (), reason)


def _find_emulated(setting: Setting, probes: Probes) -> Findings:
    count = emulated_devices_of(probes.environment)
    if probes.find_nvrtc() is None:
        return Findings(
            setting,
            reason=f"{VARIABLE}=emulated compiles kernels by the library NVRTC, which is not installed; "
            "pip install 'vmflow[cuda-check]'",
        )
    return Findings(setting, ("emulated on the CPU",) * count)


# Sentences about missing parts


def _no_driver(error: OSError) -> str:
    return (
        f"there is no NVIDIA driver here ({error}); install the driver of the GPU, or give a container "
        "access to it, as docker run --gpus all does"
    )


def _refused_by_driver(driver: libcuda.Driver, visible: str | None) -> str | None:
    if driver.error is None and driver.devices:
        return None
    if driver.error is None or driver.error.number == libcuda.NO_DEVICE:
        if visible is None:
            return "the NVIDIA driver finds no GPU; see which GPUs nvidia-smi lists"
        return (
            f"the NVIDIA driver shows no GPU to this process, for which {_VISIBLE} is {visible!r}; unset it, or set it "
            "to a GPU that nvidia-smi lists"
        )
    if driver.error.number == libcuda.NOT_INITIALIZED:
        return (
            "this process was forked from one that had asked for CUDA devices, after which the driver does not work in "
            "it; start processes by the method 'spawn' of multiprocessing"
        )
    return (
        f"the NVIDIA driver does not start ({driver.error}); see what nvidia-smi says, and restart the machine if its "
        "driver has been updated"
    )


def _unsuitable_package(packages: dict[str, str], driver: libcuda.Driver) -> str | None:
    """A sentence that says why the installed cupy does not suit vmflow or the driver; None if it suits."""
    if not packages:
        return f"cupy is not installed; {_install(driver)}"
    if len(packages) > 1:
        return (
            f"{' and '.join(packages)} are installed together and overwrite each other's files; "
            f"{_replace(packages, driver)}"
        )
    ((package, version),) = packages.items()
    if not OLDEST_CUPY <= _release(version) < NEXT_CUPY:
        return (
            f"{package} {version} is installed, but vmflow needs cupy {'.'.join(map(str, OLDEST_CUPY))} or later and "
            f"below {NEXT_CUPY[0]}; {_replace(packages, driver)}"
        )
    major = CUPY_PACKAGES[package]
    if major is not None and driver.cuda[0] < major:
        return (
            f"{package} needs a driver for CUDA {major}, but the driver here is for CUDA {_dotted(driver.cuda)} at "
            f"most; update the driver to {_DRIVERS[major]} or later"
            + (f", or {_replace(packages, driver)}" if _extras(driver) else "")
        )
    return None


def _failed_import(packages: dict[str, str], import_cupy: Callable[[], object]) -> str | None:
    try:
        import_cupy()
    except Exception as error:  # a broken package may raise anything
        ((package, version),) = packages.items()
        return (
            f"{package} {version} is installed but cannot be imported ({_one_line(_root(error))}); "
            f"pip install --force-reinstall {package}=={version}"
        )
    return None


def _root(error: BaseException) -> BaseException:
    """The first cause of an exception: cupy wraps an import error in another one with a page of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, so that versions compare: "14.0.1rc1" gives (14, 0, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0]))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


# The way out


def _extras(driver: libcuda.Driver) -> list[str]:
    """vmflow's extras, quoted as in "'vmflow[cuda12]'", whose cupy the driver can run; the newest CUDA first."""
    return [f"'vmflow[{extra}]'" for major, extra in _EXTRAS.items() if major <= driver.cuda[0]]


def _install(driver: libcuda.Driver) -> str:
    extras = _extras(driver)
    if extras:
        return f"pip install {' or '.join(extras)}, which the driver for CUDA {_dotted(driver.cuda)} can run"
    oldest = min(_EXTRAS)
    return (
        f"update the driver, which is for CUDA {_dotted(driver.cuda)} at most, to {_DRIVERS[oldest]} or later, and "
        f"pip install 'vmflow[{_EXTRAS[oldest]}]'"
    )


def _replace(packages: dict[str, str], driver: libcuda.Driver) -> str:
    return f"pip uninstall {' '.join(packages)}, then {_install(driver)}"


# The answer of this process

_lock: Final = lock_held_while_forking()
_remembered: list[Findings] = []


def findings() -> Findings:
    """The remembered result of `find` on this machine; the first call computes it.

    Raises:
        ValueError: as `find`.
    """
    with _lock:
        if not _remembered:
            _remembered.append(find())
        return _remembered[0]


def forget() -> None:
    """Forget the result of `findings`, so that its next call looks at the machine and the environment again."""
    with _lock:
        _remembered.clear()


# A forked child must ask again: the driver does not work in it if the parent had started the driver.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)


def why_not() -> str | None:
    """The reason why no CUDA device can be used, and a remedy.

    The first call finds the answer, which later calls return; it may import cupy.

    Returns:
        One sentence, or None if CUDA devices can be used.

    Raises:
        ValueError: if VMFLOW_CUDA or, for emulated devices, VMFLOW_CUDA_DEVICES is malformed.

    Example:
        >>> (flow.cuda.why_not() is None) == flow.cuda.is_available()
        True
    """
    return findings().reason


def device_count() -> int:
    """How many CUDA devices can be used.

    Raises:
        ValueError: as `find`.
    """
    return len(findings().devices)


def why_not_device(index: int) -> str | None:
    """A sentence that says why the CUDA device number `index`, at least 0, cannot be used; None if it can.

    Raises:
        ValueError: as `find`.
    """
    return _why_not_device(index, findings(), os.environ)


def _why_not_device(index: int, found: Findings, environment: Mapping[str, str]) -> str | None:
    count = len(found.devices)
    if found.reason is not None or index < count:
        return found.reason
    devices = f"{count} CUDA device{'' if count == 1 else 's'}"
    if found.setting.kind == "emulated":
        return f"{devices} {'is' if count == 1 else 'are'} emulated, as {DEVICES_VARIABLE} says"
    shown = environment.get(_VISIBLE)
    return f"this machine has {devices}" + ("" if shown is None else f" for which {_VISIBLE} is {shown!r}")


# For bug reports


def describe(probes: Probes | None = None) -> dict[str, Any]:
    """The part of `vmflow.info` about CUDA; a missing driver or NVRTC is None, and so is "why_not" if CUDA can be used.

    The driver is not asked if VMFLOW_CUDA turns CUDA off.

    Args:
        probes: as for `find`.
    """
    asked = probes or Probes()
    off = False
    try:
        found = findings() if probes is None else find(probes)
        reason, off = found.reason, found.setting.kind == "off"
    except ValueError as error:
        reason = str(error)
    driver = None if off else _driver(asked)
    nvrtc = asked.find_nvrtc()
    return {
        "why_not": reason,
        "driver": None if driver is None else _dotted(driver.cuda),
        "devices": [] if driver is None else list(driver.devices),
        "cupy": asked.installed_cupy(),
        "nvrtc": None if nvrtc is None else str(nvrtc),
    }


def _driver(probes: Probes) -> libcuda.Driver | None:
    try:
        return libcuda.ask(probes.load_driver())
    except OSError:
        return None
