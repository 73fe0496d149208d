"""Parses the text of PTX into statements, without their meaning."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from .faults import Place, PtxSyntaxError
from .statements import Address, Function, Immediate, Instruction, Label, Operand, Register, Unit, Variable, Vector
from .types import SCALARS

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|-?0[xX][0-9a-fA-F]+U?
        |-?(?:\d+\.\d+|\.\d+|\d+\.(?![A-Za-z_]))(?:[eE][-+]?\d+)?|-?\d+\.?[eE][-+]?\d+|-?\d+U?)
    | (?P<word>\.[A-Za-z_]\w*(?:::\w+)*|[%$]?[A-Za-z_$%][\w$%.]*(?:::[\w$.]+)*)
    | (?P<sign>[-+@!{}()\[\],;:=<>|&])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    text: str
    line: int
    kind: str


def parse_unit(text: str) -> Unit:
    """Parse PTX.

    Raises:
        PtxSyntaxError: if the text is not understood.
    """
    return _Parser(text).unit()


def _tokens(text: str) -> Iterator[Token]:
    plain = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    position, line = 0, 1
    while True:
        found = _TOKEN.match(plain, position)
        if found is None:
            rest = plain[position:].lstrip()
            if rest:
                line += plain.count("\n", position, len(plain) - len(rest))
                raise PtxSyntaxError(f"line {line} of the PTX: {rest.splitlines()[0][:40]!r} is not understood")
            return
        kind = found.lastgroup or ""
        line += plain.count("\n", position, found.start(kind))
        yield Token(found[kind], line, kind)
        position = found.end()


_SKIPPED_TO_LINE_END: Final = frozenset({".version", ".target", ".address_size", ".pragma"})
_SPACES: Final = {f".{space}": space for space in ("global", "const", "shared", "local", "param", "tex")}
_LINKAGE: Final = frozenset({".visible", ".extern", ".weak", ".common"})
# Ignored directives before a function's body, which numbers may follow.
_HINTS: Final = frozenset(
    {".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".explicitcluster"}
    | {".reqnctapercluster", ".maxclusterrank", ".blocksareclusters", ".abi_preserve", ".abi_preserve_control"}
)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._lines = text.splitlines()
        self._next = 0
        self._files = dict(_files(text))
        self._source: str | None = None
        self._unit = Unit()
        # Registers, variables and labels of a scope in braces get a suffix: another scope may declare them again.
        self._scopes: list[dict[str, str]] = []
        self._count = 0

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise PtxSyntaxError(f"line {len(self._lines)} of the PTX: the text ends within a statement")
        self._next += 1
        return self._tokens[self._next - 1].text

    def _accept(self, text: str) -> bool:
        if self._peek() == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        found = self._take()
        if found != text:
            raise self._wrong(f"{text!r} was expected, not {found!r}")

    def _wrong(self, reason: str) -> PtxSyntaxError:
        line = self._tokens[max(self._next - 1, 0)].line
        return PtxSyntaxError(f"line {line} of the PTX: {reason}: {self._lines[line - 1].strip()}")

    def _skip_line(self) -> None:
        line = self._tokens[self._next - 1].line
        while self._next < len(self._tokens) and self._tokens[self._next].line == line:
            self._next += 1

    def _skip_braces(self) -> None:
        self._expect("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self._take(), 0)

    # Numbers

    def _integer(self, word: str) -> int:
        try:
            return int(word.rstrip("U"), 0) if word.lower().lstrip("-").startswith("0x") else int(word.rstrip("U"))
        except ValueError:
            raise self._wrong(f"an integer was expected, not {word!r}") from None

    def _immediate(self, word: str) -> Immediate:
        if word[:2].lower() == "0f":
            bits = int(word[2:], 16)
            return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], bits, 4)
        if word[:2].lower() == "0d":
            bits = int(word[2:], 16)
            return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], bits, 8)
        if "x" in word.lower() or not set(word) & set(".eE"):
            return Immediate(self._integer(word))
        value = float(word)
        if math.isinf(value):
            raise self._wrong(f"{word} is too large")
        return Immediate(value, struct.unpack("<Q", struct.pack("<d", value))[0], 8)

    def _encoded(self, word: str, type_: str) -> bytes:
        """Return the bytes of a number in the initial value of a variable of this type.

        A number of double precision, such as any decimal one, is rounded to the type; a type of bits holds a float of
        its size.
        """
        scalar = SCALARS[type_]
        number = self._immediate(word)
        if number.bits is None and scalar.kind != "float":
            return (int(number.value) & ((1 << 8 * scalar.size) - 1)).to_bytes(scalar.size, "little")
        if number.bits is not None and type_ in ("f32", "f64", "b32", "b64"):
            if number.size == scalar.size:
                return number.bits.to_bytes(scalar.size, "little")
            if scalar.size == 4:
                with np.errstate(over="ignore"):
                    return np.array(number.value).astype(np.float32).tobytes()
        raise self._wrong(f"{word} is not of the type .{type_} of the variable that it initialises")

    # The module

    def unit(self) -> Unit:
        while self._next < len(self._tokens):
            self._top(self._take())
        return self._unit

    def _top(self, word: str) -> None:
        if word == ".target":
            self._unit.aim_at(self._peek())
        if word in _SKIPPED_TO_LINE_END or word in (".file", ".alias"):
            self._skip_line()
        elif word == ".section":
            self._take()
            self._skip_braces()
        elif word in _LINKAGE or word == ";":
            return
        elif word in (".entry", ".func"):
            self._function(word == ".entry")
        elif word in _SPACES:
            for variable in self._variables(_SPACES[word]):
                self._unit.variables[variable.name] = variable
        else:
            raise self._wrong(f"{word!r} is not known")

    def _function(self, is_kernel: bool) -> None:
        results = self._parameters() if not is_kernel and self._peek() == "(" else []
        name = self._take()
        parameters = self._parameters() if self._peek() == "(" else []
        while self._peek() in _HINTS:
            self._take()
            while self._peek() == "," or self._peek()[:1].isdigit():
                self._take()
        if self._accept(";"):
            self._unit.functions.setdefault(name, Function(name, is_kernel, parameters, results))
            return
        self._expect("{")
        function = Function(name, is_kernel, parameters, results, defined=True)
        self._unit.functions[name] = function
        self._source = None
        self._body(function)

    def _parameters(self) -> list[Variable]:
        self._expect("(")
        found: list[Variable] = []
        while not self._accept(")"):
            self._accept(",")
            word = self._take()
            if word not in (".param", ".reg"):
                raise self._wrong(f"a parameter was expected, not {word!r}")
            found.extend(self._variables("param", ends=False))
        return found

    # Variables

    def _variables(self, space: str, ends: bool = True) -> Iterator[Variable]:
        alignment, type_, width = 0, "", 1
        while not type_:
            word = self._take()
            if word == ".align":
                alignment = self._alignment()
            elif word in (".v2", ".v4"):
                width = int(word[2:])
            elif word in _SPACES or word in (".ptr", ".attribute"):
                continue
            elif word[1:] in SCALARS:
                type_ = word[1:]
            else:
                raise self._wrong(f"{word!r} is no type")
        while True:
            yield self._variable(space, type_, width, alignment)
            if not ends:
                return
            if not self._accept(","):
                break
        self._expect(";")

    def _alignment(self) -> int:
        found = self._integer(self._take())
        if found < 1 or found & (found - 1):
            raise self._wrong(f"an alignment is a power of two, not {found}")
        return found

    def _variable(self, space: str, type_: str, width: int, alignment: int) -> Variable:
        """A variable from its name on, whose elements are `width` numbers of a type; `alignment` 0 means theirs."""
        while self._peek() in (".ptr", ".align") or self._peek() in _SPACES:
            if self._take() == ".align":
                self._alignment()
        name = self._take()
        element = SCALARS[type_].size * width
        count = 1
        while self._accept("["):
            count = 0 if self._peek() == "]" else count * self._integer(self._take())
            self._expect("]")
        data, references = self._initial(type_) if self._accept("=") else (b"", ())
        return Variable(name, space, type_, element * count, alignment or element, data, references)

    def _initial(self, type_: str) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
        """The `data` and `references` of a `Variable`, after "="."""
        size = SCALARS[type_].size
        data = bytearray()
        references: list[tuple[int, str, int]] = []
        depth = 0
        while True:
            word = self._take()
            if word in ("{", "}"):
                depth += 1 if word == "{" else -1
            elif self._tokens[self._next - 1].kind == "number":
                data += self._encoded(word, type_)
            elif word == "generic":
                continue
            elif word in ("-", "+"):
                raise self._wrong(f"{word!r} is no initial value")
            elif word not in (",", "(", ")"):
                step = self._integer(self._take()) if self._accept("+") else 0
                references.append((len(data), word, step))
                data += bytes(size)
            if depth == 0 and self._peek() in (";", ","):
                return bytes(data), tuple(references)

    # Functions

    def _body(self, function: Function) -> None:
        self._scopes = []
        self._open(function)
        while self._scopes:
            word = self._take()
            if word == "{":
                self._open(function)
            elif word == "}":
                self._scopes.pop()
            elif word == ";":
                continue
            elif word.startswith("."):
                self._directive(word, function)
            elif self._peek() == ":" and not word.startswith("@"):
                self._take()
                self._labelled(word, function)
            else:
                self._next -= 1
                function.body.append(self._instruction())

    def _open(self, function: Function) -> None:
        """Begin a scope.  Its labels are declared at once, as branches may come before them."""
        self._scopes.append({})
        first = self._next
        seen: set[str] = set()
        for name in self._labels_ahead():
            if name in seen:
                raise self._wrong(f"the label {name} is declared twice")
            seen.add(name)
            self._declare(name, function)
        self._next = first

    def _labels_ahead(self) -> Iterator[str]:
        """The labels from here to the scope's end, without those of inner scopes."""
        depth = 1
        while depth and self._next < len(self._tokens):
            word = self._take()
            depth += {"{": 1, "}": -1}.get(word, 0)
            if depth == 1 and self._accept(":"):
                yield word

    def _labelled(self, word: str, function: Function) -> None:
        name = self._known(word)
        if self._peek() not in (".branchtargets", ".calltargets", ".callprototype"):
            function.body.append(Label(name))
            return
        kind = self._take()
        words: list[str] = []
        while not self._accept(";"):
            words.append(self._take())
        if kind == ".branchtargets":
            function.tables[name] = tuple([self._known(label) for label in words if label != ","])

    def _directive(self, word: str, function: Function) -> None:
        if word == ".reg":
            self._registers(function)
        elif word == ".loc":
            self._location()
        elif word == ".pragma":
            self._skip_line()
        elif word in _SPACES:
            for variable in self._variables(_SPACES[word]):
                name = self._declare(variable.name, function)
                function.variables[name] = variable._replace(name=name)
        else:
            raise self._wrong(f"{word!r} is not known")

    def _declare(self, name: str, function: Function) -> str:
        """The unique name of a declared register, variable or label until the scope's end."""
        if len(self._scopes) == 1:
            return name
        self._count += 1
        self._scopes[-1][name] = f"{name}'{self._count}"
        return self._scopes[-1][name]

    def _registers(self, function: Function) -> None:
        type_ = self._take()[1:]
        if type_ not in SCALARS:
            raise self._wrong(f".{type_} is no type")
        while True:
            name = self._take()
            if self._accept("<"):
                count = self._integer(self._take())
                self._expect(">")
                for number in range(count):
                    function.registers[self._declare(f"{name}{number}", function)] = type_
            else:
                function.registers[self._declare(name, function)] = type_
            if not self._accept(","):
                break
        self._expect(";")

    def _location(self) -> None:
        file, line = self._integer(self._take()), self._integer(self._take())
        self._skip_line()
        # Line 0 is code that the compiler has moved; the last known line is more useful.
        if line:
            self._source = f"{self._files.get(file, f'file {file}')}:{line}"

    # Instructions

    def _known(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _instruction(self) -> Instruction:
        first = self._next
        guard = None
        if self._accept("@"):
            negated = self._accept("!")
            guard = (self._known(self._take()), negated)
        word = self._take()
        opcode, *modifiers = word.split(".")
        operands: list[Operand] = []
        while not self._accept(";"):
            if operands:
                self._expect(",")
            operands.append(self._operand())
        tokens = self._tokens[first : self._next]
        place = Place(" ".join([token.text for token in tokens[:-1]]), tokens[0].line, self._source)
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, place)

    def _operand(self) -> Operand:
        word = self._take()
        kind = self._tokens[self._next - 1].kind
        operand: Operand
        if word in ("{", "("):
            operand = Vector(tuple(self._parts("}" if word == "{" else ")")))
        elif word == "[":
            operand = self._address()
        elif word in ("!", "-"):
            inner = self._operand()
            operand = self._negated(word, inner)
        elif kind == "number":
            operand = self._immediate(word)
        elif kind == "word":
            operand = Register(self._known(word))
            if self._accept("+"):
                operand = Address(operand.name, self._integer(self._take()))
        else:
            raise self._wrong(f"{word!r} is no operand")
        if self._accept("|"):
            return Vector((operand, self._operand()))
        return operand

    def _negated(self, sign: str, inner: Operand) -> Operand:
        if sign == "!" and isinstance(inner, Register):
            return Register("!" + inner.name)
        if sign == "-" and isinstance(inner, Immediate):
            bits = None if inner.bits is None else inner.bits ^ 1 << 8 * inner.size - 1
            return inner._replace(value=-inner.value, bits=bits)
        raise self._wrong(f"{sign!r} must not stand before this operand")

    def _parts(self, end: str) -> Sequence[Operand]:
        found: list[Operand] = []
        while not self._accept(end):
            if not self._accept(","):
                found.append(self._operand())
        return found

    def _address(self) -> Address:
        word = self._take()
        base: str | None = None
        offset = 0
        if self._tokens[self._next - 1].kind == "number":
            offset = self._integer(word)
        else:
            base = self._known(word)
        while not self._accept("]"):
            word = self._take()
            if word == "-":
                offset -= self._integer(self._take())
            elif word != "+":
                offset += self._integer(word)
        return Address(base, offset)


def _files(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE):
        yield int(found[1]), found[2]
