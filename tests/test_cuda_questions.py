"""Calls that programs make before they choose a device, and older names, work without CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vmflow as flow
from vmflow.autograd import Variable
from vmflow.cuda.amp import GradScaler, autocast


def test_programs_fall_back_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = flow.device("cuda" if flow.cuda.is_available() else "cpu")
    assert device.type == "cpu"
    assert flow.cuda.device_count() == 0
    assert not flow.backends.mps.is_available()
    assert not flow.backends.cuda.is_built()
    flow.cuda.manual_seed(1)
    flow.cuda.manual_seed_all(1)
    flow.cuda.empty_cache()
    flow.backends.cudnn.deterministic = True
    flow.backends.cudnn.benchmark = False
    monkeypatch.setattr(flow.backends.cuda.matmul, "allow_tf32", True)
    assert flow.cuda.memory_allocated() == flow.cuda.max_memory_allocated() == 0


TAKING_DEVICES: list[Callable[[Any], object]] = [
    flow.cuda.Stream,
    flow.cuda.current_stream,
    flow.cuda.default_stream,
    lambda device: flow.cuda.ExternalStream(4096, device),
    flow.cuda.synchronize,
    flow.cuda.set_device,
    lambda device: flow.cuda.device(device).__enter__(),
    flow.cuda.get_device_properties,
    flow.cuda.get_device_name,
    flow.cuda.get_device_capability,
    flow.cuda.memory_stats,
    flow.cuda.memory_allocated,
    flow.cuda.max_memory_allocated,
    flow.cuda.memory_reserved,
    flow.cuda.max_memory_reserved,
    flow.cuda.reset_peak_memory_stats,
    flow.cuda.mem_get_info,
    lambda device: flow.cuda.set_per_process_memory_fraction(0.5, device),
    flow.cuda.get_rng_state,
    lambda device: flow.cuda.set_rng_state(flow.cuda.get_rng_state(), device),
    lambda device: flow.ones(1).cuda(device),
    lambda device: flow.ones(1).untyped_storage().cuda(device),
    lambda device: flow.nn.Linear(1, 1).cuda(device),
]


@pytest.mark.parametrize("call", TAKING_DEVICES)
def test_a_device_that_is_no_cuda_device_is_refused_by_all(call: Callable[[Any], object]) -> None:
    for device in ("cpu", flow.device("cpu"), "sim"):
        with pytest.raises(ValueError, match="a CUDA device was expected, not"):
            call(device)
    with pytest.raises(ValueError, match="unknown device type"):
        call("gpu")
    with pytest.raises(TypeError, match="a device is named by a string"):
        call(1.5)


def test_memory_is_zero_without_cuda() -> None:
    for count in (
        flow.cuda.memory_allocated,
        flow.cuda.max_memory_allocated,
        flow.cuda.memory_reserved,
        flow.cuda.max_memory_reserved,
    ):
        assert [count(device) for device in (None, 1, "cuda", "cuda:1", flow.device("cuda"))] == [0] * 5


def test_calls_that_need_a_device_are_refused() -> None:
    for use in (flow.cuda.synchronize, flow.cuda.current_device, flow.cuda.get_device_name):
        with pytest.raises(flow.DeviceUnavailable):
            use()
    with pytest.raises(flow.DeviceUnavailable):
        flow.cuda.set_device(1)


def test_mixed_precision_for_cuda_leaves_the_cpu_alone() -> None:
    x = flow.ones(2, 2, requires_grad=True)
    scaler = GradScaler()
    with autocast():
        y = x @ x
    assert y.dtype is flow.float32
    scaler.scale(y.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert scaler.get_scale() == 1.0


def test_older_ways_to_make_tensors() -> None:
    assert flow.FloatTensor([1, 2]).dtype is flow.float32
    assert flow.LongTensor([[1], [2]]).tolist() == [[1], [2]]
    assert tuple(flow.DoubleTensor(2, 3).shape) == (2, 3)
    assert flow.BoolTensor([True]).dtype is flow.bool_
    x = flow.ones(2)
    leaf = Variable(x, requires_grad=True)
    (leaf * 3).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [3.0, 3.0]
    assert not x.requires_grad


def test_grad_with_only_inputs() -> None:
    x = flow.ones(2, requires_grad=True)
    (gradient,) = flow.autograd.grad((x * x).sum(), x, only_inputs=True)
    assert gradient is not None
    assert gradient.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="only_inputs"):
        flow.autograd.grad((x * x).sum(), x, only_inputs=False)
