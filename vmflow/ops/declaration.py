"""Decorators that declare functions of the op modules as public functions of `vmflow` or methods of `Tensor`.

`FUNCTIONS` maps public names to functions, and `METHODS` to methods and properties.  Type checkers find the same names
in `vmflow.functions` and `vmflow.tensor_methods`, which ``.ci/declarations.py`` writes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from vmflow.kernels.choosing import origin_of

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

FUNCTIONS: Final[dict[str, Any]] = {}
METHODS: Final[dict[str, Any]] = {}

Declared = TypeVar("Declared", bound=Callable[..., Any])

# Pairs of numpy's name and PyTorch's name for one argument.
_NUMPY_NAMES: Final = (("axis", "dim"), ("keepdims", "keepdim"))


def public(
    *others: str, own: bool = True, numpy_names: bool = False, reflected: str | None = None
) -> Callable[[Declared], Declared]:
    """Declare the decorated function a public function of `vmflow` and a method of `Tensor`.

    Args:
        others: further public names; names of operators, such as ``__add__``, are names of the method alone.
        own: whether the function's own name is public too.
        numpy_names: whether the public function and method also take ``axis`` and ``keepdims``.  The decorated
            function itself, which other ops call, takes only ``dim`` and ``keepdim``.
        reflected: the name of a method to declare as well, such as ``__radd__``, that swaps the two operands.

    Raises:
        ValueError: if another function is already declared under a name other than `reflected`.

    Example:
        >>> flow.exp is flow.Tensor.exp
        True
    """

    def declare(declared: Declared) -> Declared:
        function(*[name for name in others if not name.startswith("__")], own=own, numpy_names=numpy_names)(declared)
        return method(*others, own=own, numpy_names=numpy_names, reflected=reflected)(declared)

    return declare


def function(*others: str, own: bool = True, numpy_names: bool = False) -> Callable[[Declared], Declared]:
    """Declare the decorated function a public function of `vmflow`; see `public`.

    Raises:
        ValueError: if another function is already declared under one of the names.

    Example:
        >>> hasattr(flow, "cat"), hasattr(flow.Tensor, "cat")
        (True, False)
    """

    def declare(declared: Declared) -> Declared:
        _enter(FUNCTIONS, declared, others, own, numpy_names)
        return declared

    return declare


def method(
    *others: str, own: bool = True, numpy_names: bool = False, reflected: str | None = None
) -> Callable[[Declared], Declared]:
    """Declare the decorated function a method of `Tensor`; see `public`.

    Raises:
        ValueError: if another method is already declared under a name other than `reflected`.

    Example:
        >>> hasattr(flow, "expand"), hasattr(flow.Tensor, "expand")
        (False, True)
    """

    def declare(declared: Declared) -> Declared:
        _enter(METHODS, declared, others, own, numpy_names)
        if reflected is not None:
            METHODS[reflected] = _reflected(reflected, declared)
        return declared

    return declare


def attribute(name: str, setter: Callable[[Any, Any], None] | None = None) -> Callable[[Declared], Declared]:
    """Declare the decorated function the getter, and `setter`, if any, the setter, of the `Tensor` attribute `name`."""

    def declare(getter: Declared) -> Declared:
        METHODS[name] = property(getter, setter)
        return getter

    return declare


def declaring_module() -> str:
    """Return the name of the module whose top-level code led to this call: the nearest module frame on the stack."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        assert frame.f_back is not None
        frame = frame.f_back
    name: str = frame.f_globals["__name__"]
    return name


def _enter(table: dict[str, Any], declared: Any, others: tuple[str, ...], own: bool, numpy_names: bool) -> None:
    called = with_numpy_names(declared) if numpy_names else declared
    for name in (declared.__name__, *others) if own else others:
        # A function may declare itself again, since Ctrl-C may interrupt the import of its module.
        if name in table and origin_of(table[name]) != origin_of(declared):
            raise ValueError(f"{name!r} is declared twice")
        table[name] = called


def _reflected(name: str, declared: Callable[..., Any]) -> Callable[..., Any]:
    def operator(self: Tensor, other: Any) -> Tensor:
        result: Tensor = declared(other, self)
        return result

    operator.__name__ = operator.__qualname__ = name
    operator.__module__ = declared.__module__
    return operator


def with_numpy_names(declared: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function with arguments ``dim`` and ``keepdim`` so that it also takes numpy's ``axis`` and ``keepdims``.

    The wrapper raises TypeError if an argument is given by both of its names.
    """

    @functools.wraps(declared)
    def named(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for theirs, ours in _NUMPY_NAMES:
                if theirs in kwargs:
                    if ours in kwargs:
                        raise TypeError(f"{declared.__name__}: {theirs} is another name of {ours}; give one of them")
                    kwargs[ours] = kwargs.pop(theirs)
        return declared(*args, **kwargs)

    return named


def in_place_functions() -> dict[str, Any]:
    """Return the in-place methods that become functions of `vmflow`: ``exp_``, since `exp` is a function, and so on.

    Methods that `FUNCTIONS` has already are left out.  PyTorch has only some such functions.
    """
    return {
        name: declared
        for name, declared in METHODS.items()
        if name.endswith("_") and name[:-1] in FUNCTIONS and name not in FUNCTIONS
    }


def late_function(name: str, module: str) -> Any:
    """Import `module`, and return the public function, or in-place method, that it declares under `name`."""
    import_module(module)
    return FUNCTIONS[name] if name in FUNCTIONS else METHODS[name]


class LateMethod:
    """A method of `Tensor` that few programs call: its module is imported when the method is first looked up.

    Attributes:
        kind: the class `Tensor`, in which the method replaces this descriptor on the first look-up.
        name: of the method.
        module: the module that declares it.
    """

    __slots__ = ("kind", "module", "name")

    def __init__(self, kind: type, name: str, module: str) -> None:
        self.kind = kind
        self.name = name
        self.module = module

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        import_module(self.module)
        declared = METHODS[self.name]
        setattr(self.kind, self.name, declared)
        return declared.__get__(instance, owner)


def give_methods(kind: type, late: Mapping[str, str]) -> None:
    """Set all declared methods as attributes of `kind`, and a `LateMethod` for each name in `late` not declared yet.

    Args:
        kind: the class, `Tensor`.
        late: maps names of methods to the names of the modules that declare them.
    """
    for name, module in late.items():
        setattr(kind, name, LateMethod(kind, name, module))
    for name, declared in METHODS.items():
        setattr(kind, name, declared)
