"""`Formula`: a function of elementwise ops that runs eagerly as one op, as does its gradient.

The function's ops are recorded once for each dtype and shape, without values, and become the steps of the op `fused`:
memory is read and written once, in C where that is available, and no intermediate result is kept for the gradient.
The gradient is obtained in the same way, by autograd on the recording.  The results are equal to the bit to those of
one op after the other.

A graph that is being built records the ops themselves, and fuses them with their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.autograd import grad
from vmflow.autograd.grad_mode import enable_grad
from vmflow.context import MODE
from vmflow.dtypes import FLOATING

from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, decoded, encoded

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


# The number of remembered kernels, each for one shape and one set of numbers, which may differ in each call.
_REMEMBERED: Final = 512


class Formula:
    """A function of tensors and numbers that runs as one op if the tensors have one shape and floating-point dtype.

    Half precision is computed in float32, since separate ops would each round.

    Args:
        name: of the op; its gradient's is `name` + "_gradient".
        function: from tensors and numbers to a tensor of their shape, by elementwise ops alone.
        operands: the number of tensors.

    Attributes:
        by_steps: the same function as separate ops.

    Raises:
        TypeError: when first called, if the function calls other ops.
    """

    __slots__ = ("_gradient", "_op", "_operands", "by_steps", "name")

    def __init__(self, name: str, function: Callable[..., Tensor], operands: int = 1) -> None:
        self.name = name
        self.by_steps = _in_single_precision(function, operands)
        self._operands = operands
        self._op = OpExpr(name, self._infer, Form(operands, rest=tuple[str, ...]), "fused", _REMEMBERED)
        self._gradient = OpExpr(
            f"{name}_gradient",
            self._infer_gradient,
            Form(operands + 1, tuple[tuple[bool, ...]], rest=tuple[str, ...]),
            "fused",
            _REMEMBERED,
        )
        self._op.gradient(inputs=tuple(range(operands)))(self._gradients)

    def __call__(self, *arguments: Any) -> Tensor:
        """Call the function with `operands` tensors and then the numbers."""
        tensors, numbers = arguments[: self._operands], arguments[self._operands :]
        mode = MODE.get()
        composed = mode.interpreter is not None or mode.autocast is not None
        if composed or not _share_meta(tensors) or not all([isinstance(number, (int, float)) for number in numbers]):
            return self.by_steps(*arguments)
        return _interpreter.dispatch(self._op, tensors, tuple([encoded(number) for number in numbers]))

    def _infer(self, attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        from .recording import Recording  # slow to import, and needed by few programs

        numbers = _numbers(attributes)
        return Recording(self.name).inferred(lambda *tensors: (self.by_steps(*tensors, *numbers),), metas)

    def _infer_gradient(self, attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        from .recording import Recording  # see `_infer`

        needs, *rest = cast("tuple[Any, ...]", attributes)
        numbers = _numbers(tuple(rest))

        def gradients(gradient: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            return self._composed(gradient, tensors, needs, numbers)

        return Recording(self._gradient.name).inferred(gradients, metas)

    def _gradients(self, node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors = tuple([node.input(index) for index in range(self._operands)])
        mode = MODE.get()
        if mode.grad or mode.interpreter is not None:
            # Views, since hooks of the tensors themselves must not run for these intermediate gradients.
            tensors = tuple([tensor.view(tensor.shape) for tensor in tensors])
            gradients = self._composed(gradient, tensors, node.needs, _numbers(node.attributes))
        else:
            gradients = _interpreter.dispatch_several(
                self._gradient, (gradient, *tensors), (tuple(node.needs), *node.attributes)
            )
        rest = iter(gradients)
        return tuple([next(rest) if needed else None for needed in node.needs])

    def _composed(
        self, gradient: Tensor, tensors: Sequence[Tensor], needs: Sequence[bool], numbers: Sequence[Any]
    ) -> tuple[Tensor, ...]:
        """The needed gradients, by separate ops, which can be differentiated in turn."""
        with enable_grad():
            result = self.by_steps(*tensors, *numbers)
            wanted = [tensor for tensor, needed in zip(tensors, needs, strict=True) if needed]
            return cast("tuple[Tensor, ...]", grad(result, wanted, gradient, create_graph=True))


def _in_single_precision(function: Callable[..., Tensor], operands: int) -> Callable[..., Tensor]:
    def computed(*arguments: Any) -> Tensor:
        tensors: tuple[Tensor, ...] = arguments[:operands]
        result = tensors[0].dtype
        for other in tensors[1:]:
            result = dtypes.promote_types(result, other.dtype)
        if not dtypes.is_half(result):
            return function(*arguments)
        wide = [tensor.to(dtypes.float32) for tensor in tensors]
        return function(*wide, *arguments[operands:]).to(result)

    return computed


def formula(name: str, operands: int = 1) -> Callable[[Callable[..., Tensor]], Formula]:
    """Declare the decorated function a `Formula`."""
    return lambda function: Formula(name, function, operands)


def _share_meta(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]._blob.meta
    if first.dtype.category != FLOATING or first.device.type not in ("cpu", "sim", "cuda"):
        return False
    return all([tensor._blob.meta is first for tensor in tensors[1:]])


def _numbers(attributes: Attributes) -> tuple[Any, ...]:
    return tuple([decoded(code) for code in cast("tuple[tuple[str, ...], ...]", attributes)])
