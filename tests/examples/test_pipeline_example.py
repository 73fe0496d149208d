"""The stages of the pipeline run once for each launch, and overlap only if several launches run together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.examples.test_sequence_examples import imported

pytestmark = [pytest.mark.host, pytest.mark.slow]


def overlapping(recorded: Any) -> int:
    """How many launches were begun before the one before had been computed."""
    loads, computed = recorded.slices["load"], recorded.slices["compute"]
    return sum([load.begin < before.end for load, before in zip(loads[1:], computed, strict=False)])


async def test_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the examples extra")
    with imported("pipeline") as example:
        panels = await example.main(6, 3, 0, tmp_path, size=4, width=32)
    one, many = panels.values()
    for recorded in (one, many):
        assert [len(slice_) for slice_ in recorded.slices.values()] == [6, 6, 6]
        assert all([0 < recorded.busy(stage) < 1 for stage in recorded.slices])
        for stages in zip(*recorded.slices.values(), strict=True):
            load, copy, compute = stages
            assert load.end <= copy.begin
            assert copy.end <= compute.begin
    assert overlapping(one) == 0
    assert overlapping(many) >= 2
    assert (tmp_path / "pipeline.png").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert printed.count("6 launches in") == 2
    assert "the results are the same" in printed


async def test_the_pipeline_does_what_eager_code_does() -> None:
    with imported("pipeline") as example:
        decoder, model = example.Decoder(), example.network()
        (batch,) = example.make_batches(decoder, 1, 4, 32, 1)
        graph = example.Pipeline(decoder, model)
        (classes,) = await example.launch_all(graph, [batch], 1, 1)
        with flow.no_grad():
            wanted = await model(decoder(batch).to("sim")).argmax(1).cpu()
        assert classes == wanted.tolist()
        kinds = {chain.stream for chain in graph.plan.chains.values()}
        assert kinds == {"compute", "host_to_device", "device_to_host"}


def test_pictures_come_back_as_they_were_but_for_rounding() -> None:
    with imported("pipeline") as example:
        decoder = example.Decoder()
        pictures = np.random.default_rng(0).uniform(0.2, 0.8, (2, 16, 24)).astype(np.float32)
        decoded = decoder(decoder.encode(pictures)).numpy()
    assert decoded.shape == (2, 1, 16, 24)
    assert np.abs(decoded[:, 0] - pictures).max() < 0.1
