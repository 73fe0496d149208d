"""The digits are learned in both ways, and the benchmark of first runs can read the printed times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.first_run import read
from tests.examples.test_sequence_examples import imported

pytestmark = [pytest.mark.host, pytest.mark.slow]


async def test_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("sklearn", "tqdm", "matplotlib", "safetensors"):
        pytest.importorskip(needed, reason="comes with the extra examples")
    with imported("digits") as example:
        await example.main(2, 0, tmp_path)
        # Nothing was compiled during the timed runs.
        assert example.flow.backends.codegen.pending() == 0
    printed = capsys.readouterr().out
    assert "the 23 losses and the predictions of the graph are the same to the last bit" in printed
    assert (tmp_path / "digits.png").stat().st_size > 1000
    found = read(printed)
    assert min(found.graph, found.eager, found.ratio) > 0


async def test_kernels_are_waited_for_until_none_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are asked for only where others are there."""
    for needed in ("sklearn", "tqdm"):
        pytest.importorskip(needed, reason="comes with the extra examples")
    left, done = [2, 1, 0], list[str]()
    with imported("digits") as example:
        codegen = example.flow.backends.codegen
        monkeypatch.setattr(codegen, "pending", lambda: left[0])
        monkeypatch.setattr(codegen, "wait", lambda say: done.append(f"wait for {left.pop(0)}"))

        async def work() -> None:
            done.append("work")

        await example.have_kernels(work)
    assert done == ["work", "wait for 2", "work", "wait for 1", "work"]


def test_output_without_times_is_an_error() -> None:
    with pytest.raises(ValueError, match="has printed no times, but: 'nothing'"):
        read("nothing")
