"""Copies, casts and filling."""

from __future__ import annotations

from typing import Any

from vmflow.kernels.choosing import Problem

from .arrays import by_arrays


@by_arrays("cast", "to_device", "copy_")
def _copy(xp: Any, problem: Problem, array: Any, out: Any) -> None:
    if array.dtype.kind == "c" and out.dtype.kind not in "cb":
        array = array.real
    xp.copyto(out, xp.broadcast_to(array, out.shape), casting="unsafe")


@by_arrays("fill")
def _fill(xp: Any, problem: Problem, value: Any, out: Any) -> None:
    out.fill(xp.asarray(value).astype(out.dtype))
