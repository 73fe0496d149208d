"""The op table: the declarations of ops.

An `OpExpr` holds an op's inference (shapes, dtypes and cost of its results) and its gradient rule.  The kernels that
compute the op are in `vmflow.kernels`; interpreters run the op.

The result of inference is cached for each combination of attributes, input metas, types of scalars and default dtype.
A Python number among the operands is a *scalar*: as only its type counts, ``x * 0.1`` and ``x * 0.2`` share an entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias, final

from vmflow.arguments import is_integer
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import TensorMeta, places_memory
from vmflow.instructions.chain import Step
from vmflow.instructions.op_call import CallPlan
from vmflow.kernels.choosing import Kernel, Problem, choose
from vmflow.kernels.generation import GENERATION

from .declaration import declaring_module

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# The largest allowed size, stride, padding or dilation of windows of convolution and pooling.
MOST_OF_WINDOWS: Final = (1 << 31) - 1

# A tensor of at least this many bytes releases its memory in stream order: by an instruction, unless the machine is
# idle.  Smaller ones are left to Python's reference counting, which costs no instruction.
LEASED_FROM: Final = 1 << 16

Attributes: TypeAlias = tuple[Hashable, ...]
Metas: TypeAlias = tuple[TensorMeta, ...]
Kinds: TypeAlias = tuple[type, ...]

# Types of op attributes: sizes of arrays from 0 (Size) and from 1 (Count) on; paddings (Margin) and strides of windows,
# which are limited so that their products do not overflow; and indices of dimensions of the operands (Dim).
Size: TypeAlias = Annotated[int, 0, (1 << 40) - 1]
Count: TypeAlias = Annotated[int, 1, (1 << 40) - 1]
Margin: TypeAlias = Annotated[int, 0, MOST_OF_WINDOWS]
Stride: TypeAlias = Annotated[int, 1, MOST_OF_WINDOWS]
Dim: TypeAlias = Annotated[int, "dim"]


class Form(NamedTuple):
    """The number of operands that an op takes, and the types of its attributes.

    Public functions check arguments before they dispatch.  Calls read from files are compared with the form before
    inference; see `vmflow.graph_mode.op_forms`.  Raises no errors.

    Attributes:
        inputs: the number of tensors; or a pair, the least and the most, where None is no upper limit.
        attributes: the type of the tuple of all attributes but `rest`: a tuple type or a named tuple; None if there are
            none.
        scalars: the number of Python numbers among the operands; or a pair, the least and the most.
        draws: whether the scalars are the seed and the offset from which a random op draws its numbers.
        rest: the type of each further attribute, if any number of them may follow; else None.

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
    """The result of an op's inference for one call: the metas (shape, dtype, device) of its outputs, and its cost.

    Args:
        outputs: the metas of the results; a tuple if the kernel returns a tuple.
        cost: estimated nanoseconds on one core, good to a factor of a few; expensive calls may run on workers.
        details: further data for the op's kernels, beside metas and attributes; see `Problem`.

    Attributes:
        outputs, cost, details: the arguments; `outputs` as a tuple, `cost` as an int.
        several: whether the kernel returns a tuple.

    Raises:
        TypeError, ValueError, OverflowError: if the cost cannot be converted to an int.

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
    """The inferred results and the kernel of an op for equal attributes, metas, scalar types and default dtype.

    Args:
        name: of the op.
        inferred: the result of inference.
        kernel: the chosen kernel.

    Attributes:
        outputs, details: see `Inferred`.
        kernel: the argument.
        casts: whether the kernel may write into a result of another dtype, casting.
        leased: the total bytes of the results that are large enough to be released in stream order.
        spread: the object whose methods run the op on global tensors; None for local tensors.
        step: the op's `Step` in chains of elementwise ops; False if its calls cannot be chained or are too cheap, None
            until that is known.
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


# On the CPU, elementwise ops of at least this many nanoseconds may wait for elementwise ops that read their results, to
# run together as one chain.  Smaller arrays stay in the caches between two ops, so that a chain saves nothing.  On a
# GPU ops of any size may wait, since each saved launch saves microseconds.
CHAINED_FROM: Final = 250_000


@final
class Recent:
    """An op's most recent plan for one or two inputs and at most one scalar, kept because the next call often needs it.

    Immutable, since another thread may be reading it.

    Attributes:
        metas, first, second: the metas of the inputs, and each by itself; `second` is None for an op of one input.
        attributes, kind, default: the attributes, the type of the scalar or None, and the default dtype.
        plan: the op's plan for these metas, attributes, scalar type and default dtype.
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


# infer(attributes, metas of the inputs, types of the scalars): infers the results' shapes, dtypes and cost; raises an
# error, such as ValueError or TypeError, for operands that do not fit.
Infer: TypeAlias = Callable[[Attributes, Metas, Kinds], Inferred]
# rule(node, gradient of each output) -> gradient of each input; None for an input without a gradient
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
    """An op of the table: its name, inference, gradient rule and cached plans.

    Attributes:
        name: unique in the table.
        family: the family of kernels that compute the op, see `Problem`; empty if it has kernels of its own.
        form: see `Form`; None for views, and for ops that cannot be read from a file.
        infer: see `Infer`.
        module: the name of the module that declares the op.
        rule: the gradient rule, a function composed of vmflow ops; None if the op has no gradient.
        saves_inputs, saves_outputs: the indices of the inputs and outputs that the gradient rule reads.
        readers: for each saved input, the index of the only input whose gradient reads it, None if several do; empty if
            all entries would be None.
        known: the cached plans, by key.
        remembers: the number of cached plans at which all are dropped.
        recent: see `Recent`; None if no call has used such a plan since the start or the last `forget`.
        is_slice: whether the op is a slice with the attributes axis, start, length and step: autograd can then join the
            gradients of slices of one tensor that do not overlap, instead of padding each with zeros and adding them.

    A module may declare its ops again, since Ctrl-C may interrupt its import, which is then repeated.

    Raises:
        ValueError: if another module declares an op of this name.

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
        "module",
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
        self.module = declaring_module()
        if name in OPS and OPS[name].module != self.module:
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

        Autograd calls ``rule(node, *gradients)`` with a gradient per output (None for some outputs, but never for all).
        The rule returns a gradient, or None, per input.  It may use `node.input(i)` and `node.output(i)` for the
        indices `inputs` and `outputs`, and `node.meta(i)`, `node.attributes`, `node.scalars` and `node.needs` for any.
        Autograd sums a gradient over broadcast dimensions and casts it to its input's dtype.

        `readers` maps an input to the only input whose gradient reads it: if that gradient is not needed, the input is
        not kept for the backward pass, and `node.input` of it is an error.
        """

        def declare(rule: GradientRule) -> GradientRule:
            self.rule = rule
            self.saves_inputs = inputs
            self.saves_outputs = outputs
            self.readers = tuple([readers.get(operand) for operand in inputs]) if readers else ()
            return rule

        return declare

    def plan(self, key: Hashable, attributes: Attributes, metas: Metas, kinds: Kinds) -> OpPlan:
        """Run inference, choose a kernel, and cache the plan under `key`, which must determine the other arguments."""
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
            self.known.pop(key, None)  # `forget` ran in between, and could not drop this plan
        return plan

    def forget(self) -> None:
        """Drop all cached plans, so that later calls infer, and choose their kernels, again."""
        self.known.clear()
        self.recent = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


# A function from (op attributes, shape, strides, offset) of a tensor to (shape, strides, offset) of a view of it, in
# elements.
ViewRule: TypeAlias = Callable[
    [Attributes, tuple[int, ...], tuple[int, ...], int], tuple[tuple[int, ...], tuple[int, ...], int]
]


class ViewExpr(OpExpr):
    """An op whose result shares its input's memory; no kernel runs and no instruction is issued.

    Attributes:
        view: computes the view's geometry, see `ViewRule`; raises errors as `infer` does.
        dtype: a function from the input's dtype to the view's; None if both are equal.  Only views of complex as real
            tensors, and the reverse, change the dtype: autograd supports no others.
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
    """Return the one device of all metas.

    Raises:
        RuntimeError: if the metas are on several devices.
    """
    device = metas[0].device
    for other in metas:
        if other.device is not device:
            raise RuntimeError(
                f"{name}: expected all tensors on one device, got {device} and {other.device}; move one with .to()"
            )
    return device


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which the shapes broadcast together, by numpy's rule.

    Raises:
        ValueError: if the shapes do not broadcast.

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
    """Convert a dimension that may count from the end to its number from the front; a 0-d tensor counts as a vector.

    Raises:
        TypeError: if `dim` is no integer as of `is_integer`.
        IndexError: if a tensor of `rank` dimensions has no dimension `dim`.
    """
    # A bool is an int, but is refused as a dimension: the caller of x.sum(True) means keepdim.
    if not is_integer(dim):
        raise TypeError(f"{name}: a dimension is an integer, not {dim!r}")
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"{name}: dim {dim} is out of range; a {rank}-d tensor takes {-limit} to {limit - 1}")
    return int(dim) + limit if dim < 0 else int(dim)


def normalize_dims(name: str, dims: int | tuple[int, ...] | list[int] | None, rank: int) -> tuple[int, ...]:
    """Convert dimensions to their sorted numbers from the front, none for a 0-d tensor; None means all dimensions.

    Raises:
        TypeError: if a dimension is no integer, or a bool.
        IndexError: if a dimension does not exist.
        ValueError: if a dimension is given twice.
    """
    if dims is None:
        return tuple(range(rank))
    listed = dims if isinstance(dims, (tuple, list)) else (dims,)
    normal = sorted([normalize_dim(name, dim, rank) for dim in listed])
    if len(set(normal)) != len(normal):
        raise ValueError(f"{name}: dim {tuple(listed)} names one dimension twice")
    return tuple(normal) if rank else ()


def none_listed(value: Any) -> bool:
    """Return whether `value`, an argument that is one integer, several or None, is an empty tuple or list."""
    return isinstance(value, (tuple, list)) and not value


def as_tuple(value: int | Iterable[int]) -> tuple[int, ...]:
    """Convert an argument that is one integer, such as a dimension, or several, to a tuple; the caller checks each."""
    return tuple(value) if isinstance(value, Iterable) else (value,)


# Numbers as attributes


def encoded(value: Any) -> tuple[str, ...]:
    """Encode a number as strings, a cache key: 1, 1.0 and True differ, and so do 0.0 and -0.0, and nan and -nan.

    Raises:
        TypeError: if `value` is no Python number.
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
    """Decode the strings that `encoded` returned for a number to that number."""
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
