"""Loss scaling: gradients are divided by the scale, the scale is adapted, and updates are skipped after an overflow."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.cuda.sources import STORED, CudaKernel
from vmflow.kernels.problems.updates import AdaptScale, Unless
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import current

from .folding import LARGEST, Fold, fold
from .together import Change, Given, Row, change_rows, parts_of

_FOUND: Final = Fold("found", LARGEST, "total")


@declares_rule("unscale", package=PACKAGE)
def _divide(inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None) -> None:
    launcher = current()
    (scale,), (found, *gradients) = inputs, outputs
    change = LARGEST.of_rows(
        "unscale",
        ("array",),
        "array = kept_array(array * inverse); total = combine(total, array - array == 0 ? 0 : 1);",
        (Given(f"const {STORED[scale.dtype.name]}*", "scale"),),
        "const real inverse = kept_array(1 / converted<double>(*scale));",
        ("array",),
    )
    rows = [Row((gradient,)) for gradient in gradients]
    partial = launcher.scratch((sum(parts_of(change, rows)),), np.dtype(np.float64))
    change_rows(launcher, change, rows, [scale], None, partial, skip)
    fold(launcher, _FOUND, partial, found, (), skip)


_COPY: Final = Change("copy", ("out",), ("given",), "out = converted<decltype(out)>(given);")


@declares_rule("assign", package=PACKAGE)
def _assign(inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None) -> None:
    change_rows(current(), _COPY, [Row(pair) for pair in zip(outputs, inputs, strict=True)], skip=skip)


@declares_rule("adapt_scale", package=PACKAGE)
def _adapt(
    settings: AdaptScale, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    dtypes = tuple([array.dtype.name for array in (*outputs, *inputs)])
    numbers = float(settings.growth), float(settings.backoff), int(settings.interval)
    arguments = [*outputs, 0 if skip is None else skip, *numbers, *inputs]
    _adapting(dtypes, None if skip is None else skip.dtype.name).launch(current(), 1, arguments, threads=1)


@lru_cache(16)
def _adapting(dtypes: tuple[str, ...], skip: str | None) -> CudaKernel:
    scale, tracker, *findings = [STORED[dtype] for dtype in dtypes]
    given = "".join([f", const {kind}* found{place}" for place, kind in enumerate(findings)])
    bad = " || ".join([f"converted<bool>(*found{place})" for place in range(len(findings))])
    source = f"""
extern "C" __global__ void adapt_scale({scale}* scale, {tracker}* tracker, const {STORED[skip or "float32"]}* skip,
                                       double growth, double backoff, int64 interval{given}) {{
    {"" if skip is None else "if (converted<bool>(*skip)) return;"}
    if ({bad or "false"}) {{
        *scale = *scale * ({scale})backoff;
        *tracker = 0;
        return;
    }}
    const int64 row = (int64)*tracker + 1;
    *tracker = row >= interval ? 0 : row;
    const float grown = (float)((double)*scale * growth);
    if (row >= interval && grown - grown == 0) *scale = (double)*scale * growth;
}}
"""
    return CudaKernel("adapt_scale", source, (0, 1))


@declares_rule("unless", package=PACKAGE)
def _unless(settings: Unless, inputs: list[DeviceArray], outputs: list[DeviceArray]) -> None:
    skip, *others = inputs
    settings.kernel(others, outputs, skip=skip)
