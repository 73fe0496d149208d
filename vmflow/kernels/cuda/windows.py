"""Loops over the windows of images, in C++, for pooling and its gradients.

A `Loop` goes through the elements of a window along one dimension, or through the windows that contain an element.
Sums are taken dimension by dimension, as if one dimension was reduced after the other, which gives the CPU's order of
roundings.  No loop is unrolled: three nested ones would take more registers than threads should have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from vmflow.kernels.problems.pooling import Window
from vmflow.streams.cuda.driver import Argument


class Loop(NamedTuple):
    """A C++ loop over elements or windows along one dimension.

    Attributes:
        head: the statements that begin the loop; `at<axis>` is the index of the current element or window.
        length: the number of elements of the current window, maybe with padding, as an expression within the loop.
    """

    head: str
    length: str


# The names of the numbers that the loops of ordinary (not adaptive) pooling need for each dimension.
WINDOW_NUMBERS: Final = ("size", "output", "kernel", "stride", "padding", "dilation", "padded")


def window_numbers(windows: Sequence[Window], with_padding: bool = False) -> list[Argument]:
    """Return the values of `WINDOW_NUMBERS` for all dimensions in turn; `padded` is 1 if `with_padding`."""
    return [number for window in windows for number in (*window, int(with_padding))]


def names(rank: int, numbers: Sequence[str]) -> tuple[str, ...]:
    """Return the names of numbers for each of `rank` dimensions: size0, output0, ..., size1, output1, ..."""
    return tuple([f"{number}{axis}" for axis in range(rank) for number in numbers])


def taps_of_window(axis: int) -> Loop:
    """Return the loop over the elements of the window `p<axis>_place`, without those in the padding."""
    head = (
        f"const int64 start{axis} = p{axis}_place * stride{axis} - padding{axis};\n"
        f"#pragma unroll 1\nfor (int64 tap{axis} = 0; tap{axis} < kernel{axis}; tap{axis}++) {{\n"
        f"const int64 at{axis} = start{axis} + tap{axis} * dilation{axis};\n"
        f"if (at{axis} < 0 || at{axis} >= size{axis}) continue;"
    )
    return Loop(head, _count(axis, f"start{axis}"))


def windows_of_place(axis: int) -> Loop:
    """Return the loop over the windows that contain the element `p<axis>_place`, the last one first."""
    head = (
        f"#pragma unroll 1\nfor (int64 tap{axis} = 0; tap{axis} < kernel{axis}; tap{axis}++) {{\n"
        f"const int64 far{axis} = p{axis}_place + padding{axis} - tap{axis} * dilation{axis};\n"
        f"const int64 at{axis} = far{axis} / stride{axis};\n"
        f"if (far{axis} < 0 || at{axis} * stride{axis} != far{axis} || at{axis} >= output{axis}) continue;"
    )
    return Loop(head, _count(axis, f"(at{axis} * stride{axis} - padding{axis})"))


def _count(axis: int, start: str) -> str:
    """Return the C++ expression of the number of a window's elements from `start`, with padding if `padded<axis>`."""
    end = f"{start} + kernel{axis}"
    padded = f"least({end}, size{axis} + padding{axis}) - {start}"
    return f"(padded{axis} ? {padded} : least({end}, size{axis}) - most({start}, 0))"


# The names of adaptive pooling's parameters for each dimension: its size, and its number of windows.
EVEN_NUMBERS: Final = ("size", "output")


def even_window(axis: int) -> Loop:
    """Return the loop over the elements of the window `p<axis>_place` in adaptive pooling."""
    start, end = _even(f"p{axis}_place", f"size{axis}", f"output{axis}")
    head = (
        f"const int64 start{axis} = {start}, end{axis} = {end};\n"
        f"#pragma unroll 1\nfor (int64 at{axis} = start{axis}; at{axis} < end{axis}; at{axis}++) {{"
    )
    return Loop(head, f"(end{axis} - start{axis})")


def even_windows_of_place(axis: int) -> Loop:
    """Return the loop over the windows that contain the element `p<axis>_place` in adaptive pooling."""
    first, last = _even(f"p{axis}_place", f"output{axis}", f"size{axis}")
    start, end = _even(f"at{axis}", f"size{axis}", f"output{axis}")
    head = f"#pragma unroll 1\nfor (int64 at{axis} = {first}; at{axis} < {last}; at{axis}++) {{"
    return Loop(head, f"({end} - {start})")


def _even(number: str, size: str, parts: str) -> tuple[str, str]:
    """Return C++ expressions of the begin and the end of part `number`, if `size` elements are divided into `parts`."""
    return f"{number} * {size} / {parts}", f"(({number} + 1) * {size} + {parts} - 1) / {parts}"


# Nests of loops


def searched(loops: Sequence[Loop], body: Sequence[str]) -> list[str]:
    """Return C++ statements that run `body` for all elements of a window, in the order of their indices."""
    return [*[loop.head for loop in loops], *body, "}" * len(loops)]


def summed(
    loops: Sequence[tuple[int, Loop]],
    compute: str,
    value: str,
    *,
    share: Callable[[Loop, str], str] | None = None,
    total: Callable[[Loop, str], str] | None = None,
) -> tuple[list[str], str]:
    """Return C++ statements that sum values up over a nest of loops, and the expression of the sum.

    Args:
        loops: each with its dimension, the outermost first.
        compute: the type of sums.
        value: the expression of the value in the innermost loop.
        share: turns a value, or the sum over the inner loops, into the summand.
        total: turns the sum over a loop into its result, after the loop.
    """
    if not loops:
        return [], value
    (axis, loop), *rest = loops
    within, found = summed(rest, compute, value, share=share, total=total)
    added = found if share is None else share(loop, found)
    lines = [f"{compute} total{axis} = 0;", loop.head, *within, f"total{axis} = total{axis} + {added};", "}"]
    return lines, f"total{axis}" if total is None else total(loop, f"total{axis}")
