"""Functions that treat each element alone, declared with their ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmflow import interpreter as _interpreter
from vmflow import tensors as _tensors
from vmflow.context import MODE
from vmflow.operands import not_tensors

from .copying import clone, copy_
from .destination import written
from .elementwise import REVERSED, SAME, elementwise, number
from .table import Attributes, OpExpr

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .elementwise import Scalar


BINARIES: dict[str, Binary] = {}


class Binary:
    """An op of two operands, of which one may be a Python number.

    Attributes:
        tensors: the op on two tensors.
        scalar: the op on a tensor and a number; its attributes are `REVERSED` if the number stands first.
    """

    __slots__ = ("name", "scalar", "tensors")

    def __init__(self, name: str, result: str = SAME, **options: Any) -> None:
        BINARIES[name] = self
        self.name = name
        self.tensors = elementwise(name, result, operands=2, **options)
        self.scalar = elementwise(f"{name}_scalar", result, scalars=1, **options)

    def of(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """The op; a method with a name, for Python takes three times as long to call an object."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def written(self, out: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """The op with its result in `out`; see `vmflow.ops.destination`."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return written(self.tensors, out, (input, other))
            return written(self.scalar, out, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return written(self.scalar, out, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def into(self, input: Tensor, other: Tensor | Scalar) -> Tensor:
        """``input = input op other``, in place."""
        if isinstance(other, _tensors.Tensor):
            return into(self.tensors, input, (input, other))
        return into(self.scalar, input, (input,), (), (number(self.name, other),))


def into(
    op: OpExpr,
    target: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Write the result of an op into `target`, which may be among the inputs, and return it.

    As `dispatch_into`, but what the gradient needs of the target is kept as it was.
    """
    looks_back = op.saves_inputs or op.rule is None
    if looks_back and MODE.get().grad and any([it.requires_grad for it in (target, *inputs)]):
        if op.rule is None:
            return copy_(target, _interpreter.dispatch(op, inputs, attributes, scalars))
        inputs = tuple(
            [clone(it) if it is target and place in op.saves_inputs else it for place, it in enumerate(inputs)]
        )
    return _interpreter.dispatch_into(op, target, inputs, attributes, scalars)


def check_tensors(name: str, *given: Any) -> None:
    """Before anything is asked of them.

    Raises:
        TypeError: if one is no tensor.
    """
    for each in given:
        if not isinstance(each, _tensors.Tensor):
            raise not_tensors(name, given)
