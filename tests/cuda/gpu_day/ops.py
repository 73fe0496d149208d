"""The stage that compares all ops of the coverage table with the CPU's, and their gradients.

Several processes share the ops, because most of the time goes into compiling kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.cuda import table_cases

from .findings import Findings

# The most important first: where time is short, the last are left out.
DTYPES: Final[tuple[str, ...]] = (
    "float32",
    "bfloat16",
    "int64",
    "float16",
    "bool",
    "complex64",
    "float64",
    "int32",
    "uint8",
)
# Where time is shorter still, only every so many-th op is looked at.
EMULATED_DTYPES: Final = ("float32", "bfloat16", "int64")
EMULATED_STRIDE: Final = 4
QUICK_DTYPES: Final = ("float32",)
QUICK_STRIDE: Final = 32

# Relative, and absolute where values are near 1.
TOLERANCE: Final = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-5, "complex64": 3e-5, "float64": 1e-11}
# Sums in gradients are longer, and half precision is rounded at each op of a formula.
GRADIENT_FACTOR: Final = 4

# Random numbers that logarithms of the device's library decide, and numbers that are computed; other numbers that are
# made are the same to the last bit.
ROUNDED: Final = frozenset(
    {"trunc_normal_", "poisson", "standard_gamma", "orthogonal_", "linspace", "frequencies", "multinomial"}
)


def run(findings: Findings) -> None:
    """See the module."""
    # Extreme numbers are among the operands.
    warnings.simplefilter("ignore")
    task = findings.task
    dtypes, stride = DTYPES, 1
    if task.quick:
        dtypes, stride = QUICK_DTYPES, QUICK_STRIDE
    elif task.emulated:
        dtypes, stride = EMULATED_DTYPES, EMULATED_STRIDE
    names = table_cases.op_names()[::stride][task.shard :: task.shards]
    if not task.begin:
        findings.fact("ops", len(names))
    if not task.shard:
        findings.fact("dtypes", list(dtypes))
        findings.fact("tolerances", {**TOLERANCE, "factor of gradients": GRADIENT_FACTOR})
    for position, case in enumerate(table_cases.cases(dtypes, names)):
        if position < task.begin:
            continue
        findings.position = position
        name = f"{case.op}{case.label} of {case.dtype}"
        with findings.check(name):
            compare(case.results("cuda"), case.results("cpu"), exact=case.drawn and case.op not in ROUNDED)
        if case.graded:
            with findings.check(f"{name}, gradients"):
                compare(case.gradients("cuda"), case.gradients("cpu"), factor=GRADIENT_FACTOR)


def compare(
    found: Sequence[NDArray[np.generic]],
    wanted: Sequence[NDArray[np.generic]],
    *,
    exact: bool = False,
    factor: float = 1.0,
) -> None:
    """Compare arrays of a device with those of the CPU.

    Args:
        found: of the device.
        wanted: of the CPU.
        exact: whether floating-point numbers are equal to the last bit, too.
        factor: by which the tolerance is larger.

    Raises:
        AssertionError: if they differ.
    """
    for have, want in zip(found, wanted, strict=True):
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        kind = want.dtype.kind
        if exact or kind in "biu":
            np.testing.assert_array_equal(have, want)
            continue
        limit = TOLERANCE.get(want.dtype.name, 1e-11) * factor
        wide = "complex128" if kind == "c" else "float64"
        np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=limit, atol=limit)
