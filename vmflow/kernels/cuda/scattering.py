"""Elements put, added and reduced at places that indices name, in the order of the indices.

A *place* is the position of an element in contiguous memory.  Each index names a place, or, if it names a slice, that
of the slice's first element.  Values to combine are sorted by their places, in their order for each place, so that the
order of a sum is always the same, and that of the CPU for at most `STRETCH` values in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.dtypes import by_name
from vmflow.kernels.strides import with_merged_dimensions
from vmflow.streams.cuda.arrays import DeviceArray, contiguous_strides
from vmflow.streams.cuda.launching import Launcher

from .pointwise import bits_of
from .sorting import sort_keys
from .sources import COMPUTED, STORED
from .walks import Steps, Walk, Walked, contiguous, standing, steps_of, walk, walked

_INT64: Final = np.dtype(np.int64)

# The most values, sorted by their places, that one thread combines one after the other.
STRETCH: Final = 256

# The last index of each key is found by a table of all possible keys, unless there are more keys than `_TABLE_PER_KEY`
# for each index, and more than `_SMALL_TABLE` in all.
_TABLE_PER_KEY: Final = 8
_SMALL_TABLE: Final = 1 << 16


class Chosen(NamedTuple):
    """The dimensions of the result where an array is indexed by arrays.

    Indices without dimensions are applied first, and remove the dimensions that they index.  Then the broadcast
    dimensions of the indices replace the indexed dimensions if these are adjacent, and otherwise come first.

    Attributes:
        joint: the broadcast shape of all indices.
        at: the first dimension of the result that belongs to the indices.
        others: the array's dimensions that the result keeps.
    """

    joint: tuple[int, ...]
    at: int
    others: tuple[int, ...]

    @classmethod
    def by(cls, ndim: int, dims: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> Chosen:
        """Describe indexing by arrays of these shapes, for the dimensions `dims` of an array with `ndim` dimensions."""
        removed = [dim for dim, shape in zip(dims, shapes, strict=True) if not shape]
        left = [axis for axis in range(ndim) if axis not in removed]
        replaced = [position for position, axis in enumerate(left) if axis in dims]
        adjacent = bool(replaced) and replaced[-1] - replaced[0] + 1 == len(replaced)
        others = tuple([axis for axis in left if axis not in dims])
        return cls(np.broadcast_shapes(*shapes), replaced[0] if adjacent else 0, others)

    @property
    def end(self) -> int:
        """The first dimension of the result behind the indices' dimensions."""
        return self.at + len(self.joint)

    def steps_of_others(self, steps: Sequence[int]) -> Steps:
        """Turn steps along the array's dimensions into steps along the result's: 0 along the indices' dimensions."""
        own = [steps[axis] for axis in self.others]
        return (*own[: self.at], *[0] * len(self.joint), *own[self.at :])

    def steps_of_joint(self, steps: Sequence[int]) -> Steps:
        """Turn steps along the indices' last dimensions into steps along all of the result's: 0 along the others."""
        behind = len(self.others) - self.at
        return (*[0] * self.at, *[0] * (len(self.joint) - len(steps)), *steps, *[0] * behind)


def broadcast_steps(array: DeviceArray) -> Steps:
    """Return the steps of an array that is to be broadcast: 0 along dimensions of one element."""
    return tuple([0 if size == 1 else step for size, step in zip(array.shape, steps_of(array), strict=True)])


# Places


class Places(NamedTuple):
    """The places in memory that a vector of indices names.

    Attributes:
        keys: for each index, an int64 that only indices of the same place share.
        limit: a number that all keys are below.
        places: the place of each index; the number 0 if the keys are the places.
    """

    keys: DeviceArray
    limit: int
    places: DeviceArray | int


def places_of(
    launcher: Launcher,
    chosen: Chosen,
    dims: Sequence[int],
    indices: Sequence[DeviceArray],
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> Places:
    """Compute the places that indices for `dims` name in memory with these sizes, strides and offset, in elements.

    A negative index counts from the end; one that is out of range becomes the nearest valid one.
    """
    count = prod(chosen.joint)
    keys, places = launcher.scratch((count,), _INT64), launcher.scratch((count,), _INT64)
    own = contiguous_strides(chosen.joint, 1)
    numbers: list[int] = [offset]
    arrays = []
    for dim, index in zip(dims, indices, strict=True):
        missing = len(chosen.joint) - index.ndim
        arrays.append(Walked(index, (0,) * missing + broadcast_steps(index)))
        numbers += [sizes[dim], strides[dim]]
    program = _places(tuple([index.dtype.name for index in indices]))
    walk(launcher, program, chosen.joint, [Walked(keys, own), Walked(places, own)], arrays, (), numbers)
    limit = prod([sizes[dim] for dim in dims])
    return Places(keys, limit, places)


@lru_cache(None)
def _places(dtypes: tuple[str, ...]) -> Walk:
    lines = ["int64 key = 0, place = offset;"]
    for number in range(len(dtypes)):
        lines += [
            f"const int64 index{number} = wrapped(x{number}[x{number}_place], size{number});",
            f"key = key * size{number} + index{number};",
            f"place += index{number} * stride{number};",
        ]
    lines += ["keys[keys_place] = key;", "places[places_place] = place;"]
    arrays = tuple([(f"x{number}", dtype) for number, dtype in enumerate(dtypes)])
    numbers = ("offset", *[f"{name}{number}" for number in range(len(dtypes)) for name in ("size", "stride")])
    outs = (("keys", "int64"), ("places", "int64"))
    return Walk("places", outs, arrays, (), numbers, tuple(lines))


def places_along(launcher: Launcher, indices: DeviceArray, shape: tuple[int, ...], dim: int) -> Places:
    """Compute the places that `indices` name along `dim` of a contiguous array of `shape`, as in ``gather``.

    An index that is out of range (a negative one, too) becomes the nearest valid one.
    """
    own = contiguous_strides(shape or (1,), 1)
    ndim = indices.ndim
    found = launcher.scratch((indices.size,), _INT64)
    others = tuple([0 if axis == dim else own[axis] for axis in range(ndim)])
    source = Walked(indices, steps_of(indices))
    target = Walked(found, contiguous_strides(indices.shape, 1))
    size = shape[dim] if shape else 1
    walk(launcher, _along(indices.dtype.name), indices.shape, [target], [source], [others], (size, own[dim]))
    return Places(found, prod(shape), 0)


@lru_cache(None)
def _along(dtype: str) -> Walk:
    lines = ("keys[keys_place] = others_place + within(x[x_place], size) * stride;",)
    return Walk("places_along", (("keys", "int64"),), (("x", dtype),), ("others",), ("size", "stride"), lines)


def known_keys(launcher: Launcher, indices: DeviceArray, limit: int) -> DeviceArray:
    """Return indices as a vector of keys; an index outside of 0 to `limit` - 1 becomes the key `limit`."""
    keys = launcher.scratch((indices.size,), _INT64)
    target = Walked(keys, contiguous_strides(indices.shape, 1))
    walk(launcher, _known(indices.dtype.name), indices.shape, [target], [walked(indices)], (), (limit,))
    return keys


@lru_cache(None)
def _known(dtype: str) -> Walk:
    lines = ("const int64 index = x[x_place];", "keys[keys_place] = index < 0 || index > limit ? limit : index;")
    return Walk("known_keys", (("keys", "int64"),), (("x", dtype),), (), ("limit",), lines)


# Values


class Slices(NamedTuple):
    """The slice of elements that each index names.

    Attributes:
        shape: the shape of a slice.
        target: the steps along a slice in the changed memory.
        values: the steps along a slice in the values.
    """

    shape: tuple[int, ...] = ()
    target: Steps = ()
    values: Steps = ()


def put_at(
    launcher: Launcher,
    target: DeviceArray,
    places: Places,
    values: DeviceArray,
    joint: Steps,
    joint_shape: tuple[int, ...],
    slices: Slices,
) -> None:
    """Write values, converted to the target's dtype, to their places; of several values for one place, the last.

    Args:
        launcher: of the stream.
        target: contiguous memory.
        places: the places of the indices.
        values: a slice of values for each index.
        joint, joint_shape: the steps of the values along the indices' dimensions, and these dimensions' sizes.
        slices: the slice that each index names.
    """
    count = places.keys.size
    if not count or not prod(slices.shape):
        return
    own = contiguous_strides(joint_shape, 1)
    some = (0,) * len(slices.shape)
    last = last_of_each(launcher, places)
    same = values.dtype == target.dtype
    given, wanted = (bits_of(target.dtype),) * 2 if same else (values.dtype.name, target.dtype.name)
    program = _put(given, wanted, last.by_key, places.places == 0)
    arrays = [
        Walked(values, joint + slices.values),
        *[standing(each, len(own + some)) for each in (places.keys, places.places, last.array)],
    ]
    outs = [Walked(target, (0,) * len(own) + slices.target)]
    walk(launcher, program, joint_shape + slices.shape, outs, arrays, [own + some])


class Last(NamedTuple):
    """The last index that has each key.

    Attributes:
        array: for each key, the number of its last index; or for each index, whether it is the last with its key; the
            number 0 if there is only one index.
        by_key: whether `array` has an element for each key.
    """

    array: DeviceArray | int
    by_key: bool


def last_of_each(launcher: Launcher, places: Places) -> Last:
    """The last index of each key."""
    (count,) = places.keys.shape
    if count == 1:
        return Last(0, True)
    if places.limit <= max(_TABLE_PER_KEY * count, _SMALL_TABLE):
        last = launcher.scratch((places.limit,), _INT64)
        launcher.fill(last, 255)
        walk(launcher, _LAST, (count,), [standing(last, 1)], [standing(places.keys, 1)], [(1,)])
        return Last(last, True)
    keys, order = sort_keys(launcher, places.keys, places.limit)
    last = launcher.scratch((count,), _INT64)
    arrays = [standing(keys, 1), standing(order, 1)]
    walk(launcher, _LAST_OF_SORTED, (count,), [standing(last, 1)], arrays, [(1,)], (count,))
    return Last(last, False)


_LAST: Final = Walk(
    "last_index", (("last", "int64"),), (("keys", "int64"),), ("n",), (), ("atomicMax(last + keys[n_place], n_place);",)
)
_LAST_OF_SORTED: Final = Walk(
    "last_of_sorted",
    (("last", "int64"),),
    (("keys", "int64"), ("order", "int64")),
    ("n",),
    ("many",),
    ("last[order[n_place]] = n_place + 1 == many || keys[n_place + 1] != keys[n_place];",),
)


@lru_cache(None)
def _put(given: str, wanted: str, by_key: bool, keys_are_places: bool) -> Walk:
    place = "keys[n_place]" if keys_are_places else "places[n_place]"
    lines = (
        f"if (last && {'last[keys[n_place]] != n_place' if by_key else '!last[n_place]'}) continue;",
        f"target[target_place + {place}] = converted<{STORED[wanted]}>(values[values_place]);",
    )
    arrays = (("values", given), ("keys", "int64"), ("places", "int64"), ("last", "int64"))
    return Walk("put", (("target", wanted),), arrays, ("n",), (), lines)


class Combination(NamedTuple):
    """The combination of several values for one place, in C++.

    Attributes:
        name: for people, and a part of the kernel's name.
        start: the first total; "" for the element that is at the place.
        combine: combines a `total` and a taken value `v`; associative but for rounding.
        finish: turns the last total into the element; `count` is the number of values for the place.
        take: turns a value `v`, rounded to the target's dtype, into the one that is combined; it may use `count`, too.
    """

    name: str
    start: str
    combine: str
    finish: str = "total"
    take: str = "v"


ADD: Final = Combination("add", "", "total + v")
ADD_TO_ZERO: Final = Combination("add_to_zero", "converted<value>(0)", "total + v")


def combine_at(
    launcher: Launcher,
    how: Combination,
    target: DeviceArray,
    places: Places,
    values: DeviceArray,
    joint: Steps,
    joint_shape: tuple[int, ...],
    slices: Slices,
    skipped: int = -1,
) -> None:
    """Combine values with the elements at their places (or with `how.start`), one after the other; see `put_at`.

    Sorted by their places, the values are cut into stretches.  If a stretch begins with the last place of the
    stretch before it, another kernel first combines the values of that place in the stretch: so a thread goes through
    one stretch's values only.

    Args:
        launcher, target, places, values, joint, joint_shape, slices: see `put_at`.
        how: the combination.
        skipped: the key (see `Places`) whose values are left out; -1 for none.
    """
    count = places.keys.size
    if not count or not prod(slices.shape):
        return
    sizes, (merged,) = with_merged_dimensions(joint_shape, [joint])
    if len(sizes) > 1:
        values = _in_a_row(launcher, values, joint, joint_shape, slices)
        return combine_at(
            launcher, how, target, places, values, (prod(slices.shape),), (count,),
            slices._replace(values=contiguous_strides(slices.shape, 1)), skipped,
        )  # fmt: skip
    keys, order = sort_keys(launcher, places.keys, places.limit)
    names = how, values.dtype.name, target.dtype.name
    ndim = 1 + len(slices.shape)
    counters = [(1,) + (0,) * (ndim - 1)]
    sources = [Walked(values, (0, *slices.values)), *[standing(each, ndim) for each in (keys, order)]]
    numbers = (count, merged[0] if merged else 0, skipped, STRETCH)
    stretches = -(-count // STRETCH)
    begun = Walked(0, (0,) * ndim)
    if stretches > 1:
        shape = (stretches, *slices.shape)
        partial = launcher.scratch(shape, _wide(target.dtype))
        own = contiguous_strides(shape, 1)
        walk(launcher, _begin(*names), shape, [Walked(partial, own)], sources, counters, numbers)
        begun = Walked(partial, (0, *own[1:]))
    program = _combine(*names, places.places == 0)
    outs = [Walked(target, (0, *slices.target))]
    stride = prod(slices.shape)
    arrays = [*sources, standing(places.places, ndim), begun]
    walk(launcher, program, (count, *slices.shape), outs, arrays, counters, (*numbers, stride))


def _in_a_row(
    launcher: Launcher, values: DeviceArray, joint: Steps, joint_shape: tuple[int, ...], slices: Slices
) -> DeviceArray:
    """Copy values to contiguous memory, one slice behind the other."""
    size = values.itemsize
    strides = tuple([step * size for step in joint + slices.values])
    view = values.strided(joint_shape + slices.shape, values.dtype, 0, strides)
    return contiguous(launcher, view)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of totals."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


def _taken(how: Combination, wanted: str) -> tuple[str, ...]:
    """Return C++ statements that declare the type of totals, and the functions `bound` (bisection of the sorted keys),
    `taken` (what is combined for the nth value in sorted order) and `combined`.
    """
    stored = STORED[wanted]
    return (
        f"typedef {COMPUTED[wanted]} value;",
        "auto bound = [&](int64 low, int64 high, int64 limit) {",
        "while (low < high) {",
        "const int64 middle = (low + high) / 2;",
        "if (keys[middle] < limit) low = middle + 1; else high = middle;",
        "}",
        "return low;",
        "};",
        "auto taken = [&](int64 n, int64 count) -> value {",
        "const int64 position = order ? order[n] : n;",
        f"const value v = converted<value>(converted<{stored}>(values[values_place + position * step]));",
        f"return {how.take};",
        "};",
        f"auto combined = [](value total, value v) -> value {{ return {how.combine}; }};",
    )


_SORTED: Final = (("keys", "int64"), ("order", "int64"))
_NUMBERS: Final = ("many", "step", "skipped", "stretch")


@lru_cache(None)
def _begin(how: Combination, given: str, wanted: str) -> Walk:
    """Build a program that writes to `partial`, for each stretch that begins with the last key of the stretch before,
    its values of that key, combined, unless that key is `skipped`; `_combine` reads `partial`.
    """
    counted = "bound(n, many, key + 1) - bound(0, n, key)" if "count" in how.take else "0"
    lines = (
        *_taken(how, wanted),
        "const int64 begin = n_place * stretch, end = least(begin + stretch, many), key = keys[begin];",
        "if (begin == 0 || key == skipped || keys[begin - 1] != key) continue;",
        f"const int64 n = begin, count = {counted};",
        "value total = taken(begin, count);",
        "for (int64 n = begin + 1; n < end && keys[n] == key; n++) total = combined(total, taken(n, count));",
        "partial[partial_place] = total;",
    )
    outs = (("partial", _wide(by_name(wanted).numpy).name),)
    return Walk(f"{how.name}_begin", outs, (("values", given), *_SORTED), ("n",), _NUMBERS, lines)


@lru_cache(None)
def _combine(how: Combination, given: str, wanted: str, keys_are_places: bool) -> Walk:
    """Build a program in which the thread of a key's first value combines the values in its stretch, and then the
    beginnings of later stretches.
    """
    place = "key" if keys_are_places else "places[order ? order[n_place] : n_place]"
    lines = (
        *_taken(how, wanted),
        "const int64 key = keys[n_place];",
        "if (key == skipped || (n_place > 0 && keys[n_place - 1] == key)) continue;",
        "const int64 end = bound(n_place + 1, many, key + 1), count = end - n_place;",
        "const int64 own = least(end, (n_place / stretch + 1) * stretch);",
        f"{STORED[wanted]}* const at = target + target_place + {place};",
        f"value total = {how.start or 'converted<value>(*at)'};",
        "for (int64 n = n_place; n < own; n++) total = combined(total, taken(n, count));",
        "for (int64 n = own; n < end; n += stretch)",
        "total = combined(total, partial[partial_place + n / stretch * partial_stride]);",
        f"*at = converted<{STORED[wanted]}>({how.finish});",
    )
    arrays = (("values", given), *_SORTED, ("places", "int64"), ("partial", _wide(by_name(wanted).numpy).name))
    numbers = (*_NUMBERS, "partial_stride")
    return Walk(f"{how.name}_at", (("target", wanted),), arrays, ("n",), numbers, lines)


def extreme(dtype: np.dtype[Any], highest: bool) -> str:
    """Return the highest or the lowest number of a dtype that is not complex, in C++: an infinity for floats."""
    if dtype.kind == "b":
        return "true" if highest else "false"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return f"{limits.max}LL" if highest else f"({limits.min + 1}LL - 1)"
    return f"{'' if highest else '-'}__int_as_float(0x7f800000)"
