"""The values that functions use from their surroundings: cells of closures, globals, attributes of objects and classes.

A function's code names the attributes that it reads, not the objects of which it reads them.  A name counts if it is
an attribute of the object or class that a method is bound to, or of a class that the function takes from its
surroundings.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Final, Protocol

import attrs

from vmflow.autograd.node import AutogradMeta

from .reads import ABSENT, class_value, namespaces, own_value

_FIXED: Final = (ModuleType, type, BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType)

# The flag of classes whose attributes cannot be assigned, such as `int`.
_IMMUTABLE: Final = 1 << 8


class Place(Protocol):
    """A variable or attribute from which a function takes a value."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        ...

    def now(self) -> Any:
        """The present value, or its substitute in comparisons; `ABSENT` if the variable or attribute has none."""
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
    """An attribute of an object.

    Attributes:
        owner: the object, by a weak reference, since the object may own the compiled method that owns this `Member`.
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


@attrs.frozen(eq=False)
class ClassMember:
    """An attribute of a class, in its own namespace or in that of a base."""

    kind: type
    name: str

    @property
    def title(self) -> str:
        return f"{self.kind.__name__}.{self.name}"

    def now(self) -> Any:
        return class_value(self.kind, self.name)

    def spaces(self) -> list[Mapping[str, Any]]:
        """The namespaces in which the attribute is looked up now."""
        return namespaces(self.kind, self.name)


@attrs.frozen(eq=False)
class Gradient:
    """The `grad` of a leaf outside of the graph, as earlier calls and eager code have left it.

    Attributes:
        autograd: the leaf's autograd data.
        is_used: whether the graph's ops use the gradient; else only its absence matters.
    """

    autograd: AutogradMeta
    is_used: bool

    @property
    def title(self) -> str:
        return "the gradient of a parameter" if self.is_used else "whether a parameter has a gradient"

    def now(self) -> Any:
        gradient = self.autograd.grad
        return gradient if self.is_used else gradient is not None


def around(functions: Iterable[Callable[..., Any]]) -> list[Place]:
    """The places from which these functions, and functions of their modules that they use, take values that may change.

    Args:
        functions: functions and methods, also wrapped ones; other objects are ignored.
    """
    places: dict[tuple[int, str], Place] = {}
    waiting: list[Any] = list(functions)
    # By function and not by code, which closures share; and by owner, since methods of two objects share a function.
    seen: set[tuple[FunctionType, int]] = set()
    while waiting:
        function, owner = _opened(waiting.pop())
        if not isinstance(function, FunctionType) or (function, id(owner)) in seen:
            continue
        seen.add((function, id(owner)))
        kinds = [] if owner is None else [owner if isinstance(owner, type) else type(owner)]
        for place in _places(function, owner):
            value = place.now()
            if not _is_fixed(value):
                places[_key(place)] = place
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                waiting.append(value)
            elif isinstance(value, type):
                kinds.append(value)
        for member in _members_of_classes(function, kinds):
            places[_key(member)] = member
            # A method of a class reads attributes of that class, too.
            waiting += [
                MethodType(inner, member.kind)
                for inner in _functions_in(member.now())
                if getattr(inspect.unwrap(inner), "__globals__", None) is function.__globals__
            ]
    return list(places.values())


def identity_of(called: Callable[..., Any]) -> tuple[int, int]:
    """Return an identity of a function, equal for methods of one object or class that have the same function."""
    return id(getattr(called, "__func__", called)), id(getattr(called, "__self__", None))


def _opened(called: Any) -> tuple[Any, Any]:
    """Return the function within a method and wrappers, and the object or class that the method is bound to, if any."""
    owner = getattr(called, "__self__", None)
    within = inspect.unwrap(getattr(called, "__func__", called))
    if owner is None:
        owner = getattr(within, "__self__", None)
    return getattr(within, "__func__", within), owner


def _is_fixed(value: Any) -> bool:
    """Whether the value counts as unchangeable: it is of a type in `_FIXED`, or all its functions are vmflow's."""
    functions = _functions_in(value)
    if functions:
        return all([str(function.__module__).startswith("vmflow.") for function in functions])
    return isinstance(value, _FIXED)


def _functions_in(value: Any) -> list[FunctionType]:
    """Return the Python functions of a value: itself, or those within a (cached) property, a static or class method."""
    if isinstance(value, property):
        within = [value.fget, value.fset, value.fdel]
    elif isinstance(value, (staticmethod, classmethod)):
        within = [value.__func__]
    elif isinstance(value, functools.cached_property):
        within = [value.func]
    else:
        within = [value]
    return [function for function in within if isinstance(function, FunctionType)]


def _key(place: Cell | Global | Member | ClassMember) -> tuple[int, str]:
    if isinstance(place, Cell):
        return id(place.cell), ""
    if isinstance(place, Global):
        return id(place.space), place.name
    if isinstance(place, ClassMember):
        return id(place.kind), place.name
    return id(place.owner()), place.name


def _members_of_classes(function: FunctionType, kinds: list[type]) -> Iterator[ClassMember]:
    """The changeable attributes that the function's code names, of these classes and of classes under such names."""
    names = _names(function.__code__, ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"))
    waiting = list(dict.fromkeys(kinds))
    seen = set(waiting)
    while waiting:
        kind = waiting.pop()
        for name in names:
            value = class_value(kind, name)
            if isinstance(value, type) and value not in seen:
                seen.add(value)
                waiting.append(value)
            if can_change(kind, name):
                yield ClassMember(kind, name)


def can_change(kind: type, name: str) -> bool:
    """Whether a class or a base of it has this attribute, and programs may assign another value to it.

    Attributes of vmflow's and of immutable classes, and values for which `_is_fixed` is true, count as never assigned.
    """
    owner = next((base for base in kind.__mro__ if name in base.__dict__), None)
    if owner is None or owner.__flags__ & _IMMUTABLE or str(owner.__module__).startswith("vmflow."):
        return False
    return not _is_fixed(owner.__dict__[name])


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
            # An attribute that only the class has may be set on the object later.
            if name in own or can_change(type(owner), name):
                yield Member(weakref.ref(owner), name, f"{type(owner).__name__}.{name}")


def _names(code: CodeType, operations: tuple[str, ...]) -> list[str]:
    """The names that the code, and code within it, looks up by these operations."""
    names = [step.argval for step in dis.get_instructions(code) if step.opname in operations]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant, operations)
    return list(dict.fromkeys(names))
