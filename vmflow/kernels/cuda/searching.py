"""Positions of elements in a sorted sequence (``searchsorted``), and membership among other elements (``isin``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from . import counting as counting
from .arrays import PACKAGE, into_outs
from .ordering import ordered
from .pointwise import fill_array
from .sources import COMPUTED, STORED
from .walks import Walk, Walked, contiguous, standing, steps_of, walk, walked


def _compared_type(problem: Problem) -> str:
    """Return the C++ type in which the elements of both operands are compared."""
    widened = [np.dtype(np.float32) if meta.dtype.name == "bfloat16" else meta.dtype.numpy for meta in problem.inputs]
    return COMPUTED[np.result_type(*widened).name]


# Tells whether `p` comes before `q` in sorted order, where nans are at the end.
_LESS: Final = "auto less = [](value p, value q) { return p < q || (q != q && p == p); };"


@builds("searchsorted", package=PACKAGE)
def _build_searchsorted(problem: Problem) -> Kernel:
    _, right, _ = problem.attributes
    compute = _compared_type(problem)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, sought), (out,) = operands, outs
        *batch, step = steps_of(array)
        rows = tuple(batch) + (0,) * (sought.ndim - len(batch))
        arrays = [Walked(array, rows), walked(sought)]
        program = _search(compute, bool(right), array.dtype.name, sought.dtype.name, out.dtype.name)
        walk(launcher, program, out.shape, [walked(out)], arrays, (), (array.shape[-1], step))

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _search(compute: str, right: bool, given: str, sought: str, wanted: str) -> Walk:
    lines = (
        f"typedef {compute} value;",
        _LESS,
        "const value own = converted<value>(sought[sought_place]);",
        "int64 low = 0, high = size;",
        "while (low < high) {",
        "const int64 middle = (low + high) / 2;",
        "const value there = converted<value>(x[x_place + middle * stride]);",
        f"if ({'!less(own, there)' if right else 'less(there, own)'}) low = middle + 1; else high = middle;",
        "}",
        f"out[out_place] = converted<{STORED[wanted]}>(low);",
    )
    arrays = (("x", given), ("sought", sought))
    return Walk("searchsorted", (("out", wanted),), arrays, (), ("size", "stride"), lines)


@builds("isin", package=PACKAGE)
def _build_isin(problem: Problem) -> Kernel:
    (invert,) = problem.attributes
    compute = _compared_type(problem)
    # The sort takes no complex numbers: with those, each element is compared with the `others` one by one, instead of
    # by bisection.
    has_order = not any([meta.dtype.is_complex for meta in problem.inputs])

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        (array, others), (out,) = operands, outs
        if not others.size:
            fill_array(launcher, out, invert)
            return
        flat = contiguous(launcher, others).strided((others.size,), others.dtype)
        arrays = [walked(array), standing(flat, array.ndim)]
        if has_order:
            arrays.append(standing(ordered(launcher, flat, 0).order, array.ndim))
        program = _among(compute, bool(invert), array.dtype.name, flat.dtype.name, has_order)
        walk(launcher, program, out.shape, [walked(out)], arrays, (), (flat.size,))

    return Kernel(into_outs(launch, problem), casts=True)


_HALVING: Final = (
    _LESS,
    "int64 low = 0, high = size - 1;",
    "while (low < high) {",
    "const int64 middle = (low + high) / 2;",
    "if (less(converted<value>(others[order[middle]]), own)) low = middle + 1; else high = middle;",
    "}",
    "const bool found = converted<value>(others[order[low]]) == own;",
)
_ONE_BY_ONE: Final = (
    "bool found = false;",
    "for (int64 n = 0; n < size && !found; n++) found = converted<value>(others[n]) == own;",
)


@lru_cache(None)
def _among(compute: str, invert: bool, given: str, others: str, has_order: bool) -> Walk:
    lines = (
        f"typedef {compute} value;",
        "const value own = converted<value>(x[x_place]);",
        *(_HALVING if has_order else _ONE_BY_ONE),
        f"out[out_place] = {'!found' if invert else 'found'};",
    )
    arrays = (("x", given), ("others", others), *((("order", "int64"),) if has_order else ()))
    return Walk("isin", (("out", "bool"),), arrays, (), ("size",), lines)
