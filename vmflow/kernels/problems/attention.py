"""The number of scores of an attention."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """The shape of the scores of an attention: one score for each query and key.

    Attributes:
        leading: the dimensions before the last two, to which those of query, key and value broadcast.
        length, others: the numbers of queries and keys.
    """

    leading: tuple[int, ...]
    length: int
    others: int
