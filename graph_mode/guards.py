"""`Guard`: records the state from which a form of a graph was built, and compares it with the present state.

A form, the result of one build, depends on the attributes that `build` has read of modules and of the graph
(`reads.py`), which may be those of their classes, on the values that its functions use from their surroundings
(`surroundings.py`), on the settings of the graph, on global hooks, and on autocast and the defaults of new tensors.  A
call compares autocast and the defaults, the surrounding values and attributes of classes by identity, and one count of
changes (`vmflow.changes`); if one of these differs, it compares everything, else only values that change uncounted.

Values that building itself changes are not compared; else a counter in `forward` would make every call build again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, MethodType
from typing import Any, Final, NamedTuple, final

from vmflow import dtypes
from vmflow.changes import COUNT
from vmflow.context import MODE, Mode
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.nn.hooks import OF_ALL
from vmflow.nn.module import WATCHED, Module
from vmflow.tensors import Tensor, watch_requires_grad

from .args_tree import exact
from .reads import ABSENT, Members, Reads, recorded
from .surroundings import Cell, ClassMember, Global, Gradient, Member, Place, around, can_change, identity_of

# Types whose values are compared by type and value, see `exact`; for others, see `frozen`.
_PLAIN: Final = (int, float, complex, str, bytes, bool, type(None), DType, Device)

# Containers of few items are compared by their items, unless they are nested too deeply.  Other containers are compared
# by identity, and those that can change in place also by their number of items.
_MUTABLE: Final = (list, dict, set, deque)
_CONTAINERS: Final = (*_MUTABLE, tuple, frozenset)
_MOST_ITEMS: Final = 64
_DEEPEST: Final = 4

# The device of new tensors where the mode names none.
_HOST: Final = Device("cpu")


class _Never:
    """Equal to nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@final
class Identity:
    """Stands for an object: equal to an `Identity` of the same object, as long as the object exists.

    The object is not kept alive if it can be weakly referenced.
    """

    __slots__ = ("_find",)

    def __init__(self, value: object) -> None:
        self._find: Callable[[], object]
        try:
            self._find = weakref.ref(value)
        except TypeError:
            self._find = lambda: value

    def __eq__(self, other: object) -> bool:
        mine = self._find()
        return mine is not None and isinstance(other, Identity) and mine is other._find()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        value = self._find()
        return "an object that no longer exists" if value is None else f"a {type(value).__name__}"


def frozen(value: Any, depth: int = 0) -> Any:
    """Return a stand-in for a value that a build has read; the build serves all values with an equal stand-in.

    Args:
        value: the value.
        depth: the number of containers around the value that are compared by their items.
    """
    if value is ABSENT:
        return "absent"
    if isinstance(value, Tensor):
        if value.is_lazy:
            return _Never()  # no later value equals a tensor that was made while building
        watch_requires_grad(value)
        return Identity(value), value.requires_grad
    if type(value) in _PLAIN:
        return type(value), exact(value)
    if isinstance(value, Members):
        return tuple([frozen(item) for item in value])
    if isinstance(value, _CONTAINERS) and depth < _DEEPEST and len(value) <= _MOST_ITEMS:
        items = [*value.items()] if isinstance(value, dict) else value
        return Contents(type(value), tuple([frozen(item, depth + 1) for item in items]))
    if isinstance(value, _MUTABLE):
        return Identity(value), len(value)
    return Identity(value)


def _changes_in_place(value: Any, depth: int = 0) -> bool:
    """Whether `frozen` can return another stand-in for a value later, without a change that `COUNT` counts."""
    if isinstance(value, _MUTABLE):
        return True
    if not isinstance(value, _CONTAINERS) or depth == _DEEPEST or len(value) > _MOST_ITEMS:
        return False
    return any([_changes_in_place(item, depth + 1) for item in value])


class Contents(NamedTuple):
    """Stands for a container: equal to the `Contents` of a container of this type with equal items in this order."""

    kind: type
    items: tuple[Any, ...]


@final
class Guard:
    """The state from which one form of a graph was built, for comparison with the present state.

    Args:
        mode: the context (autocast, default dtype and device) of the call for which the form was built.
        places: the attributes, closure cells, globals and gradients whose values the form depends on.
        settings: a method that returns the settings of the graph, by name; its object is not kept alive.
    """

    def __init__(self, mode: Mode, places: list[Place], settings: Callable[[], Mapping[str, Any]]) -> None:
        # A weak reference, since the graph refers to its form, and the form to this guard.
        self._settings: Callable[[], Callable[[], Mapping[str, Any]] | None] = weakref.WeakMethod(settings)
        self._set = dict(settings())
        self._places = [(place, frozen(place.now())) for place in places]
        self._count = COUNT[0]
        self._dtype, self._device, self._autocast = mode.dtype, mode.device, mode.autocast
        self._casts = _casts(mode)
        self._hooks = tuple(OF_ALL.items())
        self._cells: list[tuple[CellType, Any]] = []
        # The values of globals and of classes' attributes, by the namespaces in which they are looked up.
        self._named: list[tuple[Mapping[str, Any], str, Any]] = []
        # A change of a module's attribute changes `COUNT`, and a variable's new value has another identity.  Gradients,
        # attributes of other objects, and containers whose contents can change in place, are compared at each call.
        self._uncounted = [
            (place, value)
            for place, value in self._places
            if isinstance(place, Gradient)
            or (isinstance(place, Member) and not place.is_counted)
            or _changes_in_place(place.now())
        ]
        self._see_identities()

    def holds(self, mode: Mode) -> bool:
        """Return whether the form may still be used, in this mode.  Runs at every call of a graph."""
        if mode.dtype is not self._dtype or mode.device is not self._device or COUNT[0] != self._count:
            return self._compared()
        if mode.autocast is not self._autocast:
            return self._compared()
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return self._compared()
        except ValueError:  # a closure variable has been deleted
            return self._compared()
        for space, name, value in self._named:
            if space.get(name, ABSENT) is not value:
                return self._compared()
        for place, value in self._uncounted:  # noqa: SIM110 (no generator, since this runs at every call)
            if frozen(place.now()) != value:
                return False
        return True

    def _compared(self) -> bool:
        """Compare all recorded values; if all are unchanged, update the quick checks of `holds` and return True."""
        count = COUNT[0]
        if self.difference() is not None:
            return False
        self._count = count
        mode = MODE.get()
        self._dtype, self._device, self._autocast = mode.dtype, mode.device, mode.autocast
        self._see_identities()
        return True

    def _see_identities(self) -> None:
        places = [place for place, _ in self._places]
        self._cells = [(place.cell, place.now()) for place in places if isinstance(place, Cell)]
        self._cells = [(cell, value) for cell, value in self._cells if value is not ABSENT]
        self._named = [(place.space, place.name, place.now()) for place in places if isinstance(place, Global)]
        for place in places:
            if isinstance(place, ClassMember):
                self._named += [(space, place.name, space.get(place.name, ABSENT)) for space in place.spaces()]

    def difference(self) -> str | None:
        """Describe the first value that differs from the time of the build; None if none does."""
        return self._difference_around() or self.difference_within()

    def _difference_around(self) -> str | None:
        """Describe a change of autocast, of the default dtype or device, or of global module hooks; else None."""
        mode = MODE.get()
        for title, before, now in (
            ("the default dtype", self._dtype or dtypes.float32, mode.dtype or dtypes.float32),
            ("the default device", self._device or _HOST, mode.device or _HOST),
            ("autocast", self._casts, _casts(mode)),
            ("the hooks of all modules", self._hooks, tuple(OF_ALL.items())),
        ):
            if before != now:
                return f"{title} was {_shown(before)}, and is {_shown(now)}"
        return None

    def difference_within(self) -> str | None:
        """Describe a change of settings, or of attributes, variables or gradients that `build` uses; else None."""
        settings = self._settings()
        present = self._set if settings is None else settings()
        for name, before in self._set.items():
            if present.get(name) != before:
                return f"{name} was {before!r}, and is {present.get(name)!r}"
        for place, value in self._places:
            now = frozen(place.now())
            if now != value:
                before_and_now = _shown(value), _shown(now)
                if before_and_now[0] == before_and_now[1]:
                    return f"the items of {place.title} have changed"
                return f"{place.title} was {before_and_now[0]}, and is {before_and_now[1]}"
        return None


def _casts(mode: Mode) -> dict[str, DType] | None:
    return None if mode.autocast is None else dict(mode.autocast.chosen)


def _shown(value: Any) -> str:
    """Describe a compared value, often a stand-in that `frozen` made, for messages."""
    if isinstance(value, Contents):
        return f"a {value.kind.__name__} of {len(value.items)} items"
    if isinstance(value, tuple) and len(value) == 2 and value[0] in _PLAIN:
        return value[1] if value[0] in (float, complex) else repr(value[1])
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Identity):
        if type(value[1]) is not bool:
            return f"{value[0]!r} of {value[1]} items"
        return f"{value[0]!r} that {'requires' if value[1] else 'does not require'} a gradient"
    if isinstance(value, tuple):
        return f"{len(value)} values" if value else "empty"
    return str(value)


@final
class Watch:
    """Records the values that building a graph depends on, for its `Guard`.

    Args:
        kind: the class of graphs whose attribute reads are recorded.
        own: the attributes of graphs that the graph class itself uses, which are ignored.
        functions: the functions known before building that may run in it.
    """

    def __init__(self, kind: type, own: frozenset[str], functions: list[Callable[..., Any]]) -> None:
        self._mode = MODE.get()
        self._kind = kind
        self._reads = Reads(own)
        self._functions = functions
        self._before = [(place, frozen(place.now())) for place in around(functions)]

    @contextmanager
    def building(self) -> Iterator[None]:
        """Record this thread's reads of attributes of modules and graphs in the block, which calls `build`."""
        with recorded(self._reads, self._kind):
            yield

    def guard(
        self, settings: Callable[[], Mapping[str, Any]], paths: Mapping[Any, str], gradients: Iterable[Gradient]
    ) -> Guard:
        """Make a guard of the recorded values that building has not changed.

        Args:
            settings: see `Guard`.
            paths: the paths of modules in the graph, for messages.
            gradients: the gradients of earlier calls that building has read.
        """
        places: list[Place] = list(gradients)
        places += [place for place, value in self._before if frozen(place.now()) == value]
        known = {identity_of(function) for function in self._functions}
        modules = [owner for owner in self._reads.owners.values() if isinstance(owner, Module)]
        places += around([function for function in forwards(modules) if identity_of(function) not in known])
        found = {(place.kind, place.name) for place in places if isinstance(place, ClassMember)}
        for (kind, name), value in self._reads.of_classes.items():
            if (kind, name) not in found and (value is ABSENT or can_change(kind, name)):
                of_class = ClassMember(kind, name)
                if frozen(of_class.now()) == frozen(value):
                    places.append(of_class)
        for (number, name), value in self._reads.values.items():
            owner = self._reads.owners[number]
            title = f"{paths.get(owner) or type(owner).__name__}.{name}"
            member = Member(weakref.ref(owner), name, title, is_counted=True)
            if frozen(member.now()) == frozen(value):
                places.append(member)
        for module in modules:
            module.__dict__[WATCHED] = True
        return Guard(self._mode, places, settings)


def forwards(modules: list[Module]) -> list[Callable[..., Any]]:
    """Return the functions that calls of these modules may run: `forward` and forward hooks, except vmflow's own.

    A `forward` of a class is returned as a method of that class, whose attributes it may read.
    """
    kinds = dict.fromkeys([type(module) for module in modules])
    functions: list[Any] = [MethodType(kind.forward, kind) for kind in kinds]
    for module in modules:
        own = module.__dict__
        functions += [*own["_forward_pre_hooks"].values(), *own["_forward_hooks"].values()]
        if "forward" in own:
            functions.append(own["forward"])
    # `str`, since the `__module__` of a method written in C, such as that of a dict, is None.
    return [function for function in functions if not str(getattr(function, "__module__", "")).startswith("vmflow.")]
