"""Who waits for whom: `describe` says it of every actor, `find_cycle` finds those that wait in a circle."""

from __future__ import annotations

from collections.abc import Iterable

from .construction import Construction
from .descriptors import RegisterDescriptor
from .messages import Receiver, Wait


def describe(made: Construction) -> str:
    """One line for each actor that has not been destroyed: what it waits for, and from whom."""
    lines: list[str] = []
    for task, actor in made.actors.items():
        if not actor.destroyed:
            waits = "; ".join([_told(made, actor, wait) for wait in actor.waits()]) or "nothing"
            state = "has ended and waits" if actor.zombie else "waits"
            lines.append(f"{made.tasks[task]} has acted {actor.acted} times and {state} for {waits}")
    return "\n".join(lines)


def find_cycle(made: Construction, stuck: Iterable[int]) -> list[int]:
    """Tasks of which each waits for the next and the last for the first, all among the given ones.

    Empty if there is none.
    """
    among = set(stuck)
    # A walk that always takes the first way among the stuck either comes back or ends.
    for begin in among:
        path: dict[int, None] = {}
        here: int | None = begin
        while here is not None and here not in path:
            path[here] = None
            others = [it for it in _waited_for(made, here) if it in among]
            here = others[0] if others else None
        if here is not None:
            circle = list(path)
            return circle[circle.index(here) :]
    return []


def _waited_for(made: Construction, task: int) -> list[int]:
    found: list[int] = []
    actor = made.actors[task]
    for wait in actor.waits():
        if wait.register >= 0:
            found += _others(made, actor, wait)
    return found


def _others(made: Construction, actor: Receiver, wait: Wait) -> list[int]:
    """Who has to do something about it."""
    register: RegisterDescriptor = made.registers[wait.register]
    if wait.what in ("full", "eord"):
        return [register.producer]
    return [
        consumer
        for consumer in register.consumers
        if consumer not in made.actors or made.actors[consumer].holds(register.id)
    ]


def _told(made: Construction, actor: Receiver, wait: Wait) -> str:
    if wait.what == "item":
        buffer = made.buffers[made.tasks[actor.id].buffer]
        return f"an item in the {'closed ' if buffer.closed else ''}buffer {buffer.name!r}"
    register = made.registers[wait.register]
    others = ", ".join([str(made.tasks[other]) for other in _others(made, actor, wait)])
    if wait.what == "full":
        return f"register {register.id} from {others}"
    if wait.what == "eord":
        return f"the end of register {register.id} from {others}"
    of = f"one of the {register.count} slots" if register.count > 1 else "the slot"
    if not others:
        return f"{of} of register {register.id}, which is on its way back"
    return f"{of} of register {register.id}, held by {others}"
