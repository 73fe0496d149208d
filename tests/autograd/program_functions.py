"""Functions with a gradient of their own, for programs that two libraries run; and plain functions that do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# How many tensors each takes.
ARGUMENTS: Mapping[str, int] = {
    "scale": 1,
    "product": 2,
    "squash": 1,
    "two": 2,
    "as_is": 1,
    "as_is_and_product": 2,
    "doubled_in_place": 1,
    "with_mask": 1,
    "square_once": 1,
    "first_only": 2,
    "lazy": 2,
    "sum_of_two": 2,
    "changed_and_other": 2,
    "transposed": 1,
}


def _linear_functions(base: Any) -> dict[str, Any]:
    class Scale(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.5

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 1.5

    class AsIs(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    class SumOfTwo(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, gradient

    class Transposed(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.transpose(0, -1)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient.transpose(0, -1)

    return {"scale": Scale, "as_is": AsIs, "sum_of_two": SumOfTwo, "transposed": Transposed}


def _saving_functions(base: Any, once: Callable[..., Any]) -> dict[str, Any]:
    class Product(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, y = ctx.saved_tensors
            return gradient * y, gradient * x

    class Squash(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            result = x.tanh()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (result,) = ctx.saved_tensors
            return gradient * (1 - result * result)

    class SquareOnce(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once
        def backward(ctx: Any, gradient: Any) -> Any:
            (x,) = ctx.saved_tensors
            return gradient * 2 * x

    class FirstOnly(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            (y,) = ctx.saved_tensors
            return gradient * y, None

    return {"product": Product, "squash": Squash, "square_once": SquareOnce, "first_only": FirstOnly}


def _functions_of_several_results(base: Any) -> dict[str, Any]:
    class Two(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x + y, x * y

        @staticmethod
        def backward(ctx: Any, of_sum: Any, of_product: Any) -> Any:
            x, y = ctx.saved_tensors
            return of_sum + of_product * y, of_sum + of_product * x

    class AsIsAndProduct(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x, x * y

        @staticmethod
        def backward(ctx: Any, of_first: Any, of_product: Any) -> Any:
            x, y = ctx.saved_tensors
            return of_first + of_product * y, of_product * x

    class WithMask(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            mask = x * 0 + 1
            ctx.mark_non_differentiable(mask)
            return x * 2, mask

        @staticmethod
        def backward(ctx: Any, gradient: Any, of_mask: Any) -> Any:
            return gradient * 2

    class Lazy(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, y * 3

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return (None if first is None else first * 2), (None if second is None else second * 3)

    return {"two": Two, "as_is_and_product": AsIsAndProduct, "with_mask": WithMask, "lazy": Lazy}


def _functions_in_place(base: Any) -> dict[str, Any]:
    class DoubledInPlace(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 2

    class ChangedAndOther(base):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            x.mul_(0.5)
            ctx.mark_dirty(x)
            return x, y * 3

        @staticmethod
        def backward(ctx: Any, of_changed: Any, of_other: Any) -> Any:
            return of_changed * 0.5, of_other * 3

    return {"doubled_in_place": DoubledInPlace, "changed_and_other": ChangedAndOther}


def functions(autograd: Any, once: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The functions that programs call, by name.

    Args:
        autograd: the module that has `Function`.
        once: its `once_differentiable`.
    """
    base = autograd.Function
    classes = _linear_functions(base) | _saving_functions(base, once)
    classes |= _functions_of_several_results(base) | _functions_in_place(base)
    return {name: kind.apply for name, kind in classes.items()}


def plain_functions() -> dict[str, Callable[..., Any]]:
    """Functions of ordinary ops with the same results and gradients."""
    return {
        "scale": lambda x: x * 1.5,
        "product": lambda x, y: x * y,
        "squash": lambda x: x.tanh(),
        "two": lambda x, y: (x + y, x * y),
        "as_is": lambda x: x.view_as(x),
        "as_is_and_product": lambda x, y: (x.view_as(x), x * y),
        "doubled_in_place": lambda x: x.mul_(2),
        "with_mask": lambda x: (x * 2, (x * 0 + 1).detach()),
        "square_once": lambda x: x * x,
        "first_only": lambda x, y: x * y.detach(),
        "lazy": lambda x, y: (x * 2, y * 3),
        "sum_of_two": lambda x, y: x + y,
        "changed_and_other": lambda x, y: (x.mul_(0.5).add_(y * 0), y * 3),
        "transposed": lambda x: x.transpose(0, -1),
    }
