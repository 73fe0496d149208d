"""``gather``, ``scatter`` and ``scatter_reduce``, with an index for each element, and zeros with parts filled in."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from vmflow import dtypes
from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.problems.gathering import Slices as Filled
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .checks import check_indices, check_range
from .pointwise import Pointwise, bits_of, copy_array, fill_array, launch_pointwise
from .scattering import ADD, Combination, Slices, combine_at, extreme, places_along, put_at
from .sources import STORED, VARIABLES
from .walks import Walk, Walked, along, changing, part_of, separate, steps_of, walk, walked

# Zeros with parts filled in


@builds("scatter_slices", package=PACKAGE)
def _build_scatter_slices(problem: Problem) -> Kernel:
    details: Filled = problem.details
    axis = problem.attributes[1]
    (output,) = problem.outputs
    same = all([meta.dtype is output.dtype for meta in problem.inputs])
    has_signs = output.dtype.category >= dtypes.FLOATING and same

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (out,) = outs
        for gap in details.gaps:
            fill_array(launcher, part_of(out, axis, *gap), 0)
        for part, place in zip(operands, details.filled, strict=True):
            target = part_of(out, axis, *place)
            if has_signs:
                launch_pointwise(launcher, _added_to_zero(out.dtype.name), (part,), (), (target,))
            else:
                copy_array(launcher, part, target)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _added_to_zero(dtype: str) -> Pointwise:
    """Return the addition of 0 to each element, which turns -0.0 into 0.0, as adding the part to zeros would."""
    if dtype.startswith("complex"):
        result = f"{dtype}{{x0.real + 0, x0.imag + 0}}"
    else:
        result = f"x0 + ({VARIABLES[dtype]})0"
    return Pointwise("add_to_zero", (dtype,), (), (), ((result, dtype),))


@builds("scatter_diagonal", package=PACKAGE)
def _build_scatter_diagonal(problem: Problem) -> Kernel:
    _, offset, first, second = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (part,), (out,) = operands, outs
        fill_array(launcher, out, 0)
        kept = [axis for axis in range(out.ndim) if axis not in (first, second)]
        strides = [out.strides[axis] for axis in kept] + [out.strides[first] + out.strides[second]]
        begin = max(-offset, 0) * out.strides[first] + max(offset, 0) * out.strides[second]
        copy_array(launcher, part, out.strided(part.shape, out.dtype, begin if part.size else 0, tuple(strides)))

    return Kernel(into_outs(launch, problem), casts=True)


@builds("one_hot", package=PACKAGE)
def _build_one_hot(problem: Problem) -> Kernel:
    (classes,) = problem.attributes

    def explain(position: int, value: int) -> Exception:
        return ValueError(f"one_hot: the elements, {value} among them, are not all classes from 0 to {classes - 1}")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array,), (out,) = operands, outs
        check_range(launcher, array, 0, classes, explain)
        source = Walked(array, (*steps_of(array), 0))
        program = _one_hot(array.dtype.name, out.dtype.name)
        walk(launcher, program, out.shape, [walked(out)], [source], [along(array.ndim, out.ndim)])

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _one_hot(given: str, wanted: str) -> Walk:
    lines = (f"out[out_place] = converted<{STORED[wanted]}>(x[x_place] == number_place);",)
    return Walk("one_hot", (("out", wanted),), (("x", given),), ("number",), (), lines)


# gather, scatter and similar ops


def _check(launcher: Launcher, problem: Problem, operands: tuple[Any, ...]) -> None:
    array, indices, *_ = operands
    check_indices(launcher, problem.op, indices, array.shape, problem.attributes[0])


@builds("gather", package=PACKAGE)
def _build_gather(problem: Problem) -> Kernel:
    (dim,) = problem.attributes

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, indices), (out,) = operands, outs
        _check(launcher, problem, operands)
        if not array.ndim:
            copy_array(launcher, array, out)
        elif array.size:
            array, indices = separate(launcher, array, out), separate(launcher, indices, out)
            own = steps_of(array)
            arrays = [Walked(array, (*own[:dim], 0, *own[dim + 1 :])), walked(indices)]
            program = _gather(bits_of(array.dtype), indices.dtype.name)
            walk(launcher, program, out.shape, [walked(out)], arrays, (), (array.shape[dim], own[dim]))

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _gather(dtype: str, index: str) -> Walk:
    lines = ("out[out_place] = x[x_place + within(indices[indices_place], size) * stride];",)
    arrays = (("x", dtype), ("indices", index))
    return Walk("gather", (("out", dtype),), arrays, (), ("size", "stride"), lines)


_MULTIPLY: Final = Combination("multiply", "", "total * v")


@builds("scatter", package=PACKAGE)
def _build_scatter(problem: Problem) -> Kernel:
    _, how = problem.attributes
    output = problem.outputs[0].dtype.name
    multiply = _MULTIPLY
    if output in ("float16", "bfloat16"):
        # Each product is rounded to half precision, as on the CPU.
        multiply = multiply._replace(name=f"multiply_{output}", combine=f"rounded_{output}(total * v)")
    combination = {None: None, "add": ADD}.get(how, multiply)
    return _scattering(problem, combination)


@builds("scatter_reduce", package=PACKAGE)
def _build_scatter_reduce(problem: Problem) -> Kernel:
    _, how, include_self = problem.attributes
    return _scattering(problem, _reduction(problem.outputs[0].dtype, how, include_self))


def _reduction(dtype: dtypes.dtype, how: str, include_self: bool) -> Combination:
    start = ""
    if not include_self:
        starts = {"sum": "0", "mean": "0", "prod": "1"}
        start = f"converted<value>({starts[how] if how in starts else extreme(dtype.numpy, how == 'amin')})"
    signs = {"amax": ">", "amin": "<"}
    rules = {"sum": "total + v", "mean": "total + v", "prod": "total * v"}
    # Only nan differs from itself: a nan total stays, and a nan value replaces the total, since comparisons with it are
    # false.
    combine = rules[how] if how in rules else f"total != total || total {signs[how]} v ? total : v"
    finish = "total"
    if how == "mean":
        number = f"(count + {int(include_self)})"
        finish = f"total / {number}"
        if dtype.category >= dtypes.FLOATING:
            part = {"complex128": "double", "float64": "double"}.get(dtype.name, "float")
            finish = f"total / ({part}){number}"
        elif dtype.name != "bool":
            # Rounded towards the lower number.
            finish = f"(total - (total % {number} + {number}) % {number}) / {number}"
    return Combination(f"{how}_{'with' if include_self else 'without'}_self", start, combine, finish)


def _scattering(problem: Problem, how: Combination | None) -> Kernel:
    """Build the kernel that combines values with the array's elements at the indices by `how`, or overwrites these
    elements if `how` is None.
    """
    dim = problem.attributes[0]

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, indices, values = operands
        _check(launcher, problem, operands)
        for axis, size in enumerate(indices.shape):
            values = part_of(values, axis, 0, size)
        indices, values = [separate(launcher, operand, outs[0]) for operand in (indices, values)]
        with changing(launcher, array, outs[0]) as target:
            if not target.size:
                return
            places = places_along(launcher, indices, array.shape, dim)
            rest = (steps_of(values), values.shape, Slices())
            if how is None:
                put_at(launcher, target, places, values, *rest)
            else:
                combine_at(launcher, how, target, places, values, *rest)

    return Kernel(into_outs(launch, problem), casts=True)
