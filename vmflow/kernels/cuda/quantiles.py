"""The quantiles of the normal distribution in CUDA C++; see `vmflow.kernels.numpy.normal_quantile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vmflow.kernels.numpy.normal_quantile import CENTRE, SIDE, TAIL


def _polynomial(coefficients: Sequence[float]) -> str:
    """Return a polynomial of `x` as a C++ expression; the coefficient of the highest power comes first."""
    found = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        found = f"({found} * x + {coefficient!r})"
    return found


def _ratio(name: str, polynomials: tuple[Sequence[float], Sequence[float]]) -> str:
    top, bottom = map(_polynomial, polynomials)
    return f"__device__ __forceinline__ double {name}(double x) {{ return {top} / {bottom}; }}\n"


NORMAL_QUANTILE: Final = f"""
{_ratio("quantile_in_centre", CENTRE)}{_ratio("quantile_beside", SIDE)}{_ratio("quantile_in_tail", TAIL)}
__device__ __forceinline__ double normal_quantile(double probability) {{
    const double centred = probability - 0.5;
    if (fabs(centred) <= 0.425) return quantile_in_centre(0.180625 - centred * centred) * centred;
    // Computed from the probability itself if it is small: 0.5 - |p - 0.5| has lost its last digits.
    const double distance = sqrt(-log(centred < 0 ? probability : 0.5 - fabs(centred)));
    double size = distance <= 5.0 ? quantile_beside(distance - 1.6) : quantile_in_tail(distance - 5.0);
    if (isinf(distance)) size = distance;
    return copysign(size, centred);
}}
"""
