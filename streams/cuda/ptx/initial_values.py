"""Initial values of variables in PTX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .constants import constant, integer_constant
from .statements import Immediate, Reference, Variable
from .tokens import Tokens
from .types import SCALARS


class InitialValues(NamedTuple):
    """The `data` and `references` of a variable."""

    data: bytes
    references: tuple[Reference, ...]


def initial_values(
    tokens: Tokens, type_: str, extents: Sequence[int | None], width: int, variables: Mapping[str, Variable]
) -> InitialValues:
    """Take the initial value or values of a variable, behind the sign "=".

    Args:
        tokens: with the first value next.
        type_: the name of the scalar type of the variable.
        extents: of the array; that of the first axis is None if the initial values tell it.
        width: of a vector; 1 for a scalar.
        variables: those declared before, whose addresses may be initial values.

    Raises:
        PtxSyntaxError: if the values are invalid or do not fit the variable.
    """
    reader = _Reader(tokens, type_, variables)
    reader.take([*extents, width] if width > 1 else extents, width > 1)
    return InitialValues(bytes(reader.data), tuple(reader.references))


class _Reader:
    def __init__(self, tokens: Tokens, type_: str, variables: Mapping[str, Variable]) -> None:
        self.data = bytearray()
        self.references: list[Reference] = []
        self._tokens = tokens
        self._scalar = SCALARS[type_]
        self._variables = variables
        self._is_short = False

    def take(self, extents: Sequence[int | None], is_vector: bool) -> None:
        """Take the values of an array, in braces, or a single value if there are no extents.

        The last values of an array, but not of a vector, may be left out, and are zero.  An inner array needs all its
        values if other values follow: for missing ones the specification has zeros, but ptxas the next values.
        """
        if not extents:
            self._value()
            return
        extent, *inner = extents
        begin, count = len(self.data), 0
        self._tokens.expect("{")
        while not (count == 0 and self._tokens.accept("}")):
            if count == extent:
                raise self._tokens.wrong(f"there are more than {extent} initial values")
            self.take(inner, is_vector)
            count += 1
            if not self._tokens.accept(","):
                self._tokens.expect("}")
                break
        if is_vector and not inner and count != extent:
            raise self._tokens.wrong(f"a vector has {extent} initial values, not {count}")
        whole = self._scalar.size * math.prod([one or 0 for one in inner]) * (count if extent is None else extent)
        missing = whole - (len(self.data) - begin)
        self._is_short |= missing > 0
        self.data += bytes(missing)

    def _value(self) -> None:
        if self._is_short:
            raise self._tokens.wrong("only the last array within an array may lack initial values")
        if self._tokens.kind() == "word":
            self._address(0)
            return
        first = self._tokens.next
        number = constant(self._tokens)
        if self._tokens.accept("("):
            self._byte(int(number.value) if number.bits is None else 0)
            self._tokens.expect(")")
        else:
            self.data += self._encoded(number, first)

    def _byte(self, mask: int) -> None:
        """Take a value in parentheses of which `mask` selects a byte, as in ``0xFF00(name)``."""
        shift = mask.bit_length() - 8
        if mask not in [0xFF << bits for bits in range(0, 64, 8)]:
            raise self._tokens.wrong("a mask in an initial value selects a byte, as 0xFF00 does")
        if self._tokens.kind() == "word":
            self._address(shift, 1)
        elif self._scalar.kind in ("float", "predicate"):
            raise self._tokens.wrong(f"a byte is not of the type .{self._scalar.name} of the variable")
        else:
            value = integer_constant(self._tokens) >> shift & 0xFF
            self.data += value.to_bytes(self._scalar.size, "little")

    def _address(self, shift: int, size: int | None = None) -> None:
        """Take the address of a variable, or a byte of the address."""
        is_generic = self._tokens.peek() == "generic"
        if is_generic:
            self._tokens.take()
            self._tokens.expect("(")
        name = self._tokens.name("the name of a variable")
        variable = self._variables.get(name)
        if variable is None or variable.space not in ("global", "const") or not variable.size:
            raise self._tokens.wrong(f"{name!r} is no variable in global or constant memory that was declared before")
        if is_generic:
            self._tokens.expect(")")
        step = integer_constant(self._tokens) if self._tokens.accept("+") else 0
        if self._scalar.kind not in ("bits", "unsigned") or (size is None and self._scalar.size < 4):
            raise self._tokens.wrong(f"an address is not of the type .{self._scalar.name} of the variable")
        self.references.append(Reference(len(self.data), name, step, shift, size or self._scalar.size))
        self.data += bytes(self._scalar.size)

    def _encoded(self, number: Immediate, first: int) -> bytes:
        """Return the bytes of a number that was taken from the token of number `first` on.

        A float of double precision, such as any decimal one, is rounded for the types f32 and b32.
        """
        scalar = self._scalar
        if number.bits is None and scalar.kind not in ("float", "predicate"):
            return (int(number.value) & ((1 << 8 * scalar.size) - 1)).to_bytes(scalar.size, "little")
        if number.bits is not None and scalar.name in ("f32", "f64", "b32", "b64"):
            if number.size == scalar.size:
                return number.bits.to_bytes(scalar.size, "little")
            if scalar.size == 4:
                with np.errstate(over="ignore"):
                    return np.array(number.value).astype(np.float32).tobytes()
        text = self._tokens.text(first)
        raise self._tokens.wrong(f"{text} is not of the type .{scalar.name} of the variable that it initialises")
