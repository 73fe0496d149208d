"""Random programs as graphs, called with tensors that lie in memory in many ways.

Each is compared with eager ops on copies in order: the runtime, op by op, a saved and loaded graph, and a
compiled function.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

import vmflow as flow
from tests.autograd.program_steps import Program, Run, Step, numbers, our_library
from tests.autograd.random_graphs import SHAPES, Kinds, Maker, Table
from vmflow.graph_mode import args_tree
from vmflow.tensors import Tensor

from .agreement import ProgramGraph, bits

LAYOUTS: Final = ("in order", "transposed", "with steps", "expanded", "from the middle", "seen anew", "part of pairs")


@attrs.frozen
class Given:
    """An argument.

    Attributes:
        shape, dtype: of it.
        seed: of its values.
    """

    shape: tuple[int, ...]
    dtype: str
    seed: int

    def made(self, layout: str) -> Tensor:
        """A new tensor of these values that lies in memory so; expanded ones repeat the values of the first row."""
        values = flow.tensor(numbers(self.shape, self.seed).astype(self.dtype))
        return _laid_out(values, layout)


def _laid_out(values: Tensor, layout: str) -> Tensor:
    shape = tuple(values.shape)
    if layout == "transposed" and len(shape) > 1:
        return values.transpose(0, -1).clone().transpose(0, -1)
    if layout == "with steps" and shape:
        wide = flow.zeros(*[3 * size + 1 for size in shape], dtype=values.dtype)
        view = wide[tuple([slice(1, None, 3)] * len(shape))]
        view.copy_(values)
        return view
    if layout == "expanded" and shape and shape[0]:
        return values[:1].clone().expand(shape)
    if layout == "from the middle":
        flat = flow.zeros(values.numel() + 5, dtype=values.dtype)
        view = flat[3 : 3 + values.numel()].view(shape)
        view.copy_(values)
        return view
    if layout == "seen anew":
        return values.clone().view(-1).view(shape)
    if layout == "part of pairs":
        pairs = flow.zeros(*shape, 2, dtype=values.dtype)
        view = pairs.select(-1, 1)
        view.copy_(values)
        return view
    return values.clone()


Nest: TypeAlias = "tuple[str, tuple[Any, ...]] | str"


@attrs.frozen
class GraphProgram:
    """The program of a graph.

    Attributes:
        given: the arguments.
        steps: the ops on `x0`, `x1`, ...
        results: the nesting of the returned tensors, by name.
        writes: whether arguments are changed in place; their memory is then to be in order, since views of
            them depends on it.
    """

    given: tuple[Given, ...]
    steps: Program
    results: Nest
    writes: bool

    def __call__(self, state: Sequence[Tensor], *arguments: Any) -> Any:
        tensors = args_tree.flatten(arguments)[1]
        run = Run(our_library(), {f"x{at}": tensor for at, tensor in enumerate(tensors)})
        for step in self.steps:
            run.step(step)
        return _nested(self.results, run.tensors)

    def arguments(self, layouts: Sequence[str]) -> list[Any]:
        """New ones, the latter ones in containers."""
        return _in_containers([given.made(layout) for given, layout in zip(self.given, layouts, strict=True)])


def _nested(nest: Nest, tensors: dict[str, Tensor]) -> Any:
    if isinstance(nest, str):
        return tensors[nest]
    kind, parts = nest
    made = [_nested(part, tensors) for part in parts]
    return (
        {str(at): value for at, value in enumerate(made)}
        if kind == "dict"
        else list(made)
        if kind == "list"
        else (*made,)
    )


class _Maker(Maker):
    """A program over arguments."""

    def graph_program(self) -> GraphProgram:
        """One that runs."""
        given = tuple([Given(self.rng.choice(SHAPES), self.dtype, self.rng.randint(0, 99)) for _ in range(3)])
        writes = self.rng.random() < 0.15
        for at, each in enumerate(given):
            self.run.tensors[f"x{at}"] = each.made("in order")
            if not writes:
                self.frozen.append(self.run.tensors[f"x{at}"]._blob.storage)
        for _ in range(self.rng.randint(3, 14)):
            before = dict(self.run.tensors)
            self._draw(OPS)
            if self.refused:
                # Of a program that fails there is nothing to compare.
                self.steps.pop()
                self.run.tensors, self.refused = before, False
        names = [name for name, tensor in self.run.tensors.items() if isinstance(tensor, Tensor)]
        chosen = self.rng.sample(names[3:] or names, min(len(names[3:] or names), self.rng.randint(1, 4)))
        return GraphProgram(given, tuple(self.steps), self._nest(chosen), writes)

    def _nest(self, names: Sequence[str]) -> Nest:
        if len(names) == 1 and self.rng.random() < 0.7:
            return names[0]
        if len(names) < 3:
            return self.rng.choice(["tuple", "list", "dict"]), tuple(names)
        return self.rng.choice(["tuple", "list", "dict"]), (names[0], self._nest(names[1:]))

    def _normalized(self) -> None:
        name = self._one(lambda tensor: len(tensor.shape) > 0 and tensor.shape[-1] > 0 and not tensor.dtype.is_complex)
        if name is not None:
            if self.rng.random() < 0.5:
                self._add("method", (name,), "softmax", -1)
            else:
                self._add("layer_norm", (name,))

    def _indexed(self) -> None:
        name = self._one(lambda tensor: len(tensor.shape) > 0 and tensor.shape[0] > 0)
        if name is not None:
            places = tuple([self.rng.randrange(self.run.tensors[name].shape[0]) for _ in range(3)])
            self._add("by_index", (name,), "index_select", 0, places)

    def _chosen(self) -> None:
        name = self._one(lambda tensor: not tensor.dtype.is_complex)
        if name is not None:
            self._add("chosen", (name, self._like(name)))

    def _do(self, step: Step) -> None:
        self.steps.append(step)
        try:
            self.run.step(step)
        except (RuntimeError, ValueError, TypeError, IndexError):
            self.refused = True

    refused = False


OPS: Final[Table] = [
    (_Maker._view, 25),
    (_Maker._unary, 10),
    (_Maker._reduced, 6),
    (_Maker._binary, 12),
    (_Maker._matmul, 6),
    (_Maker._joined, 3),
    (_Maker._in_place, 12),
    (_Maker._normalized, 5),  # type: ignore[list-item]
    (_Maker._indexed, 4),  # type: ignore[list-item]
    (_Maker._chosen, 4),  # type: ignore[list-item]
    (_Maker._dropout, 4),
]


def drawn(seed: int) -> GraphProgram:
    """The program of a seed."""
    return _Maker(random.Random(seed), Kinds(dropout=True)).graph_program()


def _all(results: Any) -> list[Tensor]:
    return list(args_tree.flatten(results)[1])


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Tensor]:
    flow.manual_seed(7)
    return _all(function(*arguments))


@attrs.define
class GraphCheck:
    """Programs compared in all ways.

    Attributes:
        folder: for saved graphs.
        counts: the numbers of comparisons.
    """

    folder: Path
    counts: Counter[str] = attrs.field(factory=Counter)

    def problem(self, program: GraphProgram, seed: int) -> str | None:
        """The difference, in words; None if there is none."""
        rng = random.Random(seed)
        plain = ["in order"] * len(program.given)
        sets = [plain, *([] if program.writes else [[rng.choice(LAYOUTS) for _ in plain] for _ in range(2)])]
        exact, fused = ProgramGraph(program, ()), ProgramGraph(program, ())
        exact.config.allow_fusion(False)
        _called(exact, program.arguments(plain))
        flow.save(exact, self.folder / "saved")
        ways = {
            "graph": exact,
            "op by op": exact.run_by_vm,
            "saved": (saved := flow.load_graph(self.folder / "saved")),
            "saved, op by op": saved.run_by_vm,
        }
        function = flow.global_function()(lambda *given: program((), *given))
        self.counts["programs"] += 1
        for layouts in sets:
            found = self._unlike(program, layouts, ways, {"fused": fused, "function": function})
            if found is not None:
                return f"{found}, with arguments {layouts}"
        return None

    def _unlike(
        self, program: GraphProgram, layouts: list[str], ways: dict[str, Any], rounded: dict[str, Any]
    ) -> str | None:
        ordered = [given.made(layout).clone() for given, layout in zip(program.given, layouts, strict=True)]
        expected = _called(lambda *given: program((), *given), _in_containers(ordered))
        wanted = [bits(value) for value in expected]
        for name, way in ways.items():
            self.counts["calls compared to the bit"] += 1
            if [bits(value) for value in _called(way, program.arguments(layouts))] != wanted:
                return f"{name} differs from eager ops"
        try:
            eager = _called(lambda *given: program((), *given), program.arguments(layouts))
        except (RuntimeError, ValueError):
            self.counts["eager calls refused for strides"] += 1
            eager = expected
        calls = {name: _called(way, program.arguments(layouts)) for name, way in rounded.items()}
        for name, results in [("eager on strides", eager), *calls.items()]:
            self.counts["calls compared but for rounding"] += 1
            if not all([_close(one, other) for one, other in zip(results, expected, strict=True)]):
                return f"{name} differs from eager ops"
        return None


def _in_containers(tensors: Sequence[Tensor]) -> list[Any]:
    return [tensors[0], {"a": tensors[1], "b": [tensors[2], None]}]


def _close(one: Tensor, other: Tensor) -> bool:
    ours, theirs = one.detach().numpy(), other.detach().numpy()
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    scale = max(1.0, float(np.nanmax(np.abs(theirs)))) if theirs.size and not np.isnan(theirs).all() else 1.0
    epsilon = 1e-4 if ours.dtype in (np.float32, np.complex64) else 1e-9
    return bool(np.allclose(ours, theirs, rtol=epsilon * 10, atol=epsilon * scale, equal_nan=True))
