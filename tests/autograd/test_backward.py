"""Backward passes: accumulation, hooks, higher derivatives, errors, long chains."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients


def leaf(*values: float) -> flow.Tensor:
    return flow.tensor(list(values), dtype=flow.float64, requires_grad=True)


def test_leaves_and_non_leaves() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3
    assert x.is_leaf
    assert x.grad_fn is None
    assert not y.is_leaf
    assert y.grad_fn is not None
    assert y.grad_fn.name() == "mul_scalar"
    assert y.requires_grad
    assert not flow.ones(2).requires_grad


def test_gradients_accumulate() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0, 7.0]


def test_accumulation_is_in_place() -> None:
    """A reference to `grad` sees the next backward pass, as in PyTorch."""
    x = leaf(1.0)
    x.sum().backward()
    kept = x.grad
    x.sum().backward()
    assert kept is x.grad
    assert kept is not None
    assert kept.tolist() == [2.0]


def test_the_first_gradient_is_not_shared() -> None:
    """Both operands of an add get the same gradient, but not the same memory."""
    x, y = leaf(1.0), leaf(2.0)
    seed = flow.ones(1, dtype=flow.float64)
    (x + y).backward(seed)
    assert x.grad is not None
    assert y.grad is not None
    x.grad.zero_()
    assert y.grad.tolist() == [1.0]
    assert seed.tolist() == [1.0]


def test_a_view_of_a_gradient_is_not_shared() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x.reshape(2, 1) + y.reshape(2, 1)).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.is_contiguous()
    x.grad.mul_(100)
    assert y.grad.tolist() == [1.0, 1.0]


def test_one_input_used_twice() -> None:
    x = leaf(3.0)
    (x * x + x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [7.0]


def test_diamond() -> None:
    x = leaf(2.0)
    a = x * 3
    (a * a + a.exp()).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [2 * 9 * 2 + 3 * np.exp(6)])


def test_broadcast_operands_get_summed_gradients() -> None:
    x, y = flow.ones(3, 1, requires_grad=True), flow.ones(4, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [[4.0]] * 3
    assert y.grad.tolist() == [3.0] * 4


def test_gradients_have_their_inputs_dtype() -> None:
    x = flow.ones(2, dtype=flow.float32, requires_grad=True)
    y = flow.ones(2, dtype=flow.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.dtype is flow.float32
    assert y.grad.dtype is flow.float64


def test_nothing_to_differentiate() -> None:
    with pytest.raises(RuntimeError, match="does not require a gradient"):
        flow.ones(1).backward()


def test_a_gradient_is_needed_for_several_elements() -> None:
    with pytest.raises(RuntimeError, match=r"single element only, not for shape \[2\]"):
        leaf(1.0, 2.0).backward()
    with pytest.raises(RuntimeError, match="cannot have shape"):
        (leaf(1.0, 2.0) * 2).backward(flow.ones(3, dtype=flow.float64))


@pytest.mark.parametrize("keeps", ["leaf", "result"])
def test_a_given_gradient_is_cast_to_the_dtype_of_its_tensor(keeps: str) -> None:
    x = flow.ones(2, dtype=flow.float16, requires_grad=True)
    y = x if keeps == "leaf" else x * 1
    (found,) = flow.autograd.grad(y, y, flow.full((2,), 1e5), retain_graph=True)
    assert found is not None
    assert (found.dtype, found.tolist()) == (flow.float16, [np.inf, np.inf])
    y.retain_grad()
    y.backward(flow.ones(2, dtype=flow.float64))
    assert y.grad is not None
    assert (y.grad.dtype, y.grad.tolist()) == (flow.float16, [1.0, 1.0])


@pytest.mark.host
@pytest.mark.parametrize("device", ["sim", "meta"])
def test_a_given_gradient_is_on_the_device_of_its_tensor(device: str) -> None:
    x = leaf(1.0, 2.0)
    for y in (x, x * 2):
        gradient = flow.ones(2, dtype=flow.float64, device=device)
        with pytest.raises(RuntimeError, match="the gradient of a tensor on cpu cannot be on " + device):
            y.backward(gradient)
        with pytest.raises(RuntimeError, match="cannot be on " + device):
            flow.autograd.grad([y], x, [gradient])
    assert x.grad is None


def test_a_given_gradient_is_complex_where_its_tensor_is() -> None:
    x = leaf(1.0)
    for y, gradient in ((x * 2, 1j), (x * 2j, 1.0)):
        with pytest.raises(RuntimeError, match="both must be complex, or neither"):
            y.backward(flow.tensor([gradient]))


def test_a_second_pass_needs_retain_graph() -> None:
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0]


def test_a_second_pass_is_fine_where_nothing_was_saved() -> None:
    x = leaf(2.0)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0]


def test_grad_of_inner_values() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * 3
    (by_y,) = flow.autograd.grad(z, y, retain_graph=True)
    (by_x,) = flow.autograd.grad(z, x)
    assert by_y is not None
    assert by_x is not None
    assert (by_y.tolist(), by_x.tolist()) == ([3.0], [12.0])
    assert x.grad is None


def test_grad_skips_branches_to_unwanted_leaves() -> None:
    """The branch towards an unwanted leaf is not walked: its node keeps its saved tensors."""
    x, y = leaf(2.0), leaf(3.0)
    branch = y * y
    z = x * branch
    flow.autograd.grad(z, x)
    (by_y,) = flow.autograd.grad(branch, y)
    assert by_y is not None
    assert by_y.tolist() == [6.0]


def test_grad_of_unused_inputs() -> None:
    x, y = leaf(2.0), leaf(3.0)
    with pytest.raises(RuntimeError, match="do not depend on input 1"):
        flow.autograd.grad(x * 2, [x, y])
    found = flow.autograd.grad(x * 2, [x, y], allow_unused=True)
    assert found[1] is None
    with pytest.raises(RuntimeError, match="input 0 does not require"):
        flow.autograd.grad(x * 2, flow.ones(1))


def test_several_outputs() -> None:
    x = leaf(2.0)
    found = flow.autograd.grad([x * 2, x * x], x, grad_outputs=[None, flow.tensor([10.0], dtype=flow.float64)])
    assert found[0] is not None
    assert found[0].tolist() == [42.0]


def test_higher_derivatives() -> None:
    x = leaf(2.0)
    value = x**4
    for factor in (4 * 8.0, 12 * 4.0, 24 * 2.0, 24.0):
        (found,) = flow.autograd.grad(value, x, create_graph=True)
        assert found is not None
        value = found
        np.testing.assert_allclose(value.detach().numpy(), [factor])


def test_backward_with_create_graph() -> None:
    x = leaf(3.0)
    (x * x * x).backward(create_graph=True)
    assert x.grad is not None
    assert x.grad.requires_grad
    (second,) = flow.autograd.grad(x.grad, x)
    assert second is not None
    assert second.tolist() == [18.0]


def test_numerical_gradients_of_a_small_network() -> None:
    x, w, b = arrays_for(0, (3, 4), (4, 2), (2,))
    check_gradients(lambda x, w, b: ((x @ w + b).tanh() * x.sum()).exp().mean(0), x / 4, w / 4, b, second=True)


def test_hooks() -> None:
    x = leaf(1.0, 2.0)
    seen: list[list[float]] = []
    y = x * 2
    y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    handle = y.register_hook(lambda gradient: gradient * 10)
    leaf_handle = x.register_hook(lambda gradient: gradient + 1)
    y.sum().backward()
    assert seen == [[1.0, 1.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [21.0, 21.0]
    handle.remove()
    leaf_handle.remove()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [23.0, 23.0]


def test_a_hook_sees_the_sum() -> None:
    """Not each contribution: hooks run when the gradient is complete."""
    x = leaf(1.0)
    y = x * 1
    seen: list[list[float]] = []
    y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (y + y * 2).backward()
    assert seen == [[3.0]]


def test_hooks_of_a_leaf_see_the_whole_gradient_once() -> None:
    x = leaf(1.0)
    seen: list[list[float]] = []
    after: list[list[float]] = []

    def look(tensor: flow.Tensor) -> None:
        assert tensor.grad is not None
        after.append(tensor.grad.tolist())

    x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    x.register_hook(lambda gradient: gradient.clamp(max=1.0))
    x.register_post_accumulate_grad_hook(look)
    (x * 2 + x * 3).sum().backward()
    assert seen == [[5.0]]
    assert after == [[1.0]]
    (found,) = flow.autograd.grad((x * 2 + x * 3).sum(), x)
    assert found is not None
    assert found.tolist() == [1.0]


def test_gradients_are_not_shared_with_create_graph_either() -> None:
    x, y = leaf(1.0), leaf(2.0)
    seed = flow.ones(1, dtype=flow.float64)
    (x + y).backward(seed, create_graph=True)
    assert x.grad is not None
    assert y.grad is not None
    with flow.no_grad():
        x.grad.zero_()
    assert (y.grad.tolist(), seed.tolist()) == ([1.0], [1.0])


def test_a_hook_with_a_wrong_shape() -> None:
    x = leaf(1.0)
    x.register_hook(lambda gradient: flow.ones(3, dtype=flow.float64))
    with pytest.raises(RuntimeError, match="hook returned"):
        (x * 2).backward()


@pytest.mark.host
@pytest.mark.parametrize("where", ["leaf", "result"])
def test_a_hook_does_not_change_the_dtype_or_the_device_of_a_gradient(where: str) -> None:
    x = leaf(1.0)
    y = x * 2
    cases: tuple[tuple[type[Exception], Any, str], ...] = (
        (RuntimeError, lambda gradient: gradient.float(), "float32"),
        (RuntimeError, lambda gradient: gradient.to("sim"), "on sim"),
        (TypeError, lambda gradient: 3, "returned int"),
    )
    for error, hook, message in cases:
        with (x if where == "leaf" else y).register_hook(hook), pytest.raises(error, match="a hook .*" + message):
            y.backward(retain_graph=True)
    assert x.grad is None


def test_retain_grad() -> None:
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    z = y * 3
    z.backward()
    assert y.grad is not None
    assert y.grad.tolist() == [3.0]
    assert z.grad is None


def test_post_accumulate_hook() -> None:
    x = leaf(1.0)
    seen: list[list[float]] = []

    def look(tensor: flow.Tensor) -> None:
        assert tensor.grad is not None
        seen.append(tensor.grad.tolist())

    x.register_post_accumulate_grad_hook(look)
    (x * 2 + x).backward()
    assert seen[-1] == [3.0]


def test_a_leaf_that_has_been_frozen_since_gets_no_gradient() -> None:
    frozen, other = leaf(1.0, 2.0), leaf(3.0, 4.0)
    seen: list[list[float]] = []
    after: list[str] = []
    frozen.register_hook(lambda gradient: seen.append(gradient.tolist()))
    frozen.register_post_accumulate_grad_hook(lambda x: after.append("accumulated"))
    product = (frozen * other).sum()
    frozen.requires_grad_(False)
    product.backward(retain_graph=True)
    assert frozen.grad is None
    assert other.grad is not None
    assert other.grad.tolist() == [1.0, 2.0]
    assert seen == [[3.0, 4.0]]
    assert not after
    with pytest.raises(RuntimeError, match="does not require a gradient"):
        flow.autograd.grad(product, [frozen], retain_graph=True)
    frozen.requires_grad_()
    product.backward()
    assert frozen.grad is not None
    assert frozen.grad.tolist() == [3.0, 4.0]


def test_in_place_ops_are_recorded() -> None:
    x = leaf(2.0)
    y = x * 1
    y.mul_(3)
    y.add_(x)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0]


def test_in_place_on_a_leaf_is_refused() -> None:
    x = leaf(2.0)
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with flow.no_grad():
        x.add_(1)
    assert x.tolist() == [3.0]


def test_a_saved_tensor_that_was_changed_is_noticed() -> None:
    x = leaf(2.0)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"changed in place after it was used .*\n?.*test_backward.py"):
        z.backward()


@pytest.mark.parametrize("product", [flow.mul, flow.matmul])
@pytest.mark.parametrize("wanted", [0, 1])
def test_a_product_keeps_only_the_factor_that_the_wanted_gradient_needs(product: Any, wanted: int) -> None:
    shape = (256, 256)
    weight, data = flow.ones(shape, requires_grad=True), flow.full(shape, 5.0)
    own = weight * 3
    flow.synchronize()
    before = flow.memory_allocated(own.device)
    result = product(own, data) if wanted == 0 else product(data, own)
    del own
    flow.synchronize()
    # The result is there, and the factor is not.  A reused block may be larger than requested.
    assert flow.memory_allocated(result.device) < before + result.nbytes // 2
    result.sum().backward()
    assert weight.grad is not None
    expected = 15.0 if product is flow.mul else 256 * 15.0
    np.testing.assert_array_equal(weight.grad.numpy(), np.full(shape, expected))


def test_an_op_in_place_keeps_the_operand_its_gradient_needs() -> None:
    """`y.mul_(w)` overwrites y, which is w's gradient."""
    x, w = leaf(2.0), leaf(5.0)
    y = x * 1
    y.mul_(w)
    y.backward()
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.tolist(), w.grad.tolist()) == ([5.0], [2.0])


def test_an_op_in_place_that_saves_its_result() -> None:
    x = leaf(-1.0, 2.0)
    y = x * 1
    y.relu_()
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0]


def test_a_change_through_memory_without_history_is_noticed() -> None:
    """`y.detach()` is no view of y for autograd, so that its recorded change cannot become part of y's history."""
    x = leaf(1.0, 2.0)
    y = x * 1
    view = y[:1]
    y.detach().mul_(x)
    for outdated in (y, view):
        with pytest.raises(RuntimeError, match="make the view anew"):
            outdated * 2
        with pytest.raises(RuntimeError, match="make the view anew"):
            outdated.sum().backward()


def test_an_outdated_operand_is_refused_before_anything_changes() -> None:
    x = leaf(1.0, 2.0)
    y = x * 1
    y.detach().mul_(x)
    other = x * 1
    squares = other * other
    with pytest.raises(RuntimeError, match="make the view anew"):
        other.add_(y)
    squares.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_higher_derivatives_of_an_in_place_op() -> None:
    x = leaf(1.0)
    y = x * 1
    y.exp_()
    (first,) = flow.autograd.grad(y.sum(), x, create_graph=True)
    assert first is not None
    np.testing.assert_allclose(first.detach().numpy(), [np.e])


def test_an_expanded_tensor_is_not_changed_in_place() -> None:
    with pytest.raises(RuntimeError, match="share one place in memory"):
        flow.zeros(1).expand(3).add_(1)


def test_integers_have_no_gradient() -> None:
    with pytest.raises(RuntimeError, match="int64"):
        flow.arange(3).requires_grad_()
    x = leaf(1.0, 2.0)
    assert not (x > 1).requires_grad
    assert not x.argmax().requires_grad


def test_detach_and_data() -> None:
    x = leaf(1.0)
    y = x.detach()
    assert not y.requires_grad
    with flow.no_grad():
        y.add_(1)
    assert x.tolist() == [2.0]
    x.data = flow.tensor([7.0], dtype=flow.float64)
    assert x.requires_grad
    assert x.tolist() == [7.0]
    for tensor in (x, x * 2):
        with pytest.raises(RuntimeError, match="data: a tensor that requires a gradient cannot become int64"):
            tensor.data = flow.tensor([7])
    y.data = flow.tensor([7])
    assert y.dtype is flow.int64


def test_assigning_grad_is_checked() -> None:
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match=r"float64\[1\]"):
        x.grad = flow.ones(2, dtype=flow.float64)
    x.grad = flow.ones(1, dtype=flow.float64)
    x.grad = None
    assert x.grad is None


def test_a_very_long_chain() -> None:
    """Neither the pass nor freeing the graph recurses."""
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = y + 0.0
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0]
    del y
    z = x
    for _ in range(20_000):
        z = z * 1.0
    del z


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "relu", "softmax"])
def test_a_graph_is_freed_without_the_collector(name: str) -> None:
    """An op that saves its own output must not keep itself alive."""
    x = leaf(1.0, 2.0)
    gc.collect()
    gc.disable()
    try:
        y = getattr(x, name)(*([0] if name == "softmax" else []))
        flow.synchronize()
        saved = weakref.ref(y._blob.storage.array)
        del y
        assert saved() is None
    finally:
        gc.enable()


def test_backward_does_not_wait() -> None:
    """It issues instructions and returns; nothing has been computed."""
    gate = flow.ones(64, 64, requires_grad=True)
    (gate @ gate).sum().backward()
    assert gate.grad is not None
    assert gate.grad.shape == (64, 64)


def test_an_error_in_the_backward_names_the_forward_line() -> None:
    from vmflow.ops.table import OPS

    x = leaf(1.0)
    y = x.tanh()
    rule = OPS["tanh"].rule
    try:
        OPS["tanh"].rule = lambda node, gradient: (gradient.reshape(5),)
        with pytest.raises(ValueError, match="do not fit") as caught:
            y.backward()
    finally:
        OPS["tanh"].rule = rule
    assert any(
        "in the backward pass of tanh, run forward at" in note and "test_backward.py" in note
        for note in caught.value.__notes__
    )
