"""Details of losses of class indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType


class Cases(NamedTuple):
    """Scores or log-probabilities seen as a matrix, one row for each target.

    Attributes:
        name: of the loss.
        shape: of the scores.
        axis: the dimension of the classes.
        classes: how many there are, one for each column.
        rows: how many there are, one for each target.
        dtype, compute: that of the scores, and that to compute in.
        ignored: the target that does not count.
        reduction: "mean", "sum" or "none".
        smoothing: how much of the probability is spread evenly over all classes.
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
