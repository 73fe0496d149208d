"""Details of pooling: the geometry of windows."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The windows along one dimension.

    Attributes:
        size, output: of the input and the output.
        kernel, stride, padding, dilation: of the window.
    """

    size: int
    output: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def start(self, number: int) -> int:
        """The position of a window's first tap; below 0 in the padding."""
        return number * self.stride - self.padding

    def reaches_in(self, number: int) -> bool:
        """Whether a window has a tap within the input."""
        start = self.start(number)
        first = max(0, -(start // self.dilation))
        return first < self.kernel and start + first * self.dilation < self.size

    def disjoint(self) -> bool:
        """Whether the windows cover the input without gaps or overlaps."""
        fits = self.size == self.output * self.kernel
        return fits and self.kernel == self.stride and self.dilation == 1 and self.padding == 0
