"""`DataLoader`: batches of a dataset, fetched by the consumer, by threads or by processes."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Final, cast

import attrs

from vmflow.arguments import whole_number
from vmflow.context import MODE
from vmflow.random import Generator

from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import Recipe
from .iteration import AsyncBatches, Batches, Iteration
from .prefetch import Prefetch
from .process import start_method
from .sampler import BatchSampler, RandomSampler, SequentialSampler, length_of, numbers_of
from .worker import Crew

_KINDS: Final = ("thread", "process")
_PREFETCH: Final = 2


class DataLoader:
    """Batches of a dataset, for ``for batch in loader`` and ``async for batch in loader``.

    Several iterations over one loader may run at the same time.  Leaving a loop over the loader, by ``break``, an
    exception or cancellation, ends the loop's workers, unless they are persistent.  With
    ``contextlib.closing(iter(loader))`` or ``contextlib.aclosing(aiter(loader))``, it also waits for their end.

    ``async for`` does not block the event loop while batches are fetched: with ``num_workers=0`` one thread fetches
    each batch when it is asked for.  Plain ``for`` with ``num_workers=0`` fetches in place.

    An exception of the dataset or `collate_fn` ends the iteration when the batch's turn comes, with a note about the
    sample or batch.  `RuntimeError` replaces `StopIteration`, `StopAsyncIteration`, `GeneratorExit` and
    `asyncio.CancelledError`, and exceptions of worker processes that pickle cannot copy; it also reports a worker
    process that died.

    Random numbers: an iteration takes a seed from `generator` when it begins.  With `in_order` and a dataset found by
    index, neither the order nor the results of vmflow's random functions while a batch is fetched depend on the number
    of workers or their speed.  Worker processes also seed `random` and `numpy.random`; threads share these with the
    rest of the program.

    Args:
        dataset: found by index, or an `IterableDataset`.
        batch_size: samples to a batch; None for samples by themselves.
        shuffle: whether to visit the samples in random order.
        sampler: the order of indices, instead of `shuffle`.
        batch_sampler: lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: how many threads or processes fetch.
        collate_fn: makes a batch of a list of samples, by default `default_collate`; or converts a sample that comes by
            itself, by default `default_convert`.
        pin_memory, pin_memory_device: accepted for PyTorch's sake; the loader does not pin memory.
        drop_last: leave out the last batch, of an `IterableDataset` each worker's last one, if it is not full.
        timeout: seconds to wait for a batch from workers before `TimeoutError`; 0 for as long as it takes.
        worker_init_fn: called in each worker that fetches, with the worker's number, before the worker's first batch;
            not with ``num_workers=0``.
        multiprocessing_context: how processes are started, a name or context of `multiprocessing`; by default "spawn".
        generator: of the order and the seeds; by default that of the context in which iteration begins.
        prefetch_factor: the most batches that each worker, on average, fetches ahead; 2 by default.
        persistent_workers: keep the workers of one iteration for the next, until the loader is gone.
        in_order: whether batches come in the order of the indices, or as they are ready.
        worker_kind: "thread" or "process".  Threads, the default, start quickly, share the dataset and hand over
            tensors without copying.  Choose processes if Python code makes the samples, since threads share the
            interpreter's lock; unless processes are forked, dataset and functions must then be picklable, and a script
            needs its ``if __name__ == "__main__":``.  In a worker, `get_worker_info` returns the worker's facts.

    Raises:
        TypeError: for a dataset without `__getitem__` that is no `IterableDataset`; if `batch_size`, `num_workers` or
            `prefetch_factor` is no integer, or `drop_last` no bool.
        ValueError: for arguments that exclude each other, are unknown or out of range.

    Example:
        >>> for batch in flow.utils.data.DataLoader([1, 2, 3], batch_size=2):
        ...     print(batch)
        tensor([1, 2])
        tensor([3])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        worker_kind: str = "thread",
        pin_memory_device: str = "",
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers, worker_kind, multiprocessing_context)
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        elif not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"DataLoader: {type(dataset).__name__} has no __getitem__; a dataset that can only be iterated over "
                "must be an IterableDataset"
            )
        _check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.worker_kind = worker_kind
        self.prefetch_factor = (prefetch_factor or _PREFETCH) if num_workers else None
        processes = num_workers and worker_kind == "process"
        self.multiprocessing_context = start_method(multiprocessing_context) if processes else None
        if batch_sampler is not None:
            batch_size = None
        elif not iterable:
            if sampler is None:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            if batch_size is not None:
                batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._batched = batch_sampler is not None or batch_size is not None
        self.collate_fn = collate_fn or (default_collate if self._batched else default_convert)
        self._kept = _Kept()
        weakref.finalize(self, self._kept.close)

    def __iter__(self) -> Batches:
        recorder = MODE.get().interpreter
        if recorder is not None:  # the graph that is being built takes a batch in each of its launches
            return cast("Batches", recorder.batches(self))
        return Batches(self._begin(self.num_workers, prime=False))

    def __aiter__(self) -> AsyncIterator[Any]:
        return AsyncBatches(self._begin(self.num_workers or 1, prime=not isinstance(self.dataset, IterableDataset)))

    def _begin(self, threads: int, prime: bool) -> Iteration:
        base_seed = int(numbers_of(self.generator, 1).integers(1 << 62, 1)[0])
        source = self._source()
        crew = self._kept.take() or self._crew(threads)
        return Iteration(
            source,
            crew,
            Prefetch(max(threads, 1), self.prefetch_factor or 1, self.in_order),
            base_seed,
            eager=self.num_workers > 0,
            prime=prime,
            release=self._kept.give_back if self.persistent_workers else _end,
            timeout=self.timeout or None,
        )

    def _source(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            return itertools.repeat(self.batch_size or 1)
        source = self.sampler if self.batch_sampler is None else self.batch_sampler
        assert source is not None
        return iter(source)

    def _crew(self, threads: int) -> Crew:
        recipe = Recipe(
            dataset=self.dataset,
            batched=self._batched,
            drop_last=self.drop_last,
            collate=self.collate_fn,
            init=self.worker_init_fn,
            workers=self.num_workers,
            kind=self.worker_kind,
        )
        return Crew(recipe, threads, self.multiprocessing_context)

    def __len__(self) -> int:
        """The number of batches, or of samples if they come by themselves.

        With several workers, an `IterableDataset` may give more, or with `drop_last` fewer.

        Raises:
            TypeError: if the `batch_sampler` or `sampler`, or without both the dataset, has no length.
        """
        if not isinstance(self.dataset, IterableDataset):
            return length_of("DataLoader", self.sampler if self.batch_sampler is None else self.batch_sampler)
        length = length_of("DataLoader", self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)


def _end(crew: Crew) -> bool:
    crew.stop()
    return True


@attrs.define(eq=False)
class _Kept:
    """The workers that wait for a loader's next iteration.  No method takes a lock, since finalizers call them."""

    _idle: list[Crew] = attrs.field(factory=list)
    _closed: bool = False

    def take(self) -> Crew | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def give_back(self, crew: Crew) -> bool:
        """Keep a crew, or end it if one is kept already or the loader is gone; returns whether it ends."""
        if self._closed or self._idle:
            return _end(crew)
        self._idle.append(crew)
        return False

    def close(self) -> None:
        self._closed = True
        while (crew := self.take()) is not None:
            crew.stop()


def _check_workers(
    num_workers: int,
    timeout: float,
    prefetch_factor: int | None,
    persistent_workers: bool,
    worker_kind: str,
    context: str | BaseContext | None,
) -> None:
    for about, number, least in (("num_workers", num_workers, 0), ("prefetch_factor", prefetch_factor, 1)):
        if number is None:
            continue
        whole_number("DataLoader", about, number, least)
    if not 0 <= timeout < math.inf:
        raise ValueError(f"DataLoader: timeout must be a number of seconds that is not negative, not {timeout}")
    if worker_kind not in _KINDS:
        raise ValueError(f'DataLoader: worker_kind must be "thread" or "process", not {worker_kind!r}')
    if context is not None and (not num_workers or worker_kind != "process"):
        raise ValueError('DataLoader: multiprocessing_context needs num_workers above 0 and worker_kind="process"')
    if not num_workers:
        for about, given in (
            ("prefetch_factor", prefetch_factor is not None),
            ("persistent_workers", persistent_workers),
            ("timeout", timeout > 0),
        ):
            if given:
                raise ValueError(f"DataLoader: {about} needs num_workers above 0")


def _check_iterable(shuffle: bool | None, sampler: object, batch_sampler: object) -> None:
    for about, given in (
        ("shuffle", bool(shuffle)),
        ("sampler", sampler is not None),
        ("batch_sampler", batch_sampler is not None),
    ):
        if given:
            raise ValueError(f"DataLoader: an IterableDataset determines its own order; {about} cannot be given")


def _check_order(
    batch_size: int | None, shuffle: bool | None, sampler: object, batch_sampler: object, drop_last: bool
) -> None:
    if sampler is not None and shuffle:
        raise ValueError("DataLoader: give a sampler or shuffle, not both")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("DataLoader: a batch_sampler excludes batch_size, shuffle, sampler and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("DataLoader: drop_last needs a batch_size")
    if batch_size is not None:
        whole_number("DataLoader", "batch_size", batch_size, 1)
