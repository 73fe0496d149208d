"""CUDA C++ functions of one element that the rules of elementwise ops call, besides the functions shared with the C
kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from vmflow.kernels.numpy import bessel_functions as bessel, gamma_functions as gamma, special as of_cpu

# Overloads for statements of either type: for float the functions of `expressions.sources`, for double CUDA's.
_BY_TYPE: Final = """
INLINED float exponential(float x) { return exp_f(x); }
INLINED double exponential(double x) { return exp(x); }
INLINED float logarithm(float x) { return log_f(x); }
INLINED double logarithm(double x) { return log(x); }
INLINED float logarithm_of_more(float x) { return log1p_f(x); }
INLINED double logarithm_of_more(double x) { return log1p(x); }
"""

# `Rule.wrong` reports integer division by 0.  A quotient out of the type's range wraps around.
_DIVISIONS: Final = """
template <typename T> constexpr bool is_floating = same<T, float> || same<T, double>;

template <typename T> INLINED T trunc_divided(T x, T y) {
    if constexpr (is_floating<T>) {
        return trunc(x / y);
    } else {
        if (y == 0) return 0;
        if (y == (T)-1 && (T)-1 < 0) return (T)(0 - (uint64_t)x);
        return x / y;
    }
}

template <typename T> INLINED T fmod_of(T x, T y) {
    if constexpr (is_floating<T>) {
        return fmod(x, y);
    } else {
        return (T)((uint64_t)x - (uint64_t)trunc_divided(x, y) * (uint64_t)y);
    }
}

template <typename T> INLINED T remainder_of(T x, T y) {
    T rest = fmod_of(x, y);
    if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
    if constexpr (is_floating<T>) {
        if (rest == 0) rest = copysign(rest, y);
    }
    return rest;
}

/* A quotient may be rounded up to a whole number that it does not reach: the rest decides. */
template <typename T> INLINED T floor_divided(T x, T y) {
    const T rest = fmod_of(x, y);
    const bool below = rest != 0 && (rest < 0) != (y < 0);
    if constexpr (is_floating<T>) {
        if (y == 0) return x / y;
        T exact = (x - rest) / y;
        if (below) exact -= 1;
        if (exact == 0) return copysign((T)0, x / y);
        T whole = floor(exact);
        if (exact - whole > (T)0.5) whole += 1;
        return whole;
    } else {
        return trunc_divided(x, y) - below;
    }
}
"""

# Powers of integers with negative exponents are 0 unless the base is 1 or -1.
_POWERS: Final = """
template <typename T> INLINED T power(T x, T exponent) {
    if constexpr (is_floating<T>) {
        return pow(x, exponent);
    } else {
        if (exponent < 0) return x == 1 ? 1 : x == (T)-1 ? (exponent & 1 ? -1 : 1) : 0;
        uint64_t square = (uint64_t)x, result = 1;
        for (uint64_t left = (uint64_t)exponent; left; left >>= 1) {
            if (left & 1) result *= square;
            square *= square;
        }
        return (T)result;
    }
}

/* A power with one exponent for all elements: common exponents are computed as on the host. */
template <typename T> INLINED T power_of_all(T x, T exponent) {
    if constexpr (is_floating<T>) {
        if (exponent == 2) return x * x;
        if (exponent == 3) return x * x * x;
        if (exponent == 4) return (x * x) * (x * x);
        if (exponent == (T)0.5) return sqrt(x);
        if (exponent == (T)-0.5) return 1 / sqrt(x);
        if (exponent == -1) return 1 / x;
        /* Not 1 / (x * x), since the square of a small number may be denormal, which has fewer digits. */
        if (exponent == -2) return (1 / x) * (1 / x);
    }
    return power(x, exponent);
}
"""

# Shifts by at least the number of bits, or by a negative number, shift all bits out: shifted to the right, a negative
# number becomes -1; else the result is 0.
_SHIFTS: Final = """
template <typename T> INLINED T shifted_left(T x, T places) {
    const bool inside = places >= 0 && places < (T)(8 * sizeof(T));
    return inside ? (T)((uint64_t)x << (int)places) : 0;
}
template <typename T> INLINED T shifted_right(T x, T places) {
    const bool inside = places >= 0 && places < (T)(8 * sizeof(T));
    return inside ? x >> (int)places : x < 0 ? (T)-1 : 0;
}
"""

_FLOATING_POINT: Final = """
/* The next number of half precision: the sizes of these numbers have the order of their bits. */
template <typename Half> INLINED float next_of_half(float x, float towards) {
    if (x != x || towards != towards) return x + towards;
    if (x == towards) return towards;
    Half half = converted<Half>(x);
    if (x == 0) half.bits = (converted<Half>(towards).bits & 0x8000) | 1;
    else half.bits += (x < towards) == (x > 0) ? 1 : -1;
    return widened(half);
}

template <typename T> INLINED T added_in_logarithms(T x, T y) {
    if (x == y) return x + (T)0.69314718055994530942;
    const T apart = x - y;
    if (apart > 0) return x + logarithm_of_more(exponential(-apart));
    return apart <= 0 ? y + logarithm_of_more(exponential(apart)) : apart;
}
template <typename T> INLINED T added_in_logarithms_by_2(T x, T y) {
    if (x == y) return x + 1;
    const T apart = x - y, factor = (T)1.44269504088896340736;
    if (apart > 0) return x + factor * logarithm_of_more(exp2(-apart));
    return apart <= 0 ? y + factor * logarithm_of_more(exp2(apart)) : apart;
}

template <typename T> INLINED T product_with_logarithm(T factor, T x) {
    return factor == 0 && x == x ? 0 : factor * logarithm(x);
}
template <typename T> INLINED T entropy(T x) {
    return x == 0 ? 0 : x < 0 ? -INF : -x * logarithm(x);
}
template <typename T> INLINED T sine_by_argument(T x) {
    return x == 0 ? 1 : sinpi(x) / ((T)3.14159265358979323846 * x);
}
"""

# gelu(x) = max(x, 0) - |x| P(X > |x|), X normal, in which nothing cancels where x is negative.  Far out, as on the CPU,
# up to three digits are lost.  |x| is limited to a finite number, since the product of infinity and a probability of 0
# would be nan.
_GELU: Final = """
INLINED double gelu_of_double(double x) {
    const double size = fabs(x) > 1e5 ? 1e5 : fabs(x);
    return (x > 0 || x != x ? x : 0) - erfc(size * 0.70710678118654752440) * size * 0.5;
}
INLINED double gelu_gradient_of_double(double gradient, double x) {
    const double size = fabs(x) > 1e5 ? 1e5 : fabs(x);
    const double density = exp(size * size * -0.5) * 0.39894228040143267794;
    const double half = erfc(size * 0.70710678118654752440) * 0.5;
    return ((x < 0 ? half : 1 - half) + copysign(size * density, x)) * (x != x ? x : gradient);
}
"""


def polynomial(x: str, coefficients: Sequence[float]) -> str:
    """Return the C++ expression of a polynomial of the variable `x`; the highest power has the first coefficient."""
    total = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        total = f"({total} * {x} + {coefficient!r})"
    return total


# digamma, like the CPU's: arguments below 0 are reflected; then the recurrence moves all up to at least `FAR`, from
# where on an asymptotic series is accurate.
_DIGAMMA: Final = f"""
INLINED double digamma_of(double x) {{
    const bool reflected = x < 0;
    double y = reflected ? 1 - x : x, total = 0;
    for (int i = 0; i < {of_cpu.FAR}; i++) {{
        if (y < {of_cpu.FAR}) {{
            total -= 1 / y;
            y += 1;
        }}
    }}
    const double inverse = 1 / (y * y);
    total += log(y) - 0.5 / y - {polynomial("inverse", of_cpu.DIGAMMA)} * inverse;
    const double pi = 3.14159265358979323846, fraction = x - rint(x);
    if (!reflected) return total;
    return fraction == 0 ? (double)NAN : total - pi * (1 / tan(pi * fraction));
}}
"""

# gcd and lcm, like the CPU's.  Results that the type does not hold wrap around, such as the gcd of the lowest number
# and 0, and large multiples.
_DIVISORS: Final = """
template <typename T> INLINED T magnitude(T x) { return x < 0 ? (T)(0 - (uint64_t)x) : x; }
template <typename T> INLINED T common_divisor(T x, T y) {
    while (y != 0) {
        const T rest = fmod_of<T>(x, y);
        x = y;
        y = rest;
    }
    return magnitude<T>(x);
}
template <typename T> INLINED T common_multiple(T x, T y) {
    const T divisor = common_divisor<T>(x, y);
    if (divisor == 0) return 0;
    return (T)((uint64_t)magnitude<T>(trunc_divided<T>(x, divisor)) * (uint64_t)magnitude<T>(y));
}
"""

_BESSEL: Final = "".join(
    [
        f"""
INLINED double bessel_i{order}_of_size(double x, bool scaled) {{
    if (x <= {bessel.BEYOND!r}) {{
        const double square = x * x * 0.25;
        const double near = {polynomial("square", bessel.series(order))}{" * (x * 0.5)" * order};
        return scaled ? near * exp(-x) : near;
    }}
    const double inverse = 1 / x;
    const double far = {polynomial("inverse", bessel.asymptotic(order))} / sqrt(x) * 0.39894228040143267794;
    if (scaled) return far;
    const double growth = exp(x * 0.5);
    return x == INF ? x : far * growth * growth;
}}
INLINED double bessel_i{order}(double x) {{
    const double size = bessel_i{order}_of_size(fabs(x), false);
    return {"copysign(size, x)" if order else "size"};
}}
INLINED double bessel_i{order}e(double x) {{
    const double size = bessel_i{order}_of_size(fabs(x), true);
    return {"copysign(size, x)" if order else "size"};
}}
"""
        for order in (0, 1)
    ]
)

_INCOMPLETE_GAMMA: Final = f"""
INLINED double gamma_density(double a, double x) {{
    if (a < {gamma.LARGE!r}) return exp(a * log(x) - x - lgamma(a + 1));
    const double excess = (x - a) / a, inverse = 1 / (a * a);
    const double correction = {polynomial("inverse", of_cpu.STIRLING)} / a;
    return exp(a * (log1p(excess) - excess) - correction) / sqrt(6.28318530717958647693 * a);
}}
INLINED double upper_gamma_of_huge(double a, double x) {{
    const double excess = (x - a) / a;
    const double near = excess * excess * {polynomial("excess", (1 / 6, -1 / 5, 1 / 4, -1 / 3, 1 / 2))};
    const double half_square = fabs(excess) < 1e-3 ? near : excess - log1p(excess);
    const double eta = copysign(sqrt(2 * half_square), excess);
    const double limited = fmin(fmax(eta, -1.0), 1.0);
    const double correction = {polynomial("limited", gamma.CORRECTION)} + {gamma.NEXT_CORRECTION!r} / a;
    const double density = exp(-a * half_square) / sqrt(6.28318530717958647693 * a);
    return erfc(eta * sqrt(a * 0.5)) * 0.5 + density * correction;
}}
INLINED double upper_gamma_of_tiny(double a, double x) {{
    const double exponent = a * (log(x) - {polynomial("a", gamma.LOG_GAMMA_BY_A)});
    double total = 0, term = 1;
    for (int k = 1; k < {gamma.ALTERNATING_TERMS}; k++) {{
        term *= -x / k;
        total += term / (a + k);
    }}
    return -expm1(exponent) - a * exp(exponent) * total;
}}
INLINED double incomplete_gamma(double a, double x, bool upper) {{
    const double below = upper ? 1 : 0, above = upper ? 0 : 1;
    if (!(a >= 0 && x >= 0)) return (double)NAN;
    if (a == 0) return x > 0 ? above : (double)NAN;
    if (x == 0) return below;
    if (a == INF || x == INF) return a == x ? (double)NAN : a == INF ? below : above;
    if (a >= {gamma.HUGE!r}) {{
        const double found = upper_gamma_of_huge(a, x);
        return upper ? found : 1 - found;
    }}
    if (upper && a < {gamma.TINY!r} && x < a + 1) return upper_gamma_of_tiny(a, x);
    if (x < a + 1) {{
        double total = 1, term = 1, place = a;
        for (int i = 0; i < {gamma.MOST_TERMS} && term > total * {gamma.SMALL!r}; i++) {{
            place += 1;
            term *= x / place;
            total += term;
        }}
        total *= gamma_density(a, x);
        return upper ? 1 - total : total;
    }}
    double b = x + 1 - a, numerator = 1e300, inverse = 1 / b, fraction = inverse, change = 0;
    for (int place = 1; place < {gamma.MOST_TERMS} && fabs(change - 1) > {gamma.NEARLY_ONE!r}; place++) {{
        const double factor = -place * (place - a);
        b += 2;
        inverse = factor * inverse + b;
        inverse = 1 / (inverse == 0 ? 1e-300 : inverse);
        numerator = b + factor / numerator;
        if (numerator == 0) numerator = 1e-300;
        change = inverse * numerator;
        fraction *= change;
    }}
    fraction *= a * gamma_density(a, x);
    return upper ? fraction : 1 - fraction;
}}
INLINED double lower_gamma(double a, double x) {{ return incomplete_gamma(a, x, false); }}
INLINED double upper_gamma(double a, double x) {{ return incomplete_gamma(a, x, true); }}
"""

_ZETA_TERMS: Final = "\n".join(
    [
        f"    total += factor * {number / math.factorial(2 * order)!r};\n"
        f"    factor *= ((s + {2 * order - 1}) * inverse) * ((s + {2 * order}) * inverse);"
        for order, number in enumerate(of_cpu.BERNOULLI, 1)
    ]
)
# Hurwitz's zeta function and polygamma, by the CPU's steps, which `vmflow.kernels.numpy.special` explains.
_ZETA: Final = f"""
INLINED double rest_of_zeta(double s, double q) {{
    const double inverse = 1 / q;
    double total = 1 + (s - 1) * inverse * 0.5, factor = ((s - 1) * inverse) * (s * inverse);
{_ZETA_TERMS}
    return fmin(fmax(total, 1.0), 1 + (s - 1) * inverse);
}}
template <typename Function> INLINED double beyond_poles(Function of_positive, double q, bool odd) {{
    if (!(q < 0)) return of_positive(q);
    const double fraction = -q - floor(-q);
    if (fraction == 0) return INF;
    const double positive = of_positive(1 - fraction), negative = of_positive(fraction);
    const bool same = odd && fraction == 0.5;
    const double beyond = negative == INF && !same ? 0 : of_positive(1 - q);
    if (!odd) return positive + (negative - beyond);
    const bool both = positive == INF && negative == INF;
    return (both ? same ? 0 : copysign(INF, fraction - 0.5) : positive - negative) + beyond;
}}
INLINED double zeta_of(double s, double q) {{
    if (s != s || q != q) return (double)NAN;
    if (s == 1) return INF;
    if (s < 1) return (double)NAN;
    if (q <= 0 && q == rint(q)) return INF;
    if (q <= 0 && s != rint(s)) return (double)NAN;
    const auto of_positive = [s](double place) {{
        const double far = place + {of_cpu.FIRST_TERMS}, power = pow(far, 1 - s);
        double total = power == 0 ? 0 : power / (s - 1) * rest_of_zeta(s, far);
        for (int term = {of_cpu.FIRST_TERMS - 1}; term >= 0; term--) total += pow(place + term, -s);
        return total;
    }};
    return beyond_poles(of_positive, q, fmod(s, 2.0) == 1);
}}
INLINED double polygamma_of(int n, double unit, double scale, double scale_of_rest, double x) {{
    const auto of_positive = [=](double place) {{
        const double far = place + {of_cpu.FIRST_TERMS}, half = pow(far / unit, -0.5 * n);
        double total = half * scale_of_rest * half * rest_of_zeta(n + 1.0, far);
        for (int term = {of_cpu.FIRST_TERMS - 1}; term >= 0; term--) {{
            const double root = pow((place + term) / unit, -0.5 * (n + 1));
            total += root * scale * root;
        }}
        return total;
    }};
    const double value = x == -INF ? (double)NAN : beyond_poles(of_positive, x, n % 2 == 0);
    return n % 2 == 0 ? -value : value;
}}
"""

FUNCTIONS: Final = "".join(
    [
        *(_BY_TYPE, _DIVISIONS, _DIVISORS, _POWERS, _SHIFTS, _FLOATING_POINT, _GELU),
        *(_DIGAMMA, _BESSEL, _INCOMPLETE_GAMMA, _ZETA),
    ]
)
