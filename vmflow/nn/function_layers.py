"""`FunctionLayer`, the base of layers that call one function with settings; `Identity`, `Flatten` and `Unflatten`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from vmflow.arguments import whole_number
from vmflow.operands import check_tensors
from vmflow.ops.shape import view as views
from vmflow.tensors import Tensor

from .module import Module
from .ranked_layer import RankedLayer, with_sections


class FunctionLayer(RankedLayer):
    """The base of layers that call a function with the arguments of `forward` and, by keyword, the layer's settings.

    A subclass names the function as a keyword: ``class Tanh(FunctionLayer, function=F.tanh)``.  Its docstring gets the
    sections that only its base's docstring has, unless the base is `FunctionLayer` itself.

    Args:
        settings: keyword arguments for the function, kept as attributes, which may be changed between calls.

    Attributes:
        function: the function to call.
        shown: the names of the settings in the repr; by default all but `training` and an `inplace` that is False.
        tensors: the names of the settings that are tensors or None, and are registered as buffers.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[tuple[str, ...] | None] = None
    tensors: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if function is not None:
            cls.function = staticmethod(function)
            if cls.__base__ is not FunctionLayer:
                cls.__doc__ = with_sections(cls.__doc__, cls.__base__)

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name in self.tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the result of `function` for the inputs and the settings."""
        return self.function(*inputs, **named, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        shown = self.shown
        if shown is None:
            hidden = ("training",) if getattr(self, "inplace", True) else ("training", "inplace")
            shown = tuple([name for name in self._settings if name not in hidden])
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])


class Identity(Module):
    """Returns its input; the constructor ignores its arguments.

    Raises no errors of its own.

    Shape: input (*), output (*), the same shape.

    Example:
        >>> flow.nn.Identity()(flow.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input itself."""
        return input


class Flatten(FunctionLayer, function=views.flatten):
    """Joins the dimensions from `start_dim` to `end_dim` into one.

    Shape: input (*, S_start, ..., S_end, *), output (*, S_start * ... * S_end, *).

    Raises:
        TypeError: when called with anything else than a tensor.
        IndexError: when the input has no such dimensions.
        ValueError: when `start_dim` comes after `end_dim`.

    Example:
        >>> flow.nn.Flatten()(flow.ones(2, 3, 4)).shape
        vmflow.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__(start_dim=start_dim, end_dim=end_dim)


class Unflatten(Module):
    """Splits one dimension into several.

    Shape: input (*, S, *), output (*, *unflattened_size, *), where `dim` is the dimension of S.

    Args:
        dim: the dimension.
        unflattened_size: the new sizes, one of which may be -1.

    Raises:
        TypeError: if `unflattened_size` is no sequence of integers; when called with anything else than a tensor.
        IndexError: when the input has no dimension `dim`.
        ValueError: when the product of the sizes is not the size of dimension `dim`.

    Example:
        >>> flow.nn.Unflatten(1, (2, -1))(flow.ones(2, 6)).shape
        vmflow.Size([2, 2, 3])
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple([whole_number("Unflatten", "a size", size) for size in unflattened_size])

    def forward(self, input: Tensor) -> Tensor:
        """Return a view of the input with dimension `dim` split into `unflattened_size`."""
        check_tensors("Unflatten", input)
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
