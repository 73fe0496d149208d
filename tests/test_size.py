"""`Size`: the shape of a tensor, and what is computed from it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow

SIZE: Any = flow.zeros(2, 3, 4).shape
MAKE: Any = flow.Size


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (SIZE[1:], (3, 4)),
        (SIZE[::-1], (4, 3, 2)),
        (SIZE[:0], ()),
        (SIZE + (5,), (2, 3, 4, 5)),
        ((5,) + SIZE, (5, 2, 3, 4)),
        (SIZE + SIZE[:1], (2, 3, 4, 2)),
        (SIZE * 2, (2, 3, 4, 2, 3, 4)),
        (0 * SIZE, ()),
        (flow.Size(), ()),
        (flow.Size(size for size in (1, 2)), (1, 2)),
        (flow.Size([True, np.int64(3), flow.tensor(2)]), (1, 3, 2)),
        (copy.deepcopy(SIZE), (2, 3, 4)),
        (pickle.loads(pickle.dumps(SIZE)), (2, 3, 4)),
    ],
)
def test_what_is_made_of_sizes_is_a_size(found: Any, expected: tuple[int, ...]) -> None:
    assert type(found) is flow.Size
    assert found == expected
    assert hash(found) == hash(expected)
    assert all([type(item) is int for item in found])


def test_the_number_of_elements_of_some_dimensions() -> None:
    assert SIZE[1:].numel() == 12
    assert SIZE[:0].numel() == 1


def test_items_are_integers() -> None:
    assert [type(SIZE[index]) for index in (0, True, np.int64(-1))] == [int, int, int]
    with pytest.raises(IndexError):
        SIZE[3]


@pytest.mark.parametrize(
    "call",
    [
        lambda: MAKE("ab"),
        lambda: MAKE([1.5]),
        lambda: MAKE(3),
        lambda: SIZE + (1.5,),
        lambda: (None,) + SIZE,
        lambda: SIZE + [1],
        lambda: [1] + SIZE,
        lambda: SIZE * 1.5,
    ],
)
def test_anything_but_integers_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()
