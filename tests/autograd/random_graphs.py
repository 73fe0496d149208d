"""Random programs for autograd, drawn from a seed.

A program is drawn while it runs in vmflow, so that shapes are known and steps fit; whether values and gradients are
right is not looked at here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

import vmflow
from vmflow.tensors import Tensor

from .program_functions import ARGUMENTS
from .program_steps import Program, Run, Step, our_library

SHAPES: Final = [(2, 3), (2, 3), (3, 3), (3, 2), (3,), (2, 2, 3), (4,), (2, 2), (4, 3), (), (1, 3), (0, 3)]
# Elements of the largest tensor.
LARGEST: Final = 48

Condition: TypeAlias = Callable[[Tensor], bool]


@attrs.frozen
class Kinds:
    """The kinds of steps that programs are drawn from.

    Attributes:
        low: the dtype of blocks under autocast; None for none.
        dropout: whether there is any.
        length: of programs, from and to.
    """

    low: str | None = None
    dropout: bool = False
    length: tuple[int, int] = (6, 24)


def drawn(seed: int, kinds: Kinds | None = None) -> Program:
    """The program of a seed."""
    return Maker(random.Random(seed), kinds or Kinds()).program()


class Maker:
    """A program being drawn.

    Attributes:
        run: the program so far, in vmflow.
        steps: the program so far.
        own: names of the tensors that the present body has made; None outside of bodies.
        frozen: storages that functions which are called again have used.
        cuts: whether whole tensors that require a gradient are overwritten.  Nothing goes back from there in vmflow,
            and zeros in PyTorch, so that no gradients of such programs are asked for by name.
    """

    def __init__(self, rng: random.Random, kinds: Kinds) -> None:
        self.rng = rng
        self.kinds = kinds
        self.run = Run(our_library())
        self.steps: list[Step] = []
        self.own: set[str] | None = None
        self.frozen: list[Any] = []
        self.count = 0
        self.cuts = rng.random() < 0.4
        self.dtype = "float32" if kinds.low or rng.random() < 0.3 else "float64"

    def program(self) -> Program:
        with self.run.library.around():
            for wanted in (True, True, True, False):
                self._leaf(wanted)
            for _ in range(self.rng.randint(*self.kinds.length)):
                self._draw(OUTSIDE)
            for _ in range(self.rng.randint(1, 2)):
                self._backward()
        return tuple(self.steps)

    def _draw(self, table: Sequence[tuple[Callable[[Maker], None], float]]) -> None:
        actions, weights = zip(*table, strict=True)
        self.rng.choices(actions, weights)[0](self)

    # Steps

    def _named(self, kind: str = "v") -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def _add(self, op: str, inputs: Sequence[str], *params: Any, results: int = 1) -> tuple[str, ...]:
        outputs = tuple([self._named() for _ in range(results)])
        self._do(Step(op, tuple(inputs), params, outputs))
        if self.own is not None:
            self.own |= set(outputs)
        return outputs

    def _do(self, step: Step) -> None:
        self.steps.append(step)
        # Refused steps are compared as well.
        try:
            self.run.step(step)
        except (RuntimeError, ValueError, TypeError, IndexError):
            return

    def _tensors(self, condition: Condition) -> list[str]:
        return [
            name
            for name, tensor in self.run.tensors.items()
            if isinstance(tensor, Tensor) and tensor.numel() <= LARGEST and self._fits(tensor) and condition(tensor)
        ]

    def _fits(self, tensor: Tensor) -> bool:
        return tensor.dtype.is_complex or tensor.dtype.name == self.dtype or _usable_low(tensor)

    def _one(self, condition: Condition = lambda x: True) -> str | None:
        """The name of a tensor, the latest with preference; None if there is none."""
        names = self._tensors(condition)
        if not names:
            return None
        return self.rng.choice(names[-5:] if self.rng.random() < 0.6 else names)

    def _apart(self, name: str, condition: Condition = lambda x: True) -> str:
        """As `_like`, of other memory: the result of an op that overwrites its operand depends on the order."""
        storage = self.run.tensors[name]._blob.storage
        return self._like(name, lambda tensor: tensor._blob.storage is not storage and condition(tensor))

    def _like(self, name: str, condition: Condition = lambda x: True) -> str:
        """Another tensor that broadcasts to this one's shape, or this one."""
        shape, dtype = tuple(self.run.tensors[name].shape), self.run.tensors[name].dtype

        def fits(it: Tensor) -> bool:
            if it.dtype is not dtype or len(it.shape) > len(shape):
                return False
            pairs = zip(reversed(tuple(it.shape)), reversed(shape), strict=False)
            return all([one in (1, other) for one, other in pairs]) and condition(it)

        return self._one(fits) or name

    def _target(self, overwritten: bool = False, function: bool = False) -> str | None:
        """The name of a tensor to be changed in place, or to be overwritten."""
        bold = self.rng.random() < 0.03
        tensors = [tensor for tensor in self.run.tensors.values() if _is(tensor)]
        storages = Counter([tensor._blob.storage for tensor in tensors])
        recorded = [tensor._blob.storage for tensor in tensors if tensor.requires_grad]
        overlapping = [tensor._blob.storage for tensor in tensors if tensor._base is None and _overlaps(tensor)]

        def may(it: Tensor) -> bool:
            if _overlaps(it):
                return False
            if overwritten and not self.cuts and it._base is None and it.requires_grad:
                return False
            if function and not vmflow.is_grad_enabled() and it.requires_grad:
                return False
            # PyTorch gives views a new history then, which leads nowhere that anything was computed from.
            if not vmflow.is_grad_enabled() and storages[it._blob.storage] > 1:
                return False
            if not it.requires_grad and any([it._blob.storage is other for other in recorded]):
                return False
            if any([it._blob.storage is other for other in overlapping]):
                return False
            if any([it._blob.storage is other for other in self.frozen]):
                return False
            if vmflow.is_grad_enabled() and not bold:
                leaf = it if it._base is None else it._base
                return not any([each.is_leaf and each.requires_grad for each in (leaf, it)])
            return True

        name = self._one(may)
        if name is None or self.own is None:
            return name
        outer = [
            tensor._blob.storage for key, tensor in self.run.tensors.items() if key not in self.own and _is(tensor)
        ]
        mine = [key for key in self.own if _is(self.run.tensors.get(key)) and may(self.run.tensors[key])]
        mine = [key for key in mine if all([self.run.tensors[key]._blob.storage is not value for value in outer])]
        return self.rng.choice(sorted(mine)) if mine else None

    # Where tensors come from

    def _leaf(self, wanted: bool) -> None:
        self._add("leaf", (), self.rng.choice(SHAPES), self.dtype, self.rng.randint(0, 99), wanted)

    def _another_leaf(self) -> None:
        if self.rng.random() < 0.7:
            name = self._one()
            if name is not None:
                self._add("new_leaf", (name,))
            return
        # Requiring a gradient does not reach views from before, which PyTorch takes for leaves.
        storages = Counter([tensor._blob.storage for tensor in self.run.tensors.values() if _is(tensor)])
        name = self._one(lambda x: storages[x._blob.storage] == 1)
        if name is not None:
            self._add("require", (name,))

    def _module(self) -> None:
        hook = self._named("g") if self.rng.random() < 0.3 else None
        step = Step("module", (), (3, self.rng.choice([3, 2]), self.dtype, self.rng.randint(0, 99), hook), ("m",))
        step = attrs.evolve(step, outputs=(self._named("m"),))
        self._do(step)

    def _call(self) -> None:
        modules = [name for name in self.run.tensors if name.startswith("m")]
        name = self._one(lambda tensor: len(tensor.shape) > 0 and tensor.shape[-1] == 3 and not tensor.dtype.is_complex)
        if modules and name is not None:
            self._add("call", (self.rng.choice(modules), name))

    # Views

    def _view(self) -> None:
        # A view made without recording is a constant, and in PyTorch a leaf of its own if its base requires a gradient.
        name = self._one() if vmflow.is_grad_enabled() else None
        if name is not None:
            view = self.rng.choice(VIEWS)
            drawn = view(self.rng, self.run.tensors[name])
            if drawn is not None:
                op, params, results = drawn
                self._add(op, (name,), *params, results=results)

    # Ops

    def _unary(self) -> None:
        name = self._one()
        if name is None:
            return
        is_complex = self.run.tensors[name].dtype.is_complex
        method, *params = self.rng.choice(UNARY[:3] if is_complex or vmflow.is_autocast_enabled("cpu") else UNARY)
        self._add("method", (name,), method, *params)

    def _reduced(self) -> None:
        name = self._one(lambda tensor: len(tensor.shape) > 0 and not tensor.dtype.is_complex)
        if name is not None and not vmflow.is_autocast_enabled("cpu"):
            dim = self.rng.randrange(len(self.run.tensors[name].shape))
            self._add("method", (name,), self.rng.choice(["sum", "cumsum", "softmax", "mean"]), dim)

    def _binary(self) -> None:
        name = self._one()
        if name is not None:
            other = self._like(name)
            self._add("method", (name, other), self.rng.choice(["mul", "add", "sub", "mul"]))

    def _matmul(self) -> None:
        name = self._one(lambda tensor: len(tensor.shape) == 2)
        if name is not None:
            rows, dtype = self.run.tensors[name].shape[1], self.run.tensors[name].dtype
            other = self._one(
                lambda tensor: len(tensor.shape) in (1, 2) and tensor.shape[0] == rows and tensor.dtype is dtype
            )
            if other is not None:
                self._add("method", (name, other), "matmul")

    def _joined(self) -> None:
        name = self._one(lambda tensor: len(tensor.shape) > 0)
        if name is not None:
            shape, dtype = self.run.tensors[name].shape, self.run.tensors[name].dtype
            other = self._one(lambda tensor: tensor.shape == shape and tensor.dtype is dtype) or name
            self._add("cat", (name, other), self.rng.choice(["cat", "stack"]), 0)

    # Changes in place

    def _in_place(self) -> None:
        overwritten = self.rng.random() < 0.25
        name = self._target(overwritten)
        if name is not None:
            if overwritten:
                self._overwritten(name)
            else:
                self.rng.choice(CHANGES)(self, name)

    def _overwritten(self, name: str) -> None:
        kind = self.rng.choice(["zero_", "fill_", "copy_", "copy_", "out"])
        if kind == "copy_":
            self._add("method", (name, self._apart(name)), kind)
        elif kind == "out":
            shape = self.run.tensors[name].shape
            same = self._apart(name, lambda tensor: tensor.shape == shape)
            self._add("out", (name, same, self._apart(name)), self.rng.choice(["mul", "add"]))
        else:
            self._add("method", (name,), kind, *([0.5] if kind == "fill_" else []))

    def _changed_alone(self, name: str) -> None:
        is_complex = self.run.tensors[name].dtype.is_complex
        method, *params = self.rng.choice(UNARY_IN_PLACE[:3] if is_complex else UNARY_IN_PLACE)
        # Neither views, which PyTorch refuses, nor tensors that have views, nor tensors that keep their gradient.
        storages = Counter([tensor._blob.storage for tensor in self.run.tensors.values() if _is(tensor)])
        kept = self.run.tensors[name]._autograd
        alone = storages[self.run.tensors[name]._blob.storage] == 1 and not (kept is not None and kept.retains)
        if method != "detach_" or alone:
            self._add("method", (name,), method, *params)

    def _changed_by_another(self, name: str) -> None:
        self._add("method", (name, self._apart(name)), self.rng.choice(["mul_", "add_", "sub_"]))

    def _changed_by_two(self, name: str) -> None:
        if self.rng.random() < 0.5:
            self._add("method", (name, self._apart(name), self._apart(name)), "addcmul_")
        else:
            self._add("add_scaled", (name, self._apart(name)), 0.5)

    def _masked_or_seen_differently(self, name: str) -> None:
        shape = tuple(self.run.tensors[name].shape)
        tensor = self.run.tensors[name]
        # Hooks see a tensor as it was before in PyTorch, and its gradient is mixed up where nothing is recorded.
        storages = Counter([value._blob.storage for value in self.run.tensors.values() if _is(value)])
        plain = storages[tensor._blob.storage] == 1 and not tensor.requires_grad
        if self.rng.random() < 0.5 or len(shape) < 2 or not plain:
            self._add("masked", (name,), "masked_fill_", self.rng.randint(2, 3), 0.25)
        else:
            self._add("method", (name,), "transpose_", 0, len(shape) - 1)

    def _assigned(self, name: str) -> None:
        tensor = self.run.tensors[name]
        index = _drawn_index(self.rng, tuple(tensor.shape), True)
        if index is None:
            return
        if self.rng.random() < 0.4:
            self._add("set", (name,), index, self.rng.choice([0.0, 0.5]))
            return
        at = len([part for part in index if part[0] == "at"])
        shape = tuple(tensor.shape)[at:]
        dtype = tensor.dtype
        storage = tensor._blob.storage
        fits = self._one(
            lambda x: x.dtype is dtype and x.shape in (shape, shape[1:], ()) and x._blob.storage is not storage
        )
        if fits is not None:
            self._add("set", (name, fits), index, None)

    def _changed_by_index(self, name: str) -> None:
        tensor = self.run.tensors[name]
        if not len(tensor.shape) or not tensor.shape[0]:
            return
        places = tuple([self.rng.randrange(tensor.shape[0]) for _ in range(2)])
        shape, dtype = (2, *tensor.shape[1:]), tensor.dtype
        storage = tensor._blob.storage
        source = self._one(lambda x: x.shape == shape and x.dtype is dtype and x._blob.storage is not storage)
        if source is not None and self.rng.random() < 0.7:
            self._add("by_index", (name, source), "index_add_", 0, places)
        else:
            self._add("by_index", (name,), "index_fill_", 0, places, 0.5)

    # Functions and blocks

    def _function(self) -> None:
        function = self.rng.choice(
            [
                argument
                for argument in sorted(ARGUMENTS)
                if not (argument == "transposed" or "as_is" in argument) or vmflow.is_grad_enabled()
            ]
        )
        changes = "changed" in function or "in_place" in function
        # PyTorch's functions detach tensors that they change without recording.
        seen_anew = function == "transposed"  # a constant if nothing is recorded, and in PyTorch a view
        name = (
            self._target(function=True) if changes else self._one(lambda tensor: tensor.requires_grad or not seen_anew)
        )
        if name is not None and not self.run.tensors[name].dtype.is_complex:
            shape = self.run.tensors[name].shape
            find = self._apart if changes else self._like
            more = [find(name, lambda tensor: tensor.shape == shape) for _ in range(ARGUMENTS[function] - 1)]
            if not (changes and name in more) and not (seen_anew and len(shape) < 2):
                self._add("function", (name, *more), function, results=2)

    def _body(
        self, table: Sequence[tuple[Callable[[Maker], None], float]], inner: Run, own: set[str] | None
    ) -> Program:
        """Steps drawn within something."""
        run, steps, before = self.run, self.steps, self.own
        self.run, self.steps, self.own = inner, [], own
        try:
            for _ in range(self.rng.randint(1, 5)):
                self._draw(table)
            return tuple(self.steps)
        finally:
            self.run, self.steps, self.own = run, steps, before

    def _checkpoint(self) -> None:
        given = [value for value in (self._one(), self._one()) if value is not None][: self.rng.randint(1, 2)]
        if not given:
            return
        names = tuple([self._named("a") for _ in given])
        inner = self.run.inner({name: self.run.tensors[value] for name, value in zip(names, given, strict=True)})
        outside = set(inner.tensors)
        body = self._body(WITHIN, inner, set())
        made = [name for name in inner.tensors if name not in outside and _is(inner.tensors[name])]
        if not body or not made:
            return
        results = tuple(self.rng.sample(made, min(len(made), self.rng.choice([1, 1, 2, 3]))))
        if len(results) > 1:
            # One node makes all results, so that none sees the gradient that comes by another.
            copies = [Step("method", (name,), ("clone",), (self._named(),)) for name in results]
            body, results = (*body, *copies), tuple([copy.outputs[0] for copy in copies])
        used = {name for step in _flat(body) for name in step.inputs}
        kept = [self.run.tensors[name] for name in used if name in self.run.tensors]
        if self.rng.random() < 0.8:
            kept += [self.run.tensors[name] for name in given]
        self.frozen += [tensor._blob.storage for tensor in kept if _is(tensor)]
        self._add("checkpoint", given, names, body, results, results=len(results))

    def _no_grad(self) -> None:
        with vmflow.no_grad():
            body = self._body(UNRECORDED, self.run, self.own)
        if body:
            self.steps.append(Step("no_grad", (), (body,)))

    def _autocast(self) -> None:
        low = self.kinds.low
        assert low is not None
        before, cached = set(self.run.tensors), self.rng.random() < 0.7
        with vmflow.autocast("cpu", dtype=getattr(vmflow, low), cache_enabled=cached):
            body = self._body(CAST, self.run, self.own)
        if not body:
            return
        self.steps.append(Step("autocast", (), (low, cached, body)))
        for name in sorted(set(self.run.tensors) - before):
            if _is(self.run.tensors[name]) and self.run.tensors[name].dtype.name == low:
                self._add("method", (name,), "float")

    def _under_autocast(self) -> None:
        if self.kinds.low is not None:
            self._autocast()
        else:
            self._unary()

    def _unary_of_any_dtype(self) -> None:
        name = self._one(lambda tensor: not tensor.dtype.is_complex)
        if name is not None:
            self._add("method", (name,), self.rng.choice(["relu", "neg", "clone"]))

    def _dropout(self) -> None:
        name = self._one(lambda tensor: not tensor.dtype.is_complex)
        if name is not None and self.kinds.dropout:
            self._add("dropout", (name,), 0.5)

    # Gradients and hooks

    def _watched(self) -> None:
        name = self._one(lambda tensor: tensor.requires_grad) if self.rng.random() < 0.95 else self._one()
        if name is None:
            return
        kind = self.rng.choice(["hook", "hook", "retain", "retain", "unhook"])
        if kind == "retain":
            self._add("retain", (name,))
        elif kind == "hook":
            self._add("hook", (name,), self._named("h"), self.rng.choice([None, 0.5, 2.0]))
        elif self.run.handles:
            # In PyTorch hooks of modules belong to the first call, also within a checkpoint.
            names = [name for name in sorted(self.run.handles) if name[0] == "h"]
            self._add("unhook", (), self.rng.choice(names or ["h"]))

    def _outputs(self) -> list[str]:
        names = self._tensors(lambda tensor: tensor.requires_grad and not tensor.is_leaf)[-8:]
        return self.rng.sample(names, min(len(names), self.rng.choice([1, 1, 2, 3])))

    def _backward(self) -> None:
        names = self._outputs()
        if names:
            seed, retain = self.rng.randint(0, 99), self.rng.random() < 0.9
            if self.rng.random() < 0.7:
                self._add("backward", names, seed, retain, self.rng.random() < 0.1 and not self.cuts)
            else:
                self._add("backward_from", names, seed, retain)

    def _grad(self) -> None:
        names = self._outputs() if not self.cuts else []
        # Whether PyTorch calls the hooks of a requested tensor depends on the other requested ones.
        wanted = self._tensors(
            lambda tensor: tensor.requires_grad and (tensor.grad_fn is None or not tensor.grad_fn.outputs)
        )
        if names and wanted:
            chosen = self.rng.sample(wanted, min(len(wanted), self.rng.randint(1, 3)))
            create = self.rng.random() < 0.6
            params = (len(names), self.rng.randint(0, 99), self.rng.random() < 0.9, create)
            self._add("grad", (*names, *chosen), *params, results=len(chosen))

    def _gradient(self) -> None:
        name = self._one(lambda tensor: tensor.requires_grad and tensor.is_leaf)
        if name is not None:
            kind = self.rng.choice(
                ["drop_gradient" if self.cuts else "gradient_of", "drop_gradient", "change_gradient"]
            )
            self._add(kind, (name,), *([("mul_", 2), ("zero_",)][self.rng.randrange(2)] if kind[0] == "c" else ()))


def _overlaps(tensor: Tensor) -> bool:
    """Whether some elements share a place in memory."""
    places = np.zeros(1, int)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = np.add.outer(places, np.arange(size) * stride).ravel()
    return np.unique(places).size != places.size


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def _usable_low(tensor: Tensor) -> bool:
    """Whether a tensor of low precision may be used: under autocast."""
    return tensor.dtype.name in ("bfloat16", "float16") and vmflow.is_autocast_enabled("cpu")


def _flat(body: Program) -> list[Step]:
    found: list[Step] = []
    for step in body:
        found.append(step)
        for part in step.params:
            if isinstance(part, tuple) and part and isinstance(part[0], Step):
                found += _flat(part)
    return found


# A drawn view: an op, its parameters and how many results it has; None where it does not fit.

Drawn: TypeAlias = "tuple[str, tuple[Any, ...], int] | None"


def _drawn_index(rng: random.Random, shape: tuple[int, ...], any_kind: bool) -> tuple[Any, ...] | None:
    if not shape or 0 in shape:
        return None
    kind = rng.choice(["slice", "at", "many", "mask"] if any_kind else ["slice", "at", "both"])
    if kind == "at":
        return (("at", rng.randrange(shape[0])),)
    if kind == "many":
        return (("many", *rng.sample(range(shape[0]), rng.randint(1, shape[0]))),)
    if kind == "mask":
        return (("mask", shape, rng.randint(1, 3)),)
    if kind == "both" and len(shape) > 1:
        return (("slice", 0, rng.randint(1, shape[0]), None), ("at", rng.randrange(shape[1])))
    start = rng.randrange(shape[0])
    return (("slice", start, rng.randint(start + 1, shape[0]), rng.choice([None, None, 2])),)


def _sliced(rng: random.Random, tensor: Tensor) -> Drawn:
    index = _drawn_index(rng, tuple(tensor.shape), rng.random() < 0.2)
    return None if index is None else ("get", (index,), 1)


def _narrowed(rng: random.Random, tensor: Tensor) -> Drawn:
    shape = tuple(tensor.shape)
    if not shape:
        return None
    dim = rng.randrange(len(shape))
    start = rng.randint(0, shape[dim])
    return "method", ("narrow", dim, start, rng.randint(0 if rng.random() < 0.1 else 1, max(1, shape[dim] - start))), 1


def _turned(rng: random.Random, tensor: Tensor) -> Drawn:
    count = len(tensor.shape)
    if count < 2:
        return "method", ("unsqueeze", rng.randint(0, count)), 1
    if count == 2 and rng.random() < 0.5:
        return "method", ("t",), 1
    if rng.random() < 0.5:
        return "method", ("transpose", rng.randrange(count), rng.randrange(count)), 1
    return "method", ("permute", tuple(rng.sample(range(count), count))), 1


def _reshaped(rng: random.Random, tensor: Tensor) -> Drawn:
    count = tensor.numel()
    sizes = [size for size in range(1, count + 1) if count % size == 0]
    if not sizes:
        return None
    first = rng.choice(sizes)
    shape: tuple[int, ...] = (count,) if rng.random() < 0.3 else (first, count // first)
    # Results of ops have other strides in PyTorch, so that a reshaped one may or may not share memory.
    return ("method", ("view", shape), 1) if rng.random() < 0.7 else ("copied", ("reshape", shape), 1)


def _expanded(rng: random.Random, tensor: Tensor) -> Drawn:
    shape = tuple(tensor.shape)
    if 1 in shape and rng.random() < 0.5:
        return "method", ("squeeze", shape.index(1)), 1
    return "method", ("expand", (2, *[2 if size == 1 else size for size in shape])), 1


def _diagonal(rng: random.Random, tensor: Tensor) -> Drawn:
    if len(tensor.shape) < 2:
        return "method", ("unsqueeze", 0), 1
    return "method", ("diagonal", rng.choice([-1, 0, 0, 1])), 1


def _parted(rng: random.Random, tensor: Tensor) -> Drawn:
    shape = tuple(tensor.shape)
    if not shape or not shape[0]:
        return None
    dim = rng.randrange(len(shape))
    if not shape[dim]:
        return None
    if rng.random() < 0.4:
        return "method", ("unbind", dim), shape[dim]
    size = rng.randint(1, shape[dim])
    return "method", ("split", size, dim), -(-shape[dim] // size)


def _in_windows(rng: random.Random, tensor: Tensor) -> Drawn:
    shape = tuple(tensor.shape)
    if not shape or not shape[0]:
        return None
    return "method", ("unfold", 0, rng.randint(1, shape[0]), rng.randint(1, 2)), 1


def _as_pairs(rng: random.Random, tensor: Tensor) -> Drawn:
    if tensor.dtype.is_complex:
        return "function_of_module", ("view_as_real",), 1
    if len(tensor.shape) and tensor.shape[-1] == 2 and tensor.dtype.name in ("float32", "float64"):
        return "function_of_module", ("view_as_complex",), 1
    return "method", ("movedim", 0, -1) if len(tensor.shape) > 1 else ("detach",), 1


def _detached(rng: random.Random, tensor: Tensor) -> Drawn:
    return "method", ("detach",), 1


VIEWS: Final[list[Callable[[random.Random, Tensor], Drawn]]] = [
    _sliced,
    _sliced,
    _sliced,
    _narrowed,
    _turned,
    _turned,
    _reshaped,
    _reshaped,
    _expanded,
    _diagonal,
    _parted,
    _in_windows,
    _as_pairs,
    _as_pairs,
    _detached,
]
UNARY: Final[list[tuple[Any, ...]]] = [
    ("neg",),
    ("mul", 0.75),
    ("clone",),
    ("sin",),
    ("tanh",),
    ("sigmoid",),
    ("relu",),
    ("abs",),
    ("square",),
    ("flip", 0),
]
UNARY_IN_PLACE: Final[list[tuple[Any, ...]]] = [
    ("mul_", 0.5),
    ("add_", 0.25),
    ("neg_",),
    ("tanh_",),
    ("sigmoid_",),
    ("relu_",),
    ("clamp_", -0.5, 0.5),
    ("sin_",),
    ("detach_",),
]
CHANGES: Final[list[Callable[[Maker, str], None]]] = [
    Maker._changed_alone,
    Maker._changed_alone,
    Maker._changed_by_another,
    Maker._changed_by_another,
    Maker._changed_by_two,
    Maker._masked_or_seen_differently,
    Maker._assigned,
    Maker._assigned,
    Maker._changed_by_index,
]

Table: TypeAlias = "list[tuple[Callable[[Maker], None], float]]"

_OPS: Final[Table] = [
    (Maker._view, 25),
    (Maker._unary, 10),
    (Maker._reduced, 3),
    (Maker._binary, 8),
    (Maker._matmul, 3),
    (Maker._joined, 2),
    (Maker._in_place, 20),
    (Maker._function, 8),
]

UNRECORDED: Final[Table] = [*_OPS, (Maker._dropout, 2)]
CAST: Final[Table] = [
    (Maker._matmul, 5),
    (Maker._call, 5),
    (Maker._module, 2),
    (Maker._unary_of_any_dtype, 3),
    (Maker._view, 4),
    (Maker._checkpoint, 3),
]
WITHIN: Final[Table] = [
    *_OPS,
    (Maker._call, 4),
    (Maker._dropout, 3),
    (Maker._no_grad, 2),
    (Maker._checkpoint, 3),
    (Maker._under_autocast, 3),
]
OUTSIDE: Final[Table] = [
    *_OPS,
    (Maker._another_leaf, 3),
    (Maker._module, 2),
    (Maker._call, 4),
    (Maker._checkpoint, 6),
    (Maker._no_grad, 3),
    (Maker._under_autocast, 4),
    (Maker._dropout, 2),
    (Maker._watched, 10),
    (Maker._backward, 4),
    (Maker._grad, 4),
    (Maker._gradient, 3),
]
