"""Errors: those raised at the call, the results that a failed kernel spoils, and the notes of its exception."""

from __future__ import annotations

import asyncio
import gc
import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import vmflow as flow
from vmflow.vm.virtual_machine import VirtualMachine, default_machine


def failing() -> flow.Tensor:
    """A tensor whose kernel fails: the index is looked at only when the op runs."""
    return flow.gather(flow.ones(3), 0, flow.tensor([7]))


@pytest.mark.host
def test_errors_that_inference_finds_are_raised_at_the_call() -> None:
    issued = default_machine().engine.total_inserted + len(default_machine().engine.pending)
    with pytest.raises(ValueError, match=r"add: shapes \[2\] and \[3\] do not broadcast"):
        flow.ones_like(flow.tensor([1.0, 2.0])) + flow.tensor([1.0, 2.0, 3.0])
    x = flow.tensor([[1.0]])
    issued = default_machine().engine.total_inserted + len(default_machine().engine.pending)
    with pytest.raises(ValueError, match=r"matmul: shapes \[1, 1\] and \[2\] do not fit"):
        x @ flow.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="matmul: expected one dtype, got float32 and int64"):
        x @ flow.tensor([[1]])
    assert default_machine().engine.total_inserted + len(default_machine().engine.pending) == issued + 0


def test_the_original_exception_with_op_shapes_and_line() -> None:
    x = flow.ones(3)
    bad = flow.gather(x, 0, flow.tensor([7]))  # this line
    with pytest.raises(IndexError, match="7") as caught:
        bad.numpy()
    notes = "\n".join(caught.value.__notes__)
    assert f"while running gather(float32[3], int64[1]) -> float32[1] on {x.device}" in notes
    assert f"issued at {__file__}:" in notes
    assert "test_the_original_exception_with_op_shapes_and_line" in notes
    with open(__file__) as source:
        line = next(number for number, text in enumerate(source, 1) if text.rstrip().endswith("# this line"))
    assert f":{line}, in" in notes


def test_dependents_carry_the_same_exception() -> None:
    bad = failing()
    later = (bad * 2 + flow.ones(1)).sum()
    view = later.reshape(1, 1)
    with pytest.raises(IndexError) as first:
        later.item()
    with pytest.raises(IndexError) as second:
        view.tolist()
    assert first.value is second.value
    assert len(first.value.__notes__) == 2


def test_the_traceback_does_not_grow() -> None:
    bad = failing()
    lengths: list[int] = []
    for _ in range(3):
        with pytest.raises(IndexError) as caught:
            bad.numpy()
        lengths.append(len(caught.traceback))
    assert lengths[0] == lengths[1] == lengths[2]


def test_unrelated_work_goes_on() -> None:
    good = flow.ones(2)
    bad = failing()
    good = good + 1
    with pytest.raises(IndexError):
        bad.numpy()
    assert (good + 1).tolist() == [3.0, 3.0]


async def test_awaiting_raises() -> None:
    bad = failing() + 1
    good = flow.ones(1) + 1
    with pytest.raises(IndexError):
        await bad
    with pytest.raises(IndexError):
        await bad
    assert (await good).tolist() == [2.0]


async def test_on_a_worker() -> None:
    async with VirtualMachine(cpu_worker="always"):
        bad = failing() * 2
        results = await asyncio.gather(bad, flow.ones(1) + 1, return_exceptions=True)
        assert isinstance(results[0], IndexError)
        assert isinstance(results[1], flow.Tensor)
        assert results[1].tolist() == [2.0]


def test_an_in_place_op_on_a_poisoned_tensor_keeps_it_poisoned() -> None:
    bad = failing()
    bad.add_(1)
    with pytest.raises(IndexError):
        bad.numpy()


def test_writing_all_of_a_poisoned_tensor_mends_it() -> None:
    bad = failing()
    with pytest.raises(IndexError):
        bad.numpy()
    bad.fill_(3)
    assert bad.tolist() == [3.0]


def test_backward_through_a_failure() -> None:
    x = flow.ones(3, requires_grad=True)
    flow.gather(x * 2, 0, flow.tensor([9])).sum().backward()
    assert x.grad is not None
    with pytest.raises(IndexError):
        x.grad.numpy()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


def test_an_unseen_failure_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "vmflow"):
        bad = failing()
        worse = bad + 1
        flow.synchronize()
        del bad, worse
        flow.synchronize()
        gc.collect()
    assert len(caplog.records) == 1
    assert "never looked at" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is not None
    assert isinstance(caplog.records[0].exc_info[1], IndexError)


def test_a_failure_that_was_seen_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "vmflow"):
        bad = failing()
        worse = bad + 1
        with pytest.raises(IndexError):
            worse.item()
        del bad, worse
        flow.synchronize()
        gc.collect()
    assert caplog.records == []


def test_nan_and_inf_are_values_and_no_warnings() -> None:
    x = flow.tensor([0.0, -1.0, 1.0])
    result = (1 / x, x.log(), (x * 1e38) * 1e38, (x - 1e30).exp())
    np.testing.assert_array_equal(result[0].numpy(), [np.inf, -1, 1])
    np.testing.assert_array_equal(result[1].numpy(), [-np.inf, np.nan, 0])
    np.testing.assert_array_equal(result[2].numpy(), [0, -np.inf, np.inf])
    np.testing.assert_array_equal(result[3].numpy(), [0, 0, 0])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.float64(1.0) / np.zeros(1)  # the program's own numpy is as it was


def test_an_op_that_a_pool_of_threads_calls_has_no_line_of_the_user() -> None:
    with ThreadPoolExecutor(1) as pool:
        bad = pool.submit(flow.gather, flow.ones(3), 0, flow.tensor([7])).result()
    with pytest.raises(IndexError, match="7") as caught:
        bad.numpy()
    notes = "\n".join(caught.value.__notes__)
    assert "an unknown line" in notes
    assert "thread" not in notes
