"""The details of the op attention for its kernels: the numbers of queries and keys."""

from __future__ import annotations

from typing import NamedTuple


class Extent(NamedTuple):
    """The shape of attention scores: (*leading, length, others), one for each query and key.

    Attributes:
        leading: the shape to which the leading dimensions of query, key and value broadcast.
        length, others: the numbers of queries and of keys.
    """

    leading: tuple[int, ...]
    length: int
    others: int
