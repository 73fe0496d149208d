"""Loading a state dict into a module: compare everything first, then change the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from vmflow.autograd import no_grad
from vmflow.tensors import Tensor

from .parameter import Buffer, Parameter

if TYPE_CHECKING:
    from .module import Module


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found on one side only."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Place(NamedTuple):
    """Where one entry of a state dict belongs: the attribute `name` of `module`, which holds `tensor`."""

    key: str
    module: Module
    name: str
    tensor: Tensor


def places(module: Module, prefix: str = "") -> Iterator[Place]:
    """Everything that `module.state_dict()` holds, in its order."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield Place(prefix + name, module, name, parameter)
    for name, buffer in module._buffers.items():
        if buffer is not None and name not in module._non_persistent_buffers_set:
            yield Place(prefix + name, module, name, buffer)
    for name, child in module._modules.items():
        if child is not None:
            yield from places(child, f"{prefix}{name}.")


def load(module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """See `Module.load_state_dict`."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"load_state_dict: expected a dict of tensors, got {type(state_dict).__name__}")
    wanted = {place.key: place for place in places(module)}
    missing = [key for key in wanted if key not in state_dict]
    unexpected = [key for key in state_dict if key not in wanted]
    problems: list[str] = []
    if strict and missing:
        problems.append("missing keys: " + ", ".join(map(repr, missing)))
    if strict and unexpected:
        problems.append("unexpected keys: " + ", ".join(map(repr, unexpected)))
    found = [(place, state_dict[key]) for key, place in wanted.items() if key in state_dict]
    problems += [problem for place, value in found if (problem := _misfit(place, value, assign)) is not None]
    if problems:
        raise RuntimeError(
            f"load_state_dict: the state dict does not fit {type(module).__name__}, and nothing was loaded:\n    "
            + "\n    ".join(problems)
        )
    for place, value in found:
        _assign(place, value) if assign else _copy(place, value)
    return IncompatibleKeys(missing, unexpected)


def _misfit(place: Place, value: Any, assign: bool) -> str | None:
    if not isinstance(value, Tensor):
        return f"{place.key!r}: expected a tensor, got {type(value).__name__}"
    if value.shape != place.tensor.shape:
        return f"{place.key!r}: shape {list(value.shape)} does not fit the module's {list(place.tensor.shape)}"
    if not assign and value.is_complex() and not place.tensor.is_complex():
        return f"{place.key!r}: {value.dtype.name} would lose its imaginary part in {place.tensor.dtype.name}"
    if assign and place.tensor.requires_grad and not (value.is_floating_point() or value.is_complex()):
        return f"{place.key!r}: {value.dtype.name} cannot be the dtype of a parameter that requires a gradient"
    return None


def _copy(place: Place, value: Tensor) -> None:
    with no_grad():
        place.tensor.copy_(value)


def _assign(place: Place, value: Tensor) -> None:
    if isinstance(place.tensor, Parameter) and not isinstance(value, Parameter):
        value = Parameter(value, place.tensor.requires_grad)
    elif isinstance(place.tensor, Buffer) and not isinstance(value, Buffer):
        value = Buffer(value, persistent=place.tensor.persistent)
    setattr(place.module, place.name, value)
