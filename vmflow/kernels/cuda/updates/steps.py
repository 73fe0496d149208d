"""Declares the kernels of optimizers' steps, and has the arithmetic that these share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.sources import STORED
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import current

from .together import Change, Given, Plan, Row, change_rows, plan_rows


class Step(NamedTuple):
    """An optimizer's step, as C++ statements of the kernels that take it.

    Their variables are those of `Plan` and `Change`, and the optimizer's settings that are numbers; the learning rate
    is `lr`.

    Attributes:
        shaped: the names of the arrays that are kept for each parameter in its shape.
        move: statements for one element of the parameter `p` with the gradient `g`.
        counts: the names of the parameter's counts, arrays of one element.
        numbers, plan: the `numbers` and the `body` of the `Plan`.
    """

    shaped: tuple[str, ...]
    move: str
    counts: tuple[str, ...] = ("steps",)
    numbers: tuple[str, ...] = ()
    plan: str = "steps = kept_steps(steps + 1);"


def steps(rule: str) -> Callable[[Callable[[Any], Step]], Callable[[Any], Step]]:
    """Declare that the decorated function returns the `Step` of the optimizer `rule` for its settings."""

    def declare(step_of: Callable[[Any], Step]) -> Callable[[Any], Step]:
        def take(
            settings: Any, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
        ) -> None:
            launcher = current()
            step = step_of(settings)
            common, numbers, gradients = rated(settings, inputs)
            columns = columns_of(outputs, len(gradients))
            shaped = 1 + len(step.shaped)
            planned = None
            if step.counts:
                plan = Plan(rule, step.counts, step.numbers, RATE + step.plan, (), common)
                planned = plan_rows(launcher, plan, list(zip(*columns[shaped:], strict=True)), (), numbers, skip)
            written = ("p", *step.shaped)
            change = Change(rule, written, (*written, "g"), step.move, RATE, step.numbers, (), common)
            rows = [Row(arrays) for arrays in zip(*columns[:shaped], gradients, strict=True)]
            change_rows(launcher, change, rows, numbers, planned, None, skip)

        take.__module__, take.__qualname__ = step_of.__module__, step_of.__qualname__
        declares_rule(rule, package=PACKAGE)(take)
        return step_of

    return declare


def columns_of(arrays: Sequence[DeviceArray], count: int) -> list[Sequence[DeviceArray]]:
    """Split `arrays` by kind (parameters, averages, counts): each kind has `count` arrays, one for each parameter."""
    return [arrays[first : first + count] for first in range(0, len(arrays), count)]


# The learning rate and other numbers

# The learning rate is in the memory of the device (`lr_at`), or known to the host (`lr_given`).
RATE = "const double lr = lr_at ? converted<double>(*lr_at) : lr_given;\n"


class Rated(NamedTuple):
    """An optimizer's settings as parameters of kernels, and the gradients.

    Attributes:
        common: the kernels' parameters for the learning rate and for the other settings that are numbers.
        arguments: the arguments for `common`.
        gradients: the gradients of the parameters.
    """

    common: tuple[Given, ...]
    arguments: list[Argument]
    gradients: list[DeviceArray]


def rated(settings: Any, inputs: list[DeviceArray]) -> Rated:
    """Return the settings as parameters of kernels, and the gradients: all inputs, but for a learning rate in an array,
    which is the last if `settings.lr` is None.
    """
    names = [name for name, value in settings._asdict().items() if name != "lr" and not isinstance(value, _FACTS)]
    rate: list[Argument] = [0, 0.0]
    gradients, dtype = inputs, "float64"
    if settings.lr is not None:
        rate[1] = float(settings.lr)
    else:
        *gradients, given = inputs
        if isinstance(given, DeviceArray):
            rate[0], dtype = given, given.dtype.name
        else:
            rate[1] = float(given)  # an array in the host's memory
    common = Given(f"const {STORED[dtype]}*", "lr_at"), *[Given("double", name) for name in ("lr_given", *names)]
    return Rated(common, [*rate, *[float(getattr(settings, name)) for name in names]], gradients)


_FACTS: Final = bool, tuple


# Arithmetic


def slope(settings: Any) -> str:
    """Return the C++ statement that declares `slope`, the gradient to descend along (negated to maximize), with the
    weight decay added unless it is decoupled.
    """
    plain = f"const real slope = {'-g' if settings.maximize else 'g'};\n"
    if getattr(settings, "decoupled", False) or not settings.weight_decay:
        return plain
    return f"const real slope = p * real(weight_decay) {'-' if settings.maximize else '+'} g;\n"


def shrunk(settings: Any) -> str:
    """Return the C++ statement that scales a parameter down by a decoupled weight decay, whose factor `SHRINK` plans;
    "" without such a decay.
    """
    return "p = p * real(shrink);\n" if settings.decoupled and settings.weight_decay else ""


SHRINK = "shrink = 1 - lr * weight_decay;\n"

# Advances the running averages of gradient and squared gradient, of Adam and related optimizers.
AVERAGES = """
mean = mean + (slope - mean) * real(1 - beta1);
square = square * real(beta2) + slope * slope * real(1 - beta2);
"""

# The larger of two numbers; nan if one of them is nan.
LARGER = "[](real x, real y) { return x != x || x >= y ? x : y; }"
