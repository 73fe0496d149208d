"""Runs one program eagerly, as a graph, and op by op, and compares every bit of the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypeAlias

import attrs

import vmflow as flow
from vmflow.graph_mode import Graph, Job, args_tree
from vmflow.graph_mode.passes import PASSES
from vmflow.tensors import Tensor

from .support import computing

Bits: TypeAlias = tuple[str, tuple[int, ...], bytes]

# program(state, *arguments) -> results; the program may change the state, whose tensors are variables of the graph.
Program: TypeAlias = Callable[..., Any]


class ProgramGraph(Graph):
    """A graph of a program over some state."""

    def __init__(self, program: Program, state: Sequence[Tensor]) -> None:
        super().__init__()
        self.program = program
        self.state = list(state)

    def build(self, *arguments: Any) -> Any:
        """Run the program."""
        return self.program(self.state, *arguments)


@attrs.frozen
class Setting:
    """How a graph is to be built.

    Attributes:
        passes: those that are applied; None for all.
        order: of ops.
        fusion: whether ops are fused.
    """

    passes: Collection[str] | None = None
    order: Literal["memory", "speed", "given"] = "memory"
    fusion: bool = False

    def configure(self, graph: Graph) -> None:
        """Build it so."""
        graph.config.allow_fusion(self.fusion)
        graph.config.set_execution_order(self.order)
        for each in PASSES:
            if self.passes is not None and each.name not in self.passes:
                graph.config.disable_pass(each.name)


def bits(tensor: Tensor) -> Bits:
    """All there is to a tensor's value."""
    array = tensor.detach().cpu().numpy()
    return tensor.dtype.name, tuple(tensor.shape), array.tobytes()


def _all_bits(results: Any, state: Sequence[Tensor]) -> list[Bits]:
    return [bits(value) for value in (*args_tree.flatten(results)[1], *state)]


def eagerly(program: Program, make_state: Callable[[], list[Tensor]], rounds: Sequence[Sequence[Any]]) -> Any:
    """The results of the program and the state, after each round."""
    flow.manual_seed(7)
    state = make_state()
    return [_all_bits(program(state, *arguments), state) for arguments in _copies(rounds)]


def as_graph(
    program: Program,
    make_state: Callable[[], list[Tensor]],
    rounds: Sequence[Sequence[Any]],
    setting: Setting | None = None,
    by_vm: bool = False,
) -> tuple[Any, ProgramGraph]:
    """The same of a graph, and that."""
    flow.manual_seed(7)
    state = make_state()
    graph = ProgramGraph(program, state)
    (setting or Setting()).configure(graph)
    call = graph.run_by_vm if by_vm else graph
    return [_all_bits(call(*arguments), state) for arguments in _copies(rounds)], graph


def _copies(rounds: Sequence[Sequence[Any]]) -> list[list[Any]]:
    # A program may change its arguments, which a graph does not hand on.
    return [
        [argument.clone() if isinstance(argument, Tensor) else argument for argument in arguments]
        for arguments in rounds
    ]


def agreed(
    program: Program,
    *arguments: Tensor,
    state: Callable[[], list[Tensor]] = list,
    setting: Setting | None = None,
    rounds: int = 2,
) -> ProgramGraph:
    """The graph of a program, after its results have been found to be those of the eager one, bit for bit."""
    calls = [arguments] * rounds
    wanted = eagerly(program, state, calls)
    found, graph = as_graph(program, state, calls, setting)
    assert found == wanted
    found, _ = as_graph(program, state, calls, setting, by_vm=True)
    assert found == wanted
    return graph


def names(job: Job) -> list[str]:
    """The ops that compute, in order."""
    return [op.op for op in computing(job)]
