"""What a graph looks like, for people: the tree of its blocks, what building it tells, and where its memory goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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

# What building a graph tells, by `Graph.debug`.
SILENT, TIMES, OPS, PASSES = -1, 0, 1, 2


# The tree


def described(graph: Graph, blocks: Mapping[str, Block]) -> str:
    """The tree, with ops, inputs and outputs once the graph has been built.

    Args:
        graph: of which.
        blocks: its modules, by the names that it has given them.
    """
    view = _View(graph.job) if graph.is_compiled else None
    lines = [f"(GRAPH:{graph.name}:{type(graph).__name__}): (", f"  (CONFIG:config:{graph.config!r})"]
    lines += _indented(view.inputs("")) if view is not None else []
    for path, block in blocks.items():
        lines += _indented(_module(path, block.origin, view))
    if view is not None:
        lines += _indented(view.operators(""))
        lines += _indented(view.outputs(""))
    return "\n".join([*lines, ")"])


def described_job(name: str, kind: str, config: GraphConfig, job: Job) -> str:
    """The tree of a graph of which there is nothing but the job."""
    view = _View(job)
    lines = [f"(GRAPH:{name}:{kind}): (", f"  (CONFIG:config:{config!r})", *_indented(view.inputs(""))]
    for path in view.children(""):
        lines += _indented(_path(path, view))
    return "\n".join([*lines, *_indented(view.operators("")), *_indented(view.outputs("")), ")"])


def _module(path: str, module: Module, view: _View | None) -> Iterator[str]:
    """A module, with what is in it."""
    yield f"(MODULE:{path}:{module._get_name()}()): ("
    if view is not None:
        yield from _indented(view.inputs(path))
    for name, parameter in module.named_parameters(recurse=False):
        yield f"  (PARAMETER:{path}.{name}:{_tensor(meta_of(parameter), parameter)}): ()"
    for name, buffer in module.named_buffers(recurse=False):
        yield f"  (BUFFER:{path}.{name}:{_tensor(meta_of(buffer), buffer)}): ()"
    for name, child in module.named_children():
        yield from _indented(_module(f"{path}.{name}", child, view))
    if view is not None:
        yield from _indented(view.operators(path))
        yield from _indented(view.outputs(path))
    yield ")"


def _path(path: str, view: _View) -> Iterator[str]:
    """A module of which only the path is known."""
    yield f"(MODULE:{path}): ("
    yield from _indented(view.inputs(path))
    for child in view.children(path):
        yield from _indented(_path(child, view))
    yield from _indented(view.operators(path))
    yield from _indented(view.outputs(path))
    yield ")"


def _tensor(meta: TensorMeta, tensor: Tensor | None = None) -> str:
    device = "" if meta.device.type == "cpu" else f", device='{meta.device}'"
    gradient = ", requires_grad=True" if tensor is not None and tensor.requires_grad else ""
    return f"tensor(..., size={tuple(meta.shape)}{device}, dtype={meta.dtype!r}{gradient})"


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}"


@final
class _View:
    """A job by the paths of modules: which ops each has, and what goes in and out of it.

    What goes into a module is what its forward ops read and ops outside have made; what comes out is what they make and
    is used elsewhere.
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
        """The paths of the modules directly in this one."""
        prefix = f"{path}." if path else ""
        return [it for it in self._within if it.startswith(prefix) and it != path and "." not in it[len(prefix) :]]

    def operators(self, path: str) -> list[str]:
        """The lines of the module's own ops."""
        return [operator(op) for op in self._ops.get(path, [])]

    def inputs(self, path: str) -> list[str]:
        """The lines of what goes in."""
        if not path:
            buffers = [self.job.buffers[number] for number in self.job.inputs]
            return [f"(INPUT:_{self.job.name}_input.{buffer.name}:{_tensor(buffer.meta)})" for buffer in buffers]
        found: dict[int, None] = {}
        made: set[int] = set()
        for op in self._forward(path):
            found.update(dict.fromkeys([read for read in op.reads() if read not in made and self._flows(read)]))
            made.update(op.writes())
        return self._lines("INPUT", path, list(found))

    def outputs(self, path: str) -> list[str]:
        """The lines of what comes out."""
        if not path:
            return [
                f"(OUTPUT:_{self.job.name}_output.{position}:{_tensor(operand.meta)})"
                for position, operand in enumerate(self.job.outputs)
            ]
        within = set(self._within.get(path, []))
        made = dict.fromkeys([write for op in self._forward(path) for write in op.writes() if self._flows(write)])
        used = [it for it in made if not within.issuperset(self._users.get(it, []))]
        return self._lines("OUTPUT", path, used)

    def _forward(self, path: str) -> list[JobOp]:
        ops = [self.job.ops[position] for position in self._within.get(path, [])]
        return [op for op in ops if not op.backward]

    def _flows(self, number: int) -> bool:
        return self.job.buffers[number].role in ("input", "temporary")

    def _lines(self, what: str, path: str, numbers: list[int]) -> list[str]:
        buffers = self.job.buffers
        return [
            f"({what}:_{path}_{what.lower()}.{at}:{_tensor(buffers[number].meta)})" for at, number in enumerate(numbers)
        ]


def _around(path: str) -> Iterator[str]:
    """The paths of a module and of those that it is in."""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def operator(op: JobOp) -> str:
    """The line of an op."""
    inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
    outputs = ", ".join([repr(operand.meta) for operand in op.outputs])
    marks = [mark for mark, on in ((op.kind, op.kind != "call"), ("backward", op.backward)) if on]
    marked = f" [{', '.join(marks)}]" if marks else ""
    where = f", at {op.line}" if op.line else ""
    return f"(OPERATOR:{op.name}({inputs}) -> ({outputs}){marked}{where})"


# While it is built


@final
class BuildReport:
    """What building a graph prints, at the levels of `Graph.debug`.

    It is printed, as OneFlow does, and not logged: whoever calls `debug` wants to read it there and then.

    Args:
        name: of the graph.
        level: SILENT, TIMES, OPS (also the ops of the job) or PASSES (also what each pass has changed).
    """

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.level = level
        self._since = time.perf_counter()

    def lap(self, what: str) -> None:
        """Something is done, and the next begins."""
        now = time.perf_counter()
        if self.level >= TIMES:
            print(f"[{self.name}] {what} took {(now - self._since) * 1e3:.1f} ms")
        self._since = now

    def recorded(self, job: Job, stack_of: Callable[[JobOp], tuple[str, ...]]) -> None:
        """`build` has run.

        Args:
            job: what it has made.
            stack_of: the calls that led to an op, as far as they are to be told.
        """
        self.lap(f"building {len(job.ops)} ops")
        if self.level >= OPS:
            for op in job.ops:
                print(f"[{self.name}]   {operator(op)}")
                for call in stack_of(op):
                    print(f"[{self.name}]     called at {call}")

    def passed(self, name: str, before: Job, after: Job) -> None:
        """A pass has run."""
        if self.level >= PASSES:
            print(f"[{self.name}]   pass {name}: {changes(before, after)}")

    def compiled(self, plan: Plan) -> None:
        """There is a plan."""
        self.lap(f"compiling into {len(plan.chains) + len(plan.gathers)} tasks")
        if self.level >= OPS:
            for line in memory_report(plan).splitlines():
                print(f"[{self.name}]   {line}")

    def running(self, how: str) -> None:
        """A device runs the ops of a task in another way from now on, or cannot; see `Replay`."""
        if self.level >= TIMES:
            print(f"[{self.name}] {how}")


def changes(before: Job, after: Job) -> str:
    """How the numbers of ops differ, by name."""
    if before is after or before == after:
        return f"left all {len(before.ops)} ops as they were"
    old, new = Counter([op.op for op in before.ops]), Counter([op.op for op in after.ops])
    differing = [f"{name} {old[name]} -> {new[name]}" for name in sorted(old | new) if old[name] != new[name]]
    said = ", ".join(differing) if differing else "the same ops in another order or form"
    return f"{len(before.ops)} -> {len(after.ops)} ops: {said}"


# Memory


def memory_report(plan: Plan) -> str:
    """What a run takes beside arguments, results and variables, task by task."""
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
    """A number of bytes, in the largest unit of which there is at least one."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
