"""The inverse of the normal distribution's cumulative probability.

Rational approximations, whose relative error before rounding is near 1e-16: M. J. Wichura, "Algorithm AS 241: The
Percentage Points of the Normal Distribution", Applied Statistics 37 (1988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Coefficients of numerator and denominator for each region of probabilities, the highest power first.
CENTRE = (
    (
        2509.0809287301226727,
        33430.575583588128105,
        67265.770927008700853,
        45921.953931549871457,
        13731.693765509461125,
        1971.5909503065514427,
        133.14166789178437745,
        3.387132872796366608,
    ),
    (
        5226.495278852854561,
        28729.085735721942674,
        39307.89580009271061,
        21213.794301586595867,
        5394.1960214247511077,
        687.1870074920579083,
        42.313330701600911252,
        1.0,
    ),
)
SIDE = (
    (
        7.7454501427834140764e-4,
        2.27238449892691845833e-2,
        2.4178072517745061177e-1,
        1.27045825245236838258,
        3.64784832476320460504,
        5.7694972214606914055,
        4.6303378461565452959,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.475938084995344946e-4,
        1.51986665636164571966e-2,
        1.4810397642748007459e-1,
        6.8976733498510000455e-1,
        1.6763848301838038494,
        2.05319162663775882187,
        1.0,
    ),
)
TAIL = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.2426609473880784386e-3,
        2.6532189526576123093e-2,
        2.9656057182850489123e-1,
        1.7848265399172913358,
        5.4637849111641143699,
        6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15,
        1.4215117583164458887e-7,
        1.8463183175100546818e-5,
        7.868691311456132591e-4,
        1.4875361290850615025e-2,
        1.3692988092273580531e-1,
        5.9983220655588793769e-1,
        1.0,
    ),
)


def normal_quantile(probability: NDArray[Any]) -> NDArray[Any]:
    """Return, in float64, the values below which a standard normal variable lies with the given probabilities."""
    probability = np.asarray(probability, np.float64)
    centred = probability - 0.5
    with np.errstate(all="ignore"):
        outer = np.sqrt(-np.log(0.5 - np.abs(centred)))
        # Below 0.5 the logarithm is that of p itself: 0.5 - |p - 0.5| loses digits of a small p.
        lower = np.sqrt(-np.log(probability))
        outer = np.where(centred < 0, lower, outer)
        centre = ratio(0.180625 - centred * centred, *CENTRE) * centred
        side = np.where(outer <= 5.0, ratio(outer - 1.6, *SIDE), ratio(outer - 5.0, *TAIL))
        side = np.where(np.isinf(outer), np.inf, side)
        result = np.where(np.abs(centred) <= 0.425, centre, np.copysign(side, centred))
    return np.asarray(result)


def ratio(x: NDArray[Any], numerator: tuple[float, ...], denominator: tuple[float, ...]) -> NDArray[Any]:
    """Compute the ratio of two polynomials at `x`, of floating dtype.

    Each polynomial is given by two or more coefficients, from the highest power down.
    """
    top = x * numerator[0]
    for coefficient in numerator[1:-1]:
        top += coefficient
        top *= x
    top += numerator[-1]
    bottom = x * denominator[0]
    for coefficient in denominator[1:-1]:
        bottom += coefficient
        bottom *= x
    bottom += denominator[-1]
    top /= bottom
    return top
