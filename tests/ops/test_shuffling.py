"""Moving elements between channels and pixels: the values of PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, named
from vmflow.nn.functional import channel_shuffle, pixel_shuffle, pixel_unshuffle

pytestmark = pytest.mark.usefixtures("contract")


@pytest.mark.parametrize(
    ("function", "shape", "argument"),
    [
        (pixel_shuffle, (2, 12, 3, 2), 2),
        (pixel_shuffle, (9, 2, 3), 3),
        (pixel_shuffle, (2, 3, 4, 2, 2), 2),
        (pixel_unshuffle, (2, 3, 6, 4), 2),
        (pixel_unshuffle, (2, 2, 1, 3, 6), 3),
        (channel_shuffle, (2, 6, 3, 2), 3),
        (channel_shuffle, (2, 4, 3), 2),
        (channel_shuffle, (1, 4, 3, 2, 2), 1),
    ],
    ids=named,
)
def test_values_are_pytorchs(function: Any, shape: tuple[int, ...], argument: int) -> None:
    torch = pytest.importorskip("torch")
    (x,) = arrays_for(1, shape)
    theirs = getattr(torch.nn.functional, function.__name__)
    same_as_torch(lambda x: function(x, argument), lambda x: theirs(x, argument), x)


def test_an_empty_batch() -> None:
    assert pixel_shuffle(flow.zeros(0, 4, 3, 3), 2).shape == (0, 1, 6, 6)
    assert pixel_unshuffle(flow.zeros(0, 1, 6, 6), 2).shape == (0, 4, 3, 3)
    assert channel_shuffle(flow.zeros(0, 4, 3), 2).shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("pixel_shuffle: expected .* whose channels 9 divides", lambda x: pixel_shuffle(x, 3)),
        ("pixel_shuffle: upscale_factor must be at least 1", lambda x: pixel_shuffle(x, 0)),
        ("pixel_unshuffle: expected .* height and width 3", lambda x: pixel_unshuffle(x, 3)),
        ("channel_shuffle: expected .* channels 3 divides", lambda x: channel_shuffle(x, 3)),
        ("channel_shuffle: groups must be at least 1", lambda x: channel_shuffle(x, -1)),
        ("channel_shuffle: expected", lambda x: channel_shuffle(x[0, 0], 1)),
    ],
)
def test_bad_arguments(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call(flow.zeros(1, 4, 4, 4))
    with pytest.raises(TypeError, match="must be an integer"):
        pixel_shuffle(flow.zeros(1, 4, 4, 4), 2.0)  # type: ignore[arg-type]
