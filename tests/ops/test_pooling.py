"""Pooling against loops over every window."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from numpy.typing import NDArray

import vmflow as flow
from tests.against_torch import same_as_torch
from tests.support import arrays_for, check_gradients
from vmflow.nn import functional as F
from vmflow.ops.nn.adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d
from vmflow.ops.nn.pooling import avg_pool2d, max_pool2d
from vmflow.ops.nn.unpooling import lp_pool2d, max_unpool1d, max_unpool2d

pytestmark = pytest.mark.usefixtures("contract")

Array = NDArray[Any]
Pair = tuple[int, int]


def count(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    exact = (size + 2 * padding - dilation * (kernel - 1) - 1) / stride
    found = (ceil(exact) if ceil_mode else floor(exact)) + 1
    if ceil_mode and (found - 1) * stride >= size + padding:
        found -= 1
    return found


def windows(
    x: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool
) -> Iterator[tuple[tuple[int, ...], list[Pair], int]]:
    """For each element of the output: its index, its pixels within the image, and how many lie in image or padding."""
    sizes = [
        count(x.shape[number + 2], kernel[number], stride[number], padding[number], dilation[number], ceil_mode)
        for number in (0, 1)
    ]
    for n, c, r, s in np.ndindex(x.shape[0], x.shape[1], *sizes):
        pixels: list[Pair] = []
        within = 0
        for i, j in np.ndindex(*kernel):
            row = r * stride[0] - padding[0] + i * dilation[0]
            column = s * stride[1] - padding[1] + j * dilation[1]
            within += row < x.shape[2] + padding[0] and column < x.shape[3] + padding[1]
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                pixels.append((row, column))
        yield (n, c, r, s), pixels, within


def looped_max(x: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool) -> Any:
    values: dict[tuple[int, ...], Any] = {}
    indices: dict[tuple[int, ...], int] = {}
    for place, pixels, _ in windows(x, kernel, stride, padding, dilation, ceil_mode):
        best = pixels[0]
        for pixel in pixels[1:]:
            if x[place[:2] + pixel] > x[place[:2] + best] or np.isnan(x[place[:2] + pixel]):
                best = pixel
        values[place] = x[place[:2] + best]
        indices[place] = best[0] * x.shape[3] + best[1]
    shape = tuple(max(value[axis] for value in values) + 1 for axis in range(4))
    return np.array(list(values.values()), x.dtype).reshape(shape), np.array(list(indices.values())).reshape(shape)


def looped_mean(
    x: Array, kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool, with_padding: bool, override: int | None
) -> Array:
    found: dict[tuple[int, ...], float] = {}
    for place, pixels, within in windows(x, kernel, stride, padding, (1, 1), ceil_mode):
        total = sum(float(x[place[:2] + pixel]) for pixel in pixels)
        found[place] = total / (override or (within if with_padding else len(pixels)))
    return np.array(list(found.values())).reshape(tuple(max(value[axis] for value in found) + 1 for axis in range(4)))


def pairs(data: st.DataObject, low: int, high: int) -> Pair:
    return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))


@st.composite
def images(draw: st.DrawFn) -> Array:
    """Small integers, so that many elements are equal; as many planes as make either layout."""
    shape = (
        draw(st.sampled_from([1, 16])),
        draw(st.sampled_from([1, 4])),
        draw(st.integers(2, 6)),
        draw(st.integers(2, 6)),
    )
    return np.random.default_rng(draw(st.integers(0, 99))).integers(-3, 4, shape).astype(np.float64)


@settings(max_examples=40)
@given(x=images(), data=st.data(), ceil_mode=st.booleans())
def test_max_pool2d(x: Array, data: st.DataObject, ceil_mode: bool) -> None:
    kernel, stride, dilation = pairs(data, 1, 3), pairs(data, 1, 3), pairs(data, 1, 2)
    reach = [dilation[number] * (kernel[number] - 1) + 1 for number in (0, 1)]
    padding = (data.draw(st.integers(0, reach[0] // 2)), data.draw(st.integers(0, reach[1] // 2)))
    assume(all(reach[number] <= x.shape[number + 2] for number in (0, 1)))
    values, indices = max_pool2d(flow.tensor(x), kernel, stride, padding, dilation, ceil_mode, True)
    expected, places = looped_max(x, kernel, stride, padding, dilation, ceil_mode)
    np.testing.assert_array_equal(values.numpy(), expected)
    np.testing.assert_array_equal(indices.numpy(), places)
    assert indices.dtype is flow.int64
    np.testing.assert_array_equal(
        max_pool2d(flow.tensor(x), kernel, stride, padding, dilation, ceil_mode).numpy(), expected
    )


@pytest.mark.parametrize("planes", [3, 64])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), ((1, 3), 1, (0, 1))])
def test_max_pool2d_of_elements_that_are_not_finite(planes: int, kernel: Any, stride: Any, padding: Any) -> None:
    generator = np.random.default_rng(5)
    x = generator.choice([np.nan, -np.inf, np.inf, 1.0, 2.0], (planes, 1, 6, 6))
    both = [value if isinstance(value, tuple) else (value, value) for value in (kernel, stride or kernel, padding)]
    values, indices = max_pool2d(flow.tensor(x), kernel, stride, padding, return_indices=True)
    expected, places = looped_max(x, both[0], both[1], both[2], (1, 1), False)
    np.testing.assert_array_equal(values.numpy(), expected)
    np.testing.assert_array_equal(indices.numpy(), places)


@pytest.mark.parametrize("dtype", [flow.int64, flow.uint8, flow.float16, flow.bfloat16, flow.float32])
def test_max_pool2d_keeps_the_dtype(dtype: flow.dtype) -> None:
    x = np.random.default_rng(1).integers(0, 100, (2, 2, 5, 5))
    values, indices = max_pool2d(flow.tensor(x, dtype=dtype), 3, 2, 1, return_indices=True)
    expected, places = looped_max(x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    assert values.dtype is dtype
    np.testing.assert_array_equal(values.long().numpy(), expected)
    np.testing.assert_array_equal(indices.numpy(), places)


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((2, 1, 4, 4), (2,)),
        ((2, 1, 4, 4), (3, 1, 1)),
        ((2, 1, 4, 3), (2, 1, 1, 2)),
        ((32, 2, 2, 2), (2,)),
        ((32, 2, 1, 2), (2, 1, 1)),
    ],
    ids=str,
)
def test_max_pool2d_gradients(shape: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    # Distinct elements further apart than the step of the numerical derivative.
    x = np.random.default_rng(3).permutation(np.prod(shape)).reshape(shape) * 0.1
    check_gradients(lambda x: max_pool2d(x, *arguments), x)
    check_gradients(lambda x: max_pool2d(x * x, *arguments), x[:1, :1] + 1, second=True)


def test_max_pool2d_gives_the_gradient_to_the_first_of_equals() -> None:
    x = flow.tensor([[[[1.0, 5.0], [5.0, 1.0]]]], requires_grad=True)
    max_pool2d(x, 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[[0.0, 1.0], [0.0, 0.0]]]]


def test_overlapping_windows_add_their_gradients() -> None:
    x = flow.tensor([[[[0.0, 9.0, 0.0]]]], requires_grad=True)
    max_pool2d(x, (1, 2), 1).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[[[0.0, 2.0, 0.0]]]]


@settings(max_examples=40)
@given(x=images(), data=st.data(), ceil_mode=st.booleans(), with_padding=st.booleans())
def test_avg_pool2d(x: Array, data: st.DataObject, ceil_mode: bool, with_padding: bool) -> None:
    kernel, stride = pairs(data, 1, 3), pairs(data, 1, 3)
    assume(all(kernel[number] <= x.shape[number + 2] for number in (0, 1)))
    padding = (data.draw(st.integers(0, kernel[0] // 2)), data.draw(st.integers(0, kernel[1] // 2)))
    override = data.draw(st.sampled_from([None, 3]))
    result = avg_pool2d(flow.tensor(x), kernel, stride, padding, ceil_mode, with_padding, override)
    expected = looped_mean(x, kernel, stride, padding, ceil_mode, with_padding, override)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("planes", [(2, 1), (32, 2)])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 2, "stride": 1, "padding": 1, "count_include_pad": False},
        {"kernel_size": (1, 2), "stride": 2, "ceil_mode": True, "divisor_override": 3},
    ],
    ids=str,
)
def test_avg_pool2d_gradients(planes: Pair, options: dict[str, Any]) -> None:
    (x,) = arrays_for(4, planes + ((4, 3) if planes == (2, 1) else (2, 2)))
    check_gradients(lambda x: avg_pool2d(x, **options), x)
    check_gradients(lambda x: avg_pool2d(x * x, **options), x[:1], second=True)


@pytest.mark.parametrize("output", [1, 2, (3, 5), (None, 2), (7, 8), None])
@pytest.mark.parametrize("size", [(6, 8), (5, 3)])
def test_adaptive_avg_pool2d(output: Any, size: Pair) -> None:
    (x,) = arrays_for(5, (2, 3, *size))
    wanted = output if isinstance(output, tuple) else (output, output)
    rows, columns = (given if want is None else want for want, given in zip(wanted, size, strict=True))
    expected = np.empty((2, 3, rows, columns))
    for r, s in np.ndindex(rows, columns):
        top, bottom = floor(r * size[0] / rows), ceil((r + 1) * size[0] / rows)
        left, right = floor(s * size[1] / columns), ceil((s + 1) * size[1] / columns)
        expected[:, :, r, s] = x[:, :, top:bottom, left:right].mean((2, 3))
    result = adaptive_avg_pool2d(flow.tensor(x), output)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)
    check_gradients(lambda x: adaptive_avg_pool2d(x * x, output), x[:1, :1], second=True)


def test_one_infinite_pixel_stays_in_its_windows() -> None:
    x = np.ones((1, 1, 5, 5))
    x[0, 0, 0, 0] = np.inf
    result = adaptive_avg_pool2d(flow.tensor(x), 3).numpy()[0, 0]
    assert np.isinf(result[0, 0])
    np.testing.assert_array_equal(result.reshape(-1)[1:], 1.0)


FUNCTIONS: list[Any] = [lambda x: max_pool2d(x, 2), lambda x: avg_pool2d(x, 2), lambda x: adaptive_avg_pool2d(x, 3)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_image_an_empty_batch_and_strided_input(function: Any) -> None:
    (x,) = arrays_for(6, (5, 4, 3, 2))
    moved = flow.tensor(x).permute(3, 2, 1, 0)
    whole = function(flow.tensor(np.ascontiguousarray(x.transpose(3, 2, 1, 0)))).numpy()
    np.testing.assert_array_equal(function(moved).numpy(), whole)
    np.testing.assert_array_equal(function(moved[0]).numpy(), whole[0])
    empty = flow.zeros(0, 3, 4, 5, requires_grad=True)
    result = function(empty)
    assert result.shape == (0, 3, *whole.shape[2:])
    result.sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == empty.shape


def test_one_image_with_indices() -> None:
    (x,) = arrays_for(7, (2, 4, 4))
    values, indices = max_pool2d(flow.tensor(x), 2, return_indices=True)
    assert values.shape == indices.shape == (2, 2, 2)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_half_precision_computes_in_single(function: Any, dtype: flow.dtype) -> None:
    (array,) = arrays_for(8, (2, 2, 4, 4))
    x = flow.tensor(array, dtype=dtype, requires_grad=True)
    single = x.detach().float().requires_grad_()
    result = function(x)
    assert result.dtype is dtype
    np.testing.assert_array_equal(result.detach().float().numpy(), function(single).detach().to(dtype).float().numpy())
    result.sum().backward()
    function(single).sum().backward()
    assert x.grad is not None
    assert single.grad is not None
    np.testing.assert_allclose(x.grad.float().numpy(), single.grad.numpy(), rtol=1e-2)


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, r"a window of \[5, 5\] does not fit.*\[1, 1, 4, 4\]", {"kernel_size": 5}),
        (ValueError, r"padding must be at most half", {"kernel_size": 2, "padding": 2}),
        (ValueError, r"stride must be at least 1", {"kernel_size": 2, "stride": 0}),
        (ValueError, r"kernel_size must be at least 1", {"kernel_size": (2, 0)}),
        (TypeError, r"kernel_size must be an integer", {"kernel_size": 2.0}),
        (ValueError, r"expected an input", {"kernel_size": 2, "input": (4, 4)}),
        (ValueError, r"does not fit", {"kernel_size": 1, "input": (1, 1, 0, 4)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("function", [max_pool2d, avg_pool2d])
def test_bad_arguments(function: Any, error: type[Exception], message: str, arguments: dict[str, Any]) -> None:
    given = {"input": (1, 1, 4, 4), **arguments}
    given["input"] = flow.zeros(given["input"])
    with pytest.raises(error, match=message) as caught:
        function(**given)
    assert function.__name__ in str(caught.value)


def test_windows_in_the_padding_have_no_largest_element() -> None:
    with pytest.raises(ValueError, match="wholly in the padding"):
        max_pool2d(flow.zeros(1, 1, 1, 1), 2, 1, 2, 3)


def test_dtypes_without_a_mean() -> None:
    whole = flow.ones(1, 1, 4, 4, dtype=flow.int64)
    with pytest.raises(TypeError, match="avg_pool2d is not defined for int64"):
        avg_pool2d(whole, 2)
    with pytest.raises(TypeError, match="adaptive_avg_pool2d is not defined for int64"):
        adaptive_avg_pool2d(whole, 2)
    with pytest.raises(TypeError, match="max_pool2d is not defined for bool"):
        max_pool2d(whole.bool(), 2)


def test_bad_output_sizes() -> None:
    x = flow.zeros(1, 1, 4, 4)
    with pytest.raises(ValueError, match="output_size must be at least 1"):
        adaptive_avg_pool2d(x, 0)
    with pytest.raises(TypeError, match="a pair of integers"):
        adaptive_avg_pool2d(x, (1, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected an input"):
        adaptive_avg_pool2d(flow.zeros(4, 4), 2)
    with pytest.raises(ValueError, match="divisor_override must not be 0"):
        avg_pool2d(x, 2, divisor_override=0)


# Other numbers of dimensions, and ops based on pooling, against PyTorch

SMALL, LARGE = (2, 3), (32, 2)  # samples and channels; many planes are turned inside out
GEOMETRIES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *[
        (f"max_pool{rank}d", lead + (7, 5, 3)[:rank], {"return_indices": True, **options})
        for rank in (1, 2, 3)
        for lead in (SMALL, LARGE, (4,))
        for options in (
            {"kernel_size": 2},
            {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
            {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2},
        )
    ],
    *[
        (f"avg_pool{rank}d", lead + (7, 5, 3)[:rank], options)
        for rank in (1, 2, 3)
        for lead in (SMALL, LARGE, (4,))
        for options in (
            {"kernel_size": 2},
            {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
            {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False},
        )
    ],
    *[
        (f"adaptive_{kind}_pool{rank}d", lead + (7, 6, 4)[:rank], {"output_size": size, **options})
        for kind, options in (("avg", {}), ("max", {"return_indices": True}))
        for rank in (1, 2, 3)
        for lead in (SMALL, (4,))
        for size in (1, 3, (7, 2, 5)[:rank], (9, 3, 4)[:rank])
    ],
]


@pytest.mark.parametrize(("name", "shape", "options"), GEOMETRIES, ids=str)
def test_any_number_of_dimensions_is_pytorchs(name: str, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).permutation(np.prod(shape)).reshape(shape) * 0.1
    ours, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    same_as_torch(lambda x: ours(x, **options), lambda x: theirs(x, **options), x)


def test_gradients_of_lines_and_volumes() -> None:
    x = np.random.default_rng(3).permutation(24).reshape(1, 2, 3, 2, 2) * 0.1 + 0.1
    check_gradients(lambda x: F.max_pool3d(x * x, 2, 1), x, second=True)
    check_gradients(lambda x: F.avg_pool3d(x * x, 2, 1, 1), x, second=True)
    check_gradients(lambda x: F.adaptive_max_pool3d(x * x, (2, 2, 1)), x, second=True)
    check_gradients(lambda x: F.adaptive_avg_pool3d(x * x, (2, 2, 1)), x, second=True)
    check_gradients(lambda x: lp_pool2d(x, 3, 2, 1), x[0], second=True)


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_adaptive_windows_with_several_nans_give_the_last_one(windows: int) -> None:
    nan = float("nan")
    row = [nan, nan, nan, 5.0, 4.0]
    x = flow.tensor([[[row, row[::-1], [1.0, 2.0, 2.0, 3.0, nan], row[::-1], [7.0] * 5]]])
    values, indices = adaptive_max_pool2d(x, windows, return_indices=True)
    places = np.arange(25).reshape(5, 5)
    for (i, j), found in np.ndenumerate(indices.numpy()[0, 0]):
        window = tuple([slice(k * 5 // windows, -(-(k + 1) * 5 // windows)) for k in (i, j)])
        elements = x.numpy()[0, 0][window].ravel()
        nans = np.flatnonzero(np.isnan(elements))
        chosen = nans[-1] if len(nans) else np.argmax(elements)
        assert found == places[window].ravel()[chosen]
        np.testing.assert_equal(values.numpy()[0, 0, i, j], elements[chosen])


def test_the_first_of_equals_is_the_largest_of_uneven_windows() -> None:
    values, indices = adaptive_max_pool2d(flow.zeros(1, 1, 5, 5), 3, return_indices=True)
    _, even = adaptive_max_pool2d(flow.zeros(1, 1, 6, 6), 3, return_indices=True)
    assert not values.numpy().any()
    assert indices[0, 0].tolist() == [[0, 1, 3], [5, 6, 8], [15, 16, 18]]
    assert even[0, 0].tolist() == [[0, 2, 4], [12, 14, 16], [24, 26, 28]]
    spoilt = flow.zeros(1, 1, 5, 5)
    spoilt[0, 0, 1, 1] = float("nan")
    assert np.isnan(adaptive_max_pool2d(spoilt, 3).numpy()[0, 0, :2, :2]).all()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unpooling_with_padding_is_pytorchs(rank: int) -> None:
    torch = pytest.importorskip("torch")
    shape = (2, 2, 6, 5, 4)[: rank + 2]
    x = np.random.default_rng(5).permutation(np.prod(shape)).reshape(shape) * 0.1
    how = {"kernel_size": 3, "stride": 2, "padding": 1}
    values, indices = getattr(F, f"max_pool{rank}d")(flow.tensor(x), **how, return_indices=True)
    unpool, theirs = getattr(F, f"max_unpool{rank}d"), getattr(torch.nn.functional, f"max_unpool{rank}d")
    places = torch.tensor(indices.numpy())
    for size in (shape, shape[2:]):
        same_as_torch(
            lambda y: unpool(y, indices, **how, output_size=size),  # noqa: B023
            lambda y: theirs(y, places, **how, output_size=size),  # noqa: B023
            values.numpy(),
        )


def test_unpooling_to_a_wrong_size_raises() -> None:
    values, indices = max_pool2d(flow.zeros(1, 1, 4, 4), 2, return_indices=True)
    with pytest.raises(ValueError, match=r"max_unpool2d: output_size \[9, 9\] is not within the stride"):
        max_unpool2d(values, indices, 2, output_size=(9, 9))
    with pytest.raises(ValueError, match="indices of shape"):
        max_unpool2d(values, indices[0], 2)
    with pytest.raises(TypeError, match="indices must be int64"):
        max_unpool2d(values, indices.int(), 2)
    with pytest.raises(ValueError, match="max_unpool1d: expected an input"):
        max_unpool1d(values, indices, 2)
    with pytest.raises(IndexError, match="index 99"):
        max_unpool2d(values, indices + 99, 2).numpy()


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_may_come_last(rank: int, batch: tuple[int, ...]) -> None:
    shape = (*batch, 3, *(5, 4, 6)[:rank])
    first = np.random.default_rng(rank).standard_normal(shape)
    last = flow.tensor(np.moveaxis(first, -rank - 1, -1), requires_grad=True)
    x = flow.tensor(first, requires_grad=True)
    for name in (f"max_pool{rank}d", f"avg_pool{rank}d", f"adaptive_avg_pool{rank}d"):
        function, layer = getattr(F, name), getattr(flow.nn, LAYERS[name[:-6]] + f"Pool{rank}d")
        expected = function(x, 3)
        found = function(last, 3, data_format="channels_last")
        np.testing.assert_array_equal(found.movedim(-1, -rank - 1).detach().numpy(), expected.detach().numpy())
        assert layer(3, data_format="channels_last")(last).tolist() == found.tolist()
        x.grad = last.grad = None
        expected.square().sum().backward()
        found.square().sum().backward()
        assert x.grad is not None
        assert last.grad is not None
        np.testing.assert_allclose(last.grad.movedim(-1, -rank - 1).numpy(), x.grad.numpy(), 1e-12)
        with pytest.raises(ValueError, match=f"{name}: data_format must be 'channels_first' or 'channels_last'"):
            function(x, 3, data_format="NHWC")
        with pytest.raises(ValueError, match=f"{name}: expected an input"):
            function(x[0, 0], 3, data_format="channels_last")
    values, places = getattr(F, f"max_pool{rank}d")(last, 2, return_indices=True, data_format="channels_last")
    wanted, where = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
    assert places.movedim(-1, -rank - 1).tolist() == where.tolist()
    assert values.movedim(-1, -rank - 1).tolist() == wanted.tolist()


LAYERS = {"max_": "Max", "avg_": "Avg", "adaptive_avg_": "AdaptiveAvg"}


def test_bad_arguments_of_ops_based_on_pooling() -> None:
    x = flow.ones(1, 1, 4, 4)
    with pytest.raises(ValueError, match="lp_pool2d: norm_type must not be 0"):
        lp_pool2d(x, 0, 2)
    with pytest.raises(TypeError, match="adaptive_max_pool2d is not defined for bool"):
        adaptive_max_pool2d(x.bool(), 3)
    with pytest.raises(ValueError, match="adaptive_max_pool2d: expected an input"):
        adaptive_max_pool2d(x[0, 0], 3)
    with pytest.raises(ValueError, match="max_pool3d: expected an input"):
        F.max_pool3d(flow.ones(4, 4), 2)
