"""Every change of spread gives each rank the part that numpy says it has."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist
from vmflow.distributed.boxing import boxed, cost
from vmflow.distributed.placement import placement
from vmflow.distributed.sbp import NdSbp, Sbp, broadcast, partial_sum, share, split
from vmflow.distributed.spread import Spread, spread
from vmflow.streams.communication import CHANNEL

pytestmark = pytest.mark.host

ONE_AXIS = [split(0), split(1), split(2), broadcast, partial_sum]


def part_of(whole: np.ndarray, how: Spread, rank: int) -> np.ndarray:
    """The part of an array that a rank has; of a partial sum the first rank of the axis has all of it."""
    here = how.placement.coordinates(rank)
    if here is None:
        return np.zeros((0,) * max(whole.ndim, 1), whole.dtype)
    for axis, sbp in enumerate(how.sbp):
        if sbp.is_split:
            start, length = share(whole.shape[sbp.dim], how.placement.shape[axis], here[axis])
            whole = whole[(*[slice(None)] * sbp.dim, slice(start, start + length))]
        elif sbp.kind == "partial_sum" and here[axis]:
            whole = np.zeros_like(whole)
    return whole


def uneven_parts(whole: np.ndarray, how: Spread, rank: int) -> np.ndarray:
    """The same, but for partial sums to which all ranks of the axis contribute."""
    here = how.placement.coordinates(rank)
    if here is None or not any([sbp.kind == "partial_sum" for sbp in how.sbp]):
        return part_of(whole, how, rank)
    # Shares of 1/4, 1/4 and 1/2 and the like: exact in every dtype for multiples of 8.
    factor = 1.0
    for axis, sbp in enumerate(how.sbp):
        if sbp.kind == "partial_sum":
            count = how.placement.shape[axis]
            factor *= 0.5 ** min(here[axis] + 1, count - 1)
    as_broadcast = spread(how.placement, tuple([broadcast if s.kind == "partial_sum" else s for s in how.sbp]))
    return (part_of(whole, as_broadcast, rank) * factor).astype(whole.dtype)


def check(shape: tuple[int, ...], dtype: flow.dtype, ranks: int, pairs: list[tuple[Any, NdSbp, Any, NdSbp]]) -> None:
    whole = (np.arange(np.prod(shape)).reshape(shape) % 11 * 64).astype(dtype.numpy)

    def program() -> list[np.ndarray]:
        rank = dist.get_rank()
        found = []
        for one, old, other, new in pairs:
            source, target = spread(placement("cpu", one), old), spread(placement("cpu", other), new)
            part = flow.tensor(np.ascontiguousarray(uneven_parts(whole, source, rank)))
            found.append(boxed(part, shape, source, target))
        return [tensor.float().numpy() if dtype is flow.bfloat16 else tensor.numpy() for tensor in found]

    results = dist.simulate(program, ranks, seed=ranks)

    def compare() -> None:
        for rank, found in enumerate(results):
            for (one, old, other, new), part in zip(pairs, found, strict=True):
                target = spread(placement("cpu", other), new)
                name = f"{list(map(str, old))} over {one} -> {list(map(str, new))} over {other}, rank {rank}"
                if any([sbp.kind == "partial_sum" for sbp in new]):
                    continue
                wanted = part_of(whole, target, rank)
                np.testing.assert_array_equal(part, wanted.astype(part.dtype), err_msg=name)
                assert part.shape == wanted.shape, name

    _as_rank(compare, ranks)


def _as_rank(compare: Any, ranks: int) -> None:
    """In a context that knows so many ranks, for placements."""
    dist.simulate(compare, ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("shape", [(4, 6, 12), (5, 7, 3), (1, 2, 5), (12, 0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [flow.float32, flow.int64, flow.bfloat16], ids=str)
def test_one_axis(ranks: int, shape: tuple[int, ...], dtype: flow.dtype) -> None:
    everybody = list(range(ranks))
    check(shape, dtype, ranks, [(everybody, (a,), everybody, (b,)) for a, b in product(ONE_AXIS, ONE_AXIS)])


@pytest.mark.parametrize("mesh", [[[0, 1], [2, 3]], [[3, 1], [0, 2]]], ids=str)
@pytest.mark.parametrize("shape", [(4, 8), (5, 3)], ids=str)
def test_two_axes(mesh: Any, shape: tuple[int, ...]) -> None:
    sbps: list[Sbp] = [split(0), split(1), broadcast, partial_sum]
    pairs = list(product(sbps, repeat=2))
    check(shape, flow.float64, 4, [(mesh, old, mesh, new) for old, new in product(pairs, pairs)])


@pytest.mark.parametrize("ranks", [[0], [1, 2], [2, 0], [3, 1, 0]], ids=str)
@pytest.mark.parametrize("others", [[3], [0, 1], [0, 1, 2, 3]], ids=str)
def test_another_placement(ranks: list[int], others: list[int]) -> None:
    sbps: list[Sbp] = [split(0), split(1), broadcast, partial_sum]
    check((5, 7), flow.float32, 4, [(ranks, (old,), others, (new,)) for old, new in product(sbps, sbps)])


def test_partial_sums_add_up() -> None:
    def program() -> list[Any]:
        where = placement.all("cpu")
        found = []
        for old in (split(0), broadcast, partial_sum):
            source = spread(where, (old,))
            part = flow.ones(source.sizes((6, 2), dist.get_rank()))
            as_sum = boxed(part, (6, 2), source, spread(where, (partial_sum,)))
            found.append(dist.all_reduce(as_sum.clone()).tolist())
        return found

    for found in dist.simulate(program, 3):
        assert found == [[[1.0] * 2] * 6, [[1.0] * 2] * 6, [[3.0] * 2] * 6]


def test_the_cost_is_the_traffic_of_the_network() -> None:
    shape = (12, 24)

    def program() -> list[tuple[float, float]]:
        where = placement.all("cpu")
        found = []
        for old, new in product([split(0), split(1), broadcast, partial_sum], repeat=2):
            source, target = spread(where, (old,)), spread(where, (new,))
            channel = CHANNEL.get()
            engine = channel.engine  # type: ignore[union-attr]
            dist.barrier().tolist()
            before = engine.nbytes
            boxed(flow.zeros(source.sizes(shape, dist.get_rank())), shape, source, target).tolist()
            dist.barrier().tolist()
            found.append((cost(shape, 4, source, target), (engine.nbytes - before) / 4))
        return found

    for predicted, seen in dist.simulate(program, 4)[0]:
        assert predicted == pytest.approx(seen)


def test_the_cost_on_a_mesh_is_that_of_all_exchanges_on_the_way() -> None:
    shape = (12, 24)
    sbps: list[Sbp] = [split(0), split(1), broadcast]

    def program() -> list[tuple[str, float, float]]:
        where = placement("cpu", [[0, 1], [2, 3]])
        found = []
        for old, new in product(product(sbps, repeat=2), repeat=2):
            source, target = spread(where, old), spread(where, new)
            engine = CHANNEL.get().engine  # type: ignore[union-attr]
            dist.barrier().tolist()
            before = engine.nbytes
            dist.barrier().tolist()  # the ranks of another row may not begin before the bytes are read
            boxed(flow.zeros(source.sizes(shape, dist.get_rank())), shape, source, target).tolist()
            dist.barrier().tolist()
            found.append((f"{old} to {new}", cost(shape, 4, source, target), (engine.nbytes - before) / 4))
        return found

    for change, predicted, seen in dist.simulate(program, 4)[0]:
        assert predicted == pytest.approx(seen), change


def test_between_placements_each_element_is_sent_once_to_each_rank_that_needs_it() -> None:
    def program() -> list[tuple[float, float]]:
        channel = CHANNEL.get()
        engine = channel.engine  # type: ignore[union-attr]
        x = flow.arange(24.0).reshape(6, 4)
        found = []
        for old, new, ranks in (
            (split(0), split(0), [2, 3]),
            (split(0), split(1), [2, 3]),
            (split(0), broadcast, [1, 2]),
            (broadcast, split(1), [0, 1, 2, 3]),
            (partial_sum, split(0), [3]),
        ):
            source = flow.tensor(x, placement=placement("cpu", [0, 1]), sbp=old)
            dist.barrier().tolist()
            before = engine.nbytes
            target = source.to_global(placement("cpu", ranks), new)
            with dist.record_boxing() as records:
                again = source.to_global(placement("cpu", ranks), new)
            dist.barrier().tolist()
            seen = (engine.nbytes - before) / 2
            assert len(records) == 1
            found.append((records[0].nbytes * len(ranks), seen))
            if dist.get_rank() in ranks:
                for each in (target, again):
                    np.testing.assert_array_equal(each.numpy(), x.numpy())
        return found

    (same, across, everywhere, taken, summed) = dist.simulate(program, 4)[0]
    assert same == (96, 96)  # all of it, once
    assert across == (96, 96)
    assert everywhere == (2 * 96 - 48, 2 * 96 - 48)  # rank 1 has half of it
    assert taken == (48, 48)  # ranks 0 and 1 have theirs
    assert summed[1] == 96 + 2 * 96  # added up on both, and sent


def test_arguments() -> None:
    def program() -> None:
        assert placement("cpu", [0, 1]) is placement("cpu", (0, 1)) is placement.all("cpu")
        assert repr(placement("cpu", [[0], [1]])) == "vmflow.placement(type='cpu', ranks=[[0], [1]])"
        assert str(split(1)) == "S(1)"
        assert broadcast() is broadcast
        for wrong, message in (
            ([0, 2], "there is no rank 2; ranks go from 0 to 1"),
            ([0, 0], "name one rank twice"),
            ([], "at least one rank"),
            ([[0], [1, 1]], "nested sequences of equal lengths"),
        ):
            with pytest.raises(ValueError, match=message):
                placement("cpu", wrong)
        for kind in ("cpu:0", flow.device("cpu"), None):
            with pytest.raises(ValueError, match="placement: expected a type of devices"):
                placement(kind, [0])  # type: ignore[arg-type]
        assert split(np.int64(1)) == split(1)  # type: ignore[arg-type]
        for dim in (-1, 0.5, True):
            with pytest.raises(ValueError, match=r"sbp\.split: a dimension is an integer from 0 on"):
                split(dim)  # type: ignore[arg-type]

    dist.simulate(program, 2)
