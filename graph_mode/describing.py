"""What a graph looks like, for people: its blocks, parameters, ops, arguments and results as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Graph
    from .job import JobOp


def described(graph: Graph) -> str:
    """The tree, with ops once the graph has been built."""
    lines = [f"(GRAPH:{graph.name}:{type(graph).__name__}): (", f"  (CONFIG:{graph.config!r})"]
    ops = graph.job.ops if graph.is_compiled else ()
    for path, block in graph._blocks.items():
        lines += [f"  (MODULE:{path}:{type(block.origin).__name__}()): ("]
        for name, parameter in block.origin.named_parameters():
            lines.append(f"    (PARAMETER:{path}.{name}:{parameter._blob.meta!r} on {parameter.device})")
        lines += [f"    {_operator(op)}" for op in ops if (op.module + ".").startswith(path + ".")]
        lines.append("  )")
    lines += [f"  {_operator(op)}" for op in ops if not op.module]
    return "\n".join([*lines, ")"])


def _operator(op: JobOp) -> str:
    inputs = ", ".join([repr(operand.meta) for operand in op.inputs])
    outputs = ", ".join([repr(operand.meta) for operand in op.outputs])
    return f"(OPERATOR:{op.name}({inputs}) -> {outputs})"
