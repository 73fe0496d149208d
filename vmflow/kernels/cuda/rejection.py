"""Random numbers by rejection sampling: counts of Poisson's distribution, and gamma numbers.

The methods are those of `vmflow.kernels.numpy.rejection`, where they are named.
"""

from __future__ import annotations

from typing import Any, Final

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.rejection import ATTEMPTS, STEPS, STEPWISE_BELOW
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .drawing import Drawing, Kind, contiguous, draw
from .sources import STORED

# Each element has a Philox block of its own.
_UNIFORM: Final = Kind("double", 1, "found[0] = uniform(w.of[0], w.of[1]);")

_FUNCTIONS: Final = f"""
// A number in (0, 1].
__device__ __forceinline__ double uniform(uint32_t low, uint32_t high) {{
    return uniform_double(low, high) + 0x1p-54;
}}

// The inverse of the distribution function, step by step.
__device__ double few_events(double rate, double drawn) {{
    double probability = exp(-rate), below = probability, found = 0;
    for (int count = 1; count < {STEPS} && drawn >= below; count++) {{
        found += 1;
        probability *= rate / count;
        below += probability;
    }}
    return found;
}}

__device__ double many_events(double rate, uint64_t seed, uint64_t position) {{
    const double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), squeeze = 0.9277 - 3.6224 / (b - 2);
    const double logarithm_of_rate = log(rate);
    for (int number = 0; number < {ATTEMPTS}; number++) {{
        const words w = philox(seed, position, number + 1);
        const double u = uniform(w.of[0], w.of[1]) - 0.5, v = uniform(w.of[2], w.of[3]), size = 0.5 - fabs(u);
        const double count = floor((2 * a / size + b) * u + rate + 0.43);
        if (size >= 0.07 && v <= squeeze) return count;
        if (!(count >= 0 && (size >= 0.013 || v <= size))) continue;
        const double weight = log(v * inverse_alpha / (a / (size * size) + b));
        if (weight <= count * logarithm_of_rate - rate - lgamma(count + 1)) return count;
    }}
    return floor(rate);
}}

__device__ double poisson(double rate, double drawn, uint64_t seed, uint64_t position) {{
    if (rate < {STEPWISE_BELOW}) return few_events(rate, drawn);
    return many_events(rate, seed, position);
}}

// For a concentration below 1: a number for the concentration + 1, times a power of a uniform number.
__device__ double gamma_number(double concentration, double drawn, uint64_t seed, uint64_t position) {{
    const bool small = concentration < 1;
    const double d = concentration + small - 1.0 / 3, c = 1 / sqrt(9 * d);
    double found = d;
    for (int number = 0; number < {ATTEMPTS}; number++) {{
        double x, other;
        wide_normal_pair(philox(seed, position, 2 * number + 1), &x, &other);
        const words w = philox(seed, position, 2 * number + 2);
        const double u = uniform(w.of[0], w.of[1]), root = 1 + c * x, v = root * root * root;
        if (v > 0 && log(u) < 0.5 * x * x + d * (1 - v + log(v))) {{
            found = d * v;
            break;
        }}
    }}
    return small ? found * exp(wide_logarithm(drawn) / concentration) : found;
}}
"""


def _tried(op: str, wrong: str, finish: str, error: str) -> None:
    """Declare the kernel of an op that draws by rejection, with one array operand.

    Args:
        op: the op's name.
        wrong: a C++ condition under which an element `x` of the operand is an error, with the message `error`.
        finish: see `Drawing`.
    """

    def build(problem: Problem) -> Kernel:
        (output,) = problem.attributes
        given = ((f"const {STORED[problem.inputs[0].dtype.name]}*", "operand"), ("double", "least"))
        before = f"const double x = converted<double>(operand[i]); if ({wrong}) wrong();"
        drawing = Drawing(op, _UNIFORM, finish, given, _FUNCTIONS, before, checks=True)
        # The smallest positive number of float64, or of float32, that is not denormal.
        least = 2.0**-1022 if output.dtype.itemsize == 8 else 2.0**-126

        def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
            operand, seed, offset = operands
            more = contiguous(launcher, operand), least
            draw(launcher, drawing, outs[0], seed, offset, more, lambda position, value: ValueError(error))

        return Kernel(into_outs(launch, problem), casts=True)

    build.__qualname__ = f"_{op}"
    builds(op, package=PACKAGE)(build)


_tried(
    "poisson",
    "!(x >= 0 && x - x == 0)",
    "poisson(x, v, seed, offset + i)",
    "poisson: the rates must be finite, and not negative",
)
_tried(
    "standard_gamma",
    "!(x > 0 && x - x == 0)",
    "fmax(gamma_number(x, v, seed, offset + i), least)",
    "gamma: the concentrations must be finite and positive",
)
