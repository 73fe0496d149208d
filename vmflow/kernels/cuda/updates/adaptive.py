"""Optimizers that scale the step of each element by its past gradients, and ASGD, which averages the parameters."""

from __future__ import annotations

from vmflow.kernels.problems.updates import ASGD, Adadelta, Adagrad, RMSprop, Rprop

from .steps import Step, slope, steps


@steps("adagrad")
def _adagrad(settings: Adagrad) -> Step:
    plan = """
steps = kept_steps(steps + 1);
size = lr / (1 + ((double)steps - 1) * lr_decay);
"""
    move = f"""{slope(settings)}
total = total + slope * slope;
p = p - slope / (sqrt(total) + real(eps)) * real(size);
"""
    return Step(("total",), move, numbers=("size",), plan=plan)


@steps("adadelta")
def _adadelta(settings: Adadelta) -> Step:
    move = f"""{slope(settings)}
square = square * real(rho) + slope * slope * real(1 - rho);
const real step = sqrt(moved + real(eps)) / sqrt(square + real(eps)) * slope;
moved = moved * real(rho) + step * step * real(1 - rho);
p = p - step * real(lr);
"""
    return Step(("square", "moved"), move)


@steps("rmsprop")
def _rmsprop(settings: RMSprop) -> Step:
    kept, variance, step = ["square"], "square", "slope / root"
    lines = [slope(settings), "square = square * real(alpha) + slope * slope * real(1 - alpha);"]
    if settings.centered:
        lines.append("mean = mean + (slope - mean) * real(1 - alpha);")
        variance = "square - mean * mean"
    lines.append(f"const real root = sqrt({variance}) + real(eps);")
    if settings.momentum:
        kept.append("repeated")
        lines.append("repeated = repeated * real(momentum) + slope / root;")
        step = "repeated"
    lines.append(f"p = p - {step} * real(lr);")
    return Step((*kept, *["mean"] * settings.centered), "\n".join(lines))


@steps("rprop")
def _rprop(settings: Rprop) -> Step:
    plan = """
steps = kept_steps(steps + 1);
first = steps == 1;
"""
    # Step sizes are multiplied in float64, as on the host.
    move = f"""
const real slope = {"-g" if settings.maximize else "g"}, turned = slope * before;
if (first != 0) width = real(lr);
width = real(width * (turned > 0 ? grow : turned < 0 ? shrink : 1.0));
width = width < real(least) ? real(least) : width > real(most) ? real(most) : width;
before = turned < 0 ? real(0) : slope;
p = p - (before > 0 ? real(1) : before < 0 ? real(-1) : before) * width;
"""
    return Step(("before", "width"), move, numbers=("first",), plan=plan)


@steps("asgd")
def _asgd(settings: ASGD) -> Step:
    plan = """
steps = kept_steps(steps + 1);
const double taken = steps, late = taken - t0;
if (taken == 1) eta = kept_eta(lr);
rate = eta;
weight = mu;
shrink = 1 - lambd * rate;
eta = kept_eta(lr / pow(1 + lambd * lr * taken, alpha));
mu = kept_mu(1 / (late > 1 ? late : 1.0));
"""
    move = f"""{slope(settings)}
p = p * real(shrink);
p = p - slope * real(rate);
mean = weight == 1 ? p : mean + (p - mean) * real(weight);
"""
    return Step(("mean",), move, ("steps", "eta", "mu"), ("rate", "weight", "shrink"), plan)
