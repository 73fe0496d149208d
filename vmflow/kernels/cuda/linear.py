"""Dense layers: ``input @ weight.T + bias``, and the gradients by input, weight and bias."""

from __future__ import annotations

from math import prod
from typing import Any

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .products import multiply
from .rows import reduce_rows, sums_in
from .walks import contiguous, in_order, separate, transposed


@builds("linear", package=PACKAGE)
def _linear(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, weight, *biases = [separate(launcher, operand, *outs) for operand in operands]
        with in_order(launcher, outs[0]) as out:
            # All leading dimensions are merged to rows of one product: a batch of products would read the weight for
            # each product.
            rows = _rows(launcher, array)
            result = out.reshape(rows.shape[0], weight.shape[0])
            multiply(launcher, rows, transposed(weight, (1, 0)), result, biases[0] if biases else None)

    return Kernel(into_outs(launch, problem), casts=True)


def _rows(launcher: Launcher, array: DeviceArray) -> DeviceArray:
    """Return the array as a matrix, with all dimensions but the last merged."""
    if array.ndim == 2:
        return array
    return contiguous(launcher, array).reshape(prod(array.shape[:-1]), array.shape[-1])


@builds("linear_gradient", package=PACKAGE)
def _linear_gradient(problem: Problem) -> Kernel:
    """Build the kernel of a dense layer's gradients.  Attributes: which are wanted, by input, weight and bias."""
    by_input, by_weight, by_bias = problem.attributes
    sums = sums_in(computes_in(problem.outputs[-1].dtype))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, array, weight = [separate(launcher, operand, *outs) for operand in operands]
        slopes, rows = _rows(launcher, gradient), _rows(launcher, array)
        wanted = iter(outs)
        if by_input:
            with in_order(launcher, next(wanted)) as out:
                multiply(launcher, slopes, weight, out.reshape(rows.shape))
        if by_weight:
            multiply(launcher, transposed(slopes, (1, 0)), rows, next(wanted))
        if by_bias:
            with in_order(launcher, next(wanted)) as out:
                reduce_rows(launcher, sums, slopes, (0,), out)

    return Kernel(into_outs(launch, problem), casts=True)
