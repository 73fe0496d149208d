"""The examples with sequences run, learn a little and leave a picture; in much less time than they usually take."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = [pytest.mark.host, pytest.mark.slow]


@contextmanager
def imported(name: str) -> Iterator[Any]:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # its dataclasses look themselves up there
    try:
        spec.loader.exec_module(example)
        yield example
    finally:
        del sys.modules[spec.name]


def _excerpt(text: Any) -> Any:
    return type(text)(text.letters, text.numbers[:20000])


async def test_char_gpt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with imported("char_gpt") as example:
        text = _excerpt(example.load())
        monkeypatch.setattr(example, "load", lambda: text)
        progress = await example.main(6, 0, 60.0, tmp_path, every=2, sample=8)
    assert len(progress.losses) == 6
    assert progress.losses[-1] < progress.losses[0]
    printed = capsys.readouterr().out
    assert "6 steps in" in printed
    assert "characters per second" in printed
    if importlib.util.find_spec("matplotlib") is not None:
        assert (tmp_path / "char_gpt.png").stat().st_size > 1000


async def test_char_gpt_is_the_same_for_the_same_seed() -> None:
    losses = []
    with imported("char_gpt") as example:
        text = _excerpt(example.load())
        for _ in range(2):
            flow.manual_seed(1)
            model = example.GPT(len(text.letters), context=16, width=16, heads=2, depth=1)
            progress = example.Progress()
            await example.train(model, text, 3, 60.0, 1, progress, every=10, batch=4)
            losses.append(progress.losses)
        assert losses[0] == losses[1]
        assert await example.write(model, text, "\ndef ", 0) == "\ndef "
        assert len(await example.write(model, text, "\ndef ", 20)) == 25


async def test_char_gpt_samples_while_it_trains(capsys: pytest.CaptureFixture[str]) -> None:
    """The task that prints is woken when a sample is due, and waits for the next one."""
    with imported("char_gpt") as example:
        text = _excerpt(example.load())
        model = example.GPT(len(text.letters), context=16, width=16, heads=2, depth=1)
        progress = example.Progress(losses=[1.0])
        async with example.asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(example.show_samples(model, text, progress, 4))
            progress.due.set()
            printed = ""
            while not printed:
                await example.asyncio.sleep(0)
                printed = capsys.readouterr().out
            assert printed.startswith("----- begun after step 1, written by step 1\ndef ")
            assert not progress.due.is_set()
            sampling.cancel()


async def test_lstm_forecast(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the examples extra")
    with imported("lstm_forecast") as example:
        errors = await example.main(60, 0, tmp_path)
        series = example.load()
    assert series.shape == (800, 4)
    assert np.allclose(series[: example.TRAINED_ON].mean(0), 0, atol=1e-5)
    assert errors.lstm < errors.naive
    assert (tmp_path / "lstm_forecast.png").stat().st_size > 1000
