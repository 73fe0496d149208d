"""How ranks exchange arrays: `Operation`, and `Channel`, of which each rank has one in each communication scope.

A channel starts operations in the order in which it is given them, and all ranks of a group must start the same
operations of that group in the same order.  Every array is contiguous; counts are numbers of elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

Kind: TypeAlias = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "send", "receive", "leave"
]
Reduction: TypeAlias = Literal["sum", "max", "min"]

REDUCTIONS: Final[dict[str, np.ufunc]] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Operation(NamedTuple):
    """One exchange, as a rank of the group describes it.

    Attributes:
        kind: the kind of exchange.  With "leave" a rank announces that it will start no more.
        ranks: the group, in the order in which parts are put together; for "send" and "receive", sender and receiver.
        dtype: of the elements, by name; "" if there are none.
        counts: the elements that each rank gives or gets, by its place in the group.  For "all_gather" each gives its
            count and gets all; for "reduce_scatter" each gives all and gets its count; for "all_to_all" a matrix, row
            by row, of the counts from each rank to each; otherwise one number for all, or none.
        reduction: of "all_reduce" and "reduce_scatter".
        root: for "broadcast", the place in the group of the rank that gives.
        note: the purpose, which must be the same on all ranks; for "leave" the reason, or "".
    """

    kind: Kind
    ranks: tuple[int, ...]
    dtype: str = ""
    counts: tuple[int, ...] = ()
    reduction: Reduction = "sum"
    root: int = 0
    note: str = ""

    def __str__(self) -> str:
        """Describe the operation, with the fields that matter for its kind."""
        text = f"{self.kind} of {self.dtype} {list(self.counts)}" if self.dtype else self.kind
        if self.kind in ("all_reduce", "reduce_scatter") and self.reduction != "sum":
            text += f" by {self.reduction}"
        if self.kind == "broadcast":
            text += f" from rank {self.ranks[self.root]}"
        if self.note:
            text += f" for {self.note}"
        return f"{text} among ranks {list(self.ranks)}"

    def gotten(self, place: int) -> int:
        """The number of elements that the rank at this place of the group gets."""
        size = len(self.ranks)
        if self.kind == "all_to_all":
            return sum(self.counts[place::size])
        if self.kind == "all_gather":
            return sum(self.counts)
        if self.kind == "reduce_scatter":
            return self.counts[place]
        if self.kind in ("barrier", "send", "leave"):
            return 0
        return self.counts[0]

    def traffic(self, place: int) -> float:
        """The number of elements that the rank at this place of the group gets from others by the usual algorithms."""
        size = len(self.ranks)
        if self.kind == "all_reduce":
            return 2 * (size - 1) / size * self.counts[0]
        if self.kind == "reduce_scatter":
            return sum(self.counts) - self.counts[place]
        if self.kind == "all_to_all":
            return self.gotten(place) - self.counts[place * size + place]
        if self.kind == "all_gather":
            return self.gotten(place) - self.counts[place]
        if self.kind == "broadcast":
            return self.counts[0] if place != self.root else 0
        return self.gotten(place)


class Work(Protocol):
    """An operation that a rank has started.

    Attributes:
        error: the reason of its failure; None as long as it has not failed.
    """

    error: Exception | None


class Channel(Protocol):
    """The connection from one rank to the others, in one communication scope."""

    rank: int

    def scoped(self, scope: str, timeout: float | None) -> Channel:
        """The connection in another communication scope, whose path no scope has had before.

        Args:
            scope: its path, such as "a#1/b#2".
            timeout: seconds after which an operation fails if not all its ranks have started it; None for the default.
        """
        ...

    def start(
        self,
        operation: Operation,
        given: np.ndarray[Any, Any] | None,
        gotten: np.ndarray[Any, Any] | None,
        failure: BaseException | None,
        place: str,
    ) -> Work:
        """Start this rank's part in an operation; operations of different groups do not wait for each other.

        Args:
            operation: the operation.
            given: flat, the elements that this rank gives; None if it gives none.
            gotten: flat, for the elements that it gets; None if it gets none.  Both are in use until the work ends.
            failure: the reason why this rank has no elements to give, or None; with a reason,
                the operation fails on all its ranks.
            place: the user's line, for messages.
        """
        ...

    def reached(self, count: int) -> bool:
        """Whether the `count` operations that were started first have ended."""
        ...

    def wait(self, count: int) -> None:
        """Block until the `count` operations that were started first have ended."""
        ...

    def call_when_reached(self, count: int, wake: Callable[[], None]) -> None:
        """Let some thread call `wake` when the first `count` operations have ended."""
        ...

    def started(self) -> int:
        """The number of operations that were started."""
        ...
