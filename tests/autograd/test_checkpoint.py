"""Checkpointing: the same results and gradients as without, with the function called again for the backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.autograd import grad
from vmflow.utils.checkpoint import checkpoint, checkpoint_sequential


def _network() -> nn.Sequential:
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3))


def _gradients(network: nn.Module, call: Any) -> list[Any]:
    flow.manual_seed(1)
    network.zero_grad()
    input = flow.linspace(-1, 1, 20).reshape(5, 4).requires_grad_()
    output = call(input * 2)
    (output * output).sum().backward()
    after = flow.rand(1)
    assert input.grad is not None
    return [grad.numpy() for grad in (output.detach(), input.grad, *[p.grad for p in network.parameters()], after)]


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_as_without(reentrant: bool | None) -> None:
    network = _network()
    expected = _gradients(network, network)
    found = _gradients(network, lambda x: checkpoint(network, x, use_reentrant=reentrant))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("segments", [1, 2, 3, 4])
def test_in_segments(segments: int) -> None:
    network = _network()
    expected = _gradients(network, network)
    found = _gradients(network, lambda x: checkpoint_sequential(network, segments, x, use_reentrant=False))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="5 segments do not fit 4 functions"):
        checkpoint_sequential(network, 5, flow.ones(1, 4))


def test_the_function_is_called_again_once() -> None:
    calls: list[bool] = []

    def function(x: flow.Tensor) -> flow.Tensor:
        calls.append(flow.is_grad_enabled())
        return x.exp().sin()

    x = flow.ones(3, requires_grad=True)
    y = checkpoint(function, x)
    assert calls == [True]
    y.sum().backward()
    assert calls == [True, True]
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()
    with flow.no_grad():
        assert not checkpoint(function, x).requires_grad
    assert calls == [True, True, False]


def test_only_used_leaves_get_a_gradient_and_only_once() -> None:
    weight = flow.tensor([2.0, 3.0], requires_grad=True)
    shared = weight * 5  # leads to the weight by another way
    x = shared + 1
    y = checkpoint(lambda value: value * weight * shared, x)
    (found,) = grad(y.sum(), weight, retain_graph=True)
    assert weight.grad is None
    assert found is not None
    # d/dw (5w + 1) * w * 5w = 75 w^2 + 10 w
    np.testing.assert_allclose(found.numpy(), [320.0, 705.0])
    y.sum().backward()
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.numpy(), [320.0, 705.0])
    constant = checkpoint(lambda value: value * 2, flow.ones(2))
    assert not constant.requires_grad


def test_a_second_derivative() -> None:
    x = flow.tensor([0.5, -1.0], dtype=flow.float64, requires_grad=True)
    (first,) = grad(checkpoint(lambda value: value**3, x).sum(), x, create_graph=True)
    assert first is not None
    (second,) = grad(first.sum(), x)
    assert second is not None
    np.testing.assert_allclose(second.numpy(), [3.0, -6.0])


def test_several_results_and_keywords() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)

    def function(a: flow.Tensor, *, scale: flow.Tensor) -> tuple[Any, ...]:
        return a * scale, "kept", a.detach(), (a * a).sum()

    scale = flow.tensor(3.0, requires_grad=True)
    first, word, plain, last = checkpoint(function, x, scale=scale)
    assert word == "kept"
    assert not plain.requires_grad
    (first.sum() + last).backward()
    assert x.grad is not None
    assert scale.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [5.0, 7.0])
    assert scale.grad.item() == 3.0


def test_a_named_tuple_keeps_its_names() -> None:
    x = flow.eye(2).requires_grad_()
    found = checkpoint(flow.linalg.slogdet, x)
    found.logabsdet.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_second_call_with_other_results_is_refused() -> None:
    sizes = iter([2, 3])
    x = flow.ones(1, requires_grad=True)
    y = checkpoint(lambda value: value.expand(next(sizes)) * 2, x)
    with pytest.raises(RuntimeError, match=rf"returned float32 \[2\] on {x.device}, and called again float32 \[3\]"):
        y.sum().backward()
    z = flow.ones(2, requires_grad=True) * 1
    y = checkpoint(lambda value: value * value, z)
    with flow.no_grad():
        z.add_(1)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()
    with pytest.raises(TypeError, match="expected a function, got int"):
        checkpoint(3)  # type: ignore[arg-type]


def test_as_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint as theirs

    def function(x: Any, w: Any) -> Any:
        return (x @ w).tanh() * x.sum()

    numbers = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    found: list[list[Any]] = []
    for library, run in ((flow, checkpoint), (torch, theirs)):
        x, w = (library.tensor(value, requires_grad=True) for value in (numbers, numbers.T.copy()))
        run(function, x, w, use_reentrant=False).sum().backward()
        found.append([x.grad.numpy(), w.grad.numpy()])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_hooks_of_arguments_are_called_once() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda gradient: gradient * 2)
    y = x * 1.0
    y.retain_grad()
    heard: list[list[float]] = []
    y.register_hook(lambda gradient: heard.append(gradient.tolist()))
    checkpoint(lambda a, b: (a * a).sum() + b.sum(), y, x, use_reentrant=False).backward()
    assert heard == [[2, 4]]
    assert y.grad is not None
    assert x.grad is not None
    assert y.grad.tolist() == [2, 4]
    assert x.grad.tolist() == [6, 10]


@pytest.mark.parametrize("dtype", [flow.bfloat16, flow.float16])
@pytest.mark.parametrize("cached", [True, False])
def test_parameters_cast_by_autocast(dtype: flow.dtype, cached: bool) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    x = flow.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()

    def gradients(call: Any, before: bool) -> list[np.ndarray[Any, Any]]:
        network.zero_grad()
        x.grad = None
        with flow.autocast("cpu", dtype=dtype, cache_enabled=cached):
            warm = network(x).float().sum() if before else flow.zeros(())
            result = call(x).float().sum() + call(x * 2).float().sum() + warm
        result.backward()
        found = [x.grad, *[parameter.grad for parameter in network.parameters()]]
        assert all([gradient is not None for gradient in found])
        return [gradient.numpy() for gradient in found if gradient is not None]

    # A cached cast sums the gradients of its uses in the lower precision, a checkpoint those of its own uses.
    rounding = 4 * flow.finfo(dtype).eps
    for before in (False, True):
        expected, found = gradients(network, before), gradients(lambda x: checkpoint(network, x), before)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=rounding, atol=rounding)


def test_a_cast_that_left_the_cache_before_the_second_call() -> None:
    network = nn.Linear(3, 3)
    casts = flow.autocast("cpu", dtype=flow.bfloat16)
    with casts:
        network(flow.ones(1, 3))  # the casts of the parameters are older than the checkpoint
        result = checkpoint(network, flow.ones(1, 3)).float().sum()
        kept = flow.context.MODE.get().autocast
    kept.cache.clear()
    result.backward()
    assert network.weight.grad is not None
    assert network.weight.grad.tolist() == [[1.0] * 3] * 3


def test_a_view_whose_base_has_changed_in_place() -> None:
    def gradient(call: Any) -> Any:
        x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
        whole = x * 1
        view = whole[:2]
        whole.mul_(2)
        call(lambda z: z * z, view).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert gradient(checkpoint) == gradient(lambda function, view: function(view)) == [8.0, 16.0, 0.0]


def test_a_result_that_is_a_view_of_something_changed_in_place() -> None:
    def function(x: flow.Tensor) -> flow.Tensor:
        whole = x * 3
        view = whole[:2]
        whole.mul_(2)
        return view

    x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
    checkpoint(function, x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 6.0, 0.0]


class _Remembering(nn.Module):
    """Computes something of its weight at the first call, and remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(flow.tensor([2.0, 3.0]))
        self.memo: flow.Tensor | None = None

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        if self.memo is None:
            self.memo = self.weight * self.weight
        return x * self.memo.exp()


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_module_that_caches_a_value_at_its_first_call(calls: int) -> None:
    def gradient(call: Any) -> Any:
        module = _Remembering()
        total = call(module, flow.ones(2)).sum()
        for _ in range(calls - 1):
            total = total + call(module, flow.ones(2)).sum()
        assert module.memo is not None
        (total + module.memo.sum()).backward()
        assert module.weight.grad is not None
        return module.weight.grad.numpy()

    np.testing.assert_allclose(gradient(checkpoint), gradient(lambda module, x: module(x)), rtol=1e-6)


def test_the_defaults_of_the_first_call_hold_in_the_second() -> None:
    before = flow.get_default_dtype()
    x = flow.ones(2, dtype=flow.float64, requires_grad=True)
    flow.set_default_dtype(flow.float64)
    try:
        result = checkpoint(lambda z: z * flow.full((2,), 1 / 3), x)
    finally:
        flow.set_default_dtype(before)
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1 / 3, 1 / 3]


def test_a_result_that_is_a_view_of_an_argument_follows_it() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    view = checkpoint(lambda tensor: tensor.view(2, 1), y)
    y.mul_(3)
    view.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_results_of_one_memory_follow_each_other() -> None:
    def function(it: flow.Tensor) -> Any:
        whole = it * 2
        return whole[:1], whole[1:], whole

    x = flow.tensor([1.0, 2.0], requires_grad=True)
    first, second, whole = checkpoint(function, x)
    whole.mul_(flow.tensor([3.0, 5.0]))
    (first + second).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 10.0]


def test_an_argument_that_has_come_to_require_a_gradient() -> None:
    x, constant = flow.ones(2, requires_grad=True), flow.ones(2)
    result, _ = checkpoint(lambda a: (a * 2, constant * 3), x)
    constant.requires_grad_()
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
    assert constant.grad is None


def test_a_gradient_by_a_view_that_a_checkpoint_is_the_first_to_look_at() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    whole = x * 1
    view = whole[:1]
    whole.mul_(2)
    result = checkpoint(lambda: view * 5)
    (found,) = grad((result + view * 7).sum(), view)
    assert found is not None
    assert found.tolist() == [12.0]
