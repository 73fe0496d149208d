"""`autograd.graph`: hooks for saved tensors, places in the graph, and hooks of nodes and of several gradients."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.autograd import Function
from vmflow.autograd.graph import (
    disable_saved_tensors_hooks,
    get_gradient_edge,
    increment_version,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from vmflow.utils.checkpoint import checkpoint


def numbers(*shape: int) -> flow.Tensor:
    size = int(np.prod(shape))
    return flow.tensor(np.linspace(0.2, 1.7, size).reshape(shape), requires_grad=True)


def noting(note: Callable[[flow.Tensor], object]) -> saved_tensors_hooks:
    """Hooks that change nothing; `note` is called with each packed tensor."""

    def pack(tensor: flow.Tensor) -> flow.Tensor:
        note(tensor)
        return tensor

    return saved_tensors_hooks(pack, lambda x: x)


def grad_of(tensor: flow.Tensor) -> np.ndarray[Any, Any]:
    assert tensor.grad is not None
    found: np.ndarray[Any, Any] = tensor.grad.numpy()
    return found


class Squared(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        result = x * x
        ctx.save_for_backward(x, result, None)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        x, result, nothing = ctx.saved_tensors
        assert nothing is None
        found: flow.Tensor = gradient * 2 * x + 0 * result
        return found


# By name, a function whose ops save inputs, outputs, several of both, and strided tensors.
FUNCTIONS: dict[str, Callable[[flow.Tensor], flow.Tensor]] = {
    "inputs": lambda x: x * x.sin() / (x + 1),
    "outputs": lambda x: x.exp().tanh().sqrt(),
    "in place": lambda x: (x * 2).exp_().mul(x).tanh_(),
    "layers": lambda x: nn.functional.layer_norm(x, (4,), flow.ones(4, dtype=flow.float64), None).softmax(1),
    "products": lambda x: (x @ x.T).relu() @ x,
    "views": lambda x: x.T[1:] * x.T[:-1],
    "maxima": lambda x: nn.functional.max_pool1d(x[None], 2)[0] * x.amax(1, True),
    "function": Squared.apply,
    "checkpoint": lambda x: checkpoint(lambda y: y.sin() * y, x),
    "choice": lambda x: flow.where(x > 1, x * x, x.exp()).addcmul(x, x),
}

# By name, hooks that do not change gradients.
HOOKS: dict[str, Callable[[], Any]] = {
    "as it is": lambda: saved_tensors_hooks(lambda x: x, lambda x: x),
    "copies": lambda: saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor.clone()),
    "arrays": lambda: saved_tensors_hooks(lambda tensor: tensor.detach().numpy(), lambda x: flow.tensor(x)),
    "on the CPU": save_on_cpu,
    "pinned": lambda: save_on_cpu(pin_memory=True),
}


# Memory is locked for CUDA devices; on the CPU nothing is copied.
@pytest.mark.parametrize(
    "hooks", [pytest.param(hooks, marks=pytest.mark.host) if hooks == "pinned" else hooks for hooks in HOOKS]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_without_hooks(name: str, hooks: str) -> None:
    function = FUNCTIONS[name]
    expected, found = numbers(3, 4), numbers(3, 4)
    function(expected).sum().backward()
    with HOOKS[hooks]():
        result = function(found).sum()
    result.backward()
    np.testing.assert_array_equal(grad_of(found), grad_of(expected))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "maxima"])
def test_second_derivatives_are_those_without_hooks(name: str) -> None:
    def second(x: flow.Tensor) -> flow.Tensor:
        (first,) = flow.autograd.grad(FUNCTIONS[name](x).sin().sum(), x, create_graph=True)
        assert first is not None
        (found,) = flow.autograd.grad((first * first).sum(), x)
        assert found is not None
        return found

    expected = second(numbers(3, 4))
    with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda value: value):
        found = second(numbers(3, 4))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), 1e-13)


def test_the_result_of_the_pack_hook_is_kept() -> None:
    x = numbers(4)
    unpacked: list[Any] = []

    def unpack(kept: tuple[str, flow.Tensor]) -> flow.Tensor:
        unpacked.append(kept[0])
        return kept[1] * 10

    with saved_tensors_hooks(lambda tensor: ("kept", tensor.clone()), unpack):
        y = (x * x).sum()
    y.backward()
    np.testing.assert_array_equal(grad_of(x), 20 * x.detach().numpy())
    assert unpacked == ["kept", "kept"]


def test_the_memory_of_packed_tensors_is_released() -> None:
    x = numbers(4)
    with saved_tensors_hooks(lambda tensor: tensor.detach().numpy(), flow.tensor):
        between = x * 2
        y = between.exp().sum()
        between.sin()
    storage = weakref.ref(between._blob.storage)
    del between
    flow.synchronize()  # a worker may still have it
    assert storage() is None
    y.backward()
    np.testing.assert_allclose(grad_of(x), 2 * np.exp(2 * x.detach().numpy()))


def test_a_graph_with_hooks_is_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for pack in (lambda x: x, lambda tensor: tensor.detach().clone()):
            with saved_tensors_hooks(pack, lambda x: x):
                y = (numbers(3) * 2).exp().tanh().sum()
            node = weakref.ref(y.grad_fn)
            del y
            assert node() is None
    finally:
        gc.enable()


def test_hooks_run_without_recording_and_see_parameters_as_they_are() -> None:
    layer = nn.Linear(3, 2)
    x = flow.ones(4, 3, requires_grad=True)
    seen: list[flow.Tensor] = []

    def pack(tensor: flow.Tensor) -> flow.Tensor:
        assert not flow.is_grad_enabled()
        seen.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda value: value):
        layer(x).tanh()
    assert any(value is layer.weight for value in seen)
    assert any(value is x for value in seen)
    assert flow.is_grad_enabled()


def test_the_inner_hooks_count() -> None:
    seen: list[str] = []
    x = numbers(2)
    with noting(lambda value: seen.append("outer")):
        x.exp()
        with noting(lambda value: seen.append("inner")):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["outer", "inner", "outer"]


async def test_hooks_belong_to_the_task_that_uses_them() -> None:
    seen: list[str] = []
    inside = asyncio.Event()

    async def with_hooks() -> None:
        with noting(lambda x: seen.append("packed")):
            inside.set()
            await asyncio.sleep(0)
            numbers(2).exp()

    async def without() -> None:
        await inside.wait()
        numbers(2).exp()
        seen.append("without")

    await asyncio.gather(with_hooks(), without())
    assert sorted(seen) == ["packed", "without"]


def test_a_checkpoint_packs_its_arguments_alone() -> None:
    seen: list[flow.Size] = []
    x, y = numbers(2), numbers(3)
    with noting(lambda tensor: seen.append(tensor.shape)):
        result = checkpoint(lambda a, b: (a.exp() * a).sum() * b.exp(), x, y)
    result.sum().backward()
    assert seen == [(2,), (3,)]
    assert x.grad is not None


def test_a_packed_tensor_may_change_in_place_unless_the_hook_returned_it() -> None:
    def program(pack: Callable[[Any], Any]) -> flow.Tensor:
        x = numbers(3)
        with saved_tensors_hooks(pack, lambda value: value):
            doubled = x * 2
            y = doubled * doubled
        doubled.add_(1)
        y.sum().backward()
        return x

    x = program(lambda tensor: tensor.clone())
    np.testing.assert_allclose(grad_of(x), 8 * x.detach().numpy())
    with pytest.raises(RuntimeError, match="changed in place after it was used"):
        program(lambda value: value)


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_an_op_in_place_with_hooks_packs_or_misses_its_operands_as_without(part: slice) -> None:
    def outcome(hooks: Any) -> Any:
        x = numbers(3)
        with hooks:
            y = x * 2
            y[part].mul_(x[part]).sin_()
        try:
            y.sum().backward()
        except RuntimeError as error:
            return type(error), "changed in place after it was used" in str(error)
        return grad_of(x).tolist()

    with_hooks = outcome(saved_tensors_hooks(lambda tensor: tensor.clone(), lambda value: value))
    assert with_hooks == outcome(flow.enable_grad())


def test_hooks_that_do_wrong() -> None:
    x = numbers(3)
    with (
        saved_tensors_hooks(lambda value: value.add_(1), lambda value: value),
        pytest.raises(RuntimeError, match="in place"),
    ):
        (x * 2).exp()
    with saved_tensors_hooks(lambda value: 3, lambda value: value):
        y = x.exp()
    with pytest.raises(TypeError, match="must return a tensor, not int"):
        y.sum().backward()
    with saved_tensors_hooks(lambda value: value, lambda value: value[:1]):
        y = x.exp()
    with pytest.raises(RuntimeError, match=r"shape \[1\] for one of shape \[3\], saved by exp"):
        y.sum().backward()
    with pytest.raises(TypeError, match="unpack_hook must be a function, got int"):
        saved_tensors_hooks(lambda value: value, 3)  # type: ignore[arg-type]

    def failing(tensor: flow.Tensor) -> None:
        raise KeyError("pack")

    with saved_tensors_hooks(failing, lambda value: value), pytest.raises(KeyError):
        x.exp()
    assert flow.is_grad_enabled()
    x.exp().sum().backward()


def test_a_second_pass_needs_retain_graph_with_hooks_as_well() -> None:
    x = numbers(3)
    with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda value: value):
        y = (x * x).exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_hooks_that_are_forbidden() -> None:
    with disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), save_on_cpu():
            pass
        with disable_saved_tensors_hooks("nor here"), pytest.raises(RuntimeError, match="nor here"), save_on_cpu():
            pass
    with save_on_cpu(), pytest.raises(RuntimeError, match="in use"), disable_saved_tensors_hooks("in use"):
        pass
    with save_on_cpu():
        numbers(2).exp()


@pytest.mark.host
def test_a_tensor_that_is_kept_on_the_cpu_anyway_may_not_change_in_place() -> None:
    x = numbers(3)
    factor = flow.ones(3, dtype=flow.float64)
    with save_on_cpu():
        y = (x * factor).sum()
    factor.mul_(10)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()


def test_a_graph_packs_its_saved_tensors() -> None:
    weight = nn.Parameter(numbers(3).detach())

    class Weighted(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            with saved_tensors_hooks(lambda value: value * 4, lambda value: value / 4):
                y = ((x * weight).exp() * weight).sum()
            y.backward()
            return y

    x = numbers(3).detach()
    expected = nn.Parameter(weight.detach().clone())
    ((x * expected).exp() * expected).sum().backward()
    Weighted()(x)
    np.testing.assert_allclose(grad_of(weight), grad_of(expected), 1e-12)


# Places in the graph


def test_the_gradient_at_an_edge_is_that_of_the_tensor() -> None:
    x = numbers(3)
    y = x * 2
    z = (y * y).sum()
    edges = [get_gradient_edge(value) for value in (x, y)]
    by_edge = flow.autograd.grad(z, edges, retain_graph=True)
    by_tensor = flow.autograd.grad(z, [x, y], retain_graph=True)
    for one, other in zip(by_edge, by_tensor, strict=True):
        assert one is not None
        assert other is not None
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    gradient = flow.ones(3, dtype=flow.float64)
    (found,) = flow.autograd.grad(edges[1], x, gradient)
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), 2 * np.ones(3))
    assert edges[1].node is y.grad_fn


def test_an_edge_keeps_no_memory_of_the_tensor() -> None:
    y = numbers(3) * 2
    edge = get_gradient_edge(y)
    storage = weakref.ref(y._blob.storage)
    del y
    flow.synchronize()
    assert storage() is None
    assert edge.output_nr == 0


def test_edges_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="does not require a gradient"):
        get_gradient_edge(flow.ones(2))
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        get_gradient_edge(3)  # type: ignore[arg-type]
    x = numbers(3)
    y = x * 2
    with pytest.raises(RuntimeError, match="cannot be left out for a GradientEdge"):
        flow.autograd.grad(get_gradient_edge(y), x)
    with pytest.raises(RuntimeError, match="GradientEdge has no shape"):
        flow.autograd.grad(y.sum(), get_gradient_edge(x), materialize_grads=True)
    with pytest.raises(RuntimeError, match="input 1 is the edge of an op's result"):
        flow.autograd.backward(y.sum(), inputs=[get_gradient_edge(x), get_gradient_edge(y)])
    assert x.grad is None
    flow.autograd.backward(y.sum(), inputs=get_gradient_edge(x))
    np.testing.assert_array_equal(grad_of(x), [2, 2, 2])


# Gradients by name


def test_accumulating_into_some_inputs() -> None:
    x, w = numbers(3), numbers(3)
    y = x * w
    z = (y * y).sum()
    z.backward(inputs=[x], retain_graph=True)
    assert x.grad is not None
    assert w.grad is None
    assert y.grad is None
    z.backward(inputs=y, retain_graph=True)
    assert w.grad is None
    np.testing.assert_array_equal(grad_of(y), 2 * y.detach().numpy())
    flow.autograd.backward(z, inputs={"w": w})
    assert w.grad is not None
    expected = numbers(3), numbers(3)
    ((expected[0] * expected[1]) ** 2).sum().backward()
    np.testing.assert_allclose(grad_of(x), grad_of(expected[0]), 1e-13)
    np.testing.assert_allclose(grad_of(w), grad_of(expected[1]), 1e-13)


def test_accumulating_into_inputs_adds_and_calls_hooks() -> None:
    x, w = numbers(3), numbers(3)
    calls: list[str] = []
    x.register_hook(lambda gradient: calls.append("hook"))
    x.register_post_accumulate_grad_hook(lambda leaf: calls.append("after"))
    w.register_hook(lambda gradient: calls.append("not wanted"))
    for _ in range(2):
        (x * w).sum().backward(inputs=[x, x])
    np.testing.assert_array_equal(grad_of(x), 2 * w.detach().numpy())
    assert calls == ["hook", "after"] * 2


def test_inputs_that_do_not_fit_are_refused_before_anything_changes() -> None:
    x = numbers(3)
    z = (x * x).sum()
    with pytest.raises(RuntimeError, match="inputs is empty"):
        z.backward(inputs=[])
    with pytest.raises(RuntimeError, match="input 1 does not require a gradient"):
        z.backward(inputs=[x, flow.ones(3)])
    assert x.grad is None
    z.backward(inputs=[x])


def test_an_input_that_is_not_used_gets_nothing() -> None:
    x, other = numbers(3), numbers(3)
    (x * x).sum().backward(inputs=[other])
    assert x.grad is None
    assert other.grad is None


def test_unused_inputs_can_get_zeros() -> None:
    x, other = numbers(3), numbers(2, 2)
    found = flow.autograd.grad((x * x).sum(), {"x": x, "other": other}, materialize_grads=True)
    assert list(found) == ["x", "other"]
    assert found["other"] is not None
    assert found["other"].tolist() == [[0, 0], [0, 0]]
    assert not found["other"].requires_grad
    with pytest.raises(ValueError, match="contradicts materialize_grads"):
        flow.autograd.grad((x * x).sum(), x, allow_unused=False, materialize_grads=True)


@pytest.mark.parametrize("create_graph", [False, True])
def test_batches_of_gradients(create_graph: bool) -> None:
    x, other = numbers(2, 3), numbers(2)
    y = x.exp() * 2
    rows = flow.tensor(np.arange(24.0).reshape(4, 2, 3))
    found = flow.autograd.grad(y, [x, other], rows, is_grads_batched=True, allow_unused=True, create_graph=create_graph)
    assert found[0] is not None
    assert found[1] is None
    np.testing.assert_allclose(found[0].detach().numpy(), (rows * x.exp() * 2).detach().numpy(), 1e-13)
    assert found[0].requires_grad == create_graph
    if not create_graph:
        with pytest.raises(RuntimeError, match="retain_graph=True"):
            flow.autograd.grad(y, x, rows, is_grads_batched=True)


@pytest.mark.parametrize("rows", [None, np.ones((2, 3)), np.ones((4, 3, 2)), np.ones((0, 2, 3)), np.ones(())])
def test_batches_that_do_not_fit(rows: Any) -> None:
    x = numbers(2, 3)
    y = x.exp()
    with pytest.raises(RuntimeError, match=r"batch|each of 1 outputs"):
        flow.autograd.grad(y, x, None if rows is None else flow.tensor(rows), is_grads_batched=True)
    y.sum().backward()


def test_counting_a_change_in_place() -> None:
    x = numbers(3)
    doubled = x * 2
    y = (doubled * doubled).sum()
    increment_version([doubled])
    with pytest.raises(RuntimeError, match="changed in place after it was used"):
        y.backward()
    with pytest.raises(TypeError, match="increment_version: expected tensors, got Tensor, int"):
        increment_version([x, 3])  # type: ignore[list-item]


# Hooks of nodes


def test_hooks_of_nodes_see_and_replace_gradients() -> None:
    x, w = numbers(3), numbers(3)
    y = x * w
    z = y.sum()
    node = y.grad_fn
    assert isinstance(node, flow.autograd.graph.Node)
    seen: list[tuple[str, int]] = []

    def before(gradients: Any) -> Any:
        seen.append(("before", len(gradients)))
        return (gradients[0] * 3,)

    def after(given: Any, gradients: Any) -> Any:
        seen.append(("after", len(given)))
        np.testing.assert_array_equal(gradients[0].numpy(), 3 * np.ones(3))
        return given[0], None

    handles = [node.register_prehook(before), node.register_hook(after)]
    z.backward(retain_graph=True)
    np.testing.assert_array_equal(grad_of(x), 3 * w.detach().numpy())
    assert w.grad is None
    assert seen == [("before", 1), ("after", 2)]
    for handle in handles:
        handle.remove()
    z.backward()
    np.testing.assert_array_equal(grad_of(x), 4 * w.detach().numpy())
    np.testing.assert_array_equal(grad_of(w), x.detach().numpy())
    assert len(seen) == 2


def test_accumulation_does_not_change_gradients_that_hooks_of_nodes_keep() -> None:
    x = numbers(3)
    kept: list[flow.Tensor] = []
    for _ in range(2):
        y = x * 1
        assert y.grad_fn is not None
        y.grad_fn.register_hook(lambda given, gradients: kept.append(given[0]))
        y.sum().backward()
    assert [tensor.tolist() for tensor in kept] == [[1, 1, 1], [1, 1, 1]]
    assert grad_of(x).tolist() == [2, 2, 2]


def test_hooks_of_a_slice_and_of_a_function() -> None:
    x = numbers(4)
    seen: list[list[float]] = []
    first, last = x[:2], Squared.apply(x[2:])
    for part in (first, last):
        assert part.grad_fn is not None
        part.grad_fn.register_prehook(lambda gradients: seen.append(gradients[0].tolist()))
    (first.sum() + 2 * last.sum()).backward()
    assert sorted(seen) == [[1, 1], [2, 2]]
    np.testing.assert_allclose(grad_of(x), [1, 1, *(4 * x.detach().numpy()[2:])])


def test_no_gradient_flows_through_an_op_whose_hook_takes_its_gradient_away() -> None:
    x, w = numbers(3), numbers(3)
    y = x * w
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda gradients: (None,))
    (y + x).sum().backward()
    np.testing.assert_array_equal(grad_of(x), np.ones(3))
    assert w.grad is None


@pytest.mark.host
def test_hooks_of_nodes_that_return_wrong_gradients() -> None:
    x = numbers(3)
    y = x * x
    assert y.grad_fn is not None
    handle = y.grad_fn.register_hook(lambda given, gradients: given[:1])
    with pytest.raises(RuntimeError, match="returned 1 gradients, where there are 2"):
        y.sum().backward(retain_graph=True)
    handle.remove()
    cases: tuple[tuple[Callable[[flow.Tensor], flow.Tensor], str], ...] = (
        (lambda gradient: gradient[:1], r"float64\[1\] on cpu in place of a gradient of float64\[3\] on cpu"),
        (lambda gradient: gradient.float(), "float32"),
        (lambda gradient: gradient.to("sim"), "on sim"),
    )
    for wrong, message in cases:

        def before(gradients: Any, wrong: Any = wrong) -> Any:
            return (wrong(gradients[0]),)

        def after(given: Any, gradients: Any, wrong: Any = wrong) -> Any:
            return wrong(given[0]), given[1]

        with (
            y.grad_fn.register_prehook(before),
            pytest.raises(RuntimeError, match="register_prehook: a hook returned .*" + message),
        ):
            y.sum().backward(retain_graph=True)
        with (
            y.grad_fn.register_hook(after),
            pytest.raises(RuntimeError, match="register_hook: a hook returned .*" + message),
        ):
            y.sum().backward(retain_graph=True)
    with y.grad_fn.register_prehook(lambda gradients: 3), pytest.raises(TypeError, match="returned int"):
        y.sum().backward(retain_graph=True)
    y = x * flow.ones(3)
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda given, gradients: (given[0], given[0]))
    with pytest.raises(RuntimeError, match="where there is none to replace"):
        y.sum().backward()


# Hooks of several gradients


def test_all_gradients_are_seen_together_once_in_each_pass() -> None:
    x, w, other = numbers(3), numbers(3), numbers(3)
    y = x * w
    seen: list[list[Any]] = []
    handle = register_multi_grad_hook([y, x, other], lambda given: seen.append([value is not None for value in given]))
    (y * y).sum().backward(retain_graph=True)
    assert seen == [[True, True, False]]
    (y * other).sum().backward()
    assert seen[1:] == [[True, True, True]]
    handle.remove()
    (x * other).sum().backward()
    assert len(seen) == 2


def test_gradients_are_handed_on_as_soon_as_all_are_there() -> None:
    x = numbers(3)
    first = x * 2
    second = first * 2
    order: list[str] = []
    register_multi_grad_hook([first, second], lambda given: order.append("both"))
    x.register_hook(lambda gradient: order.append("leaf"))
    second.sum().backward()
    assert order == ["both", "leaf"]


def test_the_first_gradient_alone_is_seen_in_each_pass() -> None:
    x, w = numbers(3), numbers(3)
    y = x * w
    seen: list[list[float]] = []
    with register_multi_grad_hook([x, y, w], lambda given: seen.append(given.tolist()), mode="any"):
        y.sum().backward(retain_graph=True)
        (y * 2).sum().backward(retain_graph=True)
    y.sum().backward()
    assert seen == [[1, 1, 1], [2, 2, 2]]


def test_a_pass_that_fails_leaves_nothing_for_the_next() -> None:
    x, w = numbers(3), numbers(3)
    seen: list[int] = []

    def failing(gradient: flow.Tensor) -> None:
        raise KeyError("hook")

    handle = w.register_hook(failing)
    register_multi_grad_hook([x, w], lambda given: seen.append(sum(value is not None for value in given)))
    y = x * w
    with pytest.raises(KeyError):
        y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    assert seen == [2]


def test_hooks_of_several_gradients_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="'all' or 'any', got 'some'"):
        register_multi_grad_hook([numbers(2)], lambda given: None, mode="some")
    with pytest.raises(RuntimeError, match="tensor 1 does not require a gradient"):
        register_multi_grad_hook([numbers(2), flow.ones(2)], lambda given: None)
