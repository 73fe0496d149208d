"""`pickle`, `copy` and `multiprocessing`: the copied attributes, the shared memory, and that no code is run."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.planted import failed_tensor
from vmflow import nn
from vmflow.vm.virtual_machine import current_machine


def pickled(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
def test_pickled_tensors(dtype: flow.dtype, protocol: int) -> None:
    for x in (flow.arange(12).reshape(3, 4).to(dtype).t(), flow.ones((), dtype=dtype), flow.zeros(0, 2, dtype=dtype)):
        again = pickle.loads(pickle.dumps(x, protocol))
        assert (type(again), again.dtype, again.shape, again.device) == (flow.Tensor, dtype, x.shape, x.device)
        assert again.numpy().tobytes() == x.numpy().tobytes()
        assert not again.requires_grad


def test_requires_grad_is_pickled_and_the_gradient_is_not() -> None:
    x = flow.ones(2, requires_grad=True)
    x.sum().backward()
    again = pickled(x)
    assert again.requires_grad
    assert again.grad is None
    assert again.is_leaf
    made = pickled(x * 2)
    assert made.requires_grad
    assert made.is_leaf
    there = pickled(flow.ones(3, device="sim"))
    assert there.device.type == "sim"
    assert there.tolist() == [1, 1, 1]
    parameter: Any = nn.Parameter(flow.ones(2))
    parameter.note = "kept"
    tied: list[Any] = pickled([parameter, parameter])
    assert tied[0] is tied[1]
    assert type(tied[0]) is nn.Parameter
    kept: Any = tied[0]
    assert kept.note == "kept"


def test_a_pickle_names_only_functions_that_rebuild() -> None:
    """No module, no class of ours, is called but these: nothing that computes or imports more."""
    model = {"w": nn.Parameter(flow.ones(2)), "b": nn.Buffer(flow.ones(2)), "x": flow.ones(2, dtype=flow.float64)}
    whole = pickle.dumps([model, flow.float32, flow.device("cpu"), flow.Generator(), flow.ones(2).shape], protocol=2)
    named = {str(argument) for code, argument, _ in pickletools.genops(whole) if code.name == "GLOBAL"}
    ours = {name for name in named if name.startswith("vmflow")}
    assert ours <= {
        "vmflow.devices device",
        "vmflow.dtypes by_name",
        "vmflow.instructions.size Size",
        "vmflow.io rebuild_tensor",
        "vmflow.nn.parameter Buffer",
        "vmflow.nn.parameter Parameter",
        "vmflow.nn.parameter _rebuild_buffer",
        "vmflow.random _generator_at",
        "vmflow.tensors Tensor",
    }


@pytest.mark.host
def test_loading_issues_nothing() -> None:
    whole = pickle.dumps([flow.ones(2), nn.Parameter(flow.ones(300, 300)), nn.Linear(2, 2)])
    current_machine().drain()
    before = len(current_machine().story())
    pickle.loads(whole)
    assert len(current_machine().story()) == before


def test_a_failed_tensor_is_not_pickled() -> None:
    with pytest.raises(ZeroDivisionError):
        pickle.dumps(failed_tensor())
    with pytest.raises(ZeroDivisionError):
        copy.deepcopy(failed_tensor()).numpy()


@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("obj", [flow.float32, flow.bfloat16, flow.device("cpu"), flow.device("sim:1")], ids=repr)
def test_names_stay_themselves(again: Callable[[Any], Any], obj: Any) -> None:
    assert again(obj) is obj


@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy])
def test_generators_go_on_apart(again: Callable[[Any], Any]) -> None:
    generator = flow.Generator().manual_seed(7)
    flow.rand(5, generator=generator)
    twin = again(generator)
    assert twin is not generator
    first = flow.rand(4, generator=generator).tolist()
    assert flow.rand(4, generator=twin).tolist() == first
    assert flow.rand(4, generator=twin).tolist() != first


@pytest.mark.parametrize("again", [pickled, copy.copy, copy.deepcopy])
def test_sizes_stay_sizes(again: Callable[[Any], Any]) -> None:
    found = again(flow.ones(2, 3).shape)
    assert type(found) is flow.Size
    assert found == (2, 3)


# copy


def test_a_shallow_copy_shares_the_memory() -> None:
    x = flow.ones(2, requires_grad=True)
    x.sum().backward()
    for source in (x, x * 1):
        twin: Any = copy.copy(source)
        assert twin is not source
        assert twin._blob is source._blob
        assert twin.requires_grad
        assert twin.is_leaf
        assert twin.grad is None
    parameter: Any = nn.Parameter(flow.ones(2), requires_grad=False)
    parameter.note = note = ["kept"]
    twin = copy.copy(parameter)
    assert type(twin) is nn.Parameter
    taken: Any = twin
    assert taken.note is note
    assert not twin.requires_grad
    buffer = copy.copy(nn.Buffer(flow.ones(2), persistent=False))
    assert type(buffer) is nn.Buffer
    assert not buffer.persistent


def test_a_deep_copy_shares_nothing() -> None:
    x = flow.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first._blob.storage is not x._blob.storage
    assert first.requires_grad
    assert first.grad is not None
    assert first.grad.tolist() == [3, 3]
    assert first.grad._blob.storage is not x.grad._blob.storage  # type: ignore[union-attr]
    view = flow.arange(6).reshape(2, 3).t()
    assert copy.deepcopy(view).tolist() == view.tolist()


def test_deep_copies_of_views_share_their_memory_again() -> None:
    whole = flow.arange(6.0)
    part, turned = whole[1:], whole.reshape(2, 3).t()
    for tensors in ([whole, part, turned], [turned, part, whole]):
        copies = copy.deepcopy(tensors)
        assert [again.tolist() for again in copies] == [tensor.tolist() for tensor in tensors]
        copies[0].zero_()
        assert [again.sum().item() for again in copies] == [0, 0, 0]
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]
    x = flow.ones(2, requires_grad=True)
    x.grad = flow.ones(2)
    again, gradient = copy.deepcopy([x, x.grad])
    assert again.grad is gradient
    assert [again.shape for again in copy.deepcopy([whole[:0], whole, flow.zeros(0, 3).t()])] == [(0,), (6,), (3, 0)]
    numbers = flow.tensor([1 + 2j, 3 + 4j])
    assert [again.tolist() for again in copy.deepcopy([numbers.imag, numbers])] == [[2, 4], [1 + 2j, 3 + 4j]]


def test_a_deep_copy_of_a_result_is_detached() -> None:
    x = flow.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    first, second = copy.deepcopy({"loss": [y, y]})["loss"]
    assert first is second
    assert first.is_leaf
    assert not first.requires_grad
    assert first.grad is None
    first.add_(1)
    assert y.tolist() == [3, 3]
    assert first.tolist() == [4, 4]
    # The original still has its history.
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6, 6]


@pytest.mark.parametrize("again", [pickled, copy.deepcopy])
def test_modules(again: Callable[[Any], Any]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())
    model[0].weight.requires_grad_(False)
    model.eval()
    twin = again(model)
    assert repr(twin) == repr(model)
    assert not twin.training
    assert not twin[0].weight.requires_grad
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(twin.state_dict()[key].numpy(), value.numpy())
    x = flow.ones(5, 3)
    np.testing.assert_array_equal(twin(x).detach().numpy(), model(x).detach().numpy())
    with flow.no_grad():
        twin[0].bias.fill_(100.0)
    assert not (model[0].bias.detach() == 100).any().item()


def test_a_shallow_copy_of_a_module_shares_its_parameters() -> None:
    model = nn.Linear(2, 2)
    twin = copy.copy(model)
    assert twin.weight is model.weight
    twin.eval()
    assert model.training


# Other processes


@pytest.mark.slow
@pytest.mark.host
def test_tensors_travel_between_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(flow.add, (flow.arange(5.0), flow.ones(5, dtype=flow.bfloat16)))
        assert result.dtype is flow.float32
        assert result.tolist() == [1, 2, 3, 4, 5]
        found = pool.apply(nn.Linear(2, 1), (flow.ones(2),))
        assert found.requires_grad
        assert found.shape == (1,)
