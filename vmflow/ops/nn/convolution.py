"""Convolution: ops for its output, its gradient by the input, and its gradient by the weight.

Each of these three is bilinear, and its gradients are the other two, so that derivatives of any order need no further
op.  A backward pass of a convolution (not a transposed one) that is not recorded itself is one op for all gradients.
The ops are written for any number of spatial dimensions and declared for one, two and three.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.convolution import Geometry, Wanted
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Margin, Metas, OpExpr, Stride, common_device

from .layer_operands import SPATIAL, Pair, Sizes, batched, check_floating, layout, sizes

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Nanoseconds per multiply-add, and per copied element, for estimates of cost.
_PER_PRODUCT: Final = 0.02
_PER_COPY: Final = 0.5

# The ops.  The attributes of all of them, except the op that computes several gradients, are a `_Window`.


class _Window(NamedTuple):
    """The attributes of a convolution op: how the kernel moves over the input.

    Attributes:
        stride, before, behind, dilation, groups: see `Geometry`; `before` and `behind` are the padding.
        size: the spatial size of the result of a gradient op, which its operands do not determine: the input's for the
            gradient by the input, the kernel's for the gradient by the weight; None for the convolution itself.
    """

    stride: tuple[Stride, ...]
    before: tuple[Margin, ...]
    behind: tuple[Margin, ...]
    dilation: tuple[Stride, ...]
    groups: Stride
    size: tuple[Stride, ...] | None

    def output_size(self, name: str, source: TensorMeta, kernel: Sizes) -> Sizes:
        """Return the output's size: the number of positions of the kernel along each spatial dimension of the input.

        Raises:
            ValueError: if the kernel is larger than the padded input.
        """
        counts: list[int] = []
        for axis, taps in enumerate(kernel):
            length = source.shape[axis + 2] + self.before[axis] + self.behind[axis]
            reach = self.dilation[axis] * (taps - 1) + 1
            if reach > length:
                raise ValueError(
                    f"{name}: a kernel of {list(kernel)} with dilation {list(self.dilation)} does not fit into an "
                    f"input of shape {list(source.shape)} padded by {list(self.before)} and {list(self.behind)}"
                )
            counts.append((length - reach) // self.stride[axis] + 1)
        return tuple(counts)


class _Family(NamedTuple):
    """The ops of convolution for one number of spatial dimensions."""

    rank: int
    convolution: OpExpr
    with_columns: OpExpr
    gradients: OpExpr
    by_input: OpExpr
    by_weight: OpExpr


def _common_dtype(name: str, metas: Metas) -> None:
    for other in metas[1:]:
        if other.dtype is not metas[0].dtype:
            raise TypeError(
                f"{name}: expected one dtype, got {' and '.join(meta.dtype.name for meta in metas)}; cast with .to()"
            )


def _checked_geometry(window: _Window, metas: Metas) -> Geometry:
    """Check a convolution's operands (input, weight, perhaps bias); return the convolution's sizes for the kernels.

    Raises:
        TypeError, ValueError: for operands that do not fit.
        RuntimeError: for operands on several devices.
    """
    source, weight, *bias = metas
    rank = len(window.stride)
    name = f"conv{rank}d"
    common_device(name, metas)
    check_floating(name, source)
    _common_dtype(name, metas)
    if {len(numbers) for numbers in window[:4]} != {rank}:
        raise ValueError(f"{name}: the windows {window} are not of {rank} dimensions")
    if len(source.shape) != rank + 2 or len(weight.shape) != rank + 2:
        raise ValueError(
            f"{name}: expected an input {layout(rank)} and a weight (filters, channels / groups, {SPATIAL[rank]}), "
            f"got {list(source.shape)} and {list(weight.shape)}"
        )
    filters, fan, *kernel = weight.shape
    if source.shape[1] != fan * window.groups or filters % window.groups:
        raise ValueError(
            f"{name}: an input of shape {list(source.shape)} does not fit a weight of shape {list(weight.shape)} with "
            f"groups={window.groups}: channels must be {fan * window.groups}, and filters a multiple of the groups"
        )
    if not all(kernel):
        raise ValueError(f"{name}: the kernel of a weight of shape {list(weight.shape)} is empty")
    if bias and bias[0].shape != (filters,):
        raise ValueError(
            f"{name}: a bias of shape {list(bias[0].shape)} does not fit a weight of shape {list(weight.shape)}; "
            f"expected [{filters}]"
        )
    return _geometry(source, filters, tuple(kernel), window.output_size(name, source, tuple(kernel)), window)


def _infer_convolution(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    geometry = _checked_geometry(cast("_Window", attributes), metas)
    source = metas[0]
    output = meta((geometry.samples, geometry.filters, *geometry.output), source.dtype, source.device)
    return Inferred(output, _cost(geometry), geometry)


def _infer_with_columns(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    geometry = _checked_geometry(cast("_Window", attributes), metas)
    source = metas[0]
    output = meta((geometry.samples, geometry.filters, *geometry.output), source.dtype, source.device)
    columns = meta(geometry.columns_shape(), source.dtype, source.device)
    return Inferred((output, columns), _cost(geometry), geometry)


def _infer_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window, wanted, source, has_columns = cast("tuple[_Window, Wanted, TensorMeta, bool]", attributes)
    gradient, saved, weight = metas
    geometry = _checked_gradient(window, source, weight, gradient)
    if saved.dtype is not source.dtype or saved.shape != (geometry.columns_shape() if has_columns else source.shape):
        raise ValueError(f"conv{len(window.stride)}d_gradient: {saved} is not saved by a convolution of {source}")
    bias = meta((geometry.filters,), source.dtype, source.device)
    outputs = tuple([output for output, want in zip((source, weight, bias), wanted, strict=True) if want])
    return Inferred(outputs, _cost(geometry) * (1.5 * wanted[0] + wanted[1]), geometry)


def _checked_gradient(window: _Window, source: TensorMeta, weight: TensorMeta, gradient: TensorMeta) -> Geometry:
    """Check a gradient op's operands, and return the sizes of its convolution, whose output has the size of `gradient`.

    `gradient` may be smaller than the convolution's output, as for a transposed convolution with output_padding.

    Raises:
        TypeError, ValueError: for operands that do not fit.
        RuntimeError: for operands on several devices.
    """
    whole = _checked_geometry(window, (source, weight))
    rank = len(window.stride)
    fits = gradient.shape[:2] == (whole.samples, whole.filters) and len(gradient.shape) == rank + 2
    if not fits or any([had > made for had, made in zip(gradient.shape[2:], whole.output, strict=True)]):
        raise ValueError(
            f"conv{rank}d: a gradient of shape {list(gradient.shape)} does not fit a result of shape "
            f"{[whole.samples, whole.filters, *whole.output]}"
        )
    _common_dtype(f"conv{rank}d", (gradient, source))
    return _geometry(source, whole.filters, whole.kernel, tuple(gradient.shape[2:]), window)


def _geometry(source: TensorMeta, filters: int, kernel: Sizes, output: Sizes, window: _Window) -> Geometry:
    samples, channels, *size = source.shape
    return Geometry(
        samples,
        channels,
        tuple(size),
        filters,
        kernel,
        output,
        window.stride,
        window.dilation,
        window.before,
        window.behind,
        window.groups,
    )


def _cost(geometry: Geometry) -> float:
    """Estimate the nanoseconds of a convolution."""
    taps = geometry.channels // max(geometry.groups, 1) * prod(geometry.kernel)
    pixels = geometry.samples * prod(geometry.output)
    return pixels * taps * (geometry.filters * _PER_PRODUCT + geometry.groups * _PER_COPY) + 5000


def _gradient_name(window: _Window, by: str) -> str:
    return f"conv{len(window.stride)}d_{by}_gradient"


def _infer_input_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window = cast("_Window", attributes)
    gradient, weight = metas
    device = common_device(_gradient_name(window, "input"), metas)
    _common_dtype(_gradient_name(window, "input"), metas)
    assert window.size is not None
    output = meta((gradient.shape[0], weight.shape[1] * window.groups, *window.size), gradient.dtype, device)
    geometry = _checked_gradient(window, output, weight, gradient)
    return Inferred(output, _cost(geometry) * 1.5, geometry)


def _infer_weight_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    window = cast("_Window", attributes)
    source, gradient = metas
    device = common_device(_gradient_name(window, "weight"), metas)
    _common_dtype(_gradient_name(window, "weight"), metas)
    assert window.size is not None
    output = meta((gradient.shape[1], source.shape[1] // window.groups, *window.size), source.dtype, device)
    geometry = _checked_gradient(window, source, output, gradient)
    return Inferred(output, _cost(geometry), geometry)


def _convolve(input: Tensor, weight: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    family = FAMILIES[len(window.stride)]
    result = _interpreter.dispatch(family.convolution, (input, weight), window._replace(size=None))
    # If the output_padding of a transposed convolution reaches the stride, more windows fit into its output than it has
    # input elements: cut the surplus windows.
    for dim in range(2, family.rank + 2):
        if result.shape[dim] != like.shape[dim]:
            result = result.narrow(dim, 0, like.shape[dim])
    return result


def _by_input(gradient: Tensor, weight: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    op = FAMILIES[len(window.stride)].by_input
    return _interpreter.dispatch(op, (gradient, weight), window._replace(size=tuple(like.shape[2:])))


def _by_weight(input: Tensor, gradient: Tensor, window: _Window, like: TensorMeta) -> Tensor:
    op = FAMILIES[len(window.stride)].by_weight
    return _interpreter.dispatch(op, (input, gradient), window._replace(size=tuple(like.shape[2:])))


def _gradients(
    node: OpNode, gradient: Tensor, source: Tensor, weight: Tensor, columns: Tensor | None
) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = (*node.needs, False)[:3]
    if not is_grad_enabled():
        op = FAMILIES[len(window.stride)].gradients
        operands = (gradient, source if columns is None else columns, weight)
        found = iter(_interpreter.dispatch_several(op, operands, (window, needs, node.meta(0), columns is not None)))
        return tuple([next(found) if need else None for need in node.needs])
    results = (
        _by_input(gradient, weight, window, node.meta(0)) if needs[0] else None,
        _by_weight(source, gradient, window, node.meta(1)) if needs[1] else None,
        gradient.sum((0, *range(2, gradient.ndim))) if needs[2] else None,
    )
    return results[: len(node.needs)]


def _convolution_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return _gradients(node, gradient, node.input(0), node.input(1), None)


def _with_columns_gradient(node: OpNode, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _gradients(node, gradient, node.input(0), node.input(1), node.output(1))


def _input_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = node.needs
    return (
        _convolve(gradient, node.input(1), window, node.meta(0)) if needs[0] else None,
        _by_weight(gradient, node.input(0), window, node.meta(1)) if needs[1] else None,
    )


def _weight_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, ...]:
    window = cast("_Window", node.attributes)
    needs = node.needs
    return (
        _by_input(node.input(1), gradient, window, node.meta(0)) if needs[0] else None,
        _convolve(node.input(0), gradient, window, node.meta(1)) if needs[1] else None,
    )


def _declared(rank: int) -> _Family:
    name = f"conv{rank}d"
    family = _Family(
        rank,
        OpExpr(name, _infer_convolution, Form((2, 3), _Window), "convolution"),
        OpExpr(f"{name}_with_columns", _infer_with_columns, Form((2, 3), _Window), "convolution"),
        OpExpr(f"{name}_gradient", _infer_gradient, Form(3, tuple[_Window, Wanted, TensorMeta, bool]), "convolution"),
        OpExpr(f"{name}_input_gradient", _infer_input_gradient, Form(2, _Window), "convolution"),
        OpExpr(f"{name}_weight_gradient", _infer_weight_gradient, Form(2, _Window), "convolution"),
    )
    family.convolution.gradient(inputs=(0, 1))(_convolution_gradient)
    family.with_columns.gradient(inputs=(0, 1), outputs=(1,))(_with_columns_gradient)
    family.by_input.gradient(inputs=(0, 1))(_input_gradient_gradient)
    family.by_weight.gradient(inputs=(0, 1))(_weight_gradient_gradient)
    return family


FAMILIES: Final = {rank: _declared(rank) for rank in (1, 2, 3)}


# Functions


def _groups(name: str, groups: Any) -> int:
    count = whole_number(name, "groups", groups)
    if count < 1:
        raise ValueError(f"{name}: groups must be at least 1, got {groups}")
    return count


def _padding(name: str, padding: Any, stride: Sizes, dilation: Sizes, kernel: Sizes) -> tuple[Sizes, Sizes]:
    """Convert the argument `padding` to the padding before and behind each spatial dimension."""
    if not isinstance(padding, str):
        both = sizes(name, "padding", padding, 0, len(stride))
        return both, both
    if padding not in ("same", "valid"):
        raise ValueError(
            f"{name}: padding must be one integer, one for each dimension, 'same' or 'valid', not {padding!r}"
        )
    if padding == "same" and max(stride) > 1:
        raise ValueError(f"{name}: padding='same' needs stride 1, got {list(stride)}")
    return around(padding, dilation, kernel)


def around(padding: str, dilation: Sizes, kernel: Sizes) -> tuple[Sizes, Sizes]:
    """Return the padding before and behind each spatial dimension for padding="same" or "valid"."""
    if padding == "valid":
        none = (0,) * len(kernel)
        return none, none
    total = [spread * (taps - 1) for spread, taps in zip(dilation, kernel, strict=True)]
    return tuple([margin // 2 for margin in total]), tuple([margin - margin // 2 for margin in total])


def _convolution(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Tensor:
    name = f"conv{rank}d"
    check_tensors(name, input, weight, optional=(bias,))
    step = sizes(name, "stride", stride, 1, rank)
    spread = sizes(name, "dilation", dilation, 1, rank)
    kernel = tuple(weight.shape[2:]) if weight.ndim == rank + 2 else (1,) * rank
    before, behind = _padding(name, padding, step, spread, kernel)
    window = _Window(step, before, behind, spread, _groups(name, groups), None)
    parameters = (weight,) if bias is None else (weight, bias)
    found: Tensor = batched(rank, input, lambda batch: _convolve_batch(batch, parameters, window))
    return found


def _convolve_batch(batch: Tensor, parameters: tuple[Tensor, ...], window: _Window) -> Tensor:
    operands = (batch, *parameters)
    family = FAMILIES[len(window.stride)]
    recorded = parameters[0].requires_grad and is_grad_enabled()
    if recorded and _interpreter.kernel_of(family.convolution, operands, window).keeps:
        return _interpreter.dispatch_several(family.with_columns, operands, window)[0]
    return _interpreter.dispatch(family.convolution, operands, window)


@autocast_as_op
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
        A tensor of shape (samples, filters, length of the output), or without samples.

    Raises:
        TypeError, ValueError: as `conv2d`.

    Example:
        >>> flow.conv1d(flow.tensor([[1.0, 2.0, 4.0]]), flow.tensor([[[1.0, 1.0]]]))
        tensor([[3., 6.]])
    """
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`conv1d` of sequences in the order (length, samples, channels).

    Args:
        input: (length, samples, channels).
        weight: (kernel length, channels, filters).
        bias: (filters,).
        pad: the number of zeros added at each end.

    Returns:
        (length of the output, samples, filters).

    Raises:
        TypeError: for dtypes that differ or are not floating-point.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.nn.functional.conv_tbc(flow.tensor([[[1.0]], [[2.0]]]), flow.ones(2, 1, 1), flow.zeros(1))
        tensor([[[3.]]])
    """
    check_tensors("conv_tbc", input, weight, bias)
    if input.ndim != 3 or weight.ndim != 3:
        raise ValueError(
            "conv_tbc: expected an input (length, samples, channels) and a weight (kernel length, channels, filters), "
            f"got {list(input.shape)} and {list(weight.shape)}"
        )
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


@autocast_as_op
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
        stride: step of the kernel.
        padding: zeros around the input; "same" keeps the size (stride 1 only; of an odd number of zeros, one more goes
            behind), "valid" adds none.
        dilation: distance between the taps of the kernel.
        groups: the number of equal parts into which channels and filters are divided; each part of the channels is
            convolved with its own part of the filters.

    Returns:
        (samples, filters, rows, columns), or without samples, rows being
        ``(height + 2 * padding - dilation * (kernel height - 1) - 1) // stride + 1``.

    Raises:
        TypeError: for operands that are no tensors, dtypes that differ or are not floating-point, and sizes that are no
            integers.
        ValueError: for shapes that do not fit each other, and sizes that are out of range.

    Example:
        >>> flow.conv2d(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]), flow.ones(1, 1, 1, 2))
        tensor([[[3.],
                 [7.]]])
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups)


@autocast_as_op
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sizes = 1,
    padding: int | Sizes | str = 0,
    dilation: int | Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Slide `weight` through `input`; see `conv2d`.

    Args:
        input: (samples, channels, depth, height, width), or (channels, depth, height, width).
        weight: (filters, channels / groups, kernel depth, kernel height, kernel width).
        bias, stride, padding, dilation, groups: as for `conv2d`.

    Returns:
        A tensor of shape (samples, filters, depth of the output, rows, columns), or without samples.

    Raises:
        TypeError, ValueError: as `conv2d`.

    Example:
        >>> flow.conv3d(flow.ones(1, 2, 2, 2), flow.ones(1, 1, 2, 2, 2))
        tensor([[[[8.]]]])
    """
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    check_tensors(name, input, weight, optional=(bias,))
    step, spread = sizes(name, "stride", stride, 1, rank), sizes(name, "dilation", dilation, 1, rank)
    margin, extra = sizes(name, "padding", padding, 0, rank), sizes(name, "output_padding", output_padding, 0, rank)
    parts = _groups(name, groups)
    check_floating(name, input._blob.meta)
    _common_dtype(name, tuple([operand._blob.meta for operand in (input, weight, bias) if operand is not None]))
    fits = input.ndim in (rank + 1, rank + 2) and weight.ndim == rank + 2
    if not fits or input.shape[-rank - 1] != weight.shape[0] or weight.shape[0] % parts:
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} does not fit a weight of shape {list(weight.shape)} with "
            f"groups={groups}; expected (samples, channels, {SPATIAL[rank]}) and (channels, filters / groups, "
            f"{SPATIAL[rank]}), with channels a multiple of the groups"
        )
    if any(value >= max(one, other) for value, one, other in zip(extra, step, spread, strict=True)):
        raise ValueError(f"{name}: output_padding {extra} must be less than the stride {step} or the dilation {spread}")
    filters = weight.shape[1] * parts
    if bias is not None and bias.shape != (filters,):
        raise ValueError(f"{name}: expected a bias of shape [{filters}], got {list(bias.shape)}")
    size = [
        (input.shape[axis - rank] - 1) * step[axis]
        - 2 * margin[axis]
        + spread[axis] * (weight.shape[axis + 2] - 1)
        + extra[axis]
        + 1
        for axis in range(rank)
    ]
    if min(size) < 1 or not all(weight.shape[2:]) or not all(input.shape[-rank:]):
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} and a weight of shape {list(weight.shape)} with padding "
            f"{list(margin)} leave an output of {size} pixels"
        )
    window = _Window(step, margin, margin, spread, parts, tuple(size))

    def function(batch: Tensor) -> Tensor:
        result = _interpreter.dispatch(FAMILIES[rank].by_input, (batch, weight), window)
        return result if bias is None else result + bias.reshape(-1, *[1] * rank)

    found: Tensor = batched(rank, input, function)
    return found


@autocast_as_op
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] = 0,
    output_padding: int | tuple[int] = 0,
    groups: int = 1,
    dilation: int | tuple[int] = 1,
) -> Tensor:
    """The transposed map of `conv1d`: adds each input element, times the kernel, to a window of the output.

    See `conv_transpose2d`.

    Args:
        input: (samples, channels, length), or (channels, length).
        weight: (channels, filters / groups, kernel length).
        bias, stride, padding, output_padding, groups, dilation: as for `conv_transpose2d`.

    Returns:
        A tensor of shape (samples, filters, length of the output), or without samples.

    Raises:
        TypeError, ValueError: as `conv2d`.

    Example:
        >>> flow.conv_transpose1d(flow.tensor([[1.0, 2.0]]), flow.ones(1, 1, 2), stride=2)
        tensor([[1., 1., 2., 2.]])
    """
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@autocast_as_op
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
    """The transposed map of `conv2d`, its gradient by the input: adds each pixel times the kernel to an output window.

    Args:
        input: (samples, channels, height, width), or (channels, height, width).
        weight: (channels, filters / groups, kernel height, kernel width), of the input's dtype.
        bias: (filters,).
        stride: distance between the output windows of neighbouring input pixels.
        padding: the number of rows and columns cut off the output on each side.
        output_padding: added to the output's size below and to the right; less than the larger of stride and dilation.
        groups, dilation: as for `conv2d`.

    Returns:
        (samples, filters, rows, columns), or without samples, rows being
        ``(height - 1) * stride - 2 * padding + dilation * (kernel height - 1) + output_padding + 1``.

    Raises:
        TypeError, ValueError: as `conv2d`.

    Example:
        >>> flow.conv_transpose2d(flow.tensor([[[1.0, 2.0]]]), flow.ones(1, 1, 1, 2), stride=(1, 2))
        tensor([[[1., 1., 2., 2.]]])
    """
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@autocast_as_op
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sizes = 1,
    padding: int | Sizes = 0,
    output_padding: int | Sizes = 0,
    groups: int = 1,
    dilation: int | Sizes = 1,
) -> Tensor:
    """The transposed map of `conv3d`: adds each input element, times the kernel, to a window of the output.

    See `conv_transpose2d`.

    Args:
        input: (samples, channels, depth, height, width), or (channels, depth, height, width).
        weight: (channels, filters / groups, kernel depth, kernel height, kernel width).
        bias, stride, padding, output_padding, groups, dilation: as for `conv_transpose2d`.

    Returns:
        A tensor of shape (samples, filters, depth of the output, rows, columns), or without samples.

    Raises:
        TypeError, ValueError: as `conv2d`.

    Example:
        >>> flow.conv_transpose3d(flow.ones(1, 1, 1, 1), flow.ones(1, 1, 1, 1, 2))
        tensor([[[[1., 1.]]]])
    """
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
