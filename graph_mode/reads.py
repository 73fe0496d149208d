"""Recording which attributes of modules and graphs are read while a graph is built.

A graph depends on what `build` has read, and on nothing else of a module: a note that a training loop leaves in an
attribute makes no graph anew.  The reads are seen because the base classes get a ``__getattribute__`` for as long as
one graph is being built, which only one thread does at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from vmflow.nn.module import Module

# In place of the value of an attribute that an object does not have itself; its class may.
ABSENT: Final = object()

# Where modules and graphs keep attributes that are not in their `__dict__`.
_REGISTRIES: Final = ("_parameters", "_buffers", "_modules", "_blocks")


def own_value(owner: Any, name: str) -> Any:
    """The attribute that the object itself has; `ABSENT` if its class has it, or nobody.

    A dict, such as the registry of a module's parameters, comes as its items, because it may change while it stays.
    """
    own: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    if name in own:
        value = own[name]
        return tuple(value.items()) if isinstance(value, dict) else value
    for registry in _REGISTRIES:
        members = own.get(registry)
        if members is not None and name in members:
            return members[name]
    return ABSENT


@final
class Reads:
    """Records reads of attributes.

    Args:
        unseen: names of attributes that do not count.

    Attributes:
        owners: by id, the objects whose attributes were read.
        values: by the id of an object and the name of its attribute, the value at the first read.
    """

    def __init__(self, unseen: frozenset[str]) -> None:
        self.owners: dict[int, Any] = {}
        self.values: dict[tuple[int, str], Any] = {}
        self._unseen = unseen
        self._thread = threading.get_ident()

    def note(self, owner: Any, name: str) -> None:
        """An attribute is about to be read."""
        key = (id(owner), name)
        if key in self.values or name in self._unseen or threading.get_ident() != self._thread:
            return
        self.owners[key[0]] = owner
        self.values[key] = own_value(owner, name)


# Those that are recording: a graph may be built while another one is.
_recording: Final[list[Reads]] = []


@contextmanager
def recorded(reads: Reads, *kinds: type) -> Iterator[None]:
    """Within, note what this thread reads of objects of these classes and of modules."""

    def __getattribute__(self: Any, name: str) -> Any:
        if not name.startswith("__"):
            for each in _recording:
                each.note(self, name)
        return object.__getattribute__(self, name)

    outermost = not _recording
    _recording.append(reads)
    if outermost:
        for kind in (Module, *kinds):
            setattr(kind, "__getattribute__", __getattribute__)  # noqa: B010 (mypy takes it for a method of `kind`)
    try:
        yield
    finally:
        _recording.remove(reads)
        if outermost:
            for kind in (Module, *kinds):
                del kind.__getattribute__
