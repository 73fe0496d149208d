"""Details of losses of class indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType


class Cases(NamedTuple):
    """Scores or log-probabilities as a matrix, one row for each target.

    Attributes:
        name: of the loss.
        shape: of the scores.
        axis: the dimension of the classes.
        classes: their number, one for each column.
        rows: their number, one for each target.
        dtype, compute: that of the scores, and that to compute in.
        ignored: the target that does not count.
        reduction: "mean", "sum" or "none".
        smoothing: the share of the probability that is spread evenly over all classes.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    classes: int
    rows: int
    dtype: DType
    compute: DType
    ignored: int
    reduction: str
    smoothing: float
