"""Matrix products, inverses, determinants, and systems of linear equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, Final

import numpy as np

from vmflow import dtypes
from vmflow.errors import LinAlgError
from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Kernel, Problem, builds, kernel_of

from .half import computes_in
from .products import MatrixProduct, call_of, product_kernel


@builds("matmul")
def _matmul(problem: Problem) -> Kernel:
    first, second = problem.inputs
    (output,) = problem.outputs
    rows = first.shape[-2:-1]
    columns = second.shape[-1:] if len(second.shape) > 1 else ()
    batch = output.shape[: len(output.shape) - len(rows) - len(columns)]
    to = first.dtype.numpy
    # numpy has no BLAS for half precision.
    wide = dtypes.float32 if dtypes.is_half(first.dtype) else None
    multiply = product_kernel(wide or first.dtype, prod(rows), first.shape[-1], prod(columns), prod(batch))

    def kernel(left: Array, right: Array, out: Array | None) -> Array:
        if wide is not None:
            return multiply(left.astype(wide.numpy), right.astype(wide.numpy), None).astype(to)
        # Matrices of the result are C-contiguous for any strides of the operands; batches may be in another order.
        return multiply(left, right, out)

    if wide is not None or not isinstance(multiply, MatrixProduct):
        return Kernel(kernel)
    return Kernel(kernel, placed=lambda inputs, outs, scratch: [call_of(multiply, *inputs, *outs)])


# By LAPACK, which has no half precision


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn numpy's errors for matrices that it cannot factor into a `LinAlgError` that names the op."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg.{name}: {error}") from error


# By op, factor(matrices, *attributes) -> the tuple of results.
FACTORS: Final[dict[str, Callable[..., tuple[Array, ...]]]] = {
    "inv": lambda array: (np.linalg.inv(array),),
    "det": lambda array: (np.linalg.det(array),),
}


@kernel_of("inv", "det")
def factored(problem: Problem, array: Array, out: Any) -> Any:
    """Compute an op of `FACTORS`, and round the results to the outputs' dtypes."""
    dtype = problem.inputs[0].dtype
    with explained(problem.op):
        results = FACTORS[problem.op](array.astype(computes_in(dtype), copy=False), *problem.attributes)
    rounded = tuple(
        [
            np.asarray(array, order="C").astype(output.dtype.numpy, copy=False)
            for array, output in zip(results, problem.outputs, strict=True)
        ]
    )
    return rounded if len(rounded) > 1 else rounded[0]


@kernel_of("solve")
def _solve(problem: Problem, array: Array, values: Array, out: Array | None) -> Array:
    (output,) = problem.outputs
    to, wide = output.dtype.numpy, computes_in(output.dtype)
    with explained("solve"):
        solved = np.linalg.solve(array.astype(wide, copy=False), values.astype(wide, copy=False))
    return np.ascontiguousarray(solved.astype(to, copy=False))
