"""Ranks whose global tensors are on emulated CUDA devices."""

from __future__ import annotations

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, sbp

pytestmark = [pytest.mark.emulated, pytest.mark.host]


def test_a_layer_trains_and_tensors_move_between_devices() -> None:
    def program() -> list[list[float]]:
        found = []
        for kind in ("cpu", "cuda"):
            where = flow.placement(kind, [0, 1])
            flow.manual_seed(1)
            x = flow.randn(4, 6, placement=where, sbp=sbp.split(0))
            w = flow.randn(3, 6, placement=where, sbp=sbp.broadcast).requires_grad_()
            loss = flow.nn.functional.linear(x, w).square().sum()
            loss.backward()
            assert w.grad is not None
            assert w.grad.device.type == kind
            found.append(w.grad.tolist())
            away = x.to_global(flow.placement("cpu" if kind == "cuda" else "cuda", [1, 0]), sbp.split(1))
            assert away.to_local().device.type != kind
            np.testing.assert_allclose(away.numpy(), x.numpy())
        return found

    for one, other in dist.simulate(program, 2):
        np.testing.assert_allclose(one, other, rtol=1e-4)
