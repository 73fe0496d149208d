"""Details of convolutions: their sizes."""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias

# A size, stride or the like of a convolution: one number for each spatial dimension.
Sizes: TypeAlias = tuple[int, ...]

# For the backward pass of a convolution: whether the gradients by input, by weight and by bias are wanted.
Wanted: TypeAlias = tuple[bool, bool, bool]


class Geometry(NamedTuple):
    """The sizes of one convolution, in any number of spatial dimensions.

    Attributes:
        samples, channels: the input's numbers of samples and channels.
        size: the input's spatial size.
        filters, kernel: the number of filters, and the spatial size of each.
        output: the output's spatial size.
        stride, dilation: the stride and dilation of the kernel.
        before, behind: the padding before the first and behind the last element of each spatial dimension.
        groups: the number of groups that the channels are divided into.
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
        """Whether each output pixel depends on the input pixel at its place alone: kernel 1x1, stride 1, unpadded."""
        return set(self.kernel) == {1} and set(self.stride) == {1} and not any(self.before) and self.output == self.size

    def columns_shape(self) -> tuple[int, int, int]:
        """Return the shape of the im2col matrices: groups, taps of a group's channels, output pixels of all samples."""
        taps = self.channels // self.groups * prod(self.kernel)
        return self.groups, taps, self.samples * prod(self.output)
