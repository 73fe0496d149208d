"""Details of convolutions: their sizes."""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias

# One number for each spatial dimension.
Sizes: TypeAlias = tuple[int, ...]

# Whether the gradients by input, weight and bias are wanted.
Wanted: TypeAlias = tuple[bool, bool, bool]


class Geometry(NamedTuple):
    """Sizes of one convolution.

    Attributes:
        samples, channels, size: of the input; sizes have one number for each spatial dimension.
        filters, kernel: the number of filters, and the size of each.
        output: the size of the output.
        stride, dilation: of the kernel.
        before, behind: padding above and left, below and right.
        groups: the number of parts that the channels are divided into.
    """

    samples: int
    channels: int
    size: Sizes
    filters: int
    kernel: Sizes
    output: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    behind: Sizes
    groups: int

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.size)

    def pointwise(self) -> bool:
        """Whether each output pixel depends on the input pixel at its own position alone (kernel 1, stride 1)."""
        return set(self.kernel) == {1} and set(self.stride) == {1} and not any(self.before) and self.output == self.size

    def columns_shape(self) -> tuple[int, int, int]:
        """The shape of the windows as columns: groups, taps of a group, output pixels."""
        taps = self.channels // self.groups * prod(self.kernel)
        return self.groups, taps, self.samples * prod(self.output)
