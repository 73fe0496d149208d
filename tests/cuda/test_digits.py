"""The example that learns digits, on an emulated device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.test_sequence_examples import imported

from .emulated import emulated

pytestmark = [pytest.mark.host, pytest.mark.slow]


@pytest.mark.emulated
async def test_digits_on_an_emulated_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("sklearn", "tqdm", "matplotlib", "safetensors"):
        pytest.importorskip(needed, reason="comes with the extra examples")
    with imported("digits") as example, emulated("random", 3) as devices:
        await example.main(1, 0, tmp_path, device="cuda", steps=20)
        replayed = devices.driver.graphs
    printed = capsys.readouterr().out
    (difference,) = re.findall(r"the first 20 losses differ from the CPU's by (\S+) at most", printed)
    assert float(difference) < 1e-5
    assert "as a graph the 20 losses and the predictions are the same to the last bit" in printed
    assert replayed >= 19  # all steps but the first, of which one is replayed to be verified
