"""Data loaders over which a graph's `build` iterates: each launch of the graph takes the loader's next batches.

``next(iter(loader))`` in `build` gives a batch of tensors without memory, which are inputs of the job.  Every launch
then fills them with the loader's next batch, from the beginning again when the loader ends.  A loop in `build` over the
whole loader takes all its batches in each launch.

Batches that were fetched for building are kept until a launch takes them: the first launch takes the batch that the
graph was built for, and after a failed build, the next build uses the same batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import attrs

from vmflow.instructions.blob import TensorMeta
from vmflow.tensor_fields import metas_of
from vmflow.tensors import Tensor

from . import args_tree
from .args_tree import Tree


@final
class Feed:
    """A queue of the batches of one data loader; all builds of a graph share the queue.

    Args:
        source: a loader, which can be iterated over again and again; or an iterator, which ends.

    Attributes:
        source: the loader or iterator; kept alive because feeds are found by its id.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._batches: Iterator[Any] | None = None
        self._fetched: deque[Any] = deque()
        # The number of batches fetched in this pass over the source, and in the last whole pass.
        self._passed = 0
        self._length: int | None = None
        self._lock = threading.Lock()

    def peek(self, place: int, taken: int) -> Any:
        """Return the batch at index `place` of the queue, for a loop in `build` that has taken `taken` batches.

        A loop that begins in the middle of the source goes on at its beginning, for as many batches as the source has.

        Raises:
            StopIteration: if `source` has at most `taken` batches, or is an iterator and ends before this batch.
        """
        with self._lock:
            while len(self._fetched) <= place and not self._over(taken):
                self._fetch()
            if self._over(taken):
                raise StopIteration
            return self._fetched[place]

    def _over(self, taken: int) -> bool:
        return self._length is not None and taken >= self._length

    def ahead(self, place: int) -> Any:
        """Return the batch at index `place` of the queue, without taking it; a loader that ends begins again.

        Raises:
            StopIteration: if `source` has no batches, or is an iterator and ends before this batch.
        """
        with self._lock:
            while len(self._fetched) <= place:
                self._fetch()
            return self._fetched[place]

    def take(self) -> Any:
        """Remove the next batch from the queue and return it; a loader that ends begins again.

        Raises:
            StopIteration: if `source` has no batches, or is an iterator and has ended.
        """
        with self._lock:
            while not self._fetched:
                self._fetch()
            return self._fetched.popleft()

    def _fetch(self) -> None:
        """Fetch one batch, unless the pass over the source ends; raise StopIteration for a new pass without batches."""
        begins = self._batches is None
        if self._batches is None:
            self._batches = iter(self.source)
        try:
            self._fetched.append(next(self._batches))
            self._passed += 1
        except StopIteration:
            self._length, self._passed, self._batches = self._passed or self._length, 0, None
            if begins:
                raise

    def forget_threads(self) -> None:
        """Replace the queue's lock in a forked child, where a thread that held it does not exist."""
        self._lock = threading.Lock()


@attrs.frozen(eq=False)
class Outlet:
    """One of the batches that `build` takes; each call of the graph takes the loader's next batch in its place.

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
            return self.misfit_of(self.feed.ahead(self.place))
        except StopIteration:
            return None  # `take_batches` raises this error

    def misfit_of(self, batch: Any) -> str | None:
        """Describe how a batch differs from the batch for which the graph was built; None if it fits."""
        tree, tensors = args_tree.flatten(batch)
        return args_tree.misfit(_as_call(self.tree), self.metas, _as_call(tree), metas_of(tensors))


def take_batches(outlets: Sequence[Outlet]) -> list[Tensor]:
    """Take the next batch of each outlet from its queue, and return their tensors.

    Raises:
        ValueError: if a batch does not fit the batch that the graph was built for.  All are taken nevertheless, so that
            several loaders stay in step.
        StopIteration: if an iterator ends too early, or a loader has no batches; no batch is taken then.
    """
    for outlet in outlets:
        outlet.feed.ahead(outlet.place)
    batches = [outlet.feed.take() for outlet in outlets]
    for outlet, batch in zip(outlets, batches, strict=True):
        misfit = outlet.misfit_of(batch)
        if misfit is not None:
            dropped = "the batch was dropped" if len(batches) == 1 else "the batches of this call were dropped"
            raise ValueError(
                f"{misfit}; {dropped}.  Give all batches one shape, for example by drop_last=True, or call "
                "with_dynamic_input_shape() before the first call"
            )
    return [tensor for batch in batches for tensor in args_tree.flatten(batch)[1]]


def _as_call(tree: Tree) -> Tree:
    """Wrap the tree of a batch as a call's tree whose only argument is named "batch", for messages of `misfit`."""
    return args_tree.Branch(
        "tuple", (0, 1), (args_tree.Branch("tuple", (), ()), args_tree.Branch("dict", ("batch",), (tree,)))
    )


@final
class RecordedBatches(Iterator[Any]):
    """The iterator over a data loader within `build`.

    Args:
        take: records and returns the next batch, given the number of batches before it; raises StopIteration at the
            loader's end.
    """

    def __init__(self, take: Callable[[int], Any]) -> None:
        self._take = take
        self._taken = 0

    def __next__(self) -> Any:
        batch = self._take(self._taken)
        self._taken += 1
        return batch

    def close(self) -> None:
        """Do nothing: a real loader's iterator would stop its workers, but the graph still uses the loader."""
