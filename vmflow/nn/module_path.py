"""`ModulePath`: the modules whose `forward` is running, for errors, profiles and graphs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .module import Module


class ModulePath:
    """A module, and the modules whose `forward` led to its call; as a string, "layers.0 (Linear) of Net" for instance.

    A module does not know its own name: ``str(path)`` looks for the module among those below its caller.
    """

    __slots__ = ("_kind", "_module", "_outer")

    def __init__(self, module: Module, outer: ModulePath | None) -> None:
        self._kind = type(module).__name__
        # A weak reference, because instructions keep paths for errors, and must not keep modules alive.
        self._module = weakref.ref(module)
        self._outer = outer

    @property
    def outer(self) -> ModulePath | None:
        """The path of the module whose `forward` called this module; None for the outermost module."""
        return self._outer

    def module(self) -> Module | None:
        """The innermost module, or None if it has been garbage-collected."""
        return self._module()

    def __str__(self) -> str:
        names: list[str] = []
        path: ModulePath = self
        while path._outer is not None:
            names.append(path._name_in(path._outer))
            path = path._outer
        name = ".".join(reversed(names))
        return f"{name} ({self._kind}) of {path._kind}" if name else self._kind

    def _name_in(self, outer: ModulePath) -> str:
        parent, module = outer._module(), self._module()
        if parent is not None and module is not None:
            for name, part in parent.named_modules():
                if part is module and name:
                    return name
        return f"<{self._kind}>"
