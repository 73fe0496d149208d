"""`Plan`: how a job runs, as plain data: tasks on streams, the registers between them, and the layout of memory."""

from __future__ import annotations

import attrs

from vmflow.devices import device as Device

from .actors import RegisterDescriptor, TaskDescriptor
from .describing import memory_report
from .drawing import plan_picture
from .serialization import plan_from_json, plan_to_json


@attrs.frozen
class Arena:
    """The memory of a task's own buffers, which no other task uses.

    Attributes:
        nbytes: its size.
        offsets: by buffer, its first byte; the key -1 - n stands for the scratch memory of the op at position n of the
            job.
        lower_bound: the most bytes alive at one step; no layout needs less.
        without_reuse: the bytes of all buffers next to each other.
        strategy: how the layout was found; see `memory_planning.Layout`.
    """

    nbytes: int
    offsets: dict[int, int] = attrs.field(repr=lambda offsets: f"<of {len(offsets)} buffers>")
    lower_bound: int
    without_reuse: int
    strategy: str


@attrs.frozen
class ChainDescriptor:
    """The ops of a task of the kind "compute", which run one after the other.

    Attributes:
        device: the device of the ops.
        stream: the kind of the device's stream, such as "compute".
        ops: positions in the job, in the order in which they run.
        inputs: buffers of arguments; all but `kept` are copied from the launch before the first op.
        numbers: buffers to fill from the launch's numbers, before the first op.
        outputs: positions among the job's outputs; all but `straight` are copied to the launch after the last op.
        kept: the inputs that are read in the caller's memory, or in a copy if they are not contiguous or not aligned.
        straight: the outputs that are computed in the caller's memory.
        arena: see `Arena`.
        cost: estimated nanoseconds.
        micro: whether the chain runs once for each micro-batch.
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
        buffers: their ids.
        device: their device.
        nbytes: the size of one slot.
    """

    buffers: tuple[int, ...]
    device: Device
    nbytes: int


@attrs.frozen
class Plan:
    """The tasks of a job, their connections and their memory; a `GraphRuntime` runs it.

    Attributes:
        name: the name of the graph.
        tasks: see `graph_mode.actors`.
        registers: see `graph_mode.actors`.
        chains: by task of the kind "compute", its ops.
        gathers: by task of one op of the kind "unpack", "accumulate" or "pack", the position of this op in the job.
        contents: by register that holds data, its buffers.
        device: the device of the first task, on which launches are started; the CPU without tasks.
        launches_at_once: the number of launches that may run at the same time.

    Raises no errors.

    Example:
        >>> graph = flow.nn.Graph.trace(lambda x: x + 1)
        >>> y = graph(flow.zeros(2))
        >>> [task.kind for task in graph.graph.plan.tasks if task.id in graph.graph.plan.chains]
        ['compute']
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
        """The bytes of all arenas and registers."""
        counts = {register.id: register.count for register in self.registers}
        slots = sum([content.nbytes * counts[register] for register, content in self.contents.items()])
        return slots + sum([chain.arena.nbytes for chain in self.chains.values()])

    @property
    def lower_bound(self) -> int:
        """A lower bound of `nbytes`: the sum of the arenas' lower bounds, and the registers, whose layout is fixed."""
        return self.nbytes - sum([chain.arena.nbytes - chain.arena.lower_bound for chain in self.chains.values()])

    @property
    def without_reuse(self) -> int:
        """The bytes that a run would need if no memory of a task were used twice."""
        return self.nbytes + sum([chain.arena.without_reuse - chain.arena.nbytes for chain in self.chains.values()])

    def to_json(self, indent: int | None = None) -> str:
        """The plan as JSON; see `graph_mode.serialization`."""
        return plan_to_json(self, indent)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan from JSON that `to_json` has written.

        Raises:
            ValueError: if the text is no plan in this version of the format, or has actors that could not run; names
                the place.  Whether the plan fits a job or a machine is not checked.
        """
        return plan_from_json(Plan, text)

    def to_dot(self) -> str:
        """Return a drawing for Graphviz, in DOT: tasks by stream, and the registers between them."""
        return plan_picture(self).dot()

    def to_svg(self) -> str:
        """Return a drawing of the plan as an SVG image, without the help of Graphviz."""
        return plan_picture(self).svg()

    def _repr_html_(self) -> str:
        return plan_picture(self).html()

    def memory_report(self) -> str:
        """Return a text about the memory of tasks and registers, its lower bound, and its size without reuse."""
        return memory_report(self)
