"""Padding against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.ops.shape.padding import pad

pytestmark = pytest.mark.usefixtures("contract")

NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@settings(max_examples=50)
@given(data=st.data(), value=st.sampled_from([None, 0, 2.5, float("-inf")]))
def test_constant(data: st.DataObject, value: float | None) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    dims = data.draw(st.integers(1, len(shape)))
    (x,) = arrays_for(1, shape)
    pairs, given = [(0, 0)] * (len(shape) - dims), []
    cut = [slice(None)] * (len(shape) - dims)
    for size in shape[len(shape) - dims :]:
        before = data.draw(st.integers(-size, 3))
        after = data.draw(st.integers(-(size + min(before, 0)), 3))
        pairs.append((max(before, 0), max(after, 0)))
        cut.append(slice(max(-before, 0), size + min(after, 0)))
        given.append((before, after))
    result = pad(flow.tensor(x), [entry for both in reversed(given) for entry in both], value=value)
    expected = np.pad(x[tuple(cut)], pairs, constant_values=value or 0)
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("given", [(1, 2), (2, 0, 1, 1), (-1, 1, 0, 1)], ids=str)
def test_from_within(mode: str, given: tuple[int, ...]) -> None:
    (x,) = arrays_for(2, (2, 3, 4))
    pairs = [(0, 0)] * (3 - len(given) // 2) + list(zip(given[::2], given[1::2], strict=True))[::-1]
    cut = tuple([slice(max(-before, 0), None) for before, _ in pairs])
    expected = np.pad(x[cut], [(max(before, 0), after) for before, after in pairs], NUMPY[mode])  # type: ignore[call-overload]
    np.testing.assert_array_equal(pad(flow.tensor(x), given, mode).numpy(), expected)


def test_as_far_as_a_mode_reaches() -> None:
    x = flow.tensor([[1.0, 2.0, 3.0]])
    assert pad(x, (2, 2), "reflect").tolist() == [[3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]]
    assert pad(x, (3, 3), "circular").tolist() == [[1.0, 2.0, 3.0] * 3]
    assert pad(x, (5, 0), "replicate").tolist() == [[1.0] * 5 + [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("mode", ["constant", *NUMPY])
@pytest.mark.parametrize("given", [(1, 2), (2, -1, 1, 1)], ids=str)
def test_gradients(mode: str, given: tuple[int, ...]) -> None:
    (x,) = arrays_for(3, (2, 3, 4))
    check_gradients(lambda x: pad(x, given, mode), x)
    check_gradients(lambda x: pad(x * x, given, mode), x, second=True)


@pytest.mark.parametrize("dtype", [flow.int64, flow.bool, flow.float16, flow.bfloat16, flow.complex64])
def test_dtypes_stay(dtype: flow.dtype) -> None:
    result = pad(flow.ones(2, dtype=dtype), (1, 0), value=1)
    assert result.dtype is dtype
    assert result.to(flow.complex64).tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16, flow.float32, flow.float64])
def test_a_negative_zero_keeps_its_sign(dtype: flow.dtype) -> None:
    assert flow.signbit(pad(flow.ones(1, dtype=dtype), (1, 1), value=-0.0)).tolist() == [True, False, True]


def test_nothing_to_add_is_a_copy() -> None:
    x = flow.ones(2)
    result = pad(x, (0, 0))
    result.zero_()
    assert x.tolist() == [1.0, 1.0]


def test_strided_input() -> None:
    (x,) = arrays_for(4, (3, 4))
    np.testing.assert_array_equal(pad(flow.tensor(x).T, (1, 2)).numpy(), np.pad(x.T, ((0, 0), (1, 2))))


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "at most 2 pairs of numbers", ((1, 2, 3),)),
        (ValueError, "at most 2 pairs of numbers", ((1,) * 6,)),
        (ValueError, "cannot take -2 and -2 away from dimension 1 of size 3", ((-2, -2),)),
        (ValueError, "cannot take -4 and 2 away", ((-4, 2),)),
        (ValueError, "mode must be one of constant, reflect", ((1, 1), "mirror")),
        (ValueError, "mode 'reflect' takes no value", ((1, 1), "reflect", 1.0)),
        (ValueError, "'reflect' can add at most 2 elements to dimension 1 of size 3", ((3, 0), "reflect")),
        (ValueError, "'circular' can add at most 3", ((0, 4), "circular")),
        (TypeError, "expected integers", ((1.5, 0),)),
        (TypeError, "expected a tensor or a number, got str", ((-1, 0), "constant", "a")),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error, match=f"pad: .*{message}"):
        pad(flow.zeros(2, 3), *arguments)


def test_nothing_to_replicate() -> None:
    with pytest.raises(ValueError, match="at most 0 elements"):
        pad(flow.zeros(2, 0), (1, 0), "replicate")


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "borders"),
    [
        ((2, 3, 4), (3, 2)),
        ((3, 4), (0, 3)),
        ((2, 3, 4, 3), (2, 1, 3, 0)),
        ((2, 3, 4, 3), (1, -1, -2, 1)),
        ((1, 2, 3, 4, 3), (2, 1, 1, 2, 2, 1)),
        ((1, 2, 1, 1), (0, 0, 0, 0)),
    ],
    ids=str,
)
def test_borders_from_within_are_pytorchs(mode: str, shape: tuple[int, ...], borders: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    (x,) = arrays_for(9, shape)
    same_as_torch(
        lambda x: pad(x, borders, mode),
        lambda x: torch.nn.functional.pad(x, borders, mode),
        x,
    )
    check_gradients(lambda x: pad(x * x, borders, mode), x[:1], second=True)


def test_no_border_can_be_made_of_nothing() -> None:
    for mode in ("reflect", "replicate", "circular"):
        with pytest.raises(ValueError, match=f"mode '{mode}' can add at most 0 elements to dimension 1"):
            pad(flow.zeros(1, 0), (1, 0), mode)
