"""Chaos: random programs on several devices in which things go wrong, and an oracle that predicts their results.

A program is a list of steps over a pool of tensors: ops, views, writes in place, copies between devices, releases,
barriers, kernels that fail, devices that fail, requests for more memory than there is, scopes that end.  `run` plays it
on virtual machines as its setting says; then the oracle goes through the same steps one after the other, with numpy
arrays that share memory as the tensors do, and predicts the result of each read: these very values, or this
very error.

Races are not guessed, such as whether an instruction began before its scope ended: a `Trace` notes it of every
instruction, and the oracle takes it from there.  The end of a scope must drop the instructions that have not begun.

    python -m tests.vm.chaos --programs 10000 --first-seed 0 --mode random

runs many; the first that fails is made as small as it can be, and printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import faulthandler
import gc
import logging
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import vmflow as flow
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.errors import Cancelled, DeadlineExceeded, OutOfMemory
from vmflow.instructions.access_blob import AccessBlobByCallback
from vmflow.instructions.allocate_tensor import AllocateTensor
from vmflow.instructions.barrier import Barrier, GlobalSync
from vmflow.instructions.builder import InstructionsBuilder, physical_run
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.multi_tensor_update import MultiTensorUpdate
from vmflow.instructions.op_call import OpCall
from vmflow.instructions.scope import CLOCK, Scope
from vmflow.instructions.stream_events import SharedEvent
from vmflow.streams import DeviceMemory, SimulatedDevice
from vmflow.vm import VirtualMachine, stream_table
from vmflow.vm.stream_table import GARBAGE, device_memory

Array = NDArray[Any]

MODES: Final = ("lazy", "random", "eager", "cpu")
SIMULATED: Final = ("sim:8", "sim:9")  # nobody else's

# A device's memory, a size that is always too large, and one that always fits if it is given back each time.
LIMIT: Final = 8 << 20
HUGE: Final = 9 << 18  # elements of float32; the number of the step is added, so that the error tells which it was
CHURN: Final = 5 << 18

SHAPES: Final[tuple[tuple[int, ...], ...]] = ((), (3,), (4, 3), (3, 4), (3, 3), (1, 3), (2, 3, 3), (0, 3))
# Above 64 KiB in both float32 and int64, so that the allocator is used on every device.
BIG: Final = (130, 130)
DTYPES: Final = (flow.float32, flow.int64)

VIEWS: Final = frozenset({"slice", "select", "turn", "expand"})
UNARY: Final[dict[str, Callable[[Array], Array]]] = {
    "neg": np.negative,
    "square": np.square,
    "abs": np.abs,
    "clone": np.positive,
}
BINARY: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
}


# Known mistakes of the machine, which are ignored; tests say when they are gone.
KNOWN: Final[frozenset[str]] = frozenset()

# Far longer than anything here takes, in seconds.
PATIENCE: Final = 10.0


class Planted(ArithmeticError):
    """Raised by a kernel that was told to; carries which."""


class DeviceFault(OSError):
    """The error with which a simulated device fails."""


class Contradiction(AssertionError):
    """The machine did something else than the oracle says."""


# Programs


class Step(NamedTuple):
    """One line of a program.

    Attributes:
        kind: the action; see `Player`.
        out: the name of the result, or of the scope.
        args: the names of operands; a step whose operands are not there is left out.
        detail: further arguments.
    """

    kind: str
    out: str = ""
    args: tuple[str, ...] = ()
    detail: tuple[Any, ...] = ()


class Setting(NamedTuple):
    """Where programs run.

    Attributes:
        mode: of the simulated devices, or "cpu" for none.
        seed: of the simulated devices.
        worker: of the CPU.
        surroundings: "script"; "loop", where each program is a coroutine; or "threads".
        machines: how many there are; programs of several exchange tensors between them.
        traced: whether a trace is taken; without one nothing may happen whose outcome is a matter of time.
    """

    mode: str
    seed: int
    worker: str
    surroundings: str
    machines: int
    traced: bool
    race_check: bool
    gather: int
    window: int
    high_water: int


class Case(NamedTuple):
    """A setting, and programs that run together and share its machines but no tensor."""

    setting: Setting
    programs: tuple[tuple[Step, ...], ...]

    def __str__(self) -> str:
        lines = [f"Case({self.setting!r}, ("]
        for program in self.programs:
            lines += ["    (", *[f"        {_step(step)}," for step in program], "    ),"]
        return "\n".join([*lines, "))"])


def _step(step: Step) -> str:
    parts = [repr(step.kind)]
    parts += [f"{name}={value!r}" for name, value in zip(step._fields[1:], step[1:], strict=True) if value]
    return f"Step({', '.join(parts)})"


class Known(NamedTuple):
    """The generator's knowledge of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    writeable: bool = True
    huge: bool = False
    root: str = ""  # the tensor whose memory it is


def make_case(seed: int, mode: str) -> Case:
    """The case of this seed."""
    choose = random.Random(f"{seed} {mode}")
    surroundings = choose.choices(("script", "loop", "threads"), (6, 4, 1))[0]
    count = 1 if surroundings == "script" else choose.randint(1, 3)
    machines = 2 if count == 1 and choose.random() < 0.25 else 1
    plain = surroundings != "loop"
    setting = Setting(
        mode,
        choose.randrange(1 << 16),
        choose.choice(("never", "always", "auto")),
        surroundings,
        machines,
        choose.random() < 0.7,
        choose.random() < 0.5,
        choose.choice((1, 32, 1 << 60)),
        choose.choice((1, 8, 64)),
        choose.choice((8, 40_000)) if plain else 40_000,
    )
    writers = [Writer(choose, setting, alone=count == 1) for _ in range(count)]
    return Case(setting, tuple([writer.program(choose.randint(5, 40)) for writer in writers]))


class Writer:
    """Writes one program."""

    def __init__(self, choose: random.Random, setting: Setting, alone: bool) -> None:
        self.choose = choose
        self.setting = setting
        self.devices = ("cpu",) if setting.mode == "cpu" else ("cpu", *SIMULATED)
        self.steps: list[Step] = []
        self.pool: dict[str, Known] = {}
        self.names = 0
        self.focus = ""
        self.open: list[str] = []
        self.scopes: list[str] = []
        kinds: list[tuple[Callable[[], object], int]] = [
            (self.create, 4),
            (self.unary, 4),
            (self.binary, 6),
            (self.reduce, 2),
            (self.matmul, 2),
            (self.view, 8),
            (self.change, 9),
            (self.forget, 5),
            (self.fail, 2),
            (self.peek, 1),
            (self.read, 2),
            (self.barrier, 1),
            (lambda: self.add("pause"), 1),
            (lambda: self.add("sync"), 1),
            (self.pair, 2),
            (self.poke, 1),
            (self.update, 2),
            (self.enter, 3),
            (self.leave, 3),
        ]
        if setting.mode != "cpu":
            kinds += [(self.copy, 7), (self.huge, 1), (self.use_huge, 2), (self.wait, 1)]
            # Requests that fit only one after the other: not if others are at it, or overtake.
            self.churns = alone and setting.machines == 1 and choose.random() < 0.3
            if self.churns:
                kinds += [(self.churn, 4)]
            if setting.traced:
                kinds += [(self.plant, 1)]
        else:
            self.churns = False
        if setting.machines > 1:
            kinds += [(lambda: self.add("machine", detail=(self.choose.randrange(setting.machines),)), 4)]
            kinds += [(lambda: self.add("retire", detail=(self.choose.randrange(setting.machines),)), 1)]
        if setting.traced:
            kinds += [(self.cancel, 2), (self.impatient, 1)]
            if alone:
                kinds += [(lambda: self.add("tick"), 2)]
        self.kinds = [kind for kind, _ in kinds]
        self.weights = [weight for _, weight in kinds]

    def program(self, length: int) -> tuple[Step, ...]:
        for _ in range(3):
            self.create()
        while len(self.steps) < length:
            self.choose.choices(self.kinds, self.weights)[0]()
        return tuple(self.steps)

    def add(self, kind: str, known: Known | None = None, args: Iterable[str] = (), detail: tuple[Any, ...] = ()) -> str:
        out = ""
        if known is not None:
            out = f"v{self.names}"
            self.names += 1
            self.pool[out] = known if kind in VIEWS else known._replace(root=out)
        self.steps.append(Step(kind, out, tuple(args), detail))
        return out

    def pick(self, fits: Callable[[Known], bool] = lambda x: True) -> str | None:
        found = [name for name, known in self.pool.items() if not known.huge and fits(known)]
        if not found:
            return None
        # Often a tensor that shares memory with the last: most errors need several steps with one storage.
        focused = [name for name in found if self.pool[name].root == self.focus]
        name = self.choose.choice(focused if focused and self.choose.random() < 0.5 else found)
        self.focus = self.pool[name].root
        return name

    def create(self) -> None:
        device = self.choose.choice(self.devices)
        dtype = self.choose.choice(DTYPES).name
        shape = BIG if self.choose.random() < 0.1 else self.choose.choice(SHAPES)
        kind = self.choose.choice(("full", "tensor"))
        self.add(kind, Known(shape, dtype, device), detail=(shape, dtype, device, self.choose.randrange(1, 50)))

    def unary(self) -> None:
        name = self.pick()
        if name is not None:
            known = self.pool[name]._replace(writeable=True)
            self.add("unary", known, (name,), (self.choose.choice(list(UNARY)),))

    def binary(self) -> None:
        first = self.pick()
        if first is None:
            return
        known = self.pool[first]
        second = self.pick(
            lambda tensor: tensor[1:3] == known[1:3] and _broadcast(tensor.shape, known.shape) is not None
        )
        shape = _broadcast(known.shape, self.pool[second].shape) if second is not None else None
        if second is not None and shape is not None:
            result = Known(shape, known.dtype, known.device)
            self.add("binary", result, (first, second), (self.choose.choice(list(BINARY)),))

    def reduce(self) -> None:
        name = self.pick(lambda tensor: tensor.dtype == "int64" and len(tensor.shape) > 0)
        if name is not None:
            known = self.pool[name]
            axis = self.choose.randrange(len(known.shape))
            shape = known.shape[:axis] + known.shape[axis + 1 :]
            self.add("sum", Known(shape, "int64", known.device), (name,), (axis,))

    def matmul(self) -> None:
        first = self.pick(lambda tensor: tensor.dtype == "int64" and len(tensor.shape) == 2 and tensor.shape[0] < 10)
        if first is None:
            return
        known = self.pool[first]
        second = self.pick(
            lambda tensor: (
                tensor[1:3] == known[1:3]
                and len(tensor.shape) == 2
                and tensor.shape[0] == known.shape[1]
                and tensor.shape != BIG
            )
        )
        if second is not None:
            shape = (known.shape[0], self.pool[second].shape[1])
            self.add("matmul", Known(shape, known.dtype, known.device), (first, second))

    def view(self) -> None:
        name = self.pick()
        if name is None:
            return
        known = self.pool[name]
        shape = known.shape
        kind = self.choose.choice(("slice", "select", "turn", "expand"))
        if kind == "slice" and shape:
            start, stop, step = (
                self.choose.choice((0, 1)),
                self.choose.choice((2, shape[0])),
                self.choose.choice((1, 2)),
            )
            size = len(range(*slice(start, stop, step).indices(shape[0])))
            self.add(kind, known._replace(shape=(size, *shape[1:])), (name,), (start, stop, step))
        elif kind == "select" and shape and shape[0]:
            self.add(kind, known._replace(shape=shape[1:]), (name,), (self.choose.randrange(shape[0]),))
        elif kind == "turn" and len(shape) > 1:
            order = list(range(len(shape)))
            self.choose.shuffle(order)
            self.add(kind, known._replace(shape=tuple([shape[axis] for axis in order])), (name,), (tuple(order),))
        elif kind == "expand" and len(shape) < 3 and shape != BIG:
            self.add(kind, known._replace(shape=(2, *shape), writeable=False), (name,), ((2, *shape),))

    def change(self) -> None:
        target = self.pick(lambda x: x.writeable)
        if target is None:
            return
        known = self.pool[target]
        kind = self.choose.choice(("fill_", "add_number_", "add_", "mul_", "copy_"))
        if kind in ("fill_", "add_number_"):
            self.add(kind, None, (target,), (self.choose.randrange(9),))
            return
        same_device = kind != "copy_"
        other = self.pick(
            lambda tensor: (
                tensor.dtype == known.dtype
                and (tensor.device == known.device or not same_device)
                and _broadcast(tensor.shape, known.shape) == known.shape
            )
        )
        if other is not None:
            self.add(kind, None, (target, other))

    def forget(self) -> None:
        if len(self.pool) > 3:
            name = self.choose.choice(list(self.pool))
            del self.pool[name]
            self.add("free", None, (name,))

    def fail(self) -> None:
        target = self.pick(lambda x: x.writeable)
        if target is not None:
            known = self.pool[target]
            other = self.pick(lambda tensor: tensor.device == known.device)
            args = (target,) if other is None or self.choose.random() < 0.5 else (target, other)
            self.add("fail", None, args)

    def pair(self) -> None:
        """Two results of one instruction, written over two others."""
        source = self.pick()
        if source is not None:
            known = self.pool[source]
            targets = [self.pick(lambda x: x.writeable and x[:3] == known[:3]) for _ in range(2)]
            names = [name for name in targets if name is not None]
            if len(names) == 2:
                self.add("pair", None, (source, *names))

    def poke(self) -> None:
        name = self.pick(lambda x: x.writeable)
        if name is not None:
            self.add("poke", None, (name,), (self.choose.randrange(9),))

    def update(self) -> None:
        """An op on one or two tensors, with another operand."""
        names = [self.pick()]
        device = self.pool[names[0]].device if names[0] is not None else ""
        for _ in range(self.choose.randint(1, 2)):
            names.append(self.pick(lambda tensor: tensor.writeable and tensor.device == device))
        found = [name for name in names if name is not None]
        if len(found) == len(names):
            self.add("update", None, found)

    def impatient(self) -> None:
        name = self.pick()
        if name is not None:
            self.add("impatient", None, (name,))

    def peek(self) -> None:
        name = self.pick()
        if name is not None:
            self.add("peek", None, (name,))

    def read(self) -> None:
        name = self.choose.choice(list(self.pool)) if self.pool else None
        if name is not None:
            self.add("read", None, (name,))

    def barrier(self) -> None:
        self.add("barrier")

    def enter(self) -> None:
        if len(self.open) > 2:
            return
        kinds = ["plain", "cancelled", "late", "shield"]
        if not self.churns:
            kinds += ["urgent", "lazy"]
        if self.setting.traced:
            kinds += ["plain", "deadline"]
        name = f"s{len(self.scopes)}"
        self.open.append(name)
        self.scopes.append(name)
        self.steps.append(Step("open", name, (), (self.choose.choice(kinds),)))

    def leave(self) -> None:
        if self.open:
            self.steps.append(Step("close", self.open.pop()))

    def cancel(self) -> None:
        if self.scopes:
            kind = self.choose.choice(("cancel", "cancel", "cancel soon"))
            self.steps.append(Step(kind, self.choose.choice(self.scopes[-3:])))

    def copy(self) -> None:
        name = self.pick()
        if name is not None:
            known = self.pool[name]
            device = self.choose.choice([value for value in self.devices if value != known.device])
            self.add("to", known._replace(device=device, writeable=True), (name,), (device,))

    def huge(self) -> None:
        device = self.choose.choice(SIMULATED)
        source = self.pick(lambda tensor: tensor.device == "cpu" and tensor.dtype == "float32" and tensor.shape == ())
        known = Known((HUGE + len(self.steps),), "float32", device, huge=True)
        if source is not None and self.choose.random() < 0.7:
            self.add("flood", known, (source,), (device, known.shape[0]))
        else:
            self.add("full", known, detail=(known.shape, "float32", device, 1))

    def use_huge(self) -> None:
        found = [name for name, known in self.pool.items() if known.huge]
        if not found:
            return
        name = self.choose.choice(found)
        known = self.pool[name]
        kind = self.choose.choice(("slice", "more", "fill_", "add_number_"))
        if kind == "slice":
            self.add(kind, known._replace(shape=(3,), huge=False), (name,), (0, 3, 1))
        elif kind == "more":
            self.add("unary", known, (name,), ("neg",))
        else:
            self.add(kind, None, (name,), (2,))

    def churn(self) -> None:
        device = self.choose.choice(SIMULATED)
        self.add("churn", Known((3,), "float32", device), detail=(device, self.choose.randrange(9)))

    def wait(self) -> None:
        name = self.pick(lambda tensor: tensor.device != "cpu")
        if name is not None:
            kinds = ("compute", "host_to_device", "device_to_host")
            self.add(self.choose.choice(("wait", "event")), None, (name,), tuple(self.choose.sample(kinds, 2)))

    def plant(self) -> None:
        self.add("plant", detail=(self.choose.choice(SIMULATED), self.choose.randint(1, 6)))


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(first, second)
    except ValueError:
        return None
    return shape if len(shape) <= 3 else None


def values(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """The content of a tensor made from an array."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


# Events


class Record:
    """One instruction.

    Attributes:
        began, ended: whether it has.
        error: its failure, or why it was dropped.
        dropped: whether it was.
        must_drop: whether its scope ended before it began.
    """

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.name = instruction.name
        self.began = False
        self.ended = False
        self.error: BaseException | None = None
        self.dropped = False
        self.must_drop = False
        # Known later, when it has lost its policy.
        self.droppable = instruction.policy is not None and instruction.policy.droppable

    def scope_is_dead(self) -> bool:
        mode = self.instruction.mode
        return mode is not None and mode.scope is not None and mode.scope.dropped() is not None

    def __repr__(self) -> str:
        how = "dropped" if self.dropped else "failed" if self.error else "ended" if self.ended else "not ended"
        return f"<{self.name} {how} must_drop={self.must_drop} {self.error!r}>"


# Which step of which program is being issued.
STEP: contextvars.ContextVar[tuple[int, int]] = contextvars.ContextVar("STEP")


class Trace:
    """A machine's tracer that keeps a record of every instruction a step issued."""

    def __init__(self) -> None:
        self.of: dict[Instruction, Record] = {}
        self.steps: dict[tuple[int, int], list[Record]] = {}

    def issued(self, instruction: Instruction) -> None:
        step = STEP.get(None)
        policy = instruction.policy
        if step is None or isinstance(policy, GlobalSync):
            return
        if isinstance(policy, (OpCall, MultiTensorUpdate, AllocateTensor, AccessBlobByCallback, Barrier)):
            record = self.of[instruction] = Record(instruction)
            self.steps.setdefault(step, []).append(record)

    def began(self, instruction: Instruction) -> None:
        record = self.of.get(instruction)
        if record is not None:
            check(not record.began, f"{record!r} began twice")
            record.began = True

    def ended(self, instruction: Instruction, outcome: Any) -> None:
        record = self.of.get(instruction)
        if record is not None:
            check(record.began and not record.ended, f"{record!r} ended without having begun, or twice")
            if isinstance(outcome, Failure):
                record.error = outcome.error
                record.dropped = outcome.dropped
            record.ended = True

    def finished(self, instruction: Instruction, failure: Failure | None) -> None:
        """Only for deferred instructions, which no step issues."""

    def computed(self, instruction: Instruction, begin: int, end: int) -> None:
        pass

    def abandoned(self, instruction: Instruction) -> None:
        check(instruction not in self.of, f"{instruction!r} was abandoned")

    def awaited(self, instruction: Instruction) -> object:
        return None

    def resumed(self, wait: object) -> None:
        """Nothing was noted of it."""

    def scope_ended(self, program: int) -> None:
        """Instructions that have not begun by now must be dropped if their scope has ended."""
        for (of, _), records in list(self.steps.items()):
            for record in records if of == program else ():
                if record.droppable and not record.began and record.scope_is_dead():
                    record.must_drop = True

    def all_ended(self) -> bool:
        return all(record.ended for record in list(self.of.values()))


class Found(NamedTuple):
    """The result of a read."""

    array: Array | None
    error: BaseException | None


def check(holds: bool, message: str) -> None:
    if not holds:
        raise Contradiction(message)


# Playing


class World:
    """The machines, devices and clock of one case."""

    def __init__(self, setting: Setting, forgiven: frozenset[str]) -> None:
        self.setting = setting
        self.forgiven = forgiven
        # Waiters that were never woken wake up by themselves.
        self.naps = setting.surroundings == "threads" and "threads left asleep" in forgiven
        self.now = 1000.0  # the time by the clock of scopes
        self.trace = Trace() if setting.traced else None
        self.devices: dict[str, SimulatedDevice] = {}
        for number, name in enumerate(SIMULATED if setting.mode != "cpu" else ()):
            made = SimulatedDevice(name, setting.mode, seed=setting.seed + number)
            self.devices[name] = stream_table._simulated[Device(name)] = made
            # New too, so that no memory is taken by earlier cases.
            stream_table._memories[Device(name)] = DeviceMemory(name, garbage=GARBAGE)
            flow.set_memory_limit(LIMIT, name)
        self.machines = [self.make_machine(number) for number in range(setting.machines)]
        # Closed in the middle of it all.
        self.retired: list[VirtualMachine] = []
        self.log = Log()
        self.reported_early: set[int] = set()

    def make_machine(self, number: int) -> VirtualMachine:
        setting = self.setting
        machine = VirtualMachine(
            f"chaos {number}",
            window=setting.window,
            gather=setting.gather,
            high_water=setting.high_water,
            cpu_worker=setting.worker,
            race_check=setting.race_check,
            stall_after=0.05 if self.naps else PATIENCE,
        )
        machine.tracer = self.trace
        return machine

    def all_machines(self) -> list[VirtualMachine]:
        return [*self.machines, *self.retired]


class Player:
    """Plays one program on the machines.

    Attributes:
        found: by step, the result of a read or a peek.
        called: the steps whose callbacks were called.
        steps: those of the program, and the reads of all that is left in the end.
    """

    def __init__(self, world: World, number: int, program: tuple[Step, ...]) -> None:
        self.world = world
        self.number = number
        self.steps = list(program)
        self.found: dict[int, Found] = {}
        self.called: list[int] = []
        self.pool: dict[str, flow.Tensor] = {}
        self.scopes: dict[str, Scope] = {}
        self.open: list[tuple[str, Any]] = []

    def play(self) -> Generator[tuple[str, Any], Found | None, None]:
        """Yields the waits: ("read", tensor), ("sync", the result of `synchronize`) or ("pause", None)."""
        world = self.world
        self.switch(0)
        for index, step in enumerate(self.steps):
            STEP.set((self.number, index))
            yield from self.do(index, step)
            if world.setting.surroundings != "threads":
                for machine in world.machines:
                    with machine.driver.turn_lock:  # else a worker may be in the middle of a turn
                        machine.engine.check_invariants()
        STEP.set((self.number, len(self.steps)))
        while self.open:
            self.close()
        for device in world.devices.values():
            device.restore()
        for number in range(len(world.machines)):
            self.switch(number)
            yield "sync", flow.synchronize()
        for name in sorted(self.pool):
            index = len(self.steps)
            step = Step("read", "", (name,))
            self.steps.append(step)
            STEP.set((self.number, index))
            yield from self.do(index, step)
        self.pool.clear()

    def check_memory(self, tensor: flow.Tensor) -> None:
        """A value of a device lies in the device's memory."""
        storage = tensor._blob.storage
        if tensor.device.type == "sim" and tensor.numel() and storage.settled() and storage.failure is None:
            check(storage.allocation is not None, f"{storage.array!r} is not in memory of {tensor.device}")

    def switch(self, number: int) -> None:
        MODE.set(MODE.get().replace(machine=self.world.machines[number]))

    def do(self, index: int, step: Step) -> Generator[tuple[str, Any], Found | None, None]:
        if not all(name in self.pool for name in step.args):
            return
        args = [self.pool[name] for name in step.args]
        if step.kind == "read":
            found = yield "read", args[0]
            assert found is not None
            self.found[index] = found
            self.check_memory(args[0])
        elif step.kind == "pause":
            yield "pause", None
        elif step.kind == "impatient":
            found = yield "glance", args[0]
            if found is not None:
                self.found[index] = found
        elif step.kind == "sync":
            yield "sync", flow.synchronize()
        elif step.kind == "retire":
            yield from self.retire(step.detail[0] % len(self.world.machines))
        elif step.kind in ("open", "close", "cancel", "cancel soon", "tick"):
            self.do_scope(step)
        elif step.kind == "free":
            del self.pool[step.args[0]]
        elif step.kind == "machine":
            self.switch(step.detail[0] % len(self.world.machines))
        elif step.kind == "plant":
            device, count = step.detail
            if device in self.world.devices:
                self.world.devices[device].fail_after(count, DeviceFault(self.number, index))
        elif step.out:
            self.pool[step.out] = self.make(step, args)
        else:
            self.change(index, step, args)

    def retire(self, number: int) -> Generator[tuple[str, Any], Found | None, None]:
        """Close a machine that has finished, and go on with another in its place."""
        world = self.world
        current = world.machines.index(MODE.get().machine)
        self.switch(number)
        yield "sync", flow.synchronize()
        machine = world.machines[number]
        before = len(world.log.errors)
        machine.close()
        # A machine that closes reports failures that nobody has seen so far.
        world.reported_early |= {id(error) for error in world.log.errors[before:]}
        check(machine.state == "closed", f"{machine!r} was closed")
        world.retired.append(machine)
        world.machines[number] = world.make_machine(len(world.machines) + len(world.retired))
        self.switch(current)

    def make(self, step: Step, args: list[flow.Tensor]) -> flow.Tensor:
        kind, detail = step.kind, step.detail
        made: flow.Tensor
        if kind == "full":
            shape, dtype, device, value = detail
            made = flow.full(shape, value, dtype=getattr(flow, dtype), device=device)
        elif kind == "tensor":
            shape, dtype, device, seed = detail
            made = flow.tensor(values(shape, dtype, seed), device=device)
        elif kind in ("unary", "binary"):
            made = getattr(args[0], detail[0])(*args[1:])
        elif kind == "sum":
            made = args[0].sum(detail[0])
        elif kind == "matmul":
            made = args[0] @ args[1]
        elif kind == "slice":
            made = args[0][slice(*detail)]
        elif kind == "select":
            made = args[0][detail[0]]
        elif kind == "turn":
            made = args[0].permute(detail[0])
        elif kind == "expand":
            made = args[0].expand(*detail[0])
        elif kind == "to":
            made = args[0].to(detail[0])
        elif kind == "flood":
            made = args[0].expand(detail[1]).to(detail[0])
        else:
            assert kind == "churn"
            made = flow.full((CHURN,), detail[1], dtype=flow.float32, device=detail[0])[:3] + 1
        return made

    def change(self, index: int, step: Step, args: list[flow.Tensor]) -> None:
        kind, detail = step.kind, step.detail
        machine = MODE.get().machine
        if kind == "fill_":
            args[0].fill_(detail[0])
        elif kind == "add_number_":
            args[0].add_(detail[0])
        elif kind in ("add_", "mul_", "copy_"):
            getattr(args[0], kind)(args[1])
        elif kind == "fail":
            kernel = failing((self.number, index))
            blobs = tuple([arg._blob for arg in args[1:]])
            physical_run(machine, lambda builder: builder.op_call("planted", kernel, blobs, (args[0]._blob,)))
        elif kind == "peek":
            blob = args[0]._blob
            physical_run(machine, lambda builder: builder.access_blob_by_callback(blob, self.peeking(index)))
        elif kind == "poke":
            blob = args[0]._blob
            physical_run(machine, lambda builder: builder.access_blob_by_callback(blob, self.poking(step), "mut"))
        elif kind == "pair":
            source, *targets = [arg._blob for arg in args]
            physical_run(
                machine, lambda builder: builder.op_call("pair", both, (source,), tuple(targets), several=True)
            )
        elif kind == "update":
            blobs = tuple([arg._blob for arg in args])
            physical_run(machine, lambda builder: builder.multi_tensor_update("update", add_one, blobs[:1], blobs[1:]))
        elif kind == "barrier":
            physical_run(machine, lambda builder: builder.barrier(self.passing(index)))
        else:
            self.order(machine, step, args[0])

    def order(self, machine: VirtualMachine, step: Step, tensor: flow.Tensor) -> None:
        """Make one stream of the tensor's device wait for another, for its sake."""
        source, target = [machine.stream(tensor.device, kind) for kind in step.detail]
        blobs = (tensor._blob,)

        def by_event(builder: InstructionsBuilder) -> None:
            shared, event = SharedEvent(source), Dependence(machine)
            builder.record_event(shared, (machine.access(blobs[0].storage, source),), event)
            builder.wait_event(target, shared, event)

        if step.kind == "event":
            physical_run(machine, by_event)
        else:
            physical_run(machine, lambda builder: builder.stream_wait(source, target, blobs))

    def peeking(self, index: int) -> Callable[[Array], None]:
        def callback(array: Array) -> None:
            self.called.append(index)
            self.found[index] = Found(array.copy(), None)

        return callback

    def poking(self, step: Step) -> Callable[[Array], None]:
        def callback(array: Array) -> None:
            array[...] = step.detail[0]

        return callback

    def passing(self, index: int) -> Callable[[], None]:
        trace = self.world.trace
        machine = MODE.get().machine
        streams = machine.streams()
        # The trace is told of an instruction a moment before it is in the queue, and so before it is ahead of anything.
        queued = set(machine.engine.pending)
        before = [
            value
            for value in (list(trace.of.values()) if trace is not None else [])
            if value.instruction.stream in streams and (value.instruction in queued or value.instruction.serial >= 0)
        ]

        def callback() -> None:
            self.called.append(index)
            check(all(record.ended for record in before), f"the barrier of step {index} came early")

        return callback

    def do_scope(self, step: Step) -> None:
        world = self.world
        if step.kind == "open":
            block = flow.scope(name=f"{step.out} of {self.number}", **self.options(step.detail[0]))
            scope = self.scopes[step.out] = block.__enter__()
            self.open.append((step.out, block))
            if step.detail[0] == "cancelled":
                scope.cancel()
        elif step.kind == "close":
            while any(name == step.out for name, _ in self.open):
                self.close()
        elif step.kind == "cancel soon" and world.setting.surroundings == "loop":
            if step.out in self.scopes:
                asyncio.get_running_loop().call_soon(self.scopes[step.out].cancel)
        elif step.kind in ("cancel", "cancel soon"):
            if step.out in self.scopes:
                self.scopes[step.out].cancel()
        else:
            world.now += 1.0
        if world.trace is not None and step.kind in ("cancel", "tick"):
            world.trace.scope_ended(self.number)

    def options(self, kind: str) -> dict[str, Any]:
        by_kind: dict[str, dict[str, Any]] = {
            "late": {"timeout": -1},
            "shield": {"shield": True},
            "urgent": {"priority": 2},
            "lazy": {"priority": -1},
            "deadline": {"timeout": 2},
        }
        return by_kind.get(kind, {})

    def close(self) -> None:
        _, block = self.open.pop()
        block.__exit__(None, None, None)


def failing(key: tuple[int, int]) -> Callable[..., Any]:
    """A kernel that spoils its result and raises."""

    def kernel(*arguments: Any) -> Any:
        out = arguments[-1]
        if out is not None:
            out[...] = 77
        raise Planted(key)

    return kernel


def play_script(player: Player) -> None:
    playing = player.play()
    found: Found | None = None
    try:
        while True:
            action, target = playing.send(found)
            found = None
            if action == "read":
                try:
                    found = Found(target.numpy(), None)
                except Exception as error:
                    # Its lines hold the tensor, and it is held by others that share it.
                    found = Found(None, error.with_traceback(None))
            target = None
    except StopIteration:
        return


async def play_coroutine(player: Player) -> None:
    playing = player.play()
    found: Found | None = None
    try:
        while True:
            action, target = playing.send(found)
            found = None
            if action == "read":
                try:
                    read = await target.to("cpu")
                    found = Found(read.numpy(), None)
                except Exception as error:
                    # Its lines hold the tensor, and it is held by others that share it.
                    found = Found(None, error.with_traceback(None))
                read = None
            elif action == "sync":
                await target
            elif action == "glance":
                found = await glance(target)
            else:
                await asyncio.sleep(0)
            target = None
    except StopIteration:
        return


async def glance(tensor: flow.Tensor) -> Found | None:
    """Begin to wait, and give up immediately."""

    async def wait() -> None:
        await tensor

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    if waiting.cancelled():
        return None
    error = waiting.exception()
    return None if error is None else Found(None, error.with_traceback(None))


def both(array: Array, out: Any) -> tuple[Array, Array]:
    return array + array.dtype.type(1), array - array.dtype.type(1)


def add_one(read: list[Array], written: list[Array]) -> None:
    for array in written:
        array += 1


# The oracle


class Reason(NamedTuple):
    """Why there is no value.

    Attributes:
        kind: "exact", for an error that a trace has noted; "dropped", the same for one of which copies are raised;
            "planted", "oom" or "dead".
        detail: the error; its type and text; the kernel; the bytes; the names of the scopes that may have ended.
    """

    kind: str
    detail: Any

    def is_dropping(self) -> bool:
        return self.kind in ("dead", "dropped")

    def explains(self, error: BaseException) -> bool:
        if self.kind == "exact":
            return error is self.detail
        if self.kind == "dropped":
            return bool((type(error), str(error)) == self.detail)
        if self.kind == "planted":
            return isinstance(error, Planted) and error.args[0] == self.detail
        if self.kind == "oom":
            return isinstance(error, OutOfMemory) and error.requested == self.detail
        assert self.kind == "dead"
        return isinstance(error, (Cancelled, DeadlineExceeded)) and any(
            f"'{value}'" in str(error) for value in self.detail
        )


# Any of these reasons may be the one; none if there is a value.
Poison = frozenset[Reason]
SOUND: Final[Poison] = frozenset()


class Span:
    """A scope, as the oracle sees it."""

    def __init__(self, name: str, outer: Span | None, shield: bool, deadline: float | None) -> None:
        self.name = name
        self.outer = outer
        self.shield = shield
        self.deadline = deadline
        self.cancelled = False
        # A step cancels it sooner or later.
        self.will_be_cancelled = False

    def chain(self) -> list[Span]:
        """The scopes whose end ends this one, including itself."""
        found = [self]
        while found[-1].outer is not None and not found[-1].shield:
            found.append(found[-1].outer)
        return found

    def dead(self, now: float) -> bool:
        return any(value.cancelled or (value.deadline is not None and value.deadline <= now) for value in self.chain())

    def may_be_dead(self, now: float) -> bool:
        return self.dead(now) or any(span.will_be_cancelled for span in self.chain())

    def reason(self) -> Reason:
        return Reason("dead", tuple([value.name for value in self.chain()]))


class Memory:
    """A storage."""

    def __init__(self, array: Array, span: Span | None) -> None:
        self.array = array
        self.span = span
        self.poison = SOUND
        # The scope of the last instruction that was to write it.
        self.writer: Span | None = None


class Seen(NamedTuple):
    """A tensor: its storage, the part of it, and whether it is the whole of it."""

    memory: Memory
    array: Array
    whole: bool
    device: str


class Fate(NamedTuple):
    """The outcome of an instruction, apart from its results.

    Attributes:
        reason: why it was dropped, or failed by its device.
        dropped: which of the two.
    """

    reason: Reason | None
    dropped: bool


class Oracle:
    """Goes through the steps that were played, and checks their results.

    Attributes:
        early: how many reads were told that the scope of the last write had ended, and the value was there later.
        raised: the errors that were seen.
    """

    def __init__(self, player: Player) -> None:
        self.player = player
        self.number = player.number
        self.trace = player.world.trace
        self.pool: dict[str, Seen] = {}
        self.spans: dict[str, Span] = {}
        self.stack: list[Span] = []
        self.now = 1000.0
        # The instruction, and its scope.
        self.dropped: list[tuple[Span | None, Record]] = []
        self.index = 0
        self.taken = 0
        self.early = 0
        self.raised: list[BaseException] = []
        # Every reason that there ever was for something to have no value.
        self.assigned: set[Reason] = set()

    @property
    def span(self) -> Span | None:
        return self.stack[-1] if self.stack else None

    def go(self, final: int) -> None:
        """Check everything; from the step `final` on there is nothing that may still be going on."""
        for index, step in enumerate(self.player.steps):
            self.index, self.taken = index, 0
            if index == final:
                self.stack.clear()
            if all(name in self.pool for name in step.args):
                try:
                    self.do(step, index >= final)
                except Contradiction as error:
                    error.add_note(f"program {self.number}, step {index}: {_step(step)}")
                    raise
            if self.trace is not None:
                records = self.trace.steps.get((self.number, index), [])
                check(len(records) == self.taken, f"step {index} issued {records}, of which {self.taken} are known")
        self.check_drops()

    def check_drops(self) -> None:
        for span, record in self.dropped:
            check(span is not None and span.may_be_dead(self.now), f"{record!r} in a scope that never ended")
        for (number, index), records in (self.trace.steps if self.trace is not None else {}).items():
            for record in records if number == self.number else ():
                where = f"program {number}, step {index}: {record!r}"
                check(record.ended, f"{where} never ended")
                check(record.dropped or not record.must_drop or isinstance(record.error, DeviceFault), where)

    def fate(self) -> Fate:
        """The record of the next instruction of this step."""
        ordinal, self.taken = self.taken, self.taken + 1
        span = self.span
        over = span is not None and span.dead(self.now)
        if self.trace is None:
            assert span is not None or not over
            return Fate(span.reason() if span is not None and over else None, over)
        records = self.trace.steps.get((self.number, self.index), [])
        check(ordinal < len(records), "an instruction was not issued")
        record = records[ordinal]
        if record.dropped:
            self.dropped.append((span, record))
            assert record.error is not None
            return Fate(Reason("dropped", (type(record.error), str(record.error))), True)
        if isinstance(record.error, DeviceFault):
            return Fate(Reason("exact", record.error), False)
        check(not over, f"{record!r} was issued in a scope that had ended")
        return Fate(None, False)

    # Instructions

    def new(self, shape: tuple[int, ...], dtype: Any, device: str) -> Seen:
        """A storage that is to be written as a whole."""
        huge = device != "cpu" and int(np.prod(shape)) * 4 > LIMIT
        array = np.broadcast_to(np.zeros((), dtype), shape) if huge else np.zeros(shape, dtype)
        return Seen(Memory(array, self.span), array, True, device)

    def call(self, out: Seen, inputs: list[Seen], compute: Callable[[], Any]) -> Seen:
        """An `OpCall`: `compute` returns the value to write into `out`, or None if it raises `Planted`."""
        memory = out.memory
        fate = self.fate()
        memory.writer = self.span
        huge = out.whole and not memory.array.flags.writeable
        own: Poison = frozenset({Reason("oom", memory.array.nbytes)}) if huge else SOUND
        if fate.reason is not None:
            self.poison(memory, frozenset({fate.reason}))
            # A device may fail at an instruction that would have failed for want of memory.
            self.assigned |= own if not fate.dropped else SOUND
            return out
        for source in inputs:
            if source.memory.poison:
                # Memory may have been asked for before it was known that nothing will be computed.
                self.poison(memory, source.memory.poison | own)
                return out
        if huge:
            self.poison(memory, own)
        elif out.whole or not memory.poison:
            result = compute()
            if result is None:
                self.poison(memory, frozenset({Reason("planted", (self.number, self.index))}))
            else:
                out.array[...] = result
                memory.poison = SOUND
        return out

    def poison(self, memory: Memory, poison: Poison) -> None:
        memory.poison = poison
        self.assigned |= poison

    def transfer(self, source: Seen, device: str) -> Seen:
        if "cpu" not in (source.device, device):
            source = self.transfer(source, "cpu")
        out = self.new(source.array.shape, source.array.dtype, device)
        if source.device == "cpu":
            fate = self.fate()
            if fate.reason is not None:
                self.poison(out.memory, frozenset({fate.reason}))
            return self.call(out, [source, out], lambda: source.array)
        return self.call(out, [source], lambda: source.array)

    # Steps

    def do(self, step: Step, final: bool) -> None:
        args = [self.pool[name] for name in step.args]
        if step.kind in ("open", "close", "cancel", "cancel soon", "tick"):
            self.do_scope(step)
        elif step.kind == "read":
            self.do_read(args[0], final)
        elif step.kind == "peek":
            self.do_peek(args[0])
        elif step.kind == "barrier":
            # Others rely on it, even if the scope has ended.
            called, self.taken = self.player.called.count(self.index), 1
            check(called == 1, f"a barrier was called {called} times")
        elif step.kind == "free":
            del self.pool[step.args[0]]
        elif step.kind == "impatient":
            if self.index in self.player.found:
                error = self.player.found[self.index].error
                assert error is not None
                self.raised.append(error)
        elif step.kind == "pair":
            self.pair(args)
        elif step.kind == "update":
            self.update(args)
        elif step.out:
            self.pool[step.out] = self.make(step, args)
        elif args and step.kind not in ("wait", "event"):
            self.change(step, args)

    def make(self, step: Step, args: list[Seen]) -> Seen:
        kind, detail = step.kind, step.detail
        if kind == "full":
            shape, dtype, device, value = detail
            return self.call(self.new(shape, dtype, device), [], lambda: value)
        if kind == "tensor":
            shape, dtype, device, seed = detail
            array = values(shape, dtype, seed)
            made = Seen(Memory(array, None), array, True, "cpu")
            return made if device == "cpu" else self.transfer(made, device)
        if kind == "churn":
            big = self.call(self.new((CHURN,), np.float32, detail[0]), [], lambda: detail[1])
            return self.call(self.new((3,), np.float32, detail[0]), [big], lambda: big.array[:3] + np.float32(1))
        source = args[0]
        array = source.array
        if kind == "slice":
            return source._replace(array=array[slice(*detail)], whole=False)
        if kind == "select":
            return source._replace(array=array[(detail[0], ...)], whole=False)
        if kind == "turn":
            return source._replace(array=array.transpose(detail[0]), whole=False)
        if kind == "expand":
            return source._replace(array=np.broadcast_to(array, detail[0]), whole=False)
        if kind == "to":
            return self.transfer(source, detail[0])
        if kind == "flood":
            return self.transfer(source._replace(array=np.broadcast_to(array, (detail[1],)), whole=False), detail[0])
        return self.compute(step, args)

    def compute(self, step: Step, args: list[Seen]) -> Seen:
        arrays = [arg.array for arg in args]
        shape: tuple[int, ...]
        if step.kind == "unary":
            shape = arrays[0].shape
            function: Callable[..., Any] = UNARY[step.detail[0]]
        elif step.kind == "binary":
            shape = np.broadcast_shapes(arrays[0].shape, arrays[1].shape)
            function = BINARY[step.detail[0]]
        elif step.kind == "sum":
            axis = step.detail[0]
            shape = arrays[0].shape[:axis] + arrays[0].shape[axis + 1 :]

            def function(array: Array) -> Any:
                return array.sum(axis)
        else:
            assert step.kind == "matmul"
            shape = (arrays[0].shape[0], arrays[1].shape[1])
            function = np.matmul
        return self.call(self.new(shape, arrays[0].dtype, args[0].device), args, lambda: function(*arrays))

    def pair(self, args: list[Seen]) -> None:
        source, *targets = args
        fate = self.fate()
        results = both(source.array, None)
        poison = source.memory.poison
        for number, target in enumerate(targets):
            memory = target.memory
            memory.writer = self.span
            if fate.reason is not None:
                self.poison(memory, frozenset({fate.reason}))
            elif poison:
                self.poison(memory, poison)
            elif target.whole or not memory.poison:
                target.array[...] = results[number]
                memory.poison = SOUND

    def update(self, args: list[Seen]) -> None:
        """A `MultiTensorUpdate`: all or nothing."""
        fate = self.fate()
        found = [arg.memory.poison for arg in args if arg.memory.poison]
        lost = [value for value in found if not all(reason.is_dropping() for reason in value)]
        for out in args[1:]:
            out.memory.writer = self.span
            if fate.reason is not None and not fate.dropped:
                self.poison(out.memory, frozenset({fate.reason}))
            elif lost and not fate.dropped:
                self.poison(out.memory, lost[0])
            elif not found and not fate.dropped:
                out.array[...] += 1

    def change(self, step: Step, args: list[Seen]) -> None:
        target = args[0]
        array = target.array
        kind = step.kind
        if kind == "fill_":
            self.call(target, [], lambda: step.detail[0])
        elif kind == "add_number_":
            self.call(target, [target], lambda: array + array.dtype.type(step.detail[0]))
        elif kind == "copy_":
            source = args[1] if args[1].device == target.device else self.transfer(args[1], target.device)
            self.call(target, [source], lambda: source.array.copy())
        elif kind == "fail":
            self.call(target, args[1:], lambda: None)
        elif kind == "poke":
            self.call(target, [], lambda: step.detail[0])
        else:
            function = np.add if kind == "add_" else np.multiply
            self.call(target, args, lambda: function(array, args[1].array))

    def do_scope(self, step: Step) -> None:
        if step.kind == "open":
            kind = step.detail[0]
            deadline = {"late": self.now - 1, "deadline": self.now + 2}.get(kind)
            span = Span(f"{step.out} of {self.number}", self.span, kind == "shield", deadline)
            span.cancelled = kind == "cancelled"
            self.spans[step.out] = span
            self.stack.append(span)
        elif step.kind == "close":
            while any(value is self.spans.get(step.out) for value in self.stack):
                self.stack.pop()
        elif step.kind in ("cancel", "cancel soon"):
            if step.out in self.spans:
                span = self.spans[step.out]
                span.will_be_cancelled = True
                span.cancelled = span.cancelled or step.kind == "cancel"
        else:
            self.now += 1.0

    def do_read(self, seen: Seen, final: bool) -> None:
        check(self.index in self.player.found, "a read did not come back")
        found = self.player.found[self.index]
        wanted = seen
        if seen.device != "cpu":
            wanted = self.transfer(seen, "cpu")
        if found.error is not None:
            self.raised.append(found.error)
        writer = wanted.memory.writer
        over = not final and writer is not None and writer.may_be_dead(self.now)
        if over and writer is not None and found.error is not None and writer.reason().explains(found.error):
            # A waiter for an instruction whose scope has ended raises immediately.
            self.early += not wanted.memory.poison
            return
        self.compare(found, wanted)

    def compare(self, found: Found, wanted: Seen) -> None:
        poison = wanted.memory.poison
        if found.error is not None:
            if not any(value.explains(found.error) for value in poison):
                raise Contradiction(f"{found.error!r} instead of {list(poison) or 'a value'}") from found.error
            return
        assert found.array is not None
        check(not poison, f"a value instead of {list(poison)}")
        check(found.array.dtype == wanted.array.dtype, f"{found.array.dtype} instead of {wanted.array.dtype}")
        if not np.array_equal(found.array, wanted.array, equal_nan=found.array.dtype.kind == "f"):
            raise Contradiction(f"found\n{found.array}\ninstead of\n{wanted.array}")

    def do_peek(self, seen: Seen) -> None:
        fate = self.fate()
        called = self.player.called.count(self.index)
        check(called == (fate.reason is None and not seen.memory.poison), f"called {called} times")
        if called:
            self.compare(self.player.found[self.index], seen)


# Running


class Log(logging.Handler):
    """The errors that were logged because nobody had seen them."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.others: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and "never looked at" in record.getMessage():
            self.errors.append(record.exc_info[1])
        else:
            self.others.append(record.getMessage())


@contextmanager
def surroundings(world: World, log: Log) -> Iterator[None]:
    """Time stands still unless the program says otherwise, and vmflow's log is listened to."""
    logger = logging.getLogger("vmflow")
    before = logger.propagate, logger.handlers[:]
    mode = MODE.get()
    logger.handlers[:] = [log]
    logger.propagate = False
    token = CLOCK.set(lambda: world.now)
    try:
        yield
    finally:
        MODE.set(mode)
        CLOCK.reset(token)
        logger.propagate, logger.handlers[:] = before


def run(case: Case, forgiven: frozenset[str] = KNOWN) -> Counter[str]:
    """Play the case and check everything; returns some figures.

    Args:
        case: the case.
        forgiven: which of `KNOWN` is not to be looked at.

    Raises:
        Contradiction: if the machine did something else than the oracle says.
        Exception: an unexpected exception of the machine.
    """
    world = World(case.setting, forgiven)
    log = world.log
    players = [Player(world, number, program) for number, program in enumerate(case.programs)]
    with surroundings(world, log):
        try:
            token = STEP.set((-1, -1))
            with np.errstate(all="ignore"):
                play(world, players)
            figures, reported = judge(case, world, players)
            STEP.reset(token)
            leave_nothing(world)
        finally:
            for machine in world.machines:
                machine.tracer = None
                machine.close()
            for name in world.devices:
                del stream_table._simulated[Device(name)], stream_table._memories[Device(name)]
    others = [other for other in log.others if not (world.naps and other.startswith("nothing has ended"))]
    check(not others, f"logged: {others}")
    reported.check(log.errors)
    return figures


def play(world: World, players: list[Player]) -> None:
    if world.setting.surroundings == "script":
        play_script(players[0])
    elif world.setting.surroundings == "threads":
        play_threads(players)
    else:
        asyncio.run(play_loop(world, players))


async def play_loop(world: World, players: list[Player]) -> None:
    async with asyncio.timeout(60):
        if len(world.machines) > 1:
            await play_coroutine(players[0])
            return
        async with world.machines[0], asyncio.TaskGroup() as tasks:
            for player in players:
                tasks.create_task(play_coroutine(player))
        # Leaving has closed it, which must not have been left to be done for anything.
        check(world.machines[0].state == "closed", f"the machine is {world.machines[0].state}")


def play_threads(players: list[Player]) -> None:
    errors: list[BaseException] = []

    def work(player: Player) -> None:
        CLOCK.set(lambda: player.world.now)
        try:
            with np.errstate(all="ignore"):
                play_script(player)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(player,)) for player in players]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        check(not thread.is_alive(), "a thread does not end")
    if errors:
        raise errors[0]


class Reported:
    """The failures that may be logged because nobody has seen them, and those that must be.

    Attributes:
        raised: the errors that were seen.
        assigned: the reasons for which something had no value.
        planted: the errors raised by kernels, as far as they are known.
        early: those reported, rightly, before the end.
    """

    def __init__(self, early: set[int]) -> None:
        self.early = early
        self.raised: list[BaseException] = []
        self.assigned: set[Reason] = set()
        self.planted: list[BaseException] = []

    def check(self, errors: list[BaseException]) -> None:
        seen = {id(value) for value in self.raised}
        counts = Counter([id(value) for value in errors])
        errors = [value for value in errors if id(value) not in self.early]
        for error in errors:
            check(id(error) not in seen, f"{error!r} was looked at, and reported as not looked at")
            reasons = [value for value in self.assigned if value.explains(error)]
            # A device may fail at work without a result, too: giving memory back, for instance.  And an upload may have
            # had no memory before it was dropped.
            blameless = isinstance(error, DeviceFault) or (
                isinstance(error, OutOfMemory)
                and _upload(error)
                and any(value.is_dropping() for value in self.assigned)
            )
            check(bool(reasons) or blameless, f"{error!r} was reported, and spoiled nothing")
            for reason in reasons:
                # One tensor may be refused memory twice; but getting it and filling it is one thing to the program.
                like_it = [
                    value for value in self.raised if reason.explains(value) and _upload(value) and _upload(error)
                ]
                check(not like_it, f"{error!r} was reported, and one like it was seen")
        for error in self.planted:
            due = id(error) not in seen or id(error) in self.early
            check(counts[id(error)] == due, f"{error!r} was reported {counts[id(error)]} times")


def _upload(error: BaseException) -> bool:
    """Whether getting memory for an upload failed, or filling it."""
    return "for allocate_tensor(" in str(error) or "for to_device(" in str(error)


def judge(case: Case, world: World, players: list[Player]) -> tuple[Counter[str], Reported]:
    figures: Counter[str] = Counter()
    reported = Reported(world.reported_early)
    for player, program in zip(players, case.programs, strict=True):
        oracle = Oracle(player)
        with np.errstate(all="ignore"):
            oracle.go(len(program))
        reported.raised += oracle.raised
        reported.assigned |= oracle.assigned
        figures["steps"] += len(player.steps)
        figures["told early"] += oracle.early
        figures.update([f"step {step.kind}" for step in player.steps])
    figures["errors seen"] = len(reported.raised)
    if world.trace is not None:
        records = list(world.trace.of.values())
        reported.planted = [record.error for record in records if isinstance(record.error, Planted)]
        figures["instructions traced"] = len(records)
        figures["dropped"] = sum(record.dropped for record in records)
        figures["surely dropped"] = sum(record.must_drop for record in records)
        figures["device faults"] = sum(isinstance(record.error, DeviceFault) for record in records)
    for player in players:
        player.found.clear()
    for machine in world.all_machines():
        for allocator in machine.memory.allocators.values():
            figures["memory retries"] += allocator.retries
            figures["out of memory"] += allocator.ooms
    return figures, reported


def leave_nothing(world: World) -> None:
    """All tensors are gone: so is everything else."""
    if world.trace is not None:
        world.trace.of.clear()
        world.trace.steps.clear()
    for machine in world.all_machines():
        for _ in range(3):
            machine.drain()
    if any(_allocated(machine) for machine in world.all_machines()):
        # The raised errors' tracebacks.
        gc.collect()
    for machine in world.all_machines():
        for _ in range(3):
            machine.drain()
        check(machine.engine.idle(), f"{machine!r} is not idle: {list(machine.engine.lively)}")
        machine.engine.check_invariants()
        check(not machine.has_waiters(), f"somebody still waits for {machine!r}")
        if machine.races is not None:
            check(machine.races.detector.races == [], f"races: {machine.races.detector.races}")
        for device, allocator in machine.memory.allocators.items():
            allocator.check_invariants()
            left = allocator.statistics()["allocated_bytes.all.current"]
            check(left == 0, f"{left} bytes of {device} are left: {allocator.largest(3)}")
            allocator.shrink()
    for name in world.devices:
        used = device_memory(Device(name)).used
        check(used == 0, f"{used} bytes of {name} were not given back")


def _allocated(machine: VirtualMachine) -> int:
    return sum(
        allocator.statistics()["allocated_bytes.all.current"] for allocator in machine.memory.allocators.values()
    )


# Many, and the smallest that fails


def fails(case: Case, attempts: int = 1) -> str | None:
    """How the case fails, as a word for it; None if it does not."""
    for _ in range(attempts):
        try:
            run(case)
        except Exception as error:
            return type(error).__name__
    return None


def shrink(case: Case, attempts: int = 1) -> Case:
    """Leave out steps, many at a time and then one by one, as long as it still fails."""
    places = [(number, index) for number, program in enumerate(case.programs) for index in range(len(program))]
    size = max(1, len(places) // 2)
    while True:
        start = 0
        before = len(places)
        while start < len(places):
            fewer = places[:start] + places[start + size :]
            if fails(_only(case, fewer), attempts) is not None:
                places = fewer
            else:
                start += size
        if size > 1:
            size //= 2
        elif len(places) == before:
            return _only(case, places)


def _only(case: Case, places: list[tuple[int, int]]) -> Case:
    kept = set(places)
    return case._replace(
        programs=tuple(
            [
                tuple([step for index, step in enumerate(program) if (number, index) in kept])
                for number, program in enumerate(case.programs)
            ]
        )
    )


def main() -> int:
    """Run many programs from the command line."""
    parser = argparse.ArgumentParser(description="Random programs against an oracle.")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, help="of the simulated devices; by default all in turn")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that fails")
    options = parser.parse_args()
    began = time.perf_counter()
    figures: Counter[str] = Counter()
    gc.freeze()
    failed: list[str] = []
    programs = cases = 0
    seed = options.first_seed
    while programs < options.programs:
        mode = options.mode or MODES[seed % len(MODES)]
        case = make_case(seed, mode)
        faulthandler.dump_traceback_later(120, exit=True)
        try:
            figures += run(case)
            figures[f"{case.setting.surroundings} x{len(case.programs)}, {case.setting.machines} machines"] += 1
        except Exception as error:
            failed.append(f"{seed} {mode}: {type(error).__name__}")
            print(f"seed {seed}, mode {mode}, {case.setting}:")
            traceback.print_exception(error)
            if not options.keep_going:
                faulthandler.cancel_dump_traceback_later()
                print(shrink(case, 1 if case.setting.surroundings == "script" else 5))
                return 1
        programs += len(case.programs)
        cases += 1
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    seconds = time.perf_counter() - began
    print(f"{programs} programs in {cases} cases, seeds {options.first_seed} to {seed - 1}, {seconds:.0f} s: ", end="")
    print(f"{len(failed)} failed; " + ", ".join(f"{count} {name}" for name, count in sorted(figures.items())))
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
