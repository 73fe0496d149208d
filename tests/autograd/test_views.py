"""Views that are changed in place, and views of changed tensors, have the gradients that PyTorch gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import run_program


def _row(lib: Any, y: Any, w: Any) -> Any:
    y[0].mul_(2)
    return y


def _flat(lib: Any, y: Any, w: Any) -> Any:
    y.view(-1).add_(1).tanh_()
    return y


def _row_by_another_leaf(lib: Any, y: Any, w: Any) -> Any:
    y[0] *= w
    y[1:] += y[:2].clone() * w
    return y


def _view_of_a_view(lib: Any, y: Any, w: Any) -> Any:
    y[0][1:3] = 5
    y[1][lib.tensor([0, 2])] = w[:2]
    y.T[2][y.T[2] > 0.5] = 0.0
    return y


def _transposed(lib: Any, y: Any, w: Any) -> Any:
    y.t().mul_(2)
    y.transpose(0, 1)[0].copy_(w[:3])
    y.diagonal().zero_()
    return y


def _view_from_before(lib: Any, y: Any, w: Any) -> Any:
    view = y[1]
    y.mul_(3)
    return view


def _two_views_from_before(lib: Any, y: Any, w: Any) -> Any:
    outer = y.view(2, 6)
    inner = outer[1]
    column = y[:, 3]
    inner.mul_(2)
    outer.add_(1)
    return inner.sum() + (column * column).sum()


def _view_used_after_its_change(lib: Any, y: Any, w: Any) -> Any:
    view = y[1]
    view.exp_()
    return view * 2 + y.sum(0)


def _overlapping_windows_from_before(lib: Any, y: Any, w: Any) -> Any:
    windows = y.unfold(1, 3, 1)
    y[:, 1] *= 2
    return windows * windows


def _base_without_gradient(lib: Any, y: Any, w: Any) -> Any:
    out = lib.zeros(3, 4)
    early = out[2]
    for place in range(3):
        out[place] += w * y[place]
    return out.sum(0) + early


def _seen_differently(lib: Any, y: Any, w: Any) -> Any:
    y.t_()
    y.mul_(3)
    return y.unsqueeze_(0)


CASES: list[Callable[[Any, Any, Any], Any]] = [
    _row,
    _flat,
    _row_by_another_leaf,
    _view_of_a_view,
    _transposed,
    _view_from_before,
    _two_views_from_before,
    _view_used_after_its_change,
    _overlapping_windows_from_before,
    _base_without_gradient,
    _seen_differently,
]


def _run(lib: Any, case: Callable[[Any, Any, Any], Any]) -> list[list[Any]]:
    x = lib.tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), requires_grad=True)
    w = lib.tensor(np.linspace(0.5, 2, 4, dtype=np.float32), requires_grad=True)
    result = case(lib, x * 1, w)
    (result * lib.arange(1.0, 1 + result.numel()).reshape(result.shape)).sum().backward()
    return [result.tolist(), *[[] if tensor.grad is None else tensor.grad.tolist() for tensor in (x, w)]]


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case: Callable[[Any, Any, Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    for found, expected in zip(_run(flow, case), _run(torch, case), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-5)


def test_a_view_comes_to_require_a_gradient_with_its_base() -> None:
    w = flow.ones(2, requires_grad=True)
    base = flow.zeros(3, 2)
    row, apart = base[1], base.detach()[1]
    assert row.is_leaf
    base.add_(w)
    assert row.requires_grad
    assert not row.is_leaf
    assert not apart.requires_grad
    (row * 3).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3.0, 3.0]


def test_a_base_comes_to_require_a_gradient_with_its_view() -> None:
    w = flow.ones(2, requires_grad=True)
    base = flow.zeros(3, 2)
    base[1].add_(w)
    assert base.requires_grad
    (base * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2.0, 2.0]


def test_second_derivatives_through_a_view() -> None:
    x = flow.tensor([2.0, 3.0], requires_grad=True)
    y = x * 1
    y[:1].mul_(x[:1] * x[:1])
    (first,) = flow.autograd.grad(y.sum(), x, create_graph=True)
    assert first is not None
    (second,) = flow.autograd.grad(first.sum(), x)
    assert first.tolist() == [12.0, 1.0]
    assert second is not None
    assert second.tolist() == [12.0, 0.0]


def test_views_of_leaves_and_views_made_without_recording_are_refused_before_anything_changes() -> None:
    x = flow.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x[:1].mul_(2)
    with pytest.raises(RuntimeError, match="leaf"):
        x.view(2, 1)[0] = 3.0
    y = x * 1
    with flow.no_grad():
        view = y[:1]
    with pytest.raises(RuntimeError, match="no_grad"):
        view.mul_(x[:1])
    assert y.tolist() == [1.0, 1.0]


def test_a_change_through_another_view_of_saved_memory_is_noticed() -> None:
    x = flow.ones(2, requires_grad=True)
    y = x * 1
    z = y[:1] * y[:1]
    y[1:].add_(1)
    with pytest.raises(RuntimeError, match="changed in place after it was used"):
        z.sum().backward()


def test_hooks_and_gradients_stay_with_a_tensor_that_changes_in_place() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    heard: list[list[float]] = []
    y.register_hook(lambda gradient: heard.append(gradient.tolist()))
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    assert y.grad is not None
    y.mul_(5)
    assert y.grad.tolist() == [1.0, 1.0]
    y.sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]  # of the new value
    assert heard == [[1.0, 1.0], [5.0, 5.0]]  # of the old one
    assert y.detach_().grad is not None


def test_a_view_is_a_part_of_its_base_after_it_was_changed_in_place() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    base = x * 1
    view = base[:1]
    view.mul_(3)
    (found,) = flow.autograd.grad((base.sum() + view.sum()), base)
    assert found is not None
    assert found.tolist() == [2.0, 1.0]


def test_a_kept_gradient_of_a_view_follows_its_base() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    base = x * 1
    view = base[:1]
    view.retain_grad()
    base.mul_(2)
    (view * 3).sum().backward()
    assert view.grad is not None
    assert view.grad.tolist() == [3.0]


def test_a_hook_of_a_view_gets_gradients_from_uses_before_its_change() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    base = x * 1
    view = base[:1]
    heard: list[list[float]] = []
    view.register_hook(lambda gradient: heard.append(gradient.tolist()))
    other = view * 7
    view.mul_(3)
    (base.sum() + other.sum()).backward()
    assert heard == [[7.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 1.0]


def test_seen_differently_where_nothing_is_recorded() -> None:
    x = flow.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = x * 1
    view = y[0:]
    with flow.no_grad():
        y.t_()
    (y * flow.arange(6.0).reshape(3, 2)).sum().backward(retain_graph=True)
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    y.mul_(2)
    assert flow.autograd.grad(view.sum(), x)[0] is not None  # whose base is a view by now


def test_an_expanded_tensor_without_elements_can_be_changed_in_place() -> None:
    assert flow.ones(0, 1).expand(2, 0, 3).add_(1).shape == (2, 0, 3)


# Steps with x, a leaf of four ones, and y, made from x; the gradient of x that they lead to.
STEPS_IN_A_FRESH_PROCESS = {
    "y[:2].mul_(2); y.sum().backward()": [2, 2, 1, 1],
    "w = y[1:]; y[:2].mul_(2); w.sum().backward()": [0, 2, 1, 1],
    "v = y[:2]; v.mul_(2).add_(1); v.sum().backward()": [2, 2, 0, 0],
    "v = y[:2]; y.mul_(2); v.sum().backward()": [2, 2, 0, 0],
    "v = y[:2]; v.mul_(2); assert repr(v).startswith('tensor([2., 2.]'); v.sum().backward()": [2, 2, 0, 0],
    "h = flow.zeros(2, 4); row, _ = h.unbind(0); h[0] = x; row.sum().backward()": [1, 1, 1, 1],
    "h = flow.zeros(4); v = h[:2]; h[1:] = x[1:]; assert v.requires_grad; v.sum().backward()": [0, 1, 0, 0],
    "z = flow.view_as_complex(y.view(2, 2)); z.real.mul_(2); z.imag.sum().backward()": [0, 1, 0, 1],
    "m = y.view(2, 2); v = m[0]; m.t_(); m.mul_(2); v.sum().backward()": [2, 2, 0, 0],
    "y.view(2, 2).diagonal().zero_(); y.sum().backward()": [0, 1, 1, 0],
    """v = y[:2]
y.mul_(2)
flow.utils.checkpoint.checkpoint(lambda t: t * t, v, use_reentrant=False).sum().backward()""": [8, 8, 0, 0],
}


def test_in_processes_that_have_used_nothing_else() -> None:
    """Some ops are declared when the function of their name is first used, which these programs do not."""
    run_program(
        f"""
        import os
        import traceback

        import vmflow as flow

        for steps, wanted in {STEPS_IN_A_FRESH_PROCESS!r}.items():
            process = os.fork()
            if process:
                assert os.waitpid(process, 0)[1] == 0, steps
                continue
            code = 1
            try:
                x = flow.ones(4, requires_grad=True)
                y = x * 1
                exec(steps)
                assert x.grad.tolist() == wanted, x.grad
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        """
    )
