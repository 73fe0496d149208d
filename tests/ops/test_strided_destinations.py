"""Elementwise ops in place on views, and into `out` with gaps, for all distances of the elements.

numpy's loops differ with the distance, and some releases compute wrong elements at some of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow

IN_PLACE = (
    *(
        "neg_",
        "abs_",
        "square_",
        "sqrt_",
        "exp_",
        "log_",
        "sin_",
        "cos_",
        "tanh_",
        "floor_",
        "ceil_",
        "round_",
        "trunc_",
    ),
    *("reciprocal_", "sign_", "sigmoid_", "expm1_", "log1p_", "rsqrt_", "relu_", "erf_", "sinh_", "cosh_", "atan_"),
)
TO_BOOL = ("signbit", "logical_not")


def numbers(count: int, dtype: Any) -> Any:
    return ((np.arange(count) * 37 % 23 + 1) / 4).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_a_column(name: str, dtype: Any) -> None:
    function = getattr(flow, name.removesuffix("_"))
    for width in (1, 2, 3, 4, 5, 8, 16):
        for rows in (1, 3, 17, 40):
            data = numbers(rows * width, dtype).reshape(rows, width)
            x = flow.tensor(data)
            expected = function(flow.tensor(np.ascontiguousarray(data[:, 0])))
            if expected.dtype is not x.dtype:
                return  # floats do not go into integers
            getattr(x[:, 0], name)()
            np.testing.assert_allclose(x[:, 0].numpy(), expected.numpy(), rtol=1e-6, err_msg=f"{rows} x {width}")
            np.testing.assert_array_equal(x[:, 1:].numpy(), data[:, 1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TO_BOOL)
def test_into_bools_with_gaps(name: str, dtype: Any) -> None:
    function: Any = getattr(flow, name)
    for gap in (1, 2, 3, 4, 8, 16):
        for count in (1, 3, 17, 40, 70):
            data = numbers(count, dtype)
            data[::3] = np.nan
            data[1::3] *= -1
            data[2::5] = np.inf
            out = flow.zeros(count, gap, dtype=flow.bool)
            function(flow.tensor(data), out=out[:, 0])
            expected = function(flow.tensor(data)).numpy()
            np.testing.assert_array_equal(out[:, 0].numpy(), expected, err_msg=f"{count} x {gap}")


@pytest.mark.host_arrays
def test_as_a_graph() -> None:
    def build(x: flow.Tensor) -> Any:
        changed = x * 1
        changed[:, 0].neg_()
        return changed

    data = numbers(40, np.float32).reshape(10, 4)
    found = flow.nn.Graph.trace(build)(flow.tensor(data)).numpy()
    np.testing.assert_array_equal(found, data * [-1, 1, 1, 1])
