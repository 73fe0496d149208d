"""`OpenBlocks`: the values that the ends of ``with`` blocks restore, for context managers that several tasks share."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any


class OpenBlocks:
    """The open blocks of each task or thread, from the outermost on, with the value of a setting before each.

    An object that several tasks enter, such as a `device`, cannot keep that value itself.

    Args:
        name: of the context variable.
        get: returns the setting's value in this task or thread.
        change: changes it.
    """

    def __init__(self, name: str, get: Callable[[], Any], change: Callable[[Any], object]) -> None:
        self._blocks: ContextVar[tuple[tuple[object, Any], ...]] = ContextVar(name, default=())
        self._get = get
        self._change = change

    def enter(self, manager: object, value: Any) -> None:
        """Begin a block of `manager`, in which the setting is `value`."""
        self._blocks.set((*self._blocks.get(), (manager, self._get())))
        self._change(value)

    def leave(self, manager: object) -> None:
        """End the innermost block of `manager`; does nothing if that block was entered in another task.

        If a block that was entered later is still open, the end of that block restores the value before this one.
        """
        blocks = list(self._blocks.get())
        own = [place for place, (entered, _) in enumerate(blocks) if entered is manager]
        if not own:
            return
        _, before = blocks.pop(own[-1])
        if own[-1] == len(blocks):
            self._change(before)
        else:
            blocks[own[-1]] = (blocks[own[-1]][0], before)
        self._blocks.set(tuple(blocks))
