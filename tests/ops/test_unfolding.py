"""Unfolding images to columns and back: transposes of each other, and the values of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.nn.functional import conv2d, fold, unfold

pytestmark = pytest.mark.usefixtures("contract")

# shape of the image, kernel, dilation, padding, stride; many samples are laid out differently
CASES: list[tuple[tuple[int, ...], Any, Any, Any, Any]] = [
    ((2, 3, 5, 6), 2, 1, 0, 1),
    ((9, 2, 5, 4), (3, 2), (1, 2), (1, 0), (2, 1)),
    ((1, 1, 3, 40), (2, 3), 1, 1, (1, 2)),
    ((1, 2, 4, 4), 1, 1, 0, 1),
    ((3, 4, 5), 2, 2, 1, 3),
    ((0, 2, 4, 4), 3, 1, 1, 1),
]


@pytest.mark.parametrize(("shape", "kernel", "dilation", "padding", "stride"), CASES, ids=str)
def test_both_are_pytorchs(shape: tuple[int, ...], kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    torch = pytest.importorskip("torch")
    (x,) = arrays_for(1, shape)
    columns = unfold(flow.tensor(x), kernel, dilation, padding, stride)
    back = fold(columns, (shape[-2], shape[-1]), kernel, dilation, padding, stride)
    assert back.shape == shape
    if not x.size:
        return
    theirs = torch.nn.functional
    same_as_torch(
        lambda x: unfold(x, kernel, dilation, padding, stride),
        lambda x: theirs.unfold(x, kernel, dilation, padding, stride),
        x,
    )
    (y,) = arrays_for(2, tuple(columns.shape))
    same_as_torch(
        lambda y: fold(y, (shape[-2], shape[-1]), kernel, dilation, padding, stride),
        lambda y: theirs.fold(y, (shape[-2], shape[-1]), kernel, dilation, padding, stride),
        y,
    )


def test_gradients() -> None:
    (x,) = arrays_for(3, (2, 1, 3, 4))
    check_gradients(lambda x: unfold(x * x, 2, padding=1, stride=2), x, second=True)
    (y,) = arrays_for(4, (1, 8, 4))
    check_gradients(lambda y: fold(y * y, 3, 2), y, second=True)


def test_a_convolution_is_a_product_with_columns() -> None:
    x, w = (flow.tensor(value) for value in arrays_for(5, (2, 3, 5, 5), (4, 3, 3, 3)))
    product = w.reshape(4, -1) @ unfold(x, 3, padding=1)
    np.testing.assert_allclose(product.numpy(), conv2d(x, w, padding=1).flatten(2).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_adds_in_single(dtype: flow.dtype) -> None:
    (array,) = arrays_for(6, (1, 9, 9))
    y = flow.tensor(array, dtype=dtype)
    single = fold(y.float(), 5, 3).to(dtype).float().numpy()
    np.testing.assert_array_equal(fold(y, 5, 3).float().numpy(), single)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"unfold: windows of \[3, 3\] with dilation \[2, 2\] do not fit"):
        unfold(flow.zeros(1, 1, 4, 4), 3, 2)
    with pytest.raises(ValueError, match="unfold: expected an input"):
        unfold(flow.zeros(4, 4), 3)
    with pytest.raises(ValueError, match="unfold: stride must be at least 1"):
        unfold(flow.zeros(1, 1, 4, 4), 3, stride=0)
    with pytest.raises(TypeError, match="unfold is not defined for int64"):
        unfold(flow.zeros(1, 1, 4, 4, dtype=flow.int64), 3)
    with pytest.raises(ValueError, match=r"fold: expected an input \(samples, channels \* 4, 9\)"):
        fold(flow.zeros(1, 4, 8), 4, 2)
    with pytest.raises(ValueError, match=r"fold: expected an input"):
        fold(flow.zeros(1, 5, 9), 4, 2)
