"""The operations of groups of ranks in a simulation, without messages, on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from vmflow.streams.channel import REDUCTIONS, Operation

Array: TypeAlias = np.ndarray[Any, Any]


class Part(Protocol):
    """One rank's part in an operation.

    Attributes:
        operation: the operation.
        given, gotten: see `Channel.start`.
    """

    operation: Operation
    given: Array | None
    gotten: Array | None


def exchange(works: list[Part]) -> None:
    """Do the operation whose parts are `works`, in the order of the group."""
    _EXCHANGES[works[0].operation.kind](works)


def put(work: Part, values: Array) -> None:
    """Write values into the array `gotten` of a rank's part, unless it is None."""
    if work.gotten is not None:
        work.gotten[...] = values


def _all_reduce(works: list[Part]) -> None:
    total = _reduced(works)
    for work in works:
        put(work, total)


def _reduced(works: list[Part]) -> Array:
    reduce = REDUCTIONS[works[0].operation.reduction]
    total = np.array(works[0].given)
    for work in works[1:]:
        # Arrays are added in the order of the group, so that rounding is the same in all runs.
        reduce(total, work.given, out=total, casting="unsafe")
    return total


def _all_gather(works: list[Part]) -> None:
    whole = np.concatenate([_given(work) for work in works])
    for work in works:
        put(work, whole)


def _reduce_scatter(works: list[Part]) -> None:
    total = _reduced(works)
    ends = np.cumsum(works[0].operation.counts)
    for work, end, count in zip(works, ends, works[0].operation.counts, strict=True):
        put(work, total[end - count : end])


def _all_to_all(works: list[Part]) -> None:
    size = len(works)
    counts = np.array(works[0].operation.counts, np.int64).reshape(size, size)
    parts = [np.split(_given(work), np.cumsum(row)[:-1]) for work, row in zip(works, counts, strict=True)]
    for place, work in enumerate(works):
        put(work, np.concatenate([part[place] for part in parts]))


def _broadcast(works: list[Part]) -> None:
    root = works[works[0].operation.root]
    for work in works:
        put(work, _given(root))


def _barrier(works: list[Part]) -> None:
    """Do nothing, since all ranks have come."""


def _given(work: Part) -> Array:
    assert work.given is not None
    return work.given


_EXCHANGES: Final[dict[str, Callable[[list[Part]], None]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "barrier": _barrier,
}
