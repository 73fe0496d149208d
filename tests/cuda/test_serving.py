"""Serving a model of a CUDA device: the results of requests, and copies beside computing."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.serving import InferenceSession, TensorSpec

from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]


def model() -> nn.Module:
    flow.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("graph", [False, True])
async def test_requests_have_the_results_of_the_cpu(graph: bool) -> None:
    rows = np.random.default_rng(1).standard_normal((24, 5)).astype(np.float32)
    with flow.no_grad():
        expected = (await model()(flow.tensor(rows, device="cpu"))).numpy()
    with emulated("random", 4) as devices:
        net = model().to("cuda")
        async with InferenceSession(net, inputs=TensorSpec((5,)), max_batch=4, graph=graph) as session:
            found = await asyncio.gather(*[session.run(row) for row in rows])
        np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5, atol=1e-6)
        assert (devices.driver.graphs > 0) == graph
