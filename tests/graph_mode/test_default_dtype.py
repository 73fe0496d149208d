"""A graph computes in the default dtype at its build, independently of the one at a call."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import vmflow as flow
from vmflow.context import MODE
from vmflow.graph_mode.job import Job
from vmflow.ops.table import OPS

from .support import computing
from .test_serialization import Forward, compiled


@pytest.fixture
def doubles() -> Iterator[None]:
    token = MODE.set(MODE.get().replace(dtype=flow.float64))
    yield
    MODE.reset(token)


def expected() -> bytes:
    return np.exp(np.arange(5, dtype=np.float64)).tobytes()


def forget() -> None:
    for op in OPS.values():
        op.forget()


@pytest.mark.usefixtures("doubles")
def test_what_was_built_with_doubles_computes_doubles() -> None:
    graph, x = Forward(lambda x: x.exp()), flow.arange(5)
    assert graph(x).numpy().tobytes() == expected()
    job = compiled(graph, x).job
    forget()
    flow.set_default_dtype(flow.float32)
    again = Job.from_json(job.to_json())
    assert again == job
    assert computing(again)[0].infer().outputs[0].dtype is flow.float64
    assert graph(x).dtype is flow.float32  # built anew for the other default
    flow.set_default_dtype(flow.float64)
    assert graph(x).numpy().tobytes() == expected()
    assert graph.run_by_vm(x).numpy().tobytes() == expected()
    assert graph.job == job


@pytest.mark.usefixtures("doubles")
def test_what_a_graph_has_looked_up_is_not_taken_for_the_usual_default() -> None:
    forget()
    graph, x = Forward(lambda x: x.exp()), flow.arange(5)
    graph(x).numpy()
    MODE.set(MODE.get().replace(dtype=None))
    assert x.exp().dtype is flow.float32
