"""Elements added around arrays."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.numpy.padding import border_part, copies, interior
from vmflow.kernels.numpy.ufuncs import constant

from .arrays import by_arrays


@by_arrays("pad")
def _pad(xp: Any, problem: Problem, array: Any, value: Any, out: Any) -> None:
    out.fill(constant(value, out.dtype).item())
    out[interior(problem.attributes, out.shape)] = array


@by_arrays("pad_borders")
def _pad_borders(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    mode, pairs = problem.attributes
    out[interior(pairs, out.shape)] = array
    for axis, pair in enumerate(pairs):
        for border, origin in copies(mode, pair, out.shape[axis]):
            out[border_part(axis, border, pairs, out.shape)] = out[border_part(axis, origin, pairs, out.shape)]


@by_arrays("pad_borders_gradient")
def _pad_borders_gradient(xp: Any, problem: Problem, gradient: Any, out: Any) -> None:
    mode, pairs = problem.attributes
    shape = gradient.shape
    whole = gradient.astype(computes_in(problem.inputs[0].dtype))
    for axis, pair in reversed(list(enumerate(pairs))):
        for border, origin in copies(mode, pair, shape[axis]):
            part = whole[border_part(axis, border, pairs, shape)]
            if mode == "replicate":
                part = xp.sum(part, axis=axis, keepdims=True)
            target = whole[border_part(axis, origin, pairs, shape)]
            xp.add(target, part, out=target)
    xp.copyto(out, whole[interior(pairs, shape)], casting="unsafe")
