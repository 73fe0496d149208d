"""Data loaders over which a graph's `build` iterates: each launch of the graph takes the loader's next batches.

``next(iter(loader))`` in `build` gives a batch of tensors without memory, which are inputs of the job.  Every launch
then fills them with the loader's next batch, from the beginning again when the loader ends.  A loop in `build` over the
whole loader takes all its batches in each launch.

Batches that were fetched for building are kept until a launch takes them, so that none is lost: the first launch takes
the batch that the graph was built for, and if a build fails, the next build uses the same batch.
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
    """A queue of the batches of one data loader, which all forms of a graph share.

    Args:
        source: a loader, which can be iterated over again and again; or an iterator, which ends.

    Attributes:
        source: the loader or iterator; kept alive because feeds are found by its id.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._batches: Iterator[Any] | None = None
        self._fetched: deque[Any] = deque()
        self._lock = threading.Lock()

    def peek(self, place: int) -> Any:
        """Return the batch at index `place` of the batches to come, without taking it.

        Raises:
            StopIteration: if the loader ends earlier.
        """
        with self._lock:
            self._fetch(place)
            return self._fetched[place]

    def ahead(self, place: int) -> Any:
        """Return the batch at index `place` as `peek` does, but begin a loader that ends again.

        Raises:
            StopIteration: if `source` is an iterator and ends earlier.
        """
        with self._lock:
            self._fetch_on(place)
            return self._fetched[place]

    def take(self) -> Any:
        """Remove the next batch from the queue and return it; a loader that ends begins again.

        Raises:
            StopIteration: if `source` is an iterator and has ended.
        """
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
        """Replace the queue's lock in a forked child, where a thread that held it does not exist."""
        self._lock = threading.Lock()


@attrs.frozen(eq=False)
class Outlet:
    """One place in `build` that takes a batch.

    Attributes:
        feed: the batches of its loader.
        place: the number of batches that the build had taken from that loader before this one.
        tree: the structure of the batch for which the graph was built.
        metas: the metas of that batch's tensors.
    """

    feed: Feed
    place: int
    tree: Tree
    metas: tuple[TensorMeta, ...]

    def misfit(self) -> str | None:
        """Describe how this outlet's next batch differs from the build's batch; None if it fits or does not exist."""
        try:
            return self._misfit(self.feed.ahead(self.place))
        except StopIteration:
            return None  # `take` raises this error

    def take(self) -> list[Tensor]:
        """Take the next batch from the queue, and return its tensors.

        Raises:
            ValueError: if the batch does not fit the batch that the graph was built for.
            StopIteration: as `Feed.take`.
        """
        batch = self.feed.take()
        misfit = self._misfit(batch)
        if misfit is not None:
            raise ValueError(
                f"{misfit}; the batch was dropped.  Give all batches one shape, for example by drop_last=True, or call "
                "with_dynamic_input_shape() before the first call"
            )
        return args_tree.flatten(batch)[1]

    def _misfit(self, batch: Any) -> str | None:
        tree, tensors = args_tree.flatten(batch)
        return args_tree.misfit(_as_call(self.tree), self.metas, _as_call(tree), metas_of(tensors))


def _as_call(tree: Tree) -> Tree:
    """Wrap the tree of a batch as a call's tree whose only argument is named "batch", for messages of `misfit`."""
    return args_tree.Branch(
        "tuple", (0, 1), (args_tree.Branch("tuple", (), ()), args_tree.Branch("dict", ("batch",), (tree,)))
    )


@final
class RecordedBatches(Iterator[Any]):
    """The iterator over a data loader within `build`.

    Args:
        take: records and returns the next batch; raises StopIteration at the loader's end.
    """

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def __next__(self) -> Any:
        return self._take()

    def close(self) -> None:
        """Do nothing: a real loader's iterator would stop its workers, but the graph still uses the loader."""
