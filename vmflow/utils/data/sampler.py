"""Samplers: in which order the samples of a dataset are visited, and in which batches.

A sampler that has the argument `generator` reserves its random numbers when iteration begins.  So an order does not
depend on random numbers drawn, or samples added, during the iteration.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from vmflow.arguments import whole_number
from vmflow.instructions.blob import Array
from vmflow.kernels.host_numbers import HostNumbers
from vmflow.random import Generator, chosen_generator
from vmflow.tensors import Tensor

Index = TypeVar("Index", covariant=True)

# Indices are turned from numpy's integers into Python's this many at a time.
_CHUNK: Final = 1024


def numbers_of(generator: Generator | None, elements: int) -> HostNumbers:
    """Take the next range of random numbers, for `elements` numbers, from `generator` or the context's default."""
    return HostNumbers(*chosen_generator(generator).take(elements))


def length_of(name: str, of: Any) -> int:
    """``len(of)``, with an error that names the class that needs the length.

    Raises:
        TypeError: if `of` has no length.
    """
    if not hasattr(of, "__len__"):
        raise TypeError(f"{name}: {type(of).__name__} has no length; define its __len__")
    return len(of)


def _integers(array: Array) -> Iterator[int]:
    for begin in range(0, len(array), _CHUNK):
        yield from array[begin : begin + _CHUNK].tolist()


class Sampler(Generic[Index]):
    """Something that iterates over indices; define `__iter__`, and `__len__` if the length is known.

    Raises:
        NotImplementedError: when iterated over, if `__iter__` is not defined.

    Example:
        >>> class Backwards(flow.utils.data.Sampler):
        ...     def __iter__(self):
        ...         return iter([2, 1, 0])
        >>> [batch.item() for batch in flow.utils.data.DataLoader([7, 8, 9], sampler=Backwards())]
        [9, 8, 7]
    """

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")


class SequentialSampler(Sampler[int]):
    """The indices in order.

    Raises:
        TypeError: when iterated over or given to `len`, if the dataset has no length.

    Example:
        >>> list(flow.utils.data.SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(length_of("SequentialSampler", self.data_source)))

    def __len__(self) -> int:
        return length_of("SequentialSampler", self.data_source)


class RandomSampler(Sampler[int]):
    """The indices in random order.

    Args:
        data_source: the dataset; only its length is used.
        replacement: whether each draw is of all indices, so that some come several times and some not at all.
        num_samples: how many indices in all; by default as many as there are samples.
            More than that, without replacement, are drawn in rounds: each is a new order of all samples, the last one
            perhaps cut short.
        generator: the source; by default that of the context in which iteration begins.

    Raises:
        TypeError: if `num_samples` is no integer, or `replacement` no bool; when iterated over, or, without
            `num_samples`, given to `len`, if the dataset has no length.
        ValueError: if `num_samples` is less than 1; when iterated over, if it is given and the dataset is empty.

    Example:
        >>> sorted(flow.utils.data.RandomSampler("abc"))
        [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement must be True or False, not {replacement!r}")
        if num_samples is not None:
            num_samples = whole_number("RandomSampler", "num_samples", num_samples, 1)
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices an iteration has."""
        return length_of("RandomSampler", self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        wanted, length = self.num_samples, length_of("RandomSampler", self.data_source)
        if wanted and not length:
            raise ValueError(f"RandomSampler: an empty dataset has none of the {wanted} samples to draw")
        numbers = numbers_of(self.generator, wanted + length)
        indices = self._with_replacement if self.replacement else self._rounds
        return indices(numbers, length, wanted)

    def _with_replacement(self, numbers: HostNumbers, length: int, left: int) -> Iterator[int]:
        while left > 0:
            count = min(left, _CHUNK)
            yield from numbers.integers(length, count).tolist()
            left -= count

    def _rounds(self, numbers: HostNumbers, length: int, left: int) -> Iterator[int]:
        while left > 0:
            yield from _integers(numbers.permutation(length)[:left])
            left -= length

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    Raises:
        TypeError: when iterated over or given to `len`, if the indices have no length.

    Example:
        >>> sorted(flow.utils.data.SubsetRandomSampler([5, 3, 1]))
        [1, 3, 5]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        length = len(self.indices)
        return self._shuffled(numbers_of(self.generator, length), length)

    def _shuffled(self, numbers: HostNumbers, length: int) -> Iterator[int]:
        for position in _integers(numbers.permutation(length)):
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices below the number of weights, drawn with probabilities proportional to the weights.

    Args:
        weights: a vector of real numbers, not negative, not all zero, of a finite sum; they need not add up to 1.
        num_samples: how many indices to draw.
        replacement: whether an index may be drawn again.
        generator: the source; by default that of the context in which iteration begins.

    Raises:
        TypeError: if `num_samples` is no integer, or `replacement` no bool.
        ValueError: for other real weights, if `num_samples` is less than 1, or if, without replacement, `num_samples`
            is more than the number of weights that are not zero.

    Example:
        >>> list(flow.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], num_samples=2))
        [1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float] | Array | Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.num_samples = whole_number("WeightedRandomSampler", "num_samples", num_samples, 1)
        if not isinstance(replacement, bool):
            raise TypeError(f"WeightedRandomSampler: replacement must be True or False, not {replacement!r}")
        given = weights.detach().numpy() if isinstance(weights, Tensor) else weights
        self.weights = np.array(given, np.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"WeightedRandomSampler: weights must have one dimension, not {self.weights.ndim}")
        with np.errstate(over="ignore"):
            total = self.weights.sum()
        if not ((self.weights >= 0).all() and 0 < total < math.inf):
            raise ValueError(
                f"WeightedRandomSampler: weights must be not negative, not all zero, and of a finite sum, not {total}"
            )
        possible = np.count_nonzero(self.weights)
        if not replacement and self.num_samples > possible:
            raise ValueError(
                f"WeightedRandomSampler: cannot draw {num_samples} indices without replacement from {possible} "
                "whose weight is not zero"
            )
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        return self._drawn(numbers_of(self.generator, max(self.num_samples, len(self.weights))))

    def _drawn(self, numbers: HostNumbers) -> Iterator[int]:
        if self.replacement:
            sums = np.cumsum(self.weights)
            places = numbers.uniform(self.num_samples) * sums[-1]
            # Rounding may carry a number up to the very end, where there is no index left.
            last = np.flatnonzero(self.weights)[-1]
            yield from _integers(np.minimum(np.searchsorted(sums, places, side="right"), last))
        else:
            # Independent exponential times, with the weights as rates, come in the order of draws without replacement.
            with np.errstate(divide="ignore"):
                times = numbers.exponential(len(self.weights)) / self.weights
            yield from _integers(np.argsort(times)[: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of up to `batch_size` indices of another sampler.

    Args:
        sampler: where the indices come from.
        batch_size: how many to a list.
        drop_last: leave out the last list if it is shorter.

    Raises:
        TypeError: if `batch_size` is no integer, or `drop_last` no bool; when given to `len`, if `sampler` has no
            length.
        ValueError: if `batch_size` is less than 1.

    Example:
        >>> list(flow.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        self.batch_size = whole_number("BatchSampler", "batch_size", batch_size, 1)
        if not isinstance(drop_last, bool):
            raise TypeError(f"BatchSampler: drop_last must be True or False, not {drop_last!r}")
        self.sampler = sampler
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        return self._batches(iter(self.sampler))

    def _batches(self, indices: Iterator[Any]) -> Iterator[list[Any]]:
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        length = length_of("BatchSampler", self.sampler)
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


class DistributedSampler(Sampler[int]):
    """The share of one rank in the indices of a dataset.

    All ranks must give the same arguments but for `rank`.  Call `set_epoch` before each epoch for a new random order.

    Args:
        dataset: only its length is used.
        num_replicas: how many ranks there are.
        rank: which of them this is, from 0.
        shuffle: whether the order is random.
        seed: of the order; with the epoch added, it must be below 2**64.
        drop_last: if the ranks do not divide the length, leave out the last indices of the order instead of repeating
            the first.

    Raises:
        TypeError: if a number is no integer; when iterated over or given to `len`, if the dataset has no length.
        ValueError: if `rank` is not below `num_replicas`, or a number is too small.

    Example:
        >>> list(flow.utils.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
        [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int,
        rank: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.num_replicas = whole_number("DistributedSampler", "num_replicas", num_replicas, 1)
        self.rank = whole_number("DistributedSampler", "rank", rank, 0)
        if rank >= num_replicas:
            raise ValueError(f"DistributedSampler: rank {rank} is not below num_replicas, {num_replicas}")
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = whole_number("DistributedSampler", "seed", seed, 0)
        self.drop_last = drop_last
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Let iterations that begin later have the random order of `epoch`, an integer from 0.

        Raises:
            TypeError: if `epoch` is no integer.
            ValueError: if `epoch` is negative.
        """
        self.epoch = whole_number("DistributedSampler", "epoch", epoch, 0)

    def __iter__(self) -> Iterator[int]:
        return self._share(length_of("DistributedSampler", self.dataset), self.seed + self.epoch)

    def _share(self, length: int, seed: int) -> Iterator[int]:
        order = np.arange(length)
        if self.shuffle:
            order = numbers_of(Generator().manual_seed(seed), length).permutation(length)
        total = self._per_rank(length) * self.num_replicas
        # Past the end of the indices, `np.resize` begins again from the first.
        return _integers(np.resize(order, total)[self.rank :: self.num_replicas])

    def _per_rank(self, length: int) -> int:
        return length // self.num_replicas if self.drop_last else math.ceil(length / self.num_replicas)

    def __len__(self) -> int:
        return self._per_rank(length_of("DistributedSampler", self.dataset))
