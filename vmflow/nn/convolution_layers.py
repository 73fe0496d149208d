"""The layers of convolutions and transposed convolutions in one to three dimensions; and `Unfold` and `Fold`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.nn.convolution import around
from vmflow.ops.nn.layer_operands import Sizes, layout, sizes
from vmflow.ops.shape.view import lengths
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer
from .layers import draw_by_fan_in
from .module import unusual_settings
from .parameter import new_parameter
from .ranked_layer import RankedLayer

# The type of sizes such as `kernel_size`: one number for all spatial dimensions, or one for each.
Size = int | tuple[int, ...]

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(RankedLayer):
    """The base of convolutions and transposed convolutions: it checks their settings and makes their parameters."""

    output_padding: Sizes

    def _set_up(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        padding_mode: str,
    ) -> None:
        name = type(self).__name__
        lengths(name, (in_channels, out_channels))
        groups = whole_number(name, "groups", groups)
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{name}: {in_channels} input and {out_channels} output channels cannot be split into {groups} groups"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = sizes(name, "kernel_size", kernel_size, 0, self._rank)
        self.stride = sizes(name, "stride", stride, 1, self._rank)
        self.padding = padding if isinstance(padding, str) else sizes(name, "padding", padding, 0, self._rank)
        self.dilation = sizes(name, "dilation", dilation, 1, self._rank)
        self.output_padding = (0,) * self._rank
        self.groups = groups
        self.padding_mode = padding_mode

    def _make_parameters(
        self, shape: tuple[int, ...], bias: bool, device: Device | str | None, dtype: DType | None
    ) -> None:
        self.weight = new_parameter((*shape, *self.kernel_size), device, dtype)
        self.register_parameter("bias", new_parameter((self.out_channels,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values of the weight and the bias."""
        draw_by_fan_in(self.weight, self.bias)

    def extra_repr(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        none, one = (0,) * self._rank, (1,) * self._rank
        usual = {"padding": none, "dilation": one, "output_padding": none, "groups": 1}
        shown += unusual_settings(self, usual)
        if self.bias is None:
            shown += ", bias=False"
        return shown if self.padding_mode == "zeros" else f"{shown}, padding_mode={self.padding_mode}"


class Convolution(_Convolution):
    """The base of convolution layers (cross-correlations, as everywhere in deep learning).

    The output's sizes are ``floor((size + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1``.

    Args:
        in_channels, out_channels: the numbers of channels, both divisible by `groups`.
        kernel_size, stride, padding, dilation: an int for all dimensions, or one for each.  `padding` may be "same"
            (the output has the input's size) or "valid" (no padding).
        groups: the number of independent parts into which the channels are split.
        bias: whether to add a bias.
        padding_mode: how the input is padded: "zeros", "reflect", "replicate" or "circular", as by `F.pad`.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight: (out_channels, in_channels / groups, *kernel_size).
        bias: (out_channels,), or None.

    Raises:
        TypeError: for sizes that are neither an int nor one for each dimension; when called with another dtype than the
            weight's.
        ValueError: for sizes out of range, channels that `groups` does not divide, another padding mode, or the padding
            "same" with a stride above 1; when called with another number of dimensions or channels, an empty kernel, a
            padded input smaller than the kernel, or more padding than the padding mode allows.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"{name}: padding_mode must be one of {', '.join(_PADDING_MODES)}, not {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"{name}: padding must be a size, 'same' or 'valid', not {padding!r}")
        self._set_up(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        if padding == "same" and max(self.stride) > 1:
            raise ValueError(f"{name}: padding='same' needs a stride of 1, got {stride}")
        self._make_parameters((out_channels, in_channels // groups), bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve an input (N, in_channels, ...) to (N, out_channels, ...), or both without N."""
        return self.convolved(input, self.weight)

    def convolved(self, input: Tensor, weight: Tensor) -> Tensor:
        """Convolve `input` as `forward` does, but with the given weight instead of the layer's own."""
        padding: Sizes | str | int = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._borders(), self.padding_mode), 0
        return _CONVOLUTIONS[self._rank](input, weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _borders(self) -> list[int]:
        """The padding as `F.pad` takes it: numbers before and behind, from the last spatial dimension to the first."""
        if isinstance(self.padding, str):
            before, behind = around(self.padding, self.dilation, self.kernel_size)
        else:
            before = behind = self.padding
        return [value for both in zip(reversed(before), reversed(behind), strict=True) for value in both]


class Conv1d(Convolution, rank=1):
    """Convolution of sequences.

    Shape: input (N, C_in, L) or (C_in, L), output (N, C_out, L_out) or (C_out, L_out).

    Example:
        >>> flow.nn.Conv1d(3, 4, kernel_size=2)(flow.ones(1, 3, 10)).shape
        vmflow.Size([1, 4, 9])
    """


class Conv2d(Convolution, rank=2):
    """Convolution of images.

    Shape: input (N, C_in, H, W) or (C_in, H, W), output (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> flow.nn.Conv2d(3, 4, kernel_size=3, padding=1)(flow.ones(1, 3, 8, 10)).shape
        vmflow.Size([1, 4, 8, 10])
    """


class Conv3d(Convolution, rank=3):
    """Convolution of volumes.

    Shape: input (N, C_in, D, H, W) or (C_in, D, H, W), output (N, C_out, D_out, H_out, W_out) or without N.

    Example:
        >>> flow.nn.Conv3d(3, 4, kernel_size=2, stride=2)(flow.ones(1, 3, 4, 6, 8)).shape
        vmflow.Size([1, 4, 2, 3, 4])
    """


class _Transposed(_Convolution):
    """The base of transposed convolutions: each input element, times the kernel, is added to a window of the output.

    A transposed convolution computes the gradient of a convolution by its input.  The output's sizes are
    ``(size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1``.

    Args:
        in_channels, out_channels: the numbers of channels, both divisible by `groups`.
        kernel_size, stride, padding, output_padding, dilation: an int for all dimensions, or one for each.
        groups: the number of independent parts into which the channels are split.
        bias: whether to add a bias.
        padding_mode: must be "zeros".
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight: (in_channels, out_channels / groups, *kernel_size).
        bias: (out_channels,), or None.

    Raises:
        TypeError: for sizes that are neither an int nor one for each dimension; when called with another dtype than the
            weight's.
        ValueError: for sizes out of range, channels that `groups` does not divide, or another padding mode; when called
            with another number of dimensions or channels, an empty kernel, an impossible `output_size`, an
            `output_padding` that is below neither stride nor dilation, or a padding that leaves no output.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ValueError(f"{name}: padding_mode must be 'zeros', not {padding_mode!r}")
        padding = sizes(name, "padding", padding, 0, self._rank)
        self._set_up(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.output_padding = sizes(name, "output_padding", output_padding, 0, self._rank)
        self._make_parameters((in_channels, out_channels // groups), bias, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Convolve an input (N, in_channels, ...) to (N, out_channels, ...), or both without N.

        Args:
            input: (N, in_channels, ...), or (in_channels, ...).
            output_size: the spatial sizes of the result, or its whole shape, where several are possible; if given, it
                replaces `output_padding`.
        """
        extra = self.output_padding if output_size is None else self._output_padding(input, output_size)
        return _TRANSPOSED[self._rank](
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _output_padding(self, input: Tensor, output_size: Sequence[int]) -> Sizes:
        name, rank = type(self).__name__, self._rank
        check_tensors(name, input)
        if input.ndim not in (rank + 1, rank + 2):
            raise ValueError(f"{name}: expected an input {layout(rank)}, got shape {list(input.shape)}")
        wanted = tuple(output_size)
        if len(wanted) == input.ndim:
            wanted = wanted[-rank:]
        if len(wanted) != rank or isinstance(self.padding, str):
            raise ValueError(f"{name}: output_size must have {rank} or {input.ndim} numbers, got {list(output_size)}")
        least = [
            (size - 1) * stride - 2 * padding + dilation * (taps - 1) + 1
            for size, stride, padding, dilation, taps in zip(
                input.shape[-rank:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        extra = tuple([want - low for want, low in zip(wanted, least, strict=True)])
        if any(not 0 <= value < stride for value, stride in zip(extra, self.stride, strict=True)):
            most = [low + stride - 1 for low, stride in zip(least, self.stride, strict=True)]
            raise ValueError(
                f"{name}: of an input of shape {list(input.shape)} the output can be from {least} to {most} large, not "
                f"{list(wanted)}"
            )
        return extra


class ConvTranspose1d(_Transposed, rank=1):
    """Transposed convolution of sequences.

    Shape: input (N, C_in, L) or (C_in, L), output (N, C_out, L_out) or (C_out, L_out).

    Example:
        >>> flow.nn.ConvTranspose1d(3, 4, kernel_size=2, stride=2)(flow.ones(1, 3, 5)).shape
        vmflow.Size([1, 4, 10])
    """


class ConvTranspose2d(_Transposed, rank=2):
    """Transposed convolution of images.

    Shape: input (N, C_in, H, W) or (C_in, H, W), output (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> layer = flow.nn.ConvTranspose2d(3, 4, kernel_size=3, stride=2)
        >>> layer(flow.ones(1, 3, 4, 4)).shape, layer(flow.ones(1, 3, 4, 4), output_size=(10, 10)).shape
        (vmflow.Size([1, 4, 9, 9]), vmflow.Size([1, 4, 10, 10]))
    """


class ConvTranspose3d(_Transposed, rank=3):
    """Transposed convolution of volumes.

    Shape: input (N, C_in, D, H, W) or (C_in, D, H, W), output (N, C_out, D_out, H_out, W_out) or without N.

    Example:
        >>> flow.nn.ConvTranspose3d(3, 4, kernel_size=2, stride=2)(flow.ones(1, 3, 2, 3, 4)).shape
        vmflow.Size([1, 4, 4, 6, 8])
    """


class Unfold(FunctionLayer, function=F.unfold):
    """Turns the sliding windows of an image into columns (im2col).

    Shape: input (N, C, H, W) or (C, H, W), output (N, C * window, L) or (C * window, L), where L is the number of
    windows and ``window`` the product of `kernel_size`.

    Args:
        kernel_size, dilation, padding, stride: an int for both dimensions, or a pair.

    Raises:
        TypeError: when called, for sizes that are neither an int nor a pair, or with anything else than a
            floating-point tensor.
        ValueError: when called, for sizes out of range, another number of dimensions, or windows that do not fit into
            the image.

    Example:
        >>> flow.nn.Unfold(2)(flow.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]))
        tensor([[1., 2.],
                [2., 3.],
                [4., 5.],
                [5., 6.]])
    """

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(FunctionLayer, function=F.fold):
    """Adds windows, given as columns, into an image (col2im): the adjoint of `Unfold`.

    Shape: input (N, C * window, L) or (C * window, L), output (N, C, *output_size) or (C, *output_size), where L is the
    number of windows and ``window`` the product of `kernel_size`.

    Args:
        output_size, kernel_size, dilation, padding, stride: an int for both dimensions, or a pair.

    Raises:
        TypeError: when called, for sizes that are neither an int nor a pair, or with anything else than a
            floating-point tensor.
        ValueError: when called, for sizes out of range, or an input of another shape.

    Example:
        >>> flow.nn.Fold((2, 3), 2)(flow.ones(4, 2))
        tensor([[[1., 2., 1.],
                 [1., 2., 1.]]])
    """

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__(
            output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
        )
