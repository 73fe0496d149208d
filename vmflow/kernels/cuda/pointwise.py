"""Kernels that compute each element alone, for operands of any strides: the source is made of a C++ expression."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .layouts import common_layout
from .sources import COMPUTED, STORED, CudaKernel

# By size of an element, a dtype that stands for its bits.
_OF_SIZE: Final = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}

_FLOATING: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

# How many kernels are kept; their compiled code is on disk besides.
_KERNELS: Final = 1024


class Pointwise(NamedTuple):
    """A function of single elements.

    Attributes:
        name: for people, and a part of the kernel's name.
        expression: in C++, of the operands a, b, ... and the numbers x, y, ..., all of the type `compute`.
        compute: the dtype that operands are cast to.
        operands: the dtypes of the arrays.
        numbers: how many numbers there are behind the arrays.
        output: the dtype of the result.
    """

    name: str
    expression: str
    compute: str
    operands: tuple[str, ...]
    numbers: int
    output: str


def launch_pointwise(
    launcher: Launcher,
    function: Pointwise,
    operands: Sequence[DeviceArray],
    numbers: Sequence[Argument],
    out: DeviceArray,
) -> None:
    """Compute into `out`, to whose shape the operands broadcast, and which may be one of them."""
    operands = [apart(launcher, operand, out) for operand in operands]
    layout = common_layout(out.shape, (out, *operands))
    rank = 0 if layout.flat else len(layout.shape)
    count = prod(out.shape)
    arguments: list[Argument] = [out, *operands, *numbers, count]
    if rank:
        arguments += [*layout.shape[1:], *[stride for strides in layout.strides for stride in strides]]
    _kernel(function, rank).launch_over(launcher, count, arguments)


def copy_array(launcher: Launcher, source: DeviceArray, out: DeviceArray) -> None:
    """Copy an array, broadcast and cast to the shape and dtype of another."""
    if source.dtype == out.dtype and source.shape == out.shape and source.contiguous and out.contiguous:
        launcher.copy(out, source)
        return
    # Within one dtype the bits are copied: a conversion would change those of some nans.
    given, wanted = source.dtype.name, out.dtype.name
    if given == wanted:
        given = wanted = _OF_SIZE[source.itemsize]
    launch_pointwise(launcher, Pointwise("copy", "a", given, (given,), 0, wanted), (source,), (), out)


def apart(launcher: Launcher, operand: DeviceArray, out: DeviceArray) -> DeviceArray:
    """The operand, or a copy of it if a thread that writes `out` would change an element that another has yet to read.

    Threads run in any order.  Where operand and result are one array, each thread reads what it writes, and no more.
    """
    start, stop = operand.extent()
    low, high = out.extent()
    if stop <= low or high <= start:
        return operand
    if (operand.pointer, operand.dtype, operand.strides) == (out.pointer, out.dtype, out.strides):
        return operand
    copied = launcher.scratch(operand.shape, operand.dtype)
    copy_array(launcher, operand, copied)
    return copied


@lru_cache(_KERNELS)
def _kernel(function: Pointwise, rank: int) -> CudaKernel:
    name = f"{function.name}_{'_'.join([*function.operands, function.output])}_{rank}"
    return CudaKernel(name, _source(name, function, rank))


def _source(name: str, function: Pointwise, rank: int) -> str:
    arrays = ["out", *_letters("abcdefgh", len(function.operands))]
    numbers = _letters("xyz", function.numbers)
    stored = [STORED[dtype] for dtype in function.operands]
    number = "double" if function.compute in _FLOATING else "int64"
    parameters = [f"{STORED[function.output]}* out"]
    parameters += [f"const {kind}* {letter}_in" for kind, letter in zip(stored, arrays[1:], strict=True)]
    parameters += [f"{number} {letter}_in" for letter in numbers]
    parameters += ["int64 count"]
    parameters += [f"int64 size{axis}" for axis in range(1, rank)]
    parameters += [f"int64 {array}_step{axis}" for array in arrays for axis in range(rank)]
    to = COMPUTED[function.compute]
    places = {array: "i" for array in arrays} if not rank else {array: f"{array}_at" for array in arrays}
    loads = [f"const {to} {letter} = converted<{to}>({letter}_in[{places[letter]}]);" for letter in arrays[1:]] + [
        f"const {to} {letter} = ({to}){letter}_in;" for letter in numbers
    ]
    body = "\n        ".join([*_offsets(arrays, rank), *loads])
    return f"""
extern "C" __global__ void {name}({", ".join(parameters)}) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        {body}
        const auto result = {function.expression};
        out[{places["out"]}] = converted<{STORED[function.output]}>(result);
    }}
}}
"""


def _offsets(arrays: Sequence[str], rank: int) -> list[str]:
    """From the number of an element to its place in each array: statements from the last dimension to the first."""
    if not rank:
        return []
    lines = ["int64 left = i;", *[f"int64 {array}_at = 0;" for array in arrays]]
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const int64 index{axis} = left % size{axis}; left /= size{axis};")
        lines += [f"{array}_at += index{axis} * {array}_step{axis};" for array in arrays]
    return [*lines, *[f"{array}_at += left * {array}_step0;" for array in arrays]]


def _letters(letters: str, count: int) -> list[str]:
    if count > len(letters):
        raise ValueError(f"a pointwise kernel has at most {len(letters)} operands of a kind, not {count}")
    return list(letters[:count])
