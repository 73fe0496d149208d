"""Kernels that change many arrays in one launch, up to 32 rows of the same dtypes.

A row is arrays of one size that are changed together: for example a parameter, its gradient and its state.  Each block
of threads changes a part of one row, which it finds from the block's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from vmflow.kernels.cuda.pointwise import apart, copy_array
from vmflow.kernels.cuda.sources import COMPUTED, STORED, THREADS, CudaKernel
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

# The numbers of rows that a kernel can take: the smallest sufficient one is chosen.
_SLOT_COUNTS: Final = 1, 8, 32

# The most elements of a row that a block changes, unless `Change.part` says otherwise.
_PART: Final = 4 * THREADS

_KERNELS: Final = 512

_Thing = TypeVar("_Thing")

# The integer parameters for each row of a `Change`: its number of elements, its first block in the launch, its number,
# and the number of its first part among the parts of all rows.
_SLOT: Final = "row_size", "row_block", "row", "row_part"

_FLOATING: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
_DOUBLE: Final = np.dtype(np.float64)


class Given(NamedTuple):
    """A kernel's parameter that all rows share.

    Attributes:
        kind: the parameter's type in C++: "double", or a pointer; the target of a pointer that is not const is written
            to.
        name: the parameter's name in C++.
    """

    kind: str
    name: str


class Change(NamedTuple):
    """An elementwise change of rows of arrays, in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        writes: the names of a row's arrays that are written; one that is also read is in `reads` as well.
        reads: the names of a row's arrays that are read.
        body: statements in C++ for one element, whose variables have the names of the arrays.  Floating-point variables
            are of the type `real`: float64 if any of the arrays is, else float32.  ``kept_<array>(number)`` is a number
            rounded to that array's dtype.
        head: statements that a thread runs before its first element.
        numbers: names of numbers that a `Plan` has computed for each row.
        own: names of numbers that the host knows for each row.
        common: parameters of the kernel that all rows share.
        tail: statements that a thread runs behind its last element.
        parts: the number of float64 results of each block, which `tail` writes to ``partial[0]``, ``partial[1]``, ....
        part: the most elements that a block changes.
    """

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    body: str
    head: str = ""
    numbers: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    common: tuple[Given, ...] = ()
    tail: str = ""
    parts: int = 0
    part: int = _PART

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays of a row, in order: `writes`, then the others of `reads`."""
        return tuple(dict.fromkeys((*self.writes, *self.reads)))


class Row(NamedTuple):
    """Arrays that are changed together, element by element.

    Attributes:
        arrays: in the order of `Change.arrays`.
        own: the row's numbers that the host knows.
    """

    arrays: tuple[DeviceArray, ...]
    own: tuple[float, ...] = ()


class Plan(NamedTuple):
    """A computation with each row's counts, before the row's elements change: by one thread for each row, in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        counts: the names of arrays of one element, which `body` changes.
        numbers: the names of the float64 numbers that `body` computes for the `Change`.
        body: statements, which assign to counts and numbers.  ``kept_<count>(number)`` is a number rounded to the
            count's dtype.
        own, common: see `Change`.
    """

    name: str
    counts: tuple[str, ...]
    numbers: tuple[str, ...]
    body: str
    own: tuple[str, ...] = ()
    common: tuple[Given, ...] = ()


def change_rows(
    launcher: Launcher,
    change: Change,
    rows: Sequence[Row],
    common: Sequence[Argument] = (),
    planned: DeviceArray | None = None,
    partial: DeviceArray | None = None,
    skip: DeviceArray | None = None,
) -> None:
    """Launch kernels that change the elements of all rows.

    Args:
        common: the arguments that all rows share.
        planned: the numbers of each row; see `plan_rows`.
        partial: memory for the results of blocks, `Change.parts` for each block; see `parts_of`.
        skip: an array of one number: nothing changes if the number is not zero when the kernel runs.
    """
    rows = [Row(tuple(map(as_reals, row.arrays)), row.own) for row in rows]
    common = [
        0 if skip is None else skip,
        0 if planned is None else planned,
        0 if partial is None else partial,
        *common,
    ]
    places = np.cumsum([0, *parts_of(change, rows)]).tolist()
    numbered = [
        _Numbered(number, place, row, all([array.contiguous for array in row.arrays]))
        for number, (place, row) in enumerate(zip(places, rows, strict=False))
    ]
    written, kind_of_skip = len(change.writes), _dtype_of(skip)
    if not _meet(numbered, written):
        _change_apart(launcher, change, numbered, common, kind_of_skip)
        return
    # If rows meet, all rows are changed one after the other: a gradient may be another row's parameter.
    for numbered_row in numbered:
        row = _separated(launcher, numbered_row.row, written)
        _change_apart(launcher, change, [numbered_row._replace(row=row, flat=False)], common, kind_of_skip)


def parts_of(change: Change, rows: Sequence[Row]) -> list[int]:
    """Return the number of blocks that change each row."""
    return [-(-as_reals(row.arrays[0]).size // change.part) for row in rows]


def plan_rows(
    launcher: Launcher,
    plan: Plan,
    counts: Sequence[Sequence[DeviceArray]],
    own: Sequence[Sequence[float]] = (),
    common: Sequence[Argument] = (),
    skip: DeviceArray | None = None,
) -> DeviceArray | None:
    """Change the counts of all rows by a plan, and return the numbers, (rows, numbers); None if the plan has none.

    Args:
        counts: the counts of each row.
        own, common, skip: see `Row` and `change_rows`.
    """
    width = len(plan.numbers)
    planned = launcher.scratch((len(counts), width), _DOUBLE) if width else None
    for dtypes, some in _by_kind(range(len(counts)), [_dtypes_of(row) for row in counts]):
        slots = _slots_for(len(some))
        kernel = _plan_kernel(plan, dtypes, _dtype_of(skip), slots)
        arguments: list[Argument] = [0 if skip is None else skip, 0 if planned is None else planned, *common]
        for number in some:
            arguments += [*counts[number], *(own[number] if own else ()), number]
        empty: list[Argument] = [*[0] * len(plan.counts), *[0.0] * len(plan.own), 0]
        arguments += empty * (slots - len(some))
        kernel.launch(launcher, len(some), arguments, threads=1)
    return planned


def as_reals(array: DeviceArray) -> DeviceArray:
    """Return an array of real numbers as it is, and a complex one as a view with a further dimension of 2."""
    if array.dtype.kind != "c":
        return array
    real = np.dtype(np.float32 if array.itemsize == 8 else np.float64)
    return array.strided((*array.shape, 2), real, 0, (*array.strides, real.itemsize))


# Rows that fit into one kernel


def _by_kind(things: Sequence[_Thing], kinds: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[_Thing]]]:
    """Return groups (kind, items of this kind), each with at most as many items as a kernel can take."""
    by_kind: dict[tuple[str, ...], list[_Thing]] = {}
    for thing, kind in zip(things, kinds, strict=True):
        by_kind.setdefault(kind, []).append(thing)
    most = _SLOT_COUNTS[-1]
    return [
        (kind, found[first : first + most]) for kind, found in by_kind.items() for first in range(0, len(found), most)
    ]


def _slots_for(count: int) -> int:
    return next(slots for slots in _SLOT_COUNTS if slots >= count)


def _dtypes_of(arrays: Sequence[DeviceArray]) -> tuple[str, ...]:
    return tuple([_name_of(array.dtype) for array in arrays])


@lru_cache(None)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype; cached, since numpy computes it each time."""
    return dtype.name


def _dtype_of(skip: DeviceArray | None) -> str | None:
    return None if skip is None else skip.dtype.name


# Layouts of arrays


class _Numbered(NamedTuple):
    """A row with its number.

    Attributes:
        number: the row's number among all rows.
        place: the number of its first part among the parts of all rows.
        row: its arrays.
        flat: whether its arrays are known to be contiguous.
    """

    number: int
    place: int
    row: Row
    flat: bool


def _change_apart(
    launcher: Launcher, change: Change, rows: Sequence[_Numbered], common: Sequence[Argument], skip: str | None
) -> None:
    """Change rows, by way of contiguous copies where `_flat` makes them.

    `skip` is the dtype of the array `skip`; it is None without one.
    """
    copies: list[tuple[DeviceArray, DeviceArray]] = []
    written = len(change.writes)
    flat = [given if given.flat else given._replace(row=_flat(launcher, given.row, written, copies)) for given in rows]
    full = [given for given in flat if given.row.arrays[0].size]
    for dtypes, some in _by_kind(full, [_dtypes_of(given.row.arrays) for given in full]):
        slots = _slots_for(len(some))
        arguments, blocks = [*common], 0
        for number, place, row, _ in some:
            size = row.arrays[0].size
            arguments += [*row.arrays, size, blocks, number, place, *row.own]
            blocks += -(-size // change.part)
        empty: list[Argument] = [*[0] * len(dtypes), 0, blocks, 0, 0, *[0.0] * len(change.own)]
        arguments += empty * (slots - len(some))
        _change_kernel(change, dtypes, skip, slots).launch(launcher, blocks, arguments)
    for made, array in copies:
        copy_array(launcher, made, array)


def _flat(launcher: Launcher, row: Row, written: int, copies: list[tuple[DeviceArray, DeviceArray]]) -> Row:
    """Return the row with copies of arrays that are not contiguous, unless all have the same order without gaps.

    Add (copy, array) to `copies` for each array that is written, to be copied back.
    """
    if all([array.contiguous for array in row.arrays]) or _have_one_order(row.arrays):
        return row
    arrays = []
    for place, array in enumerate(row.arrays):
        if not array.contiguous:
            made = launcher.scratch(array.shape, array.dtype)
            copy_array(launcher, array, made)
            if place < written:
                copies.append((made, array))
            array = made
        arrays.append(array)
    return Row(tuple(arrays), row.own)


def _have_one_order(arrays: Sequence[DeviceArray]) -> bool:
    """Return whether the arrays have one shape, no gaps, and the same order of dimensions in memory."""
    first = arrays[0]
    order = sorted(range(first.ndim), key=lambda axis: -first.strides[axis])
    for array in arrays:
        if array.shape != first.shape:
            return False
        strides = tuple([array.strides[axis] for axis in order])
        if not array.strided(tuple([array.shape[axis] for axis in order]), array.dtype, 0, strides).contiguous:
            return False
    return True


def _meet(rows: Sequence[_Numbered], written: int) -> bool:
    """Return whether a row's written array may overlap with another array, except an identical array of its row."""
    spans = []
    for number, _, row, flat in rows:
        for place, array in enumerate(row.arrays):
            low, high = (array.pointer, array.pointer + array.nbytes) if flat else array.extent()
            if low < high:
                spans.append((low, high, number, place < written, array.strides))
    spans.sort(key=lambda span: span[:3])
    reach, reach_of_written = 0, 0
    before: tuple[Any, ...] | None = None
    for span in spans:
        low, high, number, writes, strides = span
        same = before is not None and (low, high, number, strides) == (*before[:3], before[4])
        if not same and (low < reach_of_written or (writes and low < reach)):
            return True
        reach = max(reach, high)
        if writes or (same and low < reach_of_written):
            reach_of_written = max(reach_of_written, high)
        before = span
    return False


def _separated(launcher: Launcher, row: Row, written: int) -> Row:
    """Return the row with copies of read arrays that may overlap with written arrays, unless both are identical."""
    arrays = list(row.arrays)
    for place in range(written, len(arrays)):
        for target in arrays[:written]:
            arrays[place] = apart(launcher, arrays[place], target)
    return Row(tuple(arrays), row.own)


# Sources


@lru_cache(_KERNELS)
def _change_kernel(change: Change, dtypes: tuple[str, ...], skip: str | None, slots: int) -> CudaKernel:
    arrays = change.arrays
    kinds = dict(zip(arrays, dtypes, strict=True))
    parameters = _first_parameters(skip, change.common, ["double* partial"])
    writes = [2] if change.parts else []
    writes += _written(change.common, 3)
    for slot in range(slots):
        writes += range(len(parameters), len(parameters) + len(change.writes))
        parameters += [f"{_pointed(kinds[name], name in change.writes)} {name}{slot}" for name in arrays]
        parameters += [f"int64 {name}{slot}" for name in _SLOT]
        parameters += [f"double {name}{slot}" for name in change.own]
    fields = [
        *[(f"{_pointed(kinds[name], name in change.writes)} {name}_at", name) for name in arrays],
        *[(f"int64 {name}", name) for name in _SLOT],
        *[(f"double {name}", name) for name in change.own],
    ]
    kept = [
        f"""auto kept_{name} = [](double value) {{
        return converted<{_variable(kinds[name])}>(converted<{STORED[kinds[name]]}>(value));
    }};"""
        for name in arrays
    ]
    loads = [
        f"{_variable(kinds[name])} {name} = converted<{_variable(kinds[name])}>({name}_at[i]);" for name in change.reads
    ]
    loads += [f"{_variable(kinds[name])} {name};" for name in change.writes if name not in change.reads]
    stores = [f"{name}_at[i] = converted<{STORED[kinds[name]]}>({name});" for name in change.writes]
    name = "_".join([change.name, *dict.fromkeys(dtypes), str(slots)])
    source = f"""
extern "C" __global__ void {name}({", ".join(parameters)}) {{
    typedef {"double" if "float64" in dtypes else "float"} real;
    {_unless(skip)}
    {" ".join([f"{declaration};" for declaration, _ in fields])}
    {_selected(fields, 0, slots, "row_block{}", "blockIdx.x")}
    {_numbers(change.numbers)}
    {"partial += (row_part + blockIdx.x - row_block) * " + str(change.parts) + ";" if change.parts else ""}
    const int64 begin = (blockIdx.x - row_block) * {change.part};
    const int64 end = begin + {change.part} < row_size ? begin + {change.part} : row_size;
    {" ".join(kept)}
    {change.head}
    for (int64 i = begin + threadIdx.x; i < end; i += {THREADS}) {{
        {" ".join(loads)}
        {change.body}
        {" ".join(stores)}
    }}
    {change.tail}
}}
"""
    return CudaKernel(name, REDUCING + source if change.tail else source, writes)


@lru_cache(_KERNELS)
def _plan_kernel(plan: Plan, dtypes: tuple[str, ...], skip: str | None, slots: int) -> CudaKernel:
    kinds = dict(zip(plan.counts, dtypes, strict=True))
    parameters = _first_parameters(skip, plan.common, [])
    parameters[1] = "double* planned"
    writes = [1] if plan.numbers else []
    writes += _written(plan.common, 2)
    for slot in range(slots):
        writes += range(len(parameters), len(parameters) + len(plan.counts))
        parameters += [f"{STORED[kinds[name]]}* {name}{slot}" for name in plan.counts]
        parameters += [f"double {name}{slot}" for name in plan.own]
        parameters.append(f"int64 row{slot}")
    fields = [
        *[(f"{STORED[kinds[name]]}* {name}_at", name) for name in plan.counts],
        *[(f"double {name}", name) for name in plan.own],
        ("int64 row", "row"),
    ]
    counts = [
        f"""auto kept_{name} = [](double value) {{
        return converted<{COMPUTED[kinds[name]]}>(converted<{STORED[kinds[name]]}>(value));
    }};
    {COMPUTED[kinds[name]]} {name} = converted<{COMPUTED[kinds[name]]}>(*{name}_at);"""
        for name in plan.counts
    ]
    results = [f"*{name}_at = converted<{STORED[kinds[name]]}>({name});" for name in plan.counts]
    results += [f"planned[row * {len(plan.numbers)} + {place}] = {name};" for place, name in enumerate(plan.numbers)]
    name = "_".join(["plan", plan.name, *dict.fromkeys(dtypes), str(slots)])
    source = f"""
extern "C" __global__ void {name}({", ".join(parameters)}) {{
    {_unless(skip)}
    {" ".join([f"{declaration};" for declaration, _ in fields])}
    {_selected(fields, 0, slots, "", "blockIdx.x")}
    {" ".join(counts)}
    {" ".join([f"double {name};" for name in plan.numbers])}
    {plan.body}
    {" ".join(results)}
}}
"""
    return CudaKernel(name, source, writes)


def _first_parameters(skip: str | None, common: Sequence[Given], others: Sequence[str]) -> list[str]:
    given = [f"{kind} {name}" for kind, name in common]
    return [f"const {STORED[skip or 'float32']}* skip", "const double* planned", *others, *given]


def _written(common: Sequence[Given], first: int) -> list[int]:
    """Return the positions of a kernel's shared parameters that are written to; the first of `common` has the position
    `first`.
    """
    return [
        first + place for place, (kind, _) in enumerate(common) if kind.endswith("*") and not kind.startswith("const")
    ]


def _pointed(dtype: str, written: bool) -> str:
    return f"{STORED[dtype]}*" if written else f"const {STORED[dtype]}*"


def _variable(dtype: str) -> str:
    return "real" if dtype in _FLOATING else STORED[dtype]


def _unless(skip: str | None) -> str:
    return "" if skip is None else "if (converted<bool>(*skip)) return;"


def _numbers(names: Sequence[str]) -> str:
    return " ".join(
        [f"const double {name} = planned[row * {len(names)} + {place}];" for place, name in enumerate(names)]
    )


def _selected(fields: Sequence[tuple[str, str]], start: int, stop: int, bound: str, block: str) -> str:
    """Return C++ statements that set the variables `fields` to the parameters of the row that a block belongs to, found
    by bisection of the rows from `start` to before `stop`.

    `fields` are pairs: a variable, and the name of its parameters without the row's number.  `bound` is the pattern of
    the name of a row's first block, or "" if each row has one block.
    """
    if stop - start == 1:
        return " ".join([f"{declaration.split()[-1]} = {name}{start};" for declaration, name in fields])
    middle = (start + stop) // 2
    low, high = (_selected(fields, first, last, bound, block) for first, last in ((start, middle), (middle, stop)))
    limit = bound.format(middle) if bound else str(middle)
    return f"if ({block} < {limit}) {{ {low} }} else {{ {high} }}"


# All threads of a block combine their values in a tree; each gets the result.
REDUCING: Final = f"""
template <typename Combine> __device__ double of_block(double value, Combine combine) {{
    __shared__ double shared[{THREADS}];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {{
        if (threadIdx.x < step) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + step]);
        __syncthreads();
    }}
    const double result = shared[0];
    __syncthreads();
    return result;
}}
"""
