"""Explains stalled plans: `describe` lists the conditions each actor waits for, `find_cycle` finds a deadlock."""

from __future__ import annotations

from collections.abc import Iterable

from .construction import Construction
from .descriptors import RegisterDescriptor
from .messages import Receiver, Wait


def describe(construction: Construction) -> str:
    """Return a line for each actor not yet destroyed: the conditions it waits for, and the tasks that can meet them."""
    lines: list[str] = []
    for task, actor in construction.actors.items():
        if not actor.destroyed:
            waits = "; ".join([_described(construction, actor, wait) for wait in actor.waits()]) or "nothing"
            state = "has ended and waits" if actor.zombie else "waits"
            lines.append(f"{construction.tasks[task]} has acted {actor.acted} times and {state} for {waits}")
    return "\n".join(lines)


def find_cycle(construction: Construction, stuck: Iterable[int]) -> list[int]:
    """Return a circle of tasks among `stuck`: each waits for the next, and the last for the first.

    The list is empty if no circle is found.
    """
    among = set(stuck)
    # A walk that always goes on to the first stuck task for which the present one waits meets a task again, or ends.
    for begin in among:
        path: dict[int, None] = {}
        here: int | None = begin
        while here is not None and here not in path:
            path[here] = None
            others = [task for task in _waited_for(construction, here) if task in among]
            here = others[0] if others else None
        if here is not None:
            circle = list(path)
            return circle[circle.index(here) :]
    return []


def _waited_for(construction: Construction, task: int) -> list[int]:
    tasks: list[int] = []
    actor = construction.actors[task]
    for wait in actor.waits():
        if wait.register >= 0:
            tasks += _others(construction, actor, wait)
    return tasks


def _others(construction: Construction, actor: Receiver, wait: Wait) -> list[int]:
    """Return the tasks on which the actor's condition `wait` (on a register) depends."""
    register: RegisterDescriptor = construction.registers[wait.register]
    if wait.event in ("full", "eord"):
        return [register.producer]
    return [
        consumer
        for consumer in register.consumers
        if consumer not in construction.actors or construction.actors[consumer].holds(register.id)
    ]


def _described(construction: Construction, actor: Receiver, wait: Wait) -> str:
    if wait.event == "item":
        buffer = construction.buffers[construction.tasks[actor.id].buffer]
        return f"an item in the {'closed ' if buffer.closed else ''}buffer {buffer.name!r}"
    register = construction.registers[wait.register]
    others = ", ".join([str(construction.tasks[other]) for other in _others(construction, actor, wait)])
    if wait.event == "full":
        return f"register {register.id} from {others}"
    if wait.event == "eord":
        return f"the end of register {register.id} from {others}"
    slots = f"one of the {register.count} slots" if register.count > 1 else "the slot"
    if not others:
        return f"{slots} of register {register.id}, which is on its way back"
    return f"{slots} of register {register.id}, held by {others}"
