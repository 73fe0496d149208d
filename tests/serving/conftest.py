"""A saved graph to serve, and a folder for the output of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmflow as flow
from vmflow import nn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A saved graph, for batches of up to four."""

    class Scores(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
            self.with_dynamic_input_shape(size=3)

        def build(self, images: flow.Tensor) -> flow.Tensor:
            likely: flow.Tensor = self.model(images).softmax(1)
            return likely

    graph = Scores()
    with flow.no_grad():
        for size in (1, 2, 4):
            graph(flow.zeros(size, 1, 8, 8)).numpy()
    path = tmp_path / "digits"
    flow.save(graph, path)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path
