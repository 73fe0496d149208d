"""Special functions, and functions of the bits of numbers: against other algorithms, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients
from vmflow import special

from .oracle import (
    INTEGERS,
    ORDERED,
    REAL,
    TWO,
    UNSIGNED,
    Array,
    KernelContract,
    Row,
    check,
    forward_test,
    gradient_test,
    values,
)

INF, NAN = math.inf, math.nan


def _quantile(x: float) -> float:
    return NormalDist().inv_cdf((x + 1) / 2) * math.sqrt(0.5) if -1 < x < 1 else math.copysign(INF, x)


def _digamma(x: float) -> float:
    """By the recurrence up to arguments where two terms of the series suffice."""
    total = 0.0
    while x < 1000:
        if x == 0:
            return -INF
        total -= 1 / x
        x += 1
    return total + math.log(x) - 0.5 / x - 1 / (12 * x * x) + 1 / (120 * x**4)


def _polygamma(n: int, x: float) -> float:
    """By the sum up to terms where the midpoint rule suffices for the rest."""
    far = 2000
    total = sum((x + place) ** -(n + 1.0) for place in range(far))
    rest = (x + far - 0.5) ** -float(n) / n
    return float((-1) ** (n + 1) * math.factorial(n) * (total + rest))


def _each(function: Callable[..., float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[np.float64])


def _sinc(x: Array) -> Array:
    return np.asarray(np.sinc(x))


def _heaviside(x: Array, y: Array) -> Array:
    return np.where(x == 0, y, x > 0)


def _normal_quantile(p: float) -> float:
    if 0 < p < 1:
        return NormalDist().inv_cdf(p)
    return -INF if p == 0 else INF if p == 1 else NAN


def _bessel(order: int, scaled: bool) -> Callable[[float], float]:
    """By the trapezoidal rule for the integral over half a circle, which converges exponentially."""
    angles = np.arange(201) * (math.pi / 200)
    weights = np.full(201, 1 / 200)
    weights[[0, -1]] /= 2

    def found(x: float) -> float:
        cosine = np.cos(angles)
        grown = np.exp(x * cosine - (abs(x) if scaled else 0.0))
        return float((weights * grown * np.cos(order * angles)).sum())

    return found


BESSEL = {f"i{order}{'e' if scaled else ''}": _bessel(order, scaled) for order in (0, 1) for scaled in (False, True)}


def _lower_gamma(a: float, x: float) -> float:
    """By the alternating power series (8.7.3) of the NIST library, summed exactly."""
    terms = [(-1.0) ** k * x ** (a + k) / (math.factorial(k) * (a + k)) for k in range(60)]
    return math.fsum(terms) / math.gamma(a)


def _upper_gamma(a: float, x: float) -> float:
    return 1 - _lower_gamma(a, x)


def _zeta(s: float, q: float) -> float:
    """By the sum up to terms where the corrected midpoint rule suffices for the rest; for exponents above 1."""
    s, q = float(s), float(q)
    if s <= 1:
        return INF if s == 1 else NAN
    if q <= 0:
        return INF
    far = 1000
    middle = q + far - 0.5
    rest = middle ** (1 - s) / (s - 1) - s * middle ** (-s - 1) / 24
    return float(math.fsum([(q + place) ** -s for place in range(far)]) + rest)


ABOVE = ((0.3, 4.0),)
ROWS: list[Row] = [
    Row("erfc", flow.erfc, _each(math.erfc), ORDERED, "float", order=2),
    Row("erfinv", flow.erfinv, _each(_quantile), ORDERED, "float", domain=((-0.95, 0.95),), order=2),
    Row("lgamma", flow.lgamma, _each(math.lgamma), (*REAL, *INTEGERS), "float", domain=ABOVE, order=2),
    Row("digamma", flow.digamma, _each(_digamma), (*REAL, *INTEGERS), "float", domain=((1.0, 4.0),), order=2),
    Row(
        "polygamma",
        lambda x: flow.polygamma(2, x),
        _each(lambda x: _polygamma(2, x)),
        (*REAL, *INTEGERS),
        "float",
        domain=ABOVE,
        order=2,
        tolerance=2e-2,
    ),
    Row("lgamma", flow.lgamma, lambda x: np.where(x, 0.0, INF), ("bool",), "float", label="-bool"),
    Row("digamma", flow.digamma, _each(_digamma), ("bool",), "float", label="-bool"),
    Row(
        "polygamma",
        lambda x: flow.polygamma(2, x),
        lambda x: np.where(x, _polygamma(2, 1.0), -INF),
        ("bool",),
        "float",
        label="-bool",
    ),
    Row("entr", special.entr, np.zeros_like, ("bool",), "float", label="-bool"),
    Row("sinc", flow.sinc, _sinc, ORDERED, "float", order=2),
    Row("entr", special.entr, lambda x: -x * np.log(x), (*REAL, *INTEGERS), "float", domain=ABOVE, order=2),
    Row("logaddexp2", flow.logaddexp2, np.logaddexp2, ORDERED, "float", shapes=TWO, order=2),
    Row(
        "xlogy",
        flow.xlogy,
        lambda x, y: x * np.log(y),
        (*REAL, *INTEGERS),
        "float",
        shapes=TWO,
        domain=((-3.0, 3.0), *ABOVE),
        order=2,
    ),
    Row("xlogy", lambda x: flow.xlogy(x, x), np.zeros_like, ("bool",), "float", label="-bool"),
    Row("xlogy_scalar", lambda x: flow.xlogy(x, 2), lambda x: x * math.log(2), ORDERED, "float", order=2),
    Row(
        "xlogy_scalar",
        lambda x: flow.xlogy(2, x),
        lambda x: 2 * np.log(x),
        ORDERED,
        "float",
        domain=ABOVE,
        order=2,
        label="-r",
    ),
    *[Row(name, getattr(special, name), _each(oracle), ORDERED, "float", order=2) for name, oracle in BESSEL.items()],
    Row(
        "erfcx",
        special.erfcx,
        _each(lambda x: math.exp(x * x) * math.erfc(x)),
        ORDERED,
        "float",
        domain=((-1.0, 3.0),),
        order=2,
    ),
    Row("ndtri", special.ndtri, _each(_normal_quantile), ORDERED, "float", domain=((0.03, 0.97),), order=2),
    Row("igamma", flow.igamma, _each(_lower_gamma), REAL, shapes=TWO, domain=ABOVE),
    Row("igammac", flow.igammac, _each(_upper_gamma), REAL, shapes=TWO, domain=ABOVE),
    Row("zeta", special.zeta, _each(_zeta), (*REAL, *INTEGERS), "float", shapes=TWO, domain=((2.2, 5.0), *ABOVE)),
    Row("zeta", lambda x: special.zeta(x, x), lambda x: _each(_zeta)(x, x), ("bool",), "float", label="-bool"),
    Row("zeta_scalar", lambda x: special.zeta(2.5, x), lambda x: _each(_zeta)(2.5, x), REAL, domain=ABOVE, order=2),
    Row(
        "zeta_scalar",
        lambda x: special.zeta(x, 2),
        lambda x: _each(_zeta)(x, 2.0),
        (*INTEGERS, "bool"),
        "float",
        domain=((2.2, 5.0),),
        label="-r",
    ),
    Row("gcd", flow.gcd, lambda x, y: np.gcd(x, y), INTEGERS, shapes=TWO),
    Row("lcm", flow.lcm, lambda x, y: np.lcm(x, y), INTEGERS, shapes=TWO),
    Row("signbit", flow.signbit, np.signbit, ORDERED, "bool"),
    Row("copysign", flow.copysign, np.copysign, ORDERED, "float", shapes=TWO, order=2),
    Row("copysign_scalar", lambda x: flow.copysign(x, -1), lambda x: -np.abs(x), ORDERED, "float", order=2),
    Row(
        "copysign_scalar",
        lambda x: flow.copysign(2, x),
        lambda x: np.copysign(2, x),
        ORDERED,
        "float",
        order=2,
        label="-r",
    ),
    Row("nextafter", flow.nextafter, np.nextafter, REAL, shapes=TWO),
    Row("fmax", flow.fmax, np.fmax, ORDERED, shapes=TWO, order=2),
    Row("fmin", flow.fmin, np.fmin, ORDERED, shapes=TWO, order=2),
    Row("heaviside", flow.heaviside, _heaviside, ORDERED, shapes=TWO),
    *[
        row
        for name, oracle in (("bitwise_left_shift", np.left_shift), ("bitwise_right_shift", np.right_shift))
        for row in (
            Row(name, getattr(flow, name), oracle, INTEGERS, shapes=TWO, domain=((0.0, 3.0),)),
            Row(
                f"{name}_scalar",
                lambda x, name=name: getattr(flow, name)(x, 2),
                lambda x, oracle=oracle: oracle(x, 2),
                INTEGERS,
            ),
            Row(
                f"{name}_scalar",
                lambda x, name=name: getattr(flow, name)(x, 2),
                lambda x, oracle=oracle: oracle(x * np.int64(1), 2),
                ("bool",),
                "wide",
                label="-bool",
            ),
        )
    ],
]


def test_bessel_functions_of_large_and_small_numbers(contract: KernelContract) -> None:
    points = np.concatenate([np.logspace(-12, 2.8, 60), [17.99, 18.0, 18.01]])
    for name in ("i0e", "i1e"):
        found = values(getattr(special, name)(flow.tensor(points)))
        # Integrals of positive functions.  Order 1 is integrated by parts, since its definition changes sign.
        angles = (np.arange(4000) + 0.5) * (math.pi / 4000)
        grown = np.exp(points[:, None] * (np.cos(angles) - 1))
        order = 0 if name == "i0e" else 1
        weights = points[:, None] * np.sin(angles) ** 2 if order else np.ones((1, 4000))
        assert np.abs(found / (grown * weights).mean(1) - 1).max() < 1e-13, name
    ends = flow.tensor([0.0, INF, -INF, NAN], dtype=flow.float64)
    check(special.i0(ends), [1.0, INF, INF, NAN], "float64")
    check(special.i1(ends), [0.0, INF, -INF, NAN], "float64")
    check(special.i0e(ends), [1.0, 0.0, 0.0, NAN], "float64")
    check(special.i0(flow.tensor([712.0], dtype=flow.float64)).isfinite(), [True], "bool")


def test_tail_probabilities_of_the_normal_distribution(contract: KernelContract) -> None:
    x = np.array([-38.0, -20.0, -5.0, -1.0, 0.0, 1.0, 8.0])
    expected = _each(lambda x: math.erfc(-x * math.sqrt(0.5)) / 2)(x)
    assert _relative(special.ndtr(flow.tensor(x)), expected) < 1e-13
    assert _relative(special.log_ndtr(flow.tensor(x[1:-1])), np.log(expected[1:-1])) < 1e-12
    # By the asymptotic series, for arguments where the probability underflows.
    far = special.log_ndtr(flow.tensor([-1e3, -INF, INF], dtype=flow.float64))
    check(far, [-5e5 - math.log(1e3 * math.sqrt(2 * math.pi)) - 1e-6, -INF, 0.0], "float64", tolerance=1e-15)
    tails = np.logspace(-300, -0.31, 40)
    assert _relative(special.ndtr(special.ndtri(flow.tensor(tails))), tails) < 1e-12
    assert (
        _relative(
            special.erfcx(flow.tensor([1e8, 30.0], dtype=flow.float64)),
            np.array([5.641895835477563e-09, 0.018795888861416751]),
        )
        < 1e-15
    )
    check_gradients(special.log_ndtr, np.array([-30.0, -1.2, -0.9, 0.4, 9.0]), second=True)


@pytest.mark.parametrize("dtype", [flow.float32, flow.float16, flow.bfloat16])
def test_quantiles_of_the_normal_distribution_are_rounded_once(dtype: flow.dtype, contract: KernelContract) -> None:
    tails = flow.tensor(np.linspace(0.001, 0.07, 300), device="cpu").to(dtype)  # CUDA's library computes in float32
    expected = special.ndtri(tails.to(flow.float64)).to(dtype)
    np.testing.assert_array_equal(values(special.ndtri(tails)), values(expected))


def test_incomplete_gamma_functions_everywhere(contract: KernelContract) -> None:
    a = np.array([1.0, 1.0, 3.0, 3.0, 3.0])
    x = np.array([1e-3, 40.0, 0.5, 4.1, 30.0])
    # For a whole number a, the function is a sum of a terms.
    upper = np.array(
        [math.exp(-x) * sum(x**k / math.factorial(k) for k in range(int(a))) for a, x in zip(a, x, strict=True)]
    )
    assert _relative(flow.igammac(flow.tensor(a), flow.tensor(x)), upper) < 1e-14
    # By mpmath with 40 digits: results so small that 1 - igamma has few of them.
    a, x = np.array([1e-9, 2.1209508879201927e-09, 0.05, 0.0999]), np.array([0.5, 2.333045976712212e-09, 1.04, 1e-8])
    upper = np.array([5.597735950695407e-10, 4.093196623930281e-08, 0.010796415806606018, 0.8331059248975328])
    assert _relative(flow.igammac(flow.tensor(a), flow.tensor(x)), upper) < 1e-14
    # For large numbers it is nearly the normal distribution, on both sides of where its formula is another.
    for large in (1e4, 1e6 - 1, 1e6 + 1, 1e10):
        points = large + np.array([-4.0, -0.5, 0.0, 2.0]) * math.sqrt(large)
        lower, higher = [
            values(value(flow.tensor([large], dtype=flow.float64), flow.tensor(points)))
            for value in (flow.igamma, flow.igammac)
        ]
        assert np.abs(lower + higher - 1).max() < 1e-15
        middle = 0.5 + 1 / (3 * math.sqrt(2 * math.pi * large))  # up to a multiple of large ** -1.5
        assert abs(lower[2] - middle) < 0.02 * large**-1.5 + 1e-12
        assert (np.diff(lower) > 0).all()
    ends = [(0.0, 1.0, 1.0), (0.0, 0.0, NAN), (1.0, 0.0, 0.0), (INF, 1.0, 0.0), (1.0, INF, 1.0), (INF, INF, NAN)]
    ends += [(-1.0, 1.0, NAN), (1.0, -1.0, NAN), (NAN, 1.0, NAN), (1.0, NAN, NAN)]
    first, second, expected = (np.array(value) for value in zip(*ends, strict=True))
    check(flow.igamma(flow.tensor(first), flow.tensor(second)), expected, "float64")
    check(flow.igammac(flow.tensor(first), flow.tensor(second)), 1 - expected, "float64")
    for function in (flow.igamma, flow.igammac):
        check_gradients(partial(function, flow.tensor([0.5, 2.0, 30.0]).double()), np.array([0.3, 1.5, 28.0]))
        with pytest.raises(RuntimeError, match="not differentiable with respect to its first operand"):
            function(flow.ones(1, requires_grad=True), flow.ones(1)).backward()


def test_the_zeta_function_of_negative_numbers(contract: KernelContract) -> None:
    s, q = np.array([2.0, 3.0, 3.0, 2.5, 2.0, NAN]), np.array([-0.5, -1.5, -2.0, -0.5, NAN, 1.0])
    expected = [4 + math.pi**2 / 2, -8 / 27 - 8 + 7 * 1.2020569031595942, INF, NAN, NAN, NAN]
    check(special.zeta(flow.tensor(s), flow.tensor(q)), expected, "float64", tolerance=1e-13)
    check_gradients(lambda q: special.zeta(flow.tensor([2.0, 3.5]).double(), q), np.array([0.5, 2.0]), second=True)
    calls: list[Callable[[flow.Tensor], flow.Tensor]] = [
        lambda x: special.zeta(x, 2.0),
        lambda x: special.zeta(x, flow.ones(1)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="zeta is not differentiable with respect to its first operand"):
            call(flow.tensor([2.0], requires_grad=True)).backward()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("count", [-1, -200, 300, 64])
def test_shifts_by_too_many_and_by_negative_numbers_of_bits(dtype: str, count: int, contract: KernelContract) -> None:
    unsigned = dtype in UNSIGNED
    values = [5, 249 if unsigned else -7]
    tensor = flow.tensor(values, dtype=getattr(flow, dtype))
    check(flow.bitwise_left_shift(tensor, count), [0, 0], dtype)
    check(flow.bitwise_right_shift(tensor, count), [0, 0 if unsigned else -1], dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_logit_of_integers_does_not_wrap_around(dtype: str, contract: KernelContract) -> None:
    values = [0, 1] if dtype == "bool" else [0, 1, 3, 100]
    check(flow.logit(flow.tensor(values, dtype=getattr(flow, dtype))), [-INF, INF, NAN, NAN][: len(values)], "float32")


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


def _relative(found: flow.Tensor, expected: Array) -> float:
    have = values(found)
    assert (np.isfinite(have) == np.isfinite(expected)).all()
    error = np.abs(have - expected) / np.maximum(np.abs(expected), 1e-300)
    return float(np.max(np.where(have == expected, 0.0, error)))


FAR = np.concatenate([np.linspace(-26.0, 26.0, 997), np.logspace(-30, 1.4, 99), -np.logspace(-30, 1.4, 99)])


def test_erfc_keeps_its_digits_in_the_tail(contract: KernelContract) -> None:
    assert _relative(flow.erfc(flow.tensor(FAR)), _each(math.erfc)(FAR)) < 2e-15
    check(flow.erfc(flow.tensor([INF, -INF, 100.0, NAN], dtype=flow.float64)), [0.0, 2.0, 0.0, NAN], "float64")


def test_the_inverse_of_the_error_function_near_its_ends(contract: KernelContract) -> None:
    tails = 1 - np.logspace(-15.5, -1, 99)
    found = flow.erfinv(flow.tensor(tails))
    missing = 1 - tails  # exact
    assert np.abs(_each(math.erfc)(values(found)) / missing - 1).max() < 1e-13
    tiny = np.logspace(-300, -9, 30)
    assert _relative(flow.erfinv(flow.tensor(tiny)), tiny * (math.sqrt(math.pi) / 2)) < 1e-15
    ends = flow.tensor([-1.0, 1.0, 1.5, -2.0, NAN], dtype=flow.float64)
    check(flow.erfinv(ends), [-INF, INF, NAN, NAN, NAN], "float64")


def test_the_gamma_function_everywhere(contract: KernelContract) -> None:
    points = np.concatenate([FAR[FAR > 0], np.logspace(1, 300, 99)])
    points = points[(np.abs(points - 1) > 0.02) & (np.abs(points - 2) > 0.02)]  # the C library loses digits there
    assert _relative(flow.lgamma(flow.tensor(points)), _each(math.lgamma)(points)) < 2e-13
    for zero, slope, curve, third in ((1, 0.0, 0.0, 1.0), (2, 1.0, 1.0, 0.0)):
        near = zero + np.logspace(-12, -6, 20)
        x = near - zero  # exact
        series = (
            x * (slope - 0.57721566490153286) + x**2 * (math.pi**2 / 6 - curve) / 2 - x**3 * (0.0673523 + third / 3)
        )
        assert _relative(flow.lgamma(flow.tensor(near)), series) < 1e-13
    left = np.linspace(-20.3, -0.1, 333)
    assert np.abs(values(flow.lgamma(flow.tensor(left))) - _each(math.lgamma)(left)).max() < 1e-12
    poles = flow.tensor([0.0, -1.0, -7.0, INF, -INF, NAN], dtype=flow.float64)
    check(flow.lgamma(poles), [INF, INF, INF, INF, INF, NAN], "float64")
    check(flow.digamma(poles), [-INF, NAN, NAN, INF, NAN, NAN], "float64")
    check(flow.digamma(flow.tensor([-0.0], dtype=flow.float64)), [INF], "float64")


def test_derivatives_of_the_gamma_function_by_reflection(contract: KernelContract) -> None:
    left = np.linspace(-5.3, -0.1, 50)
    for n in (1, 2, 5):
        steps = sum([(-1.0) ** (n + 1) * math.factorial(n) * (left + place) ** -(n + 1.0) for place in range(7)])
        right = values(flow.polygamma(n, flow.tensor(left + 7)))
        assert _relative(flow.polygamma(n, flow.tensor(left)), steps + right) < 1e-12
    steps = -sum([1 / (left + place) for place in range(7)])
    check(
        flow.digamma(flow.tensor(left)), steps + values(flow.digamma(flow.tensor(left + 7))), "float64", tolerance=1e-12
    )
    check(flow.polygamma(1, flow.tensor([0.0, -3.0], dtype=flow.float64)), [INF, INF], "float64")
    check(flow.tensor([1.0]).polygamma(0), [-0.5772156649], "float32")
    check_gradients(lambda x: x.digamma() * x.lgamma(), np.array([-1.3, -0.4, 2.2]), second=True)


# By mpmath with more digits than cancel out.
POLYGAMMA = [
    *[(1, 1e160, 1e-160), (1, 1.7e308, 5.88235294117647e-309), (20, 1e15, -1.2164510040883323e-283)],
    *[(2, -1000.5, -9.98002747002644e-07), (20, -0.5, -487772949462609.9), (20, -1.5, -10709198259.124132)],
    *[(50, -10.5, -24759657233.85829), (50, 1000.0, -6.236181645943134e-88), (100, 0.3, -6.036106975936756e210)],
    *[(100, -10.5, -6.9122173544603244e50), (170, 60.0, -666.0567445274287), (300, 200.0, -9.67249965488944e-79)],
    *[(1000, 500.0, -9.973892361037703e-135), (1000, 1.0, -INF), (1000, -0.25, INF), (300, -0.3, INF)],
]


@pytest.mark.parametrize(("n", "x", "expected"), POLYGAMMA)
def test_polygamma_of_any_order(n: int, x: float, expected: float, contract: KernelContract) -> None:
    found = float(values(flow.polygamma(n, flow.tensor([x], dtype=flow.float64)))[0])
    assert found == pytest.approx(expected, rel=1e-13 + n * 2e-16, abs=0)
    with np.errstate(over="ignore"):
        rounded, single = float(np.float32(expected)), float(np.float32(x))
    if single == x:
        found = float(values(flow.polygamma(n, flow.tensor([x], dtype=flow.float32)))[0])
        assert found == pytest.approx(rounded, rel=1e-6, abs=0)


def test_polygamma_at_the_ends(contract: KernelContract) -> None:
    ends = [INF, -INF, NAN, 0.0, -0.0, -3.0]
    for dtype in ("float32", "float64"):
        x = flow.tensor(ends, dtype=getattr(flow, dtype))
        for n in (1, 2, 7, 100, 1000):
            pole = INF if n % 2 else -INF
            check(flow.polygamma(n, x), [0.0, NAN, NAN, pole, pole, pole], dtype)


def test_the_derivatives_of_polygamma_have_no_limit(contract: KernelContract) -> None:
    for n, x in ((100, 30.0), (170, 60.0), (1000, 500.0)):
        tensor = flow.tensor([x], dtype=flow.float64, requires_grad=True)
        (first,) = flow.autograd.grad(flow.polygamma(n, tensor).sum(), tensor, create_graph=True)
        assert first is not None
        (second,) = flow.autograd.grad(first.sum(), tensor)
        assert second is not None
        # In between, the function is nearly a power.
        step = x * 1e-6
        ends = values(flow.polygamma(n, flow.tensor([x - step, x + step], dtype=flow.float64)))
        assert float(values(first.detach())[0]) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-6, abs=0)
        middle = float(values(flow.polygamma(n, tensor.detach()))[0])
        curve = (ends[1] - 2 * middle + ends[0]) / step**2
        assert float(values(second)[0]) == pytest.approx(curve, rel=1e-2, abs=0)


# By mpmath, as above.
ZETA = [
    *[(1.5, 1e300, 2e-150), (2.0, 1e200, 1e-200), (3.0, -1000.5, 4.99001373501322e-07), (2.0, INF, 0.0)],
    *[(4.0, -1e9 - 0.25, 259.7575760906732), (1.0001, 1e10, 9977.000638226684), (60.0, 20.25, 4.360081783249583e-79)],
    *[(1e300, 0.5, INF), (1e300, 1.0, 1.0), (1e300, 2.0, 0.0), (INF, 0.5, INF), (INF, 1.0, 1.0), (INF, 2.0, 0.0)],
    *[(INF, INF, 0.0), (2.0, -INF, INF), (3.0, -1e15, INF)],
]


@pytest.mark.parametrize(("s", "q", "expected"), ZETA)
def test_the_zeta_function_of_large_numbers(s: float, q: float, expected: float, contract: KernelContract) -> None:
    found = special.zeta(flow.tensor([s], dtype=flow.float64), flow.tensor([q], dtype=flow.float64))
    assert float(values(found)[0]) == pytest.approx(expected, rel=1e-13, abs=0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.polygamma(1.0, x), TypeError, "n must be an integer"),  # type: ignore[arg-type]
        (lambda x: flow.polygamma(-1, x), ValueError, "from 0 to 1000"),
        (lambda x: flow.polygamma(1, x.to(flow.complex64)), TypeError, "not defined for complex64"),
        (lambda x: flow.lgamma(x.to(flow.complex64)), TypeError, "not defined for complex64"),
        (lambda x: flow.heaviside(x, x.double()), TypeError, "expected one dtype"),
        (lambda x: x.heaviside_(x.double()), TypeError, "expected one dtype"),
        (lambda x: flow.nextafter(x.long(), x.long()), TypeError, "not defined for int64"),
        (lambda x: flow.fmax(x, 1.0), TypeError, "expected tensors"),  # type: ignore[arg-type]
        (lambda x: flow.bitwise_left_shift(x, 1), TypeError, "not defined for float32"),
        (lambda x: x.bool() << x.bool(), TypeError, "not defined for bool"),
        (lambda x: flow.copysign(x.to(flow.complex64), 1), TypeError, "not defined for complex64"),
        (lambda x: flow.positive(x.bool()), TypeError, "not defined for bool"),
        (lambda x: x.long().lgamma_(), RuntimeError, "cannot be written in place"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(3))


def test_shifts_as_operators(contract: KernelContract) -> None:
    x = flow.tensor([1, -8, 5])
    check(x << 2, [4, -32, 20], "int64")
    check(x >> 1, [0, -4, 2], "int64")
    check(1 << flow.tensor([1, 2]), [2, 4], "int64")
    check(64 >> flow.tensor([1, 2]), [32, 16], "int64")
    check(x << 64, [0, 0, 0], "int64")
    check(x >> 70, [0, -1, 0], "int64")
    y = x.clone()
    y <<= 2
    y >>= 1
    check(y, [2, -16, 10], "int64")
    check(x.clone().bitwise_left_shift_(1), [2, -16, 10], "int64")
    check(x.clone().bitwise_right_shift_(1), [0, -4, 2], "int64")


def test_corner_cases_of_extrema_and_signs(contract: KernelContract) -> None:
    first = flow.tensor([NAN, 1.0, NAN, 2.0], requires_grad=True)
    second = flow.tensor([1.0, NAN, NAN, 2.0], requires_grad=True)
    check(flow.fmax(first, second), [1.0, 1.0, NAN, 2.0], "float32")
    (first.fmax(second) + first.fmin(second)).sum().backward()
    check(first.grad, [0.0, 2.0, 2.0, 2.0], "float32")
    check(second.grad, [2.0, 0.0, 0.0, 0.0], "float32")
    check(flow.signbit(flow.tensor([-0.0, 0.0, -INF])), [True, False, True], "bool")
    check(flow.copysign(flow.tensor([1.0, 2.0]), -0.0), [-1.0, -2.0], "float32")
    zero = flow.tensor([0.0, -3.0], requires_grad=True)
    zero.copysign(1.0).sum().backward()
    check(zero.grad, [0.0, -1.0], "float32")
    check(flow.nextafter(flow.tensor([1.0, 1.0]), flow.tensor([2.0, 0.0])) - 1, [2.0**-23, -(2.0**-24)], "float32")
    half = flow.tensor([1.0], dtype=flow.bfloat16)
    check(flow.nextafter(half, half * 2) - 1, [2.0**-7], "bfloat16")
    check(flow.heaviside(flow.tensor([NAN, -0.0]), flow.tensor([5.0])), [0.0, 5.0], "float32")
    x = flow.ones(2)
    assert x.positive() is x


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_with_logarithms_are_rounded_once(dtype: str, contract: KernelContract) -> None:
    x = flow.tensor(np.linspace(0.1, 6, 400), dtype=getattr(flow, dtype))
    single = x.float()
    for found, exact in (
        (flow.xlogy(x, x), flow.xlogy(single, single)),
        (flow.xlogy(3, x), flow.xlogy(3, single)),
        (flow.xlogy(x, 3), flow.xlogy(single, 3)),
    ):
        check(found, values(exact.to(x.dtype)), dtype, tolerance=0.0)


def test_products_with_logarithms_at_zero(contract: KernelContract) -> None:
    x = flow.tensor([0.0, 0.0, 2.0, 0.0], requires_grad=True)
    y = flow.tensor([0.0, -1.0, 0.0, NAN], requires_grad=True)
    result = flow.xlogy(x, y)
    check(result, [0.0, 0.0, -INF, NAN], "float32")
    result.sum().backward()
    check(x.grad, [0.0, 0.0, -INF, NAN], "float32")
    check(flow.xlogy(x, 0), [0.0, 0.0, -INF, 0.0], "float32")
    check(flow.autograd.grad(flow.xlogy(x, 0).sum(), x)[0], [0.0, 0.0, -INF, 0.0], "float32")
    check(flow.autograd.grad(flow.xlogy(x, -1).sum(), x)[0], [0.0, 0.0, NAN, 0.0], "float32")
    check(special.entr(flow.tensor([0.0, -1.0, 1.0, NAN])), [0.0, -INF, 0.0, NAN], "float32")
    check(flow.sinc(flow.tensor([0.0, 1e20])), [1.0, 0.0], "float32")
    check_gradients(flow.sinc, np.array([0.0, 1e-4, 0.05, 0.07, 1.0]), second=True)
    both = flow.tensor([-INF], dtype=flow.float64, requires_grad=True)
    flow.logaddexp2(both, both).sum().backward()
    assert both.grad is not None
    assert not values(both.grad).any()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *[(name, ()) for name in ("erfc", "erfinv", "lgamma", "digamma", "sinc", "deg2rad", "rad2deg")],
        ("polygamma", (2,)),
        ("copysign", (-1.0,)),
        ("xlogy", (2.0,)),
    ],
)
def test_in_place_forms(name: str, arguments: tuple[Any, ...], contract: KernelContract) -> None:
    array = np.array([0.2, 0.5, 0.8])
    expected = values(getattr(flow.tensor(array), name)(*arguments))
    tensor = flow.tensor(array)
    assert getattr(tensor, f"{name}_")(*arguments) is tensor
    check(tensor, expected, "float64")
    check_gradients(lambda x: getattr(x * 1, f"{name}_")(*arguments), array)


def test_in_place_forms_without_gradients(contract: KernelContract) -> None:
    x = flow.tensor([-1.0, 0.0, 1.0])
    check(x.clone().heaviside_(flow.full((3,), 0.5)), [0.0, 0.5, 1.0], "float32")
    check(x.clone().hypot_(flow.full((3,), 0.75))[:1], [1.25], "float32")
    check_gradients(lambda x: (x * 1).hypot_(x), np.array([-1.0, 2.0]))
    check(x.clone().nextafter_(flow.full((3,), 9.0))[2:] - 1, [2.0**-23], "float32")


def test_the_module_of_special_functions() -> None:
    names = "erf erfc erfinv exp2 expm1 log1p logsumexp log_softmax softmax digamma psi gammaln xlogy sinc round expit"
    for name in (*names.split(), "logit", "entr", "polygamma"):
        assert callable(getattr(special, name)), name
    assert flow.special is special
    assert special.expit is flow.sigmoid
    check(1.0 / flow.tensor([4.0]), flow.tensor([4.0]).__rdiv__(1.0).numpy(), "float32")
    check(flow.rad2deg(flow.deg2rad(flow.tensor([90, 180]))), [90.0, 180.0], "float32")
