"""`FunctionLayer`: a layer that is one function with settings; and the layers that leave values as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from vmflow.ops.shape import view as views
from vmflow.tensors import Tensor

from .module import Module, RankedLayer


class FunctionLayer(RankedLayer):
    """Calls `function` with the layer's arguments and, by keyword, with its settings.

    The function is a keyword of the class: ``class Tanh(FunctionLayer, function=F.tanh)``.

    Args:
        settings: kept as attributes, which may be changed between calls.

    Attributes:
        function: the function.
        shown: the settings in the repr; by default all but `training`, and `inplace` where it is True.
        tensors: the settings that are tensors or None, and are registered as buffers.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[tuple[str, ...] | None] = None
    tensors: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, function: Callable[..., Any] | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if function is not None:
            cls.function = staticmethod(function)

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name in self.tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        """The result of `function`."""
        return self.function(*inputs, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        shown = self.shown
        if shown is None:
            hidden = ("training",) if getattr(self, "inplace", True) else ("training", "inplace")
            shown = tuple([name for name in self._settings if name not in hidden])
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])


class Identity(Module):
    """The input itself; arguments to the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input itself."""
        return input


class Flatten(FunctionLayer, function=views.flatten):
    """Make one dimension of those from `start_dim` to `end_dim`."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__(start_dim=start_dim, end_dim=end_dim)


class Unflatten(Module):
    """Make several dimensions of one.

    Args:
        dim: the dimension.
        unflattened_size: the new sizes, one of which may be -1.
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """The input seen with more dimensions."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
