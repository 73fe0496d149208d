"""Closeable buffers."""

from __future__ import annotations

import pytest

from vmflow.graph_mode.actors.buffers import ENDED, NOT_YET, CloseableBuffer


def test_first_in_first_out_until_closed_and_drained() -> None:
    buffer = CloseableBuffer("pieces")
    assert buffer.take() is NOT_YET
    for item in (1, None, 3):
        buffer.put(item)
    assert buffer.take() == 1
    buffer.close()
    assert not buffer.ended()
    assert [buffer.take(), buffer.take()] == [None, 3]
    assert buffer.ended()
    assert buffer.take() is ENDED
    buffer.close()
    assert buffer.take() is ENDED


def test_a_closed_buffer_takes_nothing() -> None:
    buffer = CloseableBuffer("pieces")
    buffer.close()
    with pytest.raises(RuntimeError, match="the buffer 'pieces' has been closed"):
        buffer.put(1)


def test_the_youngest_can_be_discarded() -> None:
    buffer = CloseableBuffer("pieces")
    for item in range(5):
        buffer.put(item)
    assert buffer.discard(2) == [3, 4]
    assert buffer.discard(0) == []
    for count in (4, -1):
        with pytest.raises(ValueError, match=f"holds 3 items; cannot discard {count}"):
            buffer.discard(count)
    assert [buffer.take() for _ in range(4)] == [0, 1, 2, NOT_YET]
