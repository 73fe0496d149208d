"""Losses whose targets are class indices: the negative log-likelihood, and the cross-entropy of scores.

A row is the scores of one target.  One kernel computes each row's loss and weight, and another adds them up (only the
weights if the reduction is "none"): in parts if there are many rows, and always in the same order, so that results are
reproducible.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.class_loss import Cases
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import copy_array
from .reduction import sum_of
from .rows import (
    BLOCK,
    LARGEST_AND_TOTAL,
    as_rows,
    into_order,
    part_of_row,
    reduce_rows,
    threads_for,
)
from .sources import COMPUTED, STORED, THREADS, CudaKernel
from .walks import contiguous

# Returns the class of a row; -1 if the class is `ignored`, or out of range, which is reported as an error.
_CLASS_OF: Final = """
template <typename T>
__device__ __forceinline__ int64 class_of(unsigned long long* report, const T* target, int64 row, int64 classes,
                                          int64 ignored) {
    const int64 found = target[row];
    if (found == ignored) return -1;
    if (found >= 0 && found < classes) return found;
    if (atomicCAS(report, 0ULL, (unsigned long long)row + 1) == 0) report[1] = found;
    return -1;
}
"""


@builds("nll_loss", package=PACKAGE)
def _nll_loss(problem: Problem) -> Kernel:
    cases: Cases = problem.details

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, target, *weight = [contiguous(launcher, operand) for operand in operands]
        losses, weights = _losses_and_weights(launcher, cases, outs[0])
        inner = _inner(cases)
        kernel = _picked(*_names(array, target, losses), _name_of(weight), cases.compute.name)
        report = launcher.error_report(_explain(cases))
        numbers = cases.rows, cases.classes, inner, cases.ignored
        kernel.launch_over(launcher, cases.rows, (losses, weights, report, array, target, _or_null(weight), *numbers))
        _add_up(launcher, cases, losses, weights, outs)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("cross_entropy", package=PACKAGE)
def _cross_entropy(problem: Problem) -> Kernel:
    cases: Cases = problem.details

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        matrix = as_rows(launcher, operands[0], (cases.axis,))
        target, *weight = [contiguous(launcher, operand) for operand in operands[1:]]
        losses, weights = _losses_and_weights(launcher, cases, outs[0])
        kernel = _scored(*_names(matrix, target, losses), _name_of(weight), cases.compute.name, bool(cases.smoothing))
        report = launcher.error_report(_explain(cases))
        numbers = cases.classes, cases.ignored, cases.smoothing, cases.smoothing / max(cases.classes, 1)

        def compute(logs: DeviceArray) -> None:
            arrays = losses, weights, logs, report, matrix, target, _or_null(weight)
            kernel.launch(launcher, cases.rows, (*arrays, *numbers), threads_for(cases.classes))

        into_order(launcher, outs[2:], compute)
        _add_up(launcher, cases, losses, weights, outs[:2])

    return Kernel(into_outs(launch, problem), casts=True)


@builds("nll_loss_gradient", "cross_entropy_gradient", package=PACKAGE)
def _gradient(problem: Problem) -> Kernel:
    cases: Cases = problem.details
    of_scores = problem.op == "cross_entropy_gradient"

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        if not cases.classes:
            return
        given = [contiguous(launcher, operand) for operand in operands]
        gradient, target, total = given[:3]
        logs, weight = (given[3], given[4:]) if of_scores else (0, given[3:])
        sum_of_weights: DeviceArray | int = 0
        if of_scores and weight:
            sum_of_weights = launcher.scratch((), cases.compute.numpy)
            reduce_rows(launcher, sum_of(COMPUTED[cases.compute.name]), weight[0], (0,), sum_of_weights)
        kernel = _slopes(
            *_names(gradient, target, outs[0]), _name_of(weight), cases.compute.name, cases.reduction, of_scores
        )
        arrays = gradient, target, total, logs, _or_null(weight), sum_of_weights
        numbers = cases.classes, _inner(cases), cases.ignored, cases.smoothing, cases.smoothing / cases.classes

        def compute(out: DeviceArray) -> None:
            kernel.launch(launcher, cases.rows, (out, *arrays, *numbers), threads_for(cases.classes))

        into_order(launcher, outs, compute)

    return Kernel(into_outs(launch, problem), casts=True)


def _explain(cases: Cases) -> Any:
    def explain(position: int, value: int) -> Exception:
        return IndexError(f"{cases.name}: class index {value} is out of range for {cases.classes} classes")

    return explain


def _inner(cases: Cases) -> int:
    """Return the distance in contiguous memory, in elements, between the scores of neighbouring classes of one row."""
    return int(np.prod(cases.shape[cases.axis + 1 :], dtype=np.int64))


def _names(*arrays: DeviceArray) -> list[str]:
    return [array.dtype.name for array in arrays]


def _name_of(weight: Sequence[DeviceArray]) -> str:
    """Return the dtype's name of the optional weights of classes; "" if there are none."""
    return weight[0].dtype.name if weight else ""


def _or_null(weight: Sequence[DeviceArray]) -> Argument:
    return weight[0] if weight else 0


def _losses_and_weights(launcher: Launcher, cases: Cases, loss: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Return memory for the rows' losses (`loss`, if contiguous and not to be reduced) and for the rows' weights."""
    compute = cases.compute.numpy
    direct = cases.reduction == "none" and loss.contiguous
    return loss if direct else launcher.scratch((cases.rows,), compute), launcher.scratch((cases.rows,), compute)


def _add_up(
    launcher: Launcher, cases: Cases, losses: DeviceArray, weights: DeviceArray, outs: Sequence[DeviceArray]
) -> None:
    """Write the rows' losses, reduced as `cases` says, to ``outs[0]``, and the sum of the weights to ``outs[1]``."""
    loss, total = outs
    if cases.reduction == "none":
        reduce_rows(launcher, sum_of(COMPUTED[cases.compute.name]), weights, (0,), total)
        if losses is not loss:
            copy_array(launcher, losses.strided(loss.shape, losses.dtype), loss)
        return
    compute, count = cases.compute.name, cases.rows
    each = part_of_row(1, count)
    if each < count:
        parts = -(-count // each)
        partial = [launcher.scratch((parts,), losses.dtype) for _ in range(2)]
        _sums(compute, compute, False).launch(launcher, parts, (*partial, losses, weights, count, each))
        (losses, weights), count, each = partial, parts, parts
    kernel = _sums(compute, loss.dtype.name, cases.reduction == "mean")
    kernel.launch(launcher, 1, (loss, total, losses, weights, count, each), threads_for(count))


@lru_cache(None)
def _picked(scores: str, target: str, loss: str, weight: str, compute: str) -> CudaKernel:
    """Build the kernel that computes each row's weighted negative log-likelihood and weight from log-probabilities."""
    name = f"nll_loss_{scores}_{target}_{loss}_{weight}"
    source = f"""{_CLASS_OF}
extern "C" __global__ void {name}({STORED[loss]}* losses, {STORED[compute]}* weights, unsigned long long* report,
                                  const {STORED[scores]}* in, const {STORED[target]}* target,
                                  const {STORED[weight or compute]}* weight, int64 rows, int64 classes, int64 inner,
                                  int64 ignored) {{
    typedef {STORED[compute]} value;
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 row = (int64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += threads) {{
        const int64 found = class_of(report, target, row, classes, ignored);
        value loss = 0, counts = 0;
        if (found >= 0) {{
            counts = {"converted<value>(weight[found])" if weight else "1"};
            loss = -converted<value>(in[(row / inner * classes + found) * inner + row % inner]) * counts;
        }}
        losses[row] = converted<{STORED[loss]}>(loss);
        weights[row] = counts;
    }}
}}
"""
    return CudaKernel(name, source, (0, 1, 2))


@lru_cache(None)
def _scored(scores: str, target: str, loss: str, weight: str, compute: str, smooth: bool) -> CudaKernel:
    """Build the kernel that computes each row's log-softmax, weighted cross-entropy and weight from scores."""
    name = f"cross_entropy_{scores}_{target}_{loss}_{weight}{'_smooth' if smooth else ''}"
    weighed = "converted<value>(weight[{}])".format if weight else "value(1)".format
    spread = f"spread += log * {weighed('i')};" if weight else "spread += log;"
    smoothing = "loss = loss * (value)(1 - smoothing) - spread * (value)share;"
    source = f"""{BLOCK}{_CLASS_OF}
extern "C" __global__ void {name}({STORED[loss]}* losses, {STORED[compute]}* weights,
                                  {STORED[compute]}* logs, unsigned long long* report,
                                  const {STORED[scores]}* in, const {STORED[target]}* target,
                                  const {STORED[weight or compute]}* weight, int64 columns, int64 ignored,
                                  double smoothing, double share) {{
    typedef {STORED[compute]} value;
    __shared__ value shared[{THREADS}];
    const {STORED[scores]}* row = in + blockIdx.x * columns;
    value spread = 0;
    if (columns) {{
        {LARGEST_AND_TOTAL}
        const value missing = log(total);
        for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
            const value log = converted<value>(row[i]) - largest - missing;
            logs[blockIdx.x * columns + i] = log;
            {spread if smooth else ""}
        }}
        {"spread = of_block(spread, shared, [](value p, value q) { return p + q; });" if smooth else ""}
        __syncthreads();
    }}
    if (threadIdx.x == 0) {{
        const int64 found = class_of(report, target, blockIdx.x, columns, ignored);
        value loss = 0, counts = 0;
        if (found >= 0) {{
            counts = {weighed("found")};
            loss = -logs[blockIdx.x * columns + found] * counts;
            {smoothing if smooth else ""}
        }}
        losses[blockIdx.x] = converted<{STORED[loss]}>(loss);
        weights[blockIdx.x] = counts;
    }}
}}
"""
    return CudaKernel(name, source, (0, 1, 2, 3))


@lru_cache(None)
def _sums(compute: str, loss: str, averages: bool) -> CudaKernel:
    """Build the kernel whose blocks sum up parts of the losses, and of the weights; with `averages`, the first sum is
    divided by the second.
    """
    name = f"class_loss_{compute}_{loss}{'_mean' if averages else ''}"
    source = f"""{BLOCK}
extern "C" __global__ void {name}({STORED[loss]}* out, {STORED[compute]}* total, const {STORED[compute]}* losses,
                                  const {STORED[compute]}* weights, int64 count, int64 each) {{
    typedef {STORED[compute]} value;
    __shared__ value shared[{THREADS}];
    const int64 begin = blockIdx.x * each, end = begin + each < count ? begin + each : count;
    auto add = [](value p, value q) {{ return p + q; }};
    value lost = 0, counted = 0;
    for (int64 i = begin + threadIdx.x; i < end; i += blockDim.x) {{
        lost += losses[i];
        counted += weights[i];
    }}
    lost = of_block(lost, shared, add);
    counted = of_block(counted, shared, add);
    if (threadIdx.x == 0) {{
        out[blockIdx.x] = converted<{STORED[loss]}>({"lost / counted" if averages else "lost"});
        total[blockIdx.x] = counted;
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))


@lru_cache(None)
def _slopes(
    gradient: str, target: str, out: str, weight: str, compute: str, reduction: str, of_scores: bool
) -> CudaKernel:
    """Build the kernel of the gradient by scores (`of_scores`) or by log-probabilities: one block for each row."""
    base = "cross_entropy" if of_scores else "nll_loss"
    name = f"{base}_gradient_{reduction}_{gradient}_{target}_{out}_{weight}"
    factor = f"converted<value>(gradient[{'row' if reduction == 'none' else '0'}])"
    if reduction == "mean":
        factor += " / *total"
    weighed = " * converted<value>(weight[place])" if weight else ""
    if of_scores:
        before = f"""
    const value hard = factor{weighed} * (value)(1 - smoothing), soft = factor * (value)share;
    const value whole = hard + soft * {"*sum_of_weights" if weight else "(value)classes"};"""
        even = f"soft{' * converted<value>(weight[i])' if weight else ''}"
        lines = f"""
        value slope = exp(logs[row * classes + i]) * whole;
        if (smoothing) slope -= {even};
        if (i == place) slope -= hard;"""
    else:
        before = f"const value hard = factor{weighed};"
        lines = "const value slope = i == place && found != ignored ? -hard : 0;"
    source = f"""
extern "C" __global__ void {name}({STORED[out]}* out, const {STORED[gradient]}* gradient,
                                  const {STORED[target]}* target, const {STORED[compute]}* total,
                                  const {STORED[compute]}* logs, const {STORED[weight or compute]}* weight,
                                  const {STORED[compute]}* sum_of_weights, int64 classes, int64 inner, int64 ignored,
                                  double smoothing, double share) {{
    typedef {STORED[compute]} value;
    const int64 row = blockIdx.x, found = target[row];
    // A class that does not exist was reported by the loss; the nearest class stands in for it.
    const int64 place = found < 0 ? 0 : found < classes ? found : classes - 1;
    const value factor = found == ignored ? 0 : {factor};
    {before}
    out += row / inner * classes * inner + row % inner;
    for (int64 i = threadIdx.x; i < classes; i += blockDim.x) {{
        {lines}
        out[i * inner] = converted<{STORED[out]}>(slope);
    }}
}}
"""
    return CudaKernel(name, source)
