"""`ModulePath`: which module's forward is running, for errors."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .module import Module


class ModulePath:
    """A module and those whose forward called it, outermost first.

    A module does not know its own name; its parent does, and is asked when somebody wants to read the path.
    """

    __slots__ = ("_kind", "_module", "_outer")

    def __init__(self, module: Module, outer: ModulePath | None) -> None:
        self._kind = type(module).__name__
        # Instructions remember paths, and must not keep modules alive.
        self._module = weakref.ref(module)
        self._outer = outer

    @property
    def outer(self) -> ModulePath | None:
        """Whose forward called the module's."""
        return self._outer

    def module(self) -> Module | None:
        """The module, if there still is one."""
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
