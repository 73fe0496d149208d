"""Parses the text of PTX into statements, without their meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from .constants import constant, integer_constant, integer_literal
from .faults import Place
from .initial_values import initial_values
from .statements import Address, Function, Instruction, Label, Operand, Register, Unit, Variable, Vector
from .tokens import Tokens
from .types import SCALARS


def parse_unit(text: str) -> Unit:
    """Parse PTX.

    Raises:
        PtxSyntaxError: if the text is not understood.
    """
    return _Parser(text).unit()


_SKIPPED_TO_LINE_END: Final = frozenset({".version", ".target", ".address_size", ".pragma"})
_SPACES: Final = {f".{space}": space for space in ("global", "const", "shared", "local", "param", "tex")}
_LINKAGE: Final = frozenset({".visible", ".extern", ".weak", ".common"})
# Ignored directives before a function's body, each followed by any count of numbers.
_HINTS: Final = frozenset(
    {".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".explicitcluster"}
    | {".reqnctapercluster", ".maxclusterrank", ".blocksareclusters", ".abi_preserve", ".abi_preserve_control"}
)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._files = dict(_files(text))
        self._source: str | None = None
        self._unit = Unit()
        # For each open scope, its names that get a suffix: all of an inner scope, and those of variables in shared
        # memory, since another scope or function may declare them again.
        self._scopes: list[dict[str, str]] = []
        self._count = 0

    # The module

    def unit(self) -> Unit:
        while self._tokens.left():
            self._top(self._tokens.take())
        return self._unit

    def _top(self, word: str) -> None:
        if word == ".target":
            self._unit.aim_at(self._tokens.peek())
        if word in _SKIPPED_TO_LINE_END or word in (".file", ".alias"):
            self._tokens.skip_line()
        elif word == ".section":
            self._tokens.take()
            self._tokens.skip_braces()
        elif word in _LINKAGE or word == ";":
            return
        elif word in (".entry", ".func"):
            self._function(word == ".entry")
        elif word in _SPACES:
            for variable in self._variables(_SPACES[word]):
                self._unit.variables[variable.name] = variable
        else:
            raise self._tokens.wrong(f"{word!r} is not known")

    def _function(self, is_kernel: bool) -> None:
        results = self._parameters() if not is_kernel and self._tokens.peek() == "(" else []
        name = self._tokens.take()
        parameters = self._parameters() if self._tokens.peek() == "(" else []
        while self._tokens.peek() in _HINTS:
            self._tokens.take()
            while self._tokens.peek() == "," or self._tokens.peek()[:1].isdigit():
                self._tokens.take()
        if self._tokens.accept(";"):
            self._unit.functions.setdefault(name, Function(name, is_kernel, parameters, results))
            return
        self._tokens.expect("{")
        function = Function(name, is_kernel, parameters, results, defined=True)
        self._unit.functions[name] = function
        self._source = None
        self._body(function)

    def _parameters(self) -> list[Variable]:
        self._tokens.expect("(")
        found: list[Variable] = []
        while not self._tokens.accept(")"):
            self._tokens.accept(",")
            word = self._tokens.take()
            if word not in (".param", ".reg"):
                raise self._tokens.wrong(f"a parameter was expected, not {word!r}")
            found.extend(self._variables("param", ends=False))
        return found

    # Variables

    def _variables(self, space: str, ends: bool = True) -> Iterator[Variable]:
        alignment, type_, width = 0, "", 1
        while not type_:
            word = self._tokens.take()
            if word == ".align":
                alignment = self._alignment()
            elif word in (".v2", ".v4"):
                width = int(word[2:])
            elif word == ".attribute":
                self._list(")")
            elif word in _SPACES or word == ".ptr":
                continue
            elif word[1:] in SCALARS:
                type_ = word[1:]
            else:
                raise self._tokens.wrong(f"{word!r} is no type")
        while True:
            yield self._variable(space, type_, width, alignment)
            if not ends:
                return
            if not self._tokens.accept(","):
                break
        self._tokens.expect(";")

    def _alignment(self) -> int:
        found = integer_literal(self._tokens)
        if found < 1 or found & (found - 1):
            raise self._tokens.wrong(f"an alignment is a power of two, not {found}")
        return found

    def _variable(self, space: str, type_: str, width: int, alignment: int) -> Variable:
        """Take a variable behind its type; each element is `width` numbers of this type.

        `alignment` 0 means the size of an element.  A pointer's own space and alignment are passed over.
        """
        while self._tokens.peek() in (".ptr", ".align") or self._tokens.peek() in _SPACES:
            if self._tokens.take() == ".align":
                self._alignment()
        name = self._tokens.name("the name of a variable")
        extents = self._extents()
        element = SCALARS[type_].size * width
        size = element * math.prod([extent or 0 for extent in extents])
        if not self._tokens.accept("="):
            return Variable(name, space, type_, size, alignment or element)
        if space not in ("global", "const"):
            raise self._tokens.wrong("only variables in global and constant memory have initial values")
        data, references = initial_values(self._tokens, type_, extents, width, self._unit.variables)
        return Variable(name, space, type_, len(data), alignment or element, data, references)

    def _extents(self) -> list[int | None]:
        """Take the extents, if any, behind a variable's name; None for a first one that is left out."""
        extents: list[int | None] = []
        while self._tokens.accept("["):
            is_left_out = not extents and self._tokens.peek() == "]"
            extents.append(None if is_left_out else integer_literal(self._tokens))
            self._tokens.expect("]")
        return extents

    # Functions

    def _body(self, function: Function) -> None:
        self._scopes = []
        self._open()
        while self._scopes:
            word = self._tokens.take()
            if word == "{":
                self._open()
            elif word == "}":
                self._scopes.pop()
            elif word == ";":
                continue
            elif word.startswith("."):
                self._directive(word, function)
            elif self._tokens.peek() == ":" and not word.startswith("@"):
                self._tokens.take()
                self._labelled(word, function)
            else:
                self._tokens.go_back(self._tokens.next - 1)
                function.body.append(self._instruction())

    def _open(self) -> None:
        """Begin a scope.  Its labels are declared first, as branches may come before them."""
        self._scopes.append({})
        first = self._tokens.next
        seen: set[str] = set()
        for name in self._labels_ahead():
            if name in seen:
                raise self._tokens.wrong(f"the label {name} is declared twice")
            seen.add(name)
            self._declare(name)
        self._tokens.go_back(first)

    def _labels_ahead(self) -> Iterator[str]:
        """The labels from here to the scope's end, without those of inner scopes."""
        depth = 1
        while depth and self._tokens.left():
            is_word = self._tokens.kind() == "word"
            word = self._tokens.take()
            depth += {"{": 1, "}": -1}.get(word, 0)
            # A colon belongs to a constant expression if a number is before it.
            if depth == 1 and is_word and self._tokens.accept(":"):
                yield word

    def _labelled(self, word: str, function: Function) -> None:
        name = self._known(word)
        if self._tokens.peek() not in (".branchtargets", ".calltargets", ".callprototype"):
            function.body.append(Label(name))
            return
        kind = self._tokens.take()
        words: list[str] = []
        while not self._tokens.accept(";"):
            words.append(self._tokens.take())
        if kind == ".branchtargets":
            function.tables[name] = tuple([self._known(label) for label in words if label != ","])

    def _directive(self, word: str, function: Function) -> None:
        if word == ".reg":
            self._registers(function)
        elif word == ".loc":
            self._location()
        elif word == ".pragma":
            self._tokens.skip_line()
        elif word in _SPACES:
            for variable in self._variables(_SPACES[word]):
                name = self._declare(variable.name, word == ".shared")
                function.variables[name] = variable._replace(name=name)
        else:
            raise self._tokens.wrong(f"{word!r} is not known")

    def _declare(self, name: str, shared: bool = False) -> str:
        """Declare a register, variable or label until the scope's end; return its name, unique in the function.

        The name of a variable in shared memory is unique in the module.
        """
        if len(self._scopes) == 1 and not shared:
            return name
        self._count += 1
        self._scopes[-1][name] = f"{name}'{self._count}"
        return self._scopes[-1][name]

    def _registers(self, function: Function) -> None:
        type_ = self._tokens.take()[1:]
        if type_ not in SCALARS:
            raise self._tokens.wrong(f".{type_} is no type")
        while True:
            name = self._tokens.name("the name of a register")
            if self._tokens.accept("<"):
                count = integer_literal(self._tokens)
                self._tokens.expect(">")
                for number in range(count):
                    function.registers[self._declare(f"{name}{number}")] = type_
            else:
                function.registers[self._declare(name)] = type_
            if not self._tokens.accept(","):
                break
        self._tokens.expect(";")

    def _location(self) -> None:
        file, line = integer_literal(self._tokens), integer_literal(self._tokens)
        self._tokens.skip_line()
        # Line 0 stands for code without a line; the last known line is more useful.
        if line:
            self._source = f"{self._files.get(file, f'file {file}')}:{line}"

    # Instructions

    def _known(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _instruction(self) -> Instruction:
        first = self._tokens.next
        guard = None
        if self._tokens.accept("@"):
            negated = self._tokens.accept("!")
            guard = (self._known(self._tokens.name("a predicate")), negated)
        word = self._tokens.name("an instruction")
        opcode, *modifiers = word.split(".")
        operands: list[Operand] = []
        while not self._tokens.accept(";"):
            if operands:
                self._tokens.expect(",")
            # Parentheses enclose the arguments or results of a call, and elsewhere a part of a constant expression.
            is_list = opcode == "call" and self._tokens.peek() == "("
            operands.append(self._list(")") if is_list else self._operand())
        last = self._tokens.next - 1
        place = Place(self._tokens.text(first, last), self._tokens.line(first), self._source)
        return Instruction(opcode, tuple(modifiers), tuple(operands), guard, place)

    def _operand(self) -> Operand:
        sign = self._tokens.peek()
        operand: Operand
        if sign == "{":
            operand = self._list("}")
        elif sign == "[":
            operand = self._address()
        elif self._tokens.kind() == "word":
            operand = Register(self._known(self._tokens.take()))
            if self._tokens.accept("+"):
                operand = Address(operand.name, integer_constant(self._tokens))
        else:
            operand = self._negated() or constant(self._tokens)
        if self._tokens.accept("|"):
            return Vector((operand, self._operand()))
        return operand

    def _negated(self) -> Register | None:
        """Take "!" and the predicate behind it; None, with nothing taken, if these are not next."""
        first = self._tokens.next
        if self._tokens.accept("!") and self._tokens.kind() == "word":
            return Register("!" + self._known(self._tokens.take()))
        self._tokens.go_back(first)
        return None

    def _list(self, end: str) -> Vector:
        """The operands between parentheses or braces."""
        self._tokens.take()
        found: list[Operand] = []
        while not (not found and self._tokens.accept(end)):
            found.append(self._operand())
            if not self._tokens.accept(","):
                self._tokens.expect(end)
                break
        return Vector(tuple(found))

    def _address(self) -> Address:
        self._tokens.expect("[")
        base: str | None = None
        offset = 0
        if self._tokens.kind() == "word":
            base = self._known(self._tokens.take())
            if self._tokens.accept("+"):
                offset = integer_constant(self._tokens)
        else:
            offset = integer_constant(self._tokens)
        self._tokens.expect("]")
        return Address(base, offset)


def _files(text: str) -> Iterator[tuple[int, str]]:
    for found in re.finditer(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE):
        yield int(found[1]), found[2]
