"""Draws jobs and plans as diagrams: SVG images, or Graphviz's DOT language for ``dot -Tsvg``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from vmflow.markup import Edge, Node, drawing, line, scrolling, stacked

from .actors import TaskDescriptor
from .actors.identifiers import decode_task
from .job_parts import BOUNDARY, FEEDS, Buffer, JobOp

if TYPE_CHECKING:
    from .job import Job
    from .plan import Plan


# A notebook shows diagrams of up to this many nodes.
_MOST_NODES: Final = 400


class Picture(NamedTuple):
    """A diagram of a job or a plan: nodes in nested clusters, and edges between nodes.

    Attributes:
        name: the diagram's title.
        nodes: pairs of a node and the labels of the clusters around it, the outermost first.
        edges: the edges between nodes.
    """

    name: str
    nodes: Sequence[tuple[Node, tuple[str, ...]]]
    edges: list[Edge]

    def dot(self) -> str:
        """Return the picture as a DOT text."""
        root = _Cluster()
        for node, path in self.nodes:
            cluster = root
            for label in path:
                cluster = cluster.inner.setdefault(label, _Cluster())
            shape = "ellipse" if node.round else "box"
            cluster.lines.append(f"{node.name} [shape={shape}, label={_quoted(node.label)}];")
        lines = [*_clusters(root), *[_dot_edge(edge) for edge in self.edges]]
        return "\n".join([f"digraph {_quoted(self.name)} {{", *_indented(lines), "}", ""])

    def html(self) -> str:
        """Return HTML for notebooks: the image, or for more than `_MOST_NODES` nodes a line that names ways to draw."""
        if len(self.nodes) > _MOST_NODES:
            return line(self.name, f"{len(self.nodes)} nodes, too many for a notebook; to_svg() and to_dot() draw them")
        return stacked(line(self.name), scrolling(self.svg()))

    def svg(self) -> str:
        """Return the picture as SVG; the last line of a node's label names its innermost cluster, if any."""
        nodes = [node._replace(label=f"{node.label}\n{path[-1]}") if path else node for node, path in self.nodes]
        return drawing(self.name, nodes, self.edges)


class _Cluster:
    """A cluster of a DOT diagram: the DOT lines of its nodes, and its inner clusters by label."""

    def __init__(self) -> None:
        self.inner: dict[str, _Cluster] = {}
        self.lines: list[str] = []


def _clusters(cluster: _Cluster) -> Iterator[str]:
    yield from cluster.lines
    for label, inner in cluster.inner.items():
        yield f"subgraph {_quoted(f'cluster {label}')} {{"
        yield f"  label={_quoted(label)};"
        yield from _indented(_clusters(inner))
        yield "}"


def job_picture(job: Job) -> Picture:
    """Make a job's diagram: ops are nodes in the clusters of their modules, and buffers are edges between ops.

    An edge goes from the op that has written a buffer last to each op that reads that value.  Constants and numbers are
    nodes of their own; an op that writes a variable has an edge back to the op that feeds the variable.
    """
    nodes: list[tuple[Node, tuple[str, ...]]] = []
    edges: list[Edge] = []
    latest: dict[int, str] = {}
    variables: dict[int, str] = {}
    for position, (op, label) in enumerate(zip(job.ops, _labels(job), strict=True)):
        name = f"op{position}"
        nodes.append((Node(name, label, op.kind in BOUNDARY), _paths(op.module)))
        for number in dict.fromkeys(op.reads()):
            if number not in latest:
                latest[number] = f"buffer{number}"
                nodes.append((Node(latest[number], _buffer_label(job.buffers[number]), True), ()))
            edges.append(Edge(latest[number], name, repr(job.buffers[number].meta)))
        for number in dict.fromkeys(op.writes()):
            if number in variables:
                edges.append(Edge(name, variables[number], "writes"))
            elif op.kind == "feed_variable":
                variables[number] = name
            latest[number] = name
    return Picture(job.name, nodes, edges)


def _paths(module: str) -> tuple[str, ...]:
    """Split a module's path into the paths of all modules around an op, the outermost first: "a", "a.b" for "a.b"."""
    parts = module.split(".") if module else []
    return tuple([".".join(parts[: count + 1]) for count in range(len(parts))])


def _labels(job: Job) -> Iterator[str]:
    """Yield the label of each op's node, in the order of the job."""
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


def plan_picture(plan: Plan) -> Picture:
    """Make a plan's diagram: tasks are nodes in the clusters of their streams, and registers are edges between tasks.

    Edges are labelled with the register, the number of its slots and, for data, the bytes of one slot; edges of
    control registers are dashed.
    """
    nodes = [
        (Node(f"task{task.id}", _task_label(plan, task)), (str(decode_task(task.id).thread),)) for task in plan.tasks
    ]
    edges: list[Edge] = []
    for register in plan.registers:
        contents = plan.contents.get(register.id)
        label = f"register {register.id} x {register.count}"
        if contents is not None:
            label += f"\n{contents.nbytes} bytes"
        edges += [
            Edge(f"task{register.producer}", f"task{consumer}", label, register.control)
            for consumer in register.consumers
        ]
    return Picture(plan.name, nodes, edges)


def _task_label(plan: Plan, task: TaskDescriptor) -> str:
    label = f"{task.name or task.kind}\n{task.kind}"
    chain = plan.chains.get(task.id)
    if chain is not None:
        label += f" of {len(chain.ops)} on {chain.device} {chain.stream}\narena of {chain.arena.nbytes} bytes"
    return label


def _dot_edge(edge: Edge) -> str:
    style = ", style=dashed" if edge.dashed else ""
    return f"{edge.source} -> {edge.target} [label={_quoted(edge.label)}{style}];"


def _indented(lines: Iterator[str] | list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _quoted(text: str) -> str:
    """Quote a text as a string of the DOT language, with backslashes, quotes and newlines escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
