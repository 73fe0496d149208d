"""`spread` wraps an elementwise kernel so that several threads compute it if arrays are large."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels import intra_op
from vmflow.kernels.choosing import Function
from vmflow.kernels.native.processor import has_quick_wide_vectors
from vmflow.kernels.problems.elementwise import EXPENSIVE

if TYPE_CHECKING:
    from vmflow.kernels.native.call_site import CallSite

# in_c(operands, out or None) -> the result, or None if C cannot compute it.
InC: TypeAlias = Callable[[list[Any], "Array | None"], "Array | None"]

# The least work of an op, see `intra_op.LEAST`, for which `spread` tries C: that of an addition of 256 x 256.
IN_C_FROM: Final = 1 << 16


def work(output: TensorMeta, cost: float) -> float:
    """Return the work of an op that threads may share, counted like `intra_op.LEAST`; 0 on devices but the CPU.

    Args:
        cost: nanoseconds per element, as they are estimated for ops.
    """
    return output.numel * max(1.0, _work_of_costly() * cost / EXPENSIVE) if output.device.type == "cpu" else 0


@functools.cache
def _work_of_costly() -> float:
    """Return the work per element of an op of cost `EXPENSIVE`, in additions: less with vectors of 512 bits."""
    return 2.0 if has_quick_wide_vectors() else 4.0


def spread(
    kernel: Function, output: TensorMeta, cost: float, in_c: InC | None = None, site: CallSite | None = None
) -> Function:
    """Wrap an elementwise kernel to be computed by several threads where that is worth it.

    Args:
        kernel: the kernel, to be called for each piece.
        output, cost: see `work`.
        in_c: the kernel in C, which shares the work among threads by itself.
        site: the call site of `in_c` if its arrays are exactly the kernel's arguments, else None.
    """
    whole = work(output, cost)
    if whole < (2 * intra_op.LEAST if in_c is None else IN_C_FROM):
        return kernel
    to, each = output.dtype.numpy, whole / output.numel

    # Repeats an earlier call of C if the arrays are like that call's.
    again = None if site is None else site.again

    def in_pieces(*arguments: Any) -> Array:
        if again is not None and again(arguments):
            return arguments[-1]
        *operands, out = arguments
        if in_c is not None and (found := in_c(operands, out)) is not None:
            return found
        if out is None and all([array.flags.c_contiguous for array in operands if isinstance(array, np.ndarray)]):
            out = np.empty(output.shape, to)
        if out is None or out.dtype != to or not intra_op.over_elements(kernel, operands, out, out.size * each):
            return kernel(*arguments)
        return out

    return in_pieces
