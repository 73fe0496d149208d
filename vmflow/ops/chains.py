"""Kernels that compute all ops of a `Chain` (consecutive eager elementwise ops) in one pass over memory.

They are the kernels of the op `fused`, which graphs use too: numpy calls on tiles of the arrays, or one loop in C or
CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from vmflow.instructions.blob import Blob, Storage
from vmflow.instructions.chain import Chainable, Step as OpStep
from vmflow.kernels.choosing import Kernel, Problem, choose
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.problems.fused import Fused

from .fused import Step, can_fuse, infer_fused
from .table import Attributes, Metas, OpPlan, encoded

# `_kernels`, the cache of fused kernels, is cleared when it holds this many.
_KERNELS: Final = 256

_kernels: dict[Hashable, Kernel | None] = {}
GENERATION.watchers.append(_kernels.clear)


def step_of(plan: OpPlan, attributes: Attributes, metas: Metas) -> OpStep | None:
    """Return a call's `Step` in a `Chain`; None if the call cannot be fused, or its device is neither a CPU nor a GPU.

    Args:
        plan: the plan of the op.
        attributes, metas: the attributes and the metas of the inputs of the call.
    """
    if plan.outputs[0].device.type not in ("cpu", "cuda") or not can_fuse(plan.name, metas):
        return None
    return OpStep(attributes, chain_kernel)


def chain_kernel(calls: Sequence[Chainable], wanted: Sequence[int]) -> Callable[[], None] | None:
    """See `vmflow.instructions.chain.ChainKernel`."""
    operands, steps = _steps(calls)
    if any([blob.storage.failure is not None or blob.storage.array is None for blob in operands]):
        return None
    metas = tuple([blob.meta for blob in operands])
    kernel = _kernel(steps, tuple(wanted), metas, tuple([call.output.meta.dtype for call in calls]))
    if kernel is None:
        return None
    arrays = [blob.array() for blob in operands]
    outs = tuple([calls[number].output.storage.array for number in wanted])
    return lambda: kernel.function(*arrays, outs if len(outs) > 1 else outs[0])


def _steps(calls: Sequence[Chainable]) -> tuple[list[Blob], tuple[Step, ...]]:
    """Convert a chain's calls to a fused op: return its inputs, which no call of the chain computes, and its steps."""
    made: dict[Storage, int] = {call.output.storage: at for at, call in enumerate(calls)}
    sources: dict[Hashable, tuple[int, Blob]] = {}
    for call in calls:
        for blob in call.inputs:
            if blob.storage not in made:
                sources.setdefault(_identity(blob), (len(sources), blob))
    steps: list[Step] = []
    for call in calls:
        assert call.step is not None
        operands = [
            len(sources) + made[operand.storage] if operand.storage in made else sources[_identity(operand)][0]
            for operand in call.inputs
        ]
        scalars = tuple([encoded(scalar) for scalar in call.scalars])
        steps.append((call.name, call.step.attributes, scalars, tuple(operands)))
    return [blob for _, blob in sources.values()], tuple(steps)


def _identity(blob: Blob) -> Hashable:
    """Return a key of a blob; two blobs with equal keys are the same view of the same memory."""
    return blob.storage, blob.meta, blob.strides, blob.offset


def _kernel(steps: tuple[Step, ...], wanted: tuple[int, ...], metas: Metas, dtypes: tuple[Any, ...]) -> Kernel | None:
    """Return the fused kernel of the steps; None unless their results have the `dtypes` of the eager calls' results.

    The dtypes may differ because each eager call was inferred under the default dtype of its own task."""
    key = (steps, wanted, metas, dtypes)
    # One look-up, not `in` and then `[]`: another thread may clear the dict in between.
    try:
        return _kernels[key]
    except KeyError:
        pass
    if len(_kernels) >= _KERNELS:
        _kernels.clear()
    inferred = infer_fused(steps, wanted, metas)
    details: Fused = inferred.details._replace(occasional=True)
    fits = tuple([step.output.dtype for step in details.steps]) == dtypes
    problem = Problem("fused", "fused", (), metas, (), inferred.outputs, details)
    kernel = _kernels[key] = choose(problem, inferred.outputs[0].device) if fits else None
    return kernel
