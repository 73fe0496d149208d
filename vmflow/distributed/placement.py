"""`placement`: the ranks over whose devices a tensor is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np

from vmflow.devices import device as Device

from .process import current_process


@final
class placement:
    """A mesh of ranks, each of which uses a device of one type.

    Equal placements are one object.

    Args:
        type: of the devices.
        ranks: nested sequences of ranks, each of them once.

    Attributes:
        type: as given.
        ranks: as a read-only array.
        shape: of the mesh.
        group: all ranks as a flat tuple.

    Raises:
        ValueError: for a type that is unknown or has an index, a rank that is no integer, does not exist or occurs
            twice, no ranks, or ranks that are no mesh.

    Example:
        >>> def program():
        ...     return flow.placement("cpu", ranks=[[0, 1], [2, 3]]).shape, flow.placement.all("cpu").group
        >>> flow.distributed.simulate(program, ranks=4)[0]
        ((2, 2), (0, 1, 2, 3))
    """

    __slots__ = ("group", "ranks", "shape", "type")

    type: str
    ranks: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    group: tuple[int, ...]

    _known: ClassVar[dict[tuple[str, tuple[int, ...], tuple[int, ...]], placement]] = {}

    def __new__(cls, type: str, ranks: Sequence[Any] | np.ndarray[Any, Any]) -> placement:
        mesh = _mesh(ranks)
        if not isinstance(type, str) or ":" in type:
            raise ValueError(f"placement: expected a type of devices, such as 'cpu', not {type!r}")
        Device(type)
        group = tuple(mesh.reshape(-1).tolist())
        count = current_process().world_size
        for rank in group:
            if not 0 <= rank < count:
                raise ValueError(f"placement: there is no rank {rank}; ranks go from 0 to {count - 1}")
        if len(set(group)) != len(group):
            raise ValueError(f"placement: ranks {list(group)} name one rank twice")
        key = (type, group, mesh.shape)
        known = cls._known.get(key)
        if known is None:
            new = super().__new__(cls)
            new.type, new.ranks, new.shape, new.group = type, mesh, mesh.shape, group
            known = cls._known.setdefault(key, new)
        return known

    @classmethod
    def all(cls, type: str) -> placement:
        """The placement of all ranks, a mesh of one axis."""
        return cls(type, range(current_process().world_size))

    def coordinates(self, rank: int) -> tuple[int, ...] | None:
        """The coordinates of a rank in the mesh; None for a rank outside of the mesh."""
        if rank not in self.group:
            return None
        return tuple(map(int, np.unravel_index(self.group.index(rank), self.shape)))

    def row(self, rank: int, axis: int) -> tuple[int, ...]:
        """The ranks whose coordinates differ from those of `rank` at most in this axis of the mesh."""
        here = self.coordinates(rank)
        assert here is not None
        index: list[Any] = list(here)
        index[axis] = slice(None)
        return tuple(self.ranks[tuple(index)].tolist())

    @property
    def device(self) -> Device:
        """The device that the calling rank uses."""
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
    mesh = mesh.astype(np.int64)
    mesh.setflags(write=False)  # equal placements share it
    return mesh
