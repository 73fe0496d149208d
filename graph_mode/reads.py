"""Recording which attributes of modules and graphs are read while a graph is built.

A graph depends on the attributes that `build` has read, and on nothing else of a module: an attribute that only the
training loop uses does not cause another build.  The base classes get a ``__getattribute__`` that records reads while a
graph is being built, which one thread does at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, final

from vmflow.changes import Registry
from vmflow.nn.module import Module


class Members(tuple[tuple[str, Any], ...]):
    """The items of a module's registry, such as its parameters by name, at one moment."""

    __slots__ = ()


# Stands for the value of an attribute that the object itself does not have; its class may.
ABSENT: Final = object()

# The registries in which modules and graphs keep attributes that are not in their `__dict__`.
_REGISTRIES: Final = ("_parameters", "_buffers", "_modules", "_blocks")


def own_value(owner: Any, name: str) -> Any:
    """The value of an attribute in the object itself; `ABSENT` if only its class has the attribute, or neither.

    A registry, such as that of a module's parameters, is returned as `Members`, because its content may change.
    """
    own: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    if name in own:
        value = own[name]
        return Members(value.items()) if isinstance(value, Registry) else value
    for registry in _REGISTRIES:
        members = own.get(registry)
        if members is not None and name in members:
            return members[name]
    return ABSENT


def class_value(kind: type, name: str) -> Any:
    """The value of an attribute in the namespace of a class, else in those of its bases; `ABSENT` if in none.

    Descriptors, such as properties, are returned themselves.
    """
    spaces = namespaces(kind, name)
    return spaces[-1].get(name, ABSENT) if spaces else ABSENT


def namespaces(kind: type, name: str) -> list[Mapping[str, Any]]:
    """The namespaces of a class and its bases in which an attribute is looked up, up to the one that has it, if any."""
    looked_up: list[Mapping[str, Any]] = []
    for base in kind.__mro__:
        looked_up.append(base.__dict__)
        if name in base.__dict__:
            break
    return looked_up


@final
class Reads:
    """Records reads of attributes.

    Args:
        unseen: names of attributes of objects other than modules, to ignore.

    Attributes:
        owners: by id, the objects whose attributes were read.
        values: by the id of an object and the name of its attribute, the `own_value` at the first read.
        of_classes: the `class_value` of attributes that the objects do not have themselves, by class and name.
    """

    def __init__(self, unseen: frozenset[str]) -> None:
        self.owners: dict[int, Any] = {}
        self.values: dict[tuple[int, str], Any] = {}
        self.of_classes: dict[tuple[type, str], Any] = {}
        self._unseen = unseen
        self._thread = threading.get_ident()

    def note(self, owner: Any, name: str) -> None:
        """Record the value of an attribute that is about to be read, at its first read in the recorder's thread."""
        key = (id(owner), name)
        if key in self.values or threading.get_ident() != self._thread:
            return
        if name in self._unseen and not isinstance(owner, Module):
            return
        self.owners[key[0]] = owner
        value = self.values[key] = own_value(owner, name)
        if value is ABSENT:
            kind = type(owner)
            self.of_classes.setdefault((kind, name), class_value(kind, name))


# The active recorders: a graph may be built during the build of another one.
_recording: Final[list[Reads]] = []


@contextmanager
def recorded(reads: Reads, *kinds: type) -> Iterator[None]:
    """A block in which reads of attributes of modules, and of objects of `kinds`, are recorded; see `Reads.note`.

    Names that begin with two underscores are left out; `kinds` of a block within another one are ignored.
    """

    def __getattribute__(self: Any, name: str) -> Any:
        if not name.startswith("__"):
            for active in _recording:
                active.note(self, name)
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
