"""Reading and writing parts of an array, by indices and by strides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Function, Problem, builds, kernel_of
from vmflow.kernels.native.indexing import AddRows
from vmflow.kernels.problems.indexing import Geometry, Part, Reading, Writing

from .copying import loses_imaginary_part
from .gathering import add_at, check_places

# By indices


def _placed(array: Array, dims: tuple[int, ...], indices: tuple[Array, ...]) -> tuple[Array, tuple[Any, ...]]:
    """Return a view of `array` at the 0-d indices, and a tuple that indexes this view by the other indices."""
    before: list[Any] = [slice(None)] * array.ndim
    behind: list[Any] = [slice(None)] * array.ndim
    for dim, index in zip(dims, indices, strict=True):
        if index.ndim:
            behind[dim] = index
        else:
            before[dim], behind[dim] = int(index), None
    # With the ellipsis, indexing makes a view even if no dimension is left.
    return array[(*before, Ellipsis)], tuple([value for value in behind if value is not None])


@builds("index")
def _index(problem: Problem) -> Function:
    dims, from_the_end = problem.attributes
    details: Reading = problem.details
    selects = details.selects
    copies = any([meta.shape for meta in problem.inputs[1:]])

    def kernel(array: Array, *rest: Any) -> Array:
        if not from_the_end:
            for dim, places in zip(dims, rest, strict=False):
                check_places("index_select", places, array.shape, dim)
        if selects:
            # The indices have been checked; with mode "raise", numpy would write to a buffer and copy that to `out`.
            return np.take(array, rest[0], dims[0], rest[1], "clip")
        view, place = _placed(array, dims, rest[:-1])
        return np.ascontiguousarray(view[place]) if copies else view.copy(order="C")

    return kernel


@builds("index_add_to_zeros")
def _index_add_to_zeros(problem: Problem) -> Function:
    output, dims = problem.attributes
    source, *indices = problem.inputs
    in_c = _add_rows(output, dims, indices, source.numel)

    def kernel(part: Array, *rest: Any) -> Array:
        whole = np.zeros(output.shape, output.dtype.numpy)
        if in_c is not None and in_c.call(whole, rest[0], part):
            return whole
        add_at(*_placed(whole, dims, rest[:-1]), part)
        return whole

    return kernel


def _add_rows(
    target: TensorMeta, dims: tuple[int, ...], indices: Sequence[TensorMeta], elements: int
) -> AddRows | None:
    """Return the C function that adds values at the only index; None for several, a 0-d one, or if C has none."""
    is_for_c = len(dims) == 1 and indices[0].shape and target.device.type == "cpu"
    return AddRows.of("add_rows", target.dtype.numpy, elements, dims[0]) if is_for_c else None


@builds("index_put")
def _index_put(problem: Problem) -> Function:
    dims, accumulate, part = problem.attributes
    target, value, *indices = problem.inputs
    details: Writing = problem.details
    shape = details.shape
    to = target.dtype.numpy
    loses_imaginary = loses_imaginary_part(value.dtype, target.dtype)
    in_c = _add_rows(target, dims, indices, prod(shape)) if accumulate and part is None else None

    def kernel(array: Array, new: Array, *rest: Any) -> Array:
        *places, out = rest
        new = new.real if loses_imaginary else new
        new = new.reshape(new.shape[max(new.ndim - len(shape), 0) :])  # without leading dimensions of 1
        new = new.astype(to)  # a copy, since the value may be a part of the changed array
        out = _destination(array, out)
        if accumulate:
            # numpy 2.4 reads past the end of a value that is repeated for an index of two dimensions.
            new = np.broadcast_to(new, shape)
        if in_c is not None and in_c.call(out, places[0], new):
            return out
        view, place = _placed(_view(out, part), dims, tuple(places))
        if accumulate:
            add_at(view, place, new)
        else:
            view[place] = new
        return out

    return kernel


# By strides


def _view(whole: Array, part: Part) -> Array:
    """Return the view of a C-contiguous array that `part` describes; if `part` is None, the whole array."""
    if part is None:
        return whole
    shape, strides, offset = part
    flat = whole.reshape(-1)
    if 0 in shape:
        return flat[:0].reshape(shape)
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, [stride * whole.itemsize for stride in strides])


def _destination(array: Array, out: Array | None) -> Array:
    """Return `out` with the contents of `array`; if `out` is None, a copy of `array`."""
    if out is None:
        return array.copy(order="C")
    if not np.may_share_memory(out, array):
        out[...] = array
    return out


@kernel_of("strided_put")
def _strided_put(problem: Problem, array: Array, new: Array, out: Array | None) -> Array:
    (part,) = problem.attributes
    target, value = problem.inputs
    if loses_imaginary_part(value.dtype, target.dtype):
        new = new.real
    out = _destination(array, out)
    np.copyto(_view(out, part), new, casting="unsafe")
    return out


@kernel_of("strided_get")
def _strided_get(problem: Problem, array: Array, out: Array | None) -> Array:
    return _view(np.ascontiguousarray(array), *problem.attributes).copy(order="C")


@kernel_of("respread")
def _respread(problem: Problem, array: Array, out: Array | None) -> Array:
    written, read = problem.attributes
    low, size = problem.details
    memory = np.zeros(size, array.dtype)
    add_at(memory, (_places(written, low),), array)
    return memory[_places(read, low)]


def _places(geometry: Geometry, low: int) -> Array:
    """Return each element's position in memory for a geometry (shape, strides, offset), counted from `low`."""
    shape, strides, offset = geometry
    places = np.full(shape, offset - low, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places += (np.arange(size) * stride).reshape((size,) + (1,) * (len(shape) - axis - 1))
    return places


@kernel_of("count_nonzero")
def _count_nonzero(problem: Problem, array: Array, out: Array | None) -> Array:
    return np.asarray(np.count_nonzero(array), np.int64)


@kernel_of("nonzero")
def _nonzero(problem: Problem, array: Array, out: Array | None) -> Array:
    count, by_dimension = problem.attributes
    if out is None:
        out = np.empty(problem.outputs[0].shape, np.int64)
    found = np.nonzero(array) if array.ndim else ()
    if found and len(found[0]) != count:
        raise RuntimeError(
            f"nonzero: {count} elements were counted, and {len(found[0])} found: the tensor was changed meanwhile"
        )
    for axis, places in enumerate(found):
        out[axis if by_dimension else (slice(None), axis)] = places
    return out
