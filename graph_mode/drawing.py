"""Jobs and plans as pictures: descriptions in Graphviz's language DOT, to be drawn with ``dot -Tsvg``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .actors import TaskDescriptor
from .actors.identifiers import decode_task
from .job_parts import BOUNDARY, FEEDS, Buffer, JobOp

if TYPE_CHECKING:
    from .job import Job
    from .plan import Plan


class _Branch:
    """A module, with the modules in it and the lines that draw its ops."""

    def __init__(self) -> None:
        self.inner: dict[str, _Branch] = {}
        self.lines: list[str] = []


def job_to_dot(job: Job) -> str:
    """The ops of a job as nodes, in the clusters of their modules, and the buffers that one writes and another reads.

    An edge goes from the latest op that has written a buffer to each that reads it then.  Constants and numbers are
    nodes of their own; an op that writes a variable has an edge back to the op that feeds it.
    """
    root = _Branch()
    edges: list[str] = []
    latest: dict[int, str] = {}
    variables: dict[int, str] = {}
    for position, (op, label) in enumerate(zip(job.ops, _labels(job), strict=True)):
        node = f"op{position}"
        _branch(root, op.module).lines.append(_node(node, label, "ellipse" if op.kind in BOUNDARY else "box"))
        for number in dict.fromkeys(op.reads()):
            if number not in latest:
                latest[number] = f"buffer{number}"
                root.lines.append(_node(latest[number], _buffer_label(job.buffers[number]), "ellipse"))
            edges.append(_edge(latest[number], node, repr(job.buffers[number].meta)))
        for number in dict.fromkeys(op.writes()):
            if number in variables:
                edges.append(_edge(node, variables[number], "writes"))
            elif op.kind == "feed_variable":
                variables[number] = node
            latest[number] = node
    return "\n".join([f"digraph {_quoted(job.name)} {{", *_indented(_clusters(root, "")), *_indented(edges), "}", ""])


def _branch(root: _Branch, path: str) -> _Branch:
    for part in path.split(".") if path else ():
        root = root.inner.setdefault(part, _Branch())
    return root


def _clusters(branch: _Branch, path: str) -> Iterator[str]:
    yield from branch.lines
    for name, inner in branch.inner.items():
        whole = f"{path}.{name}" if path else name
        yield f"subgraph {_quoted(f'cluster {whole}')} {{"
        yield f"  label={_quoted(whole)};"
        yield from _indented(_clusters(inner, whole))
        yield "}"


def _labels(job: Job) -> Iterator[str]:
    """The label of each op, in the order of the job."""
    fetched = 0
    for op in job.ops:
        if op.kind in FEEDS:
            yield _buffer_label(job.buffers[op.outputs[0].buffer])
        elif op.kind == "fetch_output":
            yield f"output {fetched}\n{op.inputs[0].meta!r}"
            fetched += 1
        else:
            yield _op_label(op)


def _op_label(op: JobOp) -> str:
    outputs = ", ".join([repr(operand.meta) for operand in op.outputs])
    marks = [mark for mark, on in ((op.kind, op.kind != "call"), ("backward", op.backward)) if on]
    return "\n".join([op.op + (f" ({', '.join(marks)})" if marks else ""), outputs])


def _buffer_label(buffer: Buffer) -> str:
    return f"{buffer.role} {buffer.name or buffer.id}\n{buffer.meta!r}"


def plan_to_dot(plan: Plan) -> str:
    """The tasks of a plan as nodes, in the clusters of their streams, and the registers between them.

    Edges are labelled with the register, its slots and the bytes of one; registers that only order are dashed.
    """
    streams: dict[str, list[TaskDescriptor]] = {}
    for task in plan.tasks:
        streams.setdefault(str(decode_task(task.id).thread), []).append(task)
    lines: list[str] = []
    for stream, tasks in streams.items():
        lines += [f"subgraph {_quoted(f'cluster {stream}')} {{", f"  label={_quoted(stream)};"]
        lines += _indented([_node(f"task{task.id}", _task_label(plan, task), "box") for task in tasks])
        lines.append("}")
    for register in plan.registers:
        contents = plan.contents.get(register.id)
        label = f"register {register.id} x {register.count}"
        if contents is not None:
            label += f"\n{contents.nbytes} bytes"
        lines += [
            _edge(f"task{register.producer}", f"task{consumer}", label, dashed=register.control)
            for consumer in register.consumers
        ]
    return "\n".join([f"digraph {_quoted(plan.name)} {{", *_indented(lines), "}", ""])


def _task_label(plan: Plan, task: TaskDescriptor) -> str:
    label = f"{task.name or task.kind}\n{task.kind}"
    chain = plan.chains.get(task.id)
    if chain is not None:
        label += f" of {len(chain.ops)} on {chain.device} {chain.stream}\narena of {chain.arena.nbytes} bytes"
    return label


def _node(name: str, label: str, shape: str) -> str:
    return f"{name} [shape={shape}, label={_quoted(label)}];"


def _edge(source: str, target: str, label: str, dashed: bool = False) -> str:
    style = ", style=dashed" if dashed else ""
    return f"{source} -> {target} [label={_quoted(label)}{style}];"


def _indented(lines: Iterator[str] | list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _quoted(text: str) -> str:
    """A string of DOT's; a backslash of ours must not become an escape there."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
