"""The layers of pooling and unpooling, in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from vmflow.ops.nn.fractional_pooling import check_output
from vmflow.ops.nn.layer_operands import sizes
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer
from .ranked_layer import RankedLayer

# The type of sizes such as `kernel_size`: one number for all spatial dimensions, or one for each.
Size = int | tuple[int, ...]
# The type of output sizes of adaptive poolings; None keeps the input's size in that dimension.
OutputSize = int | tuple[int | None, ...] | None


class _Windowed(FunctionLayer):
    """The base of pooling layers whose stride is by default the size of the window."""

    shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Size, stride: Size | None, padding: Size, **settings: Any) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding, **settings)


class _MaxPool(_Windowed):
    """The base of max-pooling layers, which return the largest element of each window.

    The output's sizes are ``floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        kernel_size: the size of a window, an int for all dimensions or one for each.
        stride: the distance between windows, by default the size of the window.
        padding: the number of elements, of minus infinity, that are added on both sides: at most half of `kernel_size`.
        dilation: the distance between the elements of a window.
        return_indices: whether to return also the flat indices of the largest elements within the image, for
            `MaxUnpool2d` and its like.
        ceil_mode: whether to round up in the formula of the size, unless the last window would then begin behind the
            input.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, ..., C).

    Raises:
        TypeError: when called, for sizes that are no integers, or with anything else than a tensor of real numbers.
        ValueError: when called, for sizes out of range, or an input of another number of dimensions or too small.
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
    """The largest element of each window of sequences.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.MaxPool1d(2)(flow.tensor([[1.0, 4.0, 3.0, 2.0]]))
        tensor([[4., 3.]])
    """


class MaxPool2d(_MaxPool, function=F.max_pool2d, rank=2):
    """The largest element of each window of images.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.MaxPool2d(2)(flow.tensor([[[1.0, 4.0, 5.0, 8.0], [2.0, 3.0, 6.0, 7.0]]]))
        tensor([[[4., 8.]]])
    """


class MaxPool3d(_MaxPool, function=F.max_pool3d, rank=3):
    """The largest element of each window of volumes.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.MaxPool3d(2)(flow.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[[[7.]]]])
    """


class AvgPool1d(_Windowed, function=F.avg_pool1d):
    """The mean of each window of sequences.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out), where
    ``L_out = floor((L + 2 * padding - kernel_size) / stride) + 1``.

    Args:
        kernel_size, stride, padding, ceil_mode, count_include_pad, data_format: as for `AvgPool2d`.

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than a floating-point tensor.
        ValueError: for sizes that are too small; when called, for too large a padding, or an input of another number of
            dimensions or too small.

    Example:
        >>> flow.nn.AvgPool1d(2)(flow.tensor([[1.0, 3.0, 5.0, 7.0]]))
        tensor([[2., 6.]])
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
    """The base of average-pooling layers, which return the mean of each window.

    The output's sizes are ``floor((size + 2 * padding - kernel_size) / stride) + 1``.

    Args:
        kernel_size: the size of a window, an int for all dimensions or one for each.
        stride: the distance between windows, by default the size of the window.
        padding: the number of zeros that are added on both sides: at most half of `kernel_size`.
        ceil_mode: whether to round up in the formula of the size, unless the last window would then begin behind the
            input.
        count_include_pad: whether the divisor counts the zeros of the padding.
        divisor_override: a divisor to use instead of the number of elements.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, ..., C).

    Raises:
        TypeError: when called, for sizes that are no integers, or with anything else than a floating-point tensor.
        ValueError: when called, for sizes out of range, or an input of another number of dimensions or too small.
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
    """The mean of each window of images.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.AvgPool2d(2)(flow.tensor([[[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]]))
        tensor([[[2.5000, 6.5000]]])
    """


class AvgPool3d(_AvgPool, function=F.avg_pool3d, rank=3):
    """The mean of each window of volumes.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.AvgPool3d(2)(flow.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[[[3.5000]]]])
    """


class _AdaptiveAvgPool(FunctionLayer):
    """The base of adaptive average poolings: means over windows whose sizes make the output's size `output_size`.

    Args:
        output_size: an int for all dimensions or one for each; None keeps a dimension's size.
        data_format: "channels_first", or OneFlow's "channels_last" for (N, ..., C).

    Raises:
        TypeError: when called, for sizes that are no integers, or with anything else than a floating-point tensor.
        ValueError: when called, for sizes below 1, or an input of another number of dimensions or with empty samples.
    """

    shown = ("output_size",)

    def __init__(self, output_size: OutputSize, *, data_format: str = "channels_first") -> None:
        super().__init__(output_size=output_size, data_format=data_format)


class _AdaptiveMaxPool(FunctionLayer):
    """The base of adaptive max-poolings: maxima over windows whose sizes make the output's size `output_size`.

    Args:
        output_size: an int for all dimensions or one for each; None keeps a dimension's size.
        return_indices: whether to return also the flat indices of the largest elements within the image.

    Raises:
        TypeError: when called, for sizes that are no integers, or with anything else than a tensor of real numbers.
        ValueError: when called, for sizes below 1, or an input of another number of dimensions or with empty samples.
    """

    shown = ("output_size",)

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveAvgPool1d(_AdaptiveAvgPool, function=F.adaptive_avg_pool1d, rank=1):
    """Means over `output_size` windows of sequences.

    Shape: input (N, C, L) or (C, L), output (N, C, output_size) or (C, output_size).

    Example:
        >>> flow.nn.AdaptiveAvgPool1d(2)(flow.tensor([[1.0, 3.0, 5.0, 7.0]]))
        tensor([[2., 6.]])
    """


class AdaptiveAvgPool2d(_AdaptiveAvgPool, function=F.adaptive_avg_pool2d, rank=2):
    """Means over windows of images; `output_size` is the number of windows along each dimension.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.AdaptiveAvgPool2d((1, 2))(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 3.]]])
    """


class AdaptiveAvgPool3d(_AdaptiveAvgPool, function=F.adaptive_avg_pool3d, rank=3):
    """Means over windows of volumes; `output_size` is the number of windows along each dimension.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.AdaptiveAvgPool3d(1)(flow.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[[[3.5000]]]])
    """


class AdaptiveMaxPool1d(_AdaptiveMaxPool, function=F.adaptive_max_pool1d, rank=1):
    """The largest elements of `output_size` windows of sequences.

    Shape: input (N, C, L) or (C, L), output (N, C, output_size) or (C, output_size).

    Example:
        >>> flow.nn.AdaptiveMaxPool1d(2)(flow.tensor([[1.0, 3.0, 5.0, 4.0]]))
        tensor([[3., 5.]])
    """


class AdaptiveMaxPool2d(_AdaptiveMaxPool, function=F.adaptive_max_pool2d, rank=2):
    """The largest elements of windows of images; `output_size` is the number of windows along each dimension.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.AdaptiveMaxPool2d((1, 2))(flow.tensor([[[1.0, 4.0], [3.0, 2.0]]]))
        tensor([[[3., 4.]]])
    """


class AdaptiveMaxPool3d(_AdaptiveMaxPool, function=F.adaptive_max_pool3d, rank=3):
    """The largest elements of windows of volumes; `output_size` is the number of windows along each dimension.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.AdaptiveMaxPool3d(1)(flow.arange(8.0).reshape(1, 2, 2, 2))
        tensor([[[[7.]]]])
    """


class _MaxUnpool(RankedLayer):
    """The base of max-unpooling layers, which write the results of a max-pooling to their indices among zeros.

    The layers are called with the largest elements, their indices and, where several sizes are possible, `output_size`.

    Args:
        kernel_size: the size of a window, an int for all dimensions or one for each.
        stride: the distance between windows, by default the size of the window.
        padding: the padding of the max-pooling.

    Raises:
        TypeError: for sizes that are no integers; when called with indices not int64, or anything else than tensors.
        ValueError: for sizes out of range; when called with shapes that do not fit, or an impossible `output_size`.
        IndexError: when the result is read, if an index is out of range.
    """

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = sizes(name, "kernel_size", kernel_size, 1, self._rank)
        self.stride = sizes(name, "stride", kernel_size if stride is None else stride, 1, self._rank)
        self.padding = sizes(name, "padding", padding, 0, self._rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Write the elements of `input` to `indices` in a larger image of zeros, of `output_size` if that is given."""
        return _UNPOOL[self._rank](input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


_UNPOOL: dict[int, Callable[..., Tensor]] = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}


class MaxUnpool1d(_MaxUnpool, rank=1):
    """The inverse of `MaxPool1d`, with zeros for all but the largest elements.

    Shape: input and indices (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> elements, indices = flow.nn.MaxPool1d(2, return_indices=True)(flow.tensor([[1.0, 4.0, 3.0, 2.0]]))
        >>> flow.nn.MaxUnpool1d(2)(elements, indices)
        tensor([[0., 4., 3., 0.]])
    """


class MaxUnpool2d(_MaxUnpool, rank=2):
    """The inverse of `MaxPool2d`, with zeros for all but the largest elements.

    Shape: input and indices (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> elements, indices = flow.nn.MaxPool2d(2, return_indices=True)(flow.tensor([[[1.0, 4.0], [3.0, 2.0]]]))
        >>> flow.nn.MaxUnpool2d(2)(elements, indices)
        tensor([[[0., 4.],
                 [0., 0.]]])
    """


class MaxUnpool3d(_MaxUnpool, rank=3):
    """The inverse of `MaxPool3d`, with zeros for all but the largest elements.

    Shape: input and indices (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or without N.

    Example:
        >>> elements, indices = flow.nn.MaxPool3d(2, return_indices=True)(flow.arange(8.0).reshape(1, 2, 2, 2))
        >>> flow.nn.MaxUnpool3d(2)(elements, indices).flatten()
        tensor([0., 0., 0., 0., 0., 0., 0., 7.])
    """


class _LPPool(FunctionLayer):
    """The base of power-average poolings: ``sum(x ** norm_type) ** (1 / norm_type)`` over each window.

    A negative sum counts as 0 unless `norm_type` is 1 or -1.

    The output's sizes are ``floor((size - kernel_size) / stride) + 1``.

    Args:
        norm_type: the exponent of the formula.
        kernel_size: the size of a window, an int for all dimensions or one for each.
        stride: the distance between windows, by default the size of the window.
        ceil_mode: whether to round up in the formula of the size, unless the last window would then begin behind the
            input; the sum of a window over the edge is scaled up as if the window were whole.

    Raises:
        TypeError: when called, for sizes that are no integers, or with anything else than a floating-point tensor.
        ValueError: when called, for a `norm_type` of 0, sizes out of range, or an input of another number of dimensions
            or too small.
    """

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool, function=F.lp_pool1d, rank=1):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over each window of sequences; see `vmflow.nn.functional.lp_pool2d`.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.LPPool1d(2, 2)(flow.tensor([[3.0, 4.0, 6.0, 8.0]]))
        tensor([[ 5., 10.]])
    """


class LPPool2d(_LPPool, function=F.lp_pool2d, rank=2):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over each window of images; see `vmflow.nn.functional.lp_pool2d`.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.LPPool2d(2, 2)(flow.tensor([[[1.0, 1.0], [1.0, 1.0]]]))
        tensor([[[2.]]])
    """


class LPPool3d(_LPPool, function=F.lp_pool3d, rank=3):
    """``sum(x ** norm_type) ** (1 / norm_type)`` over each window of volumes; see `vmflow.nn.functional.lp_pool2d`.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.LPPool3d(3, 2)(flow.ones(1, 2, 2, 2))
        tensor([[[[2.]]]])
    """


class _FractionalMaxPool(FunctionLayer):
    """The base of fractional max-poolings: maxima over windows that begin at random positions (B. Graham, 2014).

    Args:
        kernel_size: the size of a window, an int for all dimensions or one for each.
        output_size: the output's size, an int for all dimensions or one for each.
        output_ratio: instead of `output_size`, the output's size divided by the input's, between 0 and 1, a number for
            all dimensions or one for each.
        return_indices: whether to return also the flat indices of the largest elements within the image.
        _random_samples: numbers within [0, 1) that place the windows, instead of new random numbers: (N, C, the number
            of spatial dimensions).

    Raises:
        TypeError: for an `output_size` that is no integer; when called, for such a `kernel_size`, or with anything else
            than a floating-point tensor.
        ValueError: unless exactly one of `output_size` and `output_ratio` is given, and in range; when called, if the
            windows do not fit into the input, or for another number of dimensions.
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
    """The largest elements of windows of images that begin at random positions (B. Graham, 2014).

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.FractionalMaxPool2d(2, output_size=(3, 4))(flow.ones(1, 2, 8, 8)).shape
        vmflow.Size([1, 2, 3, 4])
    """


class FractionalMaxPool3d(_FractionalMaxPool, function=F.fractional_max_pool3d, rank=3):
    """The largest elements of windows of volumes that begin at random positions (B. Graham, 2014).

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, *output_size) or (C, *output_size).

    Example:
        >>> flow.nn.FractionalMaxPool3d(2, output_ratio=0.5)(flow.ones(1, 2, 8, 8, 8)).shape
        vmflow.Size([1, 2, 4, 4, 4])
    """
