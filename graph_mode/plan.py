"""`Plan`: how a job is run, as plain data: tasks on streams, the registers between them, and where buffers lie."""

from __future__ import annotations

import attrs

from vmflow.devices import device as Device

from .actors import RegisterDescriptor, TaskDescriptor
from .describing import memory_report
from .drawing import plan_picture
from .serialization import plan_from_json, plan_to_json


@attrs.frozen
class Arena:
    """The memory of what a task computes and nobody else sees.

    Attributes:
        nbytes: how large it is.
        offsets: by buffer, the byte at which it begins; for the op at position `n` of the job, -1 - n stands for the
            memory in which it works.
        lower_bound: the most bytes that live at one step, which no layout can undercut.
        without_reuse: what the buffers would take next to each other.
        strategy: how the layout was found.
    """

    nbytes: int
    offsets: dict[int, int] = attrs.field(repr=lambda offsets: f"<of {len(offsets)} buffers>")
    lower_bound: int
    without_reuse: int
    strategy: str


@attrs.frozen
class ChainDescriptor:
    """What a task of the kind "compute" runs, one op after the other.

    Attributes:
        device, stream: where; the stream is the kind of one of the machine's.
        ops: positions in the job, in the order in which they run.
        inputs, numbers: buffers that it fills from what the launch was given, before the first op.
        outputs: positions of the job's outputs that it hands to the launch, behind the last op.
        kept: those of the inputs that it reads where the caller has them, unless they are strided.
        straight: those of the outputs that it computes where the caller will look for them.
        arena: see `Arena`.
        cost: nanoseconds, estimated.
        micro: whether it runs once for each micro-batch.
    """

    device: Device
    stream: str
    ops: tuple[int, ...]
    inputs: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    straight: tuple[int, ...] = ()
    arena: Arena = Arena(0, {}, 0, 0, "nothing to place")
    cost: int = 0
    micro: bool = False


@attrs.frozen
class RegisterContents:
    """The buffers in a register; each of its slots has memory for all of them.

    Attributes:
        buffers: ids.
        device: where they are.
        nbytes: of one slot.
    """

    buffers: tuple[int, ...]
    device: Device
    nbytes: int


@attrs.frozen
class Plan:
    """What the runtime of actors runs.

    Attributes:
        name: of the graph.
        tasks, registers: see `graph_mode.actors`.
        chains: by task, what those of the kind "compute" run.
        gathers: by task, the op of the job that those of the kinds "acc", "pack" and "unpack" stand for.
        contents: by register, what is in those that hold data.
        device: of the first task, on whose stream launches are started.
        launches_at_once: how many may be under way.
    """

    name: str
    tasks: tuple[TaskDescriptor, ...]
    registers: tuple[RegisterDescriptor, ...]
    chains: dict[int, ChainDescriptor]
    gathers: dict[int, int]
    contents: dict[int, RegisterContents]
    device: Device
    launches_at_once: int

    @property
    def nbytes(self) -> int:
        """The memory that a run takes beside inputs, outputs and variables."""
        counts = {register.id: register.count for register in self.registers}
        slots = sum([content.nbytes * counts[register] for register, content in self.contents.items()])
        return slots + sum([chain.arena.nbytes for chain in self.chains.values()])

    @property
    def lower_bound(self) -> int:
        """What no layout of the tasks' own memory can undercut; with the registers, which cannot be laid out better."""
        return self.nbytes - sum([chain.arena.nbytes - chain.arena.lower_bound for chain in self.chains.values()])

    @property
    def without_reuse(self) -> int:
        """What a run would take if no memory of a task were used twice."""
        return self.nbytes + sum([chain.arena.without_reuse - chain.arena.nbytes for chain in self.chains.values()])

    def to_json(self, indent: int | None = None) -> str:
        """As text; see `graph_mode.serialization`."""
        return plan_to_json(self, indent)

    @staticmethod
    def from_json(text: str) -> Plan:
        """What `to_json` was called on.

        Raises:
            ValueError: if the text is damaged or was made by a newer version; names the place.
        """
        return plan_from_json(Plan, text)

    def to_dot(self) -> str:
        """As a picture's description for Graphviz: tasks by stream, and the registers between them."""
        return plan_picture(self).dot()

    def to_svg(self) -> str:
        """As an SVG image, whose layout needs no other program."""
        return plan_picture(self).svg()

    def _repr_html_(self) -> str:
        return plan_picture(self).html()

    def memory_report(self) -> str:
        """What a run takes, against what it would take at best and without reuse, for people."""
        return memory_report(self)
