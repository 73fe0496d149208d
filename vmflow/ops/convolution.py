"""Convolution: what the op is, and its three products (output, gradient by input, gradient by weight).

Each of the three is bilinear, and its gradients are the other two, so that derivatives of any order need nothing else.
A backward pass that is not recorded itself computes the gradients by all operands in one op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import Array, TensorMeta, meta

from . import convolution_kernels as kernels
from .convolution_kernels import Geometry, Wanted
from .layer_operands import Pair, check_floating, in_single, is_half, pair
from .table import Attributes, Inferred, Kinds, Metas, OpExpr, array_module, common_device

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# The ops.  Those of one product have a `_Window` as their attributes.


class _Window(NamedTuple):
    """How the kernel moves.

    Attributes:
        stride, before, behind, dilation, groups: see `Geometry`.
        size: of the result where the operands do not tell it: the input's (height, width) for the gradient by the
            input, the kernel's for the gradient by the weight, None for the convolution itself.
    """

    stride: Pair
    before: Pair
    behind: Pair
    dilation: Pair
    groups: int
    size: Pair | None

    def output_size(self, name: str, source: TensorMeta, kernel: Pair) -> Pair:
        """How often the kernel fits down and across.

        Raises:
            ValueError: if it does not fit once.
        """
        sizes: list[int] = []
        for axis in (0, 1):
            length = source.shape[axis + 2] + self.before[axis] + self.behind[axis]
            reach = self.dilation[axis] * (kernel[axis] - 1) + 1
            if reach > length:
                raise ValueError(
                    f"{name}: a kernel of {list(kernel)} with dilation {list(self.dilation)} does not fit into an "
                    f"input of shape {list(source.shape)} padded by {list(self.before)} and {list(self.behind)}"
                )
            sizes.append((length - reach) // self.stride[axis] + 1)
        return sizes[0], sizes[1]


def _common_dtype(name: str, metas: Metas) -> None:
    for other in metas[1:]:
        if other.dtype is not metas[0].dtype:
            raise TypeError(
                f"{name}: expected one dtype, got {' and '.join(it.dtype.name for it in metas)}; cast with .to()"
            )


def _checked_geometry(window: _Window, metas: Metas) -> Geometry:
    """The sizes of a convolution of these operands.

    Raises:
        TypeError, ValueError: if they do not fit.
    """
    source, weight, *bias = metas
    common_device("conv2d", metas)
    check_floating("conv2d", source)
    _common_dtype("conv2d", metas)
    if len(source.shape) != 4 or len(weight.shape) != 4:
        raise ValueError(
            f"conv2d: expected an input (samples, channels, height, width) or (channels, height, width) and a weight "
            f"(filters, channels / groups, height, width), got {list(source.shape)} and {list(weight.shape)}"
        )
    filters, fan, height, width = weight.shape
    if source.shape[1] != fan * window.groups or filters % window.groups:
        raise ValueError(
            f"conv2d: an input of shape {list(source.shape)} does not fit a weight of shape {list(weight.shape)} with "
            f"groups={window.groups}: channels must be {fan * window.groups}, and filters a multiple of the groups"
        )
    if not (height and width):
        raise ValueError(f"conv2d: the kernel of a weight of shape {list(weight.shape)} is empty")
    if bias and bias[0].shape != (filters,):
        raise ValueError(
            f"conv2d: a bias of shape {list(bias[0].shape)} does not fit a weight of shape {list(weight.shape)}; "
            f"expected [{filters}]"
        )
    return _geometry(source, filters, (height, width), window.output_size("conv2d", source, (height, width)), window)


def _infer_conv2d(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    it = _checked_geometry(cast("_Window", attributes), metas)
    source = metas[0]
    output = meta((it.samples, it.filters, it.rows, it.columns), source.dtype, source.device)
    kernel = kernels.forward_kernel(array_module(source.device), it)
    return Inferred(output, in_single(kernel, is_half(source)), it.cost())


def _infer_conv2d_with_columns(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    it = _checked_geometry(cast("_Window", attributes), metas)
    source = metas[0]
    output = meta((it.samples, it.filters, it.rows, it.columns), source.dtype, source.device)
    columns = meta(it.columns_shape(), source.dtype, source.device)
    return Inferred((output, columns), kernels.forward_with_columns_kernel(array_module(source.device), it), it.cost())


def _infer_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window, wanted, source = cast("tuple[_Window, Wanted, TensorMeta]", attributes)
    gradient, given, weight = metas
    size = weight.shape[2], weight.shape[3]
    it = _geometry(source, weight.shape[0], size, (gradient.shape[2], gradient.shape[3]), window)
    gradients = kernels.gradients_function(array_module(source.device), it, wanted)
    has_columns, half = given.shape != source.shape, is_half(source)
    bias = meta((it.filters,), source.dtype, source.device)
    outputs = tuple([output for output, want in zip((source, weight, bias), wanted, strict=True) if want])

    def kernel(gradient: Array, array: Array, weight: Array, out: Any) -> tuple[Array, ...]:
        if half:
            gradient, array, weight = [it.astype("float32") for it in (gradient, array, weight)]
        found = gradients(gradient, *((None, array) if has_columns else (array, None)), weight)
        return tuple([it.astype(source.dtype.numpy, copy=False) for it in found])

    return Inferred(outputs, kernel, it.cost() * (1.5 * wanted[0] + wanted[1]))


def _geometry(source: TensorMeta, filters: int, kernel: Pair, output: Pair, window: _Window) -> Geometry:
    samples, channels, height, width = source.shape
    return Geometry(
        samples,
        channels,
        height,
        width,
        filters,
        kernel,
        *output,
        window.stride,
        window.dilation,
        window.before,
        window.behind,
        window.groups,
    )


def _infer_input_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window = cast("_Window", attributes)
    gradient, weight = metas
    device = common_device("conv2d_input_gradient", metas)
    _common_dtype("conv2d_input_gradient", metas)
    assert window.size is not None
    filters, fan, *size = weight.shape
    output = meta((gradient.shape[0], fan * window.groups, *window.size), gradient.dtype, device)
    it = _geometry(output, filters, (size[0], size[1]), (gradient.shape[2], gradient.shape[3]), window)
    gradients = kernels.gradients_function(array_module(device), it, (True, False, False))

    def kernel(array: Array, weight: Array, out: Array | None) -> Array:
        return gradients(array, None, None, weight)[0]

    return Inferred(output, in_single(kernel, is_half(gradient)), it.cost() * 1.5)


def _infer_weight_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window = cast("_Window", attributes)
    source, gradient = metas
    device = common_device("conv2d_weight_gradient", metas)
    _common_dtype("conv2d_weight_gradient", metas)
    assert window.size is not None
    filters = gradient.shape[1]
    it = _geometry(source, filters, window.size, (gradient.shape[2], gradient.shape[3]), window)
    output = meta((filters, source.shape[1] // window.groups, *window.size), source.dtype, device)
    gradients = kernels.gradients_function(array_module(device), it, (False, True, False))

    def kernel(array: Array, gradient: Array, out: Array | None) -> Array:
        return gradients(gradient, array, None, None)[0]

    return Inferred(output, in_single(kernel, is_half(source)), it.cost())


_CONV2D = OpExpr("conv2d", _infer_conv2d)
_CONV2D_WITH_COLUMNS = OpExpr("conv2d_with_columns", _infer_conv2d_with_columns)
_GRADIENT = OpExpr("conv2d_gradient", _infer_gradient)
_INPUT_GRADIENT = OpExpr("conv2d_input_gradient", _infer_input_gradient)
_WEIGHT_GRADIENT = OpExpr("conv2d_weight_gradient", _infer_weight_gradient)


def _convolve(input: Tensor, weight: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    result = _interpreter.dispatch(_CONV2D, (input, weight), window._replace(size=None))
    # A transposed convolution whose output_padding reaches the stride leaves room for more windows than it was given.
    for dim in (2, 3):
        if result.shape[dim] != like.shape[dim]:
            result = result.narrow(dim, 0, like.shape[dim])
    return result


def _by_input(gradient: Tensor, weight: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    size = like.shape[2], like.shape[3]
    return _interpreter.dispatch(_INPUT_GRADIENT, (gradient, weight), window._replace(size=size))


def _by_weight(input: Tensor, gradient: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    size = like.shape[2], like.shape[3]
    return _interpreter.dispatch(_WEIGHT_GRADIENT, (input, gradient), window._replace(size=size))


def _gradients(
    node: OpNode, gradient: Tensor, source: Tensor, weight: Tensor, columns: Tensor | None
) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = (*node.needs, False)[:3]
    if not is_grad_enabled():
        operands = (gradient, source if columns is None else columns, weight)
        found = iter(_interpreter.dispatch_several(_GRADIENT, operands, (window, needs, node.meta(0))))
        return tuple([next(found) if need else None for need in node.needs])
    results = (
        _by_input(gradient, weight, window, node.meta(0)) if needs[0] else None,
        _by_weight(source, gradient, window, node.meta(1)) if needs[1] else None,
        gradient.sum((0, 2, 3)) if needs[2] else None,
    )
    return results[: len(node.needs)]


@_CONV2D.gradient(inputs=(0, 1))
def _conv2d_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _gradients(node, gradient, node.input(0), node.input(1), None)


@_CONV2D_WITH_COLUMNS.gradient(inputs=(0, 1), outputs=(1,))
def _conv2d_with_columns_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _gradients(node, gradient, node.input(0), node.input(1), node.output(1))


@_INPUT_GRADIENT.gradient(inputs=(0, 1))
def _input_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = node.needs
    return (
        _convolve(gradient, node.input(1), window, node.meta(0)) if needs[0] else None,
        _by_weight(gradient, node.input(0), window, node.meta(1)) if needs[1] else None,
    )


@_WEIGHT_GRADIENT.gradient(inputs=(0, 1))
def _weight_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = node.needs
    return (
        _by_input(node.input(1), gradient, window, node.meta(0)) if needs[0] else None,
        _convolve(node.input(0), gradient, window, node.meta(1)) if needs[1] else None,
    )


# Functions


def _groups(name: str, groups: Any) -> int:
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise TypeError(f"{name}: groups must be an integer, not {groups!r}")
    if groups < 1:
        raise ValueError(f"{name}: groups must be at least 1, got {groups}")
    return groups


def _padding(name: str, padding: Any, stride: Pair, dilation: Pair, kernel: Pair) -> tuple[Pair, Pair]:
    """The padding before and behind."""
    if not isinstance(padding, str):
        both = pair(name, "padding", padding, 0)
        return both, both
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding != "same":
        raise ValueError(f"{name}: padding must be an integer, a pair of integers, 'same' or 'valid', not {padding!r}")
    if stride != (1, 1):
        raise ValueError(f"{name}: padding='same' needs stride 1, got {list(stride)}")
    total = (dilation[0] * (kernel[0] - 1), dilation[1] * (kernel[1] - 1))
    before = (total[0] // 2, total[1] // 2)
    return before, (total[0] - before[0], total[1] - before[1])


def _batched(name: str, rank: int, input: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function` of a batch, also for a single sample, which has no dimension of samples."""
    if input.ndim == rank - 1:
        return function(input.unsqueeze(0)).squeeze(0)
    return function(input)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Slide `weight` over `input` (a cross-correlation, as in PyTorch).

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        weight: (filters, channels / groups, kernel height, kernel width), of the input's dtype.
        bias: (filters,), added to each output pixel.
        stride: step of the window.
        padding: zeros around the input; "same" keeps the size (stride 1 only; of an odd number the larger part comes
            behind), "valid" is none.
        dilation: distance between the taps of the kernel.
        groups: each of this many parts of the channels is seen by its own part of the filters.

    Returns:
        (samples, filters, rows, columns), rows being
        ``(height + 2 * padding - dilation * (kernel height - 1) - 1) // stride + 1``.

    Raises:
        TypeError: for dtypes that differ or are not floating-point.
        ValueError: for shapes that do not fit each other, and sizes that are out of range.
    """
    step = pair("conv2d", "stride", stride, 1)
    spread = pair("conv2d", "dilation", dilation, 1)
    kernel = (weight.shape[2], weight.shape[3]) if weight.ndim == 4 else (1, 1)
    before, behind = _padding("conv2d", padding, step, spread, kernel)
    window = _Window(step, before, behind, spread, _groups("conv2d", groups), None)
    parameters = (weight,) if bias is None else (weight, bias)
    return _batched("conv2d", 4, input, lambda batch: _convolve_batch(batch, parameters, window))


def _convolve_batch(batch: Tensor, parameters: tuple[Tensor, ...], window: _Window) -> Tensor:
    operands = (batch, *parameters)
    recorded = parameters[0].requires_grad and is_grad_enabled()
    if recorded and _keeps_columns(window, tuple([it._blob.meta for it in operands])):
        return _interpreter.dispatch_several(_CONV2D_WITH_COLUMNS, operands, window)[0]
    return _interpreter.dispatch(_CONV2D, operands, window)


@functools.lru_cache(1024)
def _keeps_columns(window: _Window, metas: Metas) -> bool:
    """Whether the columns are kept for the gradient by the weight, which would have to make them again.

    For a large batch, making them again is cheaper than their memory.
    """
    it = _checked_geometry(window, metas)
    size = prod(it.columns_shape()) * metas[0].dtype.itemsize
    return 0 < size <= kernels.COLUMN_BYTES and not it.pointwise() and not is_half(metas[0])


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0,
    dilation: int | tuple[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Slide `weight` along `input`; see `conv2d`.

    Args:
        input: (samples, channels, length), or (channels, length).
        weight: (filters, channels / groups, kernel length).
        bias, stride, padding, dilation, groups: as for `conv2d`.

    Returns:
        (samples, filters, length of the output).
    """
    if weight.ndim != 3 or input.ndim not in (2, 3):
        raise ValueError(
            f"conv1d: expected an input (samples, channels, length) or (channels, length) and a weight "
            f"(filters, channels / groups, length), got {list(input.shape)} and {list(weight.shape)}"
        )
    step = (1, pair("conv1d", "stride", stride, 1)[1])
    spread = (1, pair("conv1d", "dilation", dilation, 1)[1])
    margin = padding if isinstance(padding, str) else (0, pair("conv1d", "padding", padding, 0)[1])
    return conv2d(input.unsqueeze(-2), weight.unsqueeze(-2), bias, step, margin, spread, groups).squeeze(-2)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    output_padding: int | Pair = 0,
    groups: int = 1,
    dilation: int | Pair = 1,
) -> Tensor:
    """The map that `conv2d`'s gradient applies: it takes each input pixel to a window of the output.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        weight: (channels, filters / groups, kernel height, kernel width), of the input's dtype.
        bias: (filters,).
        stride: distance between the windows of neighbouring pixels.
        padding: what is cut off the output on each side.
        output_padding: added to the output's size below and to the right; less than stride or dilation.
        groups, dilation: as for `conv2d`.

    Returns:
        (samples, filters, rows, columns), rows being
        ``(height - 1) * stride - 2 * padding + dilation * (kernel height - 1) + output_padding + 1``.

    Raises:
        TypeError, ValueError: as `conv2d`.
    """
    name = "conv_transpose2d"
    step, spread = pair(name, "stride", stride, 1), pair(name, "dilation", dilation, 1)
    margin, extra = pair(name, "padding", padding, 0), pair(name, "output_padding", output_padding, 0)
    parts = _groups(name, groups)
    check_floating(name, input._blob.meta)
    if input.ndim not in (3, 4) or weight.ndim != 4 or input.shape[-3] != weight.shape[0] or weight.shape[0] % parts:
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} does not fit a weight of shape {list(weight.shape)} with "
            f"groups={groups}; expected (samples, channels, height, width) and (channels, filters / groups, height, "
            "width), with channels a multiple of the groups"
        )
    if any(it >= max(one, other) for it, one, other in zip(extra, step, spread, strict=True)):
        raise ValueError(f"{name}: output_padding {extra} must be less than the stride {step} or the dilation {spread}")
    filters = weight.shape[1] * parts
    if bias is not None and bias.shape != (filters,):
        raise ValueError(f"{name}: expected a bias of shape [{filters}], got {list(bias.shape)}")
    size = [
        (input.shape[axis - 2] - 1) * step[axis]
        - 2 * margin[axis]
        + spread[axis] * (weight.shape[axis + 2] - 1)
        + extra[axis]
        + 1
        for axis in (0, 1)
    ]
    if min(size) < 1:
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} and a weight of shape {list(weight.shape)} with padding "
            f"{list(margin)} leave an output of {size} pixels"
        )
    window = _Window(step, margin, margin, spread, parts, (size[0], size[1]))

    def function(batch: Tensor) -> Tensor:
        result = _interpreter.dispatch(_INPUT_GRADIENT, (batch, weight), window)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    return _batched(name, 4, input, function)
