"""The layers of pooling and unpooling, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vmflow.ops.nn.fractional_pooling import check_output
from vmflow.ops.nn.layer_operands import sizes
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer
from .module import RankedLayer

# One number for all dimensions, or one for each.
Size = int | tuple[int, ...]
# None keeps a dimension's size.
OutputSize = int | tuple[int | None, ...] | None


class _Windowed(FunctionLayer):
    """A pooling over windows that lie side by side unless a stride is given."""

    shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Size, stride: Size | None, padding: Size, **settings: Any) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding, **settings)


class _MaxPool(_Windowed):
    """The largest element of each window: (N, C, ...), or without N, to the same with fewer elements.

    Args:
        kernel_size: of the window, an int for all dimensions or one for each.
        stride: from window to window, by default the window's size.
        padding: with minus infinity, on both sides.
        dilation: between the window's elements.
        return_indices: whether to return also where the elements were found.
        ceil_mode: whether the last window may reach over the edge.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, ..., C).
    """

    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        data_format: str = "channels_first",
    ) -> None:
        settings = {"dilation": dilation, "return_indices": return_indices, "ceil_mode": ceil_mode}
        super().__init__(kernel_size, stride, padding, data_format=data_format, **settings)


class MaxPool1d(_MaxPool, function=F.max_pool1d, rank=1):
    """Maxima over windows of sequences."""


class MaxPool2d(_MaxPool, function=F.max_pool2d, rank=2):
    """Maxima over windows of images."""


class MaxPool3d(_MaxPool, function=F.max_pool3d, rank=3):
    """Maxima over windows of volumes."""


class AvgPool1d(_Windowed, function=F.avg_pool1d):
    """The mean of each window: (N, C, length), or without N, to the same with fewer elements.

    Args:
        kernel_size: of the window.
        stride: from window to window, by default the window's size.
        padding: with zeros, on both sides.
        ceil_mode: whether the last window may reach over the edge.
        count_include_pad: whether padding counts when dividing.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, length, C).
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        data_format: str = "channels_first",
    ) -> None:
        super().__init__(
            sizes("AvgPool1d", "kernel_size", kernel_size, 1, 1),
            None if stride is None else sizes("AvgPool1d", "stride", stride, 1, 1),
            sizes("AvgPool1d", "padding", padding, 0, 1),
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            data_format=data_format,
        )


class _AvgPool(_Windowed):
    """The mean of each window: (N, C, ...), or without N, to the same with fewer elements.

    Args:
        kernel_size: of the window, an int for all dimensions or one for each.
        stride: from window to window, by default the window's size.
        padding: with zeros, on both sides.
        ceil_mode: whether the last window may reach over the edge.
        count_include_pad: whether padding counts when dividing.
        divisor_override: divide by this instead of by the number of elements.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, ..., C).
    """

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        data_format: str = "channels_first",
    ) -> None:
        super().__init__(
            kernel_size,
            stride,
            padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            data_format=data_format,
            divisor_override=divisor_override,
        )


class AvgPool2d(_AvgPool, function=F.avg_pool2d, rank=2):
    """Means over windows of images."""


class AvgPool3d(_AvgPool, function=F.avg_pool3d, rank=3):
    """Means over windows of volumes."""


class _AdaptiveAvgPool(FunctionLayer):
    """Means over windows chosen so that the result has `output_size`; None keeps a dimension's size.

    `data_format` is "channels_first", or OneFlow's "channels_last" for (N, ..., C).
    """

    shown = ("output_size",)

    def __init__(self, output_size: OutputSize, *, data_format: str = "channels_first") -> None:
        super().__init__(output_size=output_size, data_format=data_format)


class _AdaptiveMaxPool(FunctionLayer):
    """The largest elements of windows chosen so that the result has `output_size`; None keeps a dimension's size.

    Args:
        output_size: an int for all dimensions or one for each.
        return_indices: whether to return also where the elements were found.
    """

    shown = ("output_size",)

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool, function=F.adaptive_avg_pool1d, rank=1):
    """Means over parts of sequences."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool, function=F.adaptive_avg_pool2d, rank=2):
    """Means over parts of images."""


class AdaptiveAvgPool3d(_AdaptiveAvgPool, function=F.adaptive_avg_pool3d, rank=3):
    """Means over parts of volumes."""


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function=F.adaptive_max_pool1d, rank=1):
    """Maxima over parts of sequences."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function=F.adaptive_max_pool2d, rank=2):
    """Maxima over parts of images."""


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function=F.adaptive_max_pool3d, rank=3):
    """Maxima over parts of volumes."""


class _MaxUnpool(RankedLayer):
    """Puts the elements that a `MaxPool` found back where they were, among zeros.

    Args:
        kernel_size: of the window, an int for all dimensions or one for each.
        stride: from window to window, by default the window's size.
        padding: of that pooling.
    """

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = sizes(name, "kernel_size", kernel_size, 1, self._rank)
        self.stride = sizes(name, "stride", kernel_size if stride is None else stride, 1, self._rank)
        self.padding = sizes(name, "padding", padding, 0, self._rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The elements and their indices to a larger image, of `output_size` where several are possible."""
        return _UNPOOL[self._rank](input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


_UNPOOL: dict[int, Callable[..., Tensor]] = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}


class MaxUnpool1d(_MaxUnpool, rank=1):
    """The opposite of `MaxPool` for sequences."""


class MaxUnpool2d(_MaxUnpool, rank=2):
    """The opposite of `MaxPool` for images."""


class MaxUnpool3d(_MaxUnpool, rank=3):
    """The opposite of `MaxPool` for volumes."""


class _LPPool(FunctionLayer):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over each window.

    Args:
        norm_type: the power.
        kernel_size: of the window, an int for all dimensions or one for each.
        stride: from window to window, by default the window's size.
        ceil_mode: whether the last window may reach over the edge.
    """

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool, function=F.lp_pool1d, rank=1):
    """Power means over windows of sequences."""


class LPPool2d(_LPPool, function=F.lp_pool2d, rank=2):
    """Power means over windows of images."""


class LPPool3d(_LPPool, function=F.lp_pool3d, rank=3):
    """Power means over windows of volumes."""


class _FractionalMaxPool(FunctionLayer):
    """The largest elements of windows that begin at random places (B. Graham, 2014); see `F.fractional_max_pool2d`.

    Args:
        kernel_size: of the window, an int for all dimensions or one for each.
        output_size: an int for all dimensions or one for each.
        output_ratio: instead, the output's size in proportion to the input's, between 0 and 1.
        return_indices: whether to return also where the elements were found.

    Raises:
        TypeError, ValueError: unless one of `output_size` and `output_ratio` is given, or for one out of range.
    """

    shown = ()  # as in PyTorch
    tensors = ("_random_samples",)

    def __init__(
        self,
        kernel_size: Size,
        output_size: Size | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        check_output(type(self).__name__, self._rank, output_size, output_ratio)
        super().__init__(
            kernel_size=kernel_size,
            output_size=output_size,
            output_ratio=output_ratio,
            return_indices=return_indices,
            _random_samples=_random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool, function=F.fractional_max_pool2d, rank=2):
    """Fractional max-pooling of images."""


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d, rank=3):
    """Fractional max-pooling of volumes."""
