"""Gathering, indexing, joining, ordering, searching and updates on the device, against the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import optim
from vmflow.kernels.problems.updates import Clip
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_together

pytestmark = pytest.mark.emulated

NUMBERS = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
FLOATS = ("float16", "bfloat16", "float32", "float64")

# make(random generator, dtype, device) -> tensors of the same values on any device.
Operands = Callable[[np.random.Generator], Sequence[Any]]


def _array(random: np.random.Generator, dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    """Few different numbers, so that some are equal; among them signed zeros, infinities and NaN where there are."""
    kind = flow.dtypes.by_name(dtype).numpy
    values = random.integers(0, 5, shape).astype(np.float64)
    if dtype in FLOATS or dtype.startswith("complex"):
        values -= 2.0
        values = np.where(random.random(shape) < 0.1, -0.0, values)
    return np.asarray(values.astype(kind))


def _same(function: Callable[..., Any], arrays: Sequence[np.ndarray[Any, Any]], tolerance: float = 0.0) -> None:
    """The function of tensors gives the same on the device as on the host."""
    host = function(*[flow.tensor(array, device="cpu") for array in arrays])
    device = function(*[flow.tensor(array, device="cuda") for array in arrays])
    pairs = zip(host, device, strict=True) if isinstance(host, tuple) else [(host, device)]
    for expected, found in pairs:
        assert found.device.type == "cuda"
        assert found.dtype is expected.dtype
        _close(found.cpu(), expected, tolerance)


def _close(found: flow.Tensor, expected: flow.Tensor, tolerance: float) -> None:
    left, right = found.numpy(), expected.numpy()
    assert left.shape == right.shape
    if tolerance or left.dtype.kind == "V":
        np.testing.assert_allclose(left.astype(np.float64), right.astype(np.float64), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(left, right)
        if left.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(left), np.signbit(right))


# Moves of elements: exact for every dtype

MOVES: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: x.gather(1, i),
    "gather of fewer rows": lambda x, i: x.gather(0, i[:2, :3] % 3),
    "scatter": lambda x, i: x.scatter(1, i[:, :1], x),
    "slices": lambda x, i: flow.cat([x[:, 1:3], x[:, ::2], x], 1),
    "index": lambda x, i: x[i % 3],
    "index by two": lambda x, i: x[i % 3, -1 - i],
    "index by separated ones": lambda x, i: x.reshape(3, 2, 2)[i % 3, :, i % 2],
    "index without dimensions": lambda x, i: x.reshape(3, 2, 2)[i[0, 0] % 3, :, i % 2],
    "index_select": lambda x, i: x.index_select(1, i[0]),
    "index_put": lambda x, i: x.index_put((flow.arange(3, device=x.device), i[:, 0]), x[:, 1]),
    "index_put by a grid": lambda x, i: _assigned(x, (i[:2, :1] % 3, i[0]), 1),
    "index_put by separated ones": lambda x, i: _assigned(x.reshape(3, 2, 2), (i[:, 0] % 3, slice(None), 0), 1),
    "index_put without dimensions": lambda x, i: _assigned(x, (i[0, 0] % 3,), 1),
    "index_put through a view": lambda x, i: _assigned(x.T, (i[0],), 1),
    "strided_put": lambda x, i: _assigned(x, (slice(None), slice(0, 4, 2)), 1),
    "as_strided": lambda x, i: x.as_strided((3, 3), (2, 1), 1),
    "nonzero": lambda x, i: x.nonzero(),
    "nonzero by dimension": lambda x, i: x.nonzero(as_tuple=True),
    "mask": lambda x, i: x[x != 0],
    "repeat": lambda x, i: x.repeat(2, 1, 3),
    "repeat_interleave": lambda x, i: x.repeat_interleave(i[0], 1),
    "flip": lambda x, i: x.flip(0, 1),
    "roll": lambda x, i: x.roll((1, -3), (0, 1)),
    "tril": lambda x, i: x.tril(1),
    "triu": lambda x, i: x.triu(-1),
    "triu of none": lambda x, i: x[:, :0].triu(),
    "argsort": lambda x, i: x.argsort(1, stable=True),
    "argsort, descending": lambda x, i: x.argsort(0, descending=True, stable=True),
    "topk": lambda x, i: x.topk(2, 1),
    "smallest": lambda x, i: x.topk(2, 0, largest=False),
    "sort of no dimensions": lambda x, i: x[0, 0].sort(),
    "unique": lambda x, i: x.unique(return_inverse=True, return_counts=True),
    "unique slices": lambda x, i: x.unique(return_inverse=True, return_counts=True, dim=1),
    "unique neighbours": lambda x, i: x.unique_consecutive(return_inverse=True, return_counts=True),
    "unique of none": lambda x, i: x[:0].unique(return_inverse=True, return_counts=True),
    "searchsorted": lambda x, i: flow.searchsorted(x[0].sort().values, x),
    "searchsorted of rows": lambda x, i: flow.searchsorted(x.sort(1).values, x, right=True),
    "isin": lambda x, i: flow.isin(x, x[0, :2]),
    "not isin": lambda x, i: flow.isin(x, x[0, :2], invert=True),
    "one_hot": lambda x, i: flow.nn.functional.one_hot(i, 4),
    "bincount": lambda x, i: i.reshape(-1).bincount(minlength=6),
}


def _assigned(tensor: flow.Tensor, index: Any, value: Any) -> flow.Tensor:
    changed = tensor.clone()
    changed[index] = value
    return changed


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", MOVES)
def test_moves_and_orders(name: str, dtype: str) -> None:
    random = np.random.default_rng(len(name))
    _same(MOVES[name], (_array(random, dtype, 3, 4), random.integers(0, 4, (3, 4))))


REAL: dict[str, Callable[..., Any]] = {
    "mode": lambda x, i: x.mode(1),
    "median": lambda x, i: x.median(0),
    "kthvalue": lambda x, i: x.kthvalue(2, 1),
    "histc": lambda x, i: x.histc(4),
    "histogram": lambda x, i: x.reshape(-1).histogram(3, range=(-1.0, 1.5)),
    "histogram of weights": lambda x, i: x.histogram(x[0].sort().values, weight=x),
    "sort with NaN": lambda x, i: flow.cat([x, x[:1] / 0], 0).argsort(0, stable=True),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REAL)
def test_orders_of_floating_point(name: str, dtype: str) -> None:
    random = np.random.default_rng(len(name))
    _same(REAL[name], (_array(random, dtype, 3, 4), random.integers(0, 4, (3, 4))), 1e-6)


# Sums at places, where several elements meet

REDUCTIONS = [(how, include) for how in ("sum", "prod", "mean", "amax", "amin") for include in (True, False)]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize(("how", "include_self"), REDUCTIONS)
def test_reductions_at_places(how: str, include_self: bool, dtype: str) -> None:
    random = np.random.default_rng(3)
    operands = _array(random, dtype, 4, 3), random.integers(0, 4, (5, 3)), _array(random, dtype, 5, 3)
    _same(lambda x, i, y: x.scatter_reduce(0, i, y, how, include_self=include_self), operands, 1e-2)


@pytest.mark.parametrize("dtype", ["int8", "int64", "bfloat16", "float32", "complex64"])
def test_sums_at_places(dtype: str) -> None:
    random = np.random.default_rng(4)
    operands = _array(random, dtype, 3, 4), random.integers(0, 3, (5, 4)), _array(random, dtype, 5, 4)
    _same(lambda x, i, y: x.scatter_add(0, i, y), operands)
    _same(lambda x, i, y: x.scatter(0, i, y, reduce="multiply"), operands)
    _same(lambda x, i, y: x.index_add(0, i[:, 0], y), operands)
    _same(lambda x, i, y: x.index_put((i[:, 0], i[:, 1]), y[:, 0], accumulate=True), operands)
    _same(lambda x, i, y: x.index_put((i[:, :1], i[:4, 1]), y[:, :4], accumulate=True), operands)


def test_a_reduction_of_many_elements_in_few_places() -> None:
    random = np.random.default_rng(5)
    values = random.standard_normal(1000).astype(np.float32)
    values[17] = np.nan
    operands = np.zeros(7, np.float32), random.integers(0, 7, 1000), values
    for how in ("amax", "amin", "prod", "sum"):
        _same(lambda x, i, y, how=how: x.scatter_reduce(0, i, y, how), operands, 1e-5)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x, i: x.gather(0, i + 3), IndexError, "gather: index 3 is out of range for dimension 0 of size 3"),
        (lambda x, i: x.scatter(0, i - 1, x), IndexError, "scatter: index -1 is out of range"),
        (lambda x, i: x[i - 4], IndexError, "index -4 is out of bounds for axis 0 with size 3"),
        (lambda x, i: x.index_put((i + 3,), x[0]), IndexError, "index 3 is out of bounds"),
        (
            lambda x, i: flow.nn.functional.one_hot(i + 4, 4),
            ValueError,
            "4 among them, are not all classes",
        ),
        (lambda x, i: (i[0] - 1).bincount(), ValueError, "cannot be negative, got -1"),
        (lambda x, i: (x / 0).histc(3), ValueError, "the elements' range is not finite"),
        (lambda x, i: x.histogram(-x[0].cumsum(0)).hist, ValueError, "of the bins is less than the one before"),
        (lambda x, i: x.repeat_interleave(i[0] - 1, 1), ValueError, "not negative, got -1 at 0"),
    ],
)
def test_wrong_indices_are_told_of(function: Callable[..., Any], error: type[Exception], message: str) -> None:
    x, i = flow.ones(3, 4, device="cuda"), flow.zeros(3, 4, dtype=flow.int64, device="cuda")
    with pytest.raises(error, match=message):
        function(x, i).numpy()


# Updates

OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3),
    "Nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "rate on the device": lambda p: optim.SGD(p, flow.tensor(0.1, device=p[0].device), momentum=0.5),
    "Adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, 0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.1, weight_decay=0.1),
    "NAdam": lambda p: optim.NAdam(p, 0.1),
    "RAdam": lambda p: optim.RAdam(p, 0.1),
    "Adamax": lambda p: optim.Adamax(p, 0.1),
    "LAMB": lambda p: optim.LAMB(p, 0.1, weight_decay=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1, lr_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 1.0),
    "RMSprop": lambda p: optim.RMSprop(p, 0.1, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p, 0.1),
}


def _trajectory(name: str, device: str, dtype: str, skipped: Sequence[int]) -> flow.Tensor:
    """A parameter after eight steps, of which some turn out to be skipped when they run."""
    random = np.random.default_rng(6)
    kind = flow.dtypes.by_name(dtype).numpy
    parameter = flow.tensor(random.standard_normal((3, 5)).astype(kind), device=device).requires_grad_()
    optimizer = OPTIMIZERS[name]([parameter])
    for step in range(8):
        parameter.grad = flow.tensor(random.standard_normal((3, 5)).astype(kind), device=device)
        if skipped:
            optimizer.step_unless(flow.tensor(float(step in skipped), device=device))
        else:
            optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("skipped", [(), (0, 1, 4)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12), ("bfloat16", 0.05)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers(name: str, dtype: str, tolerance: float, skipped: Sequence[int]) -> None:
    expected = _trajectory(name, "cpu", dtype, skipped)
    _close(_trajectory(name, "cuda", dtype, skipped).cpu(), expected, tolerance)


def test_a_first_step_that_is_skipped_is_no_first_step() -> None:
    """With dampening, the first gradient is taken whole; also if steps follow that cannot be skipped."""
    ends = []
    for device in ("cpu", "cuda"):
        parameter = flow.zeros(2, device=device, requires_grad=True)
        optimizer = optim.SGD([parameter], 1.0, momentum=0.5, dampening=0.5)
        for skip in (1.0, None, 0.0):
            parameter.grad = flow.ones(2, device=device)
            if skip is None:
                optimizer.step()
            else:
                optimizer.step_unless(flow.tensor(skip, device=device))
        ends.append(parameter.detach().cpu().tolist())
    assert ends[0] == ends[1] == [-2.0, -2.0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_several_updates_are_skipped_together(device: str) -> None:
    tensors = [flow.tensor([3.0, -3.0], device=device) for _ in range(2)]
    clip = choose_update("clip", tensors[0].device).kernel(Clip(1.0))
    for skip, expected in ((1.0, [3.0, -3.0]), (0.0, [1.0, -1.0])):
        updates = [Update("clip", clip, (), [tensor], 1) for tensor in tensors]
        issue_together(updates, flow.tensor(skip, device=device))
        assert [tensor.tolist() for tensor in tensors] == [expected, expected]


@pytest.mark.parametrize("order", [1.0, 2.0, 3.5, float("inf")])
def test_norms_of_gradients_are_limited(order: float) -> None:
    def limited(first: flow.Tensor, second: flow.Tensor) -> tuple[flow.Tensor, ...]:
        parameters = [flow.zeros_like(tensor).requires_grad_() for tensor in (first, second)]
        for parameter, gradient in zip(parameters, (first, second), strict=True):
            parameter.grad = gradient.clone()
        norm = flow.nn.utils.clip_grad_norm_(parameters, 1.5, order)
        return norm, *[parameter.grad for parameter in parameters if parameter.grad is not None]

    random = np.random.default_rng(7)
    operands = random.standard_normal((3, 4)).astype(np.float32), random.standard_normal(5).astype(np.float32)
    _same(limited, operands, 1e-6)


@pytest.mark.parametrize("gradients", [(1.0, 2.0, 3.0), (1.0, float("inf"), 3.0), (float("nan"), 1.0, 1.0)])
def test_a_scaler_skips_steps_and_adapts(gradients: Sequence[float]) -> None:
    results = []
    for device in ("cpu", "cuda"):
        parameter = flow.ones(2, device=device, requires_grad=True)
        optimizer = optim.Adam([parameter], 0.1)
        scaler = flow.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
        scales = []
        for gradient in gradients:
            scaler.scale(parameter.sum()).backward()
            assert parameter.grad is not None
            parameter.grad = parameter.grad * gradient
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        results.append((scales, np.round(parameter.detach().cpu().numpy(), 5).tolist()))
    assert results[0] == results[1]


def test_running_averages_of_weights() -> None:
    ends = []
    for device in ("cpu", "cuda"):
        weight = flow.nn.Parameter(flow.ones(3, device=device))
        averaged = optim.swa_utils.AveragedModel(flow.nn.ParameterList([weight]))
        for value in (1.0, 3.0, 8.0):
            averaged.update_parameters(
                flow.nn.ParameterList([flow.nn.Parameter(flow.full((3,), value, device=device))])
            )
        ends.append([parameter.detach().cpu().tolist() for parameter in averaged.parameters()])
    assert ends[0] == ends[1] == [[4.0, 4.0, 4.0]]
