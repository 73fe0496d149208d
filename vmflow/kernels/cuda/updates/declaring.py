"""Rules as functions of the device's array module, which say what becomes of each array.

Such a rule writes nothing itself: it yields pairs of an array and of what that becomes.  So one place sees to dtypes,
and to updates that turn out, when they run, to be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.bits import widened
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import current

# changes(xp, settings if the rule has some, input arrays, output arrays) -> pairs of an array and its new value
Changes: TypeAlias = "Callable[..., Iterable[tuple[Any, Any]]]"

# move(xp, settings, learning rate, counts, gradient, parameter, its state...) -> the new parameter, state and counts
Move = TypeVar("Move", bound=Callable[..., Sequence[Any]])


def changes_by_arrays(rule: str) -> Callable[[Changes], Changes]:
    """Declare that the decorated function says what becomes of arrays by this rule; see `Changes`."""

    def declare(changes: Changes) -> Changes:
        @declares_rule(rule, package=PACKAGE)
        @wraps(changes)
        def change(*arguments: Any, skip: DeviceArray | None = None) -> None:
            *settings, inputs, outputs = arguments
            issue(rule, changes, settings, inputs, outputs, skip)

        return changes

    return declare


def issue(
    rule: str,
    changes: Changes,
    settings: Sequence[Any],
    inputs: Sequence[DeviceArray],
    outputs: Sequence[DeviceArray],
    skip: DeviceArray | None,
) -> None:
    """Hand an update to the device.

    Args:
        rule: its name.
        changes: see `Changes`.
        settings: those of the rule, if it has some.
        inputs, outputs: the arrays that are read, and those that are read and written.
        skip: one number: if it is not zero when the update runs, the outputs keep what they hold; None for no skipping.
    """
    conditions = [] if skip is None else [skip]

    def compute(xp: Any, *arrays: Any) -> None:
        good = [condition == 0 for condition in arrays[: len(conditions)]]
        read, written = arrays[len(conditions) : -len(outputs)], arrays[-len(outputs) :]
        for array, value in changes(xp, *settings, read, written):
            kept = xp.where(good[0], value, widened(array)) if good else value
            xp.copyto(array, kept, casting="unsafe")

    current().call(rule, compute, [*conditions, *inputs], outputs)


def moves(rule: str, counts: int = 1) -> Callable[[Move], Move]:
    """Declare that the decorated function moves each parameter by this rule of an optimizer.

    The arrays that it is given are real, and of float32 in place of 16-bit dtypes; but counts are given as they are.
    The learning rate is a Python number or a float64 array without dimensions.

    Args:
        rule: its name.
        counts: how many counts each parameter has.
    """

    def declare(move: Move) -> Move:
        @changes_by_arrays(rule)
        @wraps(move)
        def changes(xp: Any, settings: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
            lr, gradients = rate_and_gradients(settings, inputs)
            for position, gradient in enumerate(gradients):
                written = outputs[position :: len(gradients)]
                shaped = [in_reals(xp, array) for array in written[: len(written) - counts]]
                numbers = written[len(written) - counts :]
                wide = [widened(array) for array in (in_reals(xp, gradient), *shaped)]
                moved = move(xp, settings, lr, numbers, *wide)
                yield from zip([*shaped, *numbers], moved, strict=True)

        return move

    return declare


def rate_and_gradients(settings: Any, inputs: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The learning rate, which is the last of the inputs where it is an array, and the gradients."""
    if settings.lr is None:
        return exactly(inputs[-1]), inputs[:-1]
    return settings.lr, inputs


def in_reals(xp: Any, array: Any) -> Any:
    """The same memory as real numbers: of complex ones their two parts, along a further dimension."""
    if array.dtype.kind != "c":
        return array
    real = array.real
    return xp.lib.stride_tricks.as_strided(real, (*array.shape, 2), (*array.strides, real.dtype.itemsize))


# Arithmetic that rules share


def exactly(number: Any) -> Any:
    """A number in float64, in which powers of numbers near 1 are computed."""
    return number.astype(np.float64)


def as_factor(number: Any, array: Any) -> Any:
    """A number in the dtype of an array, so that their product has that dtype, too."""
    return number if type(number) in (int, float) else number.astype(array.dtype)


def decayed(settings: Any, gradient: Any, parameter: Any) -> Any:
    """The gradient to go down by, with so much of the parameter added to it."""
    slope = -gradient if settings.maximize else gradient
    return slope + parameter * settings.weight_decay if settings.weight_decay else slope


def slope_and_start(settings: Any, lr: Any, gradient: Any, parameter: Any) -> tuple[Any, Any]:
    """The gradient as `decayed` has it, and the parameter, which is scaled down instead by a decoupled decay."""
    if not settings.decoupled:
        return decayed(settings, gradient, parameter), parameter
    start = parameter * as_factor(1 - lr * settings.weight_decay, parameter) if settings.weight_decay else parameter
    return -gradient if settings.maximize else gradient, start


def average(running: Any, value: Any, weight: Any) -> Any:
    """``running`` moved so far towards a value."""
    return running + (value - running) * weight


def average_square(square: Any, value: Any, keep: float) -> Any:
    """The running average of the square, of which so much stays."""
    return square * keep + value * value * (1 - keep)
