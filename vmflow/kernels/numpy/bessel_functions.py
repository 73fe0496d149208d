"""Modified Bessel functions of the first kind, of orders 0 and 1, and these times ``exp(-|x|)``.

They are computed in float64 for all dtypes, and rounded once.  Numbers in brackets are formulas of the
NIST's Digital Library of Mathematical Functions (https://dlmf.nist.gov).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from vmflow.instructions.blob import Array

from .special import polynomial
from .tiles import in_tiles
from .ufuncs import computes

# Up to this |x|, the power series (10.25.2) is used, all of whose terms are positive; beyond, the terms of the
# asymptotic series (10.40.1) fall below the last bit before they grow again.
BEYOND: Final = 18.0


def series(order: int) -> tuple[float, ...]:
    """Return the coefficients of ``I(x) / (x / 2) ** order`` by powers of ``x * x / 4``, highest power first."""
    return tuple([1 / (math.factorial(k) * math.factorial(k + order)) for k in range(52)])[::-1]


def asymptotic(order: int) -> tuple[float, ...]:
    """Return the coefficients of ``I(x) * exp(-x) * sqrt(2 * pi * x)`` by powers of ``1 / x``, highest power first."""
    coefficients = [1.0]
    for k in range(1, 31):
        coefficients.append(coefficients[-1] * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k))
    return tuple(coefficients)[::-1]


def _step(order: int, scaled: bool) -> Callable[[Array, Array, Array], None]:
    near, far = series(order), asymptotic(order)

    def step(x: Array, out: Array, size: Array) -> None:
        np.abs(x, size)
        result = np.empty_like(size)
        inside = size <= BEYOND
        within, outside = inside.nonzero()[0], (~inside).nonzero()[0]
        part = size[within]
        found = polynomial(part * part * 0.25, near) * (part * 0.5) ** order
        result[within] = found * np.exp(-part) if scaled else found
        part = size[outside]
        found = polynomial(1.0 / part, far) / np.sqrt(part) * (1 / math.sqrt(2 * math.pi))
        if not scaled:
            # Multiplied twice by exp(|x| / 2), since exp(|x|) overflows before the function does.
            growth = np.exp(part * 0.5)
            found = np.where(part == np.inf, np.inf, found * growth * growth)
        result[outside] = found
        if order % 2:
            np.copysign(result, x, out)
        else:
            np.copyto(out, result)

    return step


for _order in (0, 1):
    computes(f"i{_order}")(in_tiles(_step(_order, False), 1, single=False))
    computes(f"i{_order}e")(in_tiles(_step(_order, True), 1, single=False))
