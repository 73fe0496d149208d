"""`TensorOperators`: the commonest operators of tensors, in a base class that mypyc can compile.

Where it is compiled, ``a + b`` calls compiled code instead of a Python function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from . import interpreter as _interpreter
from .dtypes import bfloat16
from .native import mypyc_attr
from .tensor_fields import NEW, TensorFields

if TYPE_CHECKING:
    from .ops.table import OpExpr
    from .tensors import Tensor


class Operator:
    """The functions that an operator of tensors such as ``+`` calls; set by the module that declares the op.

    Attributes:
        tensors: the op on two tensors.
        otherwise: the function for a tensor and an object that is no tensor, in either order.
        in_place: the function that changes the tensor on the left, for any operand on the right.
    """

    __slots__ = ("in_place", "otherwise", "tensors")

    tensors: OpExpr
    otherwise: Callable[[Any, Any], Tensor]
    in_place: Callable[[Any, Any], Tensor]


ADD: Final = Operator()
SUB: Final = Operator()
MUL: Final = Operator()
DIV: Final = Operator()


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorOperators(TensorFields):
    """The compiled base class of `Tensor` with its operators ``+ - * /`` and `item`."""

    __slots__ = ()

    def item(self) -> Any:
        """The element of a tensor of one element, as a Python number; waits for the value.

        Raises:
            ValueError: if the tensor has another number of elements.
            Exception: as `numpy`.

        Example:
            >>> flow.tensor([3.0]).item()
            3.0
        """
        meta = self._blob.meta
        array = _interpreter.settled_array(self) if meta.numel == 1 else None  # type: ignore[arg-type]
        return self._item_in_time() if array is None or meta.dtype is bfloat16 else array.item()

    def _item_in_time(self) -> Any:
        """`item` for a view, a wrong number of elements, or a value to wait for, copy to the host or convert."""
        raise NotImplementedError

    # The operators are written out one by one for speed.

    def __add__(self, other: Any) -> Tensor:
        if isinstance(other, TensorFields):
            return _interpreter.dispatch(ADD.tensors, (self, other))  # type: ignore[arg-type]
        return ADD.otherwise(self, other)

    def __sub__(self, other: Any) -> Tensor:
        if isinstance(other, TensorFields):
            return _interpreter.dispatch(SUB.tensors, (self, other))  # type: ignore[arg-type]
        return SUB.otherwise(self, other)

    def __mul__(self, other: Any) -> Tensor:
        if isinstance(other, TensorFields):
            return _interpreter.dispatch(MUL.tensors, (self, other))  # type: ignore[arg-type]
        return MUL.otherwise(self, other)

    def __truediv__(self, other: Any) -> Tensor:
        if isinstance(other, TensorFields):
            return _interpreter.dispatch(DIV.tensors, (self, other))  # type: ignore[arg-type]
        return DIV.otherwise(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return ADD.otherwise(self, other)  # the order makes no difference

    def __rsub__(self, other: Any) -> Tensor:
        return SUB.otherwise(other, self)

    def __rmul__(self, other: Any) -> Tensor:
        return MUL.otherwise(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return DIV.otherwise(other, self)

    def __iadd__(self, other: Any) -> Tensor:
        return _changed(ADD, self, other)

    def __isub__(self, other: Any) -> Tensor:
        return _changed(SUB, self, other)

    def __imul__(self, other: Any) -> Tensor:
        return _changed(MUL, self, other)

    def __itruediv__(self, other: Any) -> Tensor:
        return _changed(DIV, self, other)


NEW.append(TensorOperators.__new__)


def _changed(operator: Operator, target: Any, other: Any) -> Tensor:
    """Apply an operator such as ``+=`` to `target` in place, and return `target`."""
    op = operator.tensors
    operands: Any = (target, other)
    # If the gradient needs the target's old value, `in_place` is called, which keeps that value.
    if isinstance(other, TensorFields) and not (op.saves_inputs and _interpreter.any_requires_grad(operands)):
        return _interpreter.dispatch_into(op, target, operands)
    return operator.in_place(target, other)
