"""im2col and its adjoint: windows of images become the columns of a matrix, and columns are added up to images.

The matrix has one row per channel and tap of the kernel, and one column per sample and pixel of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final

from vmflow.kernels.problems.convolution import Geometry
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .sources import COMPUTED, STORED
from .walks import Steps, Walk, Walked, along, steps_of, walk, walked

# The most bytes of columns that are made and multiplied together, unless columns are kept: `pieces` cuts larger
# batches, but no sample.  Columns may take as many times the bytes of the images as the kernel has taps.
COLUMN_BYTES: Final = 256 << 20


def pieces(sizes: Geometry, itemsize: int) -> Iterator[slice]:
    """Yield slices that cut the batch into pieces whose columns take at most `COLUMN_BYTES`, or into single samples."""
    each = sizes.channels * prod(sizes.kernel) * prod(sizes.output) * itemsize
    size = max(1, COLUMN_BYTES // max(each, 1))
    for start in range(0, sizes.samples, size):
        yield slice(start, min(start + size, sizes.samples))


def column_shape(sizes: Geometry, samples: int) -> tuple[int, ...]:
    """Return the shape of columns with no dimensions merged: (channels, *kernel, samples, *output)."""
    return (sizes.channels, *sizes.kernel, samples, *sizes.output)


def to_columns(launcher: Launcher, array: DeviceArray, sizes: Geometry, out: DeviceArray, steps: Steps) -> None:
    """Copy the windows of images (samples, channels, ...) into `out`, whose strides along the dimensions of
    `column_shape` are `steps`, in elements.
    """
    rank, samples = sizes.rank, array.shape[0]
    shape = column_shape(sizes, samples)
    sample, channel, *strides = steps_of(array)
    taps = (0,) * rank
    source = Walked(array, (channel, *taps, sample, *taps))
    counters = []
    for axis in range(rank):
        places = list(along(1 + axis, len(shape), sizes.dilation[axis]))
        places[2 + rank + axis] = sizes.stride[axis]
        counters.append(tuple(places))
    numbers = [number for axis in range(rank) for number in (sizes.before[axis], sizes.size[axis], strides[axis])]
    program = _windows(rank, array.dtype.name, out.dtype.name)
    walk(launcher, program, shape, [Walked(out, steps)], [source], counters, numbers)


def from_columns(launcher: Launcher, matrix: DeviceArray, steps: Steps, sizes: Geometry, out: DeviceArray) -> None:
    """Add columns up to images (samples, channels, ...): a pixel is the sum of the columns' elements that lie on it.

    Args:
        launcher: of the stream.
        matrix: the columns.
        steps: the strides of the matrix, in elements, along the dimensions of `column_shape`.
        sizes: the geometry of the convolution.
        out: the images; sums are taken in the dtype of the matrix, or in float32 if that is half precision.
    """
    rank = sizes.rank
    channel, *rest = steps
    taps, sample, pixels = rest[:rank], rest[rank], rest[rank + 1 :]
    source = Walked(matrix, (sample, channel, *(0,) * rank))
    counters = [along(2 + axis, 2 + rank) for axis in range(rank)]
    numbers: list[Argument] = []
    for axis in range(rank):
        numbers += [
            sizes.before[axis],
            sizes.kernel[axis],
            sizes.dilation[axis],
            sizes.stride[axis],
            sizes.output[axis],
        ]
        numbers += [taps[axis], pixels[axis]]
    program = _sums(rank, matrix.dtype.name, out.dtype.name)
    walk(launcher, program, out.shape, [walked(out)], [source], counters, numbers)


@lru_cache(None)
def _windows(rank: int, given: str, wanted: str) -> Walk:
    lines = ["int64 place = x_place;", "bool inside = true;"]
    for axis in range(rank):
        lines += [
            f"const int64 at{axis} = p{axis}_place - before{axis};",
            f"inside = inside && at{axis} >= 0 && at{axis} < size{axis};",
            f"place += at{axis} * stride{axis};",
        ]
    to = STORED[wanted]
    lines.append(f"out[out_place] = inside ? converted<{to}>(x[place]) : converted<{to}>(0);")
    numbers = [f"{name}{axis}" for axis in range(rank) for name in ("before", "size", "stride")]
    counters = [f"p{axis}" for axis in range(rank)]
    return Walk("columns", (("out", wanted),), (("x", given),), tuple(counters), tuple(numbers), tuple(lines))


_PER_AXIS: Final = ("before", "kernel", "dilation", "stride", "output", "tap_stride", "pixel_stride")


@lru_cache(None)
def _sums(rank: int, given: str, wanted: str) -> Walk:
    """Build the program of `from_columns`: each thread adds up the taps that cover one pixel, in their order."""
    compute = COMPUTED[given]
    lines = [f"{compute} total = converted<{compute}>(0);"]
    before = "x_place"
    for axis in range(rank):
        lines += [
            "#pragma unroll 1",
            f"for (int64 tap{axis} = 0; tap{axis} < kernel{axis}; tap{axis}++) {{",
            f"const int64 far{axis} = p{axis}_place + before{axis} - tap{axis} * dilation{axis};",
            f"const int64 pixel{axis} = far{axis} / stride{axis};",
            f"if (far{axis} < 0 || pixel{axis} * stride{axis} != far{axis} || pixel{axis} >= output{axis}) continue;",
            f"const int64 at{axis} = {before} + tap{axis} * tap_stride{axis} + pixel{axis} * pixel_stride{axis};",
        ]
        before = f"at{axis}"
    lines += [f"total = total + converted<{compute}>(x[{before}]);", "}" * rank]
    lines.append(f"out[out_place] = converted<{STORED[wanted]}>(total);")
    numbers = [f"{name}{axis}" for axis in range(rank) for name in _PER_AXIS]
    counters = [f"p{axis}" for axis in range(rank)]
    return Walk("sums_of_columns", (("out", wanted),), (("x", given),), tuple(counters), tuple(numbers), tuple(lines))
