"""Sampling at places of a grid: numerical gradients, and the values and gradients of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.nn.functional import affine_grid, grid_sample

pytestmark = pytest.mark.usefixtures("contract")


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        *[(mode, (2, 3, 5, 4)) for mode in ("bilinear", "nearest", "bicubic")],
        *[(mode, (2, 1, 1, 3)) for mode in ("bilinear", "nearest", "bicubic")],
        *[(mode, (1, 2, 3, 4, 5)) for mode in ("bilinear", "nearest")],
    ],
    ids=str,
)
def test_grid_sample_is_pytorchs(shape: tuple[int, ...], mode: str, padding_mode: str, align_corners: bool) -> None:
    torch = pytest.importorskip("torch")
    rank = len(shape) - 2
    x, grid = arrays_for(1, shape, (shape[0], 4, 3, 6)[: rank + 1] + (rank,))
    if mode == "nearest":
        # Nothing differentiable is left of the grid; PyTorch says so by zeros.
        places, other = flow.tensor(grid), torch.tensor(grid)
        same_as_torch(
            lambda x: grid_sample(x, places, mode, padding_mode, align_corners),
            lambda x: torch.nn.functional.grid_sample(x, other, mode, padding_mode, align_corners),
            x,
        )
        return
    same_as_torch(
        lambda x, grid: grid_sample(x, grid, mode, padding_mode, align_corners),
        lambda x, grid: torch.nn.functional.grid_sample(x, grid, mode, padding_mode, align_corners),
        x,
        grid,
        rtol=1e-6,
        atol=1e-8,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_gradients(mode: str) -> None:
    x, grid = arrays_for(2, (1, 2, 3, 3), (1, 2, 2, 2))
    check_gradients(lambda x, grid: grid_sample(x, grid * 0.4, mode), x, grid, second=True)


def test_places_that_are_no_numbers_or_far_away() -> None:
    x = flow.ones(1, 1, 2, 2)
    grid = flow.tensor([[[[np.nan, 0.0], [1e30, 0.0], [np.inf, 0.0], [0.0, 0.0]]]])
    result = grid_sample(x, grid, align_corners=True).numpy().reshape(-1)
    assert result[1] == 0
    assert result[3] == 1


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid behavior:UserWarning")
@pytest.mark.parametrize("size", [(2, 1, 3, 4), (2, 1, 1, 5), (2, 1, 2, 3, 4)], ids=str)
def test_affine_grid_is_pytorchs(size: tuple[int, ...], align_corners: bool) -> None:
    torch = pytest.importorskip("torch")
    rank = len(size) - 2
    (theta,) = arrays_for(3, (2, rank, rank + 1))
    same_as_torch(
        lambda theta: affine_grid(theta, size, align_corners),
        lambda theta: torch.nn.functional.affine_grid(theta, list(size), align_corners),
        theta,
    )


def test_the_identity_samples_the_image_itself() -> None:
    (x,) = arrays_for(4, (1, 2, 4, 5))
    theta = flow.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], dtype=flow.float64)
    for align_corners in (False, True):
        grid = affine_grid(theta, (1, 2, 4, 5), align_corners)
        result = grid_sample(flow.tensor(x), grid, align_corners=align_corners)
        np.testing.assert_allclose(result.numpy(), x, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (ValueError, "expected an input", {"grid": (1, 2, 2, 3)}),
        (ValueError, "expected an input", {"grid": (2, 2, 2, 2)}),
        (ValueError, "expected an input", {"input": (1, 4, 4)}),
        (ValueError, "has no elements", {"input": (1, 1, 0, 4)}),
        (ValueError, "mode must be", {"mode": "linear"}),
        (ValueError, "padding_mode must be", {"padding_mode": "reflect"}),
        (ValueError, "mode must be", {"mode": "bicubic", "input": (1, 1, 2, 2, 2), "grid": (1, 2, 2, 2, 3)}),
    ],
    ids=str,
)
def test_bad_arguments(error: type[Exception], message: str, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"input": (1, 1, 4, 4), "grid": (1, 2, 2, 2), **change}
    for name in ("input", "grid"):
        given[name] = flow.zeros(given[name])
    with pytest.raises(error, match=f"grid_sample: .*{message}"):
        grid_sample(**given)


def test_images_of_more_elements_than_their_dtype_counts() -> None:
    image = (flow.arange(100 * 100) % 50).reshape(1, 1, 100, 100).half()
    grid = affine_grid(flow.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 100, 100), True).half()
    sampled = grid_sample(image, grid, "nearest", align_corners=True)
    wanted = grid_sample(image.float(), grid.float(), "nearest", align_corners=True)
    assert (sampled != wanted).float().mean() < 0.1  # positions are rounded in half precision
    line, corner = flow.arange(300).reshape(1, 1, 1, 300).bfloat16(), flow.tensor([[[[1.0, 0.0]]]]).bfloat16()
    assert grid_sample(line, corner, align_corners=True).item() == line[0, 0, 0, 299].item()


def test_dtypes_and_shapes_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="expected one dtype, got float32 and float64"):
        grid_sample(flow.zeros(1, 1, 2, 2), flow.zeros(1, 2, 2, 2, dtype=flow.float64))
    with pytest.raises(TypeError, match="not defined for int64"):
        grid_sample(flow.zeros(1, 1, 2, 2, dtype=flow.int64), flow.zeros(1, 2, 2, 2, dtype=flow.int64))
    with pytest.raises(ValueError, match="affine_grid: expected theta"):
        affine_grid(flow.zeros(1, 2, 3), (2, 1, 4, 4))
    with pytest.raises(ValueError, match="affine_grid: expected theta"):
        affine_grid(flow.zeros(1, 2, 3), (1, 1, 4, 4, 4))
