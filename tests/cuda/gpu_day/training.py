"""The stage that trains networks on the device, eagerly and as graphs, and compares the losses with the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import vmflow as flow
from tests.benchmarks.models import Training, eager_training

from .findings import Findings
from .networks import Network, networks
from .replays import replays, told

STEPS: Final = 30
SMALL_STEPS: Final = 5
# Relative, of each loss.
TOLERANCE: Final = 1e-4

# The batches that are trained on in turn.
_BATCHES: Final = 4

# Calls of a graph that are not replays: the first one loads its kernels.
_NOT_REPLAYED: Final = 1


def run(findings: Findings) -> None:
    """See the module."""
    small = findings.task.small
    steps = SMALL_STEPS if small else STEPS
    findings.fact("steps", steps)
    findings.fact("relative tolerance of losses", TOLERANCE)
    for name, network in networks(small).items():
        wanted, _ = losses(network, "cpu", steps, as_graph=False)
        assert wanted[-1] < wanted[0], f"{name} has not learned on the CPU: {wanted}"
        for as_graph in (False, True):
            way = "graph" if as_graph else "eager"
            how: list[str] = []
            with findings.check(f"{name}, {way}"), replays() as counted:
                found, how = losses(network, "cuda", steps, as_graph)
                findings.fact(f"{name}, {way}: largest relative difference", _difference(found, wanted))
                np.testing.assert_allclose(found, wanted, rtol=TOLERANCE)
            findings.fact(f"{name}, {way}: asked of the driver", dict(counted.calls))
            if as_graph:
                with findings.check(f"{name}, replays"):
                    least = steps - _NOT_REPLAYED
                    assert counted.graphs >= least, f"{counted.graphs} of {least} replays: {'; '.join(how)}"


def losses(network: Network, device: str, steps: int, as_graph: bool) -> tuple[list[float], list[str]]:
    """The losses of so many steps, and the sentences in which a graph tells how it is run."""
    step = step_of(network, device, as_graph)
    batches = [[flow.tensor(value, device=device) for value in network.batch(seed)] for seed in range(_BATCHES)]
    with told(step) as how:
        found = [step(*batches[number % _BATCHES]).item() for number in range(steps)]
    return found, how


def step_of(network: Network, device: str, as_graph: bool) -> Callable[[Any, Any], Any]:
    """A function of inputs and targets that trains one step, and returns the loss; the first weights are always those.

    Args:
        network: the network to train.
        device: where.
        as_graph: whether the step is a graph.
    """
    flow.manual_seed(0)
    with flow.device("cpu"):
        model = network.make(flow)
    model = model.to(device)
    optimizer = network.optimizer(flow, model.parameters())
    loss_of = getattr(flow.nn.functional, network.loss)
    if as_graph:
        return Training(model, optimizer, loss_of)
    return lambda x, target: eager_training(model, optimizer, loss_of, x, target)()


def _difference(found: list[float], wanted: list[float]) -> float:
    return float(np.max(np.abs(np.subtract(found, wanted)) / np.abs(wanted)))
