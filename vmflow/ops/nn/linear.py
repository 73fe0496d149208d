"""`linear`, the affine map of a dense layer: one op forward, and one backward unless complex or recorded."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.linalg import linear_algebra
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device

from .layer_operands import check_shape

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Nanoseconds per multiply-add, for estimates of cost.
_PER_PRODUCT: Final = 0.1


def _cost(rows: int, weight: TensorMeta) -> float:
    return rows * weight.numel * _PER_PRODUCT + 1000


def _infer_linear(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source, weight, *bias = metas
    device = common_device("linear", metas)
    if any(operand.dtype is not source.dtype for operand in metas) or source.dtype is dtypes.bool_:
        raise TypeError(
            f"linear: expected tensors of numbers of one dtype, got {', '.join(meta.dtype.name for meta in metas)}; "
            "cast with .to()"
        )
    if len(weight.shape) != 2 or source.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"linear: an input of shape {list(source.shape)} does not fit a weight of shape {list(weight.shape)}; "
            "expected (..., features) and (outputs, features)"
        )
    outputs = weight.shape[0]
    if bias and bias[0].shape != (outputs,):
        raise ValueError(
            f"linear: a bias of shape {list(bias[0].shape)} does not fit a weight of shape {list(weight.shape)}; "
            f"expected [{outputs}]"
        )
    output = meta((*source.shape[:-1], outputs), source.dtype, device)
    return Inferred(output, _cost(prod(source.shape[:-1]), weight))


# The attributes of the gradient op: whether the gradients by input, by weight and by bias are needed.
_Wanted = tuple[bool, bool, bool]


def _infer_linear_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    by_input, by_weight, by_bias = cast("_Wanted", attributes)
    gradient, source, weight = metas
    if any([operand.dtype is not source.dtype for operand in metas]) or source.dtype is dtypes.bool_:
        raise TypeError(f"linear_gradient: expected tensors of numbers of one dtype, got {list(metas)}")
    if len(weight.shape) != 2 or source.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"linear_gradient: an input {source} does not fit a weight {weight}")
    outputs = weight.shape[0]
    check_shape("linear_gradient", "a gradient", gradient, (*source.shape[:-1], outputs))
    results: list[TensorMeta] = []
    results += [source] if by_input else []
    results += [weight] if by_weight else []
    results += [meta((outputs,), source.dtype, source.device)] if by_bias else []
    cost = _cost(prod(source.shape[:-1]), weight) * (by_input + by_weight) + 1000
    return Inferred(tuple(results), cost)


_LINEAR = OpExpr("linear", _infer_linear, Form((2, 3)), "linear")
_LINEAR_GRADIENT = OpExpr("linear_gradient", _infer_linear_gradient, Form(3, _Wanted), "linear")


@_LINEAR.gradient(inputs=(0, 1))
def _linear_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    source, weight = node.input(0), node.input(1)
    needs = (*node.needs, False)[:3]
    if not is_grad_enabled() and not gradient.dtype.is_complex:
        computed = iter(_interpreter.dispatch_several(_LINEAR_GRADIENT, (gradient, source, weight), needs))
        return tuple([next(computed) if need else None for need in needs[: len(node.metas)]])
    rows = prod(source.shape[:-1])
    flat = gradient.reshape(rows, weight.shape[0])
    results = (
        linear_algebra.matmul(gradient, conj_if_complex(weight)) if needs[0] else None,
        linear_algebra.matmul(flat.mT, conj_if_complex(source).reshape(rows, weight.shape[1])) if needs[1] else None,
        flat.sum(0) if needs[2] else None,
    )
    return results[: len(node.metas)]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``.

    Args:
        input: (..., features).
        weight: (outputs, features), or (features,) for a single output without a dimension.
        bias: (outputs,), or () for a single output; or None.

    Returns:
        (..., outputs), or (...) for a single output.

    Raises:
        TypeError: for dtypes that differ, and for bools.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.nn.functional.linear(flow.tensor([1.0, 2.0]), flow.tensor([[3.0, 4.0]]), flow.tensor([0.5]))
        tensor([11.5000])
    """
    check_tensors("linear", weight)
    if weight.ndim == 1:
        check_tensors("linear", input, optional=(bias,))
        if input.ndim:
            single = linear(input, weight.unsqueeze(0), None if bias is None else bias.reshape(1))
            return single.squeeze(-1)
    return _interpreter.dispatch(_LINEAR, (input, weight) if bias is None else (input, weight, bias))
