"""Pooling: windows of a line, an image or a volume reduced to their largest element or their mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import flag, whole_number
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import COMPLEX, INTEGER
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.pooling import Window
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import (
    Attributes,
    Form,
    Inferred,
    Kinds,
    Margin,
    Metas,
    OpExpr,
    Size,
    Stride,
    common_device,
    none_listed,
)

from .layer_operands import SPATIAL, Pair, Sizes, batched, check_floating, check_shape, layout, sizes

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


class _Shape(NamedTuple):
    """The geometry of the windows, with one number for each spatial dimension: the attributes of max-pooling ops."""

    kernel: tuple[Stride, ...]
    stride: tuple[Stride, ...]
    padding: tuple[Margin, ...]
    dilation: tuple[Stride, ...]
    ceil_mode: bool


def _windows(name: str, source: TensorMeta, shape: _Shape) -> tuple[Window, ...]:
    """Check pooling windows against an input, and describe them, for the kernels, along each spatial dimension.

    Raises:
        ValueError: if the input has another number of dimensions, no window fits, padding exceeds half of a (dilated)
            window, or a window lies entirely in the padding.
    """
    rank = len(shape.kernel)
    if {len(numbers) for numbers in shape[:4]} != {rank}:
        raise ValueError(f"{name}: the windows {shape} are not of {rank} dimensions")
    if len(source.shape) != rank + 2:
        raise ValueError(f"{name}: expected an input {layout(rank)}, got {list(source.shape)}")
    return tuple([_window(name, source, shape, axis) for axis in range(rank)])


def _output(windows: tuple[Window, ...], source: TensorMeta) -> TensorMeta:
    size = [window.output for window in windows]
    return meta((*source.shape[:2], *size), source.dtype, source.device)


def _taps(windows: tuple[Window, ...]) -> int:
    return sum([window.kernel for window in windows])


def _window(name: str, source: TensorMeta, shape: _Shape, axis: int) -> Window:
    kernel, stride, padding, dilation = [numbers[axis] for numbers in shape[:4]]
    ceil_mode = shape.ceil_mode
    size = source.shape[axis + 2]
    reach = dilation * (kernel - 1) + 1
    if padding > reach // 2:
        raise ValueError(f"{name}: padding must be at most half of the kernel, {reach // 2}, got {padding}")
    spare = size + 2 * padding - reach
    output = (spare + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (output - 1) * stride >= size + padding:
        output -= 1  # drop the last window, which would begin behind the input
    if size == 0 or output < 1:
        raise ValueError(
            f"{name}: a window of {list(shape.kernel)} does not fit into an input of shape {list(source.shape)} "
            f"padded by {list(shape.padding)}"
        )
    window = Window(size, output, kernel, stride, padding, dilation)
    if dilation > 1:
        # With dilation, a window may jump over the input.  Check the windows that begin in the padding before it, and
        # the last window: all others touch the input.
        doubtful = range(min(output, -(-padding // stride)))
        if not window.reaches_in(output - 1) or not all(window.reaches_in(number) for number in doubtful):
            raise ValueError(
                f"{name}: with dilation {list(shape.dilation)} and padding {list(shape.padding)} a window "
                f"lies wholly in the padding of an input of shape {list(source.shape)}"
            )
    return window


# Maximum


def _check_max(name: str, source: TensorMeta) -> None:
    if not INTEGER <= source.dtype.category < COMPLEX:
        raise TypeError(f"{name} is not defined for {source.dtype.name} tensors")


def _max_name(shape: _Shape) -> str:
    return f"max_pool{len(shape.kernel)}d"


def _infer_max(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    shape = cast("_Shape", attributes)
    (source,) = metas
    _check_max(_max_name(shape), source)
    windows = _windows(_max_name(shape), source, shape)
    output = _output(windows, source)
    return Inferred(output, (source.numel + output.numel * _taps(windows)) * CHEAP * 2 + 5000, windows)


def _infer_max_with_indices(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    shape = cast("_Shape", attributes)
    (source,) = metas
    _check_max(_max_name(shape), source)
    windows = _windows(_max_name(shape), source, shape)
    output = _output(windows, source)
    indices = meta(tuple(output.shape), dtypes.int64, source.device)
    return Inferred((output, indices), (source.numel + output.numel * _taps(windows)) * CHEAP * 6 + 10000, windows)


def _check_indices(name: str, indices: TensorMeta, rank: int) -> None:
    if indices.dtype is not dtypes.int64 or len(indices.shape) != rank + 2:
        raise ValueError(f"{name}: expected indices {layout(rank)} of int64, got {indices}")


def _infer_plane_scatter(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    size = cast("Sizes", attributes)
    values, indices = metas
    device = common_device("plane_scatter", metas)
    _check_indices("plane_scatter", indices, len(size))
    check_shape("plane_scatter", "indices", indices, values.shape)
    check_floating("plane_scatter", values)
    output = meta((*values.shape[:2], *size), values.dtype, device)
    return Inferred(output, output.numel * CHEAP + values.numel * 10 + 5000)


def _infer_plane_gather(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    source, indices = metas
    device = common_device("plane_gather", metas)
    _check_indices("plane_gather", indices, len(source.shape) - 2)
    if indices.shape[:2] != source.shape[:2]:
        raise ValueError(f"plane_gather: indices {indices} are not of the planes of {source}")
    output = meta(tuple(indices.shape), source.dtype, device)
    return Inferred(output, output.numel * 10 + 5000)


_PLANE_SCATTER = OpExpr("plane_scatter", _infer_plane_scatter, Form(2, tuple[Size, ...]), "pooling")
_PLANE_GATHER = OpExpr("plane_gather", _infer_plane_gather, Form(2), "pooling")


def max_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor]:
    """The gradient rule of max-pooling ops: scatter the gradient to the indices of the largest elements.

    The second output of the op has these indices into the flattened image."""
    size = tuple(node.meta(0).shape[2:])
    return (_interpreter.dispatch(_PLANE_SCATTER, (gradient, node.output(1).detach()), size),)


@_PLANE_SCATTER.gradient(inputs=(1,))
def _plane_scatter_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    return _interpreter.dispatch(_PLANE_GATHER, (gradient, node.input(1))), None


@_PLANE_GATHER.gradient(inputs=(1,))
def _plane_gather_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor, None]:
    size = tuple(node.meta(0).shape[2:])
    return _interpreter.dispatch(_PLANE_SCATTER, (gradient, node.input(1)), size), None


# Mean


class _Mean(NamedTuple):
    """The attributes of average pooling ops and their gradients.

    Attributes:
        shape: the geometry of the windows.
        with_padding: whether the padding's zeros count as elements of the window.
        override: the divisor in place of the number of elements, or None.
        size: the spatial size of the input."""

    shape: _Shape
    with_padding: bool
    override: int | None
    size: tuple[Size, ...]


def _mean_name(attributes: _Mean) -> str:
    return f"avg_pool{len(attributes.shape.kernel)}d"


def _infer_mean(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    how = cast("_Mean", attributes)
    (source,) = metas
    check_floating(_mean_name(how), source)
    windows = _windows(_mean_name(how), source, how.shape)
    output = _output(windows, source)
    return Inferred(output, (source.numel + output.numel * _taps(windows)) * CHEAP * 2 + 5000, windows)


def _infer_mean_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    how = cast("_Mean", attributes)
    (gradient,) = metas
    output = meta((*gradient.shape[:2], *how.size), gradient.dtype, gradient.device)
    check_floating(_mean_name(how), gradient)
    windows = _windows(_mean_name(how), output, how.shape)
    check_shape(_mean_name(how), "gradient", gradient, _output(windows, output).shape)
    return Inferred(output, (output.numel + gradient.numel * _taps(windows)) * CHEAP * 2 + 5000, windows)


def _mean_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    how = cast("_Mean", node.attributes)
    return (_interpreter.dispatch(FAMILIES[len(how.size)].mean_gradient, (gradient,), how),)


def _mean_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    how = cast("_Mean", node.attributes)
    return (_interpreter.dispatch(FAMILIES[len(how.size)].mean, (gradient,), how),)


# The ops


class _Family(NamedTuple):
    """The ops of pooling for one number of spatial dimensions."""

    largest: OpExpr
    largest_with_indices: OpExpr
    mean: OpExpr
    mean_gradient: OpExpr


def _declared(rank: int) -> _Family:
    family = _Family(
        OpExpr(f"max_pool{rank}d", _infer_max, Form(1, _Shape), "pooling"),
        OpExpr(f"max_pool{rank}d_with_indices", _infer_max_with_indices, Form(1, _Shape), "pooling"),
        OpExpr(f"avg_pool{rank}d", _infer_mean, Form(1, _Mean), "pooling"),
        OpExpr(f"avg_pool{rank}d_gradient", _infer_mean_gradient, Form(1, _Mean), "pooling"),
    )
    family.largest_with_indices.gradient(outputs=(1,))(max_gradient)
    family.mean.gradient()(_mean_gradient)
    family.mean_gradient.gradient()(_mean_gradient_gradient)
    return family


FAMILIES: Final = {rank: _declared(rank) for rank in (1, 2, 3)}


# Functions


def _shape(name: str, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> _Shape:
    size = sizes(name, "kernel_size", kernel, 1, rank)
    step = size if stride is None or none_listed(stride) else sizes(name, "stride", stride, 1, rank)
    margin, spread = sizes(name, "padding", padding, 0, rank), sizes(name, "dilation", dilation, 1, rank)
    return _Shape(size, step, margin, spread, flag(name, "ceil_mode", ceil_mode))


def in_data_format(name: str, rank: int, input: Tensor, data_format: str, function: Callable[[Tensor], Any]) -> Any:
    """Apply `function`, which takes channels before `rank` spatial dimensions, to an input in `data_format`.

    The results, one tensor or a tuple, are converted to that format.

    Raises:
        ValueError: for another `data_format` than "channels_first" and "channels_last", or a channels-last input of
            other than ``rank + 1`` or ``rank + 2`` dimensions.
    """
    check_tensors(name, input)
    if data_format == "channels_first":
        return function(input)
    if data_format != "channels_last":
        raise ValueError(f"{name}: data_format must be 'channels_first' or 'channels_last', not {data_format!r}")
    if input.ndim not in (rank + 1, rank + 2):
        raise ValueError(
            f"{name}: expected an input (samples, {SPATIAL[rank]}, channels) or ({SPATIAL[rank]}, channels), got "
            f"{list(input.shape)}"
        )
    results = function(input.movedim(-1, -rank - 1))
    if isinstance(results, tuple):
        return tuple([result.movedim(-rank - 1, -1) for result in results])
    return results.movedim(-rank - 1, -1)


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
    data_format: str,
) -> Any:
    name = f"max_pool{rank}d"
    shape = _shape(name, rank, kernel_size, stride, padding, dilation, ceil_mode)

    def function(batch: Tensor) -> Any:
        if return_indices or (batch.requires_grad and is_grad_enabled()):
            found = _interpreter.dispatch_several(FAMILIES[rank].largest_with_indices, (batch,), shape)
            return (found[0], found[1]) if return_indices else found[0]
        return _interpreter.dispatch(FAMILIES[rank].largest, (batch,), shape)

    return in_data_format(name, rank, input, data_format, lambda moved: batched(rank, moved, function))


def max_pool1d(
    input: Tensor,
    kernel_size: int | tuple[int],
    stride: int | tuple[int] | None = None,
    padding: int | tuple[int] = 0,
    dilation: int | tuple[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: str = "channels_first",
) -> Any:
    """The largest element of each window of (samples, channels, length), or (channels, length); see `max_pool2d`.

    Raises:
        TypeError, ValueError: as `max_pool2d`.

    Example:
        >>> flow.max_pool1d(flow.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
        tensor([[3., 4.]])
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def max_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: str = "channels_first",
) -> Any:
    """The largest element of each window; nan if an element is nan.  The first of equal elements gets the gradient.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        kernel_size: of the window.
        stride: step of the window; the window's size by default.
        padding: the number of lowest values (such as -inf) added on each side, at most half of the (dilated) window.
        dilation: distance between the elements of the window.
        ceil_mode: whether windows may stick out below and to the right.
        return_indices: whether to return a pair: the elements, and their int64 indices into the flattened image.
        data_format: "channels_first", as above, or "channels_last", of input and output.

    Returns:
        (samples, channels, rows, columns), or without samples, rows being
        ``(height + 2 * padding - dilation * (kernel height - 1) - 1) // stride + 1``; with `ceil_mode` rounded up, but
        no window begins behind the input.

    Raises:
        TypeError: for bools and complex numbers, or if a size is no integer or `ceil_mode` no bool.
        ValueError: if no window fits or one has only padding, a size is out of range, or for another data format or
            number of dimensions.

    Example:
        >>> flow.max_pool2d(flow.tensor([[[1.0, 3.0], [2.0, 4.0]]]), 2)
        tensor([[[4.]]])
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def max_pool3d(
    input: Tensor,
    kernel_size: int | Sizes,
    stride: int | Sizes | None = None,
    padding: int | Sizes = 0,
    dilation: int | Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    *,
    data_format: str = "channels_first",
) -> Any:
    """The largest element of each window of (samples, channels, depth, height, width); see `max_pool2d`.

    Raises:
        TypeError, ValueError: as `max_pool2d`.

    Example:
        >>> flow.max_pool3d(flow.arange(8.0).reshape(1, 2, 2, 2), 2)
        tensor([[[[7.]]]])
    """
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, data_format)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    data_format: str,
) -> Tensor:
    name = f"avg_pool{rank}d"
    shape = _shape(name, rank, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None:
        divisor_override = whole_number(name, "divisor_override", divisor_override)
    if divisor_override == 0:
        raise ValueError(f"{name}: divisor_override must not be 0")

    def function(batch: Tensor) -> Tensor:
        how = _Mean(shape, flag(name, "count_include_pad", count_include_pad), divisor_override, tuple(batch.shape[2:]))
        return _interpreter.dispatch(FAMILIES[rank].mean, (batch,), how)

    result: Tensor = in_data_format(name, rank, input, data_format, lambda moved: batched(rank, moved, function))
    return result


def avg_pool1d(
    input: Tensor,
    kernel_size: int | tuple[int],
    stride: int | tuple[int] | None = None,
    padding: int | tuple[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of the elements of each window of (samples, channels, length), or (channels, length); see `avg_pool2d`.

    Raises:
        TypeError, ValueError: as `avg_pool2d`.

    Example:
        >>> flow.avg_pool1d(flow.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
        tensor([[2., 3.]])
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, data_format)


def avg_pool2d(
    input: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of each window.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        kernel_size: of the window.
        stride: step of the window; the window's size by default.
        padding: the number of zeros added on each side, at most half of the window.
        ceil_mode: whether windows may stick out below and to the right; only elements of the padded input count.
        count_include_pad: whether the padding's zeros count as elements of the window.
        divisor_override: the divisor, in place of the number of elements.
        data_format: "channels_first", as above, or "channels_last", of input and output.

    Returns:
        (samples, channels, rows, columns), or without samples, rows being
        ``(height + 2 * padding - kernel height) // stride + 1``; with `ceil_mode` rounded up, but no window begins
        behind the input.

    Raises:
        TypeError: if `input` is not floating-point, a size or `divisor_override` is no integer, or a flag no bool.
        ValueError: if no window fits, a size is out of range, the divisor is 0, or for another data format or number of
            dimensions.

    Example:
        >>> flow.nn.functional.avg_pool2d(flow.tensor([[[1.0, 3.0], [2.0, 4.0]]]), 2)
        tensor([[[2.5000]]])
    """
    return _avg_pool(
        2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, data_format
    )


def avg_pool3d(
    input: Tensor,
    kernel_size: int | Sizes,
    stride: int | Sizes | None = None,
    padding: int | Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    data_format: str = "channels_first",
) -> Tensor:
    """The mean of the elements of each window of (samples, channels, depth, height, width); see `avg_pool2d`.

    Raises:
        TypeError, ValueError: as `avg_pool2d`.

    Example:
        >>> flow.nn.functional.avg_pool3d(flow.arange(8.0).reshape(1, 2, 2, 2), 2)
        tensor([[[[3.5000]]]])
    """
    return _avg_pool(
        3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, data_format
    )
