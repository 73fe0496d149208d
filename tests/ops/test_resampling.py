"""Interpolation: numerical gradients, and the values and gradients of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.kernels.numpy.resampling import table
from vmflow.kernels.problems.resampling import Along
from vmflow.nn.functional import interpolate

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *[
        (mode, (2, 3, 7, 5)[: rank + 1] + (4,), options)
        for mode in ("nearest", "nearest-exact", "area")
        for rank in (1, 2)
        for options in ({"scale_factor": 2.0}, {"scale_factor": 0.6}, {"size": (9, 3)[:rank]})
    ],
    *[
        (mode, (1, 2, 3, 4, 5), options)
        for mode in ("nearest", "nearest-exact", "area")
        for options in ({"size": (5, 4, 2)}, {"scale_factor": (1.5, 2.0, 0.5)})
    ],
    *[
        (mode, shape, {**options, "align_corners": align})
        for mode, shape in (
            ("linear", (2, 3, 6)),
            ("bilinear", (2, 3, 7, 5)),
            ("bicubic", (2, 3, 7, 5)),
            ("trilinear", (1, 2, 3, 4, 5)),
        )
        for align in (False, True, None)
        for options in ({"scale_factor": 2.0}, {"scale_factor": 0.7}, {"size": 4})
    ],
    *[
        (mode, (2, 2, 9, 7), {"size": size, "antialias": True, "align_corners": align})
        for mode in ("bilinear", "bicubic")
        for size in ((4, 3), (12, 10), (1, 7), (9, 7))
        for align in (False, True)
    ],
    ("bilinear", (0, 3, 4, 4), {"size": 7}),
    ("nearest", (2, 0, 4, 4), {"size": 7}),
    ("bicubic", (1, 1, 1, 1), {"size": 3}),
    ("bilinear", (1, 1, 3, 3), {"size": 1, "align_corners": True}),
    ("bilinear", (1, 1, 5, 6), {"scale_factor": 1.3, "recompute_scale_factor": True}),
    ("nearest", (1, 1, 40, 30), {"scale_factor": 1.1}),
    ("nearest", (1, 1, 49, 33), {"size": (147, 99)}),
]


@pytest.mark.parametrize(("mode", "shape", "options"), CASES, ids=str)
def test_values_and_gradients_are_those_of_pytorch(mode: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    if shape[0] == 0 or (shape[1] == 0):
        found = interpolate(flow.zeros(shape, requires_grad=True), mode=mode, **options)
        assert found.shape == (*shape[:2], 7, 7)
        found.sum().backward()
        return
    (x,) = arrays_for(1, shape)
    theirs = torch.nn.functional.interpolate
    # PyTorch computes the weights of an antialiased filter in single precision.
    limit = 1e-6 if options.get("antialias") else 1e-9
    same_as_torch(
        lambda x: interpolate(x, mode=mode, **options),
        lambda x: theirs(x, mode=mode, **options),
        x,
        rtol=limit,
        atol=limit,
    )


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("nearest", {"size": (5, 2)}),
        ("bilinear", {"size": (5, 2)}),
        ("bicubic", {"scale_factor": 1.5}),
        ("bilinear", {"size": (2, 2), "antialias": True}),
        ("area", {"size": (2, 4)}),
    ],
    ids=str,
)
def test_gradients(mode: str, options: dict[str, Any]) -> None:
    (x,) = arrays_for(2, (1, 2, 3, 4))
    check_gradients(lambda x: interpolate(x * x, mode=mode, **options), x, second=True)


@pytest.mark.parametrize(
    ("mode", "size", "target", "options"),
    [
        ("nearest", 4, 2, {}),
        ("nearest-exact", 5, 3, {}),
        ("bilinear", 6, 12, {}),
        ("bilinear", 6, 2, {}),
        ("bicubic", 9, 3, {}),
        ("bilinear", 7, 3, {"antialias": True}),
        ("bicubic", 3, 8, {"antialias": True}),
    ],
    ids=str,
)
def test_an_infinite_element_has_no_effect_where_it_is_not_read(
    mode: str, size: int, target: int, options: dict[str, Any]
) -> None:
    def resampled(rows: flow.Tensor) -> flow.Tensor:
        return interpolate(rows.reshape(-1, 1, 1, size), size=(1, target), mode=mode, **options).reshape(-1, target)

    reads = resampled(flow.eye(size)).numpy() != 0  # whether a result reads an element, (elements, results)
    results = resampled(flow.eye(size).masked_fill_(flow.eye(size) > 0, np.inf)).numpy()
    assert np.isfinite(results[~reads]).all()
    rows = flow.zeros(target, size, requires_grad=True)
    gradients = np.ones((target, target), np.float32)
    np.fill_diagonal(gradients, np.inf)
    resampled(rows).backward(flow.tensor(gradients))
    assert rows.grad is not None
    assert np.isfinite(rows.grad.numpy()[~reads.T]).all()
    if mode == "nearest":
        assert rows.grad.tolist() == [[np.inf, 0, 1, 0], [1, 0, np.inf, 0]]


def test_a_table_and_its_transpose_are_one_matrix() -> None:
    along = Along("linear", 7, 4, False, 0.0, True)
    matrices = []
    for transposed, shape in ((False, (4, 7)), (True, (7, 4))):
        found = table(along, transposed)
        matrix = np.zeros(shape)
        np.add.at(matrix, (np.arange(shape[0])[:, None], found.places), found.weights)
        matrices.append(matrix)
    np.testing.assert_array_equal(matrices[0], matrices[1].T)
    np.testing.assert_allclose(matrices[0].sum(1), 1.0)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_computes_in_single(dtype: flow.dtype) -> None:
    (array,) = arrays_for(3, (2, 2, 4, 4))
    x = flow.tensor(array, dtype=dtype)
    for mode in ("nearest", "bicubic"):
        single = interpolate(x.float(), size=7, mode=mode).to(dtype).float().numpy()
        result = interpolate(x, size=7, mode=mode)
        assert result.dtype is dtype
        np.testing.assert_array_equal(result.float().numpy(), single)


def test_nearest_is_for_any_real_numbers() -> None:
    x = flow.arange(6, dtype=flow.uint8).reshape(1, 1, 2, 3)
    assert interpolate(x, scale_factor=2)[0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(TypeError, match="not defined for uint8"):
        interpolate(x, size=4, mode="bilinear")
    with pytest.raises(TypeError, match="not defined for complex64"):
        interpolate(x.to(flow.complex64), size=4)


def test_strided_input() -> None:
    (x,) = arrays_for(4, (5, 4, 3, 2))
    moved = flow.tensor(x).permute(3, 2, 1, 0)
    copied = flow.tensor(np.ascontiguousarray(x.transpose(3, 2, 1, 0)))
    for mode in ("nearest", "bilinear"):
        result = interpolate(moved, size=6, mode=mode).numpy()
        np.testing.assert_array_equal(result, interpolate(copied, size=6, mode=mode).numpy())


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, "mode must be one of", {"size": 2, "mode": "cubic"}),
        (ValueError, "of 3 dimensions, got 4", {"size": 2, "mode": "linear"}),
        (ValueError, "either size or scale_factor", {}),
        (ValueError, "either size or scale_factor", {"size": 2, "scale_factor": 2}),
        (ValueError, "align_corners has no meaning", {"size": 2, "align_corners": False}),
        (ValueError, "antialias is for modes", {"size": 2, "antialias": True}),
        (ValueError, "recompute_scale_factor has no meaning", {"size": 2, "recompute_scale_factor": True}),
        (ValueError, "scale_factor must be above 0", {"scale_factor": 0}),
        (TypeError, "scale_factor must be a number or 2", {"scale_factor": (1, 2, 3)}),
        (TypeError, "size must be an integer or a pair", {"size": (2.0, 2)}),
        (ValueError, "size must be at least 1", {"size": 0}),
        (ValueError, r"cannot make \[4, 4\] elements into \[0, 0\]", {"scale_factor": 0.1}),
        (ValueError, "of 3, 4 or 5 dimensions", {"input": (4, 4), "size": 2}),
        (ValueError, "cannot make", {"input": (1, 1, 0, 4), "size": 2}),
    ],
    ids=str,
)
def test_bad_arguments(error: type[Exception], message: str, arguments: dict[str, Any]) -> None:
    given = {"input": (1, 1, 4, 4), **arguments}
    given["input"] = flow.zeros(given["input"])
    with pytest.raises(error, match=f"interpolate: .*{message}"):
        interpolate(**given)
