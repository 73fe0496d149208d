"""Random expressions, compiled and interpreted, against numpy.

The compiler rewrites them as it likes, so that unexpected instructions come up.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.cuda.ptx.support import Array, bits, load, run

pytestmark = pytest.mark.emulated

COUNT = 700


class Term(NamedTuple):
    """An expression in CUDA C++, and its values."""

    text: str
    values: Array


C_NAMES = {
    "int32": "int",
    "uint32": "uint32",
    "int64": "int64",
    "uint64": "uint64",
    "float32": "float",
    "float64": "double",
}
INTEGERS = ("int32", "uint32", "int64", "uint64")


class Expressions:
    """Makes expressions of random shape from variables.

    Overflow of signed integers is not defined in C++, so they are computed as unsigned ones.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        generator = np.random.default_rng(seed)
        self.inputs: dict[str, Array] = {}
        for dtype in C_NAMES:
            for number in range(2):
                self.inputs[f"{dtype}_{number}"] = _values(generator, np.dtype(dtype))

    def of(self, dtype: str, depth: int) -> Term:
        """A random expression of a type."""
        if depth == 0:
            return self._leaf(dtype)
        makers = [self._binary, self._binary, self._choice, self._unary]
        makers += (
            [self._shift, self._bits, self._division, self._cast] if dtype in INTEGERS else [self._division, self._cast]
        )
        return self.random.choice(makers)(dtype, depth - 1)

    def _leaf(self, dtype: str) -> Term:
        if self.random.random() < 0.2:
            number = self.random.randrange(0, 100)
            return Term(f"({C_NAMES[dtype]}){number}", np.full(COUNT, number, dtype))
        name = f"{dtype}_{self.random.randrange(2)}"
        return Term(name, self.inputs[name])

    def _binary(self, dtype: str, depth: int) -> Term:
        a, b = self.of(dtype, depth), self.of(dtype, depth)
        sign = self.random.choice("+-*")
        values = {"+": np.add, "-": np.subtract, "*": np.multiply}[sign](a.values, b.values)
        return Term(self._wrapping(dtype, f"{{0}} {sign} {{1}}", a, b), values)

    def _wrapping(self, dtype: str, text: str, *terms: Term) -> str:
        name = C_NAMES[dtype]
        if dtype in ("int32", "int64"):
            operands = [f"(u{dtype})({term.text})" for term in terms]
            return f"({name})({text.format(*operands)})"
        return "(" + text.format(*[f"({term.text})" for term in terms]) + ")"

    def _unary(self, dtype: str, depth: int) -> Term:
        a = self.of(dtype, depth)
        if dtype in INTEGERS and self.random.random() < 0.5:
            return Term(f"(~({a.text}))", ~a.values)
        return Term(self._wrapping(dtype, "-{0}", a), np.negative(a.values))

    def _bits(self, dtype: str, depth: int) -> Term:
        a, b = self.of(dtype, depth), self.of(dtype, depth)
        sign = self.random.choice("&|^")
        values = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[sign](a.values, b.values)
        return Term(f"(({a.text}) {sign} ({b.text}))", values)

    def _shift(self, dtype: str, depth: int) -> Term:
        a, b = self.of(dtype, depth), self.of("uint32", depth)
        most = np.dtype(dtype).itemsize * 8 - 1
        amount = (b.values & np.uint32(most)).astype(dtype)
        if self.random.random() < 0.5:
            return Term(self._wrapping(dtype, f"{{0}} << (({b.text}) & {most})", a), a.values << amount)
        return Term(f"(({a.text}) >> (({b.text}) & {most}))", a.values >> amount)

    def _division(self, dtype: str, depth: int) -> Term:
        a, b = self.of(dtype, depth), self.of(dtype, depth)
        if dtype not in INTEGERS:
            return Term(f"(({a.text}) / ({b.text}))", a.values / b.values)
        divisor = Term(f"((({b.text}) & 1023) + 1)", (b.values & b.values.dtype.type(1023)) + b.values.dtype.type(1))
        rest = np.fmod(a.values, divisor.values)
        if self.random.random() < 0.5:
            return Term(f"(({a.text}) % {divisor.text})", rest)
        return Term(f"(({a.text}) / {divisor.text})", (a.values - rest) // divisor.values)

    def _choice(self, dtype: str, depth: int) -> Term:
        other = self.random.choice(list(C_NAMES))
        left, right = self.of(other, depth), self.of(other, depth)
        sign = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
        compare = {
            "<": np.less,
            "<=": np.less_equal,
            ">": np.greater,
            ">=": np.greater_equal,
            "==": np.equal,
            "!=": np.not_equal,
        }
        a, b = self.of(dtype, depth), self.of(dtype, depth)
        holds = compare[sign](left.values, right.values)
        return Term(
            f"(({left.text}) {sign} ({right.text}) ? ({a.text}) : ({b.text}))", np.where(holds, a.values, b.values)
        )

    def _cast(self, dtype: str, depth: int) -> Term:
        """Between all types but from floats to integers, which may not be defined."""
        kinds = INTEGERS if dtype in INTEGERS else tuple(C_NAMES)
        a = self.of(self.random.choice(kinds), depth)
        return Term(f"(({C_NAMES[dtype]})({a.text}))", a.values.astype(dtype))


def _values(generator: np.random.Generator, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        values = generator.standard_normal(COUNT) * 10.0 ** generator.integers(-6, 6, COUNT)
        values[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        return values.astype(dtype)
    bounds = np.iinfo(dtype)
    values = generator.integers(bounds.min, bounds.max, COUNT, dtype=dtype, endpoint=True)
    small = generator.integers(0, 100, COUNT // 2)
    values[: COUNT // 2] = small.astype(dtype)
    return values


def program(seed: int) -> tuple[str, dict[str, Array], list[Term]]:
    """A kernel of several expressions, some of which are computed by only part of the threads."""
    with np.errstate(all="ignore"):
        expressions = Expressions(seed)
        terms = [expressions.of(dtype, 3) for dtype in C_NAMES for _ in range(2)]
        condition = expressions.of("int32", 1)
    parameters = [f"const {C_NAMES[name.split('_')[0]]}* p_{name}" for name in expressions.inputs]
    parameters += [f"{C_NAMES[term.values.dtype.name]}* out_{number}" for number, term in enumerate(terms)]
    loads = "".join([f"{C_NAMES[name.split('_')[0]]} {name} = p_{name}[i];\n" for name in expressions.inputs])
    stores = [f"out_{number}[i] = {term.text};\n" for number, term in enumerate(terms)]
    half = len(stores) // 2
    branches = f"if ({condition.text} & 1) {{ {''.join(stores[:half])} }} else {{ {''.join(stores[:half][::-1])} }}"
    source = f"""
    extern "C" __global__ void kernel({", ".join(parameters)}) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= {COUNT}) return;
        {loads} {branches} {"".join(stores[half:])}
    }}
    """
    return source, expressions.inputs, terms


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions(seed: int) -> None:
    source, inputs, terms = program(seed)
    architecture = "compute_90" if seed % 2 else "compute_80"
    kernel = load(source, architecture, "--fmad=false").kernels["kernel"]
    outputs = [np.zeros_like(term.values) for term in terms]
    run(kernel, 6, 128, *inputs.values(), *outputs)
    for term, output in zip(terms, outputs, strict=True):
        if term.values.dtype.kind == "f":
            np.testing.assert_array_equal(bits(output), bits(term.values), err_msg=term.text)
        else:
            np.testing.assert_array_equal(output, term.values, err_msg=term.text)
