"""Samplers: every index as often as it should come, seeded, and cheap to begin."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

wrong: Any = 1.5

SEEDED: list[Any] = [
    lambda generator: RandomSampler(range(50), generator=generator),
    lambda generator: RandomSampler(range(50), replacement=True, num_samples=3000, generator=generator),
    lambda generator: SubsetRandomSampler(range(50), generator=generator),
    lambda generator: WeightedRandomSampler([1.0] * 50, 40, generator=generator),
    lambda generator: WeightedRandomSampler([1.0] * 50, 40, replacement=False, generator=generator),
]


@pytest.mark.parametrize("make", SEEDED)
def test_a_seed_gives_an_order(make: Any) -> None:
    def orders(seed: int) -> list[list[int]]:
        sampler = make(flow.Generator().manual_seed(seed))
        assert len(list(sampler)) == len(sampler)
        return [list(sampler), list(sampler)]

    first = orders(1)
    assert first[0] != first[1]
    assert orders(1) == first
    assert orders(2) != first
    assert {type(value) for value in first[0]} == {int}


@pytest.mark.parametrize("make", SEEDED)
def test_an_order_depends_on_when_it_began(make: Any) -> None:
    sampler = make(flow.Generator().manual_seed(1))
    one, other = iter(sampler), iter(sampler)
    late = [list(other), list(one)]
    sampler = make(flow.Generator().manual_seed(1))
    assert late == [list(sampler), list(sampler)][::-1]


@pytest.mark.parametrize("replacement", [False, True])
def test_a_dataset_that_grows_does_not_change_an_iteration_that_began(replacement: bool) -> None:
    dataset = [1, 2, 3, 4]
    samplers = (RandomSampler(dataset, replacement), SubsetRandomSampler(dataset))
    begun = [iter(sampler) for sampler in samplers]
    dataset.append(5)
    found, subset = [list(indices) for indices in begun]
    assert len(found) == 4
    assert set(found) <= {0, 1, 2, 3}
    assert replacement or len(set(found)) == 4
    assert sorted(subset) == [1, 2, 3, 4]
    assert [len(list(sampler)) for sampler in samplers] == [5, 5]


def test_random_sampler() -> None:
    assert sorted(RandomSampler(range(2500))) == list(range(2500))
    rounds = list(RandomSampler(range(4), num_samples=10))
    assert Counter(rounds[:8]) == dict.fromkeys(range(4), 2)
    assert len(rounds) == len(set(rounds[8:])) + 8 == 10
    drawn = Counter(RandomSampler(range(4), replacement=True, num_samples=4000))
    assert set(drawn) == {0, 1, 2, 3}
    assert all(850 < count < 1150 for count in drawn.values())
    assert len(list(RandomSampler(range(3), num_samples=np.int64(7)))) == 7  # type: ignore[arg-type]
    assert list(RandomSampler([])) == []
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert len(SequentialSampler("abc")) == 3
    assert sorted(SubsetRandomSampler([7, 3, 5])) == [3, 5, 7]


def test_random_sampler_agrees_with_randperm() -> None:
    generator = flow.Generator().manual_seed(9)
    found = list(RandomSampler(range(20), generator=generator))
    assert found == flow.randperm(20, generator=flow.Generator().manual_seed(9)).tolist()


@pytest.mark.parametrize("kind", [list, np.array, flow.tensor])
def test_weighted_random_sampler(kind: Any) -> None:
    drawn = Counter(WeightedRandomSampler(kind([1.0, 0.0, 3.0]), 4000))
    assert drawn[1] == 0
    assert 2850 < drawn[2] < 3150
    first = Counter(next(iter(WeightedRandomSampler(kind([1.0, 0.0, 3.0]), 2, replacement=False))) for _ in range(400))
    assert 260 < first[2] < 340
    assert sorted(WeightedRandomSampler(kind([1.0, 0.0, 3.0]), 2, replacement=False)) == [0, 2]


def test_batch_sampler() -> None:
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert [len(BatchSampler(range(5), 2, number)) for number in (False, True)] == [3, 2]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("length", "drop_last"), [(10, False), (10, True), (12, False), (1, False), (2, True), (0, False)]
)
def test_distributed_sampler(shuffle: bool, length: int, drop_last: bool) -> None:
    ranks = [DistributedSampler(range(length), 4, rank, shuffle, seed=3, drop_last=drop_last) for rank in range(4)]
    shares = [list(value) for value in ranks]
    assert [len(value) for value in shares] == [len(value) for value in ranks] == [len(shares[0])] * 4
    counts = Counter(index for share in shares for index in share)
    if drop_last:
        assert sum(counts.values()) == length // 4 * 4
        assert set(counts.values()) <= {1}
    else:
        assert set(counts) == set(range(length))
    ranks[0].set_epoch(1)
    assert (list(ranks[0]) != shares[0]) == (shuffle and length > 2)
    ranks[0].set_epoch(0)
    assert list(ranks[0]) == shares[0]


def test_as_pytorch() -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    for rank in range(3):
        ours = DistributedSampler(range(10), 3, rank, shuffle=False)
        assert list(ours) == list(torch_data.DistributedSampler(range(10), 3, rank, shuffle=False))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandomSampler([1], num_samples=0), ValueError, "num_samples must be at least 1"),
        (lambda: RandomSampler([1], replacement=wrong), TypeError, "replacement must be"),
        (lambda: RandomSampler([1], num_samples=wrong), TypeError, "num_samples must be an integer"),
        (lambda: WeightedRandomSampler([1, -1], 1), ValueError, "not negative"),
        (lambda: WeightedRandomSampler([0, 0], 1), ValueError, "not all zero"),
        (lambda: WeightedRandomSampler([1e308, 1e308], 1), ValueError, "finite sum"),
        (lambda: WeightedRandomSampler([[1]], 1), ValueError, "one dimension"),
        (lambda: WeightedRandomSampler([1, 0], 2, replacement=False), ValueError, "cannot draw 2"),
        (lambda: BatchSampler([1], 0, False), ValueError, "batch_size must be at least 1"),
        (lambda: BatchSampler([1], 1, wrong), TypeError, "drop_last must be"),
        (lambda: DistributedSampler([1], 2, 2), ValueError, "rank 2 is not below"),
        (lambda: DistributedSampler([1], 2, -1), ValueError, "rank must be at least 0"),
        (lambda: iter(RandomSampler(iter([1]))), TypeError, "has no length"),
        (lambda: list(Sampler()), NotImplementedError, "must define __iter__"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
