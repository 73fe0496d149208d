"""Random plans in random orders of events: values are the reference's, and everything comes to its end."""

from __future__ import annotations

import random

from hypothesis import given, settings, strategies as st

from vmflow.graph_mode.actors import ActorSystem
from vmflow.graph_mode.actors.light import LightActor

from .simulation import Run, random_sketch, simulate, with_enough_slots

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=300, derandomize=True)
@given(SEEDS)
def test_random_plans(seed: int) -> None:
    simulate(seed)


@settings(max_examples=150, derandomize=True)
@given(SEEDS)
def test_refused_plans_would_get_stuck(seed: int) -> None:
    chosen = random.Random(seed)
    sketch = random_sketch(chosen, most=2)
    counts = dict(sketch.counts)
    if with_enough_slots(sketch):
        return
    sketch.counts = counts
    for task in sketch.tasks:
        if task["kind"] == "identity":
            task["count"] = counts[task["writes"][0]]
    # Enough for the first period of all but the strangest plans.
    run = Run(sketch, chosen, 4 * 27)
    run.run()
    assert not all([system.ended() for system in run.systems.values()])


def test_the_random_plans_contain_all_features() -> None:
    """Otherwise the tests above would prove less than they say."""
    kinds: dict[str, int] = {}
    in_place = shared = two_ranks = light = refused = early = discarded = ahead = 0
    for seed in range(150):
        chosen = random.Random(seed)
        refused += not with_enough_slots(random_sketch(chosen, most=2))
        run = simulate(seed)
        for task in run.tasks:
            kinds[task.kind] = kinds.get(task.kind, 0) + 1
        in_place += any([register.in_place is not None for register in run.registers])
        shared += any([len(register.consumers) > 1 for register in run.registers])
        two_ranks += len(run.systems) > 1
        light += any([isinstance(actor, LightActor) for actor in run.systems[0]._construction.actors.values()])
        early += bool(run.to_launch)
        discarded += len(run.kept) < run.systems[0].launched
        ahead += run.most_running > 3
    assert min(kinds.values()) > 10, kinds
    assert len(kinds) == 10, kinds
    assert in_place > 40
    assert shared > 40
    assert two_ranks > 20
    assert light > 40
    assert refused > 5
    assert early > 10
    assert discarded > 2
    assert ahead > 50


def test_simulations_are_repeatable() -> None:
    assert simulate(1, ActorSystem).results == simulate(1, ActorSystem).results
