"""A driver of actors whose streams take given times: the schedule of a plan, to the nanosecond.

No thread, no clock: each thread of the plan is a stream that runs one act at a time, and time goes on to the next end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from vmflow.graph_mode.actors import ActorSystem, RegisterDescriptor, TaskDescriptor
from vmflow.graph_mode.actors.bus import Action
from vmflow.graph_mode.plan import Plan


class Act(NamedTuple):
    """An act that has been run: of which task, from when to when."""

    task: int
    begin: float
    end: float


def simulate(
    tasks: Sequence[TaskDescriptor],
    registers: Sequence[RegisterDescriptor],
    durations: Mapping[int, float],
    launches: int,
) -> list[Act]:
    """All acts of so many launches, by their ends; those without a duration take no time and are left out."""
    system = ActorSystem(tasks, registers, {})
    streams: dict[int, deque[Action]] = {value: deque() for value in system.threads}
    begun: dict[int, tuple[float, float]] = {}
    acts: list[Act] = []
    now = 0.0

    def duration(action: Action) -> float:
        return durations.get(action.actor.id, 0.0) if action.actor is not None else 0.0

    system.construct()
    for thread in system.threads:
        system.turn(thread)
    system.start()
    for piece in range(launches):
        system.launch(piece)
    system.close()
    while True:
        while any([system.has_work(value) for value in system.threads]):
            for thread, stream in streams.items():
                stream.extend(system.turn(thread))
                if stream and thread not in begun:
                    begun[thread] = (now, now + duration(stream[0]))
        if not begun:
            break
        thread = min(begun, key=lambda x: begun[x][1])
        begin, now = begun.pop(thread)
        action = streams[thread].popleft()
        if action.actor is not None and action.actor.id in durations:
            acts.append(Act(action.actor.id, begin, now))
        system.completed(thread)
        if streams[thread]:
            begun[thread] = (now, now + duration(streams[thread][0]))
    assert system.ended(), system.describe()
    return acts


def makespan(plan: Plan, durations: Mapping[int, float], launches: int) -> float:
    """When the last act of so many launches ends."""
    return simulate(plan.tasks, plan.registers, durations, launches)[-1].end


def with_slots(plan: Plan, slots: int) -> Plan:
    """The same plan with other counts of data registers."""
    registers = [register if register.control else attrs.evolve(register, count=slots) for register in plan.registers]
    return attrs.evolve(plan, registers=tuple(registers))
