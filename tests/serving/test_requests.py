"""The queue: which request goes first, which is refused, and that none is forgotten or kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.serving.virtual_time import run
from vmflow.serving import Overloaded
from vmflow.serving.requests import AGEING, CANCELLED, Request, RequestQueue


def inside_a_loop(function: Callable[[], None]) -> Callable[[], None]:
    """Requests have futures, which belong to a loop."""

    async def main() -> None:
        function()

    def test() -> None:
        run(main())

    test.__name__ = function.__name__
    test.__doc__ = function.__doc__
    return test


def put(queue: RequestQueue, name: str, **about: Any) -> Request:
    request = Request(name, **about)
    queue.put(request, lambda: 1.0)
    return request


def names(requests: list[Request]) -> list[str]:
    return [request.payload for request in requests]


@inside_a_loop
def test_the_first_request_goes_first() -> None:
    queue = RequestQueue(10, 10)
    for name in "abcd":
        put(queue, name)
    assert names(queue.take(3)) == ["a", "b", "c"]
    assert names(queue.take(3)) == ["d"]
    assert queue.take(3) == []
    assert queue.peek() is None


@inside_a_loop
def test_only_requests_of_one_key_go_together() -> None:
    queue = RequestQueue(10, 10)
    for name, key in zip("abcde", (1, 2, 1, 2, 1), strict=True):
        put(queue, name, key=key)
    first = queue.peek()
    assert first is not None
    assert (first[0].payload, first[1]) == ("a", 3)
    assert names(queue.take(10)) == ["a", "c", "e"]
    assert names(queue.take(10)) == ["b", "d"]


@inside_a_loop
def test_clients_take_turns() -> None:
    queue = RequestQueue(100, 100)
    for number in range(20):
        put(queue, f"many {number}", client="many")
    put(queue, "few 0", client="few")
    put(queue, "few 1", client="few")
    assert names(queue.take(4)) == ["many 0", "few 0", "many 1", "few 1"]


@inside_a_loop
def test_a_client_that_was_served_before_has_no_claim_for_it() -> None:
    queue = RequestQueue(100, 100)
    for number in range(8):
        put(queue, f"old {number}", client="old")
    queue.take(4)
    put(queue, "new", client="new")
    put(queue, "old 8", client="old")
    assert names(queue.take(3)) == ["old 4", "new", "old 5"]


@inside_a_loop
def test_a_higher_priority_goes_first_and_a_lower_one_has_its_turn() -> None:
    queue = RequestQueue(1000, 1000)
    put(queue, "low")
    for number in range(3 * AGEING):
        put(queue, f"high {number}", priority=1)
    order = names(queue.take(1000))
    assert order[0] == "high 0"
    assert order.index("low") == AGEING - 1


@inside_a_loop
def test_a_request_for_a_full_queue_gets_a_time_to_try_again() -> None:
    queue = RequestQueue(2, 2)
    put(queue, "a")
    put(queue, "b")
    with pytest.raises(Overloaded, match="2 requests are waiting") as caught:
        queue.put(Request("c"), lambda: 7.5)
    assert caught.value.retry_after == 7.5
    assert caught.value.status == 503
    queue.take(1)
    put(queue, "c")
    assert names(queue.take(5)) == ["b", "c"]


@inside_a_loop
def test_one_client_cannot_fill_the_queue() -> None:
    queue = RequestQueue(10, 3)
    for number in range(3):
        put(queue, f"greedy {number}", client="greedy")
    with pytest.raises(Overloaded, match="of this client"):
        queue.put(Request("greedy 3", client="greedy"), lambda: 1.0)
    put(queue, "modest", client="modest")
    for number in range(5):
        put(queue, f"unknown {number}")  # which may be the same client or not
    assert len(queue) == 9


@inside_a_loop
def test_a_request_that_leaves_frees_its_place_and_is_not_kept() -> None:
    queue = RequestQueue(4, 4)
    stays = put(queue, "stays", client="stays")
    for number in range(10_000):
        queue.discard(put(queue, str(number), client=number), CANCELLED)
    assert len(queue) == 1
    assert sum([len(heap) for heap in queue._heaps.values()]) < 100
    assert len(queue._last) < 100
    assert queue.waiting() == [stays]
    assert queue.take(4) == [stays]
    assert not queue._heaps
    assert not queue._last
    assert not queue._together
    assert not queue._by_client


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(-1, 1), st.sampled_from([None, "a", "b"])),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("leave"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_everybody_comes_out_once_unless_they_leave(actions: list[tuple[Any, ...]]) -> None:
    async def main() -> None:
        queue, inside, serial = RequestQueue(12, 8), list[Request](), 0
        for action, *about in actions:
            if action == "put":
                key, priority, client = about
                request = Request(serial, key, None, priority, client)
                full = len(inside) >= 12
                crowded = client is not None and sum([value.client == client for value in inside]) >= 8
                try:
                    queue.put(request, lambda: 1.0)
                except Overloaded:
                    assert full or crowded
                else:
                    assert not full
                    assert not crowded
                    inside.append(request)
                serial += 1
            elif action == "leave":
                if inside:
                    queue.discard(inside.pop(about[0] % len(inside)), CANCELLED)
            else:
                first = queue.peek()
                best = min(inside, key=lambda x: (x.rank, x.payload), default=None)
                assert (first[0] if first is not None else None) is best
                same_key = sorted(
                    [value for value in inside if best is not None and value.key == best.key],
                    key=lambda x: (x.rank, x.payload),
                )
                assert queue.take(about[0]) == same_key[: about[0]]
                inside = [value for value in inside if value not in same_key[: about[0]]]
            assert len(queue) == len(inside)
            assert sorted([value.payload for value in queue.waiting()]) == sorted([value.payload for value in inside])

    run(main())


def test_a_request_needs_a_loop() -> None:
    with pytest.raises(RuntimeError):
        Request("a")


@inside_a_loop
def test_places_are_reserved_and_released() -> None:
    queue = RequestQueue(3, 2)
    queue.reserve("a", lambda: 1.0, lambda: 0)
    put(queue, "first", client="a")
    for client in ("a", "a"):
        with pytest.raises(Overloaded, match="2 requests of this client"):
            queue.reserve(client, lambda: 1.0, lambda: 0)
    with pytest.raises(Overloaded, match="2 requests of this client"):
        put(queue, "second", client="a")
    queue.reserve("b", lambda: 1.0, lambda: 0)
    with pytest.raises(Overloaded, match="3 requests are waiting"):
        queue.reserve(None, lambda: 1.0, lambda: 0)
    queue.reserve(None, lambda: 1.0, lambda: 1)  # it would be computed without waiting
    queue.release(None)
    queue.release("a")
    assert len(queue) == 1  # a reserved place does not wait
    put(queue, "second", client="a")
    assert names(queue.take(10)) == ["first", "second"]


@inside_a_loop
def test_keys_are_passed_over_for_as_long_as_they_have_to_wait() -> None:
    queue = RequestQueue(10, 10)
    for name, key in zip("abc", (1, 2, 1), strict=True):
        put(queue, name, key=key)
    queue.passed_over.add(1)
    assert names(queue.take(10)) == ["b"]
    assert queue.peek() is None
    queue.passed_over.discard(1)
    assert names(queue.take(10)) == ["a", "c"]
