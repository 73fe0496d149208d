"""`grid_sample` samples images and volumes at given positions; `affine_grid` computes positions by an affine map."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

from vmflow.arguments import flag
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import linspace, zeros
from vmflow.ops.elementwise.rounding import floor, round as round_half_even
from vmflow.ops.elementwise.selection import where
from vmflow.ops.shape.joining import stack
from vmflow.transfers import beside

from .layer_operands import check_floating

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.dtypes import dtype as DType
    from vmflow.tensors import Tensor

_PADDING_MODES: Final = ("zeros", "border", "reflection")


def _pixels(coordinate: Tensor, size: int, align_corners: bool) -> Tensor:
    """Convert coordinates to positions in elements: -1 and 1 become 0 and ``size - 1`` if `align_corners`, else the
    outer edges of these elements, -0.5 and ``size - 0.5``."""
    if align_corners:
        return (coordinate + 1) * ((size - 1) / 2)
    return ((coordinate + 1) * size - 1) * 0.5


def _clipped(place: Tensor, size: int) -> Tensor:
    """Clip positions, in elements, to [0, size - 1].  On the border and beyond they have no gradient, as in PyTorch."""
    inside = (place > 0) & (place < size - 1)
    return where(inside, place, place.detach().clamp(0, size - 1))


def _reflected(place: Tensor, size: int, align_corners: bool) -> Tensor:
    """Reflect positions, in elements, into the image at its border elements.

    They reflect at the centres of these elements if `align_corners`, else at their outer edges."""
    low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
    if span == 0:
        return place.detach() * 0
    distance = (place - low).abs()
    turns = floor(distance.detach() / span)
    rest = distance - turns * span
    return where(turns % 2 == 0, rest, span - rest) + low


def _bounded(place: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        place = _reflected(place, size, align_corners)
    return _clipped(place, size)


def _values(flat: Tensor, places: Sequence[Tensor], size: Sequence[int]) -> Tensor:
    """Gather elements of flat images, (samples, channels, elements), at integer positions; 0 outside of the image.

    `places` has one tensor, (samples, ...), for each dimension of the images, which are of `size`; the result is
    (samples, channels, positions)."""
    inside = None
    index = None
    for place, length in zip(places, size, strict=True):
        fits = (place >= 0) & (place <= length - 1)
        inside = fits if inside is None else inside & fits
        # Large sizes, and indices of large images, are not exact in the dtype of `place`.
        whole = where(fits, place.detach(), 0.0).long().clamp(max=length - 1)
        index = whole if index is None else index * length + whole
    assert inside is not None
    assert index is not None
    index = index.flatten(1).unsqueeze(1)
    elements = flat.gather(2, index.expand(flat.shape[0], flat.shape[1], index.shape[-1]))
    # No product with `inside`: 0 times an infinite element is nan.
    return where(inside.flatten(1).unsqueeze(1), elements, 0.0)


def _cubic_weights(part: Tensor) -> list[Tensor]:
    """Return the cubic interpolation weights of four elements, for positions that lie `part` behind the second element.

    The weights are those of Keys' kernel with a = -0.75."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _check(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    name = "grid_sample"
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != rank or grid.shape[0] != input.shape[0]:
        raise ValueError(
            f"{name}: expected an input (samples, channels, height, width) and a grid (samples, rows, columns, 2), or "
            f"(samples, channels, depth, height, width) and (samples, planes, rows, columns, 3), got "
            f"{list(input.shape)} and {list(grid.shape)}"
        )
    if not all(input.shape[2:]):
        raise ValueError(f"{name}: an image of shape {list(input.shape)} has no elements")
    check_floating(name, input._blob.meta)
    if input.dtype is not grid.dtype:
        raise TypeError(f"{name}: expected one dtype, got {input.dtype.name} and {grid.dtype.name}; cast with .to()")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
        raise ValueError(f"{name}: mode must be bilinear, nearest or (of images only) bicubic, not {mode!r}")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(f"{name}: padding_mode must be one of {', '.join(_PADDING_MODES)}, not {padding_mode!r}")


@autocast_as_op
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample an image at the positions in `grid` (M. Jaderberg et al., Spatial Transformer Networks, 2015).

    Args:
        input: (samples, channels, height, width), or with a depth before the height, floating-point.
        grid: (samples, rows, columns, 2) of (x, y), or (samples, planes, rows, columns, 3) of (x, y, z), from -1 at one
            border to 1 at the other; of the input's dtype.
        mode: "bilinear" (of volumes, trilinear), "nearest" or, of images only, "bicubic".
        padding_mode: the values outside: "zeros", the element at the "border", or the image's "reflection".
        align_corners: whether -1 and 1 are the centres of the border elements, or (also for None) their outer edges.

    Returns:
        (samples, channels, rows, columns), or with planes.

    Raises:
        TypeError: for dtypes that differ or are not floating-point, or an `align_corners` that is no bool.
        ValueError: for shapes that do not fit, an empty image or unknown modes.

    Example:
        >>> image = flow.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> flow.nn.functional.grid_sample(image, flow.zeros(1, 1, 1, 2), align_corners=True)
        tensor([[[[2.5000]]]])
    """
    check_tensors("grid_sample", input, grid)
    _check(input, grid, mode, padding_mode)
    corners = align_corners is not None and flag("grid_sample", "align_corners", align_corners)
    size = list(input.shape[2:])
    rank = len(size)
    flat = input.flatten(2)
    # The grid's coordinates are in the order x, y, z: the first belongs to the image's last dimension.
    places = [_pixels(grid[..., rank - 1 - axis], length, corners) for axis, length in enumerate(size)]
    if mode == "bicubic":
        result = _bicubic(flat, places, size, padding_mode, corners)
    else:
        places = [_bounded(place, length, padding_mode, corners) for place, length in zip(places, size, strict=True)]
        if mode == "nearest":
            result = _values(flat, [round_half_even(place) for place in places], size)
        else:
            result = linear_values(flat, places, size)
    return result.reshape(*input.shape[:2], *grid.shape[1:-1])


def linear_values(flat: Tensor, places: Sequence[Tensor], size: Sequence[int]) -> Tensor:
    """Interpolate linearly in between the elements of images or volumes, outside of which there are zeros.

    Args:
        flat: the images, (samples, channels, elements).
        places: positions in elements, one tensor (samples, ...) for each spatial dimension.
        size: the spatial size of an image.

    Returns:
        (samples, channels, positions).
    """
    below = [floor(coordinate.detach()) for coordinate in places]
    behind = [place - low for place, low in zip(places, below, strict=True)]
    total: Tensor | None = None
    for corner in product((0, 1), repeat=len(size)):
        weights = [part if up else 1 - part for part, up in zip(behind, corner, strict=True)]
        weight = functools.reduce(operator.mul, weights)
        values = _values(flat, [low + up for low, up in zip(below, corner, strict=True)], size)
        term = values * weight.flatten(1).unsqueeze(1)
        total = term if total is None else total + term
    assert total is not None
    return total


def _bicubic(
    flat: Tensor, places: Sequence[Tensor], size: Sequence[int], padding_mode: str, align_corners: bool
) -> Tensor:
    below = [floor(coordinate.detach()) for coordinate in places]
    weights = [_cubic_weights(place - low) for place, low in zip(places, below, strict=True)]
    taps = [
        [_bounded(low + shift, length, padding_mode, align_corners) for shift in range(-1, 3)]
        for low, length in zip(below, size, strict=True)
    ]
    total: Tensor | None = None
    for row, column in product(range(4), repeat=2):
        weight = weights[0][row] * weights[1][column]
        term = _values(flat, [taps[0][row], taps[1][column]], size) * weight.flatten(1).unsqueeze(1)
        total = term if total is None else total + term
    assert total is not None
    return total


def _line(count: int, align_corners: bool, dtype: DType, device: Device) -> Tensor:
    """Return the coordinates of the centres of `count` elements in a row, in the range -1 to 1; for `affine_grid`."""
    if count == 1:
        return zeros(1, dtype=dtype, device=device)
    reach = 1.0 if align_corners else (count - 1) / count
    return linspace(-reach, reach, count, dtype=dtype, device=device)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid, for `grid_sample`, of the positions to which an affine map sends the elements of an image.

    Args:
        theta: the matrices of the maps, (samples, 2, 3), or (samples, 3, 4) for volumes, floating-point.
        size: of this image, the result of `grid_sample`: (samples, channels, height, width), or with a depth before the
            height.
        align_corners: as of `grid_sample`.

    Returns:
        (samples, height, width, 2), or (samples, depth, height, width, 3).

    Raises:
        TypeError: if `theta` is not floating-point, or `align_corners` no bool.
        ValueError: for shapes that do not fit, or a number below 1 in `size`.

    Example:
        >>> theta = flow.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> flow.nn.functional.affine_grid(theta, (1, 1, 1, 2), align_corners=True)
        tensor([[[[-1.,  0.],
                  [ 1.,  0.]]]])
    """
    check_tensors("affine_grid", theta)
    check_floating("affine_grid", theta._blob.meta)
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 1:
        raise ValueError(
            f"affine_grid: expected theta (samples, 2, 3) and a size (samples, channels, height, width), or "
            f"(samples, 3, 4) and (samples, channels, depth, height, width), none of them 0, got {list(theta.shape)} "
            f"and {list(size)}"
        )
    spatial = list(size[2:])
    corners = align_corners is not None and flag("affine_grid", "align_corners", align_corners)
    lines = [beside(_line(length, corners, theta.dtype, theta.device), theta) for length in spatial]
    across = [
        line.reshape([-1 if index == axis else 1 for index in range(rank)]).expand(spatial)
        for axis, line in enumerate(lines)
    ]
    base = stack([*reversed(across), theta.new_ones(*spatial)], -1)
    result = base.reshape(1, -1, rank + 1) @ theta.mT
    return result.reshape(size[0], *spatial, rank)
