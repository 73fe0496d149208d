"""Matrix products, inverses, determinants, and systems of linear equations.

CuPy reads the status of most factorizations: so these make the host wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from vmflow.errors import LinAlgError
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, by_arrays, into_outs
from .products import multiply
from .walks import in_order, separate

# factor(xp, matrices, *attributes) -> the results
Factor: TypeAlias = Callable[..., tuple[Any, ...]]


@builds("matmul", package=PACKAGE)
def _matmul(problem: Problem) -> Kernel:
    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        left, right = [separate(launcher, operand, *outs) for operand in operands]
        with in_order(launcher, outs[0]) as out:
            shape = out.shape
            # A vector becomes a matrix of one row as the left operand, and of one column as the right.
            if left.ndim == 1:
                left = left.strided((1, *left.shape), left.dtype, 0, (0, *left.strides))
                shape = (*shape[: len(shape) - (right.ndim > 1)], 1, *shape[len(shape) - (right.ndim > 1) :])
            if right.ndim == 1:
                right = right.strided((*right.shape, 1), right.dtype, 0, (*right.strides, 0))
                shape = (*shape, 1)
            multiply(launcher, left, right, out.reshape(shape))

    return Kernel(into_outs(launch, problem), casts=True)


@contextmanager
def explained(xp: Any, name: str) -> Iterator[None]:
    """Turn the array module's error for matrices that it cannot factor into our `LinAlgError`, which names the op."""
    try:
        yield
    except xp.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg.{name}: {error}") from error


FACTORS: Final[dict[str, Factor]] = {
    "inv": lambda xp, array: (xp.linalg.inv(array),),
    "det": lambda xp, array: (xp.linalg.det(array),),
}


@by_arrays("inv", "det")
def factored(xp: Any, problem: Problem, array: Any, *outs: Any) -> None:
    """Compute an op of `FACTORS` by the array module `xp`, and copy the results to `outs`."""
    wide = array.astype(computes_in(problem.inputs[0].dtype), copy=False)
    with explained(xp, problem.op):
        results = FACTORS[problem.op](xp, wide, *problem.attributes)
    for out, result in zip(outs, results, strict=True):
        xp.copyto(out, result, casting="unsafe")


@by_arrays("solve")
def _solve(xp: Any, problem: Problem, array: Any, values: Any, out: Any) -> None:
    wide = computes_in(problem.outputs[0].dtype)
    with explained(xp, "solve"):
        result = solved(xp, array.astype(wide, copy=False), values.astype(wide, copy=False), out.shape)
    xp.copyto(out, result, casting="unsafe")


def solved(xp: Any, array: Any, values: Any, shape: tuple[int, ...]) -> Any:
    """Solve ``array @ x = values`` for x; both operands broadcast to the leading dimensions of `shape`."""
    if 0 in shape:
        return xp.empty(shape, values.dtype)
    batch = shape[:-2]
    matrices = xp.broadcast_to(array, (*batch, *array.shape[-2:]))
    return xp.linalg.solve(matrices, xp.broadcast_to(values, (*batch, *values.shape[-2:])))
