"""Pipelining is nothing but the number of slots: stages overlap when their registers have two."""

from __future__ import annotations

from collections import deque

from vmflow.graph_mode.actors import ActorSystem
from vmflow.graph_mode.actors.bus import Action

from .bench import Sketch

# Of a virtual clock, for each act of a stage.
STEP = 1.0
PIECES = 100


def _stages(slots: int) -> Sketch:
    sketch = Sketch().source(writes="fed*100")
    before = "fed"
    for number in range(1, 4):
        sketch.task(f"stage{number}", reads=before, writes=f"done{number}*{slots}", on=number)
        before = f"done{number}"
    return sketch.sink(reads=before, on=4)


def _time(slots: int) -> float:
    """How long the pieces take, on streams that each run one stage's act at a time."""
    sketch = _stages(slots)
    tasks, registers = sketch.plan()
    stages = {task.id for task in tasks if task.name.startswith("stage")}
    system = ActorSystem(tasks, registers, {})
    streams: dict[int, deque[Action]] = {value: deque() for value in system.threads}
    ends: dict[int, float] = {}
    now = 0.0
    system.construct()
    for thread in system.threads:
        system.turn(thread)
    system.start()
    for piece in range(PIECES):
        system.launch(piece)
    while True:
        while any([system.has_work(value) for value in system.threads]):
            for thread in system.threads:
                streams[thread].extend(system.turn(thread))
                if streams[thread] and thread not in ends:
                    actor = streams[thread][0].actor
                    ends[thread] = now + (STEP if actor is not None and actor.id in stages else 0.0)
        if not ends:
            break
        thread = min(ends, key=lambda end: ends[end])
        now = ends.pop(thread)
        streams[thread].popleft()
        system.completed(thread)
        if streams[thread]:
            actor = streams[thread][0].actor
            ends[thread] = now + (STEP if actor is not None and actor.id in stages else 0.0)
    system.close()
    while not system.ended():
        for thread in system.threads:
            system.completed(thread, len(system.turn(thread)))
    return now


def test_two_slots_nearly_double_the_throughput_of_three_stages() -> None:
    one, two = _time(1), _time(2)
    assert two == (PIECES + 2) * STEP
    assert one / two >= 1.8
