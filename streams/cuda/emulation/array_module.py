"""`ARRAY_MODULE`: numpy in place of CuPy, for kernels on emulated devices.

Where CuPy is installed, functions that CuPy lacks fail, as do calls that do not suit the signature or the dtypes of
CuPy's own function, if these are known.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, final

import ml_dtypes
import numpy as np


class NotInCupy(AttributeError, TypeError):
    """A kernel for CUDA devices uses a function that CuPy lacks, or arguments that CuPy's function does not take."""


# CuPy's loops name bfloat16 by the character E, which `numpy.dtype` does not accept.
_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)

# The types of objects that are taken from numpy as they are, since they are no functions.
_PLAIN: Final = (type, np.dtype, type(None), float, int, str)


@final
class ArrayModule:
    """A module of numpy that is used in place of CuPy's.

    Args:
        stand_in: the module of numpy whose functions are called.
        cupy_name: the module of CuPy that it stands in for.
        calls: counts the calls, refused ones too; the modules inside share it.

    Attributes:
        calls: see above; by full names in CuPy, such as "cupy.linalg.norm".
    """

    def __init__(self, stand_in: Any, cupy_name: str, calls: Counter[str]) -> None:
        self._stand_in = stand_in
        self._cupy_name = cupy_name
        self.calls = calls
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._make(name)
        return found

    def _make(self, name: str) -> Any:
        qualified = f"{self._cupy_name}.{name}"
        theirs = _of_cupy(self._cupy_name, name)
        ours = getattr(self._stand_in, name)
        if inspect.ismodule(ours):
            return ArrayModule(ours, qualified, self.calls)
        if isinstance(ours, _PLAIN):
            return ours
        return _Function(ours, theirs, qualified, self.calls)


@final
class _Function:
    """A function of numpy that is called in place of CuPy's."""

    def __init__(self, function: Callable[..., Any], theirs: Any, name: str, calls: Counter[str]) -> None:
        self._function = function
        self._theirs = theirs
        self._signature = _signature(theirs)
        self._name = name
        self._calls = calls
        # The operand dtypes of the loops of CuPy's function; empty if that is no ufunc, or without CuPy.
        self._loops = [each.split("->")[0] for each in getattr(theirs, "types", ())]
        # The combinations of operand dtypes for which a loop was found.
        self._taken: set[tuple[Any, ...]] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls[self._name] += 1
        if self._loops:
            self._check_dtypes(args)
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise NotInCupy(
                    f"{self._name} of CuPy is called with arguments that it does not take: {error}"
                ) from error
        return self._function(*args, **kwargs)

    def _check_dtypes(self, args: tuple[Any, ...]) -> None:
        """Raise `NotInCupy` if the operands with a dtype cannot be cast safely to the dtypes of any loop of CuPy."""
        count = len(self._loops[0])
        dtypes = tuple([getattr(argument, "dtype", None) for argument in args[:count]])
        if dtypes in self._taken:
            return
        for loop in self._loops:
            wanted = [_BFLOAT16 if char == "E" else np.dtype(char) for char in loop]
            if all([given is None or np.can_cast(given, to) for given, to in zip(dtypes, wanted, strict=False)]):
                self._taken.add(dtypes)
                return
        raise NotInCupy(f"{self._name} of CuPy does not take operands of {[str(dtype) for dtype in dtypes]}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._theirs is not None and not hasattr(self._theirs, name):
            raise NotInCupy(f"CuPy has no {self._name}.{name}")
        theirs = None if self._theirs is None else getattr(self._theirs, name)
        return _Function(getattr(self._function, name), theirs, f"{self._name}.{name}", self._calls)


def _of_cupy(module: str, name: str) -> Any:
    """The object of this name in a module of CuPy; None without CuPy.  Raises `NotInCupy` if the module lacks it."""
    if find_spec("cupy") is None:
        return None
    theirs = import_module(module)
    if not hasattr(theirs, name):
        raise NotInCupy(f"CuPy has no {module}.{name}")
    return getattr(theirs, name)


def _signature(function: Any) -> inspect.Signature | None:
    """The signature of a function; None for None, and for C functions that have none."""
    if function is None:
        return None
    try:
        return inspect.signature(function)
    except ValueError:
        return None


ARRAY_MODULE: Final = ArrayModule(np, "cupy", Counter())
