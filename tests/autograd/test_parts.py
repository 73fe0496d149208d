"""Gradients of the parts of one tensor, which are added up where they belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from vmflow import nn
from vmflow.ops.indexing.gathering import _SCATTER_SLICES
from vmflow.tensors import Tensor

Cut = Callable[[Tensor], Sequence[Tensor]]

CUTS: dict[str, Cut] = {
    "split": lambda y: y.split([1, 2, 3]),
    "chunk of columns": lambda y: y.chunk(2, 1),
    "unbind": lambda y: y.unbind(0),
    "overlapping": lambda y: (y[1:4], y[::2], y[3:], y[:, 1:3]),
    "parts of parts": lambda y: (y[2:][1:], y[2:][:, 0], y[0]),
    "and the whole": lambda y: (y[0], y, y[1:], y),
    "turned": lambda y: y.T.unbind(1),
    "gaps, and not in order": lambda y: (y[4:5], y[0:1], y[5:5], y[2:3]),
    "one between the others": lambda y: (y[0:1], y[4:6], y[2:4]),
    "combs": lambda y: (y[:, ::2], y[:, 1::2]),
}


def leaf() -> Tensor:
    return flow.arange(24, dtype=flow.float32).reshape(6, 4).requires_grad_()


def weighted(parts: Sequence[Tensor]) -> Tensor:
    total: Any = 0
    for number, part in enumerate(parts):
        total = total + (part * part * (number + 1)).sum()
    return total  # type: ignore[no-any-return]


def expected(cut: Cut) -> Any:
    """By indices: the element of the whole behind each element of each part."""
    places = [tensor.numpy().astype(int) for tensor in cut(flow.arange(24).reshape(6, 4))]
    found = np.zeros(24)
    for number, part in enumerate(places):
        np.add.at(found, part.reshape(-1), 2.0 * (number + 1))
    return (found * np.arange(24)).reshape(6, 4)


@pytest.mark.parametrize("name", CUTS)
def test_each_element_gets_the_gradient_of_its_parts(name: str) -> None:
    x = leaf()
    y = x * 1
    weighted(CUTS[name](y)).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected(CUTS[name]))


@pytest.mark.parametrize("name", CUTS)
def test_elements_of_a_leaf_get_the_gradient_of_their_parts(name: str) -> None:
    x, seen = leaf(), []
    x.register_hook(lambda gradient: seen.append(gradient.detach().numpy().copy()))
    weighted(CUTS[name](x)).backward()
    weighted(CUTS[name](x)).backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), 2 * expected(CUTS[name]))
    assert len(seen) == 2
    np.testing.assert_array_equal(seen[0], expected(CUTS[name]))
    (found,) = flow.autograd.grad(weighted(CUTS[name](x)), [x], create_graph=True)
    assert found is not None
    np.testing.assert_array_equal(found.detach().numpy(), expected(CUTS[name]))


def test_a_leaf_that_is_not_asked_for_gets_nothing() -> None:
    x, other = leaf(), leaf()
    (found,) = flow.autograd.grad(weighted(x.unbind(0)) + weighted(other.unbind(0)), [other])
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), expected(CUTS["unbind"]))
    assert x.grad is None
    assert other.grad is None


@pytest.mark.parametrize("name", CUTS)
def test_hooks_see_whole_gradients_and_whole_ones_are_kept(name: str) -> None:
    x, seen = leaf(), []
    y = x * 1
    y.register_hook(lambda gradient: seen.append(gradient))
    y.retain_grad()
    parts = CUTS[name](y)
    weighted(parts).backward(retain_graph=True)
    (first,) = seen
    before = first.numpy()
    np.testing.assert_array_equal(before, expected(CUTS[name]))
    assert y.grad is not None
    np.testing.assert_array_equal(y.grad.numpy(), before)
    # Another pass adds to none of those.
    weighted(parts).backward()
    np.testing.assert_array_equal(first.numpy(), before)
    np.testing.assert_array_equal(y.grad.numpy(), 2 * before)
    (found,) = flow.autograd.grad(weighted(CUTS[name](x * 1)), [x])
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), before)


@pytest.mark.parametrize("name", CUTS)
def test_second_derivatives(name: str) -> None:
    x = leaf()
    (first,) = flow.autograd.grad(weighted(CUTS[name](x * 1)), [x], create_graph=True)
    assert first is not None
    (second,) = flow.autograd.grad(first.sum(), [x])
    assert second is not None
    np.testing.assert_array_equal(first.detach().numpy(), expected(CUTS[name]))
    np.testing.assert_array_equal(second.numpy()[1:], expected(CUTS[name])[1:] / x.detach().numpy()[1:])


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("cut", [lambda y: y.unbind(0), lambda y: y.unbind(0)[::-1], lambda y: y.chunk(2, 1)])
def test_those_that_do_not_overlap_are_put_together_in_one_go(
    cut: Cut, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    usual = flow.interpreter.dispatch

    def dispatch(op: Any, *rest: Any) -> Any:
        used.append(op)
        return usual(op, *rest)

    monkeypatch.setattr(flow.interpreter, "dispatch_into", lambda op, *rest: pytest.fail(op.name))
    loss = weighted(cut(leaf() * 1 if made else leaf()))
    monkeypatch.setattr(flow.interpreter, "dispatch", dispatch)
    loss.backward()
    assert used.count(_SCATTER_SLICES) == 1


class StepByStep(nn.Graph):
    def build(self, x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        y = x * 1
        state = y[:, 0]
        for step in range(1, y.shape[1]):
            state = (state + y[:, step]).sin()
        return flow.autograd.grad(state.sum(), [x])


def test_a_graph_over_many_steps_pads_none_of_them() -> None:
    graph, x = StepByStep(), flow.randn(3, 50)
    (eager,), (compiled,) = graph.build(x), graph(x)
    np.testing.assert_array_equal(eager.numpy(), compiled.numpy())
    assert str(graph).count("scatter_slices") == 1


class Gradient(nn.Graph):
    def build(self, x: Tensor, weights: Tensor) -> Any:
        x = x.detach().requires_grad_()
        first, second, third = (x * 1).chunk(3, 1)
        return flow.autograd.grad((first * weights).sum() + (third * weights).sum() + (second * 0).sum(), [x])


@given(st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0, float("inf")]), min_size=4, max_size=4))
@settings(max_examples=20)
def test_graphs_find_the_same_to_the_sign_of_zero(numbers: list[float]) -> None:
    x, weights = flow.ones(2, 6), flow.tensor(numbers).reshape(2, 2)
    graph = Gradient()
    (eager,), (compiled,) = graph.build(x, weights), graph(x, weights)
    np.testing.assert_array_equal(eager.numpy().view(np.int32), compiled.numpy().view(np.int32))


def test_a_hook_that_changes_a_gradient_in_place_later_does_not_change_a_part() -> None:
    """Both operands of a sum have one gradient, of which the one is a part that waits for others."""
    a, b = flow.zeros(4, requires_grad=True), flow.zeros(4, requires_grad=True)
    limited = b[0:2]
    limited.register_hook(lambda gradient: gradient.clamp_(-1, 1))
    ((a[0:2] + limited) * 5.0).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [5, 5, 0, 0]
    assert b.grad.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("through", [False, True])
def test_nor_does_a_function_of_ones_own(through: bool) -> None:
    class Doubled(flow.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient.mul_(2.0)

    a, b = flow.zeros(4, requires_grad=True), flow.zeros(2, requires_grad=True)
    whole = a * 1 if through else a  # so that parts wait at a node, or at a leaf
    other = Doubled.apply(b)
    ((whole[0:2] + other) * 1.0).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [1, 1, 0, 0]
    assert b.grad.tolist() == [2, 2]


def test_cutting_differently_each_time_takes_no_more_memory() -> None:
    for first in range(1, 300):
        x = flow.zeros(600, requires_grad=True)
        sum([tensor.sum() for tensor in x.split([first, 600 - first])], flow.zeros(())).backward()
    assert len(_SCATTER_SLICES.known) <= 128


def test_parts_that_do_not_fit_are_refused() -> None:
    like, part = flow.zeros(6)._blob.meta, flow.zeros(2)._blob.meta
    for places, message in (
        (((0, 3, 1),), "do not fit"),
        (((0, 2, 1), (2, 2, 1)), "do not fit"),
        (((1, 2, 0),), "not one behind the other"),
        (((5, 2, 1),), "go beyond"),
        (((0, 2, 6),), "go beyond"),
    ):
        with pytest.raises(ValueError, match=message):
            _SCATTER_SLICES.infer((like, 0, *places), (part,), ())
    with pytest.raises(ValueError, match="not one behind the other"):
        _SCATTER_SLICES.infer((like, 0, (2, 2, 1), (0, 2, 1)), (part, part), ())
