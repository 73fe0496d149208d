"""The values that VMFLOW_CUDA, VMFLOW_CUDA_DEVICES and VMFLOW_CUDA_MEMORY may have."""

from __future__ import annotations

import pytest

from vmflow.streams.cuda.emulation.driver import EmulatedMachine
from vmflow.streams.cuda.setting import Setting, emulated_devices_of, parse_device_count, parse_setting, setting_of


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("auto", Setting("auto")),
        ("off", Setting("off")),
        ("emulated", Setting("emulated", "lazy", 0)),
        ("emulated:lazy", Setting("emulated", "lazy", 0)),
        ("emulated:eager", Setting("emulated", "eager", 0)),
        ("emulated:random", Setting("emulated", "random", 0)),
        ("emulated:random:17", Setting("emulated", "random", 17)),
    ],
)
def test_settings(text: str, setting: Setting) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize(
    "text",
    ["", "on", "Off", "auto:lazy", "off:", "emulated:", "emulated:slow", "emulated:random:x", "emulated:lazy:-1"],
)
def test_malformed_settings(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_setting(text)
    message = str(refused.value)
    assert message.startswith("VMFLOW_CUDA must be 'auto', 'off', 'emulated', or")
    assert "'emulated:random:17'" in message
    assert message.endswith(f"not {text!r}")


def test_device_counts() -> None:
    assert parse_device_count("1") == 1
    assert parse_device_count("16") == 16


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "1.0", "²"])
def test_malformed_device_counts(text: str) -> None:
    with pytest.raises(ValueError, match="VMFLOW_CUDA_DEVICES must be a positive integer such as '2', not "):
        parse_device_count(text)


@pytest.mark.parametrize("text", ["1e9", "0", "-5"])
def test_malformed_sizes_of_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CUDA_MEMORY", text)
    with pytest.raises(ValueError, match="VMFLOW_CUDA_MEMORY must be a positive integer such as '1073741824', not "):
        EmulatedMachine()
    assert EmulatedMachine(nbytes=0).drivers[0].memory_info() == (0, 0)


def test_defaults() -> None:
    assert setting_of({}) == Setting("auto")
    assert emulated_devices_of({}) == 2


def test_an_environment_is_read() -> None:
    environment = {"VMFLOW_CUDA": "emulated:random:3", "VMFLOW_CUDA_DEVICES": "4"}
    assert setting_of(environment) == Setting("emulated", "random", 3)
    assert emulated_devices_of(environment) == 4
