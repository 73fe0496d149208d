"""``vmflow.sbp``: how a tensor is spread over the ranks of one axis of a mesh.

*split(d)*: each rank has a part of dimension d.  *broadcast*: each has all of it.  *partial_sum*: the tensor is the
sum of what they have.  The names are OneFlow's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, final


@final
class Sbp:
    """One of the three; made by `split`, and as `broadcast` and `partial_sum`.

    Attributes:
        kind: "split", "broadcast" or "partial_sum".
        dim: of a split one; -1 of others.
    """

    __slots__ = ("dim", "kind")

    def __init__(self, kind: str, dim: int = -1) -> None:
        self.kind = kind
        self.dim = dim

    @property
    def is_split(self) -> bool:
        """Whether it is split along a dimension."""
        return self.kind == "split"

    def __call__(self) -> Sbp:
        """Itself, for programs that write ``sbp.broadcast()``."""
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

# One for each axis of the mesh.
NdSbp: TypeAlias = tuple[Sbp, ...]


def split(dim: int) -> Sbp:
    """Split along a dimension, counted from the front; the first ranks have one more where it does not come out even.

    Raises:
        ValueError: for a negative dimension, or something that is no integer.
    """
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 0:
        raise ValueError(f"sbp.split: a dimension is an integer from 0 on, not {dim!r}")
    return Sbp("split", dim)


def nd_sbp_of(sbp: Sbp | Sequence[Sbp], axes: int) -> NdSbp:
    """One for each of so many axes, from what a user gives.

    Raises:
        TypeError: if something else is given.
        ValueError: if there is not one for each axis.
    """
    given = (sbp,) if isinstance(sbp, Sbp) else tuple(sbp)
    for each in given:
        if not isinstance(each, Sbp):
            raise TypeError(f"expected sbp.split(dim), sbp.broadcast or sbp.partial_sum, got {each!r}")
    if len(given) != axes:
        raise ValueError(f"expected an sbp for each of {axes} axes of the placement, got {len(given)}")
    return given


def share(size: int, parts: int, place: int) -> tuple[int, int]:
    """Where the part of a rank begins, and how long it is, of `size` that is split into so many parts."""
    least, more = divmod(size, parts)
    return place * least + min(place, more), least + (place < more)
