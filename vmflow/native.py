"""Declarations for mypyc, which compiles the core, and support for interpreted classes with compiled bases."""

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
        """A stand-in for mypyc's decorator at run time, so that mypy_extensions need not be installed; does nothing."""
        return lambda given: given


def caused_by(error: Raised, cause: BaseException | None) -> Raised:
    """Set the cause of `error` and return `error`, for ``raise``: code compiled by mypyc ignores ``raise ... from``."""
    error.__cause__ = cause
    return error


def keep_fields(derived: type) -> None:
    """Move class attributes of `derived` that redefine fields of a compiled base into the fields of each new object.

    Compiled code reads the fields of an object, and not attributes in the body of an interpreted class that derives
    from the compiled one.  Does nothing if no base is compiled, or `derived` is, too.
    """
    fields: dict[str, GetSetDescriptorType] = {}
    for base in reversed(derived.__mro__[1:]):
        fields.update(_fields(base))
    if _fields(derived):
        return  # compiled itself
    values: dict[GetSetDescriptorType, object] = {}
    for name in fields.keys() & vars(derived).keys():
        value = vars(derived)[name]
        # A slot or class attribute of the same name in the derived class would hide the base's field.
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
    """The fields that the class `of` itself defines if it is compiled, by name; without those of its bases."""
    return {
        name: field
        for name, field in vars(of).items()
        if isinstance(field, GetSetDescriptorType) and not name.startswith("__")
    }
