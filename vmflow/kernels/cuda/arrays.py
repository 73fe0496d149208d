"""Kernels that call functions of the device's array module: CuPy on a GPU, and numpy on an emulated device.

Such a kernel is a function ``f(xp, problem, *operands, *outs)``.  `xp` is the array module, the operands are arrays of
`xp` and Python numbers, and the results go into `outs`.  It may call only functions that CuPy has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

from vmflow.instructions.blob import TensorMeta
from vmflow.kernels.choosing import Function, Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher, current

from .pointwise import copy_array
from .rehearsal import rehearse_soon

PACKAGE: Final = "vmflow.kernels.cuda"

# f(xp, problem, *operands, *outs)
ArrayFunction: TypeAlias = "Callable[..., object]"


@final
class Computation:
    """An `ArrayFunction` bound to one problem: a callable ``f(xp, *operands, *outs)``, as `Driver.call` takes it."""

    __slots__ = ("_function", "_problem")

    def __init__(self, function: ArrayFunction, problem: Problem) -> None:
        self._function = function
        self._problem = problem

    def __call__(self, xp: Any, *arrays: Any) -> object:
        return self._function(xp, self._problem, *arrays)


def by_arrays(*names: str) -> Callable[[ArrayFunction], ArrayFunction]:
    """Register the decorated ``function(xp, problem, *operands, *outs)`` as the CUDA kernel of the ops `names`; see
    `choosing.builds`.
    """

    def declare(function: ArrayFunction) -> ArrayFunction:
        def build(problem: Problem) -> Kernel:
            computation = Computation(function, problem)

            def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
                launcher.call(problem.op, computation, operands, outs)

            return Kernel(into_outs(launch, problem), casts=True)

        build.__module__, build.__qualname__ = function.__module__, function.__qualname__
        builds(*names, package=PACKAGE)(build)
        return function

    return declare


# launch(launcher, operands, outs): launch the kernels that compute `outs`, which have the dtypes that inference has
# found.
Launch: TypeAlias = "Callable[[Launcher, tuple[Any, ...], tuple[DeviceArray, ...]], None]"


def into_outs(launch: Launch, problem: Problem) -> Function:
    """Make the function of a `Kernel`, see `choosing.Function`, from `launch`; a background thread may compile the
    CUDA kernels that `launch` needs, see `rehearse_soon`.

    If the `out` that the function is given has another dtype than the inferred result, the result is computed in
    scratch memory and cast into `out`; if it is None, the function returns the scratch memory.
    """
    metas = problem.outputs
    rehearse_soon(launch, problem)

    def function(*arguments: Any) -> Any:
        *operands, out = arguments
        launcher = current()
        wanted = out if isinstance(out, tuple) else (out,)
        outs = tuple([_fitting(launcher, meta, array) for meta, array in zip(metas, wanted, strict=True)])
        launch(launcher, tuple(operands), outs)
        for made, array in zip(outs, wanted, strict=True):
            if array is not None and array is not made:
                copy_array(launcher, made, array)
        return outs[0] if out is None else out

    return function


def _fitting(launcher: Launcher, meta: TensorMeta, wanted: DeviceArray | None) -> DeviceArray:
    """Return the array `wanted` if it has the dtype of `meta`, else scratch memory of that dtype."""
    dtype = meta.dtype.numpy
    if wanted is not None and wanted.dtype == dtype:
        return wanted
    return launcher.scratch(tuple(meta.shape), dtype)
