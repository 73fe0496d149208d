"""Pooling: windows of an image reduced to their largest element or their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes
from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import COMPLEX, INTEGER
from vmflow.instructions.blob import Array, TensorMeta, meta

from . import pooling_kernels as kernels
from .elementwise import CHEAP
from .layer_operands import Pair, check_floating, in_single, is_half, pair
from .pooling_kernels import Planes, Window
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# What ops take: (kernel, stride, padding, dilation, ceil_mode)
_Sizes = tuple[Pair, Pair, Pair, Pair, bool]


def _windows(name: str, source: TensorMeta, sizes: _Sizes) -> tuple[Window, Window]:
    """The windows along the last two dimensions.

    Raises:
        ValueError: if none fits, or one lies wholly in the padding.
    """
    if len(source.shape) != 4:
        raise ValueError(
            f"{name}: expected an input (samples, channels, height, width) or (channels, height, width), got "
            f"{list(source.shape)}"
        )
    down, across = _window(name, source, sizes, 0), _window(name, source, sizes, 1)
    return down, across


def _window(name: str, source: TensorMeta, sizes: _Sizes, axis: int) -> Window:
    kernel, stride, padding, dilation = [it[axis] for it in sizes[:4]]
    ceil_mode = sizes[4]
    size = source.shape[axis + 2]
    reach = dilation * (kernel - 1) + 1
    if padding > reach // 2:
        raise ValueError(f"{name}: padding must be at most half of the kernel, {reach // 2}, got {padding}")
    spare = size + 2 * padding - reach
    output = (spare + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (output - 1) * stride >= size + padding:
        output -= 1  # the last window would begin behind the input
    if size == 0 or output < 1:
        raise ValueError(
            f"{name}: a window of {list(sizes[0])} does not fit into an input of shape {list(source.shape)} padded by "
            f"{list(sizes[2])}"
        )
    window = Window(size, output, kernel, stride, padding, dilation)
    if dilation > 1:
        starts = np.arange(output) * stride - padding
        firsts = window.first_taps()
        if (firsts >= kernel).any() or (starts + firsts * dilation >= size).any():
            raise ValueError(
                f"{name}: with dilation {list(sizes[3])} and padding {list(sizes[2])} a window "
                f"lies wholly in the padding of an input of shape {list(source.shape)}"
            )
    return window


# Maximum


def _check_max(name: str, source: TensorMeta) -> None:
    if not INTEGER <= source.dtype.category < COMPLEX:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")


def _infer_max_pool2d(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    _check_max("max_pool2d", source)
    xp = array_module(source.device)
    down, across = _windows("max_pool2d", source, cast("_Sizes", attributes))
    output = meta((*source.shape[:2], down.output, across.output), source.dtype, source.device)
    return Inferred(
        output,
        kernels.max_values_kernel(xp, Planes(xp, tuple(source.shape), down, across)),
        (source.numel + output.numel * (down.kernel + across.kernel)) * CHEAP * 2 + 5000,
    )


def _infer_max_pool2d_with_indices(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    _check_max("max_pool2d", source)
    xp = array_module(source.device)
    down, across = _windows("max_pool2d", source, cast("_Sizes", attributes))
    shape = (*source.shape[:2], down.output, across.output)
    output = meta(shape, source.dtype, source.device)
    return Inferred(
        (output, meta(shape, dtypes.int64, source.device)),
        kernels.max_indices_kernel(xp, Planes(xp, tuple(source.shape), down, across)),
        (source.numel + output.numel * (down.kernel + across.kernel)) * CHEAP * 6 + 10000,
    )


def _flat(xp: Any, indices: Array, plane: int) -> Array:
    """Indices into a plane each as indices into all planes in a row."""
    planes = indices.shape[0] * indices.shape[1]
    return (indices.reshape(planes, -1) + xp.arange(0, planes * plane, plane)[:, None]).reshape(-1)


def _infer_plane_scatter(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    height, width = cast("Pair", attributes)
    values = metas[0]
    device = common_device("max_pool2d", metas)
    output = meta((*values.shape[:2], height, width), values.dtype, device)
    xp = array_module(device)
    wide = dtypes.float32.numpy if is_half(values) else values.dtype.numpy

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        whole = xp.zeros(output.numel, wide)
        if output.numel:
            # Windows may overlap and share their largest element: each gradient counts.
            xp.add.at(whole, _flat(xp, places, height * width), array.reshape(-1).astype(wide, copy=False))
        return whole.reshape(output.shape).astype(values.dtype.numpy, copy=False)

    return Inferred(output, kernel, output.numel * CHEAP + values.numel * 10 + 5000)


def _infer_plane_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source, indices = metas
    device = common_device("max_pool2d", metas)
    output = meta(tuple(indices.shape), source.dtype, device)
    xp = array_module(device)
    plane = source.shape[2] * source.shape[3]

    def kernel(array: Array, places: Array, out: Array | None) -> Array:
        if not output.numel:
            return xp.empty(output.shape, source.dtype.numpy)
        return array.reshape(-1)[_flat(xp, places, plane)].reshape(output.shape)

    return Inferred(output, kernel, output.numel * 10 + 5000)


_MAX_POOL2D = OpExpr("max_pool2d", _infer_max_pool2d)
_MAX_POOL2D_WITH_INDICES = OpExpr("max_pool2d_with_indices", _infer_max_pool2d_with_indices)
_PLANE_SCATTER = OpExpr("plane_scatter", _infer_plane_scatter)
_PLANE_GATHER = OpExpr("plane_gather", _infer_plane_gather)


@_MAX_POOL2D_WITH_INDICES.gradient(outputs=(1,))
def _max_pool2d_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor]:
    shape = node.meta(0).shape
    return (_interpreter.dispatch(_PLANE_SCATTER, (gradient, node.output(1).detach()), (shape[2], shape[3])),)


@_PLANE_SCATTER.gradient(inputs=(1,))
def _plane_scatter_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    return _interpreter.dispatch(_PLANE_GATHER, (gradient, node.input(1))), None


@_PLANE_GATHER.gradient(inputs=(1,))
def _plane_gather_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    shape = node.meta(0).shape
    return _interpreter.dispatch(_PLANE_SCATTER, (gradient, node.input(1)), (shape[2], shape[3])), None


# Mean


# Attributes of both: (sizes, count_include_pad, divisor_override, shape of the input's images)
_Mean = tuple[_Sizes, bool, int | None, Pair]


def _infer_avg_pool2d(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    sizes, with_padding, override, _ = cast("_Mean", attributes)
    (source,) = metas
    check_floating("avg_pool2d", source)
    down, across = _windows("avg_pool2d", source, sizes)
    output = meta((*source.shape[:2], down.output, across.output), source.dtype, source.device)
    xp = array_module(source.device)
    planes = Planes(xp, tuple(source.shape), down, across)
    divisor = kernels.divisor_function(xp, down, across, with_padding, override)

    def kernel(array: Array, out: Array | None) -> Array:
        partial = kernels.total(xp, planes.inside(array), across, planes.across)
        result = planes.outside(kernels.total(xp, partial, down, planes.down))
        return xp.divide(result, divisor(array.dtype), result)

    cost = (source.numel + output.numel * (down.kernel + across.kernel)) * CHEAP * 2 + 5000
    return Inferred(output, in_single(kernel, is_half(source)), cost)


def _infer_avg_pool2d_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    sizes, with_padding, override, (height, width) = cast("_Mean", attributes)
    (gradient,) = metas
    output = meta((*gradient.shape[:2], height, width), gradient.dtype, gradient.device)
    down, across = _windows("avg_pool2d", output, sizes)
    xp = array_module(gradient.device)
    planes = Planes(xp, tuple(output.shape), down, across)
    divisor = kernels.divisor_function(xp, down, across, with_padding, override)

    def kernel(array: Array, out: Array | None) -> Array:
        partial = kernels.spread(xp, planes.inside(xp.divide(array, divisor(array.dtype))), down, planes.down)
        return planes.outside(kernels.spread(xp, partial, across, planes.across))

    cost = (output.numel + gradient.numel * (down.kernel + across.kernel)) * CHEAP * 2 + 5000
    return Inferred(output, in_single(kernel, is_half(gradient)), cost)


_AVG_POOL2D = OpExpr("avg_pool2d", _infer_avg_pool2d)
_AVG_POOL2D_GRADIENT = OpExpr("avg_pool2d_gradient", _infer_avg_pool2d_gradient)


@_AVG_POOL2D.gradient()
def _avg_pool2d_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_AVG_POOL2D_GRADIENT, (gradient,), node.attributes),)


@_AVG_POOL2D_GRADIENT.gradient()
def _avg_pool2d_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_AVG_POOL2D, (gradient,), node.attributes),)


# Mean over windows that divide the image as evenly as it goes.  Attributes of both: (output size, input size).


def _infer_adaptive(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (rows, columns), _ = cast("tuple[Pair, Pair]", attributes)
    (source,) = metas
    check_floating("adaptive_avg_pool2d", source)
    output = meta((*source.shape[:2], rows, columns), source.dtype, source.device)
    xp = array_module(source.device)

    def kernel(array: Array, out: Array | None) -> Array:
        return kernels.adaptive_mean(xp, kernels.adaptive_mean(xp, array, columns, 3), rows, 2)

    return Inferred(output, in_single(kernel, is_half(source)), source.numel * CHEAP * 4 + 5000)


def _infer_adaptive_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    _, (height, width) = cast("tuple[Pair, Pair]", attributes)
    (gradient,) = metas
    output = meta((*gradient.shape[:2], height, width), gradient.dtype, gradient.device)
    xp = array_module(gradient.device)

    def kernel(array: Array, out: Array | None) -> Array:
        return kernels.adaptive_spread(xp, kernels.adaptive_spread(xp, array, height, 2), width, 3)

    return Inferred(output, in_single(kernel, is_half(gradient)), output.numel * CHEAP * 4 + 5000)


_ADAPTIVE = OpExpr("adaptive_avg_pool2d", _infer_adaptive)
_ADAPTIVE_GRADIENT = OpExpr("adaptive_avg_pool2d_gradient", _infer_adaptive_gradient)


@_ADAPTIVE.gradient()
def _adaptive_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_ADAPTIVE_GRADIENT, (gradient,), node.attributes),)


@_ADAPTIVE_GRADIENT.gradient()
def _adaptive_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_ADAPTIVE, (gradient,), node.attributes),)


# Functions


def _sizes(name: str, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> _Sizes:
    size = pair(name, "kernel_size", kernel, 1)
    step = size if stride is None or stride in ((), []) else pair(name, "stride", stride, 1)
    margin, spread = pair(name, "padding", padding, 0), pair(name, "dilation", dilation, 1)
    return size, step, margin, spread, bool(ceil_mode)


def max_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window; nan if there is one.  Of equal ones, the first gets the gradient.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        kernel_size: of the window.
        stride: step of the window; its size by default.
        padding: elements smaller than any other around the input, at most half of the window.
        dilation: distance between the elements of the window.
        ceil_mode: whether windows may stick out below and to the right.
        return_indices: whether to return a pair: the elements, and their int64 indices into the flattened image.

    Returns:
        (samples, channels, rows, columns), rows being
        ``(height + 2 * padding - dilation * (kernel height - 1) - 1) // stride + 1``, rounded up with `ceil_mode`.

    Raises:
        TypeError: for bools and complex numbers.
        ValueError: if no window fits, or a size is out of range.
    """
    sizes = _sizes("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode)
    if input.ndim == 3:
        found = max_pool2d(input.unsqueeze(0), kernel_size, stride, padding, dilation, ceil_mode, return_indices)
        return (found[0].squeeze(0), found[1].squeeze(0)) if return_indices else found.squeeze(0)
    if return_indices or (input.requires_grad and is_grad_enabled()):
        values, indices = _interpreter.dispatch_several(_MAX_POOL2D_WITH_INDICES, (input,), sizes)
        return (values, indices) if return_indices else values
    return _interpreter.dispatch(_MAX_POOL2D, (input,), sizes)


def avg_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        kernel_size: of the window.
        stride: step of the window; its size by default.
        padding: zeros around the input, at most half of the window.
        ceil_mode: whether windows may stick out below and to the right.
        count_include_pad: whether the padding's zeros count.
        divisor_override: divide by this instead of by the number of elements.

    Returns:
        (samples, channels, rows, columns), rows being ``(height + 2 * padding - kernel height) // stride + 1``, rounded
        up with `ceil_mode`.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: if no window fits, or a size is out of range.
    """
    sizes = _sizes("avg_pool2d", kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None and (isinstance(divisor_override, bool) or not isinstance(divisor_override, int)):
        raise TypeError(f"avg_pool2d: divisor_override must be an integer, not {divisor_override!r}")
    if divisor_override == 0:
        raise ValueError("avg_pool2d: divisor_override must not be 0")
    if input.ndim == 3:
        return avg_pool2d(
            input.unsqueeze(0), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        ).squeeze(0)
    size = (input.shape[2], input.shape[3]) if input.ndim == 4 else (0, 0)
    return _interpreter.dispatch(_AVG_POOL2D, (input,), (sizes, bool(count_include_pad), divisor_override, size))


def adaptive_avg_pool2d(input: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """The mean of windows that divide the image into this many rows and columns, as evenly as it goes.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        output_size: rows and columns, one number for both; None keeps the input's.

    Returns:
        (samples, channels, rows, columns).  Row i is the mean of the input's rows from ``floor(i * height / rows)`` up
        to, without, ``ceil((i + 1) * height / rows)``.

    Raises:
        TypeError: for other than floating-point tensors.
        ValueError: for other numbers of dimensions, or an empty image.
    """
    name = "adaptive_avg_pool2d"
    if input.ndim == 3:
        return adaptive_avg_pool2d(input.unsqueeze(0), output_size).squeeze(0)
    if input.ndim != 4 or input.shape[2] == 0 or input.shape[3] == 0:
        raise ValueError(
            f"{name}: expected an input (samples, channels, height, width) or (channels, height, width) with height "
            f"and width above 0, got {list(input.shape)}"
        )
    check_floating(name, input._blob.meta)
    size = (input.shape[2], input.shape[3])
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if len(wanted) != 2:
        raise TypeError(f"{name}: output_size must be an integer or a pair of integers, not {output_size!r}")
    filled = [given if want is None else want for want, given in zip(wanted, size, strict=True)]
    rows, columns = pair(name, "output_size", filled, 1)
    if (rows, columns) == (1, 1):
        return input.mean((2, 3), keepdim=True)
    if size[0] % rows == 0 and size[1] % columns == 0:
        return avg_pool2d(input, (size[0] // rows, size[1] // columns))
    return _interpreter.dispatch(_ADAPTIVE, (input,), ((rows, columns), size))
