"""A stage that goes wrong as it is told, for the tests of this command."""

from __future__ import annotations

import os
from typing import Final

import vmflow as flow
from vmflow.streams.cuda.emulation.driver import EmulatedDriver
from vmflow.streams.cuda.registry import device_of

from .findings import Findings

# The environment variable that tells how: "raises", "fails", "hangs", "dies" or "loses".
VARIABLE: Final = "VMFLOW_GPU_DAY_PLANTED"
PIECES: Final = 3


def run(findings: Findings) -> None:
    """Do some pieces of work, of which the second goes wrong."""
    how = os.environ.get(VARIABLE, "")
    for piece in range(findings.task.begin, PIECES):
        findings.position = piece
        with findings.check(f"piece {piece}"):
            if piece == 1:
                _go_wrong(how)
            assert flow.ones(2, device="cuda").sum().item() == 2


def _go_wrong(how: str) -> None:
    if how == "raises":
        raise KeyboardInterrupt
    if how == "fails":
        raise AssertionError("planted")
    if how == "dies":
        os._exit(3)
    if how == "loses":
        driver = device_of(0).driver
        assert isinstance(driver, EmulatedDriver)
        driver.lose(RuntimeError("planted"))
    while how == "hangs":
        pass
