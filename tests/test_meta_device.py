"""Tensors on the meta device have shapes and dtypes and no data, and ops find out those of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import vmflow as flow
from tests.cuda import table_cases
from vmflow import nn
from vmflow.dtypes import by_name

pytestmark = pytest.mark.host

META = flow.device("meta")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_all_ops_find_the_shapes_and_dtypes_that_they_find_on_the_cpu(dtype: str) -> None:
    seen = 0
    for case in table_cases.cases(dtypes=[dtype]):
        name = f"{case.op} {case.label}"
        if case.op == "to_device" or name == "index -mask":
            continue  # the one copies to another device, and the size of the other's result depends on values
        if case.row is not None:
            expected = case.row.call(*case.tensors("cpu"))
            with META:
                found = case.row.call(*case.tensors("meta"))
        else:
            assert case.made is not None
            expected = case.made[0](by_name(case.dtype))
            with META:
                found = case.made[0](by_name(case.dtype))
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        assert found.is_meta or case.op in ("frequencies", "triangle_places"), name  # whose rows say the CPU
        seen += 1
    assert seen > 100


def test_gradients_of_all_ops_have_the_shapes_of_the_operands() -> None:
    seen = 0
    for case in table_cases.cases(dtypes=["float32"]):
        if not case.graded or case.row is None or f"{case.op} {case.label}" in ("index -mask", "to_device "):
            continue
        with META:
            tensors = [tensor.requires_grad_() for tensor in case.tensors("meta")]
            result = case.row.call(*tensors)
        if not result.requires_grad:
            continue
        total = flow.view_as_real(result).sum() if result.dtype.is_complex else result.sum()
        for tensor, gradient in zip(tensors, flow.autograd.grad(total, tensors, allow_unused=True), strict=True):
            if gradient is not None:
                assert (gradient.shape, gradient.dtype, gradient.device) == (tensor.shape, tensor.dtype, META), case.op
        seen += 1
    assert seen > 100


@pytest.mark.parametrize("as_graph", [False, True])
def test_a_step_of_training(as_graph: bool) -> None:
    with META:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    optimizer = flow.optim.AdamW(model.parameters())
    x, y = flow.empty(4, 3, 8, 8, device="meta"), flow.empty(4, dtype=flow.int64, device="meta")

    class Train(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            return loss

    graph = Train()
    for _ in range(3):
        if as_graph:
            loss = graph(x, y)
        else:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        assert (loss.shape, loss.device) == ((), META)
    assert all(parameter.is_meta for parameter in model.parameters())
    if not as_graph:
        gradients = [parameter.grad for parameter in model.parameters()]
        assert all(gradient is not None and gradient.is_meta for gradient in gradients)


async def test_launches_of_graphs_do_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    layer = nn.Linear(2, 2, device="meta")
    graph = nn.Graph.trace(lambda x: layer(x))
    async with flow.VirtualMachine():  # which logs failures that nothing has read
        assert graph(flow.empty(3, 2, device="meta")).is_meta
    assert not caplog.records


def test_a_model_that_no_memory_could_hold() -> None:
    layer = nn.Linear(1 << 22, 1 << 22, device="meta")
    result = layer(flow.empty(1 << 20, 1 << 22, device="meta"))
    result.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.shape == (1 << 22, 1 << 22)


async def test_a_coroutine_awaits_them_and_hears_that_there_are_no_values() -> None:
    x = flow.ones(2, 3, device="meta")
    y = await (x @ x.t())
    assert y.shape == (2, 2)
    with pytest.raises(RuntimeError, match="no data to copy to cpu"):
        y.tolist()


READERS: dict[str, Callable[[flow.Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "bool": lambda x: bool(x.sum()),
    "float": lambda x: float(x.sum()),
    "nonzero": lambda x: x.nonzero(),
    "cpu": lambda x: x.cpu(),
    "another device": lambda x: x.to("sim"),
    "copy_": lambda x: flow.ones(2, 3).copy_(x),
    "save": lambda x: flow.save({"x": x}, "/dev/null"),
    "module": lambda x: nn.Linear(2, 3, device="meta").cpu(),
}


@pytest.mark.parametrize("reader", READERS)
def test_values_cannot_be_read(reader: str) -> None:
    with pytest.raises(RuntimeError, match=r"meta device has no data to copy to .*empty_like.*to_empty"):
        READERS[reader](flow.ones(2, 3, device="meta"))


def test_tensors_of_two_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="one device, got meta and cpu"):
        flow.ones(2, device="meta") + flow.ones(2)


def test_views_and_changes_in_place() -> None:
    x = flow.ones(4, 6, device="meta")
    assert x.t().stride() == (1, 6)
    assert x.t().contiguous().stride() == (4, 1)
    assert x[1:, ::2].clone().shape == (3, 3)
    assert x.add_(1) is x
    assert x.copy_(flow.ones(6)) is x
    assert flow.add(x, x, out=flow.empty(4, 6, device="meta")).is_meta
    assert x.uniform_().is_meta


def test_repr() -> None:
    assert repr(flow.zeros(2, 3, device="meta")) == "tensor(..., size=(2, 3), device='meta')"


def test_tensors_go_to_the_meta_device_and_leave_their_data_behind() -> None:
    x = flow.ones(2, 3, dtype=flow.float64)
    assert (x.to("meta").shape, x.to("meta").dtype, x.to("meta").is_meta) == ((2, 3), flow.float64, True)
    assert flow.tensor([1.5], device="meta").is_meta
    assert not x.is_meta
    assert all(parameter.is_meta for parameter in nn.Linear(2, 3).to("meta").parameters())


def test_a_module_is_made_without_memory_and_filled_later() -> None:
    values = nn.Linear(3, 2).state_dict()
    layer = nn.Linear(3, 2, device="meta")
    layer.load_state_dict(values, assign=True)
    assert layer.weight.tolist() == values["weight"].tolist()
    empty = nn.Linear(3, 2, device="meta").to_empty(device="cpu")
    empty.load_state_dict(values)
    assert empty(flow.ones(1, 3)).tolist() == layer(flow.ones(1, 3)).tolist()
