"""`Handle`: the result of registering a hook, by which the hook can be removed."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

_numbers: Final = count()


class Handle:
    """Removes a hook: by `remove`, or at the end of a ``with`` block.  Raises no errors.

    Example:
        >>> x = flow.ones(2, requires_grad=True)
        >>> with x.register_hook(lambda gradient: gradient * 2):
        ...     x.sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """

    __slots__ = ("_hooks", "_number")

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        self._hooks = hooks
        self._number = next(_numbers)
        hooks[self._number] = hook

    @property
    def number(self) -> int:
        """The hook's key in its dict of hooks."""
        return self._number

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()
