"""CTC loss: minus the logarithm of a sequence's likelihood, which is a sum over all its alignments in time.

See `vmflow.kernels.numpy.ctc_loss`.  Each case (sample) has a block of threads, which goes through the times; at each
time, its threads go through the states.  The *lattice* has the log-likelihoods of all states: at two times for the
loss, at all times for the gradient, for which a block for each case and time adds up the states of each class.

The loss reports a wrong length or class when its work has ended.  Kernels compute with the nearest valid value instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .rows import BLOCK, threads_for
from .sources import STORED, THREADS, CudaKernel
from .walks import contiguous, in_order, separate

_DOUBLE: Final = np.dtype(np.float64)
_INT64: Final = np.dtype(np.int64)


class _Cases(NamedTuple):
    """The operands of a CTC loss, contiguous, and numbers that the kernels need.

    Attributes:
        log_probs: the log-probabilities, (times, batch, classes).
        targets: the classes of all cases' targets, int64: padded, or one target behind the other.
        spans: (3, batch): the beginning and length of each case's target, and the number of times that the case uses.
        blank: the class that stands for no output.
        report: memory in which kernels report an error; 0 if they do not report errors.
    """

    log_probs: DeviceArray
    targets: DeviceArray
    spans: DeviceArray
    blank: int
    report: DeviceArray | int

    @property
    def batch(self) -> int:
        """The number of cases."""
        return self.log_probs.shape[1]

    @property
    def states(self) -> int:
        """The number of all cases' states, also in padding: twice the size of the targets, and one for each case."""
        return 2 * self.targets.size + self.batch

    @property
    def threads(self) -> int:
        """The number of threads in a block that goes through the states of a case."""
        return threads_for(2 * self.targets.shape[-1] + 1)

    def numbers(self) -> tuple[int, int, int, int]:
        """Return arguments of most kernels: the counts of cases, classes and states of all cases, and the blank."""
        return self.batch, self.log_probs.shape[2], self.states, self.blank


@builds("ctc_loss", package=PACKAGE)
def _ctc_loss(problem: Problem) -> Kernel:
    blank, zero_infinity = problem.attributes

    def explain(position: int, value: int) -> Exception:
        return _error(problem, position + 1, value)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        cases = _cases(launcher, operands, outs, blank, launcher.error_report(explain))
        lattice = launcher.scratch((2, cases.states), _DOUBLE)
        with in_order(launcher, outs[0]) as out:
            _run_forwards(launcher, cases, lattice, out, zero_infinity)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("ctc_loss_gradient", package=PACKAGE)
def _ctc_loss_gradient(problem: Problem) -> Kernel:
    blank, zero_infinity = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        *operands_of_loss, gradient = operands
        gradient = contiguous(launcher, separate(launcher, gradient, *outs), _DOUBLE)
        cases = _cases(launcher, tuple(operands_of_loss), outs, blank, 0)
        times, batch, classes = cases.log_probs.shape
        lattice = launcher.scratch((times, cases.states), _DOUBLE)
        losses = launcher.scratch((batch,), _DOUBLE)
        _run_forwards(launcher, cases, lattice, losses, False)
        after = launcher.scratch((2, cases.states), _DOUBLE)
        given = cases.log_probs, cases.targets, cases.spans
        name = cases.log_probs.dtype.name
        _backwards(name).launch(launcher, batch, (lattice, after, losses, *given, *cases.numbers()), cases.threads)
        with in_order(launcher, outs[0]) as out:
            kernel = _gathered(name, out.dtype.name)
            arguments = out, lattice, losses, gradient, *given, *cases.numbers(), int(zero_infinity)
            kernel.launch(launcher, times * batch, arguments, threads_for(max(classes, cases.targets.shape[-1])))

    return Kernel(into_outs(launch, problem), casts=True)


def _cases(
    launcher: Launcher,
    operands: tuple[Any, ...],
    outs: tuple[DeviceArray, ...],
    blank: int,
    report: DeviceArray | int,
) -> _Cases:
    apart = [separate(launcher, operand, *outs) for operand in operands]
    log_probs = contiguous(launcher, apart[0])
    targets, times, lengths = [contiguous(launcher, array, _INT64) for array in apart[1:]]
    steps, batch, _ = log_probs.shape
    spans = launcher.scratch((3, batch), _INT64)
    width = targets.shape[1] if targets.ndim == 2 else -1
    arguments = spans, report, times, lengths, batch, steps, targets.size, width
    _spans().launch(launcher, 1, arguments, threads_for(batch))
    return _Cases(log_probs, targets, spans, blank, report)


def _run_forwards(
    launcher: Launcher, cases: _Cases, lattice: DeviceArray, losses: DeviceArray, zero_infinity: bool
) -> None:
    kernel = _forwards(cases.log_probs.dtype.name, losses.dtype.name)
    given = cases.log_probs, cases.targets, cases.spans
    numbers = *cases.numbers(), lattice.shape[0], int(zero_infinity)
    kernel.launch(launcher, cases.batch, (lattice, losses, cases.report, *given, *numbers), cases.threads)


# The kinds of errors; of several errors, the one whose kind has the lowest number is reported.
_TIMES, _NEGATIVE, _SUM, _BEYOND, _CLASS = range(1, 6)


def _error(problem: Problem, kind: int, value: int) -> Exception:
    log_probs, targets, *_ = problem.inputs
    steps, _, classes = log_probs.shape
    if kind == _CLASS:
        return IndexError(f"ctc_loss: class index {value} is out of range for {classes} classes")
    messages = {
        _TIMES: f"input lengths must be within 0 and {steps}",
        _NEGATIVE: "target lengths cannot be negative",
        _SUM: f"the target lengths must add up to the {targets.shape[0]} targets given one after the other",
        _BEYOND: f"some target lengths are beyond targets of shape {list(targets.shape)}",
    }
    return ValueError(f"ctc_loss: {messages[kind]}")


@lru_cache(None)
def _spans() -> CudaKernel:
    """Build the kernel that reports wrong lengths and computes `_Cases.spans`, by one block: each thread has
    neighbouring cases, whose targets, if not padded, follow those of the threads before it.
    """
    source = f"""{BLOCK}
extern "C" __global__ void ctc_spans(int64* spans, unsigned long long* report, const int64* times,
                                     const int64* lengths, int64 batch, int64 steps, int64 targets, int64 width) {{
    __shared__ int64 shared[{THREADS}];
    auto within = [](int64 number, int64 most) {{ return number < 0 ? 0 : number < most ? number : most; }};
    const int64 each = (batch + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each;
    const int64 end = begin + each < batch ? begin + each : batch;
    int64 exact = 0, room = 0, kind = {_CLASS + 1};
    for (int64 i = begin; i < end; ++i) {{
        exact += lengths[i];
        room += within(lengths[i], targets);
        int64 found = kind;
        if (times[i] < 0 || times[i] > steps) found = {_TIMES};
        else if (lengths[i] < 0) found = {_NEGATIVE};
        else if (width >= 0 && lengths[i] > width) found = {_BEYOND};
        kind = found < kind ? found : kind;
    }}
    const int64 all = of_block(exact, shared, [](int64 p, int64 q) {{ return p + q; }});
    if (width < 0 && all != targets && kind > {_SUM}) kind = {_SUM};
    kind = of_block(kind, shared, [](int64 p, int64 q) {{ return p < q ? p : q; }});
    if (threadIdx.x == 0 && report && kind <= {_CLASS}) report[0] = kind;
    shared[threadIdx.x] = room;
    __syncthreads();
    int64 start = 0;
    for (int64 i = 0; i < threadIdx.x; ++i) start += shared[i];
    for (int64 i = begin; i < end; ++i) {{
        // A target ends within the targets, so that cases have no states in common, even after an error.
        const int64 first = width < 0 ? within(start, targets) : i * width;
        spans[i] = first;
        spans[batch + i] = within(lengths[i], width < 0 ? targets - first : width);
        spans[2 * batch + i] = within(times[i], steps);
        start += within(lengths[i], targets);
    }}
}}
"""
    return CudaKernel("ctc_spans", source, (0, 1))


# A case's target, lengths and states, as a C++ struct that all kernels below use.
_CASE: Final = """
struct Case {
    const int64* target;
    int64 start, length, times, states, classes, blank;
    __device__ __forceinline__ Case(const int64* targets, const int64* spans, int64 number, int64 batch,
                                    int64 classes_, int64 blank_) {
        const int64 begin = spans[number];
        target = targets + begin;
        length = spans[batch + number];
        times = spans[2 * batch + number];
        // The position of the case's first state among the states of all cases.
        start = 2 * begin + number;
        states = 2 * length + 1;
        classes = classes_;
        blank = blank_;
    }
    __device__ __forceinline__ int64 named(int64 place) const {
        const int64 found = target[place];
        return found < 0 ? 0 : found < classes ? found : classes - 1;
    }
    __device__ __forceinline__ int64 emitted(int64 state) const { return state % 2 ? named(state / 2) : blank; }
    // Whether a state may follow directly on the state two places before it.
    __device__ __forceinline__ bool skips(int64 state) const {
        if (state % 2 == 0 || state < 3) return false;
        const int64 now = named(state / 2);
        return now != blank && now != named(state / 2 - 1);
    }
};
// The subtracted `top` is at least the lowest finite number: the difference of two infinities would be nan.
__device__ __forceinline__ double summed(double first, double second, double third) {
    double top = -1.7976931348623157e308;
    top = first > top ? first : top;
    top = second > top ? second : top;
    top = third > top ? third : top;
    return log(exp(first - top) + exp(second - top) + exp(third - top)) + top;
}
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
"""


@lru_cache(None)
def _forwards(given: str, wanted: str) -> CudaKernel:
    """Build the kernel of the forward pass: it reports wrong classes and computes the losses, and for each time and
    state the log-likelihood of all beginnings of alignments that end there; the lattice has the last `rows` times.
    """
    name = f"ctc_forwards_{given}_{wanted}"
    source = f"""{BLOCK}{_CASE}
extern "C" __global__ void {name}(double* lattice, {STORED[wanted]}* losses, unsigned long long* report,
                                  const {STORED[given]}* log_probs, const int64* targets, const int64* spans,
                                  int64 batch, int64 classes, int64 all, int64 blank, int64 rows,
                                  int64 zero_infinity) {{
    __shared__ int64 shared[{THREADS}];
    const Case one(targets, spans, blockIdx.x, batch, classes, blank);
    if (report) {{
        for (int64 i = threadIdx.x; i < one.length; i += blockDim.x) {{
            const int64 found = one.target[i];
            if ((found < 0 || found >= classes) && atomicCAS(report, 0ULL, {_CLASS}ULL) == 0) report[1] = found;
        }}
    }}
    for (int64 time = 0; time < one.times; ++time) {{
        const {STORED[given]}* emission = log_probs + (time * batch + blockIdx.x) * classes;
        double* now = lattice + time % rows * all + one.start;
        const double* before = lattice + (time + rows - 1) % rows * all + one.start;
        for (int64 state = threadIdx.x; state < one.states; state += blockDim.x) {{
            const double emitted = converted<double>(emission[one.emitted(state)]);
            if (time == 0) {{
                now[state] = state < 2 ? emitted : -INFINITE;
            }} else {{
                const double second = state > 0 ? before[state - 1] : -INFINITE;
                const double third = one.skips(state) ? before[state - 2] : -INFINITE;
                now[state] = summed(before[state], second, third) + emitted;
            }}
        }}
        __syncthreads();
    }}
    const double* last = lattice + (one.times + rows - 1) % rows * all + one.start;
    // Positive infinity or nan in a state where no alignment ends makes the loss nan, too.
    int64 wrong = 0;
    if (one.times) {{
        for (int64 state = threadIdx.x; state < one.states - 2; state += blockDim.x) wrong |= !(last[state] < INFINITE);
    }}
    wrong = of_block(wrong, shared, [](int64 p, int64 q) {{ return p | q; }});
    if (threadIdx.x == 0) {{
        double loss = one.length ? INFINITE : 0;
        if (one.times) {{
            const double first = last[one.states - 1], second = one.length ? last[one.states - 2] : -INFINITE;
            const double apart = first - second;
            double total = apart;
            if (first == second) total = first + 0.69314718055994530942;
            else if (apart > 0) total = first + log1p(exp(-apart));
            else if (apart <= 0) total = second + log1p(exp(apart));
            loss = wrong ? __longlong_as_double(0x7ff8000000000000LL) : -total;
        }}
        if (zero_infinity && (loss == INFINITE || loss == -INFINITE)) loss = 0;
        losses[blockIdx.x] = converted<{STORED[wanted]}>(loss);
    }}
}}
"""
    return CudaKernel(name, source, (0, 1, 2))


@lru_cache(None)
def _backwards(given: str) -> CudaKernel:
    """Build the kernel of the backward pass: it turns the lattice's log-likelihoods of beginnings into likelihoods that
    an alignment is in a state at a time.

    The log-likelihoods of all continuations, with the state's own class, are in `after`, in two rows: one for the
    current time, one for the next.
    """
    name = f"ctc_backwards_{given}"
    source = f"""{_CASE}
extern "C" __global__ void {name}(double* lattice, double* after, const double* losses,
                                  const {STORED[given]}* log_probs, const int64* targets, const int64* spans,
                                  int64 batch, int64 classes, int64 all, int64 blank) {{
    const Case one(targets, spans, blockIdx.x, batch, classes, blank);
    const double loss = losses[blockIdx.x];
    for (int64 time = one.times - 1; time >= 0; --time) {{
        const {STORED[given]}* emission = log_probs + (time * batch + blockIdx.x) * classes;
        double* now = after + time % 2 * all + one.start;
        const double* next = after + (time + 1) % 2 * all + one.start;
        double* likelihoods = lattice + time * all + one.start;
        for (int64 state = threadIdx.x; state < one.states; state += blockDim.x) {{
            double value;
            if (time == one.times - 1) {{
                value = state >= one.states - 2 ? 0 : -INFINITE;
            }} else {{
                const double second = state + 1 < one.states ? next[state + 1] : -INFINITE;
                const bool skips = state + 2 < one.states && one.skips(state + 2);
                value = summed(next[state], second, skips ? next[state + 2] : -INFINITE);
            }}
            likelihoods[state] = exp(likelihoods[state] + value + loss);
            now[state] = value + converted<double>(emission[one.emitted(state)]);
        }}
        __syncthreads();
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))


@lru_cache(None)
def _gathered(given: str, wanted: str) -> CudaKernel:
    """Build the kernel of the gradient by the log-probabilities: each block has one case and time."""
    name = f"ctc_gradient_{given}_{wanted}"
    source = f"""{BLOCK}{_CASE}
extern "C" __global__ void {name}({STORED[wanted]}* out, const double* lattice, const double* losses,
                                  const double* gradient, const {STORED[given]}* log_probs, const int64* targets,
                                  const int64* spans, int64 batch, int64 classes, int64 all, int64 blank,
                                  int64 zero_infinity) {{
    __shared__ double shared[{THREADS}];
    const int64 time = blockIdx.x / batch, number = blockIdx.x % batch;
    const Case one(targets, spans, number, batch, classes, blank);
    const double loss = losses[number], factor = gradient[number];
    const bool nothing = zero_infinity && (loss == INFINITE || loss == -INFINITE);
    const {STORED[given]}* emission = log_probs + blockIdx.x * classes;
    out += blockIdx.x * classes;
    const bool beyond = time >= one.times;
    for (int64 i = threadIdx.x; i < classes; i += blockDim.x) {{
        const double slope = (beyond ? 0 : exp(converted<double>(emission[i]))) * factor;
        out[i] = converted<{STORED[wanted]}>(nothing ? 0 : slope);
    }}
    if (beyond || nothing) return;
    const double* likelihoods = lattice + time * all + one.start;
    double blanks = 0;
    for (int64 state = threadIdx.x; state < one.states; state += blockDim.x) {{
        if (one.emitted(state) == blank) blanks += likelihoods[state];
    }}
    // In `of_block`, all threads wait until the writes above have ended.
    blanks = of_block(blanks, shared, [](double p, double q) {{ return p + q; }});
    if (threadIdx.x == 0) {{
        const double slope = exp(converted<double>(emission[blank])) - blanks;
        out[blank] = converted<{STORED[wanted]}>(slope * factor);
    }}
    for (int64 place = threadIdx.x; place < one.length; place += blockDim.x) {{
        const int64 found = one.named(place);
        bool first = found != blank;
        for (int64 i = 0; i < place && first; ++i) first = one.named(i) != found;
        if (!first) continue;
        double slope = exp(converted<double>(emission[found]));
        for (int64 i = place; i < one.length; ++i) {{
            if (one.named(i) == found) slope -= likelihoods[2 * i + 1];
        }}
        out[found] = converted<{STORED[wanted]}>(slope * factor);
    }}
}}
"""
    return CudaKernel(name, source)
