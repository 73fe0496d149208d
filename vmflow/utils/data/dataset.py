"""Datasets: samples by index or one after another, and datasets made of others."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from vmflow.dtypes import int64
from vmflow.ops.creation.creation import tensor
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.shape.view import unbind
from vmflow.random import Generator
from vmflow.tensors import Tensor

from .sampler import length_of, numbers_of

Sample = TypeVar("Sample", covariant=True)


class Dataset(Generic[Sample]):
    """Samples that are found by index: define `__getitem__`, and `__len__` if samplers are to know how many there are.

    Define ``__getitems__(indices) -> list of samples`` too if it is cheaper to get the samples of a batch together.

    Raises:
        NotImplementedError: when indexed, if `__getitem__` is not defined.

    Example:
        >>> class Squares(flow.utils.data.Dataset):
        ...     def __getitem__(self, index):
        ...         return index * index
        >>> Squares()[3]
        9
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples that come one after another: define `__iter__`.

    With several workers, each worker iterates over the dataset on its own.  Unless `__iter__` gives each its share,
    according to `get_worker_info`, every sample comes as often as there are workers.

    Raises:
        NotImplementedError: when iterated over, if `__iter__` is not defined.

    Example:
        >>> class Letters(flow.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter("ab")
        >>> list(Letters())
        ['a', 'b']
    """

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of ``tensor[i]`` of each tensor.

    Args:
        tensors: of the same size in the first dimension.

    Raises:
        TypeError: for an argument that is no tensor.
        ValueError: for none at all, for a 0-d tensor, or if lengths differ.

    Example:
        >>> flow.utils.data.TensorDataset(flow.tensor([1, 2]), flow.tensor([3, 4]))[1]
        (tensor(2), tensor(4))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: expected at least one tensor")
        for column in tensors:
            if not isinstance(column, Tensor):
                raise TypeError(f"TensorDataset: expected tensors, got {type(column).__name__}")
        if any(tensor.ndim == 0 for tensor in tensors) or len({len(tensor) for tensor in tensors}) > 1:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
            raise ValueError(f"TensorDataset: the tensors must agree in their first dimension, got shapes {shapes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        # One op for each tensor instead of one for each sample; unbinding makes views, which need no op.
        length = len(self)
        for index in indices:
            if not -length <= index < length:
                raise IndexError(f"TensorDataset: index {index} is out of range for {length} samples")
        chosen = [index % length for index in indices]
        columns = [
            unbind(index_select(column, 0, tensor(chosen, dtype=int64, device=column.device)))
            for column in self.tensors
        ]
        return list(zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.tensors[0])


class StackDataset(Dataset[Any]):
    """Samples put together from those of several datasets: as a tuple, or as a dict if the datasets are given by name.

    Raises:
        ValueError: for none at all, for some by position and some by name, or if lengths differ.

    Example:
        >>> flow.utils.data.StackDataset(x=[1, 2], y=["a", "b"])[1]
        {'x': 2, 'y': 'b'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: give at least one dataset, and all by position or all by name")
        self.datasets: Any = args or kwargs
        lengths = {len(dataset) for dataset in self._all()}
        if len(lengths) > 1:
            raise ValueError(f"StackDataset: the datasets must have one length, got {sorted(lengths)}")

    def _all(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        columns = [samples_of(dataset, indices) for dataset in self._all()]
        rows = zip(*columns, strict=True)
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, row, strict=True)) for row in rows]
        return list(rows)

    def __len__(self) -> int:
        return len(self._all()[0])


class ConcatDataset(Dataset[Sample]):
    """Several datasets, one behind the other.

    Attributes:
        datasets: a list of the given ones.
        cumulative_sizes: for each dataset the number of samples up to its end.

    Raises:
        ValueError: for none at all.
        TypeError: for an `IterableDataset`.
        IndexError: when indexed out of range.

    Example:
        >>> flow.utils.data.ConcatDataset(["ab", "cd"])[2]
        'c'
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: expected at least one dataset")
        for dataset in self.datasets:
            if isinstance(dataset, IterableDataset):
                raise TypeError("ConcatDataset: an IterableDataset has no indices; put it into a ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index: int) -> Any:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"ConcatDataset: index {index} is out of range for {length} samples")
        index %= length
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Sample]):
    """Several iterable datasets, one after the other.

    Raises:
        TypeError: when iterated over, for a dataset that is no `IterableDataset`.

    Example:
        >>> class Letters(flow.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter("ab")
        >>> list(flow.utils.data.ChainDataset([Letters(), Letters()]))
        ['a', 'b', 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise TypeError(f"ChainDataset: expected IterableDatasets, got {type(dataset).__name__}")
            yield from dataset

    def __len__(self) -> int:
        return sum(length_of("ChainDataset", dataset) for dataset in self.datasets)


class Subset(Dataset[Sample]):
    """The samples of `dataset` at `indices`, in their order.

    Raises:
        IndexError: when indexed out of range.

    Example:
        >>> flow.utils.data.Subset("abcd", [3, 1])[0]
        'd'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[place] for place in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return samples_of(self.dataset, [self.indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self.indices)


def samples_of(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """The samples at `indices`, in one call if there is ``__getitems__``; ValueError if that returns another number."""
    together = getattr(dataset, "__getitems__", None)
    if together is None:
        return [dataset[index] for index in indices]
    samples: list[Any] = together(indices)
    if len(samples) != len(indices):
        raise ValueError(
            f"{type(dataset).__name__}.__getitems__ was asked for {len(indices)} samples and returned {len(samples)}"
        )
    return samples


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset[Any]]:
    """Split a dataset at random into parts that have no sample in common.

    Args:
        dataset: found by index.
        lengths: of the parts, adding up to the dataset's; or fractions that add up to 1, each part then getting its
            share rounded down, and the first parts one each of the remaining samples.
        generator: the source; by default that of the context.

    Raises:
        ValueError: if one is negative, or they are neither whole numbers of the right sum nor fractions of the sum 1.

    Example:
        >>> [len(part) for part in flow.utils.data.random_split(range(10), [0.75, 0.25])]
        [8, 2]
    """
    sizes = _sizes(lengths, len(dataset))
    order: list[int] = numbers_of(generator, len(dataset)).permutation(len(dataset)).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _sizes(lengths: Sequence[int | float], total: int) -> list[int]:
    if any(length < 0 for length in lengths):
        raise ValueError(f"random_split: lengths cannot be negative, got {list(lengths)}")
    if math.isclose(sum(lengths), 1):
        sizes = [math.floor(total * length) for length in lengths]
        for position in range(total - sum(sizes)):
            sizes[position % len(sizes)] += 1
        return sizes
    if sum(lengths) != total:
        raise ValueError(
            f"random_split: lengths must add up to the {total} samples of the dataset, or fractions to 1; "
            f"{list(lengths)} add up to {sum(lengths)}"
        )
    sizes = [int(length) for length in lengths]
    if sizes != list(lengths):
        raise ValueError(
            f"random_split: lengths must be whole numbers, or fractions that add up to 1, got {list(lengths)}"
        )
    return sizes
