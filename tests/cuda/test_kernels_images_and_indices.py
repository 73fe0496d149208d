"""Kernels of images, indices, running results and orders: the bits of the CPU, launches, and registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.kernels.cuda import columns, scans, scattering
from vmflow.nn import functional as F
from vmflow.ops.table import OPS
from vmflow.streams.cuda.emulation.driver import EmulatedDriver

from .comparing import DTYPES, FLOATS, equal, some_of
from .compiling import ARCHITECTURES, check_usage, loaded_kernels
from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]

Function = Callable[..., Any]


def _numbers(seed: int, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Numbers whose sums are rounded; some are not numbers, and some equal."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal(shape)
    numbers = np.where(random.random(shape) < 0.2, np.round(numbers), numbers)
    return np.asarray(numbers.astype(by_name(dtype).numpy))


def _gradients(function: Function, tensors: Sequence[flow.Tensor]) -> list[flow.Tensor]:
    """The results of a function, and the gradients by all operands of floating-point numbers."""
    tensors = [tensor.requires_grad_(tensor.dtype.is_floating_point) for tensor in tensors]
    returned = function(*tensors)
    results = [returned] if isinstance(returned, flow.Tensor) else list(returned)
    outputs = [result for result in results if result.requires_grad]
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    if outputs:
        weights = [_numbers(9, tuple(result.shape), result.dtype.name) for result in outputs]
        given = [flow.tensor(weight, device=result.device) for weight, result in zip(weights, outputs, strict=True)]
        gradients = flow.autograd.grad(outputs, inputs, given, allow_unused=True)
        results += [gradient for gradient in gradients if gradient is not None]
    return [result.detach() for result in results]


def _both(function: Function, arrays: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The results of `_gradients` on the CPU and on an emulated device, where arrays lie in memory with gaps."""
    expected = [
        result.numpy() for result in _gradients(function, [flow.tensor(array, device="cpu") for array in arrays])
    ]
    spread = [flow.tensor(np.stack([array, array], -1), device="cuda")[..., 1] for array in arrays]
    found = [result.to("cpu").numpy() for result in _gradients(function, spread)]
    return expected, found


# Images

# Results and gradients with the bits of the CPU, up to the sign of zero.
IMAGES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "unfold": (lambda x: F.unfold(x, (2, 3), 2, (1, 0), (1, 2)), (2, 3, 5, 6)),
    "fold": (lambda x: F.fold(x, (5, 4), (2, 3), stride=(2, 1)), (2, 12, 4)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), (2, 3, 9)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), (2, 3, 7, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True), (2, 1, 3, 4, 5)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 1, (1, 0), count_include_pad=False), (2, 3, 7, 6)),
    "avg_pool2d, by a given number": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=7), (2, 3, 7, 6)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 1, 1, ceil_mode=True), (2, 1, 3, 4, 5)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), (2, 3, 8, 5)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), (2, 3, 4)),
    "pad by the border": (lambda x: F.pad(x, (1, 2, 3, 0), "replicate"), (2, 3, 4, 5)),
    "pad by reflection": (lambda x: F.pad(x, (1, 2, 3, 0), "reflect"), (2, 3, 4, 5)),
    "pad in circles": (lambda x: F.pad(x, (1, 2, 3, 0), "circular"), (2, 3, 4, 5)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=1.7), (2, 3, 5, 6)),
    "bilinear": (lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True), (2, 3, 5, 6)),
    "bicubic": (lambda x: F.interpolate(x, (3, 2), mode="bicubic", antialias=True), (2, 3, 5, 6)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", IMAGES)
def test_images_have_the_bits_of_the_cpu(name: str, dtype: str) -> None:
    function, shape = IMAGES[name]
    with emulated("lazy"):
        expected, found = _both(function, [_numbers(1, shape, dtype)])
    for want, have in zip(expected, found, strict=True):
        equal(have, want, exact=True)


def test_an_infinite_gradient_has_no_effect_on_elements_that_nothing_reads() -> None:
    with emulated("lazy"):
        x = flow.zeros(1, 1, 4, device="cuda", requires_grad=True)
        F.interpolate(x, size=2).backward(flow.tensor([[[1.0, np.inf]]], device="cuda"))
        assert x.grad is not None
        assert x.grad.tolist() == [[[1, 0, np.inf, 0]]]


@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_means(dtype: str) -> None:
    with emulated("lazy"):
        expected, found = _both(lambda x: F.adaptive_avg_pool2d(x, (3, 7)), [_numbers(1, (2, 3, 8, 5), dtype)])
    for want, have in zip(expected, found, strict=True):
        equal(have, want)
    equal(found[1], expected[1], exact=True)  # the gradient, which is summed in one order


def test_a_batch_is_convolved_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    def convolved(x: Any, w: Any, b: Any) -> Any:
        return F.conv2d(x, w, b, stride=(1, 2), padding=1, groups=2)

    arrays = [_numbers(seed, shape, "float32") for seed, shape in enumerate([(5, 4, 5, 6), (6, 2, 2, 3), (6,)])]
    with emulated("lazy") as devices:
        _, whole = _both(convolved, arrays)
        before = devices.driver.launches
        _both(convolved, arrays)
        launches = devices.driver.launches - before
        monkeypatch.setattr(columns, "COLUMN_BYTES", 2 * 4 * 6 * 6 * 3 * 4)
        before = devices.driver.launches
        expected, pieces = _both(convolved, arrays)
        assert devices.driver.launches - before > launches
    for want, have, single in zip(expected, pieces, whole, strict=True):
        equal(have, want)
        equal(have, single)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("biased", [False, True])
def test_images_that_are_their_own_columns(biased: bool, dtype: str) -> None:
    shapes = [(3, 4, 2, 5), (6, 4, 1, 1), *[(6,)] * biased]
    with emulated("lazy") as devices:
        expected, found = _both(F.conv2d, [_numbers(seed, shape, dtype) for seed, shape in enumerate(shapes)])
        for want, have in zip(expected, found, strict=True):
            equal(have, want)
        if dtype == "float32":
            x, w = flow.ones(3, 4, 2, 5, device="cuda"), flow.ones(6, 4, 1, 1, device="cuda")
            flow.synchronize()
            before = devices.driver.launches
            F.conv2d(x, w)
            flow.synchronize()
            assert devices.driver.launches == before  # nothing but the product


@pytest.mark.parametrize("op", ["plane_gather", "plane_scatter"])
@pytest.mark.parametrize("index", [-1, 12])
def test_places_outside_of_a_plane_are_told_of(op: str, index: int) -> None:
    with emulated("lazy"):
        image = flow.ones(1, 2, 3, 4, device="cuda")
        places = flow.full((1, 2, 3, 4), index, dtype=flow.int64, device="cuda")
        attributes: Any = (3, 4) if op == "plane_scatter" else ()
        (result,) = interpreter.dispatch_several(OPS[op], (image, places), attributes)
        with pytest.raises(IndexError, match=f"{op}: index {index} is out of range for a plane of 12 elements"):
            result.to("cpu").numpy()


# Indices

SUMS: dict[str, Function] = {
    "scatter_add": lambda x, i, y: x.scatter_add(0, i.reshape(-1, 1).expand(-1, 3), y),
    "index_add": lambda x, i, y: x.index_add(0, i, y),
    "index_put": lambda x, i, y: x.index_put((i, i.clamp(max=2)), y[:, 1], accumulate=True),
    "index_put of separated ones": lambda x, i, y: x.reshape(-1, 1, 3).index_put(
        (i, None, i.clamp(max=2)), y[:, :1], True
    ),
    "embedding": lambda x, i, y: F.embedding(i, x, padding_idx=1) * y,
    "embedding by frequency": lambda x, i, y: F.embedding(i, x, scale_grad_by_freq=True) * y,
    "gather": lambda x, i, y: x.gather(0, i.reshape(-1, 1).expand(-1, 3)) * y,
    "index": lambda x, i, y: x[i, i.clamp(max=2)] * y[:, 0],
    "index by a grid": lambda x, i, y: x[i.reshape(-1, 1), i[:3].clamp(max=2)] * y,
    "overlapping windows": lambda x, i, y: (x + 0).as_strided((3, 6), (2, 1), 1).reshape(-1) * y.reshape(-1)[:18],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_order_of_the_indices(name: str, dtype: str) -> None:
    indices = np.random.default_rng(2).integers(0, 5, 60)
    indices[::3] = 4
    arrays = [_numbers(0, (5, 3), dtype), indices, _numbers(1, (60, 3), dtype)]
    with emulated("lazy"):
        expected, found = _both(SUMS[name], arrays)
    for want, have in zip(expected, found, strict=True):
        equal(have, want, exact=True)


def test_sums_of_more_indices_than_a_block_sorts() -> None:
    random = np.random.default_rng(3)
    places = random.permutation(np.concatenate([np.arange(300), np.arange(4000) // 40]))
    arrays = [_numbers(0, (300, 1), "float32"), places, _numbers(1, (4300, 1), "float32")]
    with emulated("lazy"):
        expected, found = _both(lambda x, i, y: x.index_add(0, i, y), arrays)
        _, again = _both(lambda x, i, y: x.index_add(0, i, y), arrays)
    for want, have, same in zip(expected, found, again, strict=True):
        equal(have, want)
        equal(have, same, exact=True)


REDUCED: dict[str, Function] = {
    **SUMS,
    **{
        f"scatter_reduce by {how}": lambda x, i, y, how=how: x.detach().scatter_reduce(
            0, i.reshape(-1, 1).expand(-1, 3), y.detach(), how, include_self=False
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
    },
}


@pytest.mark.parametrize("stretch", [1, 7])
@pytest.mark.parametrize("name", REDUCED)
def test_places_of_more_elements_than_a_stretch_has(name: str, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "STRETCH", stretch)
    arrays = [_numbers(0, (5, 3), "float64"), np.arange(60) ** 2 % 61 % 5, _numbers(1, (60, 3), "float64")]
    with emulated("lazy"):
        expected, found = _both(REDUCED[name], arrays)
    for want, have in zip(expected, found, strict=True):
        equal(have, want)


@pytest.mark.parametrize("table", [True, False])
def test_the_last_of_several_elements_for_a_place_stays(table: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not table:
        monkeypatch.setattr(scattering, "_SMALL_TABLE", 0)
        monkeypatch.setattr(scattering, "_TABLE_PER_KEY", 0)
    random = np.random.default_rng(4)
    arrays = [_numbers(0, (7, 3), "float32"), random.integers(0, 7, 50), _numbers(1, (50, 3), "float64")]
    functions: list[Function] = [
        lambda x, i, y: _assigned(x, (i,), y),
        lambda x, i, y: _assigned(x, (i, i.clamp(max=2)), y[:, 0]),
        lambda x, i, y: x.scatter(0, i.reshape(-1, 1).expand(-1, 3), y.to(x.dtype)),
    ]
    with emulated("lazy") as devices:
        for function in functions:
            expected, found = _both(lambda x, i, y, of=function: of(x.detach(), i, y.detach()), arrays)
            equal(found[0], expected[0], exact=True)
        assert devices.driver.launches


def _assigned(tensor: flow.Tensor, index: Any, value: Any) -> flow.Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


def test_results_that_lie_where_operands_do() -> None:
    with emulated("lazy"):
        x = flow.arange(12.0, device="cuda").reshape(3, 4)
        x[:, 1:] = x[:, :-1].clone().flip(1)
        x[flow.tensor([0, 2], device="cuda")] = x[flow.tensor([2, 0], device="cuda")]
        assert x.tolist() == [[8, 10, 9, 8], [4, 6, 5, 4], [0, 2, 1, 0]]
        y = flow.arange(6.0, device="cuda").reshape(2, 3)
        flow.cumsum(y, 1, out=y)
        assert y.tolist() == [[0, 1, 3], [3, 7, 12]]


# Running results

RUNNING: dict[str, Function] = {
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(-1),
    "cummax": lambda x: tuple(x.cummax(0)),
    "cummin": lambda x: tuple(x.cummin(-1)),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
}


@pytest.mark.parametrize("part", [7, 1 << 13])
@pytest.mark.parametrize("name", RUNNING)
def test_running_results_of_lines_in_parts(name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "_PART", part)
    for shape in ((20, 33), (1, 200), (200, 1), (10, 1, 70)):
        with emulated("lazy"):
            expected, found = _both(RUNNING[name], [_numbers(5, shape, "float64")])
        for want, have in zip(expected, found, strict=True):
            equal(have, want)


def test_running_extrema_of_nan() -> None:
    numbers = np.array([[1, 3, np.nan, 5, np.nan, 7], [2, 2, 1, 2, np.inf, np.inf]])
    with emulated("lazy"):
        x = flow.tensor(numbers, device="cuda")
        assert x.cummax(1).indices.tolist() == [[0, 1, 2, 2, 4, 4], [0, 1, 1, 3, 4, 5]]
        assert x.cummin(1).indices.tolist() == [[0, 0, 2, 2, 4, 4], [0, 1, 2, 2, 2, 2]]


# Orders

# More elements than a block sorts.
LONG: Final = 1030

ORDERS: dict[str, Function] = {
    "argsort": lambda x: x.argsort(-1, stable=True),
    "argsort, descending": lambda x: x.T.argsort(0, descending=True, stable=True),
    "topk": lambda x: x.topk(2, -1).values,
    "median": lambda x: tuple(x.median(-1)),
    "kthvalue": lambda x: tuple(x.kthvalue(2, -1)),
    "mode": lambda x: tuple(x.mode(-1)),
    "unique": lambda x: x.unique(return_counts=True),
    "unique slices": lambda x: x[:, :4].unique(return_counts=True, dim=0),
    "searchsorted": lambda x: flow.searchsorted(x[0].sort().values, x),
    "isin": lambda x: flow.isin(x, x[0]),
}


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(dtype, (3, 7)) for dtype in ("bool", "int64", "bfloat16", "float32", "float64")]
    + [(dtype, (2, LONG)) for dtype in ("int8", "float32")],
    ids=str,
)
@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    numbers = _numbers(7, shape, "float64")
    with np.errstate(invalid="ignore"):
        numbers = np.where(np.random.default_rng(8).random(shape) < 0.05, np.nan if dtype in FLOATS else 0, numbers)
        if dtype in FLOATS:
            numbers.flat[:3] = [-0.0, np.inf, -np.inf]
        array = numbers.astype(by_name(dtype).numpy)
    with emulated("lazy"):
        expected, found = _both(lambda x: ORDERS[name](x.detach()), [array])
    for want, have in zip(expected, found, strict=True):
        assert have.dtype == want.dtype
        # numpy compares nan in its own dtypes alone.
        wide = "float32" if dtype == "bfloat16" and want.dtype.kind == "V" else want.dtype
        equal(have.astype(wide), want.astype(wide), exact=True)


@pytest.mark.parametrize("invert", [False, True])
def test_complex_numbers_among_others(invert: bool) -> None:
    numbers = np.array([[1 + 2j, 1 - 2j, 0], [np.nan, 1, 2j]])
    arrays = [numbers, np.array([1, 1 - 2j, np.nan, 7], "complex64")]
    with emulated("lazy"):
        expected, found = _both(lambda x, y: flow.isin(x, y, invert=invert), arrays)
    assert found[0].tolist() == expected[0].tolist()


COUNTS: dict[str, Function] = {
    "bincount": lambda x, i: i.bincount(minlength=9),
    "bincount of weights": lambda x, i: i.bincount(x[:, 0]),
    "histc": lambda x, i: x.histc(4),
    "histogram": lambda x, i: tuple(x.histogram(3, range=(-1.0, 1.5))),
    "histogram of one value": lambda x, i: tuple((x * 0).histogram(4)),
    "histogram of weights": lambda x, i: tuple(x.histogram(x[:3, 0].sort().values, weight=x * x)),
    "densities": lambda x, i: tuple(x.histogram(5, density=True)),
    "nonzero": lambda x, i: (x > 0).nonzero(),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i, 0),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    arrays = [_numbers(7, (60, 3), "float32"), np.random.default_rng(2).integers(0, 5, 60)]
    with emulated("lazy"):
        expected, found = _both(lambda x, i: COUNTS[name](x.detach(), i), arrays)
    for want, have in zip(expected, found, strict=True):
        equal(have, want)


# Launches

# So many for a contiguous operand, checks of indices included.
LAUNCHES: dict[str, tuple[int, Function]] = {
    "unfold": (1, lambda x, i: F.unfold(x, 2)),
    "fold": (1, lambda x, i: F.fold(x.reshape(2, 12, 4), 3, 2)),
    "max_pool2d": (1, lambda x, i: F.max_pool2d(x, 2)),
    "avg_pool2d": (1, lambda x, i: F.avg_pool2d(x, 2)),
    "adaptive_avg_pool2d": (1, lambda x, i: F.adaptive_avg_pool2d(x, 3)),
    "pad": (2, lambda x, i: F.pad(x, (1, 1))),
    "pad by reflection": (1, lambda x, i: F.pad(x, (1, 1, 1, 1), "reflect")),
    "nearest": (2, lambda x, i: F.interpolate(x, scale_factor=2)),
    "flip": (1, lambda x, i: x.flip(0, 1)),
    "roll": (1, lambda x, i: x.roll((1, 2), (0, 1))),
    "repeat": (1, lambda x, i: x.repeat(2, 1, 1, 1)),
    "tril": (1, lambda x, i: x.tril()),
    "cat": (2, lambda x, i: flow.cat([x, x], 1)),
    "index": (2, lambda x, i: x[i]),
    "index by two": (3, lambda x, i: x[i, i]),
    "gather": (2, lambda x, i: x.reshape(-1).gather(0, i)),
    "embedding": (2, lambda x, i: F.embedding(i, x.reshape(6, 16))),
    # The check, the places, and one digit of the keys; besides the copy of the changed array.
    "index_add": (4, lambda x, i: x.index_add(0, i, x)),
    "cumsum": (1, lambda x, i: x.cumsum(1)),
    "one_hot": (2, lambda x, i: F.one_hot(i, 3)),
    "argsort": (1, lambda x, i: x.argsort(-1)),
    "searchsorted": (1, lambda x, i: flow.searchsorted(i, i)),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches(name: str) -> None:
    count, function = LAUNCHES[name]
    with emulated("lazy") as devices:
        x = flow.arange(96.0, device="cuda").reshape(2, 3, 4, 4)
        i = flow.tensor([0, 1], device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        result = function(x, i)
        flow.synchronize()
        assert devices.driver.launches - before == count
        assert result.to("cpu").numel


# Empty arrays, and every dtype

NOTHING: dict[str, Function] = {
    "conv2d": lambda x, i: F.conv2d(x.reshape(0, 3, 4, 4), x.new_ones(2, 3, 2, 2)),
    "max_pool2d": lambda x, i: F.max_pool2d(x.reshape(0, 3, 4, 4), 2),
    "avg_pool2d": lambda x, i: F.avg_pool2d(x.reshape(0, 3, 4, 4), 2),
    "adaptive_avg_pool2d": lambda x, i: F.adaptive_avg_pool2d(x.reshape(0, 3, 4, 4), 3),
    "pad": lambda x, i: F.pad(x, (1, 2, 1, 1)),
    "pad by the border": lambda x, i: F.pad(x.reshape(0, 3, 4, 4), (1, 2, 1, 0), "replicate"),
    "bilinear": lambda x, i: F.interpolate(x.reshape(0, 3, 4, 4), scale_factor=2, mode="bilinear"),
    "unfold": lambda x, i: F.unfold(x.reshape(0, 3, 4, 4), 2),
    "index": lambda x, i: x.new_ones(3, 2)[i] + x.sum(),
    "index of an empty dimension": lambda x, i: x[i],
    "index_add": lambda x, i: x.new_ones(3, 2).index_add(0, i, x.reshape(0, 2)),
    "index_put": lambda x, i: _assigned(x.new_ones(3, 2), (i,), 5.0),
    "gather": lambda x, i: x.gather(0, i.reshape(0, 1)),
    "scatter": lambda x, i: x.new_ones(3, 2).scatter(0, i.reshape(0, 1), x[:, :1]),
    "embedding": lambda x, i: F.embedding(i, x.new_ones(3, 2)) + x.sum(),
    "cat": lambda x, i: flow.cat([x, x.new_ones(2, 6)]),
    "flip": lambda x, i: x.flip(0, 1),
    "roll": lambda x, i: x.roll(1, 0),
    "repeat": lambda x, i: x.repeat(2, 3),
    "repeat no times": lambda x, i: x.new_ones(2, 3).repeat(0, 1) + x.sum(),
    "tril": lambda x, i: x.tril(),
    "cumsum": lambda x, i: x.cumsum(0),
    "cumprod": lambda x, i: x.cumprod(1),
    "argsort": lambda x, i: x.detach().argsort(1),
    "unique": lambda x, i: x.detach().unique(return_inverse=True, return_counts=True),
    "searchsorted": lambda x, i: flow.searchsorted(x.detach().reshape(-1), x.new_ones(3).detach()),
    "isin": lambda x, i: flow.isin(x.new_ones(3).detach(), x.detach()),
    "bincount": lambda x, i: i.bincount(minlength=2),
    "nonzero": lambda x, i: x.detach().nonzero(),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i, 0),
}


@pytest.mark.parametrize("name", NOTHING)
def test_of_nothing(name: str) -> None:
    arrays = [np.zeros((0, 6)), np.zeros(0, np.int64)]
    with emulated("lazy"):
        expected, found = _both(NOTHING[name], arrays)
    for want, have in zip(expected, found, strict=True):
        equal(have, want, exact=True)


MOVED: dict[str, Function] = {
    "pad": lambda x, i: F.pad(x, (1, 2), value=1),
    "pad by reflection": lambda x, i: F.pad(x.reshape(1, 3, 4), (1, 2), "reflect"),
    "index": lambda x, i: x[i, i[0]],
    "index from the end": lambda x, i: x[i - 2],
    "index_put": lambda x, i: _assigned(x, (i,), x[i].flip(0)),
    "gather": lambda x, i: x.gather(0, i.long()),
    "scatter": lambda x, i: x.scatter(0, i.long(), x.flip(1)),
    "flip": lambda x, i: x.flip(0, 1),
    "roll": lambda x, i: x.roll((1, -3), (0, 1)),
    "repeat": lambda x, i: x.repeat(2, 1, 3),
    "triu": lambda x, i: x.triu(1),
    "diagonal": lambda x, i: flow.diag(x[0], 1),
    "cat": lambda x, i: flow.cat([x, x[:, :1]], 1),
    "strided": lambda x, i: (x.clone()).as_strided((3, 3), (2, 1), 1),
}


@pytest.mark.parametrize(("name", "dtype"), some_of(list(MOVED), DTYPES))
def test_moves_have_the_bits_of_every_dtype(name: str, dtype: str) -> None:
    with np.errstate(invalid="ignore"):
        numbers = (_numbers(3, (3, 4), "float64") * 5).astype(by_name(dtype).numpy)
    indices = np.random.default_rng(5).integers(0, 2, (3, 4)).astype("int16" if dtype == "bool" else "int32")
    with emulated("lazy"):
        expected, found = _both(lambda x, i: MOVED[name](x.detach(), i), [numbers, indices])
    for want, have in zip(expected, found, strict=True):
        equal(have, want, exact=True)


# All of them

CREATED: list[Function] = [
    lambda: flow.arange(7, device="cuda"),
    lambda: flow.arange(0.5, 4.0, 0.3, device="cuda", dtype=flow.float16),
    lambda: flow.linspace(-1.0, 2.0, 9, device="cuda"),
    lambda: flow.eye(3, 4, device="cuda"),
    lambda: flow.tril_indices(4, 3, -1, device="cuda"),
    lambda: flow.triu_indices(4, 3, 1, device="cuda"),
]

MOVES: list[Function] = [
    lambda x, i, y: x.scatter_reduce(0, i.reshape(-1, 1).expand(-1, 3), y, "mean"),
    lambda x, i, y: x.scatter_reduce(0, i.reshape(-1, 1).expand(-1, 3), y, "amax", include_self=False),
    lambda x, i, y: x.detach().scatter(0, i.reshape(-1, 1).expand(-1, 3), y.detach(), reduce="multiply"),
    lambda x, i, y: _assigned(x, (i,), y),
    lambda x, i, y: F.embedding(i, x.clone(), max_norm=0.5),
    lambda x, i, y: F.embedding(i, x.clone(), max_norm=0.5, norm_type=3.5),
    lambda x, i, y: F.embedding_bag(i.reshape(6, 10), x, mode="max"),
    lambda x, i, y: x.diagonal(0).sum() + x[1:3].sum() + x[:, ::2].sum(),
    lambda x, i, y: flow.cat([x, y]).flip(0).roll(1, 0).tril(1).repeat(2, 1),
    lambda x, i, y: x.repeat_interleave(i[:5], 0),
    lambda x, i, y: x[x > 0],
]


def _run_everything(dtype: str) -> None:
    """Run all ops of this file and their gradients on the device."""
    indices = np.random.default_rng(2).integers(0, 5, 60)
    tables = [_numbers(0, (5, 3), dtype), indices, _numbers(1, (60, 3), dtype)]
    cases = [(function, [_numbers(1, shape, dtype)]) for function, shape in IMAGES.values()]
    cases += [(function, tables) for function in (*SUMS.values(), *MOVES)]
    cases += [(function, tables[:1]) for function in RUNNING.values()]
    many = np.arange(300) % 5, _numbers(1, (300, 3), dtype)
    cases += [(function, [tables[0], *many]) for function in (SUMS["index_add"], SUMS["embedding by frequency"])]
    cases += [(lambda x, of=function: of(x.detach()), tables[:1]) for function in ORDERS.values()]
    cases += [(lambda x, i, of=function: of(x.detach(), i), [tables[2], indices]) for function in COUNTS.values()]
    cases.append((lambda x: F.adaptive_avg_pool2d(x, (3, 7)), [_numbers(1, (2, 3, 8, 5), dtype)]))
    for function, arrays in cases:
        _gradients(function, [flow.tensor(array, device="cuda") for array in arrays])
    for function in CREATED:
        function()
    flow.synchronize()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_no_op_calls_functions_of_the_array_module(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    call = EmulatedDriver.call

    def record(driver: EmulatedDriver, name: str, *arguments: Any) -> None:
        called.append(name)
        call(driver, name, *arguments)

    monkeypatch.setattr(EmulatedDriver, "call", record)
    with emulated("lazy"):
        _run_everything(dtype)
    assert called == []


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_kernels_compile_for_gpus_without_spills(dtype: str, architecture: int) -> None:
    with emulated("lazy"):
        _run_everything(dtype)
        kernels = loaded_kernels()
    check_usage(kernels, architecture)
