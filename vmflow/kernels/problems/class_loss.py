"""The details of losses of class indices, such as cross entropy, for their kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmflow.dtypes import dtype as DType


class Cases(NamedTuple):
    """A loss of class indices: scores or log-probabilities as a matrix, one row for each target.

    Attributes:
        name: the name of the loss, for error messages.
        shape: the shape of the scores.
        axis: the dimension of the scores that counts the classes.
        classes: the number of classes, the matrix's columns.
        rows: the number of targets, the matrix's rows.
        dtype: the dtype of the scores.
        compute: the dtype to compute in.
        ignored: the class index whose targets do not count.
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
