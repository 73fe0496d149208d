"""`Formula`: a function of elementwise ops that runs eagerly as one op, and its gradient as another.

The ops that the function calls are recorded, without values, when a dtype, shape, device or number is new.  They become
the steps of one op with a kernel of the op `fused`, which keeps no intermediate result for the backward pass.  Autograd
of the recorded ops gives the gradient, which becomes such an op too, except where it has to be differentiable.  The
results are equal to the bit to those of the separate ops (in float32 for half precision).

A graph that is being built records the separate ops.
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


# A formula's op caches at most this many plans: few, since the numbers are attributes, and each new one makes a plan.
_REMEMBERED: Final = 512


class Formula:
    """A function of tensors and numbers that runs as one op if all tensors have one shape, device and floating dtype.

    It runs as separate ops if they have not, with numbers that are neither ints nor floats, on the meta device, under
    autocast, and while a graph is being built.
    Half precision is computed in float32, and rounded once, since separate ops would each round.

    Args:
        name: of the op; the op of its gradient is named `name` + "_gradient".
        function: takes tensors and then numbers, and returns a tensor of their shape; calls elementwise ops only.
        operands: the number of tensors that `function` takes.

    Attributes:
        by_steps: the function, run as separate ops.

    Raises:
        TypeError: when called as one op, if `function` calls ops that are not elementwise.
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
        """Call the function with its tensors and then its numbers, as one op if possible, else as separate ops."""
        tensors, numbers = arguments[: self._operands], arguments[self._operands :]
        mode = MODE.get()
        composed = mode.interpreter is not None or mode.autocast is not None
        if composed or not _share_meta(tensors) or not all([isinstance(number, (int, float)) for number in numbers]):
            return self.by_steps(*arguments)
        return _interpreter.dispatch(self._op, tensors, tuple([encoded(number) for number in numbers]))

    def _infer(self, attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        from .recording import Recording  # imported on first use, since it is slow to import

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
            # Differentiate with respect to views: hooks of the tensors themselves must not run for these gradients.
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
        """Compute the gradients of the tensors marked in `needs` by separate ops, which are differentiable."""
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
    """Turn the decorated function of elementwise ops into a `Formula`."""
    return lambda function: Formula(name, function, operands)


def _share_meta(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]._blob.meta
    if first.dtype.category != FLOATING or first.device.type not in ("cpu", "sim", "cuda"):
        return False
    return all([tensor._blob.meta is first for tensor in tensors[1:]])


def _numbers(attributes: Attributes) -> tuple[Any, ...]:
    return tuple([decoded(code) for code in cast("tuple[tuple[str, ...], ...]", attributes)])
