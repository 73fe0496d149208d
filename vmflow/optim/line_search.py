"""Searching along a line for a point that satisfies the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6, with cubic interpolation.  A function evaluates the
points; nothing here knows of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

# How much of the expected decrease is enough, and to how much of its first value the slope must come down.
_DECREASE: Final = 1e-4
_CURVATURE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the line.

    Attributes:
        place: how far along the line it is.
        loss: there.
        gradient: there; passed on unread.
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
    """A point that satisfies the conditions, or the best seen when the search gives up.

    Args:
        evaluate: returns the point at a place.
        start: place 0, where the slope is negative.
        place: where to look first.
        length: of the largest element of the direction.
        tolerance: give up when nothing moves by more than this.
        most: iterations.

    Returns:
        The point, and how often `evaluate` was called.
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
    return (start if start.loss <= point.loss else point), iterations + 1


def _too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + _DECREASE * point.place * start.slope


def _flat_enough(point: Point, start: Point) -> bool:
    return abs(point.slope) <= -_CURVATURE * start.slope


def _zoom(
    evaluate: Evaluate, start: Point, first: Point, second: Point, length: float, tolerance: float, most: int, done: int
) -> tuple[Point, int]:
    """Narrow an interval that holds such a point."""
    iterations = done
    low, high = (first, second) if first.loss <= second.loss else (second, first)
    stalled = False
    while iterations < most and abs(high.place - low.place) * length >= tolerance:
        left, right = sorted((low.place, high.place))
        place = _between(low, high, left, right)
        margin = 0.1 * (right - left)
        if min(right - place, place - left) < margin:
            # Too near to an end: once that is let pass, the second time the place is moved inwards.
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
            low, high = (low, point) if low.loss <= point.loss else (point, low)
        elif _flat_enough(point, start):
            return point, iterations + 1
        else:
            low, high = point, low if point.slope * (high.place - low.place) >= 0 else high
    return low, iterations + 1


def _between(first: Point, second: Point, least: float, most: float) -> float:
    """Where the cubic through both points, with their slopes, is lowest within the bounds."""
    if first.place > second.place:
        first, second = second, first
    width = second.place - first.place
    bend = first.slope + second.slope - 3 * (first.loss - second.loss) / -width
    square = bend * bend - first.slope * second.slope
    if square < 0:
        return (least + most) / 2
    turn = sqrt(square)
    place = second.place - width * (second.slope + turn - bend) / (second.slope - first.slope + 2 * turn)
    return min(max(place, least), most)
