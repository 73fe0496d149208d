"""Texts that describe graphs: the tree of modules and ops, the progress of a build, and the use of memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, final

from vmflow.tensor_fields import meta_of

from .job_parts import BOUNDARY, JobOp

if TYPE_CHECKING:
    from vmflow.instructions.blob import TensorMeta
    from vmflow.nn.module import Module
    from vmflow.tensors import Tensor

    from .blocks import Block
    from .config import GraphConfig
    from .graph import Graph
    from .job import Job
    from .plan import Plan

# Levels of `Graph.debug`.
SILENT, TIMES, OPS, PASSES = -1, 0, 1, 2


# The tree


def described(graph: Graph, blocks: Mapping[str, Block]) -> str:
    """Return the graph's tree of modules as text, with ops, inputs and outputs once the graph has been built.

    Args:
        graph: the graph.
        blocks: the graph's blocks (wrapped modules), by their names in the graph.
    """
    view = _View(graph.job) if graph.is_compiled else None
    lines = [f"(GRAPH:{graph.name}:{type(graph).__name__}): (", f"  (CONFIG:config:{graph.config!r})"]
    lines += _indented(view.inputs("")) if view is not None else []
    for path, block in blocks.items():
        lines += _indented(_module(path, block.origin, view))
    if view is not None:
        lines += _indented(_others("", blocks, view))
        lines += _indented(view.operators(""))
        lines += _indented(view.outputs(""))
    return "\n".join([*lines, ")"])


def described_job(name: str, kind: str, config: GraphConfig, job: Job) -> str:
    """Return the tree of ops, and modules that have ops, as text for a loaded graph, which has no module objects."""
    view = _View(job)
    lines = [f"(GRAPH:{name}:{kind}): (", f"  (CONFIG:config:{config!r})", *_indented(view.inputs(""))]
    lines += _indented(_others("", (), view))
    return "\n".join([*lines, *_indented(view.operators("")), *_indented(view.outputs("")), ")"])


def _module(path: str, module: Module, view: _View | None) -> Iterator[str]:
    """Yield a module's lines: its parameters, buffers, submodules and, with a view, its ops, inputs and outputs."""
    yield f"(MODULE:{path}:{module._get_name()}()): ("
    if view is not None:
        yield from _indented(view.inputs(path))
    for name, parameter in module.named_parameters(recurse=False):
        yield f"  (PARAMETER:{path}.{name}:{_tensor(meta_of(parameter), parameter)}): ()"
    for name, buffer in module.named_buffers(recurse=False):
        yield f"  (BUFFER:{path}.{name}:{_tensor(meta_of(buffer), buffer)}): ()"
    children = {f"{path}.{name}": child for name, child in module.named_children()}
    for inner, child in children.items():
        yield from _indented(_module(inner, child, view))
    if view is not None:
        yield from _indented(_others(path, children, view))
        yield from _indented(view.operators(path))
        yield from _indented(view.outputs(path))
    yield ")"


def _path(path: str, view: _View) -> Iterator[str]:
    """Yield the lines of a module known by its path only: its submodules with ops, its ops, inputs and outputs."""
    yield f"(MODULE:{path}): ("
    yield from _indented(view.inputs(path))
    yield from _indented(_others(path, (), view))
    yield from _indented(view.operators(path))
    yield from _indented(view.outputs(path))
    yield ")"


def _others(path: str, known: Container[str], view: _View) -> Iterator[str]:
    """Yield the lines of the submodules with ops, of the module at `path`, but for those at the paths `known`."""
    for inner in view.children(path):
        if inner not in known:
            yield from _path(inner, view)


def _tensor(meta: TensorMeta, tensor: Tensor | None = None) -> str:
    device = "" if meta.device.type == "cpu" else f", device='{meta.device}'"
    gradient = ", requires_grad=True" if tensor is not None and tensor.requires_grad else ""
    return f"tensor(..., size={tuple(meta.shape)}{device}, dtype={meta.dtype!r}{gradient})"


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}"


@final
class _View:
    """A job's ops, inputs and outputs by the path of the module that they belong to.

    A module's inputs are arguments and temporary buffers made outside and read by its forward ops; its outputs are
    temporary buffers made by its forward ops and read elsewhere.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._ops: dict[str, list[JobOp]] = {}
        self._within: dict[str, list[int]] = {"": list(range(len(job.ops)))}
        self._users: dict[int, list[int]] = {}
        for position, op in enumerate(job.ops):
            if op.kind not in BOUNDARY:
                self._ops.setdefault(op.module, []).append(op)
            for path in _around(op.module):
                self._within.setdefault(path, []).append(position)
            for number in dict.fromkeys(op.reads()):
                self._users.setdefault(number, []).append(position)

    def children(self, path: str) -> list[str]:
        """Return the paths of the direct submodules, of the module at `path`, in which there are ops."""
        prefix = f"{path}." if path else ""
        return [
            inner
            for inner in self._within
            if inner.startswith(prefix) and inner != path and "." not in inner[len(prefix) :]
        ]

    def operators(self, path: str) -> list[str]:
        """Return the lines of the forward and backward ops of the module at `path`, without its submodules' ops."""
        return [operator(op) for op in self._ops.get(path, [])]

    def inputs(self, path: str) -> list[str]:
        """Return the lines of the inputs of the module at `path`; for "", of the job's inputs."""
        if not path:
            buffers = [self.job.buffers[number] for number in self.job.inputs]
            return [f"(INPUT:_{self.job.name}_input.{buffer.name}:{_tensor(buffer.meta)})" for buffer in buffers]
        inputs: dict[int, None] = {}
        made: set[int] = set()
        for op in self._forward(path):
            inputs.update(dict.fromkeys([read for read in op.reads() if read not in made and self._flows(read)]))
            made.update(op.writes())
        return self._lines("INPUT", path, list(inputs))

    def outputs(self, path: str) -> list[str]:
        """Return the lines of the outputs of the module at `path`; for "", of the job's outputs."""
        if not path:
            return [
                f"(OUTPUT:_{self.job.name}_output.{position}:{_tensor(operand.meta)})"
                for position, operand in enumerate(self.job.outputs)
            ]
        within = set(self._within.get(path, []))
        made = dict.fromkeys([write for op in self._forward(path) for write in op.writes() if self._flows(write)])
        used = [output for output in made if not within.issuperset(self._users.get(output, []))]
        return self._lines("OUTPUT", path, used)

    def _forward(self, path: str) -> list[JobOp]:
        ops = [self.job.ops[position] for position in self._within.get(path, [])]
        return [op for op in ops if not op.backward]

    def _flows(self, number: int) -> bool:
        return self.job.buffers[number].role in ("input", "temporary")

    def _lines(self, kind: str, path: str, numbers: list[int]) -> list[str]:
        buffers = self.job.buffers
        return [
            f"({kind}:_{path}_{kind.lower()}.{at}:{_tensor(buffers[number].meta)})" for at, number in enumerate(numbers)
        ]


def _around(path: str) -> Iterator[str]:
    """Yield the paths of the modules that contain a path, the outermost first, and the path itself."""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def operator(op: JobOp) -> str:
    """Return the line that describes an op: name, operands, results and source line."""
    inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
    outputs = ", ".join([repr(operand.meta) for operand in op.outputs])
    marks = [mark for mark, on in ((op.kind, op.kind != "call"), ("backward", op.backward)) if on]
    marked = f" [{', '.join(marks)}]" if marks else ""
    where = f", at {op.line}" if op.line else ""
    return f"(OPERATOR:{op.name}({inputs}) -> ({outputs}){marked}{where})"


# The report of a build


@final
class BuildReport:
    """Prints the progress of building a graph, at the levels of `Graph.debug`.

    Args:
        name: the name of the graph.
        level: SILENT, TIMES, OPS (also the ops of the job, and the use of memory) or PASSES (also the changes of each
            pass).
    """

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.level = level
        self._since = time.perf_counter()

    def lap(self, step: str) -> None:
        """Print the time since the previous `lap` (or the start) as the time of `step`, which has ended."""
        now = time.perf_counter()
        if self.level >= TIMES:
            print(f"[{self.name}] {step} took {(now - self._since) * 1e3:.1f} ms")
        self._since = now

    def recorded(self, job: Job, stack_of: Callable[[JobOp], tuple[str, ...]]) -> None:
        """Print the time of building and, at the level OPS, the recorded ops.

        Args:
            job: the recorded job.
            stack_of: returns the Python calls that led to an op, for printing below the op.
        """
        self.lap(f"building {len(job.ops)} ops")
        if self.level >= OPS:
            for op in job.ops:
                print(f"[{self.name}]   {operator(op)}")
                for call in stack_of(op):
                    print(f"[{self.name}]     called at {call}")

    def passed(self, name: str, before: Job, after: Job) -> None:
        """Print, at the level PASSES, how many ops of each name a pass has added or removed."""
        if self.level >= PASSES:
            print(f"[{self.name}]   pass {name}: {changes(before, after)}")

    def compiled(self, plan: Plan) -> None:
        """Print the time of compiling, the number of chains and gathers, and at the level OPS the memory used."""
        self.lap(f"compiling into {len(plan.chains) + len(plan.gathers)} tasks")
        if self.level >= OPS:
            for line in memory_report(plan).splitlines():
                print(f"[{self.name}]   {line}")

    def running(self, how: str) -> None:
        """Print how a device runs a task's ops from now on: as one launch, or why one by one; see `Replay`."""
        if self.level >= TIMES:
            print(f"[{self.name}] {how}")


def changes(before: Job, after: Job) -> str:
    """Describe how the number of ops of each name differs between two jobs, such as "12 -> 9 ops: add 4 -> 1"."""
    if before is after or before == after:
        return f"left all {len(before.ops)} ops as they were"
    old, new = Counter([op.op for op in before.ops]), Counter([op.op for op in after.ops])
    differing = [f"{name} {old[name]} -> {new[name]}" for name in sorted(old | new) if old[name] != new[name]]
    described = ", ".join(differing) if differing else "the same ops in another order or form"
    return f"{len(before.ops)} -> {len(after.ops)} ops: {described}"


# Memory


def memory_report(plan: Plan) -> str:
    """Describe the memory of the tasks' arenas and of the registers."""
    over = 100 * (plan.nbytes / plan.lower_bound - 1) if plan.lower_bound else 0.0
    lines = [
        f"memory of {plan.name}: {_bytes(plan.nbytes)}, {over:.1f} % above the least possible "
        f"{_bytes(plan.lower_bound)}; without reuse {_bytes(plan.without_reuse)}"
    ]
    names = {task.id: task.name or task.kind for task in plan.tasks}
    for task, chain in plan.chains.items():
        arena = chain.arena
        if arena.offsets:
            lines.append(
                f"  {names[task]}: {_bytes(arena.nbytes)} for {len(arena.offsets)} buffers ({arena.strategy}), least "
                f"possible {_bytes(arena.lower_bound)}, without reuse {_bytes(arena.without_reuse)}"
            )
    for register in plan.registers:
        contents = plan.contents.get(register.id)
        if contents is not None:
            lines.append(
                f"  register {register.id} from {names[register.producer]}: "
                f"{register.count} x {_bytes(contents.nbytes)} for {len(contents.buffers)} buffers"
            )
    return "\n".join(lines)


def _bytes(count: int) -> str:
    """Format a number of bytes in the largest unit (GiB, MiB, KiB or bytes) that is not larger than the number."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
