"""Dense layers: ``input @ weight.T + bias``, and the gradients by input, weight and bias."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, cast

import numpy as np

from vmflow import dtypes
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Call, Kernel, Problem, builds
from vmflow.kernels.native.rows import AddToRows

from . import sums
from .half import in_single
from .products import MatrixProduct, call_of, call_with, is_for_c, product_kernel

# To a product of fewer elements, numpy adds the bias: a C call is not worth preparing.
_FEW: Final = 4096


@builds("linear")
def _linear(problem: Problem) -> Kernel:
    source, weight = problem.inputs[:2]
    (output,) = problem.outputs
    outputs, features = weight.shape
    rows = prod(source.shape[:-1])
    plain = len(source.shape) == 2
    half = dtypes.is_half(source.dtype)
    compute = dtypes.float32 if half else source.dtype
    multiply = product_kernel(compute, rows, features, outputs)
    # If C computes the product, it adds the bias, too.
    apart = len(problem.inputs) > 2 and not isinstance(multiply, MatrixProduct)
    add = AddToRows.of("add_to_rows", compute.numpy, rows * outputs) if apart and rows * outputs >= _FEW else None

    def kernel(array: Array, matrix: Array, *rest: Any) -> Array:
        target = out = rest[-1]
        if not plain:  # 2-d arrays need no reshape
            array = array.reshape(rows, features)
            target = out.reshape(rows, outputs) if out is not None and out.flags.c_contiguous else None
        if isinstance(multiply, MatrixProduct):
            result = multiply(array, matrix.T, target, *rest[:-1])
        else:
            result = multiply(array, matrix.T, target)
            if len(rest) > 1 and (add is None or not add.call(rest[0], result)):
                np.add(result, rest[0], result)
        if plain:
            return result
        return result.reshape(output.shape) if target is None else out

    def placed(inputs: Sequence[Array], outs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        array, matrix, *rest = inputs
        if not (array.flags.c_contiguous and outs[0].flags.c_contiguous):
            return None
        array, target = array.reshape(rows, features), outs[0].reshape(rows, outputs)
        whole = call_with(multiply, array, matrix.T, target, *rest)
        if whole is not None:
            return [whole]
        found: list[Call] = [call_of(multiply, array, matrix.T, target)]
        if rest:
            addition = None if add is None else add.placed(rest[0], target)
            found.append(addition or (np.add, (target, rest[0], target), target))
        return found

    return Kernel(in_single(kernel, half), placed=None if half else placed)


@builds("linear_gradient")
def _linear_gradient(problem: Problem) -> Kernel:
    """Build the kernel of a dense layer's gradients.  Attributes: whether those by input, weight, bias are wanted."""
    by_input, by_weight, by_bias = cast("tuple[bool, bool, bool]", problem.attributes)
    _, source, weight = problem.inputs
    outputs, features = weight.shape
    rows = prod(source.shape[:-1])
    half = dtypes.is_half(source.dtype)
    compute = dtypes.float32 if half else source.dtype
    to_input = product_kernel(compute, rows, outputs, features)
    to_weight = product_kernel(compute, outputs, rows, features)
    # C computes the gradients by weight and bias together, since both read the output's gradient.
    together = to_weight if by_bias and by_weight and isinstance(to_weight, MatrixProduct) else None
    columns = sums.columns_in_c(compute.numpy, rows * outputs) if by_bias and together is None else None
    # Whether the output's gradient is made contiguous, so that its layout does not change the gradients by weight and
    # bias.
    in_lines = by_bias and by_weight and is_for_c(compute, outputs, rows, features)
    to = source.dtype.numpy

    def kernel(gradient: Array, array: Array, matrix: Array, out: Any) -> tuple[Array, ...]:
        if half:
            gradient, array, matrix = gradient.astype("float32"), array.astype("float32"), matrix.astype("float32")
        gradient = gradient.reshape(rows, outputs)
        # Results are computed in `out` where possible, which saves copies of large gradients.
        wanted = iter(() if out is None or half else out)
        found: list[Array] = []
        if by_input:
            given = next(wanted, None)
            target = None if given is None or not given.flags.c_contiguous else given.reshape(rows, features)
            result = to_input(gradient, matrix, target)
            found.append(result.reshape(source.shape) if target is None else given)
        array = array.reshape(rows, features)
        if in_lines:
            gradient = np.ascontiguousarray(gradient)
        if together:
            found += together.with_sums(gradient.T, array, next(wanted, None), next(wanted, None))
        elif by_weight:
            found.append(to_weight(gradient.T, array, next(wanted, None)))
        if by_bias and not together:
            found.append(sums.of_columns(gradient, next(wanted, None), columns))
        return tuple([array.astype(to, copy=False) for array in found])

    def placed(inputs: Sequence[Array], outs: Sequence[Array], scratch: Array | None) -> list[Call] | None:
        if not all([array.flags.c_contiguous for array in (*inputs[:2], *outs)]):
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
            found.append(sums.of_columns_call(gradient, next(wanted), columns))
        return found

    return Kernel(kernel, placed=None if half else placed)
