"""Train one network in four ways on simulated ranks: alone, data-parallel, tensor-parallel, and both together.

The program is written as if for one device.  The ways differ only in the sbp of tensors: how each is spread over the
ranks.  The ranks are threads of this process that run one at a time, so nothing here is faster for being parallel; the
program shows that the losses are equal, which part of each tensor a rank holds, and how many bytes would go over a
network.

    python examples/global_tensors.py [--ranks 4] [--steps 20] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import vmflow as flow
from vmflow import distributed as dist, nn, sbp

FEATURES, HIDDEN, CLASSES, BATCH = 20, 32, 5, 24


class Layout(NamedTuple):
    """A way to train: the ranks, and how tensors are spread over them.

    Attributes:
        ranks: the ranks of the placement, nested for a mesh of two axes.
        sbps: the sbp of tensors, by their names; other tensors are broadcast.
    """

    ranks: Any
    sbps: dict[str, Any]


class Outcome(NamedTuple):
    """The results of training, on one rank.

    Attributes:
        losses: the loss of each step.
        parts: by a tensor's name, the shape of this rank's part.
        boxing: by change of sbp and tensor shape, the bytes that reach this rank in one step.
    """

    losses: list[float]
    parts: dict[str, tuple[int, ...]]
    boxing: Counter[str]


def layouts(ranks: int) -> dict[str, Layout]:
    """The ways to train."""
    everybody = list(range(ranks))
    rows = np.arange(ranks).reshape(2, -1).tolist() if ranks % 2 == 0 and ranks > 2 else [everybody]
    tensor = {"fc1.weight": sbp.split(0), "fc1.bias": sbp.split(0), "fc2.weight": sbp.split(1)}
    return {
        "one rank": Layout([0], {}),
        "data parallel": Layout(everybody, {"data": sbp.split(0), "labels": sbp.split(0)}),
        "tensor parallel": Layout(everybody, tensor),
        "both": Layout(
            rows,
            {name: [sbp.split(0), sbp.broadcast] for name in ("data", "labels")}
            | {name: [sbp.broadcast, how] for name, how in tensor.items()},
        ),
    }


def train(layout: Layout, steps: int, seed: int) -> Outcome:
    """Train on the ranks of a layout; each rank calls this."""
    where = flow.placement("cpu", layout.ranks)
    everywhere = [sbp.broadcast] * len(where.shape)

    def spread(tensor: flow.Tensor, name: str) -> flow.Tensor:
        return tensor.to_global(where, everywhere).to_global(sbp=layout.sbps.get(name, everywhere))

    flow.manual_seed(seed)
    data = flow.randn(BATCH, FEATURES)
    labels = (data @ flow.randn(FEATURES, CLASSES)).argmax(1)
    model = nn.Sequential()
    model.add_module("fc1", nn.Linear(FEATURES, HIDDEN))
    model.add_module("tanh", nn.Tanh())
    model.add_module("fc2", nn.Linear(HIDDEN, CLASSES))
    with flow.no_grad():
        for name, parameter in model.named_parameters():
            parameter.data = spread(parameter, name)
    inputs, targets = spread(data, "data"), spread(labels, "labels")

    optimizer = flow.optim.AdamW(model.parameters(), lr=0.02)
    losses: list[float] = []
    moved: Counter[str] = Counter()
    for step in range(steps):
        with dist.record_boxing() as boxings:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        if step == 0:
            for boxing in boxings:
                change = " -> ".join([",".join(map(str, tensor.sbp)) for tensor in (boxing.source, boxing.target)])
                moved[f"{change} of {list(boxing.shape)}"] += round(boxing.nbytes)
    tensors = {"data": inputs, "labels": targets, **dict(model.named_parameters())}
    return Outcome(losses, {name: tuple(tensor.to_local().shape) for name, tensor in tensors.items()}, moved)


def report(name: str, outcomes: Sequence[Outcome]) -> None:
    """Print the first and last loss, the parts that ranks hold, and the bytes that reach rank 0 in a step."""
    print(f"\n{name}: loss {outcomes[0].losses[0]:.4f} -> {outcomes[0].losses[-1]:.4f}")
    width = max(map(len, outcomes[0].parts))
    for tensor in outcomes[0].parts:
        held = "  ".join([f"rank {rank}: {list(outcome.parts[tensor])!s:<9}" for rank, outcome in enumerate(outcomes)])
        print(f"  {tensor:<{width}}  {held}")
    for change, nbytes in outcomes[0].boxing.most_common():
        if nbytes:
            print(f"  {nbytes:>6} bytes a step to rank 0: {change}")


def main(ranks: int, steps: int, seed: int) -> dict[str, list[Outcome]]:
    """Train in all ways; returns the outcomes of all ranks, by the name of the way."""
    results: dict[str, list[Outcome]] = {}
    for name, layout in layouts(ranks).items():
        count = 1 if name == "one rank" else ranks
        results[name] = dist.simulate(partial(train, layout, steps, seed), count, seed)
        report(name, results[name])
    alone = np.array(results["one rank"][0].losses)
    worst = max(
        float(np.abs(np.array(outcome.losses) - alone).max()) for outcomes in results.values() for outcome in outcomes
    )
    print(f"\nlargest difference of a loss on any rank from that of one rank: {worst:.1e}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    main(arguments.ranks, arguments.steps, arguments.seed)
