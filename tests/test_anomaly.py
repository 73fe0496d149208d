"""`detect_anomaly`: which op made nan or inf out of finite numbers, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import vmflow as flow
from tests.vm.gates import in_thread, line_of
from vmflow import nn, optim
from vmflow.anomaly import is_anomaly_enabled
from vmflow.vm.virtual_machine import VirtualMachine

NAN, INF = float("nan"), float("inf")


def zeros() -> flow.Tensor:
    return flow.zeros(3)


def gradient_of(tensor: flow.Tensor) -> flow.Tensor:
    assert tensor.grad is not None
    return tensor.grad


def test_it_is_off_by_default() -> None:
    assert not is_anomaly_enabled()
    result = zeros().log()
    assert result.tolist() == [-INF] * 3


# Ops that are found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zeros().log(), "log made inf out of finite numbers"),
        (lambda: 1 / zeros(), "inf out of finite numbers"),
        (lambda: (zeros() - 1).sqrt(), "sqrt made nan out of finite numbers"),
        (lambda: zeros() / zeros(), "div made nan out of finite numbers"),
        (lambda: flow.tensor([1.0, 0.0]) / flow.tensor([0.0, 0.0]), "div made nan out of finite numbers"),
        (lambda: flow.full((3,), 3e38) * 10, "made inf out of finite numbers"),
        (lambda: flow.full((3,), 100.0).exp(), "exp made inf"),
        (lambda: flow.full((64, 64), 1e20) @ flow.full((64, 64), 1e20), "matmul made inf"),
        (lambda: flow.full((1000,), 1e36).sum(), "sum made inf"),
    ],
)
def test_the_op_is_named(make: Callable[[], flow.Tensor], message: str) -> None:
    with flow.detect_anomaly():
        result = make()
    with pytest.raises(flow.AnomalyDetected, match=message) as caught:
        result.tolist()
    assert isinstance(caught.value, FloatingPointError)


def test_notes_name_shapes_line_and_module() -> None:
    class Broken(nn.Module):
        """Takes the logarithm of nothing."""

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return (x * 0).log()  # the line

    model = nn.Sequential(nn.Linear(2, 3), Broken())
    with flow.detect_anomaly():
        result = model(flow.ones(4, 2))
    with pytest.raises(flow.AnomalyDetected) as caught:
        (result + 1).detach().numpy()
    assert caught.value.__notes__ == [
        f"while running log(float32[4, 3]) -> float32[4, 3] on {result.device}",
        f"issued at {__file__}:{line_of('the line', __file__)}, in forward",
        "in module 1 (Broken) of Sequential",
    ]


def test_an_op_is_checked_where_it_was_issued() -> None:
    """Not where it runs, or where its result is looked at."""
    before = zeros().log()
    with flow.detect_anomaly():
        inside = zeros().log()
        assert before.tolist() == [-INF] * 3
    after = zeros().log()
    with pytest.raises(flow.AnomalyDetected):
        inside.tolist()
    assert after.tolist() == [-INF] * 3


def test_in_place_ops() -> None:
    x = zeros()
    with flow.detect_anomaly():
        x.sub_(1)
        x.sqrt_()
    with pytest.raises(flow.AnomalyDetected, match="made nan"):
        x.tolist()
    x.fill_(4)
    with flow.detect_anomaly():
        x.sqrt_()
    assert x.tolist() == [2.0] * 3


def test_in_place_ops_on_a_part() -> None:
    x = flow.ones(4)
    with flow.detect_anomaly():
        x[:2].mul_(0)
        x[:2].log_()
    with pytest.raises(flow.AnomalyDetected, match="made inf"):
        x.tolist()


def test_a_result_that_does_not_fit_a_smaller_dtype() -> None:
    x = flow.zeros(2, dtype=flow.float16)
    with flow.detect_anomaly():
        x.copy_(flow.full((2,), 1e6))
    with pytest.raises(flow.AnomalyDetected):
        x.tolist()
    with flow.detect_anomaly():
        y = flow.full((2,), 1e6).to(flow.float16)
    with pytest.raises(flow.AnomalyDetected):
        y.tolist()


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16, flow.float32, flow.float64])
def test_every_floating_dtype(dtype: flow.dtype) -> None:
    with flow.detect_anomaly():
        good = flow.ones(3, dtype=dtype) + 1
        bad = flow.zeros(3, dtype=dtype).log()
        worse = (flow.zeros(3, dtype=dtype) - 1).sqrt()
    assert good.tolist() == [2.0] * 3
    with pytest.raises(flow.AnomalyDetected, match="log made inf"):
        bad.tolist()
    with pytest.raises(flow.AnomalyDetected, match="sqrt made nan"):
        worse.tolist()


@pytest.mark.parametrize("dtype", [flow.complex64, flow.complex128])
def test_complex_dtypes(dtype: flow.dtype) -> None:
    x = flow.tensor([1 + 2j, 0j], dtype=dtype)
    with flow.detect_anomaly():
        good = x * x
        bad = x / x
    assert good.tolist() == [(1 + 2j) ** 2, 0j]
    with pytest.raises(flow.AnomalyDetected, match="div made nan"):
        bad.tolist()


def test_several_results() -> None:
    x = flow.full((2, 4), 1e30, dtype=flow.float32)
    with flow.detect_anomaly():
        variance, mean = flow.var_mean(x * flow.tensor([1.0, -1.0, 1.0, -1.0]))
    with pytest.raises(flow.AnomalyDetected, match="inf"):
        (variance + mean).tolist()


# Ops that pass


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_operands_that_are_not_finite_already(value: float) -> None:
    x = flow.tensor([value, 1.0])
    with flow.detect_anomaly():
        y = (x * 2).log() + x
        x.add_(1)
    assert len(y.tolist()) == 2
    assert len(x.tolist()) == 2


def test_scalars_that_are_not_finite() -> None:
    x = flow.ones(2)
    with flow.detect_anomaly():
        assert (x * INF).tolist() == [INF] * 2
        assert x.fill_(-INF).tolist() == [-INF] * 2
        assert flow.full((2,), INF).tolist() == [INF] * 2
        assert flow.tensor([INF]).tolist() == [INF]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.masked_fill(x > 0, -INF),
        lambda x: flow.where(x > 0, x, flow.full_like(x, -INF)),
        lambda x: flow.where(x > 0, x, -INF),
        lambda x: x.clamp(max=INF),
        lambda x: x.clamp(min=-INF),
        lambda x: nn.functional.pad(x, (1, 1), value=-INF),
        lambda x: flow.full_like(x, NAN),
    ],
    ids=["masked_fill", "where", "where with a number", "clamp", "clamp from below", "pad", "full_like"],
)
def test_numbers_that_the_program_gave(make: Callable[[flow.Tensor], flow.Tensor]) -> None:
    x = flow.tensor([[1.0, -1.0], [0.0, 2.0]])
    with flow.detect_anomaly():
        result = make(x)
    result.tolist()


def test_attention_with_a_mask() -> None:
    """Minus infinity goes into softmax, and finite numbers come out."""
    scores = flow.randn(2, 4, 4)
    with flow.detect_anomaly():
        mask = flow.triu(flow.ones(4, 4), 1).bool()
        weights = scores.masked_fill(mask, -INF).softmax(-1)
    assert weights.isfinite().all().item()


def test_memory_that_nothing_was_written_to() -> None:
    """Uninitialised memory may hold nan, which no op has computed."""
    with flow.detect_anomaly():
        for device in ("cpu", "sim:8"):
            for _ in range(3):
                flow.full((100_000,), NAN, device=device).tolist()
                assert len(flow.empty(100_000, device=device).tolist()) == 100_000


def test_integers_and_booleans() -> None:
    with flow.detect_anomaly():
        assert (flow.arange(4) * 2).tolist() == [0, 2, 4, 6]
        assert (flow.arange(4) > 1).tolist() == [False, False, True, True]
        assert flow.tensor([INF, 1.0]).isinf().tolist() == [True, False]


def test_an_op_that_removes_nan_passes() -> None:
    with flow.detect_anomaly():
        assert flow.nan_to_num(flow.tensor([NAN, 2.0])).tolist() == [0.0, 2.0]


def test_a_failed_operand_keeps_its_own_exception() -> None:
    with flow.detect_anomaly():
        bad = zeros().log()
        worse = (bad * 0).sqrt()
    with pytest.raises(flow.AnomalyDetected, match="log made inf"):
        worse.tolist()


# Backward


def test_forward_that_is_fine_and_a_gradient_that_is_not() -> None:
    x = flow.zeros(3, requires_grad=True)
    with flow.detect_anomaly():
        y = x.sqrt().sum()
        assert y.item() == 0.0
        y.backward()
    with pytest.raises(flow.AnomalyDetected, match="inf out of finite") as caught:
        gradient_of(x).tolist()
    assert __file__ in caught.value.__notes__[1]


def test_it_is_the_backward_pass_that_must_be_within() -> None:
    x = flow.zeros(3, requires_grad=True)
    with flow.detect_anomaly():
        y = x.sqrt().sum()
    y.backward()
    assert gradient_of(x).tolist() == [INF] * 3
    x.grad = None
    z = x.sqrt().sum()
    with flow.detect_anomaly():
        z.backward()
    with pytest.raises(flow.AnomalyDetected):
        gradient_of(x).tolist()


def test_training_goes_on_as_without() -> None:
    def trained(checked: bool) -> list[list[float]]:
        flow.manual_seed(3)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(), nn.Linear(32, 3))
        optimizer = optim.Adam(model.parameters(), lr=0.01)
        inputs, targets = flow.randn(4, 1, 6, 6), flow.tensor([0, 1, 2, 0])
        with flow.detect_anomaly(checked):
            for _ in range(3):
                optimizer.zero_grad()
                nn.functional.cross_entropy(nn.functional.dropout(model(inputs), 0.1), targets).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        return [parameter.detach().reshape(-1).tolist() for parameter in model.parameters()]

    assert trained(True) == trained(False)


# Where it is on


def test_blocks_nest() -> None:
    checker = flow.detect_anomaly()
    with checker:
        assert is_anomaly_enabled()
        with flow.detect_anomaly(False):
            assert not is_anomaly_enabled()
            assert zeros().log().tolist() == [-INF] * 3
            with checker:
                assert is_anomaly_enabled()
            assert not is_anomaly_enabled()
        assert is_anomaly_enabled()
        with pytest.raises(flow.AnomalyDetected):
            zeros().log().tolist()
    assert not is_anomaly_enabled()


def test_leaving_by_an_exception() -> None:
    with pytest.raises(ValueError, match="on purpose"), flow.detect_anomaly():
        raise ValueError("on purpose")
    assert not is_anomaly_enabled()


def test_switching_it_on_and_off() -> None:
    flow.set_detect_anomaly(True)
    try:
        bad = zeros().log()
        with flow.detect_anomaly(False):
            pass
        assert is_anomaly_enabled()
    finally:
        flow.set_detect_anomaly(False)
    assert not is_anomaly_enabled()
    with pytest.raises(flow.AnomalyDetected):
        bad.tolist()


async def test_tasks_and_threads_do_not_share_it() -> None:
    both = asyncio.Barrier(2)

    async def checked() -> None:
        with flow.detect_anomaly():
            await both.wait()
            assert is_anomaly_enabled()
            assert await asyncio.to_thread(is_anomaly_enabled)
            assert not in_thread(is_anomaly_enabled)
            with pytest.raises(flow.AnomalyDetected):
                await zeros().log()

    async def unchecked() -> None:
        await both.wait()
        assert not is_anomaly_enabled()
        assert (await zeros().log()).tolist() == [-INF] * 3

    await asyncio.gather(checked(), unchecked())
    assert not is_anomaly_enabled()


@pytest.mark.parametrize("worker", ["never", "always"])
async def test_on_a_worker_and_with_scopes(worker: str) -> None:
    async with VirtualMachine(cpu_worker=worker):
        with flow.detect_anomaly(), flow.scope(priority=1):
            good = flow.ones(3) * 2
            bad = zeros().log() + 1
        results = await asyncio.gather(good, bad, return_exceptions=True)
    assert results[0] is good
    assert isinstance(results[1], flow.AnomalyDetected)
