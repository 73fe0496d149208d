"""The values that functions use from their surroundings: cells of closures, globals, and attributes of objects."""

from __future__ import annotations

import builtins
import dis
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, Protocol

import attrs

from .reads import ABSENT, own_value

_FIXED: Final = (ModuleType, type, BuiltinFunctionType)


class Place(Protocol):
    """A variable or attribute from which a function takes a value."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        ...

    def now(self) -> Any:
        """The present value of the variable or attribute; `ABSENT` if it has none."""
        ...


@attrs.frozen(eq=False)
class Cell:
    """A variable of an outer function that a closure uses."""

    cell: CellType
    name: str

    @property
    def title(self) -> str:
        return f"the variable {self.name!r}"

    def now(self) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return ABSENT


@attrs.frozen(eq=False)
class Global:
    """A global variable of a module."""

    space: dict[str, Any]
    name: str

    @property
    def title(self) -> str:
        return f"the global {self.name!r}"

    def now(self) -> Any:
        return self.space.get(self.name, ABSENT)


@attrs.frozen(eq=False)
class Member:
    """An attribute of an object that is not kept alive, since it may own the compiled method that owns this `Member`.

    Attributes:
        owner: the object.
        name: the attribute's name.
        title: its name in messages.
        is_counted: whether changes of the attribute are counted; see `vmflow.changes`.
    """

    owner: weakref.ref[Any]
    name: str
    title: str
    is_counted: bool = False

    def now(self) -> Any:
        owner = self.owner()
        return ABSENT if owner is None else own_value(owner, self.name)


def around(functions: Iterable[Callable[..., Any]]) -> list[Place]:
    """The places from which these functions, and functions of their modules that they use, take changeable values.

    Args:
        functions: functions and methods; other objects are ignored.
    """
    places: dict[tuple[int, str], Place] = {}
    waiting: list[Any] = list(functions)
    # By function, since closures of one function share its code; and by owner, since methods of two objects share their
    # function.
    seen: set[tuple[FunctionType, int]] = set()
    while waiting:
        called = inspect.unwrap(waiting.pop())
        function = getattr(called, "__func__", called)
        owner = getattr(called, "__self__", None)
        if not isinstance(function, FunctionType) or (function, id(owner)) in seen:
            continue
        seen.add((function, id(owner)))
        for place in _places(function, owner):
            value = place.now()
            if not _is_fixed(value):
                places[_key(place)] = place
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                waiting.append(value)
    return list(places.values())


def _is_fixed(value: Any) -> bool:
    """Whether the value counts as unchangeable: modules, classes, built-in functions, and functions of vmflow."""
    if isinstance(value, FunctionType):
        return value.__module__.startswith("vmflow.")
    return isinstance(value, _FIXED)


def _key(place: Cell | Global | Member) -> tuple[int, str]:
    if isinstance(place, Cell):
        return id(place.cell), ""
    if isinstance(place, Global):
        return id(place.space), place.name
    return id(place.owner()), place.name


def _places(function: FunctionType, owner: Any) -> Iterator[Cell | Global | Member]:
    code, space = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield Cell(cell, name)
    for name in _names(code, ("LOAD_GLOBAL", "LOAD_NAME")):
        if name in space or not hasattr(builtins, name):
            yield Global(space, name)
    own = getattr(owner, "__dict__", None)
    if own is not None and not isinstance(owner, _FIXED) and hasattr(owner, "__weakref__"):
        for name in _names(code, ("LOAD_ATTR", "LOAD_METHOD")):
            if name in own:
                yield Member(weakref.ref(owner), name, f"{type(owner).__name__}.{name}")


def _names(code: CodeType, operations: tuple[str, ...]) -> list[str]:
    """The names that the code, and code within it, looks up by these operations."""
    names = [step.argval for step in dis.get_instructions(code) if step.opname in operations]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant, operations)
    return list(dict.fromkeys(names))
