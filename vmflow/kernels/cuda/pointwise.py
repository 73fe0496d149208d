"""Elementwise kernels made from C++ statements, for operands of any strides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from vmflow.kernels.expressions.rules import COMPLEX
from vmflow.kernels.expressions.sources import elements
from vmflow.streams.cuda.arrays import DeviceArray, reach_of
from vmflow.streams.cuda.device import Explain
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .complex_functions import COMPLEX_FUNCTIONS
from .functions import FUNCTIONS
from .layouts import common_layout
from .rehearsal import compile_soon
from .sources import ELEMENTS_PRELUDE, STORED, VARIABLES, CudaKernel

# By the bytes of an element, a dtype that stands for its bits.
_OF_SIZE: Final = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}

_FLOATING: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

# The most kernels that `kernel_of` caches in memory; compiled code is also cached on disk.
_KERNELS: Final = 1024

# The most combinations of shapes and strides whose routes (see `_Route`) are cached.
_ROUTES: Final = 4096


class Pointwise(NamedTuple):
    """An elementwise computation in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        operands: the dtypes of the operands that are arrays; their elements are x0, x1, ...
        numbers: the dtypes of the operands that are numbers, s0, s1, ...
        lines: statements in C++, which may declare more variables.
        results: for each result, an expression and the dtype to which it is converted.
        wrong: a condition, on the statements' variables, under which an error is reported; "" if there is none.
    """

    name: str
    operands: tuple[str, ...]
    numbers: tuple[str, ...]
    lines: tuple[str, ...]
    results: tuple[tuple[str, str], ...]
    wrong: str = ""


def launch_pointwise(
    launcher: Launcher,
    function: Pointwise,
    operands: Sequence[DeviceArray],
    numbers: Sequence[Argument],
    outs: Sequence[DeviceArray],
    explain: Explain | None = None,
    *,
    wait: bool = True,
) -> bool:
    """Compute a `Pointwise` into `outs`, arrays of one shape, to which the operands broadcast; an operand may be one of
    `outs`.

    Args:
        function: the computation.
        operands: the operands that are arrays.
        numbers: the operands that are numbers; a complex number is passed as two.
        outs: the arrays to write.
        explain: makes the exception for a wrong element from its position in C order, and 0 in place of a value;
            needed if `function.wrong` is set.
        wait: whether to wait until the kernel is compiled.

    Returns:
        Whether the kernel was launched; without `wait`, False if it must be compiled first, which a background thread
        then does.
    """
    arrays = (*outs, *operands)
    route = _route(outs[0].shape, tuple([(array.shape, array.strides, array.dtype.itemsize) for array in arrays]))
    if _overlap(arrays, len(outs), route.reaches):
        for out in outs:
            operands = [apart(launcher, operand, out) for operand in operands]
        arrays = (*outs, *operands)
        route = _route(outs[0].shape, tuple([(array.shape, array.strides, array.dtype.itemsize) for array in arrays]))
    kernel = kernel_of(function, route.rank)
    if not (wait or kernel.is_there(launcher.device)):
        compile_soon(kernel, launcher.device)
        return False
    report = [launcher.error_report(explain)] if function.wrong and explain is not None else []
    arguments = (*outs, *report, *operands, *numbers, *route.arguments)
    kernel.launch_over(launcher, route.size, arguments)
    return True


class _Route(NamedTuple):
    """The threads' way through arrays of some shapes and strides; cached by shapes and strides.

    Attributes:
        rank: see `kernel_of`.
        size: the number of elements.
        arguments: the kernel's last arguments: the number of elements, sizes and strides.
        reaches: for each array, the bytes from its first element to the lowest one, and to the end of the highest one.
    """

    rank: int
    size: int
    arguments: tuple[int, ...]
    reaches: tuple[tuple[int, int], ...]


# An array's shape, its strides in bytes, and the bytes of an element.
_Form: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]


@lru_cache(_ROUTES)
def _route(shape: tuple[int, ...], forms: tuple[_Form, ...]) -> _Route:
    layout = common_layout(shape, forms)
    rank = 0 if layout.flat else len(layout.shape)
    count = prod(shape)
    steps = (*layout.shape[1:], *[stride for strides in layout.strides for stride in strides]) if rank else ()
    return _Route(rank, count, (count, *steps), tuple([reach_of(*form) for form in forms]))


def _overlap(arrays: Sequence[DeviceArray], outs: int, reaches: Sequence[tuple[int, int]]) -> bool:
    """Return whether a written array, one of the first `outs`, may overlap with a read array that is not the same."""
    for out, (low, high) in zip(arrays[:outs], reaches, strict=False):
        start, stop = out.pointer + low, out.pointer + high
        for array, (first, last) in zip(arrays[outs:], reaches[outs:], strict=True):
            place = array.pointer
            if place + first < stop and start < place + last and not _same(array, out):
                return True
    return False


def _same(array: DeviceArray, out: DeviceArray) -> bool:
    # The shape counts: a row of `out`, broadcast to all rows, may have the pointer and strides of `out`.
    return (array.pointer, array.dtype, array.shape, array.strides) == (out.pointer, out.dtype, out.shape, out.strides)


def copy_array(launcher: Launcher, source: DeviceArray, out: DeviceArray) -> None:
    """Copy `source` to `out`, broadcast to the shape of `out` and cast to its dtype."""
    if source.dtype == out.dtype and source.shape == out.shape and source.contiguous and out.contiguous:
        launcher.copy(out, source)
        return
    # Between arrays of one dtype, bits are copied, since a conversion would change the bits of some nans.
    given, wanted = source.dtype.name, out.dtype.name
    if given == wanted:
        given = wanted = bits_of(source.dtype)
    launch_pointwise(launcher, _copy(given, wanted), (source,), (), (out,))


@lru_cache(None)
def _copy(given: str, wanted: str) -> Pointwise:
    return Pointwise("copy", (given,), (), (), (("x0", wanted),))


def bits_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype that stands for the bits of an element, for kernels that only move elements."""
    return _OF_SIZE[dtype.itemsize]


def fill_array(launcher: Launcher, out: DeviceArray, number: Any) -> None:
    """Set all elements of an array to a number of its dtype."""
    dtype = out.dtype.name
    if dtype in ("complex64", "complex128"):
        part = "float" if dtype == "complex64" else "double"
        made = ((f"{dtype}{{({part})s0, ({part})s1}}", dtype),)
        parts = float(number.real), float(number.imag)
        launch_pointwise(launcher, Pointwise("fill", (), ("float64", "float64"), (), made), (), parts, (out,))
        return
    value = float(number) if dtype in _FLOATING else int(number)
    launch_pointwise(launcher, Pointwise("fill", (), (dtype,), (), (("s0", dtype),)), (), (value,), (out,))


def apart(launcher: Launcher, operand: DeviceArray, out: DeviceArray) -> DeviceArray:
    """Return the operand, or a copy of it if it may share memory with `out` and is not the same array: a thread
    could change an element that another thread has yet to read.

    If operand and result are one array, a thread of an elementwise kernel reads only the element that it writes.
    """
    start, stop = operand.extent()
    low, high = out.extent()
    if stop <= low or high <= start:
        return operand
    if _same(operand, out):
        return operand
    copied = launcher.scratch(operand.shape, operand.dtype)
    copy_array(launcher, operand, copied)
    return copied


@lru_cache(_KERNELS)
def kernel_of(function: Pointwise, rank: int) -> CudaKernel:
    """Return the kernel of a function for arrays with `rank` dimensions to go through, 0 for contiguous arrays."""
    dtypes = [*function.operands, *function.numbers, *[dtype for _, dtype in function.results]]
    name = f"{function.name}_{'_'.join(dict.fromkeys(dtypes))}_{rank}"
    source = _source(name, function, rank)
    if function.lines:
        complex_ = COMPLEX_FUNCTIONS if any([dtype.startswith("complex") for dtype in dtypes]) else ""
        source = ELEMENTS_PRELUDE + elements() + FUNCTIONS + complex_ + source
    return CudaKernel(name, source, range(len(function.results) + bool(function.wrong)))


def _source(name: str, function: Pointwise, rank: int) -> str:
    outs = [f"out{place}" for place in range(len(function.results))]
    operands = [f"x{place}" for place in range(len(function.operands))]
    arrays = [*outs, *operands]
    parameters = [f"{STORED[dtype]}* {out}_at" for out, (_, dtype) in zip(outs, function.results, strict=True)]
    parameters += ["unsigned long long* report"] if function.wrong else []
    parameters += [f"const {STORED[dtype]}* {x}_at" for x, dtype in zip(operands, function.operands, strict=True)]
    for place, dtype in enumerate(function.numbers):
        kind = "int64" if dtype not in _FLOATING and dtype not in COMPLEX else "double"
        parameters += [f"{kind} s{place}_given"]
        parameters += [f"{kind} s{place}_imag"] if dtype in COMPLEX else []
    parameters += ["int64 count"]
    parameters += [f"int64 size{axis}" for axis in range(1, rank)]
    parameters += [f"int64 {array}_step{axis}" for array in arrays for axis in range(rank)]
    places = {array: f"{array}_place" if rank else "i" for array in arrays}
    held = [_held(f"s{place}", dtype) for place, dtype in enumerate(function.numbers)]
    loads = [
        f"const {VARIABLES[dtype]} {x} = converted<{VARIABLES[dtype]}>({x}_at[{places[x]}]);"
        for x, dtype in zip(operands, function.operands, strict=True)
    ]
    stores = [
        f"{out}_at[{places[out]}] = converted<{STORED[dtype]}>({result});"
        for out, (result, dtype) in zip(outs, function.results, strict=True)
    ]
    reports = [f"if ({function.wrong}) {_REPORT}"] if function.wrong else []
    body = "\n        ".join([*_offsets(arrays, rank), *loads, *function.lines, *reports, *stores])
    return f"""
extern "C" __global__ void {name}({", ".join(parameters)}) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    {" ".join(held)}
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {{
        {body}
    }}
}}
"""


# Reports a wrong element; only the first report counts.
_REPORT: Final = "atomicCAS(report, 0ULL, (unsigned long long)i + 1);"


def _held(name: str, dtype: str) -> str:
    """Return the C++ statement that declares a number, in the type to compute in for `dtype`, from the kernel's
    argument.
    """
    kind = VARIABLES[dtype]
    if dtype in COMPLEX:
        part = "float" if dtype == "complex64" else "double"
        return f"const {kind} {name} = {{({part}){name}_given, ({part}){name}_imag}};"
    return f"const {kind} {name} = ({kind}){name}_given;"


def _offsets(arrays: Sequence[str], rank: int) -> list[str]:
    """Return C++ statements that compute an element's place in each array from its number `i`, from the last dimension
    to the first.
    """
    if not rank:
        return []
    lines = ["int64 left = i;", *[f"int64 {array}_place = 0;" for array in arrays]]
    for axis in range(rank - 1, 0, -1):
        lines.append(f"const int64 index{axis} = left % size{axis}; left /= size{axis};")
        lines += [f"{array}_place += index{axis} * {array}_step{axis};" for array in arrays]
    return [*lines, *[f"{array}_place += left * {array}_step0;" for array in arrays]]
