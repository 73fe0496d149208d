"""The layouts that optimizers keep from step to step follow all changes of the parameters."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import vmflow as flow
from vmflow.kernels.native import steps as steps_
from vmflow.kernels.native.loading import LOADER
from vmflow.kernels.native.steps import Steps
from vmflow.optim import SGD, Adam, AdamW, Optimizer

from .support import Array, same_bits

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("compiled")]

Parameters = list[flow.Tensor]


def gradient_with_gaps(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    parameters[1].grad = flow.ones(4, 6)[:, ::2]
    return optimizer


def other_data(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    parameters[0].data = parameters[0].detach().clone() + 1
    return optimizer


def one_without(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    parameters[2].grad = None
    return optimizer


def another_order(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    optimizer.param_groups[0]["params"].reverse()
    return optimizer


def another_group(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    moved = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [moved], "lr": 0.5})
    return optimizer


def gradient_in_the_parameter(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    parameters[0].grad = parameters[0].detach()
    return optimizer


def gradient_in_another(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    parameters[1].grad = parameters[2].detach()[:12].reshape(4, 3)
    return optimizer


def loaded(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return optimizer


def made_anew(parameters: Parameters, optimizer: Optimizer) -> Optimizer:
    kind: Any = type(optimizer)
    other: Optimizer = kind(parameters, lr=0.1)
    other.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    return other


HAPPENINGS = (
    gradient_with_gaps,
    other_data,
    one_without,
    another_order,
    another_group,
    gradient_in_the_parameter,
    gradient_in_another,
    loaded,
    made_anew,
)
KINDS: dict[str, Callable[[Parameters], Optimizer]] = {
    "SGD": lambda x: SGD(x, lr=0.1, momentum=0.9),
    "Adam": Adam,
    "AdamW": lambda x: AdamW(x, lr=0.5, weight_decay=0.9),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("happening", HAPPENINGS)
def test_steps_are_those_of_numpy(
    happening: Callable[[Parameters, Optimizer], Optimizer], kind: Callable[[Parameters], Optimizer]
) -> None:
    def trained(mode: str) -> list[Any]:
        LOADER.mode = mode
        random = np.random.default_rng(1)
        parameters = [
            flow.tensor(random.standard_normal(value).astype("float32")).requires_grad_()
            for value in ((5,), (4, 3), (70,))
        ]
        optimizer = kind(parameters)
        for step in range(6):
            for parameter in parameters:
                parameter.grad = flow.tensor(random.standard_normal(tuple(parameter.shape)).astype("float32"))
            if step in (2, 4):
                optimizer = happening(parameters, optimizer)
            optimizer.step()
        return [value.detach().numpy() for value in parameters]

    for one, other in zip(trained("wait"), trained("off"), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("size", [20, 1 << 17])
def test_a_gradient_in_the_memory_of_its_parameter_is_read_when_numpy_reads_it(size: int) -> None:
    def averages(mode: str) -> list[float]:
        LOADER.mode = mode
        parameter = flow.full((size,), 2.0, requires_grad=True)
        optimizer = AdamW([parameter], lr=0.5, weight_decay=1.0)
        parameter.grad = parameter.detach()
        optimizer.step()
        found: list[float] = optimizer.state[parameter]["exp_avg"].tolist()
        return found

    assert averages("wait") == averages("off")


@given(sizes=st.lists(st.integers(0, 40000), max_size=8), groups=st.integers(1, 9))
def test_every_element_is_in_one_part(sizes: list[int], groups: int) -> None:
    parts = steps_._parts(sizes, groups)
    assert len(parts) == groups
    counted = [np.zeros(size, int) for size in sizes]
    for owner, start, count in parts.reshape(-1, 3):
        if count:
            assert start + count <= sizes[owner]
            counted[owner][start : start + count] += 1
    assert all([(value == 1).all() for value in counted])


def test_there_are_groups_for_no_more_threads_than_c_has() -> None:
    before = flow.get_num_threads()
    flow.set_num_threads(5000)
    try:
        layout = steps_._Layout(
            "sgd_momentum_steps", [[np.zeros(1 << 17, np.float32)], [np.zeros(1 << 17, np.float32)]], None
        )
    finally:
        flow.set_num_threads(before)
    assert layout.work
    assert len(layout.table) == steps_._SHARES * 256


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_and_threads_make_no_difference(
    kind: Callable[[Parameters], Optimizer], dtype: str, threads: None
) -> None:
    def trained(mode: str, count: int) -> list[Array]:
        LOADER.mode = mode
        flow.set_num_threads(count)
        random = np.random.default_rng(1)
        sizes = (3, 4096, 4097, 70001, 1, 20000)
        parameters = [flow.tensor(random.standard_normal(size).astype(dtype)).requires_grad_() for size in sizes]
        optimizer = kind(parameters)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = flow.tensor(random.standard_normal(tuple(parameter.shape)).astype(dtype))
            optimizer.step()
        return [value.detach().numpy() for value in parameters]

    expected = trained("off", 1)
    for count in (1, 2, 3):
        for one, other in zip(expected, trained("wait", count), strict=True):
            assert same_bits(one, other)


def test_copies_of_an_optimizer_remember_for_themselves() -> None:
    parameter = flow.ones(5, requires_grad=True)
    parameter.grad = flow.ones(5)
    optimizer = SGD([parameter], lr=0.5)
    optimizer.step()
    other = copy.deepcopy(optimizer)
    (theirs,) = other.param_groups[0]["params"]
    theirs.grad = flow.ones(5)
    other.step()
    assert parameter.tolist() == [0.5] * 5
    assert theirs.tolist() == [0.0] * 5


def test_two_steps_of_one_group_at_a_time() -> None:
    """As of two graphs, each on a machine and a thread of its own."""
    steps = Steps("sgd_steps")
    (one, other), gradient = (np.ones(5, np.float32), np.ones(5, np.float32)), np.ones(5, np.float32)
    begun = [steps.begin([[value]], [it_gradient]) for value, it_gradient in ((one, gradient), (other, gradient * 2))]
    for step in begun:
        assert step is not None
        step.take((), 0.5, 0.0, False)
    assert one.tolist() == [0.5] * 5
    assert other.tolist() == [0.0] * 5


def test_a_step_that_could_not_begin_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(array: Any) -> int:
        raise MemoryError

    steps, gradient = Steps("sgd_steps"), np.ones(5, np.float32)
    for value in (1.0, 3.0):
        parameter = np.full(5, value, np.float32)
        with monkeypatch.context() as patch:
            patch.setattr("vmflow.kernels.native.steps.address", no_memory)
            with pytest.raises(MemoryError):
                steps.begin([[parameter]], [gradient])
        step = steps.begin([[parameter]], [gradient])
        assert step is not None
        step.take((), 0.5, 0.0, False)
        assert parameter.tolist() == [value - 0.5] * 5


def test_no_memory_is_kept() -> None:
    parameter = flow.ones(5, requires_grad=True)
    optimizer = SGD([parameter], lr=0.5)
    parameter.grad = flow.ones(5)
    gradient = weakref.ref(parameter.grad._blob.storage.array)
    written = weakref.ref(parameter._blob.storage.array)
    optimizer.step()
    optimizer.zero_grad()
    assert gradient() is None
    optimizer.param_groups.clear()
    del parameter
    assert written() is None
