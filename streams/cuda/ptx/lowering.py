"""The tools that turn instructions into operations on arrays.

An *operation* is a function of a group of threads.  A register of a group is an array of one element for each thread,
or of a single element for all threads.  Operations never change these arrays in place, so registers may share an
array.  Constants have registers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from .faults import UnsupportedInstruction
from .statements import Address, Immediate, Instruction, Operand, Register, Vector
from .types import SCALARS, SIGNED, UNSIGNED, Array, DType, Scalar

if TYPE_CHECKING:
    from .groups import Group

Operation = Callable[["Group"], None]
Convert = Callable[[Array], Array]

PREDICATE: Final = SCALARS["pred"]


class Source(NamedTuple):
    """A register to read, and the function that converts its array into the wanted type; None for no conversion."""

    slot: int
    convert: Convert | None


class Target(NamedTuple):
    """A register to write, and the function that converts a result into its content; None for no conversion."""

    slot: int
    convert: Convert | None


class Names(Protocol):
    """The meaning of the names in a function; see `FunctionBuilder`."""

    def slot(self, name: str) -> int | None:
        """The register of this name; None if there is none."""

    def dtype(self, slot: int) -> DType:
        """The dtype of the array of a register."""

    def constant(self, values: Array) -> int:
        """The register that holds a constant."""

    def symbol(self, name: str) -> int | None:
        """The address of a variable or kernel parameter in its own state space; None if there is none of this name."""


class Lowering:
    """Looks up operands; remembers the registers that an instruction reads and writes.

    Attributes:
        reads: the registers read since `begin`, except constants.
        writes: the registers written since.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.reads: list[int] = []
        self.writes: list[int] = []
        self._instruction: Instruction | None = None

    def begin(self, instruction: Instruction) -> None:
        """Begin another instruction."""
        self.reads, self.writes = [], []
        self._instruction = instruction

    def unsupported(self, reason: str) -> UnsupportedInstruction:
        """The error to raise for the present instruction."""
        assert self._instruction is not None
        return UnsupportedInstruction(f"{reason}: {self._instruction.place}")

    # Operands

    def source(self, operand: Operand, scalar: Scalar) -> Source:
        """The register of an operand, and the conversion of its values to a type.

        Raises:
            UnsupportedInstruction: if the operand is unknown or not possible here, or if the type is a pair; a pair is
                read as a word.
        """
        self._refuse_pair(scalar)
        if isinstance(operand, Immediate):
            return Source(self.names.constant(self._number(operand, scalar)), None)
        if isinstance(operand, Vector):
            raise self.unsupported("a vector is not expected here")
        name, negated = self._name(operand), False
        if name.startswith("!"):
            name, negated = name[1:], True
        slot = self.names.slot(name)
        if slot is None:
            return Source(self._address(operand, scalar), None)
        if isinstance(operand, Address):
            raise self.unsupported(f"{name} is a register, to which only an address in brackets adds a number")
        self.reads.append(slot)
        convert = from_register(self.names.dtype(slot), scalar)
        if negated:
            if scalar is not PREDICATE or self.names.dtype(slot) != PREDICATE.dtype:
                raise self.unsupported(f"'!' negates predicates, which {name} is not here")
            convert = np.logical_not
        return Source(slot, convert)

    def bits(self, operand: Operand, scalar: Scalar) -> Source:
        """Like `source`, but with the conversion of the bits to unsigned integers of the type's size.

        Raises:
            UnsupportedInstruction: as from `source`, but not because the type is a pair.
        """
        if isinstance(operand, Immediate):
            return Source(self.names.constant(self._number(operand, scalar).view(scalar.bits)), None)
        return self.source(operand, SCALARS[f"b{8 * scalar.size}"])

    def _number(self, number: Immediate, scalar: Scalar) -> Array:
        """The array of a literal.

        Types of integers and bits, and predicates, take integers.  All types of a float's size take its bits, and f32
        takes a float of double precision, rounded.
        """
        if number.bits is None and scalar.kind == "predicate":
            return np.array([bool(number.value)])
        if number.bits is None and scalar.kind != "float":
            wrapped = int(number.value) & ((1 << 8 * scalar.size) - 1)
            return np.array([wrapped], np.uint64).astype(scalar.bits).view(scalar.dtype)
        if number.bits is not None and number.size == scalar.size:
            return np.array([number.bits], np.uint64).astype(scalar.bits).view(scalar.dtype)
        if number.size == 8 and scalar.name == "f32":
            with np.errstate(over="ignore"):
                return np.array([number.value], np.float64).astype(scalar.dtype)
        found = "an integer" if number.bits is None else f"a float of {8 * number.size} bits"
        raise self.unsupported(f"{found} is no operand of the type {scalar.name}")

    def _refuse_pair(self, scalar: Scalar) -> None:
        if scalar.is_pair:
            raise self.unsupported(f"this instruction is not known for the type {scalar.name}")

    def _name(self, operand: Operand) -> str:
        if isinstance(operand, Register):
            return operand.name
        if isinstance(operand, Address) and operand.base is not None:
            return operand.base
        raise self.unsupported("this operand is not expected here")

    def _address(self, operand: Operand, scalar: Scalar) -> int:
        """Return the register of a constant: the address of an operand's variable or parameter, plus its offset."""
        name = self._name(operand)
        address = self.names.symbol(name)
        if address is None:
            raise self.unsupported(f"there is nothing of the name {name}")
        offset = operand.offset if isinstance(operand, Address) else 0
        wrapped = (address + offset) & ((1 << 64) - 1)
        return self.names.constant(np.array([wrapped], np.uint64).astype(scalar.bits))

    def target(self, operand: Operand, scalar: Scalar) -> Target | None:
        """The register of a result, and the conversion from a type; None for the sink ``_``.

        Raises:
            UnsupportedInstruction: if there is no such register, or if the type is a pair; a pair is written as a word.
        """
        self._refuse_pair(scalar)
        if not isinstance(operand, Register):
            raise self.unsupported("a result needs a register")
        if operand.name == "_":
            return None
        slot = self.names.slot(operand.name)
        if slot is None:
            raise self.unsupported(f"there is no register {operand.name}")
        self.writes.append(slot)
        return Target(slot, to_register(scalar, self.names.dtype(slot)))

    # Operations

    def compute(
        self,
        function: Callable[..., Any],
        target: tuple[Operand, Scalar],
        sources: Sequence[tuple[Operand, Scalar]],
    ) -> Operation | None:
        """An operation that applies a function of arrays to registers; None if `target` is the sink ``_``."""
        found = [self.source(operand, scalar) for operand, scalar in sources]
        result = self.target(*target)
        return None if result is None else operation(function, result, found)


def operation(function: Callable[..., Any], target: Target, sources: Sequence[Source]) -> Operation:
    """An operation that applies a function of arrays to registers."""
    if target.convert is None and all(source.convert is None for source in sources) and len(sources) in _PLAIN:
        return _PLAIN[len(sources)](function, target.slot, *[source.slot for source in sources])
    return _converting(function, target, tuple(sources))


def _plain_unary(function: Callable[..., Any], d: int, a: int) -> Operation:
    def run(group: Group) -> None:
        registers = group.registers
        registers[d] = function(registers[a])

    return run


def _plain_binary(function: Callable[..., Any], d: int, a: int, b: int) -> Operation:
    def run(group: Group) -> None:
        registers = group.registers
        registers[d] = function(registers[a], registers[b])

    return run


def _plain_ternary(function: Callable[..., Any], d: int, a: int, b: int, c: int) -> Operation:
    def run(group: Group) -> None:
        registers = group.registers
        registers[d] = function(registers[a], registers[b], registers[c])

    return run


_PLAIN: Final[dict[int, Callable[..., Operation]]] = {1: _plain_unary, 2: _plain_binary, 3: _plain_ternary}


def _converting(function: Callable[..., Any], target: Target, sources: tuple[Source, ...]) -> Operation:
    slot, convert = target

    def run(group: Group) -> None:
        registers = group.registers
        result = function(*[registers[a] if change is None else change(registers[a]) for a, change in sources])
        registers[slot] = result if convert is None else convert(result)

    return run


def read(group: Group, source: Source) -> Array:
    """The array of an operand."""
    values: Array = group.registers[source.slot]
    return values if source.convert is None else source.convert(values)


def write(group: Group, target: Target | None, values: Array) -> None:
    """Put a result into its register, unless `target` is None."""
    if target is not None:
        group.registers[target.slot] = values if target.convert is None else target.convert(values)


# Between registers and types


def _viewer(dtype: DType) -> Convert:
    def view(values: Array) -> Array:
        return values.view(dtype)

    return view


def from_register(held: DType, scalar: Scalar) -> Convert | None:
    """The conversion of a register's bits to a type, cut or zero-extended to its size; None for equal dtypes."""
    if held == scalar.dtype:
        return None
    if held.itemsize == scalar.size:
        return _viewer(scalar.dtype)
    if held.itemsize < scalar.size:
        return _widener(held, scalar.bits, scalar.dtype)
    bits, dtype, whole = scalar.bits, scalar.dtype, UNSIGNED[held.itemsize]

    def narrow(values: Array) -> Array:
        return values.view(whole).astype(bits).view(dtype)

    return narrow


def _widener(held: DType, bits: DType, dtype: DType) -> Convert:
    """Make a conversion from `held` to the wider `dtype`, with zero bits in front, for instance of a shared address.

    `bits` is the unsigned dtype of the size of `dtype`.
    """
    whole = UNSIGNED[held.itemsize]

    def widen(values: Array) -> Array:
        return values.view(whole).astype(bits).view(dtype)

    return widen


def to_register(scalar: Scalar, held: DType) -> Convert | None:
    """The conversion of a type for a register at least as wide: integers keep their sign; None for equal dtypes."""
    if held == scalar.dtype:
        return None
    if held.itemsize == scalar.size:
        return _viewer(held)
    wide = SIGNED[held.itemsize] if scalar.kind == "signed" else UNSIGNED[held.itemsize]
    same = scalar.bits if scalar.kind != "signed" else scalar.dtype

    def extend(values: Array) -> Array:
        return values.view(same).astype(wide).view(held)

    return extend


def scalar_of(modifiers: Sequence[str]) -> Scalar | None:
    """The first type among the modifiers of an instruction, or None."""
    for word in modifiers:
        if word in SCALARS:
            return SCALARS[word]
    return None
