"""The arguments that functions, methods and classes of PyTorch take and those of vmflow by the same name do not.

    python -m tests.names.signatures

Functions in C++ have no signature that can be asked for, so those of the stubs are read that PyTorch ships.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

import vmflow as flow

# The places whose names are compared, behind the name of the library.
PLACES: Final = (
    "",
    "Tensor",
    "nn",
    "nn.Module",
    "nn.functional",
    "nn.init",
    "nn.utils",
    "nn.utils.rnn",
    "nn.utils.prune",
    "nn.utils.parametrize",
    "nn.utils.parametrizations",
    "optim",
    "optim.Optimizer",
    "optim.lr_scheduler",
    "optim.swa_utils",
    "autograd",
    "autograd.Function",
    "autograd.functional",
    "autograd.graph",
    "func",
    "linalg",
    "fft",
    "special",
    "distributions",
    "utils.data",
    "utils.checkpoint",
    "cuda",
    "amp",
    "random",
)

# Of no function in particular: PyTorch's own machinery, and the arguments of subclasses.
_NOBODYS: Final = frozenset({"self", "cls", "args", "kwargs"})


class Missing(NamedTuple):
    """A name that both libraries have, and the arguments that only PyTorch takes."""

    name: str
    arguments: tuple[str, ...]


def walk(torch: ModuleType) -> list[Missing]:
    """All that is missing, in the order of `PLACES`."""
    stubs = _Stubs(torch)
    found: list[Missing] = []
    for place in PLACES:
        theirs, ours = _at(torch, place), _at(flow, place)
        if theirs is None or ours is None:
            continue
        for name in sorted(dir(theirs)):
            if name.startswith("_"):
                continue
            one, other = getattr(theirs, name, None), getattr(ours, name, None)
            if not callable(one) or not callable(other) or inspect.ismodule(one):
                continue
            taken = arguments_of(other)
            wanted = arguments_of(one) or stubs.arguments(place, name)
            if taken is None or wanted is None or "kwargs" in taken:
                continue
            lacking = tuple(sorted(wanted - taken - _NOBODYS))
            if lacking:
                found.append(Missing(f"{place}.{name}".lstrip("."), lacking))
    return found


def _at(library: Any, place: str) -> Any:
    for part in filter(None, place.split(".")):
        library = getattr(library, part, None)
    return library


def arguments_of(thing: Any) -> frozenset[str] | None:
    """The names of arguments, of a class those of its constructor; None if Python does not know them."""
    try:
        signature = inspect.signature(thing)
    except (ValueError, TypeError):
        return None
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            names.append("kwargs")
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names.append("args")
        else:
            names.append(parameter.name)
    return frozenset(names)


class _Stubs:
    """The stubs that PyTorch ships for what is in C++: of each name, the arguments of all overloads."""

    def __init__(self, torch: ModuleType) -> None:
        folder = Path(str(torch.__file__)).parent / "_C"
        self._functions = dict(_collected(_parsed(folder / "_VariableFunctions.pyi").body))
        self._methods: dict[str, frozenset[str]] = {}
        for node in _parsed(folder / "__init__.pyi").body:
            if isinstance(node, ast.ClassDef) and node.name in ("TensorBase", "_TensorBase"):
                self._methods = dict(_collected(node.body))

    def arguments(self, place: str, name: str) -> frozenset[str] | None:
        return (self._methods if place == "Tensor" else self._functions if place == "" else {}).get(name)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _collected(nodes: list[ast.stmt]) -> Iterator[tuple[str, frozenset[str]]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            found.setdefault(node.name, set()).update([argument.arg for argument in every])
    return iter([(name, frozenset(arguments)) for name, arguments in found.items()])


if __name__ == "__main__":
    import torch

    for missing in walk(torch):
        print(missing.name, *missing.arguments)
