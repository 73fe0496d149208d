"""The bin allocator: scripts, random programs against a naive model, limits, destructors and threads."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import weakref
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vmflow.errors import InternalError, OutOfMemory
from vmflow.streams.allocator import Allocation, BinAllocator
from vmflow.streams.device_memory import GIB, KIB, MIB, PAGE, DeviceMemory
from vmflow.streams.pieces import BINS

BYTES = np.dtype(np.uint8)


def allocator_of(limit: int | None = None, **options: Any) -> BinAllocator:
    return BinAllocator(DeviceMemory("sim:0", limit=limit), **options)


def virtual_memory(limit: int | None = None) -> DeviceMemory:
    """Blocks of any size that take one byte each: for scripts that never look inside."""
    return DeviceMemory("sim:0", lambda nbytes: np.broadcast_to(np.zeros(1, np.uint8), (nbytes,)), limit)


def content(allocation: Allocation) -> np.ndarray[Any, np.dtype[np.uint8]]:
    found: np.ndarray[Any, np.dtype[np.uint8]] = allocation.array((allocation.nbytes,), BYTES)
    return found


def place(allocation: Allocation) -> tuple[int, int]:
    """The address of the block, and where in it the piece begins."""
    return allocation.block.ctypes.data, allocation.offset


def in_blocks(allocator: BinAllocator) -> int:
    return allocator.statistics()["reserved_bytes.all.current"]


@pytest.fixture
def allocator() -> Iterator[BinAllocator]:
    made = allocator_of()
    yield made
    made.check_invariants()


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Pieces must come back without the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# Pieces


def test_a_piece_holds_written_bytes(allocator: BinAllocator) -> None:
    pieces = [allocator.allocate(nbytes) for nbytes in (4, 512, 513, 5000, 3 * MIB)]
    for number, piece in enumerate(pieces):
        content(piece)[:] = number + 1
    for number, piece in enumerate(pieces):
        assert (content(piece) == number + 1).all()


def test_an_array_is_a_contiguous_view_of_the_piece(allocator: BinAllocator) -> None:
    piece = allocator.allocate(24)
    array = piece.array((2, 3), np.dtype(np.float32))
    assert array.shape == (2, 3)
    assert array.dtype == np.float32
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    array[...] = np.arange(6).reshape(2, 3)
    assert piece.array((6,), np.dtype(np.float32)).tolist() == [0, 1, 2, 3, 4, 5]
    scalar = piece.array((), np.dtype(np.float64))
    assert scalar.shape == ()
    assert np.shares_memory(scalar, array)


def test_an_array_larger_than_the_piece_is_refused(allocator: BinAllocator) -> None:
    piece = allocator.allocate(512)
    with pytest.raises(ValueError, match=r"\(129,\) of float32 needs 516 bytes, and this piece has 512"):
        piece.array((129,), np.dtype(np.float32))
    with pytest.raises(ValueError, match="needs 4294967296 bytes"):
        piece.array((1 << 30,), np.dtype(np.float32))


def test_a_freed_piece_cannot_be_seen(allocator: BinAllocator) -> None:
    piece = allocator.allocate(100, "me")
    piece.free()
    with pytest.raises(InternalError, match="100 bytes in 512 at 0, for me> has been freed"):
        piece.array((1,), BYTES)


def test_the_block_begins_at_a_multiple_of_64_bytes(allocator: BinAllocator) -> None:
    pieces = [allocator.allocate(nbytes) for nbytes in (1, 2 * MIB, 11 * MIB)]
    assert [piece.block.ctypes.data % 64 for piece in pieces] == [0, 0, 0]
    assert [content(piece).ctypes.data % 64 for piece in pieces] == [0, 0, 0]


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    for alignment in (16, 512, 4096):
        allocator = allocator_of(alignment=alignment)
        for nbytes in (1, alignment - 1, alignment, alignment + 1, 7 * alignment):
            piece = allocator.allocate(nbytes)
            assert piece.nbytes == -(-nbytes // alignment) * alignment
            assert piece.requested == nbytes
            assert piece.offset % alignment == 0
        allocator.check_invariants()


@pytest.mark.parametrize("alignment", [0, -512, 8, 100, 4 * MIB])
def test_a_bad_alignment_is_refused(alignment: int) -> None:
    with pytest.raises(ValueError, match=f"power of two from 16 to 2097152 bytes, not {alignment}"):
        allocator_of(alignment=alignment)


def test_nothing_costs_nothing(allocator: BinAllocator) -> None:
    before = allocator.statistics()
    piece = allocator.allocate(0, "no owner")
    assert piece.nbytes == piece.requested == 0
    assert piece.array((0, 3), np.dtype(np.float32)).shape == (0, 3)
    with pytest.raises(ValueError, match="needs 4 bytes, and this piece has 0"):
        piece.array((), np.dtype(np.float32))
    assert allocator.largest(5) == []
    piece.free()
    piece.free()
    with pytest.raises(InternalError, match="freed"):
        piece.array((0,), BYTES)
    assert allocator.statistics() == before
    assert in_blocks(allocator) == 0


def test_a_negative_size_is_refused(allocator: BinAllocator) -> None:
    with pytest.raises(ValueError, match="negative number of bytes: -1"):
        allocator.allocate(-1)


# Where pieces come from


@pytest.mark.parametrize(
    ("nbytes", "block"),
    [
        (1, 2 * MIB),
        (MIB - 512, 2 * MIB),
        (MIB - 511, 20 * MIB),  # rounded up it is 1 MiB
        (MIB, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (GIB + 1, GIB + 2 * MIB),
    ],
)
def test_the_size_of_a_new_block(nbytes: int, block: int) -> None:
    memory = virtual_memory()
    allocator = BinAllocator(memory)
    piece = allocator.allocate(nbytes)
    assert memory.used == in_blocks(allocator) == block
    piece.free()
    allocator.check_invariants()
    assert allocator.shrink() == block


def test_a_freed_piece_is_the_next_to_be_handed_out(allocator: BinAllocator) -> None:
    first = allocator.allocate(1000)
    where = place(first)
    first.free()
    assert place(allocator.allocate(1000)) == where


def test_the_piece_dropped_last_is_handed_out_next_and_counted_anew(
    allocator: BinAllocator, without_collector: None
) -> None:
    class Owner:
        """Asks for memory when it goes, which may be in the middle of a change."""

        def __del__(self) -> None:
            seen.append(allocator._changing)

    seen: list[bool] = []
    older, newer = allocator.allocate(5000, "older"), allocator.allocate(3000, Owner())
    where = place(newer)
    del older, newer
    again = allocator.allocate(2900, "again")  # of the same size in whole units of the alignment
    assert place(again) == where
    assert seen == [False]
    found = allocator.statistics()
    assert found["requested_bytes.all.current"] == 2900
    assert found["requested_bytes.all.peak"] == 8000
    assert found["allocated_bytes.all.current"] == 3072
    assert (found["allocation.all.current"], found["allocation.all.allocated"]) == (1, 3)
    allocator.check_invariants()


def test_the_best_fit_of_the_bin_is_taken(allocator: BinAllocator) -> None:
    """Holes of 12, 9, 10 and 8 units, with something between: all in one bin."""
    holes: dict[int, Allocation] = {}
    between = []
    for units in (12, 9, 10, 8):
        holes[units] = allocator.allocate(512 * units)
        between.append(allocator.allocate(512))
    where = {units: place(hole) for units, hole in holes.items()}
    for hole in holes.values():
        hole.free()
    allocator.check_invariants()
    ten = allocator.allocate(512 * 9 + 1)
    eight = allocator.allocate(512 * 8)
    twelve = allocator.allocate(512 * 11)
    assert [place(value) for value in (ten, eight, twelve)] == [where[10], where[8], where[12]]
    assert twelve.nbytes == 512 * 12
    assert twelve.requested == 512 * 11


def test_of_equal_pieces_the_oldest_blocks_first_is_taken(allocator: BinAllocator) -> None:
    pieces = [allocator.allocate(MIB - 512) for _ in range(6)]
    assert in_blocks(allocator) == 6 * MIB
    expected = [place(piece) for piece in pieces]
    order = list(pieces)
    random.Random(3).shuffle(order)
    # Every other one, so that they cannot merge.
    for piece in [value for value in order if pieces.index(value) % 2 == 0]:
        piece.free()
    allocator.check_invariants()
    again = [allocator.allocate(MIB - 512) for _ in range(3)]
    assert [place(value) for value in again] == expected[::2]


def test_a_larger_bin_serves_if_the_own_one_has_nothing_that_fits(allocator: BinAllocator) -> None:
    small = allocator.allocate(512 * 8)
    between = allocator.allocate(512)
    large = allocator.allocate(512 * 40)
    end = allocator.allocate(512)
    where = place(large)
    small.free()
    large.free()
    piece = allocator.allocate(512 * 9)  # of the bin of 8, whose only piece is too small
    assert place(piece) == where
    assert piece.nbytes == 512 * 9
    assert between.offset < piece.offset < end.offset


def test_all_sizes_find_their_bin() -> None:
    """The last bin is open-ended; also sizes that no device has get a clear answer."""
    allocator = BinAllocator(virtual_memory())
    sizes = [512 << number for number in range(BINS + 3)]
    pieces = [allocator.allocate(size + change) for size in sizes for change in (-1, 0, 1)]
    random.Random(1).shuffle(pieces)
    for piece in pieces:
        piece.free()
        allocator.check_invariants()
    assert allocator.shrink() > sum(sizes)
    assert allocator.memory.used == 0


# Split and merge


def test_a_piece_of_twice_the_size_is_split_and_a_smaller_one_is_not() -> None:
    for units, handed_out in ((4, 4), (5, 5), (6, 6), (7, 7), (8, 4)):
        allocator = allocator_of()
        hole = allocator.allocate(512 * units)
        keep = allocator.allocate(512)
        hole.free()
        piece = allocator.allocate(512 * 4)
        assert place(piece) == (keep.block.ctypes.data, 0)
        assert piece.nbytes == 512 * handed_out
        allocator.check_invariants()


def test_a_large_rest_is_split_off_even_of_less_than_twice_the_size() -> None:
    for rest, handed_out in ((126 * MIB, 326 * MIB), (128 * MIB, 200 * MIB)):
        allocator = BinAllocator(virtual_memory())
        allocator.allocate(200 * MIB + rest).free()
        assert allocator.allocate(200 * MIB).nbytes == handed_out


@pytest.mark.parametrize("order", ["012", "021", "102", "120", "201", "210"])
def test_neighbours_merge_in_any_order(allocator: BinAllocator, order: str) -> None:
    pieces = [allocator.allocate(600 * KIB) for _ in range(3)]
    assert in_blocks(allocator) == 2 * MIB
    for number in order:
        pieces[int(number)].free()
        allocator.check_invariants()
    whole = allocator.allocate(MIB - 512)  # of a block of 2 MiB it gets less than the half
    assert whole.offset == 0
    assert in_blocks(allocator) == 2 * MIB
    whole.free()
    assert allocator.shrink() == 2 * MIB


def test_neighbours_in_two_blocks_do_not_merge() -> None:
    """The blocks lie end to end in the allocator's count of addresses, and perhaps in the device's too."""
    allocator = BinAllocator(virtual_memory())
    pieces = [allocator.allocate(10 * MIB) for _ in range(2)]
    for piece in pieces:
        piece.free()
    allocator.check_invariants()
    allocator.allocate(20 * MIB)
    assert allocator.statistics()["segment.all.allocated"] == 3


# Giving back


def test_shrink_gives_back_blocks_that_are_wholly_free(allocator: BinAllocator) -> None:
    memory = allocator.memory
    small = allocator.allocate(100)
    middling = allocator.allocate(2 * MIB)
    large = allocator.allocate(30 * MIB)
    assert memory.used == 52 * MIB
    assert allocator.shrink() == 0
    large.free()
    middling.free()
    another = allocator.allocate(2 * MIB + 1)
    assert memory.used == 52 * MIB
    assert allocator.shrink() == 30 * MIB
    assert memory.used == 22 * MIB
    another.free()
    small.free()
    assert allocator.shrink() == 22 * MIB
    assert memory.used == 0
    assert memory.peak == 52 * MIB
    assert allocator.shrink() == 0


def test_a_block_given_back_is_given_back_once(allocator: BinAllocator) -> None:
    """Also if an array still shows it, and goes later."""
    memory = allocator.memory
    piece = allocator.allocate(100)
    view = content(piece)
    piece.free()
    keep = allocator.allocate(3 * MIB)
    assert allocator.shrink() == 2 * MIB
    assert memory.used == 20 * MIB
    del view
    assert memory.used == 20 * MIB
    assert keep.nbytes == 3 * MIB


def test_the_memory_of_a_block_given_back_is_gone(without_collector: None) -> None:
    blocks: list[weakref.ref[Any]] = []

    def make(nbytes: int) -> Any:
        block = np.empty(nbytes, np.uint8)
        blocks.append(weakref.ref(block))
        return block

    allocator = BinAllocator(DeviceMemory("sim:0", make))
    piece = allocator.allocate(100)
    assert blocks[0]() is not None
    piece.free()  # the handle lives on
    allocator.shrink()
    assert blocks[0]() is None


def test_a_dropped_allocator_returns_its_blocks_with_the_last_array(without_collector: None) -> None:
    for make in (None, lambda nbytes: np.empty(nbytes, np.uint8)):
        memory = DeviceMemory("sim:0", make)
        allocator = BinAllocator(memory)
        pieces = [allocator.allocate(nbytes) for nbytes in (100, 200, 20 * MIB)]
        view = pieces[0].array((2, 2), np.dtype(np.int64))
        part = view[1:].reshape(2)
        part[...] = 7
        assert memory.used == 22 * MIB
        del view
        pieces.pop().free()
        del pieces, allocator
        assert memory.used == 2 * MIB
        assert part.tolist() == [7, 7]
        del part
        assert memory.used == 0


def test_an_allocator_lives_as_long_as_a_piece_of_it(without_collector: None) -> None:
    memory = DeviceMemory("sim:0")
    piece = BinAllocator(memory).allocate(100)
    assert memory.used == 2 * MIB
    piece.allocator.check_invariants()
    del piece
    assert memory.used == 0


# Limits


def test_the_limit_counts_blocks() -> None:
    memory = DeviceMemory("sim:0", limit=1000)
    assert memory.limit == 1000
    blocks = [memory.take(600), memory.take(400)]
    assert [block.nbytes for block in blocks] == [600, 400]
    assert [block.dtype for block in blocks] == [BYTES, BYTES]
    assert memory.used == 1000
    with pytest.raises(OutOfMemory) as caught:
        memory.take(1)
    assert (caught.value.requested, caught.value.limit, caught.value.used) == (1, 1000, 1000)
    memory.give_back(400)
    assert memory.used == 600
    assert memory.take(400).nbytes == 400
    assert memory.peak == 1000


@pytest.mark.parametrize("limit", [-1, -(1 << 40)])
def test_a_negative_limit_is_refused(limit: int) -> None:
    memory = DeviceMemory("sim:0", limit=5)
    with pytest.raises(ValueError, match=f"cannot be negative: {limit}"):
        memory.set_limit(limit)
    assert memory.limit == 5
    with pytest.raises(ValueError, match="cannot be negative"):
        DeviceMemory("sim:0", limit=limit)


@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_block_has_bytes(nbytes: int) -> None:
    with pytest.raises(ValueError, match="at least one byte"):
        DeviceMemory("sim:0").take(nbytes)


def test_a_limit_below_the_used_bytes_stops_new_blocks_only(allocator: BinAllocator) -> None:
    memory = allocator.memory
    piece = allocator.allocate(30 * MIB)
    memory.set_limit(1 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(1)
    piece.free()
    assert allocator.allocate(20 * MIB).nbytes == 30 * MIB
    gc.collect()
    assert allocator.shrink() == 30 * MIB
    assert allocator.allocate(512).nbytes == MIB // 2048
    memory.set_limit(None)
    assert allocator.allocate(30 * MIB).nbytes == 30 * MIB


def test_a_small_limit_can_be_used_to_the_last_piece() -> None:
    allocator = allocator_of(limit=10 * 512)
    pieces = [allocator.allocate(512) for _ in range(8)] + [allocator.allocate(1024)]
    assert allocator.memory.used == 10 * 512
    with pytest.raises(OutOfMemory):
        allocator.allocate(1)
    for piece in pieces:
        piece.free()
    with pytest.raises(OutOfMemory):
        allocator.allocate(5 * 512)
    assert allocator.shrink() == 10 * 512
    assert allocator.allocate(10 * 512).nbytes == 10 * 512
    allocator.check_invariants()


def test_the_usual_block_is_taken_while_the_limit_allows_it() -> None:
    allocator = allocator_of(limit=3 * MIB)
    pieces = [allocator.allocate(MIB - 512) for _ in range(3)]
    assert allocator.memory.used == 3 * MIB - 512
    assert len({piece.block.ctypes.data for piece in pieces}) == 2
    allocator.check_invariants()


def test_the_error_names_the_used_and_free_bytes() -> None:
    allocator = allocator_of(limit=40 * MIB)
    live = [allocator.allocate(2 * MIB) for _ in range(10)]
    for piece in live[1::2]:
        piece.free()
    before = allocator.statistics()
    with pytest.raises(OutOfMemory) as caught:
        allocator.allocate(25 * MIB, "an owner")
    error = caught.value
    assert (error.requested, error.limit, error.used) == (25 * MIB, 40 * MIB, 20 * MIB)
    assert str(error) == (
        "sim:0 is out of memory: 25.00 MiB were requested; 20.00 MiB of a limit of 40.00 MiB are in use "
        "(10.00 MiB of them free, but in pieces of 2.00 MiB at most)"
    )
    assert isinstance(error, MemoryError)
    assert error.__cause__ is None
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(other) == str(error)
        assert (other.requested, other.limit, other.used) == (error.requested, error.limit, error.used)
    assert allocator.statistics() == before
    allocator.check_invariants()


@pytest.mark.parametrize("nbytes", [1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70])
def test_a_huge_request_is_a_clear_error_without_a_limit_too(allocator: BinAllocator, nbytes: int) -> None:
    allocator.allocate(1)
    with pytest.raises(
        OutOfMemory, match=r"GiB were requested; 2\.00 MiB are in use, and the device has no more"
    ) as caught:
        allocator.allocate(nbytes)
    assert (caught.value.requested, caught.value.limit, caught.value.used) == (nbytes, None, 2 * MIB)
    assert isinstance(caught.value.__cause__, MemoryError)
    assert allocator.memory.peak == 2 * MIB


def test_failed_requests_of_the_device_are_not_counted() -> None:
    asked: list[int] = []

    def make(nbytes: int) -> Any:
        asked.append(nbytes)
        if nbytes > MIB:
            raise MemoryError("no such room")
        if nbytes == 1024:
            raise ZeroDivisionError("a broken device")
        return np.empty(nbytes if nbytes != 1536 else 1, np.uint8)

    memory = DeviceMemory("sim:0", make, limit=100 * MIB)
    allocator = BinAllocator(memory)
    assert allocator.allocate(512).nbytes == 512  # the device refuses the usual block, and is asked for less
    assert asked == [2 * MIB, 512]
    with pytest.raises(OutOfMemory, match="and the device has no more") as caught:
        allocator.allocate(3 * MIB)
    assert str(caught.value.__cause__) == "no such room"
    assert caught.value.limit == 100 * MIB
    with pytest.raises(ZeroDivisionError):
        allocator.allocate(1024)
    with pytest.raises(InternalError, match="made a block of 1 bytes where 1536 were asked for"):
        allocator.allocate(1536)
    assert memory.used == 512
    allocator.check_invariants()


def test_a_refused_size_is_not_asked_for_twice() -> None:
    asked: list[int] = []

    def make(nbytes: int) -> Any:
        asked.append(nbytes)
        raise MemoryError

    with pytest.raises(OutOfMemory):
        BinAllocator(DeviceMemory("sim:0", make)).allocate(12 * MIB)
    assert asked == [12 * MIB]


def test_two_allocators_share_one_device() -> None:
    memory = DeviceMemory("sim:0", limit=50 * MIB)
    first, second = BinAllocator(memory), BinAllocator(memory)
    piece = first.allocate(30 * MIB)
    other = second.allocate(20 * MIB)
    assert memory.used == 50 * MIB
    assert in_blocks(first) == 30 * MIB
    assert in_blocks(second) == 20 * MIB
    piece.free()
    with pytest.raises(OutOfMemory) as caught:
        second.allocate(30 * MIB)
    # It can know of its own free pieces only.
    assert "free" not in str(caught.value)
    assert caught.value.used == 50 * MIB
    assert first.shrink() == 30 * MIB
    assert second.allocate(30 * MIB).nbytes == 30 * MIB
    other.free()
    gc.collect()
    assert second.shrink() == 50 * MIB
    assert memory.used == 0


# Looking inside


def test_statistics_have_the_known_names(allocator: BinAllocator) -> None:
    large = allocator.allocate(3 * MIB + 1)
    small = allocator.allocate(100)
    allocator.tried_again()
    allocator.tried_again()
    allocator.ran_out()
    rounded = 3 * MIB + 512
    assert allocator.statistics() == {
        "allocated_bytes.all.current": rounded + 512,
        "allocated_bytes.all.peak": rounded + 512,
        "allocated_bytes.all.allocated": rounded + 512,
        "allocated_bytes.all.freed": 0,
        "allocation.all.current": 2,
        "allocation.all.peak": 2,
        "allocation.all.allocated": 2,
        "allocation.all.freed": 0,
        "reserved_bytes.all.current": 20 * MIB,
        "reserved_bytes.all.peak": 20 * MIB,
        "reserved_bytes.all.allocated": 20 * MIB,
        "reserved_bytes.all.freed": 0,
        "segment.all.current": 1,
        "segment.all.peak": 1,
        "segment.all.allocated": 1,
        "segment.all.freed": 0,
        "requested_bytes.all.current": 3 * MIB + 101,
        "requested_bytes.all.peak": 3 * MIB + 101,
        "inactive_split_bytes.all.current": 20 * MIB - rounded - 512,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    large.free()
    found = allocator.statistics()
    assert found["allocated_bytes.all.current"] == 512
    assert found["allocated_bytes.all.peak"] == rounded + 512
    assert found["allocated_bytes.all.freed"] == rounded
    assert found["requested_bytes.all.current"] == 100
    assert found["requested_bytes.all.peak"] == 3 * MIB + 101
    assert found["inactive_split_bytes.all.current"] == 20 * MIB - 512
    small.free()
    assert allocator.statistics()["inactive_split_bytes.all.current"] == 0
    allocator.shrink()
    allocator.reset_peak()
    found = allocator.statistics()
    assert {name: value for name, value in found.items() if value} == {
        "allocated_bytes.all.allocated": rounded + 512,
        "allocated_bytes.all.freed": rounded + 512,
        "allocation.all.allocated": 2,
        "allocation.all.freed": 2,
        "reserved_bytes.all.allocated": 20 * MIB,
        "reserved_bytes.all.freed": 20 * MIB,
        "segment.all.allocated": 1,
        "segment.all.freed": 1,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }


def test_a_peak_begins_anew_at_the_current_value(allocator: BinAllocator) -> None:
    keep = allocator.allocate(1000)
    allocator.allocate(30 * MIB).free()
    allocator.shrink()
    allocator.reset_peak()
    found = allocator.statistics()
    assert found["allocated_bytes.all.peak"] == keep.nbytes
    assert found["allocation.all.peak"] == 1
    assert found["reserved_bytes.all.peak"] == 2 * MIB
    assert found["segment.all.peak"] == 1


def test_a_peak_that_begins_anew_counts_no_dropped_pieces(allocator: BinAllocator, without_collector: None) -> None:
    dropped = allocator.allocate(1000)
    del dropped
    allocator.reset_peak()
    found = allocator.statistics()
    assert found["allocated_bytes.all.peak"] == found["requested_bytes.all.peak"] == found["allocation.all.peak"] == 0


def test_the_largest_are_named_largest_first(allocator: BinAllocator) -> None:
    sizes = [700, 5 * MIB, 100, 30 * MIB, 600, 300 * KIB]
    live = {nbytes: allocator.allocate(nbytes, f"owner of {nbytes}") for nbytes in sizes}
    live.pop(300 * KIB).free()
    del live[100]  # left by its destructor
    found = allocator.largest(10)
    assert [(value.requested, value.owner) for value in found] == [
        (nbytes, f"owner of {nbytes}") for nbytes in (30 * MIB, 5 * MIB, 700, 600)
    ]
    assert [value.nbytes for value in found] == [30 * MIB, 5 * MIB, 1024, 1024]
    assert [value.requested for value in allocator.largest(2)] == [30 * MIB, 5 * MIB]
    assert allocator.largest(0) == []


def test_a_report_holds_nothing(allocator: BinAllocator) -> None:
    piece = allocator.allocate(100, "me")
    (found,) = allocator.largest(1)
    found.free()
    with pytest.raises(InternalError):
        found.array((1,), BYTES)
    del found
    assert allocator.statistics()["allocation.all.current"] == 1
    (found,) = allocator.largest(1)
    piece.free()
    assert allocator.shrink() == 2 * MIB
    assert (found.requested, found.owner) == (100, "me")


def test_the_owner_is_forgotten_with_the_piece(allocator: BinAllocator, without_collector: None) -> None:
    class Owner:
        pass

    owner = Owner()
    watch = weakref.ref(owner)
    piece = allocator.allocate(100, owner)
    dropped = allocator.allocate(100, owner)
    del owner
    piece.free()
    del piece, dropped
    allocator.statistics()
    assert watch() is None


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda x: x._bins[0].append((512, 99, next(iter(x._blocks.values())).first)), "bin 0 has 512 bytes at 99"),
        (lambda x: x._bins[11].clear(), "the bins have 1 pieces, and 2 others"),
        (lambda x: x._bins[3].append(x._bins[11].pop()), "which belong elsewhere"),
        (lambda x: setattr(x, "_allocated", 0), "0 allocated bytes are counted, and 1024 found"),
        (lambda x: setattr(x, "_live", 7), "7 allocations are counted, and 2 found"),
        (lambda x: setattr(x, "_requested", 7), "7 requested bytes are counted"),
        (lambda x: setattr(x, "_reserved", 7), "7 reserved bytes are counted"),
        (lambda x: setattr(next(iter(x._blocks.values())).first, "nbytes", 1024), "does not begin where"),
        (lambda x: setattr(next(iter(x._blocks.values())).first, "free", True), "are both free and were not merged"),
        (lambda x: setattr(next(iter(x._blocks.values())).first, "next", None), "end at 512, not at 2097152"),
        (lambda x: setattr(next(iter(x._blocks.values())).first.next, "previous", None), "does not know its"),
        (lambda x: x._arrays.clear() or x._arrays.update({0: np.empty(5, np.uint8)}), "not at 2097152"),
    ],
)
def test_contradictions_are_found(spoil: Callable[[Any], object], complaint: str) -> None:
    allocator = allocator_of()
    pieces = [allocator.allocate(512) for _ in range(3)]
    pieces[1].free()
    allocator.check_invariants()
    spoil(allocator)
    with pytest.raises(InternalError, match=complaint):
        allocator.check_invariants()


# Callbacks


class Watch:
    """Notes pieces that are handed out and freed, and overwrites freed ones."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int, object]] = []
        self.allocator = allocator_of(on_handout=self.handout, on_free=self.freed)

    def handout(self, allocation: Allocation) -> None:
        self.unlocked()
        self.events.append(("handout", allocation.offset, allocation.nbytes, allocation.owner))

    def freed(self, allocation: Allocation) -> None:
        self.unlocked()
        content(allocation)[:] = 0xAB
        self.events.append(("free", allocation.offset, allocation.nbytes, allocation.owner))

    def unlocked(self) -> None:
        """Another thread gets the lock."""
        found: list[bool] = []

        def look() -> None:
            got = self.allocator._lock.acquire(timeout=10)
            if got:
                self.allocator._lock.release()
            found.append(got)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert found == [True]


def test_callbacks_see_every_piece_come_and_go() -> None:
    watch = Watch()
    allocator = watch.allocator
    first = allocator.allocate(100, "a")
    view = content(first)
    view[:] = 1
    second = allocator.allocate(600, "b")
    assert allocator.allocate(0, "nothing").nbytes == 0
    first.free()
    first.free()
    assert (view == 0xAB).all()
    view = content(second)
    view[:] = 1
    del second
    assert (view == 1).all()
    allocator.statistics()
    assert (view == 0xAB).all()
    allocator.statistics()
    assert watch.events == [
        ("handout", 0, 512, "a"),
        ("handout", 512, 1024, "b"),
        ("free", 0, 512, "a"),
        ("free", 512, 1024, "b"),
    ]
    allocator.check_invariants()
    assert allocator.shrink() == 2 * MIB


def test_a_piece_is_not_lost_when_a_callback_raises() -> None:
    def complain(allocation: Allocation) -> None:
        raise ZeroDivisionError(allocation.owner)

    allocator = allocator_of(on_free=complain)
    piece = allocator.allocate(100, "a")
    with pytest.raises(ZeroDivisionError):
        piece.free()
    piece.free()
    piece = allocator.allocate(100, "b")
    del piece
    with pytest.raises(ZeroDivisionError):
        allocator.statistics()
    assert allocator.statistics()["allocation.all.current"] == 0
    allocator.on_free = None
    allocator.on_handout = complain
    with pytest.raises(ZeroDivisionError):
        allocator.allocate(100, "c")
    assert allocator.statistics()["allocation.all.current"] == 0
    allocator.check_invariants()


# Destructors


def test_a_dropped_piece_comes_back_at_the_next_call(allocator: BinAllocator, without_collector: None) -> None:
    piece = allocator.allocate(100)
    where = place(piece)
    del piece
    allocator.check_invariants()
    assert place(allocator.allocate(100)) == where
    assert allocator.statistics()["allocation.all.current"] == 0
    assert allocator.shrink() == 2 * MIB


def test_a_freed_piece_does_not_come_back_again(allocator: BinAllocator) -> None:
    piece = allocator.allocate(100)
    piece.free()
    other = allocator.allocate(100)
    del piece
    found = allocator.statistics()
    assert found["allocation.all.current"] == 1
    assert found["allocation.all.freed"] == 1
    assert other.nbytes == 512


def test_a_piece_comes_back_from_another_thread(allocator: BinAllocator) -> None:
    held = [allocator.allocate(100) for _ in range(50)]
    thread = threading.Thread(target=held.clear)
    # The other thread must never wait for a lock in a destructor.
    with allocator._lock:
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert allocator.statistics()["allocation.all.current"] == 0
    assert allocator.shrink() == 2 * MIB


def run_in_the_middle(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Let `action` run once, half-way through the next change that sorts a piece into a bin, as a destructor may."""
    name = "vmflow.streams.allocator.insort"

    def disturbed(*arguments: Any) -> None:
        monkeypatch.setattr(name, insort)
        action()
        insort(*arguments)

    monkeypatch.setattr(name, disturbed)


class Cycle:
    """Refers to itself, so that only the garbage collector gets it."""

    def __init__(self, piece: Allocation, last_words: Callable[[], None] = lambda: None) -> None:
        self.itself = self
        self.piece = piece
        self.last_words = last_words

    def __del__(self) -> None:
        self.last_words()


def test_the_collector_runs_in_the_middle_of_an_allocation(
    allocator: BinAllocator, without_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        Cycle(allocator.allocate(100))
    assert allocator.statistics()["allocation.all.current"] == 10
    collected: list[int] = []
    run_in_the_middle(monkeypatch, lambda: collected.append(gc.collect()))
    piece = allocator.allocate(100)
    assert collected[0] >= 10
    allocator.check_invariants()
    assert piece.offset == 10 * 512  # they came too late for it
    assert allocator.statistics()["allocation.all.current"] == 1
    assert allocator.allocate(100).offset == 0


def test_a_destructor_frees_in_the_middle_of_a_change(
    allocator: BinAllocator, without_collector: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explicitly, and asks for counters too; on this thread, which holds the lock."""
    freed: list[Allocation] = []
    allocator.on_free = freed.append
    piece = allocator.allocate(100)
    counted: list[int] = []

    def last_words() -> None:
        piece.free()
        counted.append(allocator.statistics()["allocation.all.current"])

    Cycle(allocator.allocate(200), last_words)
    run_in_the_middle(monkeypatch, lambda: counted.append(gc.collect()))
    other = allocator.allocate(300)
    assert len(counted) == 2
    allocator.check_invariants()
    assert allocator.statistics()["allocation.all.current"] == 1
    assert sorted(value.requested for value in freed) == [100, 200]
    other.free()
    assert allocator.shrink() == 2 * MIB


@pytest.mark.parametrize("what", ["allocate", "shrink", "largest", "check_invariants"])
def test_a_destructor_that_allocates_in_the_middle_of_a_change_is_told_so(
    allocator: BinAllocator, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    arguments = {"allocate": (100,), "largest": (1,)}.get(what, ())
    told: list[str] = []

    def last_words() -> None:
        with pytest.raises(InternalError, match="in the middle of a change") as caught:
            getattr(allocator, what)(*arguments)
        told.append(str(caught.value))

    run_in_the_middle(monkeypatch, last_words)
    piece = allocator.allocate(100)
    assert len(told) == 1
    assert piece.offset == 0
    allocator.check_invariants()
    getattr(allocator, what)(*arguments)


def test_a_destructor_reads_the_device_in_the_middle_of_making_a_block() -> None:
    seen: list[int] = []

    def make(nbytes: int) -> Any:
        seen.append(memory.used)
        return np.empty(nbytes, np.uint8)

    memory = DeviceMemory("sim:0", make)
    BinAllocator(memory).allocate(1)
    assert seen == [2 * MIB]


def test_pieces_come_back_while_others_are_handed_out() -> None:
    """Three threads drop and collect; one allocates, frees and looks."""
    watch_lock = threading.Lock()
    announced: list[int] = [0]

    def count(allocation: Allocation) -> None:
        with watch_lock:
            announced[0] += 1

    allocator = allocator_of(on_free=count)
    inbox: list[list[Allocation]] = [[], [], []]
    done = threading.Event()
    failures: list[BaseException] = []

    def drop(number: int) -> None:
        chooser = random.Random(number)
        mine = inbox[number]
        try:
            while not done.is_set() or mine:
                if mine:
                    piece = mine.pop(0)
                    assert (content(piece) == piece.owner % 251).all()
                    if chooser.random() < 0.3:
                        Cycle(piece)
                    del piece
                    if chooser.random() < 0.02:
                        gc.collect(0)
                        allocator.statistics()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drop, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    chooser = random.Random(17)
    for number in range(3000):
        piece = allocator.allocate(chooser.choice([100, 700, 3000, 9000]), number)
        content(piece)[:] = number % 251
        if chooser.random() < 0.3:
            piece.free()
        else:
            chooser.choice(inbox).append(piece)
        del piece
        if number % 500 == 0:
            allocator.check_invariants()
    done.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    gc.collect()
    found = allocator.statistics()
    allocator.check_invariants()
    assert found["allocation.all.current"] == 0
    assert found["allocation.all.freed"] == announced[0] == 3000
    assert allocator.shrink() == found["reserved_bytes.all.current"]
    assert allocator.memory.used == 0


# Random programs


class Model(RuleBasedStateMachine):
    """Any program of two allocators on one device, against a list of live pieces."""

    SIZES = st.one_of(
        st.integers(0, 5000),
        st.sampled_from([512 << shift for shift in range(13)]),
        st.integers(1, 400 * KIB),
        st.sampled_from([MIB - 1, MIB, 3 * MIB, 10 * MIB - 512, 10 * MIB, 11 * MIB]),
    )

    @initialize(limit=st.sampled_from([None, 64 * KIB, 3 * MIB, 45 * MIB]))
    def begin(self, limit: int | None) -> None:
        self.memory = DeviceMemory("sim:0", limit=limit)
        self.allocators = [BinAllocator(self.memory), BinAllocator(self.memory)]
        self.live: list[Allocation] = []
        self.ever = [0, 0]
        self.peak = [0, 0]
        self.most = [0, 0]
        self.serial = 0
        self.refused: list[tuple[int, int]] = []

    def live_of(self, number: int) -> list[Allocation]:
        return [value for value in self.live if value.allocator is self.allocators[number] and value.nbytes]

    @rule(nbytes=SIZES, number=st.integers(0, 1))
    def allocate(self, nbytes: int, number: int) -> None:
        allocator = self.allocators[number]
        limit = self.memory.limit
        try:
            piece = allocator.allocate(nbytes, self.serial)
        except OutOfMemory as error:
            rounded = -(-nbytes // 512) * 512
            assert limit is not None
            assert self.memory.used + rounded > limit
            self.refused.append((nbytes, error.requested))
            return
        self.serial += 1
        assert piece.requested == nbytes
        assert nbytes <= piece.nbytes
        assert piece.nbytes < 2 * (nbytes + 511) or nbytes == 0
        marks(piece)[:] = piece.owner
        self.live.append(piece)
        self.ever[number] += piece.nbytes
        self.peak[number] = max(self.peak[number], sum(value.nbytes for value in self.live_of(number)))
        self.most[number] = max(self.most[number], len(self.live_of(number)))

    @precondition(lambda self: self.live)
    @rule(position=st.integers(0, 1 << 30), explicit=st.booleans())
    def free(self, position: int, explicit: bool) -> None:
        piece = self.live.pop(position % len(self.live))
        if explicit:
            piece.free()

    @rule(number=st.integers(0, 1))
    def shrink(self, number: int) -> None:
        allocator = self.allocators[number]
        before = self.memory.used
        returned = allocator.shrink()
        assert self.memory.used == before - returned
        found = allocator.statistics()
        # The unused rest is split up.
        assert (
            found["inactive_split_bytes.all.current"]
            == found["reserved_bytes.all.current"] - (found["allocated_bytes.all.current"])
        )

    @rule(number=st.integers(0, 1))
    def reset_peak(self, number: int) -> None:
        self.allocators[number].reset_peak()
        self.peak[number] = sum(value.nbytes for value in self.live_of(number))
        self.most[number] = len(self.live_of(number))

    @invariant()
    def nothing_overlaps_and_contents_are_preserved(self) -> None:
        ranges = sorted((value.block.ctypes.data + value.offset, value.nbytes) for value in self.live if value.nbytes)
        for (start, nbytes), (following, _) in pairwise(ranges):
            assert start + nbytes <= following
        for piece in self.live:
            assert (marks(piece) == piece.owner).all()

    @invariant()
    def counters_are_exact(self) -> None:
        reserved = 0
        for number, allocator in enumerate(self.allocators):
            allocator.check_invariants()
            live = self.live_of(number)
            found = allocator.statistics()
            current = sum(value.nbytes for value in live)
            assert found["allocated_bytes.all.current"] == current
            assert found["allocated_bytes.all.allocated"] == self.ever[number]
            assert found["allocated_bytes.all.freed"] == self.ever[number] - current
            assert found["allocated_bytes.all.peak"] == self.peak[number]
            assert found["requested_bytes.all.current"] == sum(value.requested for value in live)
            assert found["allocation.all.current"] == len(live)
            assert found["allocation.all.peak"] == self.most[number]
            reserved += found["reserved_bytes.all.current"]
            largest = allocator.largest(len(live) + 1)
            assert sorted(value.owner for value in largest) == sorted(value.owner for value in live)
        assert all(asked == told for asked, told in self.refused)
        assert self.memory.used == reserved
        assert self.memory.limit is None or reserved <= self.memory.limit

    def teardown(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.live.clear()
        for allocator in self.allocators:
            allocator.shrink()
            assert allocator.statistics()["segment.all.current"] == 0
        assert self.memory.used == 0


def marks(piece: Allocation) -> Any:
    """The ends of a piece: writing all of it would take most of the time."""
    words = piece.array((piece.nbytes // 8,), np.dtype(np.int64))
    return words[:: max(1, len(words) - 1)]


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=40, stateful_step_count=40, derandomize=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_random_program_leaves_no_fragments(seed: int) -> None:
    """Also the callbacks see no byte handed out twice."""
    owned: dict[int, int] = {}
    held: set[int] = set()

    def take(allocation: Allocation) -> None:
        units = set(range(address(allocation) // 512, (address(allocation) + allocation.nbytes) // 512))
        assert not units & held
        held.update(units)
        owned[address(allocation)] = allocation.nbytes

    def leave(allocation: Allocation) -> None:
        nbytes = owned.pop(address(allocation))
        assert nbytes == allocation.nbytes
        held.difference_update(range(address(allocation) // 512, (address(allocation) + nbytes) // 512))

    def address(allocation: Allocation) -> int:
        start: int = allocation.block.ctypes.data
        return bases.setdefault(start, 64 * MIB * len(bases)) + allocation.offset

    bases: dict[int, int] = {}
    allocator = allocator_of(on_handout=take, on_free=leave)
    chooser = random.Random(seed)
    live: list[Allocation] = []
    for step in range(3000):
        if live and chooser.random() < (0.3 if step % 600 < 300 else 0.7):
            piece = live.pop(chooser.randrange(len(live)))
            if chooser.random() < 0.8:
                piece.free()
            del piece
        else:
            live.append(allocator.allocate(int(2 ** chooser.uniform(0, 18)), step))
        if step % 100 == 0:
            allocator.check_invariants()
    chooser.shuffle(live)
    while live:
        live.pop().free()
    found = allocator.statistics()
    assert not owned
    assert not held
    assert found["allocated_bytes.all.current"] == found["requested_bytes.all.current"] == 0
    assert found["inactive_split_bytes.all.current"] == 0
    allocator.check_invariants()
    assert allocator.shrink() == found["reserved_bytes.all.current"]
    assert allocator.memory.used == 0


def test_the_same_program_gets_the_same_pieces() -> None:
    """Independently of the device's addresses, schedules can be replayed."""

    def run() -> list[tuple[int, int]]:
        allocator = allocator_of()
        chooser = random.Random(11)
        blocks: dict[int, int] = {}
        live: list[Allocation] = []
        found: list[tuple[int, int]] = []
        keep = []
        for _ in range(500):
            if live and chooser.random() < 0.45:
                live.pop(chooser.randrange(len(live))).free()
            else:
                piece = allocator.allocate(chooser.choice([700, 70_000, 700_000]))
                live.append(piece)
                keep.append(piece.block)
                found.append((blocks.setdefault(piece.block.ctypes.data, len(blocks)), piece.offset))
        return found

    padding = run()
    assert run() == padding


def test_a_piece_brought_back_to_life_by_another_destructor_is_given_back_once() -> None:
    """Destructors of a reference cycle all run before anything of it goes, and one may keep the rest."""
    allocator = BinAllocator(DeviceMemory("test"))
    kept: list[Allocation] = []

    class Keeper:
        def __init__(self) -> None:
            self.allocation = allocator.allocate(1000)
            self.cycle = self

        def __del__(self) -> None:
            kept.append(self.allocation)

    Keeper()
    gc.collect()
    (allocation,) = kept
    other = allocator.allocate(1000)
    allocation.free()
    kept.clear()
    del allocation
    allocator.check_invariants()
    assert allocator.statistics()["allocation.all.current"] == 1
    other.free()
    allocator.check_invariants()


@pytest.mark.parametrize("nbytes", [64 * KIB, MIB, 8 * MIB, 16 * MIB])
def test_pieces_of_the_host_begin_at_different_places_of_a_page(nbytes: int) -> None:
    """Where they begin at the same one, additions of arrays of a megabyte take up to a fifth longer."""
    allocator = BinAllocator(DeviceMemory("host", staggers=True))
    made = [allocator.allocate(nbytes) for _ in range(3)]
    addresses = [value.array((nbytes,), np.dtype(np.uint8)).ctypes.data for value in made]
    assert len({address % PAGE for address in addresses}) == 3
    assert all([address % 64 == 0 for address in addresses])
    allocator.check_invariants()


@pytest.mark.parametrize("nbytes", [64 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 5 * MIB])
def test_as_many_fit_into_a_block_as_if_all_began_at_the_same_place(nbytes: int) -> None:
    memory = DeviceMemory("host", staggers=True)
    allocator = BinAllocator(memory)
    first = allocator.allocate(nbytes)
    block = memory.used
    others = [allocator.allocate(nbytes) for _ in range((2 if nbytes < MIB else 20) * MIB // nbytes - 1)]
    assert memory.used == block
    assert {other.block.ctypes.data for other in others} == {first.block.ctypes.data}
    allocator.check_invariants()


def test_pieces_of_devices_are_as_large_as_was_asked_for() -> None:
    allocator = BinAllocator(DeviceMemory("device"))
    assert allocator.allocate(MIB).nbytes == MIB
