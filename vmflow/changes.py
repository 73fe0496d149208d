"""A count of the changes to the things that graphs are built from: attributes of modules, hooks, flags, settings.

A graph remembers the count at which it last compared itself with its surroundings.  As long as the count stays the
same nothing has changed, so that a call of the graph compares one number instead of every attribute of every module.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# In a list, which readers share.  The numbers come from an iterator, so that two threads never write the same one.
COUNT: Final[list[int]] = [0]

_numbers: Final = count(1)


def changed() -> None:
    """Say that something has changed."""
    COUNT[0] = next(_numbers)


class Registry(dict[Key, Value]):
    """A dict each of whose changes counts: the parameters, buffers, submodules and hooks of modules.

    Libraries for PyTorch change these dicts directly, and not only through `Module`.
    """

    __slots__ = ()

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        changed()

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        changed()

    def pop(self, *args: Any) -> Any:
        """As of dicts."""
        found = super().pop(*args)
        changed()
        return found

    def popitem(self) -> tuple[Key, Value]:
        """As of dicts."""
        found = super().popitem()
        changed()
        return found

    def clear(self) -> None:
        """As of dicts."""
        super().clear()
        changed()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As of dicts."""
        super().update(*args, **kwargs)
        changed()

    def setdefault(self, *args: Any) -> Any:
        """As of dicts."""
        found = super().setdefault(*args)
        changed()
        return found

    def __ior__(self, other: Any) -> Registry[Key, Value]:  # type: ignore[misc, override]
        self.update(other)
        return self
