"""Containers of modules or parameters: `Sequential`, `ModuleList`, `ModuleDict`, `ParameterList`, `ParameterDict`."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import groupby
from typing import Any, Self

from vmflow.tensors import Tensor

from .module import Module, tree
from .parameter import Parameter


def _fitting(container: Module, registry: str, value: Any) -> Any:
    """Return a container's new member: `value`, a module, for "_modules"; for "_parameters", a tensor as a `Parameter`.

    Raises:
        TypeError: for a value of another type.
        RuntimeError: for a tensor of integers or bools that is no `Parameter`.
    """
    if registry == "_modules" and isinstance(value, Module):
        return value
    if registry == "_parameters" and isinstance(value, Tensor):
        return value if isinstance(value, Parameter) else Parameter(value)
    kind = "modules" if registry == "_modules" else "parameters and tensors"
    raise TypeError(f"{type(container).__name__} holds {kind}, not {type(value).__name__}")


def _parameters_shown(container: Module) -> str:
    lines = []
    for name, value in container._parameters.items():
        assert value is not None
        size = "x".join(map(str, value.shape))
        lines.append(f"({name}): Parameter containing: [{value.dtype!r} of size {size}]")
    return tree(type(container).__name__, [], lines)


class _Container(Module):
    """The base of containers, modules whose members are all modules or all parameters.

    Attributes:
        _registry: the attribute of `Module` with the dict of the members: "_modules" or "_parameters".
    """

    _registry = "_modules"

    def _members(self) -> dict[str, Any]:
        # By getattr, not from __dict__, so that a graph that is being built records its dependence on the members.
        members: dict[str, Any] = getattr(self, self._registry)
        return members

    def _keep(self, name: str, value: Any) -> None:
        register = self.add_module if self._registry == "_modules" else self.register_parameter
        register(name, _fitting(self, self._registry, value))

    def __len__(self) -> int:
        return len(self._members())


class _Numbered(_Container):
    """The base of list containers: members are named by position, "0", "1", ...; `Sequential` may have other names."""

    def _part(self, members: list[tuple[str, Any]]) -> Self:
        """Return a new container of this class with the given `members` of this one, pairs of name and value."""
        return type(self)([value for _, value in members])  # type: ignore[call-arg]

    def _name(self, idx: Any) -> str:
        """The name of the member at position `idx`, which counts from the end if negative."""
        position = operator.index(idx)
        names = list(self._members())
        if not -len(names) <= position < len(names):
            raise IndexError(f"index {position} is out of range for {type(self).__name__} of length {len(names)}")
        return names[position]

    def _renumber(self, values: list[Any]) -> None:
        members = self._members()
        members.clear()
        for number, value in enumerate(values):
            members[str(number)] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members().values())

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return self._part(list(self._members().items())[idx])
        return self._members()[self._name(idx)]

    def __setitem__(self, idx: int, value: Any) -> None:
        self._keep(self._name(idx), value)

    def __delitem__(self, idx: int | slice) -> None:
        if not isinstance(idx, slice):
            self._name(idx)
        values = list(self._members().values())
        del values[idx]
        self._renumber(values)

    def append(self, value: Any) -> Self:
        """Add a member at the end, and return the container."""
        members, number = self._members(), len(self)
        while str(number) in members:  # as in a part of a `Sequential`, which keeps its names
            number += 1
        self._keep(str(number), value)
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add several members at the end, or none if a value has a wrong type; return the container."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"extend: expected several to add, got {type(values).__name__}")
        for value in [_fitting(self, self._registry, value) for value in values]:
            self.append(value)
        return self

    def insert(self, index: int, value: Any) -> None:
        """Insert a member before position `index`, and rename all members to their positions."""
        values = list(self._members().values())
        values.insert(index, _fitting(self, self._registry, value))
        self._renumber(values)

    def pop(self, key: int = -1) -> Any:
        """Remove and return the member at position `key`, by default the last; rename the others to their positions."""
        value = self[key]
        del self[key]
        return value

    def __iadd__(self, other: Iterable[Any]) -> Self:
        return self.extend(other)

    def __add__(self, other: Iterable[Any]) -> Self:
        return self._part(list(self._members().items())).extend(other)


class Sequential(_Numbered):
    """Call modules one after another, each with the result of the one before: ``Sequential(Linear(2, 3), ReLU())``.

    Modules given in a dict (or OrderedDict) are named by its keys instead of numbers.

    Raises:
        TypeError: for anything else than modules, or a name that is no string.
        KeyError: for names that are empty, contain a dot, or are those of attributes.

    Example:
        >>> flow.nn.Sequential(flow.nn.ReLU(), flow.nn.Softmax(0))(flow.tensor([-1.0, 0.0]))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, _fitting(self, "_modules", module))
        else:
            self.extend(args)

    def _part(self, members: list[tuple[str, Any]]) -> Self:
        return type(self)(dict(members))

    def forward(self, input: Any) -> Any:
        """Call all modules in their order, and return the result of the last, or `input` if there are none."""
        for module in self._modules.values():
            assert module is not None
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules, which are registered as submodules; it has no `forward` of its own.

    Raises:
        TypeError: for anything else than modules.

    Example:
        >>> layers = flow.nn.ModuleList([flow.nn.Linear(2, 2) for _ in range(3)])
        >>> layers
        ModuleList(
          (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
        )
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __repr__(self) -> str:
        """The repr of the list; neighbours with equal reprs share a line, ``(0-2): 3 x Linear(...)``."""
        lines = []
        numbers = list(self._modules)
        first = 0
        for text, run in groupby([repr(module) for module in self]):
            count = len(list(run))
            last = first + count - 1
            if count == 1:
                lines.append(f"({numbers[first]}): {text}")
            else:
                lines.append(f"({numbers[first]}-{numbers[last]}): {count} x {text}")
            first = last + 1
        return tree(self._get_name(), [], lines)


class ParameterList(_Numbered):
    """A list of parameters, of any shapes; tensors put into it become parameters.

    Raises:
        TypeError: for anything else than tensors.
        RuntimeError: for tensors of integers or bools that are no parameters.

    Example:
        >>> flow.nn.ParameterList([flow.ones(2), flow.zeros(3, 4)])[1].shape
        vmflow.Size([3, 4])
    """

    _registry = "_parameters"

    def __init__(self, values: Iterable[Tensor] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def __repr__(self) -> str:
        return _parameters_shown(self)


class _Named(_Container):
    """The base of dict containers, whose members are registered under their keys, strings without dots."""

    def __init__(self, members: Members | None = None) -> None:
        super().__init__()
        if members is not None:
            self.update(members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def __contains__(self, key: object) -> bool:
        return key in self._members()

    def __getitem__(self, key: str) -> Any:
        return self._members()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._keep(key, value)

    def __delitem__(self, key: str) -> None:
        del self._members()[key]

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._members().keys()

    def values(self) -> ValuesView[Any]:
        """The members, without their keys."""
        return self._members().values()

    def items(self) -> ItemsView[str, Any]:
        """The pairs of a key and its member."""
        return self._members().items()

    def get(self, key: str, default: Any = None) -> Any:
        """The member with this key, or `default` if there is none."""
        return self._members().get(key, default)

    def pop(self, key: str) -> Any:
        """Remove and return the member with this key."""
        return self._members().pop(key)

    def clear(self) -> None:
        """Remove all members."""
        self._members().clear()

    def update(self, members: Members) -> None:
        """Add members, or replace those with the same keys.

        Raises:
            TypeError: if `members` is neither a mapping nor an iterable of pairs, and as for the class.
        """
        if isinstance(members, _Named):
            pairs: Iterable[Any] = members.items()
        elif isinstance(members, Mapping):
            pairs = members.items()
        elif isinstance(members, Iterable):
            pairs = members
        else:
            raise TypeError(f"update: expected a mapping or pairs of key and value, got {type(members).__name__}")
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"update: expected pairs of key and value, got {pair!r}")
            self[pair[0]] = pair[1]


# The types of arguments with several members for `ModuleDict` and `ParameterDict`.
Members = _Named | Mapping[str, Any] | Iterable[tuple[str, Any]]


class ModuleDict(_Named):
    """A dict of modules, which are registered as submodules; it has no `forward` of its own.

    Raises:
        TypeError: for values that are no modules, names that are no strings, or an argument that is neither a mapping
            nor pairs.
        KeyError: for names that are empty, contain a dot, or are those of attributes.

    Example:
        >>> activations = flow.nn.ModuleDict({"relu": flow.nn.ReLU(), "tanh": flow.nn.Tanh()})
        >>> activations["relu"](flow.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, modules: Members | None = None) -> None:
        super().__init__(modules)


class ParameterDict(_Named):
    """A dict of parameters, of any shapes; tensors put into it become parameters.

    Raises:
        TypeError: for values that are no tensors, names that are no strings, or an argument that is neither a mapping
            nor pairs.
        RuntimeError: for tensors of integers or bools that are no parameters.
        KeyError: for names that are empty, contain a dot, or are those of attributes.

    Example:
        >>> list(flow.nn.ParameterDict({"scale": flow.ones(2)}).keys())
        ['scale']
    """

    _registry = "_parameters"

    def __init__(self, parameters: Members | None = None) -> None:
        super().__init__(parameters)

    def __repr__(self) -> str:
        return _parameters_shown(self)
