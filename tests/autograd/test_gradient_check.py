"""`gradcheck` and `gradgradcheck` accept gradients that are right and refuse those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.autograd import Function, GradcheckError, gradcheck, gradgradcheck


def _input(*shape: int, seed: int = 0) -> flow.Tensor:
    return flow.tensor(np.random.default_rng(seed).uniform(0.5, 2, shape), requires_grad=True)


class _Wrong(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * x * 2.1


class _WrongTwice(Function):
    """The gradient is right, but hides from its own gradient how it depends on x."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * x.detach() * 2


def test_right_gradients() -> None:
    assert gradcheck(lambda x, y: (x @ y).sin(), (_input(2, 3), _input(3, 2, seed=1)))
    assert gradgradcheck(lambda x, y: (x @ y).sin(), (_input(2, 3), _input(3, 2, seed=1)))
    assert gradcheck(lambda x, k: (x * k, x.sum(), x > 1), (_input(3), 2.0))
    assert gradcheck(lambda x, y: x * 2, (_input(2), _input(2)))
    assert gradcheck(flow.exp, _input())
    assert gradcheck(lambda x: x * 2, _input(0))
    assert gradgradcheck(flow.log, _input(2, 2), flow.ones(2, 2, dtype=flow.float64).requires_grad_())


def test_wrong_gradients() -> None:
    with pytest.raises(GradcheckError, match="the Jacobian of result 0 by input 0 is"):
        gradcheck(_Wrong.apply, _input(3))
    assert not gradcheck(_Wrong.apply, _input(3), raise_exception=False)
    assert gradcheck(_Wrong.apply, _input(3), rtol=0.2)
    assert gradcheck(_WrongTwice.apply, _input(3))
    assert not gradgradcheck(_WrongTwice.apply, _input(3), raise_exception=False)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_in_one_direction_alone(shape: tuple[int, ...]) -> None:
    x, y = _input(*shape), _input(*shape, seed=1)
    assert gradcheck(lambda x, y: (x * y.sin(), x.exp(), y > 1), (x, y), fast_mode=True)
    assert gradcheck(lambda x, y: (x * 2, flow.ones(2, dtype=flow.float64)), (x, y), fast_mode=True)
    assert gradgradcheck(lambda x, y: x * y.sin(), (x, y), fast_mode=True, gen_non_contig_grad_outputs=True)


def test_in_one_direction_wrong_gradients_are_found_by_few_calls() -> None:
    calls: list[int] = []

    def function(x: flow.Tensor) -> Any:
        calls.append(0)
        return _Wrong.apply(x)

    with pytest.raises(GradcheckError, match="along a random direction"):
        gradcheck(function, _input(50), fast_mode=True)
    assert len(calls) == 3
    assert not gradcheck(function, _input(50), fast_mode=True, raise_exception=False)
    assert not gradgradcheck(_WrongTwice.apply, _input(3), fast_mode=True, raise_exception=False)


def test_weights_that_lie_strided() -> None:
    seen: list[bool] = []

    class Looking(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            seen.append(gradient.is_contiguous())
            return gradient * 2

    assert gradgradcheck(Looking.apply, _input(2, 2), gen_non_contig_grad_outputs=True)
    assert False in seen


def test_arguments_of_no_account_and_forward_mode() -> None:
    x = _input(2)
    settings = {"check_undefined_grad": False, "check_grad_dtypes": True, "check_batched_grad": True, "masked": False}
    assert gradcheck(flow.exp, x, **settings)
    assert gradgradcheck(flow.exp, x, **settings)
    for setting in ({"check_forward_ad": True}, {"check_batched_forward_grad": True}, {"check_backward_ad": False}):
        with pytest.raises(ValueError, match="no forward-mode"):
            gradcheck(flow.exp, x, **setting)
    for setting in ({"check_fwd_over_rev": True}, {"check_rev_over_rev": False}):
        with pytest.raises(ValueError, match="no forward-mode"):
            gradgradcheck(flow.exp, x, **setting)


def test_gradients_that_are_missing_or_different_each_time() -> None:
    assert not gradcheck(lambda x: (x * x).detach() + x * 0, _input(2), raise_exception=False)
    factors = iter(range(1, 100))

    class Restless(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * (2 + next(factors) * 1e-7)

    with pytest.raises(GradcheckError, match="two backward passes from result 0 to input 0 differ"):
        gradcheck(Restless.apply, _input(1))
    assert gradcheck(Restless.apply, _input(1), nondet_tol=1e-4)


def test_functions_that_cannot_be_checked() -> None:
    with pytest.raises(ValueError, match="no input requires a gradient"):
        gradcheck(flow.exp, flow.ones(2))
    with pytest.raises(TypeError, match="complex inputs"):
        gradcheck(flow.exp, flow.ones(2, dtype=flow.complex128).requires_grad_())
    with pytest.warns(UserWarning, match="too coarse"):
        gradcheck(lambda x: x * 2, flow.ones(1, requires_grad=True), eps=0.5)
