"""Running averages: of the statistics of batches, and of weights."""

from __future__ import annotations

from vmflow.instructions.blob import Array
from vmflow.kernels.problems.updates import Averages, RunningStatistics
from vmflow.kernels.updates import UpdateKernel, builds_update

from .pieces import updated


@builds_update("running_statistics")
def _running_statistics(settings: RunningStatistics) -> UpdateKernel:
    factors, counts, momentum = settings

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        if counts:
            outputs[-1] += 1
        share = 1.0 / float(outputs[-1]) if momentum is None else momentum
        for old, new, factor in zip(outputs, inputs, factors, strict=False):
            old[...] = old.astype(new.dtype, copy=False) * (1 - share) + new * (share * factor)

    return kernel


@builds_update("average")
def _average(settings: Averages) -> UpdateKernel:
    count, weight_of = settings

    def kernel(inputs: list[Array], outputs: list[Array]) -> None:
        number = outputs.pop()
        weight = weight_of(int(number)) if number else 1.0
        for mine, theirs in zip(outputs[:count], inputs[:count], strict=True):
            for old, new, work in updated([mine], [theirs], scratch=1):
                if weight == 1.0:
                    old[...] = new  # exactly
                else:
                    work[...] = (new - old) * weight
                    old += work
        for mine, theirs in zip(outputs[count:], inputs[count:], strict=True):
            mine[...] = theirs
        number += 1

    return kernel
