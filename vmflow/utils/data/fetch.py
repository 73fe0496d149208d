"""Fetching one batch, in any worker; and `get_worker_info`, by which a dataset learns about its worker."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

import attrs
import numpy as np

from vmflow.context import MODE
from vmflow.random import Generator

from .dataset import IterableDataset, samples_of

_MASK: Final = (1 << 63) - 1


@attrs.frozen
class WorkerInfo:
    """The facts about a worker of a `DataLoader`; made by the loader, raises no errors.

    Attributes:
        id: the worker's number, from 0.
        num_workers: how many workers there are.
        seed: for random numbers that are not vmflow's, another one for each worker and iteration.
        dataset: the dataset that the worker reads; threads share it, a process has a copy of its own.
        kind: "thread" or "process".

    Example:
        >>> flow.utils.data.WorkerInfo(id=0, num_workers=2, seed=17, dataset=[1, 2], kind="thread").num_workers
        2
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any
    kind: str


_WORKER_INFO: ContextVar[WorkerInfo | None] = ContextVar("vmflow.worker_info", default=None)


def get_worker_info() -> WorkerInfo | None:
    """The facts about this `DataLoader`'s worker, a thread or a process; None elsewhere, and with ``num_workers=0``.

    Example:
        >>> print(flow.utils.data.get_worker_info())
        None
    """
    return _WORKER_INFO.get()


@attrs.frozen
class Recipe:
    """The settings of a loader that its workers need.

    Attributes:
        dataset: where samples come from.
        batched: whether an order asks for a list of samples, which are collated, or for a single one.
        drop_last: of an iterable dataset, whether a shorter last batch is left out.
        collate: makes a batch out of samples, or converts a single one.
        init: called with the worker's number before the worker fetches anything.
        workers: the `num_workers` of the loader.
        kind: "thread" or "process".
    """

    dataset: Any
    batched: bool
    drop_last: bool
    collate: Callable[[Any], Any]
    init: Callable[[int], object] | None
    workers: int
    kind: str


class RanOut(Exception):
    """The worker's iterator over an iterable dataset has ended."""


class Fetcher:
    """Fetches batches for one worker.

    Args:
        recipe: the settings.
        number: the worker's, from 0.
    """

    def __init__(self, recipe: Recipe, number: int) -> None:
        self._recipe = recipe
        self._number = number
        self._iterable = isinstance(recipe.dataset, IterableDataset)
        self._samples: Iterator[Any] | None = None
        self._begun = False
        self._seed = 0
        self._ended = False

    def begin(self, base_seed: int) -> None:
        """Begin an iteration; to be called before the first `fetch`, in the context in which that will be called."""
        recipe = self._recipe
        self._seed = base_seed
        self._samples = None
        self._ended = False
        if recipe.workers:
            seed = (base_seed + self._number) & _MASK
            _WORKER_INFO.set(WorkerInfo(self._number, recipe.workers, seed, recipe.dataset, recipe.kind))
            if recipe.kind == "process":
                random.seed(seed)
                np.random.seed(seed & 0xFFFFFFFF)
        if not self._begun and recipe.init is not None and recipe.workers:
            recipe.init(self._number)
        self._begun = True

    def forget(self) -> None:
        """End the iteration: let go of the dataset's iterator."""
        self._samples = None

    def fetch(self, ticket: int, order: Any) -> Any:
        """The batch that `order` asks for: indices, one index, or for an iterable dataset a number of samples.

        Random numbers from vmflow begin anew with each batch, from a seed made of the iteration's seed and the ticket,
        so that it does not matter which worker fetches the batch.

        Raises:
            RanOut: if an iterable dataset has no more samples, or with `drop_last` fewer than `order`.
            Exception: that of the dataset or the collating, with a note about the sample or batch; see `_explain`.
        """
        # Context variables may be set: the context is the worker's own, or was copied for this iteration.
        generator = Generator().manual_seed((self._seed + 0x9E3779B97F4A7C15 * (ticket + 1)) & _MASK)
        MODE.set(MODE.get().replace(generator=generator))
        samples = self._next_samples(ticket, order) if self._iterable else self._samples_at(ticket, order)
        try:
            return self._recipe.collate(samples)
        except BaseException as error:
            self._explain(error, f"while collating batch {ticket} of samples {order!r}")
            raise

    def _samples_at(self, ticket: int, order: Any) -> Any:
        dataset = self._recipe.dataset
        index = order
        try:
            if not self._recipe.batched:
                return dataset[order]
            if hasattr(dataset, "__getitems__"):
                return samples_of(dataset, order)
            samples = []
            for index in order:
                samples.append(dataset[index])
            return samples
        except BaseException as error:
            self._explain(error, f"while fetching sample {index!r} of batch {ticket}")
            raise

    def _next_samples(self, ticket: int, order: Any) -> Any:
        if self._ended:
            raise RanOut
        try:
            if self._samples is None:
                self._samples = iter(self._recipe.dataset)
            samples = list(itertools.islice(self._samples, order))
        except BaseException as error:
            self._ended = True
            self._explain(error, f"while fetching the {order} next samples for batch {ticket}")
            raise
        if len(samples) < order:
            self._ended = True
            self._samples = None
            if not samples or (self._recipe.batched and self._recipe.drop_last):
                raise RanOut
        return samples if self._recipe.batched else samples[0]

    def _explain(self, error: BaseException, where: str) -> None:
        """Add a note to the error; raise RuntimeError in place of one that would end the consumer's loop or task."""
        worker = f" in data worker {self._number}, a {self._recipe.kind}" if self._recipe.workers else ""
        if isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError)):
            raise RuntimeError(f"{type(error).__name__} was raised {where}{worker}") from error
        error.add_note(f"{where}{worker}")
