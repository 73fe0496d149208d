"""Searching along a line for a point that satisfies the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6, with cubic interpolation.  A function of
the caller's evaluates the points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Final

# The constants c1 and c2 of the strong Wolfe conditions: the fraction of the linearly expected decrease of the loss
# that is enough, and the fraction of the slope at the start that the slope's magnitude must not exceed.
_DECREASE: Final = 1e-4
_CURVATURE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the line that is searched, with the loss and its derivative there.

    Attributes:
        place: the distance from the start: the factor of the direction.
        loss: the loss at this point.
        gradient: the gradient at this point; the search does not read it.
        slope: the derivative of the loss along the line.
    """

    place: float
    loss: float
    gradient: Any
    slope: float


Evaluate = Callable[[float], Point]


def strong_wolfe(
    evaluate: Evaluate, start: Point, place: float, length: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """Search a line for a strong Wolfe point; if none is found, return a point with no more loss than the start.

    Args:
        evaluate: computes the point at a `place`, see `Point`.
        start: the point at place 0, where the slope is negative.
        place: the place of the first point to evaluate.
        length: the largest magnitude of the direction's elements.
        tolerance: give up when no element of a parameter changes by this much within the interval that is left.
        most: the largest number of evaluations after the first.

    Returns:
        The point, and the number of calls of `evaluate`.
    """
    before, point = start, evaluate(place)
    iterations = 0
    while iterations < most:
        worse = _too_high(point, start) or (iterations > 1 and point.loss >= before.loss)
        if not worse and _flat_enough(point, start):
            return point, iterations + 1
        if worse or point.slope >= 0:
            return _zoom(evaluate, start, before, point, length, tolerance, most, iterations)
        least, farthest = point.place + 0.01 * (point.place - before.place), point.place * 10
        before, point = point, evaluate(_between(before, point, least, farthest))
        iterations += 1
    return (point if point.loss < start.loss else start), iterations + 1


def _too_high(point: Point, start: Point) -> bool:
    return not point.loss <= start.loss + _DECREASE * point.place * start.slope  # True for NaN


def _flat_enough(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * start.slope


def _zoom(
    evaluate: Evaluate, start: Point, first: Point, second: Point, length: float, tolerance: float, most: int, done: int
) -> tuple[Point, int]:
    """Narrow an interval with a strong Wolfe point between `first` and `second`; arguments as `strong_wolfe`'s.

    `done` is the number of evaluations after the first before this call.  Returns the point found, or the lowest of
    this interval's points if none satisfies the conditions, and the number of all evaluations.
    """
    iterations = done
    low, high = (second, first) if second.loss < first.loss else (first, second)
    stalled = False
    while iterations < most and abs(high.place - low.place) * length >= tolerance:
        left, right = sorted((low.place, high.place))
        place = _between(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - place, place - left) < margin:
            # The place is too near to an end of the interval.  The first time it is kept, because the minimum may be
            # there; the second time in a row, or at the end itself, it moves inwards for the interval to shrink.
            if stalled or place >= right or place <= left:
                place = right - margin if abs(place - right) < abs(place - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        point = evaluate(place)
        iterations += 1
        if _too_high(point, start) or point.loss >= low.loss:
            low, high = (point, low) if point.loss < low.loss else (low, point)
        elif _flat_enough(point, start):
            return point, iterations + 1
        else:
            low, high = point, low if point.slope * (high.place - low.place) >= 0 else high
    return low, iterations + 1


def _between(first: Point, second: Point, least: float, most: float) -> float:
    """Return the minimum of the cubic with both points' losses and slopes, clamped to `least` and `most`.

    If the cubic has no minimum, or the points have infinite or NaN numbers, the result is a place within the bounds.
    """
    if first.place > second.place:
        first, second = second, first
    width = second.place - first.place
    bend = first.slope + second.slope - 3 * (first.loss - second.loss) / -width
    square = bend * bend - first.slope * second.slope
    if not 0 <= square < inf:
        return (least + most) / 2
    turn = sqrt(square)
    share = second.slope - first.slope + 2 * turn
    if not share:  # a line, or a parabola with a maximum
        return most if first.slope + second.slope < 0 else least
    place = second.place - width * (second.slope + turn - bend) / share
    return min(max(place, least), most)
