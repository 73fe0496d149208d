"""`placement`: the devices of which ranks a tensor is spread over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from vmflow.devices import device as Device

from .process import current_process


@final
class placement:
    """A mesh of ranks, each of which uses its own device of one type; the name is OneFlow's.

        flow.placement("cpu", ranks=[0, 1])               # two ranks in a row
        flow.placement("cpu", ranks=[[0, 1], [2, 3]])     # a mesh of two axes
        flow.placement.all("cpu")                         # all ranks

    Equal placements are one object.

    Args:
        type: of the devices.
        ranks: nested sequences of ranks, each of them once.

    Attributes:
        type: as given.
        ranks: as given, as an array.
        shape: of the mesh.
        group: the ranks in a row.

    Raises:
        ValueError: for a type that there is not, a rank that there is not, or one that is named twice.
    """

    __slots__ = ("group", "ranks", "shape", "type")

    type: str
    ranks: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    group: tuple[int, ...]

    _known: ClassVar[dict[tuple[str, tuple[int, ...], tuple[int, ...]], placement]] = {}

    def __new__(cls, type: str, ranks: Sequence[Any] | np.ndarray[Any, Any]) -> placement:
        mesh = _mesh(ranks)
        Device(type)
        group = tuple(mesh.reshape(-1).tolist())
        count = current_process().world_size
        for rank in group:
            if not 0 <= rank < count:
                raise ValueError(f"placement: there is no rank {rank}; ranks go from 0 to {count - 1}")
        if len(set(group)) != len(group):
            raise ValueError(f"placement: ranks {list(group)} name one rank twice")
        key = (type, group, mesh.shape)
        found = cls._known.get(key)
        if found is None:
            made = super().__new__(cls)
            made.type, made.ranks, made.shape, made.group = type, mesh, mesh.shape, group
            found = cls._known.setdefault(key, made)
        return found

    @classmethod
    def all(cls, type: str) -> placement:
        """All ranks in a row."""
        return cls(type, range(current_process().world_size))

    def coordinates(self, rank: int) -> tuple[int, ...] | None:
        """Where a rank stands in the mesh; None if it does not."""
        if rank not in self.group:
            return None
        return tuple(map(int, np.unravel_index(self.group.index(rank), self.shape)))

    def row(self, rank: int, axis: int) -> tuple[int, ...]:
        """The ranks that stand where `rank` does but for this axis of the mesh."""
        here = self.coordinates(rank)
        assert here is not None
        index: list[Any] = list(here)
        index[axis] = slice(None)
        return tuple(self.ranks[tuple(index)].tolist())

    @property
    def device(self) -> Device:
        """The device of this rank."""
        return Device(self.type)

    def __reduce__(self) -> tuple[object, ...]:
        return placement, (self.type, self.ranks.tolist())

    def __repr__(self) -> str:
        return f"vmflow.placement(type={self.type!r}, ranks={self.ranks.tolist()})"


def _mesh(ranks: Any) -> np.ndarray[Any, Any]:
    try:
        mesh = np.array(list(ranks) if not isinstance(ranks, np.ndarray) else ranks)
    except (TypeError, ValueError) as error:
        raise ValueError(f"placement: ranks are nested sequences of equal lengths, not {ranks!r}") from error
    if not mesh.size or mesh.dtype.kind not in "iu":
        raise ValueError(f"placement: expected at least one rank, and integers, got {ranks!r}")
    return mesh.astype(np.int64)
