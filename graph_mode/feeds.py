"""Batches of loaders that `build` iterates over: each launch of the graph takes the next ones.

``next(iter(loader))`` in `build` gives a batch without memory, an input of the job, and every launch the next batch of
the loader, from the beginning again when it ends.  A loop over the whole loader takes all its batches in each launch.

Batches that were fetched for building wait until a launch takes them, so that none is lost: the first launch takes the
one that the graph was built for, and so does another build, if the first one failed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import attrs

from vmflow.instructions.blob import TensorMeta
from vmflow.tensor_fields import metas_of
from vmflow.tensors import Tensor

from . import args_tree
from .args_tree import Tree


@final
class Feed:
    """The batches of one loader, for all forms of a graph.

    Args:
        source: a loader, which can be iterated over again and again; or an iterator, which ends.

    Attributes:
        source: as given; also kept for its id.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._batches: Iterator[Any] | None = None
        self._fetched: deque[Any] = deque()
        self._lock = threading.Lock()

    def peek(self, place: int) -> Any:
        """The batch that so many others come before; it stays where it is.

        Raises:
            StopIteration: if the loader ends before it.
        """
        with self._lock:
            self._fetch(place)
            return self._fetched[place]

    def ahead(self, place: int) -> Any:
        """As `peek`, but a loader that ends begins again.

        Raises:
            StopIteration: if there are not so many batches, and it is an iterator.
        """
        with self._lock:
            self._fetch_on(place)
            return self._fetched[place]

    def take(self) -> Any:
        """The batch that is `ahead` of all others, which launches do not see again."""
        with self._lock:
            self._fetch_on(0)
            return self._fetched.popleft()

    def _fetch_on(self, place: int) -> None:
        try:
            self._fetch(place)
        except StopIteration:
            self._fetch(place)

    def _fetch(self, place: int) -> None:
        while len(self._fetched) <= place:
            if self._batches is None:
                self._batches = iter(self.source)
            try:
                self._fetched.append(next(self._batches))
            except StopIteration:
                self._batches = None
                raise

    def forget_threads(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.Lock()


@attrs.frozen(eq=False)
class Outlet:
    """One place in `build` that takes a batch.

    Attributes:
        feed: of which loader.
        place: how many batches of it the build has taken before.
        tree, metas: of the batch for which the graph was built.
    """

    feed: Feed
    place: int
    tree: Tree
    metas: tuple[TensorMeta, ...]

    def misfit(self) -> str | None:
        """Where the batch that comes next here differs from the one that the graph was built for; None if nowhere."""
        try:
            return self._misfit(self.feed.ahead(self.place))
        except StopIteration:
            return None  # which `take` raises

    def take(self) -> list[Tensor]:
        """The tensors of the next batch.

        Raises:
            ValueError: if they are others than those that the graph was built for.
        """
        batch = self.feed.take()
        misfit = self._misfit(batch)
        if misfit is not None:
            raise ValueError(
                f"{misfit}; that batch was left out.  Make all batches alike, say by drop_last=True, or call "
                "with_dynamic_input_shape() before the first call"
            )
        return args_tree.flatten(batch)[1]

    def _misfit(self, batch: Any) -> str | None:
        tree, tensors = args_tree.flatten(batch)
        return args_tree.misfit(_as_call(self.tree), self.metas, _as_call(tree), metas_of(tensors))


def _as_call(tree: Tree) -> Tree:
    """The tree of a call with this as the argument named "batch"."""
    return args_tree.Branch(
        "tuple", (0, 1), (args_tree.Branch("tuple", (), ()), args_tree.Branch("dict", ("batch",), (tree,)))
    )


@final
class RecordedBatches(Iterator[Any]):
    """Iterates over a loader within `build`.

    Args:
        take: called for each batch; raises StopIteration at the end.
    """

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def __next__(self) -> Any:
        return self._take()

    def close(self) -> None:
        """As of the iterators of loaders; the graph goes on with its loader."""
