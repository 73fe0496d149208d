"""Literals and constant expressions of PTX.

Integers keep their low 64 bits; literals are signed unless they have the suffix ``U`` or need the highest bit.  Floats
within expressions are of double precision.  Where the specification leaves a result open or ptxas differs from it, the
value is that of ptxas.
"""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .statements import Immediate
from .tokens import Tokens

_BITS: Final = (1 << 64) - 1
_TOP: Final = 1 << 63
_WARP: Final = 32
_LEAST: Final = sys.float_info.min

# The binary operators: those of a greater number bind more tightly.
_PRECEDENCE: Final = {
    sign: number
    for number, signs in enumerate(["||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %"])
    for sign in signs.split()
}
_ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_LOGIC: Final[dict[str, Callable[[int, int], int]]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
_COMPARISONS: Final[dict[str, Callable[..., bool]]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class _Number(NamedTuple):
    """The value of a part of an expression; `kind` is "s64", "u64", "f64" or "f32"; for "f32", `value` is the bits."""

    value: int | float
    kind: str


def constant(tokens: Tokens) -> Immediate:
    """Take a constant expression, such as a literal.

    Raises:
        PtxSyntaxError: if there is none, or an invalid one, such as a division by zero.
    """
    number = _choice(tokens)
    if number.kind == "f32":
        bits = int(number.value)
        return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], bits, 4)
    if number.kind == "f64":
        return Immediate(number.value, struct.unpack("<Q", struct.pack("<d", number.value))[0], 8)
    return Immediate(number.value)


def integer_constant(tokens: Tokens) -> int:
    """Take a constant expression whose value is an integer; PtxSyntaxError otherwise."""
    first = tokens.next
    found = constant(tokens)
    if found.bits is not None:
        raise tokens.wrong(f"an integer was expected, not {tokens.text(first)}")
    return int(found.value)


def integer_literal(tokens: Tokens) -> int:
    """Take an integer literal without a sign; PtxSyntaxError if there is none."""
    is_number = tokens.kind() == "number"
    word = tokens.take()
    if is_number:
        tokens.go_back(tokens.next - 1)
        found = _literal(tokens)
        if found.kind in ("s64", "u64"):
            return int(found.value)
    raise tokens.wrong(f"an integer was expected, not {word!r}")


# Parsing


def _choice(tokens: Tokens) -> _Number:
    """The value of ``a ? b : c``, or of an expression that binds more tightly."""
    condition = _binary(tokens, 0)
    if not tokens.accept("?"):
        return condition
    holds = _integer(tokens, "?", condition)
    first = _choice(tokens)
    tokens.expect(":")
    second = _choice(tokens)
    for number in (first, second):
        _integer(tokens, "?", number)
    return first if holds else second


def _binary(tokens: Tokens, lowest: int) -> _Number:
    """The value of an expression of operators of precedence `lowest` at least, which group from left to right."""
    left = _unary(tokens)
    while _PRECEDENCE.get(tokens.peek(), -1) >= lowest:
        sign = tokens.take()
        left = _combined(tokens, sign, left, _binary(tokens, _PRECEDENCE[sign] + 1))
    return left


def _unary(tokens: Tokens) -> _Number:
    sign = tokens.peek()
    if tokens.kind() == "number":
        return _literal(tokens)
    if sign in ("+", "-", "!", "~"):
        tokens.take()
        return _changed(tokens, sign, _unary(tokens))
    if sign != "(":
        found = tokens.take()
        raise tokens.wrong(f"a number was expected, not {found!r}")
    tokens.take()
    if tokens.kind() == "word":
        kind = tokens.take()
        if kind not in (".s64", ".u64"):
            raise tokens.wrong(f"constants are cast to .s64 or .u64 only, not to {kind!r}")
        tokens.expect(")")
        return _wrapped(_integer(tokens, f"({kind})", _unary(tokens)), kind[1:])
    inner = _choice(tokens)
    tokens.expect(")")
    return inner


def _literal(tokens: Tokens) -> _Number:
    word = tokens.take()
    prefix = word[:2].lower()
    if prefix == "0f":
        return _Number(int(word[2:], 16), "f32")
    if prefix == "0d":
        return _Number(struct.unpack("<d", struct.pack("<Q", int(word[2:], 16)))[0], "f64")
    if word == "WARP_SZ":
        return _Number(_WARP, "s64")
    if prefix not in ("0x", "0b") and set(word) & set(".eE"):
        value = float(word)
        if math.isinf(value):
            raise tokens.wrong(f"{word} is too large")
        if value < _LEAST and set(word.lower().partition("e")[0]) & set("123456789"):
            raise tokens.wrong(f"{word} is too small; a subnormal number is written as 0d and its bits")
        return _Number(value, "f64")
    digits = word.rstrip("U")
    base = {"0x": 16, "0b": 2}.get(prefix, 8 if digits.startswith("0") else 10)
    integer = int(digits, base) & _BITS
    return _Number(integer, "u64" if digits != word or integer >= _TOP else "s64")


# Values


def _wrapped(value: int, kind: str) -> _Number:
    value &= _BITS
    return _Number(value - (_BITS + 1) if kind == "s64" and value >= _TOP else value, kind)


def _integer(tokens: Tokens, sign: str, number: _Number) -> int:
    if number.kind not in ("s64", "u64"):
        raise tokens.wrong(f"{sign!r} needs integers")
    return int(number.value)


def _refuse_bits(tokens: Tokens, *numbers: _Number) -> None:
    if any(number.kind == "f32" for number in numbers):
        raise tokens.wrong("a float of the form 0f... is no part of an expression; its sign is in its bits")


def _changed(tokens: Tokens, sign: str, number: _Number) -> _Number:
    _refuse_bits(tokens, number)
    if sign == "!":
        return _Number(int(not _integer(tokens, sign, number)), "s64")
    if sign == "~":
        return _wrapped(~_integer(tokens, sign, number), "u64")
    if sign == "+":
        return number
    return _Number(-number.value, "f64") if number.kind == "f64" else _wrapped(-int(number.value), number.kind)


def _combined(tokens: Tokens, sign: str, left: _Number, right: _Number) -> _Number:
    _refuse_bits(tokens, left, right)
    if (sign in _ARITHMETIC or sign in _COMPARISONS or sign == "/") and "f64" in (left.kind, right.kind):
        return _combined_floats(tokens, sign, left, right)
    a, b = _integer(tokens, sign, left), _integer(tokens, sign, right)
    if sign in ("<<", ">>"):
        b &= 63
        return _wrapped(a << b if sign == "<<" else a >> b, left.kind)
    if sign in ("&&", "||"):
        return _Number(int(bool(a and b) if sign == "&&" else bool(a or b)), "s64")
    # An unsigned operand makes the other one unsigned, too; a remainder is always one of unsigned numbers.
    kind = "u64" if sign == "%" or "u64" in (left.kind, right.kind) else "s64"
    a, b = int(_wrapped(a, kind).value), int(_wrapped(b, kind).value)
    if sign in _COMPARISONS:
        return _Number(int(_COMPARISONS[sign](a, b)), "s64")
    if sign in ("/", "%"):
        if not b:
            raise tokens.wrong("this expression divides by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return _wrapped(quotient if sign == "/" else a - quotient * b, kind)
    return _wrapped((_ARITHMETIC.get(sign) or _LOGIC[sign])(a, b), kind)


def _combined_floats(tokens: Tokens, sign: str, left: _Number, right: _Number) -> _Number:
    if left.kind != right.kind:
        raise tokens.wrong(f"{sign!r} needs two integers or two floats")
    if sign in _COMPARISONS:
        return _Number(int(_COMPARISONS[sign](left.value, right.value)), "s64")
    if sign == "/":
        if not right.value:
            raise tokens.wrong("this expression divides by zero")
        return _Number(left.value / right.value, "f64")
    return _Number(_ARITHMETIC[sign](left.value, right.value), "f64")
