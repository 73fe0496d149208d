"""Literals, constant expressions and initial values, against Python's values and those of ptxas."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cuda.ptx.support import load, run, written
from vmflow.streams.cuda import ptx

pytestmark = pytest.mark.emulated

BITS = (1 << 64) - 1


def value_of(expression: str, type_: str = "u64") -> bytes:
    """The bytes of a variable with this initial value."""
    return ptx.parse(f".global .{type_} x = {expression};").variable("x").tobytes()


class Term(NamedTuple):
    """An expression, the number of its outermost operator's precedence, its value and whether that is signed."""

    text: str
    precedence: int
    value: int
    signed: bool


UNARY = 11
BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"]]
BINARY += [["*", "/", "%"]]


def wrapped(value: int, signed: bool) -> int:
    value &= BITS
    return value - (1 << 64) if signed and value >> 63 else value


class Expressions:
    """Makes random integer expressions, with only the necessary parentheses or some more."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def of(self, depth: int) -> Term:
        if depth == 0:
            return self._literal()
        makers = [self._binary, self._binary, self._binary, self._unary, self._choice]
        return self.random.choice(makers)(depth - 1)

    def _literal(self) -> Term:
        value = self.random.choice([0, 1, self.random.randrange(100), self.random.getrandbits(64)])
        digits = self.random.choice([str(value), hex(value), f"0X{value:X}", f"0{value:o}", bin(value), f"0B{value:b}"])
        unsigned = self.random.random() < 0.2
        signed = not unsigned and not value >> 63
        return Term(digits + ("U" if unsigned else ""), 12, value, signed)

    def _within(self, term: Term, precedence: int) -> str:
        if term.precedence < precedence or self.random.random() < 0.1:
            return f"({term.text})"
        return term.text

    def _unary(self, depth: int) -> Term:
        sign = self.random.choice(["+", "-", "!", "~", "(.s64)", "(.u64)"])
        a = self.of(depth)
        value, signed = {
            "+": (a.value, a.signed),
            "-": (-a.value, a.signed),
            "!": (int(a.value == 0), True),
            "~": (~a.value, False),
            "(.s64)": (a.value, True),
            "(.u64)": (a.value, False),
        }[sign]
        return Term(f"{sign}{self._blank()}{self._within(a, UNARY)}", UNARY, wrapped(value, signed), signed)

    def _blank(self) -> str:
        return self.random.choice(["", " "])

    def _choice(self, depth: int) -> Term:
        condition, a, b = self.of(depth), self.of(depth), self.of(depth)
        chosen = a if condition.value else b
        text = f"{self._within(condition, 1)} ? {a.text} : {b.text}"
        return Term(text, 0, chosen.value, chosen.signed)

    def _binary(self, depth: int) -> Term:
        precedence = self.random.randrange(len(BINARY)) + 1
        sign = self.random.choice(BINARY[precedence - 1])
        a, b = self.of(depth), self.of(depth)
        if sign in ("/", "%") and b.value == 0:
            return a
        value, signed = computed(sign, a, b)
        text = f"{self._within(a, precedence)} {sign} {self._within(b, precedence + 1)}"
        return Term(text, precedence, wrapped(value, signed), signed)


def computed(sign: str, a: Term, b: Term) -> tuple[int, bool]:
    """The value of a binary operator before it is cut to 64 bits, and whether it is signed."""
    if sign == "<<":
        return a.value << (b.value & 63), a.signed
    if sign == ">>":
        return a.value >> (b.value & 63), a.signed
    signed = a.signed and b.signed and sign != "%"
    x, y = wrapped(a.value, signed), wrapped(b.value, signed)
    if sign in ("/", "%"):
        rest = abs(x) % abs(y) * (-1 if x < 0 else 1)
        return (rest if sign == "%" else (x - rest) // y), signed
    arithmetic = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}
    if sign in arithmetic:
        return arithmetic[sign], signed
    truth = {"||": x or y, "&&": x and y, "==": x == y, "!=": x != y, "<": x < y, ">": x > y, "<=": x <= y}
    return int(bool(truth.get(sign, x >= y))), True


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_of_integers(seed: int) -> None:
    expressions = Expressions(seed)
    terms = [expressions.of(number % 5) for number in range(150)]
    for term in terms:
        assert int.from_bytes(value_of(term.text), "little") == term.value & BITS, term.text
    stores = "".join([f"st.global.u64 [%rd1+8*{number}], {term.text};" for number, term in enumerate(terms)])
    found = np.zeros(len(terms), np.uint64)
    run(written(stores), 1, 1, found)
    assert found.tolist() == [term.value & BITS for term in terms]


@pytest.mark.parametrize("seed", range(4))
def test_random_floats(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        value = chance.uniform(-1, 1) * 10.0 ** chance.randrange(-30, 30)
        bits = int(np.array(value).view(np.uint64))
        forms = [repr(value), f"{value:.20e}", f"{value:+.17E}", f"{value:.30f}", f"0d{bits:016X}", f"0D{bits:016x}"]
        text = chance.choice(forms)
        sign = chance.choice(["", "-", "+", "- ", "- -", "-("])
        text = sign + text + (")" if sign.endswith("(") else "")
        expected = eval(text.replace(f"0D{bits:016x}", repr(value)).replace(f"0d{bits:016X}", repr(value)))
        assert value_of(text, "f64") == np.array(expected).tobytes(), text
        assert value_of(text, "f32") == np.array(expected, np.float32).tobytes(), text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # As ptxas understands them.
        ("017", 15),
        ("017U", 15),
        ("0b101U", 5),
        ("00", 0),
        ("WARP_SZ*2", 64),
        ("-1U >> 1", BITS >> 1),
        ("~0 / 2", BITS >> 1),
        ("-9223372036854775808 >> 1", 1 << 62),
        ("-8 % 3", 2),
        ("(8 % 3) - 5 < 0", 0),
        ("(7 | -8) >> 1", -1),
        ("(1 ? -1 : 1U) >> 1", -1),
        ("1 << -1", 1 << 63),
        ("1<<70", 64),
        ("1.5 < 2.0", 1),
        ("1 ? 2 ? 3 : 4 : 5", 3),
        ("0 ? 2 : 0 ? WARP_SZ : 5", 5),
        ("18446744073709551616", 0),
        ("0xFF00(4660)", 0x12),
    ],
)
def test_values_of_expressions(expression: str, expected: int) -> None:
    assert int.from_bytes(value_of(expression), "little") == expected & BITS


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("- 1.5", -1.5),
        ("+1.5", 1.5),
        ("-(1.5)", -1.5),
        ("-0d3FF0000000000000", -1.0),
        ("0d3FF0000000000000+1.0", 2.0),
        ("-1.0*2.0-0.5", -2.5),
        ("1.0/3.0", 1 / 3),
        ("1e300*1e300", np.inf),
        ("017.5", 17.5),
        ("08e1", 80.0),
    ],
)
def test_values_of_expressions_of_floats(expression: str, expected: float) -> None:
    assert value_of(expression, "f64") == np.array(expected).tobytes()
    with np.errstate(over="ignore"):
        assert value_of(expression, "f32") == np.array(expected).astype(np.float32).tobytes()


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        (".f32 x[2] = {- 0d3FF0000000000000, (0f3F800000)}", np.array([-1, 1], np.float32)),
        (".s32 x[2][3] = {{1, 2, 3}, {4}}", np.array([1, 2, 3, 4, 0, 0], np.int32)),
        (".s32 x[3][2] = {{1, 2}, {3}}", np.array([1, 2, 3, 0, 0, 0], np.int32)),
        (".s32 x[] = {1, -2, 3+4}", np.array([1, -2, 7], np.int32)),
        (".s32 x[][2] = {{1, 2}, {3}}", np.array([1, 2, 3, 0], np.int32)),
        (".s64 x[2] = {}", np.zeros(2, np.int64)),
        (".v4 .s32 x = {1, 2, 3, 4}", np.array([1, 2, 3, 4], np.int32)),
        (".v2 .s32 x[2][2] = {{{1, 2}, {3, 4}}, {{5, 6}}}", np.array([1, 2, 3, 4, 5, 6, 0, 0], np.int32)),
        (".u8 x[010] = {300, -1}", np.array([44, 255, 0, 0, 0, 0, 0, 0], np.uint8)),
    ],
)
def test_initial_values_of_arrays(declaration: str, expected: Any) -> None:
    assert ptx.parse(f".global {declaration};").variable("x").tobytes() == expected.tobytes()


def test_addresses_as_initial_values() -> None:
    values = "y, y+4*2, generic(y)+-8, 0xFF(y), 0xFF00000000000000(generic(y)+1), 5"
    module = ptx.parse(f".global .b32 y[4]; .global .u64 x[7] = {{{values}}}; .global .u32 z[2] = {{y+4, 7}};")
    y = module.addresses["y"]
    assert module.variable("x").view(np.uint64).tolist() == [y, y + 8, y - 8, y & 0xFF, y >> 56, 5, 0]
    assert module.variable("z").view(np.uint32).tolist() == [y + 4 & 0xFFFFFFFF, 7]


def test_pointers_in_packed_structures() -> None:
    """The compiler writes the bytes of such a pointer one by one, with masks."""
    source = """
    __device__ int cell[4] = {1, 2, 3, 4};
    struct __attribute__((packed)) Packed { char c; int* p; float g; };
    __device__ Packed packed = {7, &cell[1], 1.5f};
    extern "C" __global__ void kernel(float* out) { out[0] = *packed.p + packed.c * 100 + packed.g; }
    """
    out = np.zeros(1, np.float32)
    run(load(source).kernels["kernel"], 1, 1, out)
    assert out[0] == 703.5


def test_constants_in_operands() -> None:
    body = """
      .reg .f32 %f<3>; setp.eq.u32 %p1, 1, 2;
      mov.f32 %f1, - 1.5; add.f32 %f2, %f1, (0.5+1e0); st.global.f32 [%rd1], %f2;
      st.global.u32 [%rd1 + 010], -(1 << 4) | 0b11; st.global.v2.u32 [%rd1+8U+(.s64)8], {~0, 1 ? 017 : 3};
      mov.pred %p2, !1; selp.u32 %r1, 1, 2, %p2; st.global.u32 [%rd1+ 4], %r1;
      setp.eq.and.u32 %p3|%p4, 5|3, 7, !%p1; selp.u32 %r2, 1, 2, %p3; st.global.u32 [%rd1++12], %r2;
      xor.b32 %r3, 0f3F800000, 1+1; add.u64 %rd2, %rd1, 64; st.global.u32 [%rd2+-8*5], %r3;"""
    found = np.zeros(7, np.uint32)
    run(written(body), 1, 1, found)
    assert found.view(np.float32)[0] == 0
    assert found[1:].tolist() == [2, 0xFFFFFFF3, 1, 0xFFFFFFFF, 15, 0x3F800002]


def test_colons_of_expressions_make_no_labels() -> None:
    body = "mov.u32 %r1, 0 ? 3 : WARP_SZ; bra END; mov.u32 %r1, 1 ? 2 : 5; END: st.global.u32 [%rd1], %r1;"
    found = np.zeros(1, np.uint32)
    run(written(body), 1, 1, found)
    assert found[0] == 32


@pytest.mark.parametrize(
    ("declaration", "problem"),
    [
        (".f32 x = -0f3F800000", "0f... is no part of an expression; its sign is in its bits"),
        (".f32 x = - 0f3F800000", "0f... is no part of an expression"),
        (".f32 x = 0f3F800000 + 1.0", "0f... is no part of an expression"),
        (".f32 x = 0f3F80000", "'0f3F80000;' is not understood"),
        (".f32 x = 1.5f", "'1.5f;' is not understood"),
        (".u32 x = 08", "'08;' is not understood"),
        (".u32 x = 0b2", "'0b2;' is not understood"),
        (".u32 x = 0x", "'0x;' is not understood"),
        (".u32 x = 5u", "'5u;' is not understood"),
        (".u32 x = 1_000", "'1_000;' is not understood"),
        (".f64 x = 1e-400", "1e-400 is too small"),
        (".f64 x = 1.5 + 1", r"'\+' needs two integers or two floats"),
        (".f64 x = !5.0", "'!' needs integers"),
        (".f64 x = 1 ? 2.0 : 3.0", r"'\?' needs integers"),
        (".u32 x = 1/0", "divides by zero"),
        (".f64 x = 1.0/0.0", "divides by zero"),
        (".u32 x = (.u32)5", "cast to .s64 or .u64 only, not to '.u32'"),
        (".u32 x = (5", r"'\)' was expected, not ';'"),
        (".u32 x = 5)", r"';' was expected, not '\)'"),
        (".u32 x = ", "a number was expected, not ';'"),
        (".u32 x = {5}", "a number was expected, not '{'"),
        (".u32 x[2] = 5", "'{' was expected, not '5'"),
        (".u32 x[2] = {1, 2, 3}", "more than 2 initial values"),
        (".u32 x[2] = {1, 2, }", "more than 2 initial values"),
        (".u32 x[3] = {1, 2, }", "a number was expected, not '}'"),
        (".u32 x[2] = {1 2}", "'}' was expected, not '2'"),
        (".u32 x[2][3] = {1, 2}", "'{' was expected, not '1'"),
        (".u32 x[2][3] = {{1}, {2}}", "only the last array within an array may lack initial values"),
        (".v4 .f32 x = {1.0, 2.0}", "a vector has 4 initial values, not 2"),
        (".u32 x[2][]", "an integer was expected, not ']'"),
        (".u32 x[-1]", "an integer was expected, not '-'"),
        (".u32 x[1.5]", "an integer was expected, not '1.5'"),
        (".u32 5", "the name of a variable was expected, not '5'"),
        (".pred x = 1", "1 is not of the type .pred"),
        (".u64 x = nothing", "'nothing' is no variable in global or constant memory that was declared before"),
        (".u64 x = x", "'x' is no variable"),
        (".u64 x = array", "'array' is no variable"),
        (".u8 x = y", "an address is not of the type .u8"),
        (".s64 x = y", "an address is not of the type .s64"),
        (".u64 x = y+1.5", "an integer was expected, not 1.5"),
        (".u64 x = 0xFFF(y)", "a mask in an initial value selects a byte"),
        (".u64 x = 0xFF(1.5)", "an integer was expected, not 1.5"),
        (".f32 x = 0xFF(1)", "a byte is not of the type .f32"),
    ],
)
def test_initial_values_that_are_wrong(declaration: str, problem: str) -> None:
    text = f".global .u32 y; .extern .global .u32 array[];\n.global {declaration};"
    with pytest.raises(ptx.PtxSyntaxError, match=f"^line 2 of the PTX: .*{problem}"):
        ptx.parse(text)


@pytest.mark.parametrize("space", ["shared", "local"])
def test_only_variables_in_global_and_constant_memory_have_initial_values(space: str) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match="only variables in global and constant memory have initial values"):
        written(f".{space} .u32 x = 5;")


@pytest.mark.parametrize(
    ("instruction", "problem"),
    [
        ("mov.f32 %r1, -0f3F800000;", "0f... is no part of an expression"),
        ("mov.u32 %r1, 0x1G;", "'0x1G; ret;' is not understood"),
        ("ld.global.u32 %r1, [%rd1-8];", "']' was expected, not '-'"),
        ("ld.global.u32 %r1, [%rd1 8];", "']' was expected, not '8'"),
        ("ld.global.u32 %r1, [%rd1+1.5];", "an integer was expected, not 1.5"),
        ("add.u32 %r1, %r1, -%r1;", "a number was expected, not '%r1'"),
        ("@1 add.u32 %r1, %r1, 1;", "a predicate was expected, not '1'"),
        ("5 %r1, %r1;", "an instruction was expected, not '5'"),
        ("mov.b64 %rd1, {%r1 %r2};", "'}' was expected, not '%r2'"),
    ],
)
def test_operands_that_are_no_constants(instruction: str, problem: str) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=f"^line 6 of the PTX: .*{problem}"):
        written(f"\n{instruction} ret;")


@pytest.mark.parametrize(
    ("instruction", "problem"),
    [
        # Neither does ptxas take them, or it takes the bits of a float of another size.
        ("mov.f32 %r1, 1;", "an integer is no operand of the type f32"),
        ("st.global.f32 [%rd1], 0x3F800000;", "an integer is no operand of the type f32"),
        ("add.f16 %h1, %h1, 0x3C00;", "an integer is no operand of the type f16"),
        ("mov.u32 %r1, 1.5;", "a float of 64 bits is no operand of the type u32"),
        ("st.global.b32 [%rd1], 1.5;", "a float of 64 bits is no operand of the type b32"),
        ("mov.b64 %rd2, 0f3F800000;", "a float of 32 bits is no operand of the type b64"),
        ("mov.f64 %rd2, 0f3F800000;", "a float of 32 bits is no operand of the type f64"),
        ("mov.pred %p1, 1.0;", "a float of 64 bits is no operand of the type pred"),
        ("lop3.b32 %r1, %r2, 5, 7, 1.5;", "this form of lop3 is not known"),
        ("bar.sync 1.5;", "the number of a barrier must be a constant integer"),
        ("mov.u64 %rd2, %rd1+8;", "%rd1 is a register, to which only an address in brackets adds a number"),
        ("mov.u32 %r1, !%r2;", "'!' negates predicates, which %r2 is not here"),
        ("selp.u32 %r1, 1, 2, !%r2;", "'!' negates predicates, which %r2 is not here"),
        ("bra 5;", "a name is expected here"),
    ],
)
def test_constants_of_another_type(instruction: str, problem: str) -> None:
    kernel = written(instruction)
    with pytest.raises(ptx.UnsupportedInstruction, match=f"{problem}: line 5 of the PTX"):
        run(kernel, 1, 1, np.zeros(4, np.int32))
