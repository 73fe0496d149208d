"""`TensorFields`: what a tensor consists of, and its commonest operators, apart from its class for both to be compiled.

So compiled code reaches the fields without a lookup, and an operator is no function of Python's.  Others ask for
the fields by the functions at the end, because users are not to see them as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from . import interpreter as _interpreter
from .dtypes import bfloat16
from .instructions.blob import Blob, TensorMeta
from .instructions.release_tensor import Lease
from .native import mypyc_attr

if TYPE_CHECKING:
    from .autograd.node import AutogradMeta
    from .ops.table import OpExpr
    from .tensors import Tensor


class Operator:
    """What an operator comes to; set by the module that declares the op.

    Attributes:
        tensors: the op on two tensors.
        otherwise: the function for a tensor and whatever else, in either order.
        in_place: the function that changes a tensor by whatever else.
    """

    __slots__ = ("in_place", "otherwise", "tensors")

    tensors: OpExpr
    otherwise: Callable[[Any, Any], Tensor]
    in_place: Callable[[Any, Any], Tensor]


ADD: Final = Operator()
SUB: Final = Operator()
MUL: Final = Operator()
DIV: Final = Operator()


# `Tensor`, as soon as there is one.
CLASS: Final[list[Any]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorFields:
    """The base of `Tensor`, which alone derives from it.

    Attributes:
        _blob: where the values are.
        _lease: what gives the memory back when the last tensor that has it goes; None if nothing does.
        _autograd: the place in the graph of autograd; None without one.
        _base: the tensor that it is a view of, for autograd; see `vmflow.autograd.views`.
    """

    __slots__ = ("_autograd", "_base", "_blob", "_lease")

    _blob: Blob
    _lease: Lease | None
    _autograd: AutogradMeta | None
    _base: Any

    def item(self) -> Any:
        """The one element, as a Python number.

        Raises:
            ValueError: if there is not exactly one.
        """
        meta = self._blob.meta
        array = _interpreter.settled_array(self) if meta.numel == 1 else None  # type: ignore[arg-type]
        return self._item_in_time() if array is None or meta.dtype is bfloat16 else array.item()

    def _item_in_time(self) -> Any:
        """The same, if that needs more than a look."""
        raise NotImplementedError

    # Written out, for every other op of a program is one of these.

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


def _changed(operator: Operator, target: Any, other: Any) -> Tensor:
    """`target`, changed in place."""
    op = operator.tensors
    operands: Any = (target, other)
    # Where the gradient needs the old value of the target, that has to be kept.
    if isinstance(other, TensorFields) and not (op.saves_inputs and _interpreter.any_requires_grad(operands)):
        return _interpreter.dispatch_into(op, target, operands)
    return operator.in_place(target, other)


# The fields, for others to read


def blob_of(tensor: TensorFields) -> Blob:
    """Where the values of a tensor are."""
    return tensor._blob


def blobs_of(tensors: Iterable[TensorFields]) -> tuple[Blob, ...]:
    """The same of several."""
    return tuple([tensor._blob for tensor in tensors])


def meta_of(tensor: TensorFields) -> TensorMeta:
    """Shape, dtype and device of a tensor."""
    return tensor._blob.meta


def metas_of(tensors: Iterable[TensorFields]) -> tuple[TensorMeta, ...]:
    """The same of several."""
    return tuple([tensor._blob.meta for tensor in tensors])


def blobs_if(given: Sequence[Any], metas: tuple[TensorMeta, ...]) -> tuple[Blob, ...] | None:
    """The blobs of what is `given`, if that is so many tensors of these metas, and none of a derived class; else None.

    For calls that are made often: in one go, and by the identity of the metas.
    """
    if len(given) != len(metas):
        return None
    kind = CLASS[0]
    blobs: list[Blob] = []
    for place, tensor in enumerate(given):
        if type(tensor) is not kind:
            return None
        fields: TensorFields = tensor
        blob = fields._blob
        if blob.meta is not metas[place]:
            return None
        blobs.append(blob)
    return tuple(blobs)


def still_have(held: list[tuple[TensorFields, Blob]]) -> bool:
    """Whether each tensor has the blob beside it, and ``tensor.data`` was given no other memory."""
    for tensor, blob in held:  # noqa: SIM110 (every call of a graph passes here)
        if tensor._blob is not blob:
            return False
    return True


def lease_of(tensor: TensorFields) -> Lease | None:
    """The lease that releases a tensor's memory when its last holder goes; a tensor that shares the memory needs it."""
    return tensor._lease


def autograd_of(tensor: TensorFields) -> AutogradMeta | None:
    """The place of a tensor in the graph of autograd; None without one."""
    return tensor._autograd
