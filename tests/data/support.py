"""Datasets for tests; in a module of their own, so that spawned processes find them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

import vmflow as flow
from vmflow.utils.data import Dataset, IterableDataset, get_worker_info


class Squares(Dataset[Any]):
    """Sample i is (an array of i * i, i)."""

    def __init__(self, length: int = 10, size: int = 3) -> None:
        self.length = length
        self.size = size

    def __getitem__(self, index: int) -> Any:
        return np.full(self.size, index * index, np.float32), index

    def __len__(self) -> int:
        return self.length


class Failing(Squares):
    """Raises `error`, or the exception that it makes of 1 and 2, for sample `bad`."""

    def __init__(self, bad: int, error: Any, length: int = 10) -> None:
        super().__init__(length)
        self.bad = bad
        self.error = error

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise self.error if isinstance(self.error, BaseException) else self.error(1, 2)
        return super().__getitem__(index)


class Unpicklable(Exception):
    """Cannot be sent anywhere."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Dying(Squares):
    """Its process is killed at sample 5."""

    def __getitem__(self, index: int) -> Any:
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Gated(Squares):
    """Notes the requested samples; from sample `held` on, waits for the gate."""

    def __init__(self, length: int = 10, held: int = 0) -> None:
        super().__init__(length)
        self.held = held
        self.gate = threading.Event()
        self.asked: list[int] = []
        self.reached = threading.Semaphore(0)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        self.reached.release()
        if index >= self.held:
            assert self.gate.wait(30)
        return super().__getitem__(index)


class Stuck(Squares):
    """Says that it is at sample 2 by closing a pipe, and never returns from it."""

    def __init__(self, written: str) -> None:
        super().__init__()
        self.written = written

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            with open(self.written, "w") as fifo:  # a FIFO: opening waits for the reader
                fifo.write(str(os.getpid()))
            signal.pause()
        return super().__getitem__(index)


class Noise(Squares):
    """Random numbers from vmflow."""

    def __getitem__(self, index: int) -> Any:
        return index, flow.rand(2)


class Scalars(Squares):
    """A 0-d tensor, and a transposed matrix."""

    def __getitem__(self, index: int) -> Any:
        return flow.tensor(index), flow.arange(6).reshape(2, 3).T


class Infos(Squares):
    """The facts about the worker."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return None if info is None else (info.id, info.num_workers, info.seed, info.kind)


class Shares(IterableDataset[int]):
    """The numbers below `length`, shared among workers; and a share that fails, if asked for."""

    def __init__(self, length: int, bad: int | None = None, all_to_first: bool = False) -> None:
        self.length = length
        self.bad = bad
        self.all_to_first = all_to_first

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        begin, step = (0, 1) if info is None else (info.id, info.num_workers)
        if self.all_to_first:
            begin, step = (0 if begin == 0 else self.length), 1
        for number in range(begin, self.length, step):
            if number == self.bad:
                raise ValueError(f"number {number}")
            yield number

    def __len__(self) -> int:
        return self.length


def same(samples: Any) -> Any:
    """A collate_fn that leaves samples alone."""
    return samples


def mark(number: int) -> None:
    """A worker_init_fn that can be seen."""
    np.random.seed(number + 100)
