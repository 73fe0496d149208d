"""Inputs: accepted values, refused ones with their messages, and that nothing is shared with the caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.serving import Dim, InvalidInput, TensorSpec
from vmflow.serving.specs import Signature

LENGTH = Dim("length", (4, 8))


def test_arrays_tensors_lists_and_numbers() -> None:
    spec = TensorSpec((2,))
    given = np.array([1.0, 2.0], np.float32)
    made = spec.array("x", given, {})
    given[0] = 9
    assert made.tolist() == [1.0, 2.0]
    for value in (
        [1, 2],
        (1, 2),
        np.array([1, 2], np.uint64),
        flow.tensor([1.0, 2.0], requires_grad=True),
        np.array([1, 2], np.uint8),
        given[::-1],
    ):
        found = spec.array("x", value, {})
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
    assert TensorSpec(()).array("x", 3, {}).shape == ()
    assert TensorSpec((0,)).array("x", [], {}).shape == (0,)


def test_complex_numbers_and_bfloat16() -> None:
    spec = TensorSpec((2,), flow.complex64)
    for value in ([1j, 2], np.array([1j, 2]), flow.tensor([1j, 2], dtype=flow.complex128)):
        found = spec.array("x", value, {})
        assert (found.dtype, found.tolist()) == (np.complex64, [1j, 2])
    small = flow.tensor([1.5, 2.0], dtype=flow.bfloat16)
    assert spec.array("x", small, {}).tolist() == [1.5, 2]
    for dtype in (flow.float32, flow.float64, flow.float16, flow.bfloat16):
        found = TensorSpec((2,), dtype).array("x", small, {})
        assert (found.dtype, found.tolist()) == (dtype.numpy, [1.5, 2.0])


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (TensorSpec((2,)), [1.0], r"expected shape \[2\], got \[1\]"),
        (TensorSpec((2,)), [[1.0, 2.0]], r"expected shape \[2\], got \[1, 2\]"),
        (TensorSpec((2,)), [1.0, [2.0]], "expected numbers"),
        (TensorSpec((2,)), "12", "expected numbers, got str"),
        (TensorSpec((2,)), None, "expected numbers, got NoneType"),
        (TensorSpec((2,)), ["a", "b"], "expected numbers, got an array of"),
        (TensorSpec((1,)), [object()], "expected numbers, got an array of object"),
        (TensorSpec((2,)), {"a": 1}, "expected numbers"),
        (TensorSpec((1,)), [10**60], "nan or infinite"),
        (TensorSpec((1,)), [10**390], "do not fit into float32"),
        (TensorSpec((1,), flow.int64), [10**30], "do not fit into int64"),
        (TensorSpec((1,)), [float("nan")], "nan or infinite"),
        (TensorSpec((1,)), [-float("inf")], "nan or infinite"),
        (TensorSpec((1,)), [1e300], "nan or infinite"),
        (TensorSpec((2,)), np.array([np.inf, -np.inf], np.float32), "nan or infinite"),
        (TensorSpec((2,)), np.array([0, np.nan], np.float32), "nan or infinite"),
        (TensorSpec((2,)), np.zeros(3, np.float32), r"expected shape \[2\], got \[3\]"),
        (TensorSpec((1,), flow.int64), [1.5], "float64 values do not fit into int64"),
        (TensorSpec((1,), flow.uint8), [300], "do not fit into uint8"),
        (TensorSpec((1,), flow.uint8), [-1], "do not fit into uint8"),
        (TensorSpec((1,), flow.int64), np.array([1 << 63], np.uint64), "do not fit into int64"),
        (TensorSpec((1,), flow.bool), [2], "int64 values do not fit into bool"),
        (TensorSpec((LENGTH,)), [0.0] * 9, "length is 9, and must be from 1 to 8"),
        (TensorSpec((LENGTH,)), [], "length is 0"),
        (TensorSpec((1,), flow.int64), flow.ones(1, dtype=flow.bfloat16), "values do not fit into int64"),
        (TensorSpec((1,), flow.complex64), [complex("nan")], "nan or infinite"),
        (TensorSpec((1,)), np.array([1 + 2j]), "complex128 values do not fit into float32"),
    ],
)
def test_refused_values(spec: TensorSpec, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        spec.array("x", value, {})


def test_large_values_are_finite_though_their_sum_is_not() -> None:
    large = np.full(2, np.finfo(np.float32).max)
    assert TensorSpec((2,)).array("x", large, {}).tolist() == large.tolist()
    assert TensorSpec((2,), flow.float16).array("x", np.full(2, 60000, np.float16), {}).tolist() == [60000, 60000]


def test_values_that_are_not_finite_may_be_accepted() -> None:
    assert np.isnan(TensorSpec((1,), finite=False).array("x", [float("nan")], {})).all()


def test_padding() -> None:
    signature = Signature({"tokens": TensorSpec((LENGTH,), flow.int64, pad=-1), "mask": TensorSpec((LENGTH, 2))})
    arrays, sizes = signature.arrays({"tokens": [1, 2, 3, 4, 5], "mask": np.ones((5, 2))})
    assert sizes == {"length": 5}
    to = signature.padded_sizes(sizes)
    assert to == {"length": 8}
    tokens, mask = [spec.padded(array, to) for spec, array in zip(signature.specs, arrays, strict=True)]
    assert tokens.tolist() == [1, 2, 3, 4, 5, -1, -1, -1]
    assert mask.sum() == 10
    assert mask.shape == (8, 2)
    with pytest.raises(InvalidInput, match="length is 4 here, and 5 in another input"):
        signature.arrays({"tokens": [1] * 5, "mask": np.ones((4, 2))})


def test_how_inputs_are_given() -> None:
    one, two = TensorSpec((1,)), TensorSpec((2,))
    assert [array.tolist() for array in Signature([one, two]).arrays(([1], [2, 3]))[0]] == [[1], [2, 3]]
    assert [array.tolist() for array in Signature({"b": one, "a": two}).arrays({"a": [2, 3], "b": [1]})[0]] == [
        [1],
        [2, 3],
    ]
    for signature, given, message in (
        (Signature([one, two]), [[1]], "expected 2 inputs in a list"),
        (Signature([one, two]), {"a": [1]}, "expected 2 inputs in a list"),
        (Signature({"a": one}), [1], "expected inputs by name .a., got list"),
        (Signature({"a": one}), {"b": [1]}, "missing or unknown: a, b"),
    ):
        with pytest.raises(InvalidInput, match=message):
            signature.arrays(given)
    with pytest.raises(InvalidInput, match=r"^inputs\[1\]: expected shape"):
        Signature([one, two]).arrays([[1], [1]])


def test_sizes_may_be_numpy_integers() -> None:
    length = Dim("length", np.array([4, 8]))
    assert length == LENGTH
    assert [type(size) for size in length.sizes] == [int, int]
    assert TensorSpec((np.int64(3), length)) == TensorSpec((3, LENGTH))  # type: ignore[arg-type]


def test_invalid_declarations() -> None:
    with pytest.raises(ValueError, match="ascending"):
        Dim("length", (8, 4))
    with pytest.raises(ValueError, match="ascending"):
        Dim("length", ())
    with pytest.raises(ValueError, match="ascending"):
        Dim("length", (1, "2"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a size must be"):
        TensorSpec((-1,))
    with pytest.raises(ValueError, match="a size must be"):
        TensorSpec(("length",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype must be a vmflow dtype"):
        TensorSpec((1,), "float32")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="declared in two ways"):
        Signature([TensorSpec((LENGTH,)), TensorSpec((Dim("length", (3,)),))])
    with pytest.raises(TypeError, match="inputs must be a TensorSpec"):
        Signature([])
    with pytest.raises(TypeError, match="inputs must be a TensorSpec"):
        Signature([(1,)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="inputs must be a TensorSpec"):
        Signature(5)  # type: ignore[arg-type]
