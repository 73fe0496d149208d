"""Steps scaled by running averages of the gradient: Adam and related optimizers."""

from __future__ import annotations

from vmflow.kernels.problems.updates import Adam, Adamax, NAdam, RAdam

from .steps import AVERAGES, LARGER, SHRINK, Step, shrunk, slope, steps

_TAKEN = """
steps = kept_steps(steps + 1);
const double taken = steps;
"""

_CORRECTED = """
const double correction = sqrt(1 - pow(beta2, taken));
least = eps * correction;
size = lr / (1 - pow(beta1, taken)) * correction;
"""
_UNCORRECTED = """
least = eps;
size = lr;
"""


@steps("adam")
def _adam(settings: Adam) -> Step:
    # The bias correction of the average square goes into eps and the step size, once for all elements.
    plan = f"{_TAKEN}{SHRINK}{_CORRECTED if settings.corrected else _UNCORRECTED}"
    largest = f"largest = ({LARGER})(largest, square);" if settings.amsgrad else ""
    move = f"""{shrunk(settings)}{slope(settings)}{AVERAGES}{largest}
p = p - mean / (sqrt({"largest" if settings.amsgrad else "square"}) + real(least)) * real(size);
"""
    kept = ("mean", "square", "largest") if settings.amsgrad else ("mean", "square")
    return Step(kept, move, numbers=("shrink", "least", "size"), plan=plan)


@steps("nadam")
def _nadam(settings: NAdam) -> Step:
    plan = f"""{_TAKEN}{SHRINK}
const double now = beta1 * (1 - 0.5 * pow(0.96, taken * momentum_decay));
const double ahead = beta1 * (1 - 0.5 * pow(0.96, (taken + 1) * momentum_decay));
product = kept_product(product * decltype(product)(now));
const double so_far = product;
correction = sqrt(1 - pow(beta2, taken));
by_gradient = lr * (1 - now) / (1 - so_far);
by_mean = lr * ahead / (1 - so_far * ahead);
"""
    move = f"""{shrunk(settings)}{slope(settings)}{AVERAGES}
const real root = sqrt(square) / real(correction) + real(eps);
p = p - slope / root * real(by_gradient);
p = p - mean / root * real(by_mean);
"""
    numbers = ("shrink", "correction", "by_gradient", "by_mean")
    return Step(("mean", "square"), move, ("steps", "product"), numbers, plan)


@steps("radam")
def _radam(settings: RAdam) -> Step:
    # `trusted` tells whether enough steps were taken to estimate the variance of the gradient.
    plan = f"""{_TAKEN}{SHRINK}
const double longest = 2 / (1 - beta2) - 1, power = pow(beta2, taken), left = 1 - power;
const double length = longest - 2 * taken * power / left;
trusted = length > 5;
size = lr / (1 - pow(beta1, taken));
if (length > 5) {{
    const double trust = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length);
    size = size * sqrt(trust) * sqrt(left);
}}
"""
    move = f"""{shrunk(settings)}{slope(settings)}{AVERAGES}
const real step = trusted != 0 ? mean / (sqrt(square) + real(eps)) : mean;
p = p - step * real(size);
"""
    return Step(("mean", "square"), move, numbers=("shrink", "trusted", "size"), plan=plan)


@steps("adamax")
def _adamax(settings: Adamax) -> Step:
    plan = f"{_TAKEN} size = lr / (1 - pow(beta1, taken));"
    move = f"""{slope(settings)}
mean = mean + (slope - mean) * real(1 - beta1);
largest = ({LARGER})(largest * real(beta2), (slope < 0 ? -slope : slope) + real(eps));
p = p - mean / largest * real(size);
"""
    return Step(("mean", "largest"), move, numbers=("size",), plan=plan)
