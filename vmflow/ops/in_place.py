"""In-place methods that copy a function's result into the tensor, or make the tensor a view.

``x.cumsum_(0)`` copies ``x.cumsum(0)`` into x, and ``x.squeeze_()`` makes x a view with the shape of ``x.squeeze()``.
In-place methods whose kernels write into the operand are declared elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmflow.autograd.grad_mode import set_grad_enabled
from vmflow.context import MODE
from vmflow.operands import changed_leaf, check_fits, check_tensors
from vmflow.tensor_fields import new_alias

from .copying import clone, copy_
from .declaration import METHODS, Declared, declaring_module

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def copied_in_place(called: str | None = None) -> Callable[[Declared], Declared]:
    """Declare an in-place method, such as ``cumsum_``, that copies the decorated function's result into the tensor.

    Args:
        called: the name of the method, without ``_``, if it is not the function's name.
    """

    def declare(function: Declared) -> Declared:
        name = called or function.__name__

        def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            check_tensors(f"{name}_", input)
            # The backward pass may read the old elements, which the copy below overwrites.
            before = clone(input) if MODE.get().grad and input.requires_grad else input
            result = function(before, *args, **kwargs)
            check_fits(f"{name}_", result._blob.meta, input)
            return copy_(input, result)

        _enter(form, name, ())
        return function

    return declare


def viewed_in_place(*others: str, documented: bool = False) -> Callable[[Declared], Declared]:
    """Declare an in-place method, such as ``squeeze_``, that turns a tensor into the decorated function's view of it.

    No element moves, and other tensors on the same memory keep their shapes.

    Args:
        others: further names of the function, each with such a method.
        documented: whether the method gets the function's docstring.
    """

    def declare(function: Declared) -> Declared:
        name = function.__name__

        def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            check_tensors(f"{name}_", input)
            if MODE.get().grad and input.requires_grad and input.is_leaf:
                raise changed_leaf(f"{name}_", input.shape)
            whole = new_alias(input)
            # Record the view of a non-leaf even under no_grad: else its history would describe the old shape.
            with set_grad_enabled(MODE.get().grad or not input.is_leaf):
                viewed = function(input, *args, **kwargs)
            input._blob, input._lease = viewed._blob, viewed._lease
            if input._base is None and viewed._base is not None:
                input._base = whole  # `input` has become a view of its former self
            if viewed._autograd is not None and viewed.requires_grad:
                input._autograd = viewed._autograd.follow(input._autograd)
            return input

        _enter(form, name, others)
        if documented:
            form.__doc__ = function.__doc__
        return function

    return declare


def _enter(form: Callable[..., Tensor], name: str, others: tuple[str, ...]) -> None:
    form.__module__ = declaring_module()
    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place `{name}`."
    for alias in (name, *others):
        METHODS[f"{alias}_"] = form
