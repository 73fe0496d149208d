"""Running averages: of batch norm's statistics, and of weights."""

from __future__ import annotations

from typing import Final

from vmflow.kernels.cuda.arrays import PACKAGE
from vmflow.kernels.problems.updates import Averages, RunningStatistics
from vmflow.kernels.updates import declares_rule
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import current

from .together import Change, Given, Plan, Row, change_rows, plan_rows

_COUNT: Final = Plan("batches", ("batches",), ("share",), "batches = batches + 1; share = 1.0 / batches;")

_ADVANCE: Final = Change(
    "running_statistics",
    ("running",),
    ("running", "batch"),
    "running = running * real(1 - share) + batch * real(share * factor);",
    "const double share = share_at ? *share_at : share_given;",
    own=("factor",),
    common=(Given("const double*", "share_at"), Given("double", "share_given")),
)


@declares_rule("running_statistics", package=PACKAGE)
def _advance(
    settings: RunningStatistics,
    inputs: list[DeviceArray],
    outputs: list[DeviceArray],
    *,
    skip: DeviceArray | None = None,
) -> None:
    launcher = current()
    share: list[Argument] = [0, 0.0 if settings.momentum is None else float(settings.momentum)]
    if settings.counts:
        planned = plan_rows(launcher, _COUNT, [(outputs[-1],)], skip=skip)
        if settings.momentum is None and planned is not None:
            share[0] = planned
    rows = [
        Row((running, batch), (float(factor),))
        for running, batch, factor in zip(outputs, inputs, settings.factors, strict=False)
    ]
    change_rows(launcher, _ADVANCE, rows, share, skip=skip)


_WEIGH: Final = Plan(
    "average",
    ("taken",),
    ("weight",),
    "weight = taken == 0 ? 1 : plain != 0 ? 1.0 / (taken + 1) : fixed; taken = taken + 1;",
    common=(Given("double", "plain"), Given("double", "fixed")),
)

# With a weight of 1, the average must become exactly the new value, without rounding.
_AVERAGE: Final = Change(
    "average",
    ("mine",),
    ("mine", "theirs"),
    "mine = weight == 1 ? theirs : mine + (theirs - mine) * real(weight);",
    "const double weight = *weight_at;",
    common=(Given("const double*", "weight_at"),),
)

_COPY: Final = Change("copy", ("mine",), ("theirs",), "mine = converted<decltype(mine)>(theirs);")


@declares_rule("average", package=PACKAGE)
def _average(
    settings: Averages, inputs: list[DeviceArray], outputs: list[DeviceArray], *, skip: DeviceArray | None = None
) -> None:
    launcher = current()
    *arrays, number = outputs
    common = [float(settings.weight is None), 0.0 if settings.weight is None else float(settings.weight)]
    weight = plan_rows(launcher, _WEIGH, [(number,)], (), common, skip)
    assert weight is not None
    rows = [Row(pair) for pair in zip(arrays, inputs, strict=True)]
    change_rows(launcher, _AVERAGE, rows[: settings.averaged], [weight], skip=skip)
    change_rows(launcher, _COPY, rows[settings.averaged :], skip=skip)
