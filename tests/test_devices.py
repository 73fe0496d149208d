"""Naming devices, which is always possible, and using them, which may not be."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from collections.abc import AsyncGenerator

import numpy as np
import pytest

import vmflow as flow
from vmflow import devices


def test_equal_devices_are_one_object() -> None:
    assert flow.device("cpu") is flow.device("cpu")
    assert flow.device("cpu") is flow.device("cpu", 0)
    assert flow.device("cpu") is flow.device("cpu:0")
    assert flow.device("cpu") is flow.device("cpu:1") is flow.device("cpu", 1)
    assert flow.device("meta") is flow.device("meta:1")
    assert flow.device("cuda") is flow.device("cuda:0")
    assert flow.device("cuda:1") is flow.device("cuda", 1)
    assert flow.device("cuda:1") is not flow.device("cuda:0")
    assert flow.device(flow.device("cuda:1")) is flow.device("cuda:1")
    assert flow.device("cpu") != flow.device("cuda")
    assert {flow.device("cpu"): 1}[flow.device("cpu:0")] == 1


def test_equal_devices_are_one_object_across_threads() -> None:
    devices._DEVICES.pop(("cuda", 77), None)
    found: list[flow.device] = []
    start = threading.Barrier(8)

    def name() -> None:
        start.wait()
        found.append(flow.device("cuda:77"))

    threads = [threading.Thread(target=name) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(value) for value in found}) == 1


def test_attributes_and_texts_of_a_device() -> None:
    device = flow.device("cuda", 1)
    assert (device.type, device.index) == ("cuda", 1)
    assert str(device) == "cuda:1"
    assert repr(device) == "device(type='cuda', index=1)"
    assert flow.device("cuda", np.int64(1)) is device  # type: ignore[arg-type]
    assert str(flow.device("cpu")) == "cpu"
    assert str(flow.device("meta")) == "meta"
    assert pickle.loads(pickle.dumps(device)) is device
    assert copy.deepcopy(device) is device


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("tpu",), ValueError, "unknown device type 'tpu'"),
        (("",), ValueError, "unknown device type ''"),
        (("cuda:",), ValueError, "expected an index after the colon"),
        (("cuda:x",), ValueError, "expected an index after the colon"),
        (("cuda:-1",), ValueError, "expected an index after the colon"),
        (("cuda:²",), ValueError, "expected an index after the colon"),
        (("cuda:1", 1), ValueError, "the index is given twice"),
        ((flow.device("cuda:1"), 1), ValueError, "the index is given twice"),
        (("cuda", -1), ValueError, "cannot be negative"),
        ((3,), TypeError, "named by a string"),
        ((None,), TypeError, "named by a string"),
        (("cuda", "1"), TypeError, "must be an integer"),
        (("cuda", 1.0), TypeError, "must be an integer"),
        ((["cpu"],), TypeError, "named by a string"),
    ],
)
def test_malformed_names(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        flow.device(*arguments)  # type: ignore[arg-type]


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_devices_that_are_not_there_cannot_be_used(name: str) -> None:
    with pytest.raises(flow.DeviceUnavailable):
        flow.ones(2, device=name)
    with pytest.raises(flow.DeviceUnavailable):
        flow.tensor([1.0], device=name)
    with pytest.raises(flow.DeviceUnavailable):
        flow.ones(2).to(name)
    with pytest.raises(flow.DeviceUnavailable):
        flow.set_default_device(name)
    with pytest.raises(RuntimeError):
        flow.device(name).require()


def test_where_tensors_are() -> None:
    tensor = flow.ones(2, device="cpu")
    assert tensor.device is flow.device("cpu")
    assert tensor.to("cpu") is tensor
    assert tensor.cpu() is tensor
    assert not tensor.is_cuda
    assert flow.ones(2, device=flow.device("cpu")).device is tensor.device
    flow.set_default_device("cpu")
    assert flow.ones(2).device is tensor.device
    flow.set_default_device(None)
    assert flow.ones(2).device is tensor.device


def new() -> str:
    """The type of the device of new tensors."""
    return flow.zeros(1).device.type


async def test_a_block_with_a_device_may_be_left_in_another_task() -> None:
    async def steps() -> AsyncGenerator[str, None]:
        with flow.device("meta"):
            yield new()

    with flow.device("cpu"):
        opened = steps()
        assert await asyncio.create_task(opened.__anext__()) == "meta"
        assert new() == "cpu"
        await opened.aclose()
        assert new() == "cpu"


def test_blocks_with_devices_may_end_in_another_order() -> None:
    before = new()
    one, other = flow.device("cpu"), flow.device("meta")
    one.__enter__()
    other.__enter__()
    one.__exit__()
    assert new() == "meta"
    other.__exit__()
    assert new() == before
