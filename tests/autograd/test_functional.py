"""Jacobians, Hessians and products with them, by `autograd.functional` and by `func`; compared with torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import func
from vmflow.autograd import functional

X = np.array([0.5, -1.0, 2.0])
W = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 0.25]])


def _pair(x: Any, w: Any) -> tuple[Any, Any]:
    return (w @ x).sin(), (x * x).sum()


def _scalar(x: Any, w: Any) -> Any:
    return ((w @ x) ** 3).sum() + (x.exp() * x).sum()


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for entry in value for leaf in _leaves(entry)]
    return [value]


def _same(ours: Any, theirs: Any) -> None:
    mine, others = _leaves(ours), _leaves(theirs)
    assert len(mine) == len(others)
    for found, expected in zip(mine, others, strict=True):
        assert tuple(found.shape) == tuple(expected.shape)
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vjp": lambda t, f, one: f.vjp(_pair, (one(X), one(W)), (one(X[:2]), one(np.array(2.0)))),
    "vjp of one": lambda t, f, one: f.vjp(lambda x: (x * x).sum(), one(X)),
    "jvp": lambda t, f, one: f.jvp(_pair, (one(X), one(W)), (one(X + 1), one(W * 2))),
    "jacobian": lambda t, f, one: f.jacobian(_pair, (one(X), one(W))),
    "jacobian of one": lambda t, f, one: f.jacobian(lambda x: x.outer(x), one(X)),
    "jacobian of a constant input": lambda t, f, one: f.jacobian(lambda x, w: (x * 2, one(X)), (one(X), one(W))),
    "hessian": lambda t, f, one: f.hessian(_scalar, (one(X), one(W))),
    "hessian of one": lambda t, f, one: f.hessian(lambda x: (x**3).sum(), one(X)),
    "hessian of a linear function": lambda t, f, one: f.hessian(lambda x: x.sum(), one(X)),
    "vhp": lambda t, f, one: f.vhp(_scalar, (one(X), one(W)), (one(X), one(W))),
    "hvp": lambda t, f, one: f.hvp(_scalar, (one(X), one(W)), (one(X), one(W))),
}

TRANSFORMED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda t, f, one: f.grad(_scalar)(one(X), one(W)),
    "grad by both": lambda t, f, one: f.grad(_scalar, argnums=(0, 1))(one(X), one(W)),
    "grad and more": lambda t, f, one: f.grad(lambda x: ((x**2).sum(), x + 1), has_aux=True)(one(X)),
    "grad and value": lambda t, f, one: f.grad_and_value(_scalar)(one(X), one(W)),
    "third derivative": lambda t, f, one: f.grad(f.grad(f.grad(lambda x: x**4)))(one(np.array(2.0))),
    "vjp": lambda t, f, one: f.vjp(lambda x: x.sin(), one(X))[1](one(X)),
    "vjp of several": lambda t, f, one: f.vjp(_pair, one(X), one(W))[1]((one(X[:2]), one(np.array(2.0)))),
    "jvp": lambda t, f, one: f.jvp(lambda x: x.sin(), (one(X),), (one(X),)),
    "jacrev": lambda t, f, one: f.jacrev(lambda x: x.outer(x))(one(X)),
    "jacrev by both": lambda t, f, one: f.jacrev(_pair, argnums=(0, 1))(one(X), one(W)),
    "hessian": lambda t, f, one: f.hessian(lambda x: (x**3).prod())(one(X)),
    "grad through a grad": lambda t, f, one: f.grad(_within("grad", t, f, one))(one(X)),
    "grad and value through a grad": lambda t, f, one: f.grad_and_value(_within("grad", t, f, one))(one(X)),
    "grad through a grad, and more": lambda t, f, one: f.grad(
        lambda x: (_within("grad", t, f, one)(x), [_within("grad", t, f, one)(x)]), has_aux=True
    )(one(X)),
    "vjp through a grad": lambda t, f, one: (lambda found: (found[0], found[1](one(np.array(2.0)))))(
        f.vjp(_within("grad", t, f, one), one(X))
    ),
    "jvp through a grad": lambda t, f, one: f.jvp(
        lambda x: (_within("grad", t, f, one)(x), _within("grad", t, f, one)(x)), (one(X),), (one(X),), has_aux=True
    ),
    "jacrev through a grad": lambda t, f, one: f.jacrev(_within("grad", t, f, one))(one(X)),
    "hessian through a grad": lambda t, f, one: f.hessian(_within("grad", t, f, one))(one(X)),
    "grad through a vjp": lambda t, f, one: f.grad(_within("vjp", t, f, one))(one(X)),
    "grad through a jvp": lambda t, f, one: f.grad(_within("jvp", t, f, one))(one(X)),
    "grad through a jacrev": lambda t, f, one: f.grad(_within("jacrev", t, f, one))(one(X)),
    "grad through a product with an earlier vjp": lambda t, f, one: (
        lambda multiply: f.grad(lambda x: (multiply(x)[0] * x).sum())(one(X))
    )(f.vjp(lambda y: y**3, one(X))[1]),
}


def _within(kind: str, t: Any, f: Any, one: Any) -> Callable[[Any], Any]:
    """A function of `x` that computes a derivative by another tensor, of a closure that uses `x`."""

    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return ((x * y) ** 3).sum()

        y = one(X + 1)
        found = {
            "grad": lambda: f.grad(inner)(y),
            "vjp": lambda: f.vjp(inner, y)[1](one(np.array(2.0)))[0],
            "jvp": lambda: f.jvp(inner, (y,), (one(X),))[1],
            "jacrev": lambda: f.jacrev(inner)(y),
        }
        return found[kind]().sum()

    return outer


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours = CASES[name](flow, functional, flow.tensor)
    assert not any([leaf.requires_grad for leaf in _leaves(ours)])
    _same(ours, CASES[name](torch, torch.autograd.functional, torch.tensor))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads forward mode
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours = TRANSFORMED[name](flow, func, flow.tensor)
    assert not any([leaf.requires_grad for leaf in _leaves(ours)])
    _same(ours, TRANSFORMED[name](torch, torch.func, torch.tensor))


def test_gradients_through_derivatives() -> None:
    x = flow.tensor(X, requires_grad=True)
    functional.jacobian(lambda value: value**3, x, create_graph=True).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * X)  # type: ignore[union-attr]
    w = flow.tensor(2.0, dtype=flow.float64, requires_grad=True)
    func.grad(lambda value: (value**2 * w).sum())(flow.tensor(X)).sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.item(), 2 * X.sum())
    assert not functional.jacobian(lambda value: value * w, flow.tensor(X)).requires_grad


def test_the_inputs_keep_their_own_gradients() -> None:
    x = flow.tensor(X, requires_grad=True)
    functional.hessian(lambda value: (value**3).sum(), x)
    func.grad(lambda value: (value**3).sum())(x)
    assert x.grad is None


def test_errors_of_wrong_arguments() -> None:
    x = flow.tensor(X)
    with pytest.raises(RuntimeError, match="does not depend on the inputs"):
        functional.jacobian(lambda value: flow.ones(2), x, strict=True)
    with pytest.raises(RuntimeError, match="do not depend on an input"):
        functional.vjp(lambda a, b: a.sum(), (x, x), strict=True)
    with pytest.raises(RuntimeError, match="v can be left out for a single element only"):
        functional.vjp(lambda value: value * 2, x)
    with pytest.raises(RuntimeError, match=r"got \[\[2\]\] and \[\[3\]\]"):
        functional.vjp(lambda value: value * 2, x, flow.ones(2))
    with pytest.raises(RuntimeError, match="must return a single element"):
        functional.hessian(lambda value: value * 2, x)
    with pytest.raises(TypeError, match="expected a tensor or a tuple of tensors, got int"):
        functional.jacobian(lambda value: 3, x)
    with pytest.raises(ValueError, match="must be 'reverse-mode'"):
        functional.jacobian(lambda value: value, x, strategy="forward-mode")
    with pytest.raises(RuntimeError, match="see jacrev for several"):
        func.grad(lambda value: value)(x)
    with pytest.raises(ValueError, match="no argument 2 among 1"):
        func.grad(lambda tensor: tensor.sum(), 2)(x)
    with pytest.raises(TypeError, match="argument 0 must be a tensor, not float"):
        func.grad(lambda value: value)(3.0)
    with pytest.raises(RuntimeError, match=r"returned shapes \[\[3\]\]"):
        func.vjp(lambda value: value * 2, x)[1](flow.ones(2))


def test_forward_products_are_differentiable_by_tangents_and_by_outer_tensors() -> None:
    ones, x = flow.ones(2), flow.tensor([1.0, 2.0])

    def along(primal: flow.Tensor, tangent: flow.Tensor, outer: flow.Tensor) -> flow.Tensor:
        product: flow.Tensor = flow.func.jvp(lambda y: (y * outer * y).sum(), (primal,), (tangent,))[1]
        return product

    assert flow.func.grad(lambda outer: along(ones, ones, outer))(x).tolist() == [2, 2]
    assert flow.func.grad(lambda tangent: along(ones, tangent, x))(ones).tolist() == [2, 4]
    assert flow.func.grad(lambda primal: along(primal, ones, x))(ones).tolist() == [2, 4]
    w = flow.tensor([2.0, 3.0], requires_grad=True)
    for recorded, factor in ((True, w), (False, flow.ones(2))):
        found = flow.func.jvp(lambda y, factor=factor: factor * y, (x,), (ones,))
        assert [part.requires_grad for part in found] == [recorded] * 2
