"""Kernels that go through rows and channels: losses of classes, normalization, places of extrema, and attention."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import interpreter
from vmflow.nn import functional as F
from vmflow.ops.table import OPS

from .comparing import compare, equal, on_cpu, results, values
from .compiling import ARCHITECTURES, loaded_kernels, usage
from .emulated import emulated

pytestmark = pytest.mark.emulated


def _run(op: str, tensors: tuple[flow.Tensor, ...], attributes: Any = (), scalars: tuple[Any, ...] = ()) -> Any:
    return interpreter.dispatch_several(OPS[op], tensors, attributes, scalars)


# Losses of class indices: ignored class, reduction, smoothing


class _Options(NamedTuple):
    """As the ops have them."""

    ignored: int = -100
    reduction: str = "mean"
    smoothing: float = 0.0


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_may_be_of_any_integers(dtype: str, reduction: str) -> None:
    scores, target = values(0, (5, 3), "float32"), on_cpu(np.array([2, 0, 1, 1, 2], dtype))
    for op in ("nll_loss", "cross_entropy"):
        compare(op, (scores, target), _Options(1, reduction))


@pytest.mark.parametrize("op", ["nll_loss", "cross_entropy"])
@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (3,), (0, 3, 2)])
def test_losses_of_no_rows_and_of_one(shape: tuple[int, ...], op: str) -> None:
    target = on_cpu(np.ones(shape[:1] + shape[2:] if len(shape) > 1 else (), np.int64))
    for reduction in ("sum", "none"):
        compare(op, (values(0, shape, "float32"), target), _Options(reduction=reduction))
    (loss, *_) = results(
        op, (values(0, (0, 3), "float32").to("cuda"), on_cpu(np.ones(0, int)).to("cuda")), _Options(), ()
    )
    assert np.isnan(loss)


def test_a_row_that_does_not_count_may_be_nan() -> None:
    scores = on_cpu(np.array([[np.nan, 1.0], [0.5, 2.0]], np.float32))
    for op in ("nll_loss", "cross_entropy"):
        for reduction in ("mean", "none"):
            compare(op, (scores, on_cpu([1, 0])), _Options(1, reduction))


@pytest.mark.parametrize("laid", ["apart", "transposed"])
def test_scores_and_classes_lie_as_they_like(laid: str) -> None:
    scores, target = values(0, (4, 3, 5), "float32"), on_cpu(np.arange(20).reshape(4, 5) % 3)
    if laid == "apart":
        given = [flow.stack([it, it], -1).to("cuda")[..., 1] for it in (scores, target)]
    else:
        given = [it.transpose(0, -1).contiguous().to("cuda").transpose(0, -1) for it in (scores, target)]
    for op in ("nll_loss", "cross_entropy"):
        expected = results(op, (scores, target), _Options(), ())
        for have, want in zip(results(op, tuple(given), _Options(), ()), expected, strict=True):
            equal(have, want)


@pytest.mark.parametrize("wrong", [3, -1])
@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
def test_a_class_that_does_not_exist_is_reported(loss: Any, wrong: int) -> None:
    scores, target = values(0, (4, 3), "float32").to("cuda"), on_cpu([0, wrong, 2, 1]).to("cuda")
    with pytest.raises(IndexError, match=f"{loss.__name__}: class index {wrong} is out of range for 3 classes"):
        loss(scores, target).item()
    assert np.isfinite(loss(scores, target, ignore_index=wrong).item())


def test_many_losses_are_added_up_in_parts() -> None:
    target = on_cpu(np.arange(40000) % 2)
    logs = values(0, (40000, 2), "float64")
    for reduction in ("mean", "sum"):
        compare("nll_loss", (logs, target), _Options(reduction=reduction))


def test_a_loss_is_two_launches_and_its_gradient_one() -> None:
    with emulated("lazy") as devices:
        scores = flow.rand(6, 5, device="cuda").requires_grad_()
        target = flow.tensor([0, 1, 2, 3, 4, 0], device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        loss = F.cross_entropy(scores, target)
        flow.synchronize()
        assert devices.driver.launches == before + 2
        one = flow.ones((), device="cuda")
        flow.synchronize()
        before = devices.driver.launches
        loss.backward(one)
        flow.synchronize()
        assert devices.driver.launches == before + 1


def _exercise_losses() -> None:
    target = flow.tensor([0, 1, 2, 0], device="cuda")
    for dtype in (flow.float32, flow.float64, flow.bfloat16):
        scores = values(0, (4, 3), "float32").to("cuda").to(dtype).requires_grad_()
        weight = flow.ones(3, device="cuda", dtype=dtype)
        for loss in (F.nll_loss, partial(F.cross_entropy, label_smoothing=0.1), F.cross_entropy):
            for reduction in ("mean", "none"):
                found = loss(scores, target, weight, reduction=reduction)
                found.sum().backward()


@pytest.mark.slow
def test_kernels_need_few_registers() -> None:
    with emulated("lazy"):
        _exercise_losses()
        flow.synchronize()
        kernels = loaded_kernels()
    assert kernels
    for kernel in kernels:
        for architecture in ARCHITECTURES:
            found = usage(kernel, architecture)
            assert not found.spilled, kernel.name
            assert found.registers <= 64, (kernel.name, architecture, found)
