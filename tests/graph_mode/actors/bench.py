"""Plans sketched by name, and systems on a bench: events go in and decisions come out by the names of the tasks."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import vmflow.graph_mode.actors
from vmflow.graph_mode.actors import ActorSystem, Message, RegisterDescriptor, TaskDescriptor, TaskId, ThreadId, check
from vmflow.graph_mode.actors.bus import Action

# The modules that a copy shares with the original, and its own, in the order of importing.
SHARED = ("identifiers", "descriptors")
COPIED = ("messages", "buffers", "bus", "actor", "light", "construction", "stalls", "checks", "system")


class Sketch:
    """A plan whose tasks and registers have names.

    Registers are written ``"x"``, ``"x*3"`` for three slots, ``"y@x"`` for one in the memory of x (of as many slots);
    a register whose name begins with an exclamation mark is a control register.
    """

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.in_place: dict[str, str] = {}
        self.producers: dict[str, str] = {}
        self.consumers: dict[str, list[str]] = {}
        self.tasks: list[dict[str, Any]] = []

    def task(
        self,
        name: str,
        kind: str = "compute",
        *,
        on: int = 0,
        rank: int = 0,
        reads: str = "",
        writes: str = "",
        count: int = 1,
        buffer: str | None = None,
    ) -> Sketch:
        buffered = kind in ("wait_and_send_ids", "critical_section_wait_tick", "callback_notify")
        self.ids[name] = TaskId(ThreadId(rank, stream_index=on), len(self.ids)).encode()
        produced = [self._write(name, value) for value in writes.split()]
        for value in reads.split():
            self.consumers.setdefault(value, []).append(name)
        self.tasks.append(
            {
                "name": name,
                "kind": kind,
                "reads": reads.split(),
                "writes": produced,
                "count": count,
                "buffer": (name if buffered else "") if buffer is None else buffer,
            }
        )
        return self

    def source(self, name: str = "source", *, on: int = 0, writes: str = "", rank: int = 0) -> Sketch:
        return self.task(name, "wait_and_send_ids", on=on, writes=writes, rank=rank)

    def sink(self, name: str = "sink", *, on: int = 0, reads: str = "", rank: int = 0) -> Sketch:
        return self.task(name, "callback_notify", on=on, reads=reads, rank=rank)

    def _write(self, producer: str, written: str) -> str:
        name, _, count = written.partition("*")
        name, _, peer = name.partition("@")
        if peer:
            self.in_place[name] = peer
        self.counts[name] = self.counts[peer] if peer else int(count or "1")
        self.producers[name] = producer
        self.numbers[name] = len(self.numbers)
        return name

    def plan(self) -> tuple[list[TaskDescriptor], list[RegisterDescriptor]]:
        registers = [
            RegisterDescriptor(
                number,
                self.ids[self.producers[name]],
                tuple([self.ids[value] for value in self.consumers.get(name, [])]),
                self.counts[name],
                self.numbers[self.in_place[name]] if name in self.in_place else None,
                name.startswith("!"),
            )
            for name, number in self.numbers.items()
        ]
        tasks = []
        for task in self.tasks:
            consumed: dict[str, tuple[int, ...]] = {
                read: (self.numbers[read],) for read in task["reads"] if not read.startswith("!")
            }
            control = tuple([self.numbers[read] for read in task["reads"] if read.startswith("!")])
            if control:
                consumed["in_control"] = control
            produced = {written: (self.numbers[written],) for written in task["writes"]}
            number = self.ids[task["name"]]
            tasks.append(
                TaskDescriptor(number, task["kind"], produced, consumed, task["count"], task["buffer"], task["name"])
            )
        return tasks, registers


class Bench:
    """A started system.  Threads are named by the number of their stream.

    Args:
        sketch: of the plan.
        system_class: another class than `ActorSystem`, a broken one perhaps.
    """

    def __init__(self, sketch: Sketch, system_class: Any = ActorSystem) -> None:
        self.sketch = sketch
        tasks, registers = sketch.plan()
        # Checked here, since a broken class might refuse the plan for the defect that is to be tested.
        check(tasks, registers)
        self.names = {task.id: task.name for task in tasks}
        self.posted: list[Message] = []
        self.acted: list[str] = []
        self.system: Any = system_class(
            tasks,
            registers,
            {task.id: self._act for task in tasks},
            lambda thread, message: self.posted.append(message),
            checked=True,
        )
        self.threads = {value & 0x7FFF: value for value in self.system.threads}
        self.flights: dict[int, list[Action]] = {value: [] for value in self.threads}
        self.system.construct()
        self.settle()
        assert self.system.constructed()
        self.system.start()
        self.settle()

    def _act(self, action: Action) -> None:
        assert action.actor is not None
        self.acted.append(self.names[action.actor.id])

    # Events

    def launch(self, *pieces: object) -> None:
        for piece in pieces:
            self.system.launch(piece)

    def deliver(self) -> list[str]:
        """Deliver all posted messages; returns them."""
        posted, self.posted = self.posted, []
        for message in posted:
            self.system.deliver(message.thread, message)
        return [self.told(value) for value in posted]

    def finish(self, on: int = 0, count: int = 1) -> None:
        """The oldest actions of a thread run and complete."""
        for action in self.flights[on][:count]:
            if action.run is not None:
                action.run(action)
        del self.flights[on][:count]
        self.system.completed(self.threads[on], count)

    def settle(self) -> None:
        """Let everything happen until nothing more does."""
        while True:
            self.deliver()
            for number in self.threads:
                self.turn(number)
                self.finish(number, len(self.flights[number]))
            if not self.posted and self.system.idle():
                return

    # Decisions

    def turn(self, on: int = 0, limit: int = 1024) -> list[str]:
        """The names of the actions that one turn decides to run; "-" for those that only keep the order."""
        actions: list[Action] = self.system.turn(self.threads[on], limit)
        self.flights[on] += actions
        return ["-" if action.actor is None else self.names[action.actor.id] for action in actions]

    def told(self, message: Message) -> str:
        """A message in words."""
        if message.target < 0:
            return message.__repr__().split()[1]
        kind = ("full", "free", "eord")[message.kind]
        name = {number: value for value, number in self.sketch.numbers.items()}[message.register]
        slot = f"[{message.slot}]" if self.sketch.counts[name] > 1 and message.kind != 2 else ""
        return f"{kind} {name}{slot} to {self.names[message.target]}"

    def actor(self, name: str) -> Any:
        return self.system._construction.actors[self.sketch.ids[name]]

    def destroyed(self) -> list[str]:
        return [name for name in self.sketch.ids if self.actor(name).destroyed]

    def end(self) -> None:
        """Close, and see that everything comes to its end."""
        self.system.close()
        self.settle()
        assert self.system.ended(), self.system.describe()


def copied_system(*, module: str = "", old: str = "", new: str = "") -> Any:
    """`ActorSystem` made from a copy of the sources, in one of which `old` reads `new`.

    A copy, because the rules are to be broken in one place without breaking them for anybody else, and because a
    compiled class can be neither changed nor inherited from.
    """
    actors = vmflow.graph_mode.actors
    folder = Path(actors.__file__).parent
    package = ModuleType("copied_actors")
    package.__path__ = []
    modules: dict[str, ModuleType] = {"copied_actors": package}
    modules |= {f"copied_actors.{name}": import_module(f"{actors.__name__}.{name}") for name in SHARED}
    # For as long as the copies import each other.
    with patch.dict(sys.modules, modules):
        for name in COPIED:
            source = (folder / f"{name}.py").read_text()
            if name == module:
                assert source.count(old) == 1, f"{name}.py has {source.count(old)} times, not once:\n{old}"
                source = source.replace(old, new)
            copy = sys.modules[f"copied_actors.{name}"] = ModuleType(f"copied_actors.{name}")
            copy.__package__ = "copied_actors"
            exec(compile(source, f"{name}.py, copied", "exec"), copy.__dict__)
    return copy.__dict__["ActorSystem"]
