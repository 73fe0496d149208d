"""The affine map of a dense layer: one op forward and, where it is not recorded itself, one backward.

Dense layers are small and many, and what an instruction costs weighs more than a product: as a transpose, a product and
a sum, with three gradients of their own, a layer would be ten of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.native.arrays import Call
from vmflow.kernels.native.rows import add_to_rows
from vmflow.kernels.numpy import sums
from vmflow.kernels.numpy.half import in_single
from vmflow.kernels.numpy.products import ProductInC, call_of, call_with, product_kernel

from . import linear_algebra
from .arithmetic import conj_if_complex
from .layer_operands import check_shape, is_half
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device, computed_by

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Nanoseconds per multiplication and addition: a guess, for inline or worker only.
_PER_PRODUCT: Final = 0.1

# Elements of which numpy has added the bias before a call of C is made ready.
_FEW: Final = 4096


def _cost(rows: int, weight: TensorMeta) -> float:
    return rows * weight.numel * _PER_PRODUCT + 1000


def _infer_linear(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source, weight, *bias = metas
    device = common_device("linear", metas)
    if any(it.dtype is not source.dtype for it in metas) or source.dtype is dtypes.bool_:
        raise TypeError(
            f"linear: expected tensors of numbers of one dtype, got {', '.join(it.dtype.name for it in metas)}; "
            "cast with .to()"
        )
    if len(weight.shape) != 2 or source.shape[-1:] != weight.shape[1:]:
        raise ValueError(
            f"linear: an input of shape {list(source.shape)} does not fit a weight of shape {list(weight.shape)}; "
            "expected (..., features) and (outputs, features)"
        )
    outputs, features = weight.shape
    if bias and bias[0].shape != (outputs,):
        raise ValueError(
            f"linear: a bias of shape {list(bias[0].shape)} does not fit a weight of shape {list(weight.shape)}; "
            f"expected [{outputs}]"
        )
    output = meta((*source.shape[:-1], outputs), source.dtype, device)
    rows = prod(source.shape[:-1])
    plain = len(source.shape) == 2
    half = is_half(source)
    multiply = product_kernel(device, dtypes.float32 if half else source.dtype, rows, features, outputs)

    def kernel(array: Array, matrix: Array, *rest: Any) -> Array:
        target = out = rest[-1]
        if not plain:  # a reshape takes as long as a small sum
            array = array.reshape(rows, features)
            target = out.reshape(rows, outputs) if out is not None and out.flags.c_contiguous else None
        if isinstance(multiply, ProductInC):
            result = multiply(array, matrix.T, target, *rest[:-1])
        else:
            result = multiply(array, matrix.T, target)
            if len(rest) > 1:
                _add_bias(result, rest[0])
        if plain:
            return result
        return result.reshape(output.shape) if target is None else out

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        array, matrix, *rest = inputs
        if not (array.flags.c_contiguous and outs[0].flags.c_contiguous):
            return None
        array, target = array.reshape(rows, features), outs[0].reshape(rows, outputs)
        whole = call_with(multiply, array, matrix.T, target, *rest)
        if whole is not None:
            return [whole]
        found: list[Call] = [call_of(multiply, array, matrix.T, target)]
        if rest:
            addition = add_to_rows(target, rest[0])
            found.append((_add_bias, (target, rest[0]), None) if addition is None else addition.placed())
        return found

    cost = _cost(rows, weight)
    return computed_by(output, in_single(kernel, half), cost, placed=None if half else placed)


def _add_bias(result: Array, bias: Array) -> None:
    call = None if result.size < _FEW else add_to_rows(result, bias)
    if call is None:
        np.add(result, bias, result)
    else:
        call.once()


# Attributes: which of the gradients by input, weight and bias are wanted.
_Wanted = tuple[bool, bool, bool]


def _infer_linear_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    by_input, by_weight, by_bias = cast("_Wanted", attributes)
    gradient, source, weight = metas
    if any([it.dtype is not source.dtype for it in metas]) or source.dtype is dtypes.bool_:
        raise TypeError(f"linear_gradient: expected tensors of numbers of one dtype, got {list(metas)}")
    if len(weight.shape) != 2 or source.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"linear_gradient: an input {source} does not fit a weight {weight}")
    outputs, features = weight.shape
    check_shape("linear_gradient", "a gradient", gradient, (*source.shape[:-1], outputs))
    rows = prod(source.shape[:-1])
    half = is_half(source)
    compute = dtypes.float32 if half else source.dtype
    to_input = product_kernel(source.device, compute, rows, outputs, features)
    to_weight = product_kernel(source.device, compute, outputs, rows, features)
    # The sums of the gradient's columns for the bias, by the way: whoever multiplies reads it anyway.
    together = to_weight if by_bias and by_weight and isinstance(to_weight, ProductInC) else None
    to = source.dtype.numpy
    results: list[TensorMeta] = []
    results += [source] if by_input else []
    results += [weight] if by_weight else []
    results += [meta((outputs,), source.dtype, source.device)] if by_bias else []

    def kernel(gradient: Array, array: Array, matrix: Array, out: Any) -> tuple[Array, ...]:
        if half:
            gradient, array, matrix = gradient.astype("float32"), array.astype("float32"), matrix.astype("float32")
        gradient = gradient.reshape(rows, outputs)
        # Weights' gradients are often large: to compute them elsewhere and copy them takes half as long again.
        wanted = iter(() if out is None or half else out)
        found: list[Array] = []
        if by_input:
            given = next(wanted, None)
            target = None if given is None or not given.flags.c_contiguous else given.reshape(rows, features)
            result = to_input(gradient, matrix, target)
            found.append(result.reshape(source.shape) if target is None else given)
        array = array.reshape(rows, features)
        if together:
            lines = np.ascontiguousarray(gradient)
            found += together.with_sums(lines.T, array, next(wanted, None), next(wanted, None))
        elif by_weight:
            found.append(to_weight(gradient.T, array, next(wanted, None)))
        if by_bias and not together:
            found.append(sums.of_columns(gradient, next(wanted, None)))
        return tuple([it.astype(to, copy=False) for it in found])

    def placed(inputs: Sequence[Array], outs: Sequence[Array]) -> list[Call] | None:
        if not all([it.flags.c_contiguous for it in (*inputs[:2], *outs)]):
            return None
        gradient, array, wanted = inputs[0].reshape(rows, outputs), inputs[1].reshape(rows, features), iter(outs)
        found: list[Call] = []
        if by_input:
            target = next(wanted).reshape(rows, features)
            found.append(call_of(to_input, gradient, inputs[2], target))
        if together:
            whole = call_with(to_weight, gradient.T, array, next(wanted), None, next(wanted))
            if whole is None:
                return None
            found.append(whole)
        elif by_weight:
            found.append(call_of(to_weight, gradient.T, array, next(wanted)))
        if by_bias and not together:
            found.append(sums.of_columns_call(gradient, next(wanted)))
        return found

    cost = _cost(rows, weight) * (by_input + by_weight) + 1000
    return computed_by(tuple(results), kernel, cost, placed=None if half else placed)


_LINEAR = OpExpr("linear", _infer_linear, Form((2, 3)))
_LINEAR_GRADIENT = OpExpr("linear_gradient", _infer_linear_gradient, Form(3, _Wanted))


@_LINEAR.gradient(inputs=(0, 1))
def _linear_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    source, weight = node.input(0), node.input(1)
    needs = (*node.needs, False)[:3]
    if not is_grad_enabled() and not gradient.dtype.is_complex:
        found = iter(_interpreter.dispatch_several(_LINEAR_GRADIENT, (gradient, source, weight), needs))
        return tuple([next(found) if need else None for need in needs[: len(node.metas)]])
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
        bias: (outputs,), or () for a single output.

    Returns:
        (..., outputs), or (...) for a single output.

    Raises:
        TypeError: for dtypes that differ, and for bools.
        ValueError: for shapes that do not fit.
    """
    if weight.ndim == 1 and input.ndim:
        single = linear(input, weight.unsqueeze(0), None if bias is None else bias.reshape(1))
        return single.squeeze(-1)
    return _interpreter.dispatch(_LINEAR, (input, weight) if bias is None else (input, weight, bias))
