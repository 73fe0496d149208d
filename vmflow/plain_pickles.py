"""A reader of pickles that runs no code: it builds plain data, and asks its caller for the meaning of every name.

A pickle is a program for a stack machine; pickletools documents its instructions.  Python's unpickler imports and calls
the names in a pickle.  The reader here imports nothing: it looks names up in the caller's table, and lacks the
instructions that make objects of classes.

The reader's time and memory are in proportion to the bytes of its content: the copies that the instructions make,
the checks of parts of keys, and the comparisons of tuples with equal hashes may not be more, all together, than these
bytes and 64.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import attrs

# The most bytes of an integer in a pickle, and the most bits of an integer as a key of a dict: an attacker could choose
# larger keys that all have the same hash, which makes dicts slow.
_MOST_DIGITS: Final = 64
_MOST_KEY_BITS: Final = 64

# The most levels of nested lists, dicts and other containers.
_MOST_DEPTH: Final = 200


class Damaged(ValueError):
    """A file is damaged, of another format, or holds something that is not allowed; the message calls the file "it"."""


@attrs.frozen(eq=False)
class Known:
    """The meaning of a name in a pickle that stands for a class or function.

    Attributes:
        name: the full name, for messages.
        call: checks a tuple of arguments and makes a value of them; None if a pickle may not call the name.
    """

    name: str
    call: Callable[[tuple[Any, ...]], Any] | None = None


class Reader:
    """Reads pickles of the protocols 2 to 5.

    Args:
        content: the bytes, which may hold several pickles.
        find: maps the module and name of a global in a pickle to its meaning; raises `Damaged` for an unknown name.
        stored: maps a persistent id, which stands for an object outside of the pickle, to that object.
        hashable: the types of objects of `find` and `stored` that may be keys of dicts, besides strings, bytes,
            integers, floats, bools, None and tuples.

    Attributes:
        position: the offset in `content` at which the next pickle begins.
    """

    def __init__(
        self,
        content: bytes,
        find: Callable[[str, str], Any],
        stored: Callable[[Any], Any],
        hashable: tuple[type, ...] = (),
    ) -> None:
        self._content = content
        self._find = find
        self._stored = stored
        self._hashable = (str, int, float, bool, bytes, type(None), *hashable)
        self._account = len(content) + 64
        self._reset(0)

    def _instructions(self) -> dict[bytes, Callable[[], None]]:
        return {
            b"\x80": self._begin,
            b"\x95": lambda: self._skip(8),  # FRAME: the next frame's length, for readers of byte streams
            b"(": lambda: self._marks.append(len(self._stack)),
            b"0": self._discard,
            b"1": self._discard_marked,
            b"2": lambda: self._push(self._top()),
            b"N": lambda: self._push(None),
            b"\x88": lambda: self._push(True),
            b"\x89": lambda: self._push(False),
            b"J": lambda: self._integer(self._bytes(4)),
            b"K": lambda: self._push(_unsigned(self._bytes(1))),
            b"M": lambda: self._push(_unsigned(self._bytes(2))),
            b"\x8a": lambda: self._integer(self._counted(1)),
            b"\x8b": lambda: self._integer(self._counted(4)),
            b"G": lambda: self._push(struct.unpack(">d", self._bytes(8))[0]),
            b"X": lambda: self._push(_text(self._counted(4))),
            b"\x8c": lambda: self._push(_text(self._counted(1))),
            b"\x8d": lambda: self._push(_text(self._counted(8))),
            b"T": lambda: self._push(_text(self._counted(4))),  # Python 2's strings
            b"U": lambda: self._push(_text(self._counted(1))),
            b"B": lambda: self._push(self._counted(4)),
            b"C": lambda: self._push(self._counted(1)),
            b"\x8e": lambda: self._push(self._counted(8)),
            b"\x96": lambda: self._push(bytearray(self._counted(8))),
            b"]": lambda: self._push([]),
            b"a": lambda: self._extend([self._pop()]),
            b"e": lambda: self._extend(self._since_mark()),
            b")": lambda: self._push(()),
            b"t": lambda: self._push(tuple(self._since_mark())),
            b"\x85": lambda: self._tuple(1),
            b"\x86": lambda: self._tuple(2),
            b"\x87": lambda: self._tuple(3),
            b"}": lambda: self._push({}),
            b"d": self._dict,
            b"s": lambda: self._set_items([self._pop(), self._pop()][::-1]),
            b"u": lambda: self._set_items(self._since_mark()),
            b"\x8f": lambda: self._push(set()),
            b"\x90": lambda: self._add_items(self._since_mark()),
            b"\x91": self._frozen,
            b"q": lambda: self._remember(_unsigned(self._bytes(1))),
            b"r": lambda: self._remember(_unsigned(self._bytes(4))),
            b"\x94": lambda: self._remember(len(self._memo)),
            b"h": lambda: self._recall(_unsigned(self._bytes(1))),
            b"j": lambda: self._recall(_unsigned(self._bytes(4))),
            b"c": lambda: self._name(self._line(), self._line()),
            b"\x93": self._name_on_stack,
            b"R": self._call,
            b"b": self._build,
            b"Q": lambda: self._push(self._stored(self._pop())),
        }

    def _reset(self, position: int) -> None:
        self.position = position
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        # For each dict and set, by its id, the argument `met` of `_key`.
        self._met: dict[int, Counter[int]] = {}

    def read(self) -> Any:
        """Read the pickle at `position` and return its object.

        Raises:
            Damaged: if the pickle is damaged, or contains something that is not allowed.
        """
        self._reset(self.position)
        steps = self._instructions()
        while True:
            opcode = self._bytes(1)
            if opcode == b".":
                return self._pop()
            step = steps.get(opcode)
            if step is None:
                raise Damaged(f"its pickle has the instruction {opcode!r}, which plain data does not need")
            step()

    def pay(self, price: int) -> None:
        """Count `price` bytes or elements that a pickle's instruction copies, against the size of the content.

        Raises:
            Damaged: if all copies together are larger than the content and 64 bytes.
        """
        self._account -= price
        if self._account < 0:
            raise Damaged("its pickle makes more than its size can account for")

    # Parts of the instructions

    def _bytes(self, count: int) -> bytes:
        end = self.position + count
        found = self._content[self.position : end]
        if len(found) != count:
            raise Damaged(f"its pickle is cut off: it ends at byte {len(self._content)}, and {end} were expected")
        self.position = end
        return found

    def _counted(self, size: int) -> bytes:
        """Read a count, an unsigned integer of `size` bytes, and then that many bytes."""
        return self._bytes(int.from_bytes(self._bytes(size), "little"))

    def _line(self) -> str:
        end = self._content.find(b"\n", self.position, self.position + 1000)
        if end < 0:
            raise Damaged("its pickle has a name without an end")
        return _text(self._bytes(end + 1 - self.position)[:-1])

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise Damaged("its pickle takes from an empty stack")
        return self._stack.pop()

    def _top(self) -> Any:
        value = self._pop()
        self._stack.append(value)
        return value

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise Damaged("its pickle takes up to a mark, and has set none")
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def _remember(self, place: int) -> None:
        self._memo[place] = self._top()

    def _recall(self, place: int) -> None:
        if place not in self._memo:
            raise Damaged("its pickle recalls an object that it has not made")
        self._push(self._memo[place])

    def _integer(self, content: bytes) -> None:
        if len(content) > _MOST_DIGITS:
            raise Damaged(f"its pickle has an integer of {len(content)} bytes")
        self._push(int.from_bytes(content, "little", signed=True))

    def _key(self, value: Any, met: Counter[int]) -> Any:
        """Return `value` after checking that it may be a key of a dict or an element of a set.

        Args:
            value: any object.
            met: how many tuples with each hash the dict or set has; an attacker can choose tuples of equal hashes.
        """
        left = [(value, 0)]
        while left:
            part, depth = left.pop()
            self.pay(1 if depth else 0)
            if type(part) is tuple and depth < 8:
                left += [(item, depth + 1) for item in part]
            elif type(part) not in self._hashable:
                raise Damaged(f"its pickle has a {type(part).__name__} as a key of a dict, or in a set")
            elif type(part) is int and part.bit_length() > _MOST_KEY_BITS:
                raise Damaged(f"its pickle has a key of {part.bit_length()} bits")
        if type(value) is tuple:
            self.pay(met[hash(value)])  # to find its place, the dict compares it with all of them
            met[hash(value)] += 1
        return value

    def keys(self, values: Any) -> Any:
        """Return `values`, a list, tuple or dict, after checking that its elements or keys can be keys."""
        self.pay(len(values))
        met: Counter[int] = Counter()
        for value in values:
            self._key(value, met)
        return values

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise Damaged(f"its pickle appends to a {type(target).__name__}")
        target += items

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) not in (dict, OrderedDict, defaultdict, Counter):
            raise Damaged(f"its pickle sets items of a {type(target).__name__}")
        if len(items) % 2:
            raise Damaged("its pickle has a key without a value")
        met = self._met.setdefault(id(target), Counter())
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[self._key(key, met)] = value

    def _add_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not set:
            raise Damaged(f"its pickle adds elements to a {type(target).__name__}")
        met = self._met.setdefault(id(target), Counter())
        for item in items:
            target.add(self._key(item, met))

    def _discard(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _discard_marked(self) -> None:
        self._since_mark()

    def _skip(self, count: int) -> None:
        self._bytes(count)

    def _begin(self) -> None:
        protocol = self._bytes(1)[0]
        if not 2 <= protocol <= 5:
            raise Damaged(f"its pickle is of the protocol {protocol}, and only protocols 2 to 5 can be read")

    def _name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise Damaged("its pickle has a name that is no string")
        self._push(self._find(module, name))

    def _name_on_stack(self) -> None:
        name, module = self._pop(), self._pop()
        self._name(module, name)

    def _call(self) -> None:
        arguments, known = self._pop(), self._pop()
        if type(known) is not Known or known.call is None or type(arguments) is not tuple:
            shown = known.name if type(known) is Known else f"a {type(known).__name__}"
            raise Damaged(f"its pickle calls {shown}, which is no way to make data")
        self._push(known.call(arguments))

    def _build(self) -> None:
        state, target = self._pop(), self._top()
        # Only a module's state dict has attributes: `_metadata`, with the versions of its submodules.
        if type(target) is not OrderedDict or type(state) is not dict or not state.keys() <= {"_metadata"}:
            raise Damaged(f"its pickle gives attributes to a {type(target).__name__}")
        vars(target).update(state)

    def _frozen(self) -> None:
        items = self._since_mark()
        self._push(frozenset(self.keys(items)))

    def _dict(self) -> None:
        items = self._since_mark()
        self._push({})
        self._set_items(items)

    def _tuple(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._push(tuple(items[::-1]))


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Damaged(f"its pickle has text that is none: {error}") from None


def _unsigned(content: bytes) -> int:
    return int.from_bytes(content, "little")


# Functions for the calls in pickles that make plain data.  Most get a function that returns the reader, which counts
# copies and checks keys.

_GetReader = Callable[[], Reader]
_Arguments = tuple[Any, ...]


def plain_names(reader: _GetReader) -> dict[tuple[str, str], Known]:
    """The table of names of Python's library that pickles of plain data contain, by module and name.

    Args:
        reader: returns the reader of the pickle, which counts the copies that calls make.
    """
    empty = {kind.__name__: Known(kind.__name__, partial(_empty, kind)) for kind in _EMPTY}
    builtin = {
        **empty,
        "bytearray": Known("bytearray", partial(_bytearray, reader)),
        "complex": Known("complex", _complex),
        "frozenset": Known("frozenset", partial(_set, frozenset, reader)),
        "set": Known("set", partial(_set, set, reader)),
    }
    factories = {builtin[kind.__name__]: kind for kind in (*_EMPTY, set) if kind is not bytes}
    return {
        **{(module, name): known for module in ("builtins", "__builtin__") for name, known in builtin.items()},
        # Python writes these names for `int` and `str` in pickles of protocol 2.
        ("__builtin__", "long"): builtin["int"],
        ("__builtin__", "unicode"): builtin["str"],
        ("_codecs", "encode"): Known("_codecs.encode", partial(_bytes_of_text, reader)),
        ("collections", "OrderedDict"): Known("collections.OrderedDict", partial(_ordered_dict, reader)),
        ("collections", "Counter"): Known("collections.Counter", partial(_counter, reader)),
        ("collections", "defaultdict"): Known("collections.defaultdict", partial(_defaultdict, factories)),
    }


# Types that pickles of plain data call only without arguments, as in ``dict()``.
_EMPTY: Final = (bool, bytes, dict, float, int, list, str, tuple)


def _empty(kind: type, arguments: _Arguments) -> Any:
    if arguments:
        _refuse(f"a {kind.__name__} by a call")
    return kind()


def _complex(arguments: _Arguments) -> complex:
    if len(arguments) != 2 or any([type(argument) is not float for argument in arguments]):
        _refuse("a complex number of anything but two floats")
    return complex(*arguments)


def _set(kind: type, reader: _GetReader, arguments: _Arguments) -> Any:
    items = arguments[0] if arguments else []
    if len(arguments) > 1 or type(items) is not list:
        _refuse(f"a {kind.__name__} of anything but a list")
    return kind(reader().keys(items))


def _bytes_of_text(reader: _GetReader, arguments: _Arguments) -> bytes:
    """Make bytes for ``_codecs.encode(text, "latin1")``, by which pickles of protocol 2 write bytes."""
    if [type(argument) for argument in arguments] != [str, str] or arguments[1] not in ("latin1", "latin-1"):
        _refuse("bytes of anything but text in latin1")
    reader().pay(len(arguments[0]))
    try:
        encoded: bytes = arguments[0].encode("latin1")
    except UnicodeEncodeError:
        _refuse("bytes of anything but text in latin1")
    return encoded


def _bytearray(reader: _GetReader, arguments: _Arguments) -> bytearray:
    if len(arguments) == 1 and type(arguments[0]) is bytes:
        reader().pay(len(arguments[0]))
        return bytearray(arguments[0])
    return bytearray(_bytes_of_text(reader, arguments)) if arguments else bytearray()


def _ordered_dict(reader: _GetReader, arguments: _Arguments) -> OrderedDict[Any, Any]:
    if not arguments:
        return OrderedDict()
    pairs = arguments[0] if len(arguments) == 1 else None
    if type(pairs) is not list or any([type(pair) not in (list, tuple) or len(pair) != 2 for pair in pairs]):
        _refuse("an OrderedDict of anything but pairs")
    reader().pay(len(pairs))
    reader().keys([key for key, _ in pairs])
    return OrderedDict(pairs)


def _counter(reader: _GetReader, arguments: _Arguments) -> Counter[Any]:
    if not arguments:
        return Counter()
    counts = arguments[0] if len(arguments) == 1 else None
    if type(counts) is not dict or any([type(count) is not int for count in counts.values()]):
        _refuse("a Counter of anything but integers")
    return Counter(reader().keys(counts))


def _defaultdict(factories: Mapping[Known, type], arguments: _Arguments) -> defaultdict[Any, Any]:
    factory = arguments[0] if arguments else None
    if len(arguments) > 1 or (factory is not None and (type(factory) is not Known or factory not in factories)):
        _refuse("a defaultdict that would call something")
    return defaultdict(None if factory is None else factories[factory])


def _refuse(wanted: str) -> NoReturn:
    raise Damaged(f"its pickle makes {wanted}")


def check_result(value: Any, allowed: tuple[type, ...]) -> None:
    """Check that an object is plain data, does not contain itself, and is not nested too deeply.

    Args:
        value: the object that was read.
        allowed: the types of other objects that it may contain.

    Raises:
        Damaged: if a check fails.
    """
    heights: dict[int, int] = {}
    left: list[tuple[Any, bool]] = [(value, False)]
    while left:
        part, seen = left.pop()
        kind = type(part)
        if kind in allowed or kind in _LEAVES:
            continue
        parts = _parts(part)
        if seen:
            heights[id(part)] = 1 + max([heights.get(id(child), 0) for child in parts], default=0)
            if heights[id(part)] > _MOST_DEPTH:
                raise Damaged(f"it is nested more than {_MOST_DEPTH} deep")
        elif id(part) not in heights:
            heights[id(part)] = _UNDER_WAY
            left.append((part, True))
            left += [(child, False) for child in parts]
        elif heights[id(part)] == _UNDER_WAY:
            raise Damaged("it contains itself")


_LEAVES: Final = (str, int, float, bool, bytes, bytearray, complex, type(None))
_UNDER_WAY: Final = -1


def _parts(container: Any) -> list[Any]:
    kind = type(container)
    if kind in (list, tuple, set, frozenset):
        return list(container)
    if kind in (dict, OrderedDict, defaultdict, Counter):
        extra = list(vars(container).values()) if kind is OrderedDict else []
        return [*container.keys(), *container.values(), *extra]
    shown = container.name if kind is Known else f"a {kind.__name__}"
    raise Damaged(f"it holds {shown}, which is no data")
