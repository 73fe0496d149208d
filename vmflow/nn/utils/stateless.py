"""`functional_call`: call a module with other parameters and buffers than its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final

from vmflow.nn.module import Module
from vmflow.tensors import Tensor

# A thread holds this lock while a module has other tensors than its own, so that `functional_call` by several threads
# runs one after another.
_CALLING: Final = RLock()

_REGISTRIES: Final = ("_parameters", "_buffers")


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call ``module(*args, **kwargs)`` with given tensors instead of its parameters and buffers of the same names.

    Gradients go to the tensors that are passed, and calls that change buffers in place change the buffers that are
    passed.  The module has its own tensors again when the call returns.  Calls by several threads run one after
    another; a thread that meanwhile uses the module without `functional_call` would see the passed tensors, too.

    Args:
        module: the module to call; its ``forward`` is no coroutine function.
        parameters_and_buffers: a dict of tensors by name, such as "hidden.weight"; or several such dicts, of different
            names.  The module keeps its own tensors for other names.
        args: the positional arguments: a tuple, or the only argument; None for none.
        kwargs: the keyword arguments.
        tie_weights: whether a tensor given for one name of a shared tensor replaces it under all of its names.
        strict: whether all of the module's parameters and buffers must be given, each by one of its names, and no
            others.

    Raises:
        TypeError: for anything else than a module or dicts of tensors, or a ``forward`` that is a coroutine function.
        ValueError: for a name that is in several dicts; with `tie_weights`, for different tensors under two names of
            the same tensor of the module.
        RuntimeError: if `strict`, for names that are missing or that the module does not have.

    Example:
        >>> layer = vmflow.nn.Linear(2, 1)
        >>> weights = {"weight": vmflow.ones(1, 2), "bias": vmflow.zeros(1)}
        >>> vmflow.func.functional_call(layer, weights, vmflow.ones(3, 2)).tolist()
        [[2.0], [2.0], [2.0]]
    """
    if not isinstance(module, Module):
        raise TypeError(f"functional_call: expected a module, got {type(module).__name__}")
    tensors = _joined(parameters_and_buffers)
    places = _places(module)
    if strict:
        _check_names(tensors, places)
    if inspect.iscoroutinefunction(module.forward):
        raise TypeError(
            f"functional_call: {type(module).__name__}.forward is a coroutine function, and would run when the module "
            "has its own tensors again; call the parts of it that are not"
        )
    wanted = _tied(tensors, places) if tie_weights else tensors
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _having({place: wanted[name] for name, place in places.items() if name in wanted}):
        return module(*positional, **(kwargs or {}))


class _Place:
    """An entry of a module's dict of parameters or buffers: ``members[name]``, which is `tensor` outside of calls."""

    def __init__(self, members: dict[str, Tensor | None], name: str, tensor: Tensor) -> None:
        self.members = members
        self.name = name
        self.tensor = tensor


def _joined(given: Any) -> dict[str, Tensor]:
    dicts = [given] if isinstance(given, Mapping) else given
    if not isinstance(dicts, (list, tuple)) or not all([isinstance(dict_, Mapping) for dict_ in dicts]):
        raise TypeError(f"functional_call: expected a dict of tensors, or several, got {type(given).__name__}")
    joined: dict[str, Tensor] = {}
    for part in dicts:
        for name, tensor in part.items():
            if name in joined:
                raise ValueError(f"functional_call: {name!r} is in several of the dicts")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"functional_call: {name!r} must be a tensor, not {type(tensor).__name__}")
            joined[name] = tensor
    return joined


def _places(module: Module) -> dict[str, _Place]:
    """Return the entries of a module's parameters and buffers by dotted name; a shared tensor has several names."""
    places: dict[str, _Place] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        for registry in _REGISTRIES:
            members: dict[str, Tensor | None] = getattr(part, registry)
            for name, tensor in members.items():
                if tensor is not None:
                    places[f"{prefix}.{name}" if prefix else name] = _Place(members, name, tensor)
    return places


def _check_names(tensors: Mapping[str, Tensor], places: Mapping[str, _Place]) -> None:
    # A tensor that the module has under several names is not missing if it is passed under one of the names.
    named = {id(places[name].tensor) for name in tensors if name in places}
    missing = [name for name, place in places.items() if id(place.tensor) not in named]
    unexpected = [name for name in tensors if name not in places]
    if missing or unexpected:
        parts = [f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has", unexpected)) if names]
        raise RuntimeError(
            f"functional_call: the dict {' and '.join(parts)}, and strict=True wants the names of the module's "
            "parameters and buffers, no more and no fewer"
        )


def _tied(tensors: Mapping[str, Tensor], places: Mapping[str, _Place]) -> dict[str, Tensor]:
    """Return `tensors` by all names of the module's tensors that they replace; a shared tensor has several names."""
    by_tensor: dict[int, str] = {}
    for name in tensors:
        if name in places:
            first = by_tensor.setdefault(id(places[name].tensor), name)
            if tensors[first] is not tensors[name]:
                raise ValueError(
                    f"functional_call: {first!r} and {name!r} are names of one tensor of the module, and different "
                    "tensors are passed for them; pass one, or tie_weights=False"
                )
    names = {name: by_tensor.get(id(place.tensor)) for name, place in places.items()}
    return {name: tensors[first] for name, first in names.items() if first is not None}


@contextmanager
def _having(wanted: Mapping[_Place, Tensor]) -> Iterator[None]:
    """Make a block in which the entries of modules are the given tensors; its end restores the tensors from before."""
    with _CALLING:
        before = [(place, place.members[place.name]) for place in wanted]
        try:
            for place, tensor in wanted.items():
                place.members[place.name] = tensor
            yield
        finally:
            for place, tensor_before in before:
                place.members[place.name] = tensor_before
