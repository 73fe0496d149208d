"""The names of modules and tensors in a graph: of the graph's own, and of others that the build uses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from vmflow.nn.module import Module
from vmflow.tensor_fields import blob_of
from vmflow.tensors import Tensor

if TYPE_CHECKING:
    from vmflow.instructions.blob import Storage
    from vmflow.nn.module_path import ModulePath

Names = dict["Storage", tuple[str, Tensor]]
Paths = dict[Any, str]


def add_module(module: Module, path: str, names: Names, paths: Paths) -> None:
    """Name a module and its submodules, unless they have names, and their tensors; see `add_tensor`.

    Args:
        module: the module.
        path: its name in the graph.
        names: by storage, the name of a tensor and the tensor.
        paths: by module, its path.
    """
    for name, inner in module.named_modules():
        paths.setdefault(inner, f"{path}.{name}" if name else path)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        add_tensor(tensor, f"{path}.{name}", names)


def add_tensor(tensor: Tensor, name: str, names: Names) -> None:
    """Name a tensor, unless a tensor of its storage has a name or its blob has `strides`."""
    blob = blob_of(tensor)
    if blob.strides is None:
        names.setdefault(blob.storage, (name, tensor))


def name_running_module(path: ModulePath | None, names: Names, paths: Paths) -> None:
    """Name the module whose forward is running, unless it has a name; first its callers, in the same way.

    A module that still has no name then gets its class and a number ("linear_0"), behind its caller's name, if any.
    """
    if path is None:
        return
    module = path.module()
    if module is None or module in paths:
        return
    name_running_module(path.outer, names, paths)
    if module in paths:
        return
    outer = paths.get(path.outer.module()) if path.outer is not None else None
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(module).__name__).lower()
    taken = set(paths.values())
    number = 0
    while (name := ".".join([part for part in (outer, f"{kind}_{number}") if part])) in taken:
        number += 1
    add_module(module, name, names, paths)


def surroundings(function: Callable[..., Any]) -> Iterator[tuple[str, Module | Tensor]]:
    """Modules and tensors that a function may use from its surroundings, with their names there.

    They are looked up in its closure, in the globals that it names, in the object whose method it is, and in the items
    of dicts, lists and tuples there.  If the function is itself a module, it is the only one.
    """
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Module):
        yield "self", owner
    elif owner is not None and not inspect.ismodule(owner):
        for name, value in getattr(owner, "__dict__", {}).items():
            yield from _named(f"self.{name}", value)
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if isinstance(plain, Module):
        yield "module", plain
    if not inspect.isfunction(plain):
        return
    around = inspect.getclosurevars(plain)
    for scope in (around.nonlocals, around.globals):
        for name, value in scope.items():
            yield from _named(name, value)


def _named(name: str, value: Any) -> Iterator[tuple[str, Module | Tensor]]:
    if isinstance(value, (Module, Tensor)):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, (Module, Tensor)):
                yield f"{name}.{key}", inner
    elif isinstance(value, (list, tuple)):
        for position, inner in enumerate(value):
            if isinstance(inner, (Module, Tensor)):
                yield f"{name}.{position}", inner
