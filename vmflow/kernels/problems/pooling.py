"""The details of pooling ops for their kernels: size, stride, padding and dilation of the windows."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """The pooling windows along one dimension.

    Attributes:
        size, output: the sizes of the input and of the output in this dimension.
        kernel: the number of elements of a window.
        stride, padding, dilation: as in `max_pool1d`.
    """

    size: int
    output: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def start(self, number: int) -> int:
        """Return the input position of the first element of window `number`; negative if it lies in the padding."""
        return number * self.stride - self.padding

    def reaches_in(self, number: int) -> bool:
        """Whether window `number` contains an element of the input, and not only padding."""
        start = self.start(number)
        first = max(0, -(start // self.dilation))
        return first < self.kernel and start + first * self.dilation < self.size

    def disjoint(self) -> bool:
        """Whether the stride is the kernel's size, and the windows cover the input exactly, undilated and unpadded."""
        fits = self.size == self.output * self.kernel
        return fits and self.kernel == self.stride and self.dilation == 1 and self.padding == 0
