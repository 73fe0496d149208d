"""The op table: the declarations of ops.

An `OpExpr` holds an op's inference (shapes, dtypes, cost) and the rule for its gradient.  The kernels that compute it
are in `vmflow.kernels`; the interpreters run it.

The result of inference is remembered for each combination of attributes and input metas.  A Python number among the
operands is a *scalar*: it takes part in inference by its type only, so that ``x * 0.1`` and ``x * 0.2`` share one
entry.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias, final

import numpy as np

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import TensorMeta, places_memory
from vmflow.instructions.chain import Step
from vmflow.instructions.op_call import CallPlan
from vmflow.kernels.choosing import Kernel, Problem, choose
from vmflow.kernels.generation import GENERATION

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# The largest allowed stride, padding and dilation of windows.
MOST_OF_WINDOWS: Final = (1 << 31) - 1

# Memory of at least this many bytes is released in stream order, by an instruction; for less, Python's reference
# counting suffices and costs no instruction.
LEASED_FROM: Final = 1 << 16

Attributes: TypeAlias = tuple[Hashable, ...]
Metas: TypeAlias = tuple[TensorMeta, ...]
Kinds: TypeAlias = tuple[type, ...]

# Types of attributes: sizes of arrays from 0 and from 1 on; the same for windows, whose products must not overflow; and
# dimensions of the operands.
Size: TypeAlias = Annotated[int, 0, (1 << 40) - 1]
Count: TypeAlias = Annotated[int, 1, (1 << 40) - 1]
Margin: TypeAlias = Annotated[int, 0, MOST_OF_WINDOWS]
Stride: TypeAlias = Annotated[int, 1, MOST_OF_WINDOWS]
Dim: TypeAlias = Annotated[int, "dim"]


class Form(NamedTuple):
    """The number of operands that an op takes, and the types of its attributes.

    Calls from Python always have this form, since a function checks its arguments before it dispatches.  Calls read
    from files are compared with it before inference; see `vmflow.graph_mode.op_forms`.  Raises no errors.

    Attributes:
        inputs: the number of tensors, or the least and the most; None as the most for any number.
        attributes: the type of all attributes together: a tuple's, or a named tuple; None if there are none.
        scalars: the number of Python numbers, likewise.
        draws: whether these are the numbers that a random op draws.
        rest: the type of further attributes, if any number of them is allowed.

    Example:
        >>> flow.random.Form(inputs=2).scalars
        0
    """

    inputs: int | tuple[int, int | None]
    attributes: Any = None
    scalars: int | tuple[int, int] = 0
    draws: bool = False
    rest: Any = None


class Inferred:
    """The result of inference for a call: the metas, with shapes, of its outputs, and its cost.

    Args:
        outputs: the metas of the results; a tuple if the kernel returns one.
        cost: estimated nanoseconds on one core, good to a factor of a few; decides inline or worker.
        details: further data for the op's kernels, beside metas and attributes; see `Problem`.

    Attributes:
        outputs, cost, details: as given; the outputs always as a tuple.
        several: whether the kernel returns a tuple.

    Raises:
        TypeError: if the cost is no number.

    Example:
        >>> from vmflow.ops.table import Inferred
        >>> Inferred((), 250.0).cost
        250
    """

    __slots__ = ("cost", "details", "outputs", "several")

    def __init__(self, outputs: Metas | TensorMeta, cost: float, details: Any = None) -> None:
        self.several = isinstance(outputs, tuple)
        self.outputs: Metas = outputs if isinstance(outputs, tuple) else (outputs,)
        self.cost = int(cost)
        self.details = details


class OpPlan(CallPlan):
    """The plan of all calls of an op with the same attributes and metas: results of inference, and the kernel.

    Args:
        name: of the op.
        inferred: the result of inference.
        kernel: the chosen kernel.

    Attributes:
        outputs: the metas of the results.
        details: see `Inferred`.
        kernel: as given.
        leased: the bytes of the results that are large enough to be released in stream order.
        spread: calls the op on global tensors; None for local ones.
        step: the op as a step of a chain, False if it should not be one; None until that is known.
    """

    __slots__ = ("details", "kernel", "leased", "outputs", "spread", "step")

    def __init__(self, name: str, inferred: Inferred, kernel: Kernel) -> None:
        allocates = any([places_memory(output) for output in inferred.outputs])
        super().__init__(name, kernel.function, inferred.cost, inferred.several, allocates)
        self.outputs = inferred.outputs
        self.details = inferred.details
        self.kernel = kernel
        self.casts = kernel.casts
        self.leased: int = sum([output.nbytes for output in self.outputs if output.nbytes >= LEASED_FROM])
        may_chain = inferred.cost >= CHAINED_FROM or any([output.device.type == "cuda" for output in self.outputs])
        self.step: Step | Literal[False] | None = None if may_chain else False
        self.spread: Any = None


# Ops of at least this many nanoseconds wait for ops that read their results, to be computed in one chain, see
# `vmflow.instructions.chain`: smaller arrays stay in the host's caches in between.  On a GPU, each saved launch saves
# the host some microseconds.
CHAINED_FROM: Final = 250_000


@final
class Recent:
    """The last plan of an op with one or two inputs and at most one scalar, since the next call is often the same.

    Immutable, since another thread may be reading it.

    Attributes:
        metas, first, second: the metas, and each by itself; None for the second of one.
        attributes, kind, default: the attributes, the type of the scalar or None, and the mode's dtype.
        plan: the op's plan for these.
    """

    __slots__ = ("attributes", "default", "first", "kind", "metas", "plan", "second")

    def __init__(self, metas: Metas, attributes: Attributes, kinds: Kinds, default: DType | None, plan: OpPlan) -> None:
        self.metas = metas
        self.first = metas[0]
        self.second = metas[1] if len(metas) == 2 else None
        self.attributes = attributes
        self.kind = kinds[0] if kinds else None
        self.default = default
        self.plan = plan


# infer(attributes, metas, types of the scalars); raises ValueError, TypeError or RuntimeError if they do not fit
Infer: TypeAlias = Callable[[Attributes, Metas, Kinds], Inferred]
# rule(node, gradient of each output) -> gradient of each input, None where there is none
GradientRule: TypeAlias = Callable[..., "tuple[Tensor | None, ...]"]

OPS: dict[str, OpExpr] = {}


def _is_global(attributes: Attributes, metas: Metas) -> bool:
    for meta in metas:
        if meta.spread is not None:
            return True
    return any([isinstance(attribute, TensorMeta) and attribute.spread is not None for attribute in attributes])


def _forget_all() -> None:
    for op in list(OPS.values()):
        op.forget()


GENERATION.watchers.append(_forget_all)


class OpExpr:
    """An op: its inference and the rule for its gradient.

    Attributes:
        name: as in PyTorch, unique in the table.
        family: the family of its kernels, see `Problem`; empty if it has its own.
        form: see `Form`; None for an op that cannot be read from a file.
        infer: see `Infer`.
        rule: the gradient, in terms of flow ops, or None if the op has none.
        saves_inputs, saves_outputs: the indices of those that the rule reads.
        readers: for each saved input, the only input whose gradient reads it, None if there are several; empty if that
            is so for all.
        known: the remembered plans, by key.
        remembers: the number of plans at which all are forgotten.
        recent: the last of them that a `Recent` can hold; None before there is one.
        is_slice: whether the result is a slice of the input, by attributes of axis, start, length and step, so that its
            gradient need not be padded with zeros if it can be joined with those of other slices.

    Raises:
        ValueError: if there is an op of this name.

    Example:
        >>> flow.random.OpExpr.__name__
        'OpExpr'
    """

    __slots__ = (
        "family",
        "form",
        "infer",
        "is_slice",
        "known",
        "name",
        "readers",
        "recent",
        "remembers",
        "rule",
        "saves_inputs",
        "saves_outputs",
    )

    def __init__(
        self, name: str, infer: Infer, form: Form | None = None, family: str = "", remembers: int = 1 << 14
    ) -> None:
        if name in OPS:
            raise ValueError(f"op {name!r} is declared twice")
        OPS[name] = self
        self.name = name
        self.infer = infer
        self.form = form
        self.family = family
        self.rule: GradientRule | None = None
        self.saves_inputs: tuple[int, ...] = ()
        self.saves_outputs: tuple[int, ...] = ()
        self.readers: tuple[int | None, ...] = ()
        self.known: dict[Hashable, OpPlan] = {}
        self.recent: Recent | None = None
        self.remembers = remembers
        self.is_slice = False

    def gradient(
        self, inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = (), readers: dict[int, int] | None = None
    ) -> Callable[[GradientRule], GradientRule]:
        """Declare the decorated function as the gradient rule.

        It is called as ``rule(node, *gradients)`` with one gradient per output (None for an output that has none, but
        not for all of them) and returns one per input, or None.  It may use `node.input(i)` and `node.output(i)` for
        the indices declared here, and `node.meta(i)`, `node.attributes`, `node.scalars` and `node.needs` for any.  A
        gradient is summed over broadcast dimensions and cast to its input's dtype by the caller.

        `readers` maps an input to the only input whose gradient reads it: if that gradient is not needed, the input is
        not kept, and `node.input` of it is an error.
        """

        def declare(rule: GradientRule) -> GradientRule:
            self.rule = rule
            self.saves_inputs = inputs
            self.saves_outputs = outputs
            self.readers = tuple([readers.get(operand) for operand in inputs]) if readers else ()
            return rule

        return declare

    def plan(self, key: Hashable, attributes: Attributes, metas: Metas, kinds: Kinds) -> OpPlan:
        """Infer, choose the kernel, and remember the plan under `key`, which must determine the other arguments."""
        generation = GENERATION.number
        if _is_global(attributes, metas):
            from vmflow.distributed.global_interpreter import global_plan  # needed by few programs

            plan = global_plan(self, attributes, metas, kinds)
        else:
            inferred = self.infer(attributes, metas, kinds)
            problem = Problem(self.name, self.family, attributes, metas, kinds, inferred.outputs, inferred.details)
            plan = OpPlan(self.name, inferred, choose(problem, inferred.outputs[0].device))
        if len(self.known) >= self.remembers:
            self.known.clear()
        self.known[key] = plan
        if generation != GENERATION.number:
            self.known.pop(key, None)  # `forget` ran meanwhile, without this plan
        return plan

    def forget(self) -> None:
        """Forget all plans, so that later calls infer again."""
        self.known.clear()
        self.recent = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


# A view: from (attributes, shape, strides, offset), all in elements, to the new (shape, strides, offset).
ViewRule: TypeAlias = Callable[
    [Attributes, tuple[int, ...], tuple[int, ...], int], tuple[tuple[int, ...], tuple[int, ...], int]
]


class ViewExpr(OpExpr):
    """An op whose result shares its input's memory; no kernel runs and no instruction is issued.

    Attributes:
        view: see `ViewRule`; raises like `infer`.
        dtype: from the input's dtype to the result's; None if it stays.  Only views of complex numbers as real ones and
            the reverse change it: autograd supports no others.
    """

    __slots__ = ("dtype", "view")

    def __init__(
        self, name: str, view: ViewRule, dtype: Callable[[DType], DType] | None = None, is_slice: bool = False
    ) -> None:
        super().__init__(name, _not_inferred)
        self.view = view
        self.dtype = dtype
        self.is_slice = is_slice


def _not_inferred(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    raise NotImplementedError("a view has no kernel")


def common_device(name: str, metas: Metas) -> Device:
    """The device of all these metas.

    Raises:
        RuntimeError: if they are on several.
    """
    device = metas[0].device
    for other in metas:
        if other.device is not device:
            raise RuntimeError(
                f"{name}: expected all tensors on one device, got {device} and {other.device}; move one with .to()"
            )
    return device


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which these shapes broadcast, by numpy's rule.

    Raises:
        ValueError: if they do not broadcast.

    Example:
        >>> flow.random.broadcast_shapes("add", (2, 1), (3,))
        (2, 3)
    """
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    listed = " and ".join(str(list(shape)) for shape in shapes)
                    raise ValueError(
                        f"{name}: shapes {listed} do not broadcast: sizes {result[axis]} and {size} at dimension "
                        f"{axis - rank} differ and neither is 1"
                    )
                result[axis] = size
    return tuple(result)


def normalize_dim(name: str, dim: int, rank: int) -> int:
    """Convert `dim` to a number counted from the front; a 0-d tensor is treated as having one dimension.

    Raises:
        TypeError: if it is no integer.
        IndexError: if there is no such dimension.
    """
    # A bool is an int, but as a dimension it is a mistake: x.sum(True) means keepdim.
    if type(dim) is not int and (isinstance(dim, bool) or not isinstance(dim, (int, np.integer))):
        raise TypeError(f"{name}: a dimension is an integer, not {dim!r}")
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"{name}: dim {dim} is out of range; a {rank}-d tensor takes {-limit} to {limit - 1}")
    return int(dim) + limit if dim < 0 else int(dim)


def normalize_dims(name: str, dims: int | tuple[int, ...] | list[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct dimensions counted from the front, sorted; all of them for None, none of a 0-d tensor.

    Raises:
        TypeError: if one is no integer.
        IndexError: if one does not exist.
        ValueError: if one is given twice.
    """
    if dims is None:
        return tuple(range(rank))
    listed = dims if isinstance(dims, (tuple, list)) else (dims,)
    normal = sorted([normalize_dim(name, dim, rank) for dim in listed])
    if len(set(normal)) != len(normal):
        raise ValueError(f"{name}: dim {tuple(listed)} names one dimension twice")
    return tuple(normal) if rank else ()


def whole_number(name: str, what: str, value: Any) -> int:
    """Convert a value to an int.

    Raises:
        TypeError: if it is no integer, or a bool.

    Example:
        >>> flow.random.whole_number("repeat", "a number", 3)
        3
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {what} must be an integer, not {value!r}")
    return operator.index(value)


def flag(name: str, what: str, value: Any) -> bool:
    """Convert a value to a bool.

    Raises:
        TypeError: if it is neither True nor False.

    Example:
        >>> flow.nn.utils.rnn.flag("sum", "keepdim", True)
        True
    """
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name}: {what} must be True or False, not {value!r}")


# Numbers as attributes


def encoded(value: Any) -> tuple[str, ...]:
    """A number as strings, which unlike numbers are equal only if kind and bits are.

    Raises:
        TypeError: if it is no Python number.
    """
    if isinstance(value, bool):
        return "bool", str(int(value))
    if isinstance(value, int):
        return "int", str(value)
    if isinstance(value, float):
        return "float", _hexadecimal(value)
    if isinstance(value, complex):
        return "complex", _hexadecimal(value.real), _hexadecimal(value.imag)
    raise TypeError(f"expected a Python number, not {value!r}")


def decoded(code: tuple[str, ...]) -> bool | int | float | complex:
    """The number of which `encoded` made these strings."""
    kind, *parts = code
    if kind == "bool":
        return bool(int(parts[0]))
    if kind == "int":
        return int(parts[0])
    if kind == "float":
        return float.fromhex(parts[0])
    return complex(float.fromhex(parts[0]), float.fromhex(parts[1]))


def _hexadecimal(value: float) -> str:
    return "-nan" if math.isnan(value) and math.copysign(1, value) < 0 else value.hex()
