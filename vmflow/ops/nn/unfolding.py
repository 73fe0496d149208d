"""`unfold` copies the windows of images into columns (im2col); `fold` adds columns into images (col2im)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.instructions.blob import meta
from vmflow.kernels.problems.convolution import Geometry
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Margin, Metas, OpExpr, Size, Stride

from .layer_operands import Pair, Sizes, check_floating, check_shape, layout, sizes

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


class _Windows(NamedTuple):
    """The attributes of im2col and col2im: the images' size, the geometry of windows, and their numbers, `output`."""

    size: tuple[Size, ...]
    kernel: tuple[Stride, ...]
    stride: tuple[Stride, ...]
    padding: tuple[Margin, ...]
    dilation: tuple[Stride, ...]
    output: tuple[Size, ...]

    def check(self, name: str) -> None:
        """Raise ValueError unless all attributes are pairs, and `output` windows fit into the padded images."""
        if {len(numbers) for numbers in self} != {2}:
            raise ValueError(f"{name}: the windows {self} are not of two dimensions")
        for size, kernel, stride, padding, dilation, output in zip(*self, strict=True):
            if (output - 1) * stride + dilation * (kernel - 1) + 1 > size + 2 * padding:
                raise ValueError(f"{name}: the windows {self} do not lie within images of size {list(self.size)}")

    def geometry(self, samples: int, channels: int) -> Geometry:
        """Describe the windows, for the kernels, as the sizes of a convolution with one filter."""
        margin = self.padding
        return Geometry(
            samples,
            channels,
            self.size,
            1,
            self.kernel,
            self.output,
            self.stride,
            self.dilation,
            margin,
            margin,
            1,
        )


def _infer_unfold(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    windows = cast("_Windows", attributes)
    (source,) = metas
    windows.check("unfold")
    samples, channels = source.shape[:2]
    check_shape("unfold", "an input", source, (samples, channels, *windows.size))
    rows, pixels = channels * prod(windows.kernel), prod(windows.output)
    output = meta((samples, rows, pixels), source.dtype, source.device)
    return Inferred(output, output.numel * CHEAP * 3 + 5000, windows.geometry(samples, channels))


def _infer_fold(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    windows = cast("_Windows", attributes)
    (columns,) = metas
    windows.check("fold")
    samples, channels = columns.shape[0], columns.shape[1] // prod(windows.kernel)
    check_shape("fold", "an input", columns, (samples, channels * prod(windows.kernel), prod(windows.output)))
    check_floating("fold", columns)
    output = meta((samples, channels, *windows.size), columns.dtype, columns.device)
    return Inferred(output, columns.numel * CHEAP * 3 + 5000, windows.geometry(samples, channels))


_UNFOLD = OpExpr("im2col", _infer_unfold, Form(1, _Windows), "unfolding")
_FOLD = OpExpr("col2im", _infer_fold, Form(1, _Windows), "unfolding")


@_UNFOLD.gradient()
def _unfold_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_FOLD, (gradient,), node.attributes),)


@_FOLD.gradient()
def _fold_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_UNFOLD, (gradient,), node.attributes),)


def _windows(name: str, size: Sizes, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> _Windows:
    kernel, spread = sizes(name, "kernel_size", kernel_size, 1, 2), sizes(name, "dilation", dilation, 1, 2)
    margin, step = sizes(name, "padding", padding, 0, 2), sizes(name, "stride", stride, 1, 2)
    output: list[int] = []
    for axis in (0, 1):
        spare = size[axis] + 2 * margin[axis] - spread[axis] * (kernel[axis] - 1) - 1
        if spare < 0 or not size[axis]:
            raise ValueError(
                f"{name}: windows of {list(kernel)} with dilation {list(spread)} do not fit into an image of "
                f"{list(size)} padded by {list(margin)}"
            )
        output.append(spare // step[axis] + 1)
    return _Windows(size, kernel, step, margin, spread, tuple(output))


def unfold(
    input: Tensor,
    kernel_size: int | Pair,
    dilation: int | Pair = 1,
    padding: int | Pair = 0,
    stride: int | Pair = 1,
) -> Tensor:
    """Copy the windows of an image into columns.

    Args:
        input: (samples, channels, height, width), or (channels, height, width), floating-point.
        kernel_size: of the window.
        dilation: distance between the elements of the window.
        padding: the number of zeros added on each side.
        stride: step of the window.

    Returns:
        (samples, channels * kernel height * kernel width, windows), or without samples; the windows row by row.

    Raises:
        TypeError: if `input` is not floating-point, or a size is no integer.
        ValueError: for shapes that do not fit, or a size that is out of range.

    Example:
        >>> flow.nn.functional.unfold(flow.tensor([[[1.0, 2.0, 3.0]]]), (1, 2))
        tensor([[1., 2.],
                [2., 3.]])
    """
    check_tensors("unfold", input)
    check_floating("unfold", input._blob.meta)
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    if input.ndim != 4:
        raise ValueError(f"unfold: expected an input {layout(2)}, got {list(input.shape)}")
    windows = _windows("unfold", tuple(input.shape[2:]), kernel_size, dilation, padding, stride)
    return _interpreter.dispatch(_UNFOLD, (input,), windows)


def fold(
    input: Tensor,
    output_size: int | Pair,
    kernel_size: int | Pair,
    dilation: int | Pair = 1,
    padding: int | Pair = 0,
    stride: int | Pair = 1,
) -> Tensor:
    """Add columns into an image, each to the window from which `unfold` copies it.

    Args:
        input: (samples, channels * kernel height * kernel width, windows), or without samples, floating-point.
        output_size: the size of the image, without its padding.
        kernel_size, dilation, padding, stride: as for `unfold`.

    Returns:
        (samples, channels, *output_size), or without samples.

    Raises:
        TypeError, ValueError: as `unfold`.

    Example:
        >>> flow.nn.functional.fold(flow.ones(2, 2), (1, 3), (1, 2))
        tensor([[[1., 2., 1.]]])
    """
    check_tensors("fold", input)
    check_floating("fold", input._blob.meta)
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    size = sizes("fold", "output_size", output_size, 1, 2)
    windows = _windows("fold", size, kernel_size, dilation, padding, stride)
    taps, count = prod(windows.kernel), prod(windows.output)
    if input.ndim != 3 or input.shape[1] % taps or input.shape[2] != count:
        raise ValueError(
            f"fold: expected an input (samples, channels * {taps}, {count}) for windows of {list(windows.kernel)} in "
            f"an image of {list(size)}, got {list(input.shape)}"
        )
    return _interpreter.dispatch(_FOLD, (input,), windows)
