"""A count of the changes to the things that graphs are built from: attributes of modules, hooks, flags, settings.

A graph remembers the count at which it last checked that the things it was built from are unchanged.  As long as the
count stays the same, a call of the graph compares one number instead of every attribute of every module.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# The count is the element of a list, which importing modules share.  Its values come from an iterator, so that changes
# in two threads never write the same value.
COUNT: Final[list[int]] = [0]

_numbers: Final = count(1)


def changed() -> None:
    """Count a change of something that graphs are built from."""
    COUNT[0] = next(_numbers)


class Registry(dict[Key, Value]):
    """A dict that calls `changed` at each change: for the parameters, buffers, submodules and call hooks of modules.

    Libraries for PyTorch change such dicts directly, and not only through methods of `Module`.
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
