"""Loading a state dict into a module: check all names, shapes and dtypes first, then change the tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import attrs
import numpy as np

from vmflow.autograd import no_grad
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor
from vmflow.transfers import spread_like

from .parameter import Buffer, Parameter, UninitializedTensorMixin, is_lazy

if TYPE_CHECKING:
    from .module import Module


# The last part of the name of a module's extra state in a state dict: the result of `Module.get_extra_state`.
EXTRA: Final = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """The names that a state dict lacks, `missing_keys`, and the names that the module lacks, `unexpected_keys`."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


@attrs.frozen
class Returnless:
    """Wraps a hook after `state_dict`; raises RuntimeError if the hook does not return None."""

    hook: Callable[..., object]

    def __call__(self, module: Module, entries: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
        returned = self.hook(module, entries, prefix, metadata)
        if returned is not None:
            raise RuntimeError(
                f"state_dict: the hook {self.hook!r} must change the dict that it is given and return None, not a "
                f"{type(returned).__name__}"
            )


@attrs.frozen
class Moduleless:
    """Wraps a hook before `load_state_dict` that does not take the module as its first argument."""

    hook: Callable[..., object]

    def __call__(self, module: Module, *args: Any) -> None:
        self.hook(*args)


class Place(NamedTuple):
    """The target of a state dict's entry `key`: the attribute `name` of `module`, whose present value is `tensor`."""

    key: str
    module: Module
    name: str
    tensor: Tensor


def places(module: Module, prefix: str = "") -> Iterator[Place]:
    """Iterate over the parameters and buffers that `module.state_dict()` contains, in the same order."""
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
    """Load a state dict into a module; see `Module.load_state_dict`."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"load_state_dict: expected a dict of tensors, got {type(state_dict).__name__}")
    entries = dict(state_dict)
    missing: list[str] = []
    unexpected: list[str] = []
    problems: list[str] = []
    modules = [(f"{name}." if name else "", part) for name, part in module.named_modules(remove_duplicate=False)]
    for prefix, part in modules:
        for hook in list(part._load_state_dict_pre_hooks.values()):
            hook(part, entries, prefix, {}, strict, missing, unexpected, problems)
    wanted = {place.key: place for place in places(module)}
    extras = {prefix + EXTRA: part for prefix, part in modules if part._has_extra_state()}
    missing += [key for key in (*wanted, *extras) if key not in entries]
    unexpected += [key for key in entries if key not in wanted and key not in extras]
    values = [(place, _tensor(entries[key])) for key, place in wanted.items() if key in entries]
    problems += [problem for place, value in values if (problem := _misfit(place, value, assign)) is not None]
    result = IncompatibleKeys(missing, unexpected)
    hooked = [part for _, part in reversed(modules) if part._load_state_dict_post_hooks]
    _complain(module, result, problems, strict and not hooked, "nothing was loaded")
    for place, value in values:
        _assign(place, value) if assign else _copy(place, value)
    for key, part in extras.items():
        if key in entries:
            part.set_extra_state(entries[key])
    for part in hooked:
        for hook in list(part._load_state_dict_post_hooks.values()):
            hook(part, result)
    _complain(module, result, [], strict, "only the rest was loaded")
    return result


def _complain(module: Module, keys: IncompatibleKeys, problems: list[str], strict: bool, so_far: str) -> None:
    """Raise if there are `problems` or, with `strict`, missing or unexpected names; `so_far` says what was loaded.

    Raises:
        RuntimeError: with a list of them.
    """
    named = (("missing keys", keys.missing_keys), ("unexpected keys", keys.unexpected_keys))
    lines = [f"{kind}: {', '.join(map(repr, names))}" for kind, names in named if strict and names]
    lines += problems
    if lines:
        raise RuntimeError(
            f"load_state_dict: the state dict does not fit {type(module).__name__}, and {so_far}:\n    "
            + "\n    ".join(lines)
        )


def _tensor(value: Any) -> Any:
    """Return `value`, or a copy of an array as a tensor: the array may change before the load instruction runs."""
    if not isinstance(value, np.ndarray):
        return value
    try:
        return creation.tensor(value)
    except (TypeError, ValueError):
        return value  # `_misfit` reports the array together with the other entries that do not fit


def _misfit(place: Place, value: Any, assign: bool) -> str | None:
    if not isinstance(value, Tensor):
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        return f"{place.key!r}: expected a tensor, got {kind}"
    if is_lazy(value):
        return None if is_lazy(place.tensor) else f"{place.key!r}: the given one has no shape yet, the module's has"
    if not is_lazy(place.tensor) and value.shape != place.tensor.shape:
        return f"{place.key!r}: shape {list(value.shape)} does not fit the module's {list(place.tensor.shape)}"
    if not assign and value.is_complex() and not place.tensor.is_complex():
        return f"{place.key!r}: {value.dtype.name} would lose its imaginary part in {place.tensor.dtype.name}"
    if assign and place.tensor.requires_grad and not (value.is_floating_point() or value.is_complex()):
        return f"{place.key!r}: {value.dtype.name} cannot be the dtype of a parameter that requires a gradient"
    return None


def _copy(place: Place, value: Tensor) -> None:
    if is_lazy(value):
        return
    if isinstance(place.tensor, UninitializedTensorMixin):
        place.tensor.materialize(tuple(value.shape))
    with no_grad():
        place.tensor.copy_(spread_like(value, place.tensor))


def _assign(place: Place, value: Tensor) -> None:
    if isinstance(place.tensor, Parameter) and not isinstance(value, Parameter):
        value = Parameter(value, place.tensor.requires_grad)
    elif isinstance(place.tensor, Buffer) and not isinstance(value, Buffer):
        value = Buffer(value, persistent=place.tensor.persistent)
    setattr(place.module, place.name, value)
