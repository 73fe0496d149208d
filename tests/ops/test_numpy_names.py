"""The arguments `axis` and `keepdims` mean `dim` and `keepdim`, in functions and methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.ops.declaration import FUNCTIONS, METHODS

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4) % 5

REDUCED = ("sum", "prod", "mean", "amax", "amin", "all", "any", "argmax", "var", "std", "logsumexp", "nansum", "norm")
ALONG = ("cumsum", "cumprod", "softmax", "log_softmax", "unsqueeze", "squeeze", "logcumsumexp", "diff", "argsort")


def _tensor() -> Any:
    return flow.tensor(MATRIX)


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name: str) -> None:
    expected = getattr(flow, name)(_tensor(), dim=1, keepdim=True)
    assert expected.shape == (3, 1)
    assert flow.equal(getattr(_tensor(), name)(axis=1, keepdims=True), expected)
    function: Any = getattr(flow, name)
    assert flow.equal(function(_tensor(), axis=1, keepdims=True), expected)
    assert flow.equal(function(_tensor(), axis=1, keepdim=True), expected)


@pytest.mark.parametrize("name", ALONG)
def test_along_one_dimension(name: str) -> None:
    function: Any = getattr(flow, name)
    assert flow.equal(function(_tensor(), axis=0), function(_tensor(), dim=0))
    assert flow.equal(getattr(_tensor(), name)(axis=0), function(_tensor(), dim=0))


def test_results_in_pairs_and_several_operands() -> None:
    tensor = _tensor()
    join: Any = flow.cat
    assert flow.equal(join([tensor, tensor], axis=1), flow.cat([tensor, tensor], 1))
    for name in ("max", "min", "sort", "median"):
        for found, expected in zip(getattr(tensor, name)(axis=1), getattr(tensor, name)(1), strict=True):
            assert flow.equal(found, expected)
    assert flow.equal(tensor.topk(k=2, axis=0).values, tensor.topk(2, 0).values)


def test_an_argument_has_one_name_at_a_time() -> None:
    tensor = _tensor()
    with pytest.raises(TypeError, match="sum: axis is another name of dim; give one of them"):
        tensor.sum(axis=0, dim=1)
    with pytest.raises(TypeError, match="keepdims is another name of keepdim"):
        tensor.mean(0, keepdims=True, keepdim=False)
    with pytest.raises(TypeError, match="dim"):
        tensor.sum(0, axis=1)
    with pytest.raises(TypeError, match="axis"):
        flow.relu(tensor, axis=0)  # type: ignore[call-arg]


def _takes_axis(function: Any) -> bool:
    try:
        function(axis=0, dim=0)
    except TypeError as error:
        return "axis is another name of dim" in str(error)
    return False


def test_each_name_exists_and_torch_takes_it_too() -> None:
    torch = pytest.importorskip("torch")
    named = [name for table in (FUNCTIONS, METHODS) for name, function in table.items() if _takes_axis(function)]
    assert {"sum", "cat", "unflatten"} <= set(named)
    for name in named:
        assert hasattr(torch, name) or hasattr(torch.Tensor, name), name
    theirs = torch.from_numpy(MATRIX)
    for name in REDUCED:
        if name not in ("norm", "nansum"):
            found = getattr(_tensor(), name)(axis=1, keepdims=True).numpy()
            np.testing.assert_allclose(found, getattr(theirs, name)(axis=1, keepdims=True).numpy(), rtol=1e-5)
