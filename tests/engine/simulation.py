"""Random programs on simulated in-order streams, under a seed, compared with running them one after the other.

A simulated stream takes launched operations in order and lets one at a time read its inputs, and some steps later write
its outputs; ends are reported later still, in any order.  If the engine launches anything too early, a value is read
before it is written, or overwritten before it is read.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Final, NamedTuple

from vmflow.context import Mode
from vmflow.instructions import Dependence, Instruction
from vmflow.instructions.instruction import ERASED, members_of
from vmflow.instructions.scope import Scope
from vmflow.streams import Stream

from .bench import InOrder, Step

# How an operation behaves once it is launched:
# a step reads and later writes when its stream comes to it;
STEP: Final = "step"
# a host operation, not preschedulable, does both when it is launched, without waiting for its stream;
HOST: Final = "host"
# a dropped one does nothing, and its end may be reported before those ahead of it on its stream;
DROPPED: Final = "dropped"
# a fence is a barrier, and expects everything earlier to be erased.
FENCE: Final = "fence"

# Two cells of one storage are two views that do not overlap: they share the storage's dependence.
Cell = tuple[int, int]


class Operation(NamedTuple):
    """One line of a program."""

    kind: str
    fusable: bool
    stream: int
    reads: tuple[Cell, ...]
    writes: tuple[Cell, ...]


class Program(NamedTuple):
    """The issued operations, and the streams that keep program order."""

    operations: list[Operation]
    sequential: list[bool]


def random_program(choose: random.Random, length: int) -> Program:
    storages = choose.randint(1, 5)
    streams = choose.randint(1, 4)
    share_fusable = choose.choice((0.0, 0.3, 1.0))
    stream = 0
    operations: list[Operation] = []

    def cells(most: int) -> tuple[Cell, ...]:
        return tuple([(choose.randrange(storages), choose.randrange(2)) for _ in range(choose.randint(0, most))])

    for _ in range(length):
        kind = choose.choices((STEP, HOST, DROPPED, FENCE), (16, 2, 2, 1))[0]
        if kind == FENCE:
            operations.append(Operation(kind, False, streams, (), ()))
            continue
        reads, writes = cells(3), cells(2)
        if choose.random() < 0.2:
            reads += writes  # in place
        fusable = kind == STEP and choose.random() < share_fusable
        # Neighbours often share a stream, or hardly any would be fused.
        if not (fusable and operations and choose.random() < 0.6):
            stream = choose.randrange(streams)
        operations.append(Operation(kind, fusable, stream, reads, writes))
    return Program(operations, [choose.random() < 0.2 for _ in range(streams)] + [False])


Values = dict[Cell, int]


def result(number: int, read: list[int]) -> int:
    """The value that operation `number` computes from its inputs: different for any other inputs."""
    return hash((number, *read))


def one_after_the_other(program: Program) -> tuple[list[list[int]], Values]:
    """The values that each operation reads, and the final ones."""
    values: Values = {}
    observed: list[list[int]] = []
    for number, operation in enumerate(program.operations):
        read = [values.get(cell, 0) for cell in operation.reads] if operation.kind != DROPPED else []
        observed.append(read)
        if operation.kind in (STEP, HOST):
            values.update(dict.fromkeys(operation.writes, result(number, read)))
    return observed, values


class Simulation:
    """An engine, its streams, and a driver that does the possible steps in a random order."""

    def __init__(self, program: Program, engine: Any, choose: random.Random) -> None:
        self.program = program
        self.engine = engine
        self.choose = choose
        self.values: Values = {}
        self.observed: list[list[int] | None] = [None] * len(program.operations)
        self.launched: list[int] = []
        # Launched and not yet finished by the stream, oldest first; for the first of them, whether it has read.
        self.queues: list[deque[int]] = [deque() for _ in program.sequential]
        self.reading: dict[int, bool] = {}
        self.reportable: list[int] = []
        self.issued = 0
        # Some take little at a time, and some programs have urgent operations.
        streams = [
            Stream(f"stream {number}", None, InOrder(ordered, choose.choice((1, 3_000, 1 << 62))))
            for number, ordered in enumerate(program.sequential)
        ]
        urgent = choose.random() < 0.5
        dependences: dict[int, Dependence] = {}

        def accesses(cells: tuple[Cell, ...]) -> tuple[Dependence, ...]:
            return tuple([dependences.setdefault(storage, Dependence()) for storage, _ in cells])

        self.instructions = [
            Instruction(
                streams[operation.stream],
                Step(
                    f"{operation.kind} {number}",
                    operation.kind == FENCE,
                    operation.kind not in (HOST, FENCE),
                    None,
                    operation.fusable,
                ),
                accesses(operation.reads),
                accesses(operation.writes),
                mode=Mode(scope=Scope(priority=choose.choice((-1, 0, 1, 5)))) if urgent else None,
            )
            for number, operation in enumerate(program.operations)
        ]
        self.numbers = {instruction: number for number, instruction in enumerate(self.instructions)}
        # The instruction to report when an operation has ended: itself, or the fused one if it is the last member.
        self.reported: list[Instruction | None] = list(self.instructions)
        self.fused = 0

    def run(self) -> None:
        """Until everything is erased.

        Raises:
            AssertionError: if the engine let something happen that must not, or nothing can happen any more.
        """
        steps = 0
        while self.issued < len(self.instructions) or not self.engine.idle():
            steps += 1
            assert steps < 200 * len(self.instructions), "the engine turns for ever"
            possible = [self.issue] * 2 if self.issued < len(self.instructions) else []
            possible += [self.turn] * 2 if self.engine.has_work() else []
            possible += [self.advance] * 3 if any(self.queues) else []
            possible += [self.report] * 2 if self.reportable else []
            assert possible, f"nothing can go on, and these are lively: {list(self.engine.lively)}"
            self.choose.choice(possible)()
            if not self.engine.has_work():
                self.turn_without_effect()
            self.engine.check_invariants()
        self.check()

    def issue(self) -> None:
        for _ in range(min(self.choose.choice((1, 1, 2, 7)), len(self.instructions) - self.issued)):
            self.engine.receive(self.instructions[self.issued])
            self.issued += 1

    def turn(self) -> None:
        for instruction in self.engine.schedule():
            self.launch(instruction)

    def launch(self, launched: Instruction) -> None:
        if launched.members is not None:
            self.fused += 1
            for member in launched.members:
                self.reported[self.numbers[member]] = launched if member is launched.members[-1] else None
        for instruction in members_of([launched]):
            number = self.numbers[instruction]
            kind = self.program.operations[number].kind
            self.launched.append(number)
            self.queues[self.program.operations[number].stream].append(number)
            if kind == HOST:
                self.read(number)
                self.write(number)
            elif kind == FENCE:
                late = [value for value in self.instructions[:number] if value.state != ERASED]
                assert not late, f"{instruction} went before {late}"
            if kind != STEP:
                self.reportable.append(number)

    def turn_without_effect(self) -> None:
        """`has_work` has said that a turn would change nothing."""
        if self.choose.random() < 0.2:
            assert self.engine.schedule() == []
            assert self.engine.erased == []

    def advance(self) -> None:
        """One stream does the next thing."""
        queue = self.choose.choice([queue for queue in self.queues if queue])
        number = queue[0]
        if self.program.operations[number].kind != STEP:
            queue.popleft()
        elif number not in self.reading:
            self.reading[number] = True
            self.read(number)
        else:
            queue.popleft()
            self.write(number)
            if self.reported[number] is not None:
                self.reportable.append(number)

    def read(self, number: int) -> None:
        self.observed[number] = [self.values.get(cell, 0) for cell in self.program.operations[number].reads]

    def write(self, number: int) -> None:
        read = self.observed[number]
        assert read is not None
        self.values.update(dict.fromkeys(self.program.operations[number].writes, result(number, read)))

    def report(self) -> None:
        number = self.reportable.pop(self.choose.randrange(len(self.reportable)))
        instruction = self.reported[number]
        if self.choose.random() < 0.1:
            self.engine.failed(instruction, ValueError(f"failure of {number}"))
        else:
            self.engine.completed(instruction)

    def check(self) -> None:
        observed, values = one_after_the_other(self.program)
        for number, operation in enumerate(self.program.operations):
            if operation.kind in (STEP, HOST):
                assert self.observed[number] == observed[number], f"{self.instructions[number]} read something else"
        assert self.values == values
        assert sorted(self.launched) == list(range(len(self.instructions))), "each is launched once"
        for stream, ordered in enumerate(self.program.sequential):
            if ordered:
                there = [value for value in self.launched if self.program.operations[value].stream == stream]
                assert there == sorted(there), "a sequential stream keeps program order"
        fences = [value for value in self.launched if self.program.operations[value].kind == FENCE]
        assert fences == sorted(fences)
        assert not self.engine.active_streams
        assert not self.engine.has_work()


def simulate(seed: int, engine: Any, length: int = 24) -> Simulation:
    """Run the program of this seed, in the order of this seed."""
    choose = random.Random(seed)
    engine.window = choose.choice((1, 2, 3, 8, 64))
    simulation = Simulation(random_program(choose, length), engine, choose)
    simulation.run()
    return simulation
