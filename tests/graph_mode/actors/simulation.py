"""Random plans, their results by a plain sequential interpreter, and runs of them in random order.

A run has its own memory, in which in-place registers share cells.  Acts take time: an act begins, other things happen,
it ends; its inputs must not change in between, and its outputs are garbage until it has ended.
"""

from __future__ import annotations

import random
from collections import deque
from fractions import Fraction
from typing import Any, TypedDict

from vmflow.graph_mode.actors import ActorSystem, Message, RegisterDescriptor, RegisterSlot, TaskDescriptor, check
from vmflow.graph_mode.actors.bus import Action
from vmflow.graph_mode.actors.descriptors import KINDS
from vmflow.graph_mode.actors.identifiers import rank_of

from .bench import Sketch

Value = int | tuple[int, ...]
MODULUS = (1 << 61) - 1


def mix(*parts: Value) -> int:
    """A number that depends on all of these and their order."""
    number = 17
    for part in parts:
        number = (number * 1_000_003 + (mix(*part) if isinstance(part, tuple) else part)) % MODULUS
    return number


# Plans


class Place(TypedDict):
    """Where a task is."""

    on: int
    rank: int


def random_sketch(chosen: random.Random, most: int = 3) -> Sketch:
    """A plan whose rates match; its counts, `most` at most, need not suffice."""
    sketch = Sketch()
    threads, ranks = chosen.randint(1, 4), chosen.choice([1, 1, 2])
    # Light actors need registers of one slot.
    most = chosen.choice([1, 1, most])
    # Acts per launch, by register.
    rates: dict[str, Fraction] = {}
    # Registers that are handed out several times, and must not be overwritten.
    repeated: set[str] = set()

    def place() -> Place:
        on = chosen.randrange(threads)
        return {"on": on, "rank": on % ranks}

    def named(rate: Fraction, control: bool = False) -> str:
        name = f"{'!' if control else ''}r{len(rates)}"
        rates[name] = rate
        return name

    def slots() -> str:
        return f"*{chosen.randint(1, most)}"

    source_writes = [named(Fraction(1)) + slots() for _ in range(chosen.randint(1, 2))]
    sketch.source(writes=" ".join(source_writes), **place())
    # Gathered results are often spread again, and joined with others: then the counts of slots have to suffice.
    planned: list[tuple[str, list[str], int]] = []
    for number in range(chosen.randint(1, 9)):
        if planned and not any([value in sketch.in_place.values() for value in planned[0][1]]):
            kind, reads, count = planned.pop(0)
            out = named(rates[reads[0]] * (count if kind == "unpack" else 1))
            sketch.task(f"t{number}", kind, reads=" ".join(reads), writes=out + slots(), count=count, **place())
            if kind == "unpack":
                planned[0][1].append(out)
            continue
        planned = []
        rate = rates[chosen.choice(list(rates))]
        alike = [value for value, other in rates.items() if other == rate]
        # An in-place output must be the only reader of its input.
        alike = [value for value in alike if value not in sketch.in_place.values()]
        data = [value for value in alike if not value.startswith("!")]
        if not data:
            continue
        kind = chosen.choice(["compute"] * 6 + ["acc", "pack", "repeat", "unpack", "identity", "tick"])
        if rate == 1 and chosen.random() < 0.1:
            kind = "critical_section_wait_tick"
        name = f"t{number}"
        control = [value for value in alike if value.startswith("!") and chosen.random() < 0.5]
        if kind in ("acc", "pack", "repeat", "unpack", "identity"):
            reads = [chosen.choice(data)]
            count = chosen.randint(1, 3)
            rate *= {"acc": Fraction(1, count), "pack": Fraction(1, count), "identity": Fraction(1)}.get(kind, count)
            out = named(rate)
            if kind in ("acc", "pack") and chosen.random() < 0.5:
                planned = [("unpack", [out], count), ("compute", [reads[0]], 1)]
            written = out + (f"*{count}" if kind == "identity" else slots())
            if kind == "repeat":
                repeated.add(out)
                if chosen.random() < 0.7:
                    written = f"{out}@{reads[0]}"
            if written.endswith(f"@{reads[0]}") and (
                len(sketch.consumers.get(reads[0], [])) > 0 or reads[0] in repeated
            ):
                written = out + slots()
        else:
            reads = chosen.sample(data, min(len(data), chosen.randint(1, 3)))
            count = 1
            outs = [named(rate) for _ in range(chosen.randint(0 if rates else 1, 2))]
            written = " ".join([value + slots() for value in outs])
            over = [read for read in reads if not sketch.consumers.get(read) and read not in repeated]
            if kind == "compute" and over and outs and chosen.random() < 0.5:
                written = " ".join([f"{outs[0]}@{over[0]}"] + [value + slots() for value in outs[1:]])
        if chosen.random() < 0.2:
            written += f" {named(rate, control=True)}{slots()}"
        sketch.task(name, kind, reads=" ".join(reads + control), writes=written, count=count, **place())
    at_once = [value for value, rate in rates.items() if rate == 1 and value not in sketch.in_place.values()]
    while at_once and (not sketch.consumers or chosen.random() < 0.5 or "sink0" not in sketch.ids):
        name = f"sink{sum([id_.startswith('sink') for id_ in sketch.ids])}"
        reads = chosen.sample(at_once, min(len(at_once), chosen.randint(1, 2)))
        sketch.sink(name, reads=" ".join(reads), **place())
    return sketch


def with_enough_slots(sketch: Sketch) -> bool:
    """Double the counts until the plan can run; whether it could from the beginning."""
    for attempt in range(8):
        try:
            check(*sketch.plan())
        except ValueError as error:
            if "in a circle" not in str(error):
                raise
        else:
            return attempt == 0
        for task in sketch.tasks:
            if task["kind"] == "identity":
                task["count"] *= 2
        sketch.counts = {name: count * 2 for name, count in sketch.counts.items()}
    raise AssertionError("no number of slots suffices")


# The reference


def interpret(tasks: list[TaskDescriptor], registers: list[RegisterDescriptor], pieces: list[int]) -> dict[int, Any]:
    """The results of each sink, by task: a list of (piece, values), in order, computed without actors."""
    control = {value.id for value in registers if value.control}
    tokens: dict[int, list[Value]] = {}
    results: dict[int, Any] = {}
    for task in tasks:  # a sketch is in topological order
        consumed = task.all_consumed()
        acts = min([len(tokens[value]) for value in consumed], default=len(pieces))
        columns = [tokens[value] for value in consumed if value not in control]
        rows = [[column[number] for column in columns] for number in range(acts)]
        if KINDS[task.kind].buffered:
            rows = [[piece, *row] for piece, row in zip(pieces, rows, strict=False)]
        if task.kind == "callback_notify":
            results[task.id] = [(row[0], row[1:]) for row in rows]
        for number, register in enumerate(task.all_produced()):
            tokens[register] = _produced(task, number, rows)
    return results


def _produced(task: TaskDescriptor, number: int, rows: list[list[Value]]) -> list[Value]:
    n = task.count
    groups = [rows[value : value + n] for value in range(0, len(rows) - n + 1, n)]
    if task.kind == "acc":
        return [sum([mix(row[0]) for row in group]) % MODULUS for group in groups]
    if task.kind == "pack":
        return [tuple([mix(row[0]) for row in group]) for group in groups]
    if task.kind == "repeat":
        return [row[0] for row in rows for _ in range(n)]
    if task.kind == "unpack":
        return [mix(row[0], index) for row in rows for index in range(n)]
    if task.kind == "identity":
        return [row[0] for row in rows]
    return [mix(number, *row) for row in rows]


# The run


class Cell:
    """One slot's memory."""

    def __init__(self) -> None:
        self.value: Value = 0
        self.version = 0
        self.writer: Action | None = None


class Run:
    """A plan on its way, in an order chosen at random.

    Args:
        sketch: of the plan.
        chosen: chooses.
        pieces: how many are launched, at most.
        system_class: another than `ActorSystem`, a broken one perhaps.
    """

    def __init__(self, sketch: Sketch, chosen: random.Random, pieces: int, system_class: Any = ActorSystem) -> None:
        self.chosen = chosen
        self.tasks, self.registers = sketch.plan()
        self.kinds = {task.id: task for task in self.tasks}
        self.to_launch = deque(range(1, pieces + 1))
        self.kept: list[int] = []
        self.results: dict[int, Any] = {task.id: [] for task in self.tasks if task.kind == "callback_notify"}
        self.channels: dict[tuple[int, int], deque[Message]] = {}
        self.sender = -1
        ranks = sorted({rank_of(task.id) for task in self.tasks})
        acts = {task.id: self._end_act for task in self.tasks}
        self.systems: dict[int, Any] = {
            rank: system_class(
                self.tasks, self.registers, acts, self._post, rank if len(ranks) > 1 else None, checked=True
            )
            for rank in ranks
        }
        self.system_of = {thread: system for system in self.systems.values() for thread in system.threads}
        self.streams: dict[int, deque[Action]] = {value: deque() for value in self.system_of}
        # The acts that have begun and not ended, with the versions that they read.
        self.begun: dict[int, list[tuple[Cell, int]]] = {}
        self._lay_out()
        self.closed = False
        self.most_running = 0

    def _lay_out(self) -> None:
        peers = {value.id: value.in_place for value in self.registers}
        self.roots: dict[int, int] = {}
        for register in peers:
            root = register
            while (peer := peers[root]) is not None:
                root = peer
            self.roots[register] = root
        self.cells: dict[tuple[int, int], Cell] = {}

    def _cell(self, slot: RegisterSlot) -> Cell:
        """The memory of a slot, which the slots of in-place registers share."""
        return self.cells.setdefault((self.roots[slot.register], slot.slot), Cell())

    def _post(self, thread: int, message: Message) -> None:
        self.channels.setdefault((self.sender, thread), deque()).append(message)

    def run(self, close_early: bool = False) -> None:
        """Until nothing can happen any more."""
        for system in self.systems.values():
            system.construct()
        self._until_nothing_happens(0.0)
        assert all([system.constructed() for system in self.systems.values()])
        for system in self.systems.values():
            system.start()
        self._until_nothing_happens(0.02 if close_early else 0.0)
        if not self.closed:
            while self.to_launch:
                self._launch()
            self._until_nothing_happens(0.0)
            self._close(discard=False)
        self._until_nothing_happens(0.0)

    def _until_nothing_happens(self, close: float) -> None:
        while True:
            steps: list[tuple[Any, ...]] = [(self._deliver, value) for value, queue in self.channels.items() if queue]
            steps += [(self._turn, value) for value, system in self.system_of.items() if system.has_work(value)]
            steps += [(self._advance, value) for value, stream in self.streams.items() if stream]
            if close and self.to_launch and not self.closed:
                steps.append((self._launch,))
            if close and self.chosen.random() < close and not self.closed:
                # Several ranks would have to agree on the launches that have begun.
                steps = [(self._close, len(self.systems) == 1 and self.chosen.random() < 0.5)]
            if not steps:
                return
            step, *arguments = self.chosen.choice(steps)
            step(*arguments)

    def _launch(self) -> None:
        piece = self.to_launch.popleft()
        self.kept.append(piece)
        for system in self.systems.values():
            system.launch(piece)

    def _close(self, discard: bool) -> None:
        self.closed = True
        for system in self.systems.values():
            for piece in system.close(discard=discard):
                self.kept.remove(piece)

    def _deliver(self, channel: tuple[int, int]) -> None:
        message = self.channels[channel].popleft()
        self.system_of[channel[1]].deliver(channel[1], message)

    def _turn(self, thread: int) -> None:
        self.sender = thread
        self.streams[thread].extend(self.system_of[thread].turn(thread, self.chosen.choice([1, 2, 1000])))
        self.most_running = max(self.most_running, sum(map(len, self.streams.values())))
        check_invariants(self.system_of[thread])

    def _advance(self, thread: int) -> None:
        """Begin or end the oldest act of a stream."""
        action = self.streams[thread][0]
        if thread not in self.begun:
            self.begun[thread] = self._begin_act(action)
            return
        if action.run is not None:
            for cell, version in self.begun[thread]:
                assert cell.version == version, f"{action} read what was being written over"
            action.run(action)
        del self.begun[thread]
        self.streams[thread].popleft()
        self.sender = thread
        self.system_of[thread].completed(thread)

    def _begin_act(self, action: Action) -> list[tuple[Cell, int]]:
        inputs = [self._cell(operand) for operand in action.inputs]
        outputs = [self._cell(output) for output in action.outputs]
        if action.actor is None or self._only_aliases(action):
            return []
        for cell in inputs + outputs:
            assert cell.writer is None or cell.writer.actor is action.actor, f"{action} meets {cell.writer}"
        for cell in outputs:
            cell.writer = action
        return [(cell, cell.version) for cell in inputs]

    def _only_aliases(self, action: Action) -> bool:
        assert action.actor is not None
        repeats = KINDS[self.kinds[action.actor.id].kind].repeats
        return repeats and self._cell(action.inputs[0]) is self._cell(action.outputs[0])

    def _end_act(self, action: Action) -> None:
        assert action.actor is not None
        if self._only_aliases(action):
            return
        task = self.kinds[action.actor.id]
        inputs: list[Any] = [self._cell(operand).value for operand in action.inputs]
        if KINDS[task.kind].buffered:
            inputs.insert(0, action.item)
        if task.kind == "callback_notify":
            self.results[task.id].append((inputs[0], inputs[1:]))
        for number, slot in enumerate(action.outputs):
            cell = self._cell(slot)
            self._write(cell, self._value(task, action, number, inputs, cell.value))
            # A gathered slot belongs to its writer until the group is complete.
            if not KINDS[task.kind].gathers or action.index == task.count - 1:
                cell.writer = None

    def _write(self, cell: Cell, value: Value) -> None:
        cell.value = value
        cell.version += 1

    def _value(self, task: TaskDescriptor, action: Action, number: int, inputs: list[Value], before: Value) -> Value:
        if task.kind == "acc":
            so_far = before if action.index else 0
            assert isinstance(so_far, int)
            return (so_far + mix(inputs[0])) % MODULUS
        if task.kind == "pack":
            packed = before if action.index else ()
            assert isinstance(packed, tuple)
            assert len(packed) == action.index
            return (*packed, mix(inputs[0]))
        if task.kind == "unpack":
            return mix(inputs[0], action.index)
        if task.kind in ("repeat", "identity"):
            return inputs[0]
        return mix(task.all_produced().index(action.outputs[number].register), *inputs)

    def check_ended(self) -> None:
        """All actors are gone and nothing is left anywhere."""
        for system in self.systems.values():
            assert system.ended(), system.describe()
            assert system.idle()
            for actor in system._construction.actors.values():
                assert actor.destroyed
                if type(actor).__name__ == "Actor":
                    assert not any([port.fifo for port in actor.inputs])
            system.stop()
        self._until_nothing_happens(0.0)
        assert not any(self.channels.values())
        assert not any(self.streams.values())


def check_invariants(system: Any) -> None:
    """Check the counters of all actors: none is wrong, and no slot is free twice."""
    for actor in system._construction.actors.values():
        if type(actor).__name__ == "LightActor":
            assert 0 <= actor.away <= actor.sends
            assert 0 <= actor.away_in_place <= actor.away
            assert not actor.destroyed or (actor.away == 0 and actor.ended == actor.all_here)
            continue
        assert actor.reading == sum([sum(port.readers) for port in actor.outputs])
        assert not actor.destroyed or (actor.reading == 0 and all([port.ended for port in actor.inputs]))
        assert actor.ready_inputs == sum([bool(port.fifo) for port in actor.inputs]) or actor.zombie
        assert actor.ready_outputs == sum([bool(port.free) for port in actor.outputs])
        for port in actor.outputs:
            assert len(set(port.free)) == len(port.free) <= len(port.slots)
            assert all([port.readers[slot] == 0 for slot in port.free])
            assert min(port.readers) >= 0


def simulate(seed: int, system_class: Any = ActorSystem, close_early: bool | None = None) -> Run:
    """A random plan in a random order, compared with the reference."""
    chosen = random.Random(seed)
    sketch = random_sketch(chosen)
    with_enough_slots(sketch)
    run = Run(sketch, chosen, chosen.randint(0, 8), system_class)
    run.run(chosen.random() < 0.5 if close_early is None else close_early)
    run.check_ended()
    assert run.results == interpret(run.tasks, run.registers, run.kept)
    return run
