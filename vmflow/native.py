"""Declarations for the compiler of the core, and support for interpreted classes that derive from compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

Raised = TypeVar("Raised", bound=BaseException)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    Class = TypeVar("Class", bound=type)

    def mypyc_attr(**about: object) -> Callable[[Class], Class]:
        """A stand-in where nothing is compiled, since the compiler's package need not be installed then."""
        return lambda given: given


def caused_by(error: Raised, cause: BaseException | None) -> Raised:
    """An exception to be raised, with its cause: compiled code ignores the ``from`` of a ``raise``."""
    error.__cause__ = cause
    return error


def keep_fields(derived: type) -> None:
    """Put the values that `derived` gives to its bases' attributes where compiled code reads them.

    A compiled class has fields, and compiled code reads those, not the body of an interpreted class that derives from
    it. So each of its objects gets these values in its fields.  Does nothing if no base is compiled.
    """
    fields: dict[str, GetSetDescriptorType] = {}
    for base in reversed(derived.__mro__[1:]):
        fields.update(_fields(base))
    if _fields(derived):
        return  # compiled itself
    values: dict[GetSetDescriptorType, object] = {}
    for name in fields.keys() & vars(derived).keys():
        value = vars(derived)[name]
        # Behind a slot or a value of the same name, the field could not be reached.
        delattr(derived, name)
        if not isinstance(value, MemberDescriptorType):
            values[fields[name]] = value
    if not values:
        return
    make: Any = derived.__new__

    def make_with_values(cls: type, *arguments: object, **named: object) -> Any:
        made = make(cls)
        for field, value in values.items():
            field.__set__(made, value)
        return made

    derived.__new__ = staticmethod(make_with_values)  # type: ignore[assignment]


def _fields(of: type) -> dict[str, GetSetDescriptorType]:
    """The fields that a compiled class adds or redefines, by name."""
    return {
        name: field
        for name, field in vars(of).items()
        if isinstance(field, GetSetDescriptorType) and not name.startswith("__")
    }
