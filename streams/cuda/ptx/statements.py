"""The parts of PTX: variables, functions, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .faults import Place


class Register(NamedTuple):
    """An operand: a register (behind "!" if negated), a label, a variable or a function, by its name."""

    name: str


class Immediate(NamedTuple):
    """An operand: a number; of a float, also the bits.

    Attributes:
        value: the number.
        bits: of a float; None for an integer.
        size: of a float, in bytes; 0 for an integer.
    """

    value: int | float
    bits: int | None = None
    size: int = 0


class Address(NamedTuple):
    """An operand: ``[base+offset]`` or ``base+offset``; the base is None for an absolute address."""

    base: str | None
    offset: int


class Vector(NamedTuple):
    """An operand: ``{a, b}``, two results ``a|b``, or the arguments or results ``(a, b)`` of a call."""

    parts: tuple[Operand, ...]


Operand = Register | Immediate | Address | Vector


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        opcode: the first part of its name, such as "add".
        modifiers: the other parts, without their dots.
        guard: the name of the predicate on which it runs, and whether that is negated; None without one.
        place: for messages.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None
    place: Place


class Label(NamedTuple):
    """A target of branches."""

    name: str


class Reference(NamedTuple):
    """A part of a variable's initial value: the address of another variable.

    Attributes:
        position: the offset of the address's first byte in that value.
        name: of the variable.
        offset: to add to the address.
        shift: the number of the sum's lowest bits to leave out.
        size: the number of bytes to take from the other bits, the lowest first.
    """

    position: int
    name: str
    offset: int
    shift: int
    size: int


class Variable(NamedTuple):
    """A declared variable, or a parameter.

    Attributes:
        space: "global", "const", "shared", "local", "param" or "tex".
        type: the name of its scalar type.
        size: in bytes; 0 for an array without a length, like shared memory that the launch provides.
        alignment: in bytes.
        data: its initial value; empty if none is given.
        references: addresses in `data`.
    """

    name: str
    space: str
    type: str
    size: int
    alignment: int
    data: bytes = b""
    references: tuple[Reference, ...] = ()


@dataclass
class Function:
    """A kernel or a function, with its body.

    Attributes:
        registers: the names of the types of declared registers, by the registers' names.
        body: instructions and labels.
        tables: labels of ``.branchtargets``, by the name of the table.
        defined: whether it has a body, unlike a declaration.
    """

    name: str
    is_kernel: bool
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction | Label] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defined: bool = False


@dataclass
class Unit:
    """The declarations of a whole PTX text.

    Attributes:
        variables: those declared outside of functions, by name.
        functions: kernels and functions, by name.
        target: the architecture, such as "sm_80".
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    target: str = ""

    def aim_at(self, target: str) -> None:
        """Set the architecture that the text is for, such as "sm_80"."""
        self.target = target
