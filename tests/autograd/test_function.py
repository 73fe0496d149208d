"""`autograd.Function`: ops whose gradient the user writes."""

from __future__ import annotations

import re
from typing import Any

import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.autograd import Function, once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        x: flow.Tensor = ctx.saved_tensors[0]
        return gradient * x * x * 3


class Exponential(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = ctx.saved_tensors[0]
        return gradient * result


class SumAndDifference(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor, y: flow.Tensor, scale: float) -> tuple[flow.Tensor, flow.Tensor]:
        ctx.scale = scale
        return (x + y) * scale, (x - y) * scale

    @staticmethod
    def backward(ctx: Any, a: flow.Tensor, b: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor, None]:
        return (a + b) * ctx.scale, (a - b) * ctx.scale, None


class Same(Function):
    """Returns its input, and multiplies the gradient, to be told from doing nothing."""

    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        return gradient * 5


def test_gradients() -> None:
    (x,) = arrays_for(0, (3, 2))
    check_gradients(Cube.apply, x, second=True)
    check_gradients(Exponential.apply, x, second=True)


def test_several_results_and_an_argument_without_gradient() -> None:
    x, y = arrays_for(0, (3,), (3,))

    def both(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        a, b = SumAndDifference.apply(x, y, 2.0)
        return a * b  # type: ignore[no-any-return]

    check_gradients(both, x, y, second=True)


def test_a_missing_gradient_is_zeros() -> None:
    x = flow.ones(2, requires_grad=True)
    a, _ = SumAndDifference.apply(x, x.detach(), 1.0)
    a.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("materialize", [True, False])
def test_backward_gets_none_for_a_result_that_is_no_tensor(materialize: bool) -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> tuple[Any, ...]:
            ctx.set_materialize_grads(materialize)
            last = x * 3
            ctx.save_for_backward(last)
            return 5, x * 2, [x], last

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            seen.append([None if gradient is None else gradient.tolist() for gradient in gradients])
            (last,) = ctx.saved_tensors
            assert last.grad_fn is ctx._node
            return gradients[1] * 2

    seen: list[list[Any]] = []
    x = flow.ones(2, requires_grad=True)
    number, double, listed, triple = Mixed.apply(x)
    assert (number, listed[0] is x, triple.requires_grad) == (5, True, True)
    double.sum().backward()
    assert seen == [[None, [1.0, 1.0], None, [0.0, 0.0] if materialize else None]]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


class Scaled(Function):
    """In PyTorch's newer form."""

    @staticmethod
    def forward(x: flow.Tensor, factor: float = 3) -> tuple[flow.Tensor, float]:
        return x * x * factor, factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, ctx.factor = inputs
        assert not flow.is_grad_enabled()
        assert ctx.needs_input_grad == (x.requires_grad, False)
        assert output[1] == ctx.factor
        ctx.save_for_backward(x, output[0])

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor, none: None) -> tuple[flow.Tensor, None]:
        x, y = ctx.saved_tensors
        assert y.grad_fn is ctx._node
        return gradient * x * 2 * ctx.factor, None


def test_a_forward_without_context() -> None:
    (values,) = arrays_for(1, (3,))
    check_gradients(lambda x: Scaled.apply(x)[0], values, second=True)
    check_gradients(lambda x: Scaled.apply(x, 2)[0], values)
    check_gradients(lambda x: Scaled.apply(x, factor=2)[0], values)
    assert not Scaled.apply(flow.ones(2))[0].requires_grad
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        Scaled.apply()


def test_a_forward_without_context_that_changes_its_input() -> None:
    class Doubled(Function):
        @staticmethod
        def forward(x: flow.Tensor) -> flow.Tensor:
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.mark_dirty(*inputs)

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return gradient * 2

    x = flow.ones(2, requires_grad=True)
    y = x * 1
    Doubled.apply(y)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]


def test_the_forward_is_not_recorded() -> None:
    class Look(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            assert not flow.is_grad_enabled()
            assert ctx.needs_input_grad == (True,)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return gradient * 2

    y = Look.apply(flow.ones(1, requires_grad=True))
    assert y.grad_fn.name() == "LookBackward"
    with flow.no_grad(), pytest.raises(AssertionError):
        assert Cube.apply(flow.ones(1, requires_grad=True)).requires_grad


def test_an_input_returned_as_it_is() -> None:
    x = flow.ones(1, requires_grad=True)
    y = Same.apply(x)
    assert x.is_leaf
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0]


def test_wrong_number_of_gradients() -> None:
    class Bad(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return gradient

    x = flow.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="returned 1 gradients, but forward was given 2"):
        Bad.apply(x, x).backward()


def test_a_second_pass_needs_retain_graph() -> None:
    x = flow.ones(1, requires_grad=True)
    y = Cube.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_non_differentiable_results() -> None:
    class SignOf(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
            sign = x.sign()
            ctx.mark_non_differentiable(sign)
            return x.abs(), sign

        @staticmethod
        def backward(ctx: Any, a: flow.Tensor, b: flow.Tensor) -> flow.Tensor:
            return a

    size, sign = SignOf.apply(flow.ones(1, requires_grad=True))
    assert size.requires_grad
    assert not sign.requires_grad


def test_once_differentiable() -> None:
    class Once(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return gradient * 2

    x = flow.ones(1, requires_grad=True)
    (found,) = flow.autograd.grad(Once.apply(x), x, create_graph=True)
    assert found is not None
    assert not found.requires_grad


class DoubleInPlace(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        return gradient * 2


def test_changing_an_input_in_place() -> None:
    x = flow.ones(2, requires_grad=True)
    y = x * 1
    view = y[:1]
    DoubleInPlace.apply(y)
    DoubleInPlace.apply(y[1:])
    (y.sum() + view.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="leaf"):
        DoubleInPlace.apply(x)


def test_returning_an_input_that_was_changed_before() -> None:
    x = flow.ones(1, requires_grad=True)
    y = x * 1
    y.add_(1)
    (Same.apply(y) * 3).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [15.0]


class Square(Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        (x,) = ctx.saved_tensors
        result: flow.Tensor = gradient * 2 * x
        return result


def test_a_view_whose_base_has_changed_in_place() -> None:
    x = flow.tensor([1.0, 2.0, 3.0], requires_grad=True)
    whole = x * 1
    view = whole[:2]
    whole.mul_(2)
    Square.apply(view).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 16.0, 0.0]


def test_a_view_whose_base_comes_to_require_a_gradient() -> None:
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    whole = flow.zeros(3)
    view = whole[:2]
    whole[:2] = x
    result = Square.apply(view)
    assert result.requires_grad
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("shape", [(), (3,), (2,), (6,), (2, 1), (4, 2, 3, 1)])
def test_a_gradient_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return flow.ones(shape)

    x = flow.ones(2, 3, requires_grad=True)
    expected = rf"WrongBackward returned a gradient of shape {re.escape(str(list(shape)))} for argument 0"
    with pytest.raises(RuntimeError, match=expected):
        Wrong.apply(x).sum().backward()
    assert x.grad is None


def test_a_gradient_to_whose_shape_the_argument_broadcasts_is_summed() -> None:
    class Wide(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return flow.ones(4, 2, 3)

    x = flow.ones(2, 1, requires_grad=True)
    Wide.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[12.0], [12.0]]


class _AsItIs(flow.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        return gradient * 2


def test_an_input_that_is_returned_as_it_is_where_nothing_is_recorded() -> None:
    x = flow.ones(2, requires_grad=True)
    with flow.no_grad():
        y = _AsItIs.apply(x)
    assert not y.requires_grad
    assert x.requires_grad
    view = (x * 1)[:1]
    whole = view._base
    assert whole is not None
    seen = _AsItIs.apply(view)
    whole.mul_(3)
    with pytest.raises(RuntimeError, match="was changed in place since"):
        seen.sum()  # updating its history would replace its own gradient


def test_a_tensor_marked_dirty_keeps_its_gradient() -> None:
    class Doubled(flow.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            return gradient * 2

    y = flow.ones(2, requires_grad=True) * 1
    y.retain_grad()
    Doubled.apply(y).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [1.0, 1.0]


def test_second_derivatives_through_once_differentiable_are_refused() -> None:
    class Square(flow.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @flow.autograd.once_differentiable
        def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
            (x,) = ctx.saved_tensors
            result: flow.Tensor = gradient * 2 * x
            return result

    x = flow.ones(2, requires_grad=True)
    y = Square.apply(x)
    (found,) = flow.autograd.grad((y * y).sum(), x, create_graph=True)
    assert found is not None
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()


@pytest.mark.parametrize("returned", ["gradient", "saved", "both"])
def test_what_a_backward_marked_once_differentiable_returns_keeps_its_own_history(returned: str) -> None:
    class Passing(Function):
        @staticmethod
        def forward(ctx: Any, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            ctx.save_for_backward(x)
            return x + y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, gradient: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
            (saved,) = ctx.saved_tensors
            first, second = {"gradient": (gradient,) * 2, "saved": (saved,) * 2, "both": (gradient, saved)}[returned]
            return first, second

    x, y, gradient = [flow.ones(2, requires_grad=True) for _ in range(3)]
    found = flow.autograd.grad(Passing.apply(x, y), (x, y), gradient, create_graph=True)
    assert gradient.is_leaf
    assert x.is_leaf
    (x * gradient).sum().backward()
    for tensor in (x, gradient):
        assert tensor.grad is not None
        assert tensor.grad.tolist() == [1.0, 1.0]
    for result in found:
        assert result is not None
        with pytest.raises(RuntimeError, match="PassingBackward is marked @once_differentiable"):
            result.sum().backward()


def test_other_objects_than_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="save_for_backward: expected tensors, got Tensor, str"):
        flow.autograd.FunctionContext().save_for_backward(flow.ones(2), None, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Variable: expected tensors, got int"):
        flow.autograd.Variable(3)  # type: ignore[arg-type]
