"""Boxing: changes how a tensor is spread over ranks.

One axis of the mesh changes at a time, by at most one exchange among the ranks of that axis.  If the placement changes,
each rank gets the elements of its new part from ranks that have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, Final, NamedTuple

from vmflow.instructions import origin
from vmflow.ops.creation.creation import empty, zeros
from vmflow.ops.shape.joining import cat
from vmflow.tensors import Tensor

from .collectives import exchanged, gathered, reduced, scattered_sum
from .process import current_process
from .sbp import NdSbp, Sbp, broadcast, share
from .spread import Shape, Spread, spread as spread_of
from .windows import Window, holders, window_of


class Boxing(NamedTuple):
    """A record of one change of spread; see `record_boxing`.

    Attributes:
        shape: of the whole tensor.
        source, target: the spreads before and after the change.
        nbytes: the estimated bytes that a rank gets from others, on average.
        place: the line of the program that needs the change.

    Raises no errors.

    Example:
        >>> flow.distributed.Boxing._fields
        ('shape', 'source', 'target', 'nbytes', 'place')
    """

    shape: Shape
    source: Spread
    target: Spread
    nbytes: float
    place: str

    def __str__(self) -> str:
        old, new = [", ".join(map(str, spread.sbp)) for spread in (self.source, self.target)]
        return f"{list(self.shape)} from {old} to {new}: {self.nbytes:.0f} bytes, at {self.place}"


_RECORDS: Final[ContextVar[list[Boxing] | None]] = ContextVar("vmflow.boxing", default=None)


@contextmanager
def record_boxing() -> Iterator[list[Boxing]]:
    """A context manager that gives a list of the changes of spread in its block, without those in inner ones.

    Example:
        >>> def program():
        ...     ranks = flow.placement.all("cpu")
        ...     x = flow.ones(4, 2, placement=ranks, sbp=flow.sbp.split(0))
        ...     with flow.distributed.record_boxing() as records:
        ...         x.to_global(sbp=flow.sbp.broadcast)
        ...     return records[0].nbytes
        >>> flow.distributed.simulate(program, ranks=2)  # half of 8 floats each
        [16.0, 16.0]
    """
    records: list[Boxing] = []
    before = _RECORDS.get()
    _RECORDS.set(records)
    try:
        yield records
    finally:
        _RECORDS.set(before)


def boxed(part: Tensor, shape: Shape, source: Spread, target: Spread) -> Tensor:
    """This rank's part of a tensor by the spread `target`, where `part` is this rank's part by the spread `source`.

    The result may share the memory of `part`, on some ranks and not on others.
    All ranks of both placements call this; ranks outside of a placement have a part without elements.
    """
    if source is target:
        return part
    records = _RECORDS.get()
    if records is not None:
        code, last = origin.capture()
        nbytes = cost(shape, part.itemsize, source, target)
        records.append(Boxing(shape, source, target, nbytes, origin.describe(code, last)))
    return _moved(part, shape, source, target)


def _moved(part: Tensor, shape: Shape, source: Spread, target: Spread) -> Tensor:
    """As `boxed`, without a record."""
    if source is target:
        return part
    if source.placement is not target.placement:
        return _elsewhere(part, shape, source, target)
    rank = current_process().rank
    if source.placement.coordinates(rank) is None:
        return _nothing(part, shape)
    now = list(source.sbp)
    for axis, new in _steps(source.sbp, target.sbp):
        part = _change(part, shape, source, now, axis, new)
    return part


def _steps(source: NdSbp, target: NdSbp) -> list[tuple[int, Sbp]]:
    """The steps from one nd-sbp to another on one mesh: pairs of an axis and its new sbp, which it may have already."""
    changing, by_broadcast = _axes(source, target)
    to_broadcast = [(axis, broadcast) for axis in reversed(changing)] if by_broadcast else []
    return to_broadcast + [(axis, target[axis]) for axis in changing]


def cost(shape: Shape, itemsize: int, source: Spread, target: Spread) -> float:
    """The estimated bytes that a rank gets from others for `boxed`, on average."""
    if source is target:
        return 0.0
    nbytes = float(prod(shape) * itemsize)
    if source.placement is not target.placement:
        messages = _messages(shape, source.summed(), target.summed())
        moved = sum([message.window.numel for message in messages if message.giver != message.getter])
        return cost(shape, itemsize, source, source.summed()) + moved * itemsize / len(target.placement.group)
    total = 0.0
    now = list(source.sbp)
    mesh = source.placement.shape
    for axis, new in _steps(source.sbp, target.sbp):
        # Ranks exchange only the part of the tensor that the other axes leave to them.
        held = nbytes / prod([mesh[other] for other, sbp in enumerate(now) if other != axis and sbp.is_split])
        if now[axis] != new:
            total += held * _SHARES[now[axis].kind, new.kind](mesh[axis])
        now[axis] = new
    return total


# By the kinds of the old and new sbp, the share of a tensor that each of `n` ranks gets from the others.
_SHARES: Final[dict[tuple[str, str], Any]] = {
    ("split", "split"): lambda n: (n - 1) / (n * n),
    ("split", "broadcast"): lambda n: (n - 1) / n,
    ("split", "partial_sum"): lambda n: 0.0,
    ("broadcast", "split"): lambda n: 0.0,
    ("broadcast", "partial_sum"): lambda n: 0.0,
    ("partial_sum", "broadcast"): lambda n: 2 * (n - 1) / n,
    ("partial_sum", "split"): lambda n: (n - 1) / n,
}


def _axes(source: NdSbp, target: NdSbp) -> tuple[list[int], bool]:
    """Return the mesh axes whose sbp has to change, and whether all of them must change to broadcast first.

    They must if an outer axis splits, before or after its change, a dimension that an inner axis splits before or
    after; such an inner axis is among them even if its sbp stays.
    """
    changed = [axis for axis, (old, new) in enumerate(zip(source, target, strict=True)) if old != new]
    dims = {axis: {sbp.dim for sbp in (source[axis], target[axis]) if sbp.is_split} for axis in range(len(source))}
    inner = [
        axis
        for axis in range(len(source))
        if axis not in changed and any([outer < axis and dims[outer] & dims[axis] for outer in changed])
    ]
    concerned = sorted(changed + inner)
    shared = any([dims[outer] & dims[axis] for outer in concerned for axis in concerned if outer < axis])
    return (concerned, True) if shared else (changed, False)


def _change(part: Tensor, shape: Shape, spread: Spread, now: list[Sbp], axis: int, new: Sbp) -> Tensor:
    """Return the part after the sbp of one mesh axis changes to `new`; `now`, the present sbps, is updated."""
    old = now[axis]
    if old == new:
        return part
    placement = spread.placement
    rank = current_process().rank
    group = placement.row(rank, axis)
    here = placement.coordinates(rank)
    assert here is not None
    # The shape that the parts of this axis's ranks make together.
    now[axis] = broadcast
    together = spread_of(placement, tuple(now)).sizes(shape, rank)
    now[axis] = new
    return transition(part, together, group, here[axis], old, new)


def transition(part: Tensor, shape: Shape, group: tuple[int, ...], place: int, old: Sbp, new: Sbp) -> Tensor:
    """Change the sbp of one mesh axis, whose ranks are `group`, by at most one exchange; return this rank's new part.

    `shape` is that of the group's parts together, and `place` this rank's index in `group`.
    """
    size = len(group)
    if old == new or size == 1:
        return part
    if old.is_split:
        if new.is_split:
            return _split_to_split(part, shape, group, place, old.dim, new.dim)
        if new.kind == "broadcast":
            return _gather(part, shape, group, old.dim)
        return _padded(part, shape, old.dim, *share(shape[old.dim], size, place))
    if old.kind == "broadcast":
        if new.is_split:
            return _narrowed(part, new.dim, *share(shape[new.dim], size, place)).clone()
        return part if place == 0 else zeros(*_sizes(part), dtype=part.dtype, device=part.device)
    if new.kind == "broadcast":
        return reduced(part, group)
    pieces = [_narrowed(part, new.dim, *share(shape[new.dim], size, other)) for other in range(size)]
    got = scattered_sum(_joined(pieces), group, tuple([piece.numel() for piece in pieces]), "sum")
    return got.reshape(tuple(pieces[place].shape))


def _gather(part: Tensor, shape: Shape, group: tuple[int, ...], dim: int) -> Tensor:
    sizes = [_resized(shape, dim, share(shape[dim], len(group), place)[1]) for place in range(len(group))]
    counts = tuple(map(prod, sizes))
    whole = gathered(part, group, counts)
    return whole.reshape(shape) if dim == 0 else cat(_pieces(whole, counts, sizes), dim)


def _split_to_split(part: Tensor, shape: Shape, group: tuple[int, ...], place: int, old: int, new: int) -> Tensor:
    size = len(group)

    def sizes(giver: int, getter: int) -> Shape:
        given = _resized(shape, old, share(shape[old], size, giver)[1])
        return _resized(given, new, share(shape[new], size, getter)[1])

    pieces = [_narrowed(part, new, *share(shape[new], size, other)) for other in range(size)]
    counts = tuple([prod(sizes(giver, getter)) for giver in range(size) for getter in range(size)])
    got = exchanged(_joined(pieces), group, counts)
    mine = [sizes(giver, place) for giver in range(size)]
    return cat(_pieces(got, tuple(map(prod, mine)), mine), old)


class _Message(NamedTuple):
    """Elements that a rank needs for its part in another placement.

    Attributes:
        giver, getter: the ranks that send and receive the elements, which may be the same.
        window: the ranges of the elements in the whole tensor, one for each dimension.
    """

    giver: int
    getter: int
    window: Window


def _messages(shape: Shape, source: Spread, target: Spread) -> list[_Message]:
    """Return the messages by which each target rank gets its elements: from itself, if that rank has them."""
    needed = []
    parts = holders(source, shape)
    for place, getter in enumerate(target.placement.group):
        wanted = window_of(target, shape, getter)
        for window, ranks in parts.items():
            shared = wanted.shared_with(window)
            if shared is not None:
                # If several ranks have the elements, the getters are distributed among them.
                giver = getter if getter in ranks else ranks[place % len(ranks)]
                needed.append(_Message(giver, getter, shared))
    return needed


def _elsewhere(part: Tensor, shape: Shape, source: Spread, target: Spread) -> Tensor:
    """`boxed` between two placements."""
    rank = current_process().rank
    part = _moved(part, shape, source, source.summed())
    source, wanted = source.summed(), target.summed()
    union = tuple(sorted({*source.placement.group, *target.placement.group}))
    if rank not in union:
        return part
    messages = _messages(shape, source, wanted)
    given = [message for message in messages if message.giver == rank]
    given.sort(key=lambda message: union.index(message.getter))
    mine = window_of(source, shape, rank) if rank in source.placement.group else None
    pieces = [part[mine.slices_of(message.window)].reshape((-1,)) for message in given if mine is not None]
    counts = {(message.giver, message.getter): 0 for message in messages}
    for message in messages:
        counts[message.giver, message.getter] += message.window.numel
    flat = cat(pieces) if pieces else empty(0, dtype=part.dtype, device=part.device)
    matrix = tuple([counts.get((giver, getter), 0) for giver in union for getter in union])
    got = exchanged(flat, union, matrix) if len(union) > 1 else flat
    device = target.placement.device
    if rank not in target.placement.group:
        return _nothing(part, shape).to(device)
    got = got.to(device)
    window = window_of(wanted, shape, rank)
    gotten = [message for message in messages if message.getter == rank]
    gotten.sort(key=lambda message: union.index(message.giver))
    result = empty(*(window.sizes or ((),)), dtype=part.dtype, device=device)
    begin = 0
    for message in gotten:
        count = message.window.numel
        values = got[begin : begin + count].reshape(message.window.sizes)
        result[window.slices_of(message.window)] = values
        begin += count
    return _moved(result, shape, wanted, target)


def _nothing(part: Tensor, shape: Shape) -> Tensor:
    return empty(*(0,) * max(len(shape), 1), dtype=part.dtype, device=part.device)


def _sizes(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape) or ((),)


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _narrowed(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    return tensor[(*[slice(None)] * dim, slice(start, start + length))]


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return cat([piece.reshape((-1,)) for piece in pieces])


def _pieces(flat: Tensor, counts: Sequence[int], sizes: Sequence[Shape]) -> list[Tensor]:
    found: list[Tensor] = []
    begin = 0
    for count, shape in zip(counts, sizes, strict=True):
        found.append(flat[begin : begin + count].reshape(shape))
        begin += count
    return found


def _padded(part: Tensor, shape: Shape, dim: int, start: int, length: int) -> Tensor:
    """Return a tensor of zeros of this shape with the part at `start` to `start + length` of dimension `dim`."""
    before = zeros(*_resized(shape, dim, start), dtype=part.dtype, device=part.device)
    after = zeros(*_resized(shape, dim, shape[dim] - start - length), dtype=part.dtype, device=part.device)
    return cat([before, part, after], dim)
