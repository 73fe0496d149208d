"""Binary cross-entropy of probabilities, or of scores (logits) whose sigmoids are probabilities."""

from __future__ import annotations

from typing import Any, Final

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, launch_pointwise

# C++ statements for the loss of a probability `x` and its `target`; logarithms below -100 count as -100.
_OF_PROBABILITIES: Final = (
    "value positive = logarithm(x), negative = logarithm_of_more(-x);",
    "if (positive < -100) positive = -100;",
    "if (negative < -100) negative = -100;",
    "const value result = (target - 1) * negative - target * positive;",
)
# The loss of a score x is max(x, 0) - x * target + log(1 + exp(-|x|)), in which no exponential overflows.
_OF_SCORES: Final = (
    "const value rest = logarithm_of_more(exponential(-fabs(x)));",
    "const value result = rest + (x < 0 ? 0 : x) - x * target;",
)


@builds("binary_cross_entropy", "binary_cross_entropy_with_logits", package=PACKAGE)
def _binary_cross_entropy(problem: Problem) -> Kernel:
    of_scores = problem.op == "binary_cross_entropy_with_logits"
    dtypes = tuple([meta.dtype.name for meta in problem.inputs])
    lines = (
        f"typedef {'double' if 'float64' in dtypes else 'float'} value;",
        "const value x = x0, target = x1;",
        *(_OF_SCORES if of_scores else _OF_PROBABILITIES),
    )
    results = (("result", problem.outputs[0].dtype.name),)
    function = Pointwise(problem.op, dtypes, (), lines, results, "" if of_scores else "!(x >= 0 && x <= 1)")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        launch_pointwise(launcher, function, operands, (), outs, _no_probability)

    return Kernel(into_outs(launch, problem), casts=True)


def _no_probability(position: int, value: int) -> Exception:
    return RuntimeError("binary_cross_entropy: probabilities must be within [0, 1]; scores need a sigmoid first")
