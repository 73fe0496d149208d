"""`Spread`: how a tensor is spread over ranks: a placement, and an sbp for each of its axes."""

from __future__ import annotations

from typing import Final, cast, final

from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import MetaTable, TensorMeta, meta

from .placement import placement as Placement
from .sbp import NdSbp, Sbp, broadcast, nd_sbp_of, partial_sum, share

Shape = tuple[int, ...]


@final
class Spread:
    """How a tensor is spread over ranks.  Equal spreads are one object; the function `spread` makes them.

    Attributes:
        placement: the mesh of ranks.
        sbp: one for each axis of the mesh.
    """

    __slots__ = ("placement", "sbp")

    def __init__(self, placement: Placement, sbp: NdSbp) -> None:
        self.placement = placement
        self.sbp = sbp

    def sizes(self, shape: Shape, rank: int, axes: int | None = None) -> Shape:
        """The shape of a rank's part of a tensor of this shape; without elements for a rank outside of the placement.

        Args:
            shape: of the whole tensor.
            rank: the rank.
            axes: how many of the placement's axes are applied, from the first on; all by default.
        """
        here = self.placement.coordinates(rank)
        if here is None:
            return (0,) * max(len(shape), 1)
        sizes = list(shape)
        for axis, sbp in enumerate(self.sbp[:axes]):
            if sbp.is_split:
                sizes[sbp.dim] = share(sizes[sbp.dim], self.placement.shape[axis], here[axis])[1]
        return tuple(sizes)

    def summed(self) -> Spread:
        """The spread with broadcast in place of partial sums."""
        return spread(self.placement, tuple([broadcast if sbp == partial_sum else sbp for sbp in self.sbp]))

    def everywhere(self) -> Spread:
        """The spread with the whole tensor on each rank of the placement."""
        return spread(self.placement, (broadcast,) * len(self.sbp))

    def like(self, shape: Shape, dtype: DType) -> TensorMeta:
        """The meta of a new tensor of this spread, with broadcast in place of partial sums."""
        return global_meta(shape, dtype, self.summed())

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self.sbp))}] over {self.placement!r}"


_SPREADS: dict[tuple[Placement, NdSbp], Spread] = {}
_METAS: Final = MetaTable(1 << 16)


def spread(placement: Placement, sbp: NdSbp) -> Spread:
    """The spread of a placement and its sbps."""
    key = (placement, sbp)
    found = _SPREADS.get(key)
    if found is None:
        found = _SPREADS.setdefault(key, Spread(placement, sbp))
    return found


def global_meta(shape: Shape, dtype: DType, spread: Spread) -> TensorMeta:
    """The meta of a global tensor: shape and dtype of the whole."""
    key = (shape, dtype, spread)
    found = _METAS.metas.get(key)
    if found is None:
        found = TensorMeta(meta(shape, dtype, spread.placement.device).shape, dtype, spread.placement.device)
        found.spread = spread
        found = _METAS.add(key, found)
    return found


def whole_meta(of: TensorMeta) -> TensorMeta:
    """The meta of a local tensor with the shape, dtype and device of `of`."""
    return of if of.spread is None else meta(of.shape, of.dtype, of.device)


def local_meta(of: TensorMeta, rank: int) -> TensorMeta:
    """The meta of a rank's part of a global tensor of meta `of`."""
    return meta(of.spread.sizes(tuple(of.shape), rank), of.dtype, of.device)


def check_sbp(spread: Spread, shape: Shape) -> None:
    """Raise ValueError if a tensor of this shape lacks a dimension that the spread splits."""
    for sbp in spread.sbp:
        if sbp.is_split and sbp.dim >= len(shape):
            raise ValueError(f"{sbp!r}: there is no dimension {sbp.dim} in a tensor of shape {list(shape)}")


def asked_meta(name: str, shape: Shape, dtype: DType, device: object, placement: object, sbp: object) -> TensorMeta:
    """The meta of a new global tensor, by the arguments of a function that makes one.

    Raises:
        TypeError: if `placement` or `sbp` is missing or of another type, or `device` is given, too.
        ValueError: if there is not one sbp for each axis, or the shape lacks a dimension that is to be split.
    """
    if not isinstance(placement, Placement) or sbp is None:
        raise TypeError(f"{name}: a global tensor needs both placement= and sbp=, got {placement!r} and {sbp!r}")
    if device is not None:
        raise TypeError(f"{name}: placement= determines the device of a global tensor; leave out device=")
    asked = spread(placement, nd_sbp_of(cast("Sbp", sbp), len(placement.shape)))
    check_sbp(asked, shape)
    return global_meta(shape, dtype, asked)
