"""Complex arithmetic and functions of one element in CUDA C++.

Inverse trigonometric functions, inverse hyperbolic ones and tanh are W. Kahan's (Branch Cuts for Complex Elementary
Functions, 1987), without his care for numbers at the ends of the range.
"""

from __future__ import annotations

from typing import Final

from vmflow.kernels.expressions.rules import COMPLEX, Rule

# C++ functions of complex elements; those of real elements are `functions.FUNCTIONS`.
COMPLEX_FUNCTIONS: Final = """
template <bool B, typename T> struct enabled {};
template <typename T> struct enabled<true, T> { typedef T type; };
template <typename C> struct part_of {};
template <> struct part_of<complex64> { typedef float type; };
template <> struct part_of<complex128> { typedef double type; };

/* The type of C's real part; beginnings of functions of a complex type C, which return a C or a bool. */
#define PART typename part_of<C>::type
#define OF_COMPLEX template <typename C> INLINED typename enabled<is_complex<C>, C>::type
#define TEST_OF_COMPLEX template <typename C> INLINED typename enabled<is_complex<C>, bool>::type

OF_COMPLEX operator+(C x, C y) { return {x.real + y.real, x.imag + y.imag}; }
OF_COMPLEX operator-(C x, C y) { return {x.real - y.real, x.imag - y.imag}; }
OF_COMPLEX operator-(C x) { return {-x.real, -x.imag}; }
OF_COMPLEX operator*(C x, C y) { return {x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real}; }
OF_COMPLEX scaled(C x, PART factor) { return {x.real * factor, x.imag * factor}; }
OF_COMPLEX operator/(C x, PART part) { return {x.real / part, x.imag / part}; }
OF_COMPLEX operator/(C x, int64 count) { return {x.real / (PART)count, x.imag / (PART)count}; }
TEST_OF_COMPLEX operator==(C x, C y) { return x.real == y.real && x.imag == y.imag; }
TEST_OF_COMPLEX operator!=(C x, C y) { return x.real != y.real || x.imag != y.imag; }
TEST_OF_COMPLEX is_zero(C x) { return x.real == 0 && x.imag == 0; }

/* Division and reciprocal do not square the divisor, which might overflow: R. L. Smith, Algorithm 116, 1962. */
OF_COMPLEX operator/(C x, C y) {
    if (fabs(y.real) >= fabs(y.imag)) {
        if (y.real == 0 && y.imag == 0) return {x.real / fabs(y.real), x.imag / fabs(y.real)};
        const PART ratio = y.imag / y.real, scale = 1 / (y.real + y.imag * ratio);
        return {(x.real + x.imag * ratio) * scale, (x.imag - x.real * ratio) * scale};
    }
    const PART ratio = y.real / y.imag, scale = 1 / (y.imag + y.real * ratio);
    return {(x.real * ratio + x.imag) * scale, (x.imag * ratio - x.real) * scale};
}
OF_COMPLEX reciprocal_of(C x) {
    if (fabs(x.imag) <= fabs(x.real)) {
        const PART ratio = x.imag / x.real, whole = x.real + x.imag * ratio;
        return {1 / whole, -ratio / whole};
    }
    const PART ratio = x.real / x.imag, whole = x.real * ratio + x.imag;
    return {ratio / whole, -1 / whole};
}

OF_COMPLEX conjugate(C x) { return {x.real, -x.imag}; }
/* The products with i and with -i. */
OF_COMPLEX turned(C x) { return {-x.imag, x.real}; }
OF_COMPLEX turned_back(C x) { return {x.imag, -x.real}; }
template <typename C> INLINED PART size_of(C x) { return hypot(x.real, x.imag); }

OF_COMPLEX exp_of(C x) {
    const PART size = exp(x.real);
    if (x.imag == 0) return {size, x.imag};
    if (size == 0) return {0, 0};
    return {size * cos(x.imag), size * sin(x.imag)};
}
OF_COMPLEX expm1_of(C x) {
    const PART half = sin(x.imag / 2);
    return {expm1(x.real) * cos(x.imag) - 2 * half * half, exp(x.real) * sin(x.imag)};
}
/* Near the unit circle the logarithm is computed from the difference between the squared size and 1. */
OF_COMPLEX log_of(C x) {
    const PART real = fabs(x.real), imag = fabs(x.imag), size = size_of(x);
    const PART most = real > imag ? real : imag, least = real > imag ? imag : real;
    const bool near = size > (PART)0.5 && size < 2;
    return {near ? log1p((most - 1) * (most + 1) + least * least) / 2 : log(size), atan2(x.imag, x.real)};
}
OF_COMPLEX log1p_of(C x) {
    const PART sum = x.real + 1;
    return {log(hypot(sum, x.imag)), atan2(x.imag, sum)};
}

/* Large numbers are quartered, since their absolute value might overflow. */
OF_COMPLEX sqrt_of(C x) {
    if (x.real == 0 && x.imag == 0) return {0, x.imag};
    if (fabs(x.imag) == INF) return {INF, x.imag};
    const PART large = sizeof(PART) == 4 ? (PART)1e38 : (PART)1e308;
    const bool scales = fabs(x.real) > large || fabs(x.imag) > large;
    const C y = scales ? scaled(x, (PART)0.25) : x;
    const PART root = sqrt((fabs(y.real) + size_of(y)) / 2) * (scales ? 2 : 1);
    const PART other = x.imag / (2 * root);
    if (x.real >= 0) return {root, root == INF ? copysign((PART)0, x.imag) : other};
    return {fabs(other), copysign(root, x.imag)};
}

/* The power is computed by products if the exponent is a small whole number. */
OF_COMPLEX power_of(C x, C exponent) {
    if (is_zero(exponent)) return {1, 0};
    if (is_zero(x)) {
        if (exponent.real > 0) return {0, 0};
        return {(PART)NAN, (PART)NAN};
    }
    if (exponent.imag == 0 && exponent.real == trunc(exponent.real) && fabs(exponent.real) < 100) {
        C result = {1, 0}, square = x;
        int left = (int)fabs(exponent.real);
        bool first = true;
        while (true) {
            if (left & 1) {
                result = first ? square : result * square;
                first = false;
            }
            left >>= 1;
            if (!left) break;
            square = square * square;
        }
        const C one = {1, 0};
        return exponent.real < 0 ? one / result : result;
    }
    return exp_of(exponent * log_of(x));
}

OF_COMPLEX sinh_of(C x) { return {sinh(x.real) * cos(x.imag), cosh(x.real) * sin(x.imag)}; }
OF_COMPLEX cosh_of(C x) { return {cosh(x.real) * cos(x.imag), sinh(x.real) * sin(x.imag)}; }
OF_COMPLEX tanh_of(C x) {
    if (fabs(x.real) >= 22) {
        const PART rest = exp(-2 * fabs(x.real));
        return {copysign((PART)1, x.real), 4 * sin(x.imag) * cos(x.imag) * rest};
    }
    const PART slope = tan(x.imag), beta = 1 + slope * slope, sine = sinh(x.real), root = sqrt(1 + sine * sine);
    if (fabs(slope) == INF) return {root / sine, 1 / slope};
    const PART whole = 1 + beta * sine * sine;
    return {beta * root * sine / whole, slope / whole};
}
OF_COMPLEX sin_of(C x) { return turned_back(sinh_of(turned(x))); }
OF_COMPLEX cos_of(C x) { return cosh_of(turned(x)); }
OF_COMPLEX tan_of(C x) { return turned_back(tanh_of(turned(x))); }

OF_COMPLEX one_less(C x) { return {1 - x.real, -x.imag}; }
OF_COMPLEX one_more(C x) { return {1 + x.real, x.imag}; }
OF_COMPLEX asin_of(C x) {
    const C less = sqrt_of(one_less(x)), more = sqrt_of(one_more(x));
    return {atan2(x.real, (less * more).real), asinh((conjugate(less) * more).imag)};
}
OF_COMPLEX acos_of(C x) {
    const C less = sqrt_of(one_less(x)), more = sqrt_of(one_more(x));
    return {2 * atan2(less.real, more.real), asinh((conjugate(more) * less).imag)};
}
OF_COMPLEX acosh_of(C x) {
    const C less = sqrt_of(-one_less(x)), more = sqrt_of(one_more(x));
    return {asinh((conjugate(less) * more).real), 2 * atan2(less.imag, more.real)};
}
OF_COMPLEX atanh_of(C x) {
    const PART size = fabs(x.real), apart = 1 - size, square = x.imag * x.imag;
    return {copysign(log1p(4 * size / (apart * apart + square)) / 4, x.real),
            atan2(2 * x.imag, apart * (1 + size) - square) / 2};
}
OF_COMPLEX asinh_of(C x) { return turned_back(asin_of(turned(x))); }
OF_COMPLEX atan_of(C x) { return turned_back(atanh_of(turned(x))); }
"""

# By op, a format string that makes the op's C++ expression from the operands.
_PATTERNS: Final = {
    **{op: f"{op}_of({{0}})" for op in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh")},
    **{op: f"{op}_of({{0}})" for op in ("tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "reciprocal": "reciprocal_of({0})",
    "rsqrt": "reciprocal_of(sqrt_of({0}))",
    "abs": "size_of({0})",
    "conj": "conjugate({0})",
    "pow": "power_of({0}, {1})",
    "pow_scalar": "power_of({0}, {1})",
    "log2": "scaled(log_of({0}), 1.44269504088896340736)",
    "log10": "scaled(log_of({0}), 0.43429448190325182765)",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "logical_and": "!is_zero({0}) & !is_zero({1})",
    "logical_or": "!is_zero({0}) | !is_zero({1})",
    "logical_xor": "!is_zero({0}) ^ !is_zero({1})",
    "logical_not": "is_zero({0})",
    "isnan": "({0}.real != {0}.real) | ({0}.imag != {0}.imag)",
    "isinf": "(fabs({0}.real) == INF) | (fabs({0}.imag) == INF)",
    "isfinite": "(fabs({0}.real) < INF) & (fabs({0}.imag) < INF)",
}


def _written(pattern: str) -> Rule:
    return Rule(COMPLEX, lambda dtype, *operands: pattern.format(*operands), exact=False)


COMPLEX_RULES: Final = {op: _written(pattern) for op, pattern in _PATTERNS.items()}
