"""Ops that sample images at computed positions: `roi_align` and `deform_conv2d`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import arange
from vmflow.ops.declaration import function
from vmflow.ops.elementwise.rounding import ceil, floor
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.linalg.linear_algebra import matmul
from vmflow.transfers import beside

from .grid_sampling import linear_values
from .layer_operands import Pair, check_floating, computes_in, sizes

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def _same_floats(name: str, **operands: Tensor | None) -> None:
    """Raise TypeError unless all operands that are not None are floating-point and of one dtype."""
    tensors = {called: operand for called, operand in operands.items() if operand is not None}
    for tensor in tensors.values():
        check_floating(name, tensor._blob.meta)
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        listed = ", ".join([f"{called} {tensor.dtype.name}" for called, tensor in tensors.items()])
        raise TypeError(f"{name}: expected one dtype, got {listed}; cast with .to()")


# Regions of interest


def _line_of_samples(
    start: Tensor, size: Tensor, bins: int, ratio: int, length: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Compute where `roi_align` samples images along one dimension: positions (regions, bins, samples) and weights.

    Args:
        start, size: of the regions, in pixels.
        bins: the number of parts into which a region is cut.
        ratio: the number of samples of each part; below 1, as many as the part has pixels, rounded up.
        length: the images' size in that dimension.

    Returns:
        The pixel before each position, the position's distance from that pixel, the weight of the sample, and the
        largest number of samples of a part.
    """
    step = size / bins
    count = ceil(step) if ratio < 1 else None
    # If `ratio` is below 1, wait for the regions' sizes: they decide the number of samples, and so the results' shape.
    most = ratio if count is None else max(int(count.max().item()), 0) if count.numel() else 0
    number = beside(arange(most, dtype=start.dtype, device=start.device), start)
    spacing = step.unsqueeze(1) / (most if count is None else count.clamp(min=1).unsqueeze(1))
    within = (number + 0.5) * spacing
    bin = beside(arange(bins, dtype=start.dtype, device=start.device), start)
    first = start.unsqueeze(1) + bin * step.unsqueeze(1)
    place = first.unsqueeze(2) + within.unsqueeze(1)
    counts = (place >= -1) & (place <= length)
    if count is not None:
        counts = counts & (number < count.unsqueeze(1)).unsqueeze(1)
        share = 1 / count.clamp(min=1).reshape(-1, 1, 1)
    else:
        share = start.new_full((1, 1, 1), 1 / most)
    place = place.clamp(0, length - 1)
    before = floor(place).clamp(max=max(length - 2, 0))
    return before, place - before, counts * share, most


@function()
@autocast_as_op
def roi_align(
    x: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Cut regions of images into parts of equal size and average each over samples in between the pixels.

    Args:
        x: (samples, channels, height, width), floating-point.
        rois: (regions, 5) of x's dtype: the index of the sample, then left, top, right and bottom; without gradient.
        spatial_scale: the factor of the regions' coordinates.
        pooled_h, pooled_w: the numbers of rows and columns of parts into which a region is cut.
        sampling_ratio: the number of samples of a part in each dimension; below 1, as many as the part has pixels,
            rounded up, for which the function waits for the regions.
        aligned: whether the centre of pixel i has the coordinate ``i + 0.5``; otherwise it has i, and regions are at
            least one pixel large.

    Returns:
        (regions, channels, pooled_h, pooled_w).

    Raises:
        TypeError: for dtypes that differ or are not floating-point.
        ValueError: for shapes that do not fit, images without pixels, or a number of rows or columns below 1.
        IndexError: for a sample that does not exist, when the result is read.

    Example:
        >>> image, region = flow.arange(4.0).reshape(1, 1, 2, 2), flow.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]])
        >>> flow.roi_align(image, region, 1.0, 1, 1, 1)
        tensor([[[[1.5000]]]])
    """
    check_tensors("roi_align", x, rois)
    _same_floats("roi_align", x=x, rois=rois)
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(
            f"roi_align: expected images (samples, channels, height, width) and regions (regions, 5), got "
            f"{list(x.shape)} and {list(rois.shape)}"
        )
    if pooled_h < 1 or pooled_w < 1 or not x.shape[2] * x.shape[3]:
        raise ValueError(
            f"roi_align: expected images with elements and positive sizes, got {list(x.shape)}, {pooled_h} and "
            f"{pooled_w}"
        )
    channels, height, width = x.shape[1:]
    wide = computes_in(x._blob.meta)
    regions = rois.detach().to(wide)
    corners = regions.narrow(1, 1, 4) * spatial_scale - (0.5 if aligned else 0.0)
    extent = corners.narrow(1, 2, 2) - corners.narrow(1, 0, 2)
    if not aligned:
        extent = extent.clamp(min=1.0)
    above, down, of_rows, rows = _line_of_samples(
        corners.select(1, 1), extent.select(1, 1), pooled_h, sampling_ratio, height
    )
    left, across, of_columns, columns = _line_of_samples(
        corners.select(1, 0), extent.select(1, 0), pooled_w, sampling_ratio, width
    )
    pixels = x.to(wide).permute(0, 2, 3, 1).reshape(-1, channels)
    first = regions.select(1, 0).long().reshape(-1, 1, 1, 1, 1) * (height * width)
    shape = (regions.shape[0], pooled_h, rows, pooled_w, columns)
    total: Tensor | None = None
    for lower in (0, 1) if height > 1 else (0,):
        row = (above.long() + lower).unsqueeze(3).unsqueeze(4) * width
        row_weight = ((down if lower else 1 - down) * of_rows).unsqueeze(3).unsqueeze(4)
        for right in (0, 1) if width > 1 else (0,):
            column = (left.long() + right).unsqueeze(1).unsqueeze(1)
            weight = row_weight * ((across if right else 1 - across) * of_columns).unsqueeze(1).unsqueeze(1)
            index = (first + row + column).expand(shape)
            term = index_select(pixels, 0, index.reshape(-1)).reshape(*shape, channels) * weight.unsqueeze(-1)
            total = term if total is None else total + term
    assert total is not None
    return total.sum((2, 4)).permute(0, 3, 1, 2).to(x.dtype)


# Deformed windows


@autocast_as_op
def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution each of whose window elements is displaced by an offset, and interpolated in between the pixels.

    Outside of the image there are zeros.

    Args:
        input: (samples, channels, height, width), floating-point.
        offset: (samples, 2 * groups * kernel height * kernel width, rows, columns): the shift of each element of a
            window, down and to the right, for each of `groups` groups of channels.
        weight: (filters, channels / groups, kernel height, kernel width); its groups are independent of the offset's.
        bias: (filters,), or None.
        stride, padding, dilation: integers or pairs, as of `vmflow.nn.functional.conv2d`.
        mask: (samples, groups * kernel height * kernel width, rows, columns), the factors of the elements; or None.

    Returns:
        (samples, filters, rows, columns).

    Raises:
        TypeError: for dtypes that differ or are not floating-point, or if a stride, padding or dilation is no integer.
        ValueError: for shapes that do not fit, or a stride, padding or dilation that is out of range.

    Example:
        >>> image, offset = flow.tensor([[[[1.0, 3.0]]]]), flow.tensor([[[[0.0, 0.0]], [[0.5, 0.0]]]])
        >>> flow.nn.functional.deform_conv2d(image, offset, flow.ones(1, 1, 1, 1))
        tensor([[[[2., 3.]]]])
    """
    name = "deform_conv2d"
    check_tensors(name, input, offset, weight, optional=(bias, mask))
    _same_floats(name, input=input, offset=offset, weight=weight, bias=bias, mask=mask)
    if input.ndim != 4 or weight.ndim != 4:
        raise ValueError(
            f"{name}: expected an input (samples, channels, height, width) and a weight (filters, channels, height, "
            f"width), got {list(input.shape)} and {list(weight.shape)}"
        )
    step, margin = sizes(name, "stride", stride, 1, 2), sizes(name, "padding", padding, 0, 2)
    spread = sizes(name, "dilation", dilation, 1, 2)
    samples, channels = input.shape[:2]
    filters, depth = weight.shape[:2]
    image, kernel = tuple(input.shape[2:]), tuple(weight.shape[2:])
    taps = kernel[0] * kernel[1]
    groups = channels // depth if depth else 0
    if not taps or not groups or groups * depth != channels or filters % groups:
        raise ValueError(f"{name}: a weight of shape {list(weight.shape)} does not fit {channels} channels")
    count = [
        (size + 2 * before - apart * (taken - 1) - 1) // along + 1
        for size, before, apart, taken, along in zip(image, margin, spread, kernel, step, strict=True)
    ]
    if min(count) < 1:
        raise ValueError(f"{name}: windows of {list(kernel)} do not fit into an image of {list(image)}")
    own = offset.shape[1] // (2 * taps) if offset.ndim == 4 else 0
    if not own or channels % own or tuple(offset.shape) != (samples, 2 * own * taps, *count):
        raise ValueError(
            f"{name}: expected an offset ({samples}, 2 * groups * {taps}, {count[0]}, {count[1]}) for groups of "
            f"{channels} channels, got {list(offset.shape)}"
        )
    if mask is not None and tuple(mask.shape) != (samples, own * taps, *count):
        raise ValueError(f"{name}: expected a mask of shape {[samples, own * taps, *count]}, got {list(mask.shape)}")
    if bias is not None and tuple(bias.shape) != (filters,):
        raise ValueError(f"{name}: expected a bias of shape [{filters}], got {list(bias.shape)}")
    wide = computes_in(input._blob.meta)
    moved = offset.to(wide).reshape(samples * own, taps, 2, *count)
    places: list[Tensor] = []
    for axis in (0, 1):
        line, tap = [beside(arange(steps[axis], dtype=wide, device=input.device), input) for steps in (count, kernel)]
        line = line * step[axis] - margin[axis]
        tap = tap * spread[axis]
        # Taps enumerate the kernel's elements: `tap` becomes the row, or the column, of each tap times the dilation.
        tap = tap.reshape(*([-1, 1] if axis == 0 else [1, -1])).expand(kernel).reshape(taps, 1, 1)
        line = line.reshape(*([-1, 1] if axis == 0 else [1, -1]))
        places.append(moved.select(2, axis) + (tap + line))
    sampled = linear_values(input.to(wide).reshape(samples * own, channels // own, image[0] * image[1]), places, image)
    if mask is not None:
        sampled = sampled * mask.to(wide).reshape(samples * own, 1, taps * count[0] * count[1])
    columns = sampled.reshape(samples, groups, depth * taps, count[0] * count[1])
    product = matmul(weight.to(wide).reshape(groups, filters // groups, depth * taps), columns)
    result = product.reshape(samples, filters, *count)
    if bias is not None:
        result = result + bias.to(wide).reshape(-1, 1, 1)
    return result.to(input.dtype)
