"""Copies between the host and an accelerator."""

from __future__ import annotations

import numpy as np
import pytest

import vmflow as flow

DTYPES = (flow.float32, flow.float64, flow.bfloat16, flow.int64, flow.uint8, flow.bool_, flow.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda x: x.name)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (200, 201)], ids=str)
def test_there_and_back(dtype: flow.dtype, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype.numpy)
    x = flow.tensor(array, device="cpu")
    there = x.to("sim")
    assert (there.device, there.dtype, there.shape) == (flow.device("sim"), dtype, x.shape)
    back = there.cpu()
    assert back.device == flow.device("cpu")
    np.testing.assert_array_equal(back.numpy(), array)


def test_copying_a_view_copies_its_elements_in_its_order() -> None:
    x = flow.tensor(np.arange(12.0).reshape(3, 4), device="cpu")
    np.testing.assert_array_equal(x.T[1:, ::2].to("sim").numpy(), x.numpy().T[1:, ::2])
    there = x.to("sim")
    np.testing.assert_array_equal(there.T[1:, ::2].cpu().numpy(), x.numpy().T[1:, ::2])


def test_to_changes_device_and_dtype_in_one_call() -> None:
    there = flow.tensor([1.5, 2.5], device="cpu").to("sim", flow.int32)
    assert (there.device.type, there.dtype, there.tolist()) == ("sim", flow.int32, [1, 2])


def test_an_array_becomes_a_tensor_of_the_device() -> None:
    array = np.arange(3.0)
    for there in (flow.as_tensor(array, device="sim"), flow.asarray(array, device="sim")):
        assert (there.device.type, there.tolist()) == ("sim", [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="without a copy"):
        flow.asarray(array, device="sim", copy=False)


def test_nothing_is_copied_where_nothing_changes() -> None:
    there = flow.ones(3, device="sim")
    assert there.to("sim") is there
    assert there.to("sim", copy=True) is not there
    assert there.to("sim", True) is there  # non_blocking
    assert there.to("sim", False, True) is not there


def test_gradients_cross_the_border() -> None:
    x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True, device="cpu")
    y = (x.to("sim") * 2).cpu() * 3
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.device == flow.device("cpu")
    assert x.grad.tolist() == [6.0] * 3


def test_between_two_accelerators_by_way_of_the_host() -> None:
    x = flow.tensor([1.0, 2.0], device="sim:0").to("sim:1")
    assert x.device == flow.device("sim:1")
    assert (x + 1).tolist() == [2.0, 3.0]


def test_a_copy_is_independent_of_later_changes() -> None:
    """Later changes to either tensor do not show in the other."""
    x = flow.zeros(40_000, device="cpu")
    there = x.to("sim")
    x.add_(1)
    back = there.cpu()
    there.add_(5)
    assert (x.sum().item(), back.sum().item(), there.sum().item()) == (40_000.0, 0.0, 200_000.0)


def test_operands_on_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="expected all tensors on one device, got cpu and sim:0"):
        flow.ones(2, device="cpu") + flow.ones(2, device="sim")


async def test_awaiting_a_tensor_on_a_device() -> None:
    x = await (flow.ones(300, 300, device="sim") @ flow.ones(300, 300, device="sim"))
    assert x.is_ready()
    assert (await x.cpu()).numpy()[0, 0] == 300.0
