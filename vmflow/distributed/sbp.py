"""``vmflow.sbp``: how a tensor is spread over the ranks of one axis of a mesh.

*split(d)*: each rank has a part of the tensor along dimension d.  *broadcast*: each has the whole tensor.
*partial_sum*: each has a summand of the tensor.  The names are OneFlow's.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

from vmflow.arguments import is_integer


@final
class Sbp:
    """How one axis of a mesh spreads a tensor: `broadcast`, `partial_sum`, or a result of `split`.

    Attributes:
        kind: "split", "broadcast" or "partial_sum".
        dim: the dimension that is split; -1 for the other kinds.
    """

    __slots__ = ("dim", "kind")

    def __init__(self, kind: str, dim: int = -1) -> None:
        self.kind = kind
        self.dim = dim

    @property
    def is_split(self) -> bool:
        """Whether this sbp splits a dimension."""
        return self.kind == "split"

    def __call__(self) -> Sbp:
        """Return this sbp itself, for programs that write ``sbp.broadcast()``."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sbp) and (self.kind, self.dim) == (other.kind, other.dim)

    def __hash__(self) -> int:
        return hash((self.kind, self.dim))

    def __reduce__(self) -> tuple[object, ...]:
        return Sbp, (self.kind, self.dim)

    def __repr__(self) -> str:
        return f"vmflow.sbp.split(dim={self.dim})" if self.is_split else f"vmflow.sbp.{self.kind}"

    def __str__(self) -> str:
        return {"broadcast": "B", "partial_sum": "P"}.get(self.kind, f"S({self.dim})")


broadcast: Final = Sbp("broadcast")
partial_sum: Final = Sbp("partial_sum")

# One sbp for each axis of the mesh.
NdSbp: TypeAlias = tuple[Sbp, ...]


def split(dim: int) -> Sbp:
    """Split along a dimension, counted from the front; if the parts are uneven, the first ranks have the larger ones.

    Raises:
        ValueError: if the dimension is negative, a bool or no integer.
    """
    if not is_integer(dim) or dim < 0:
        raise ValueError(f"sbp.split: a dimension is an integer from 0 on, not {dim!r}")
    return Sbp("split", operator.index(dim))


def nd_sbp_of(sbp: Sbp | Sequence[Sbp], axes: int) -> NdSbp:
    """The user's sbp, or sequence of sbps, as a tuple with one for each of `axes` axes of a mesh.

    Raises:
        TypeError: if `sbp` is neither an sbp nor an iterable of sbps.
        ValueError: if there is not one sbp for each axis.
    """
    sbps: tuple[Any, ...] = (sbp,) if isinstance(sbp, (Sbp, str)) or not hasattr(sbp, "__iter__") else tuple(sbp)
    for each in sbps:
        if not isinstance(each, Sbp):
            raise TypeError(f"expected sbp.split(dim), sbp.broadcast or sbp.partial_sum, got {each!r}")
    if len(sbps) != axes:
        raise ValueError(f"expected an sbp for each of {axes} axes of the placement, got {len(sbps)}")
    return sbps


def share(size: int, parts: int, place: int) -> tuple[int, int]:
    """The begin and the length of part number `place`, if `size` elements are split into `parts` parts."""
    least, more = divmod(size, parts)
    return place * least + min(place, more), least + (place < more)
