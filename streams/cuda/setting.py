"""``VMFLOW_CUDA``: whether CUDA devices are used, and whether they are GPUs or emulated on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from vmflow.streams.simulated import parse_mode, parse_positive

VARIABLE: Final = "VMFLOW_CUDA"
DEVICES_VARIABLE: Final = "VMFLOW_CUDA_DEVICES"

# By default two devices are emulated, so that copies between devices can be tried.
EMULATED_DEVICES: Final = 2


class Setting(NamedTuple):
    """The CUDA devices to use.

    Attributes:
        kind: "auto" (the GPUs that CUDA finds), "off" (none) or "emulated" (devices that run kernels on the CPU).
        mode: when an emulated device runs its work, see `vmflow.streams.simulated.SimulatedDevice`.
        seed: of the order in which an emulated device runs its work.
    """

    kind: Literal["auto", "off", "emulated"]
    mode: str = "lazy"
    seed: int = 0


def parse_setting(text: str) -> Setting:
    """The setting that the value of VMFLOW_CUDA names.

    Args:
        text: "auto", "off", "emulated", or "emulated:" and a mode with or without a seed, as "emulated:random:17".

    Raises:
        ValueError: if it is none of these.
    """
    if text == "auto":
        return Setting("auto")
    if text == "off":
        return Setting("off")
    kind, colon, mode = text.partition(":")
    try:
        if kind == "emulated":
            return Setting("emulated", *(parse_mode(mode) if colon else ()))
    except ValueError as error:
        raise _malformed(text) from error
    raise _malformed(text)


def _malformed(text: str) -> ValueError:
    return ValueError(
        f"{VARIABLE} must be 'auto', 'off', 'emulated', or 'emulated:' and one of lazy, eager and random, with or "
        f"without a seed as in 'emulated:random:17'; not {text!r}"
    )


def parse_device_count(text: str) -> int:
    """The number of devices in the value of VMFLOW_CUDA_DEVICES.

    Raises:
        ValueError: if it is no positive integer.
    """
    return parse_positive(DEVICES_VARIABLE, text, EMULATED_DEVICES)


def setting_of(environment: Mapping[str, str]) -> Setting:
    """The setting in an environment, by default "auto".

    Raises:
        ValueError: if VMFLOW_CUDA is malformed.
    """
    return parse_setting(environment.get(VARIABLE, "auto"))


def emulated_devices_of(environment: Mapping[str, str]) -> int:
    """The number of devices that the setting "emulated" emulates, by default two.

    Raises:
        ValueError: if VMFLOW_CUDA_DEVICES is malformed.
    """
    return parse_device_count(environment.get(DEVICES_VARIABLE, str(EMULATED_DEVICES)))
