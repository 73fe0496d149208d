"""Loads, stores and conversions of addresses in all state spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from .faults import DataRace, IllegalAccess, Place
from .groups import Group
from .lowering import Lowering, Operation, Source, Target, read, scalar_of, write
from .memory import CONSTANT_WINDOW, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW, Piece, locate_private
from .races import TIME, Conflict, thread_of
from .statements import Address, Immediate, Instruction, Operand, Register, Vector
from .types import SCALARS, Array, Scalar

Locate = Callable[[Group, Array, int, Place, bool], list[Piece]]

_SPACES: Final = ("global", "shared", "local", "const", "param")


def space_of(instruction: Instruction) -> str:
    """The state space that an instruction's modifiers name; "generic" if none."""
    for word in instruction.modifiers:
        name = word.partition("::")[0]
        if name in _SPACES:
            return name
    return "generic"


def vector_of(instruction: Instruction) -> int:
    """The number of elements that each thread loads or stores."""
    return next((int(word[1:]) for word in instruction.modifiers if word in ("v2", "v4", "v8")), 1)


# The state spaces of addresses


def _global(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    return group.batch.launch.memory.locate(group, addresses, size, place, store)


def _shared(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    batch = group.batch
    extent, stride = batch.launch.shared_bytes, batch.launch.shared_stride
    bases = group.blocks * stride if batch.blocks > 1 else np.zeros(1, np.int64)
    return locate_private(group, addresses, size, place, batch.shared, extent, bases, "shared")


def _local(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    batch = group.batch
    extent, stride = batch.launch.local_bytes, batch.launch.local_stride
    return locate_private(group, addresses, size, place, batch.local, extent, group.lanes * stride, "local")


def _parameter(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    area = group.batch.launch.parameters
    found = locate_private(group, addresses, size, place, area, area.size, np.zeros(1, np.int64), "parameter")
    if store:
        address = int(addresses[0])
        reason = f"writes {size} bytes at {address:#x} of parameter memory, which is read-only"
        raise group.fault(IllegalAccess, place, [0], reason, address=address)
    return found


_WINDOWS: Final[tuple[tuple[int, Locate], ...]] = (
    (SHARED_WINDOW, _shared),
    (LOCAL_WINDOW, _local),
    (PARAMETER_WINDOW, _parameter),
)


def _generic(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    if int(np.maximum.reduce(addresses)) < SHARED_WINDOW:
        return _global(group, addresses, size, place, store)
    low = int(np.minimum.reduce(addresses))
    for start, locate in _WINDOWS:
        if low >= start and int(np.maximum.reduce(addresses)) < start + WINDOW:
            return locate(group, addresses - np.uint64(start), size, place, store)
    return _mixed(group, group.spread(addresses), size, place, store)


def _mixed(group: Group, addresses: Array, size: int, place: Place, store: bool) -> list[Piece]:
    """Split an access by generic addresses into pieces by state space; addresses outside of windows count as global."""
    windows = addresses >> np.uint64(32)
    pieces: list[Piece] = []
    bounds = {start >> 32: (start, locate) for start, locate in _WINDOWS}
    which = np.where(np.isin(windows, np.array(list(bounds), np.uint64)), windows, 0)
    for window in np.unique(which).tolist():
        start, locate = bounds.get(window, (0, _global))
        positions = np.flatnonzero(which == window)
        part = group.part(positions, (), group.pc)
        for piece in locate(part, addresses[positions] - np.uint64(start), size, place, store):
            inner = positions if piece.positions is None else positions[piece.positions]
            offsets = np.broadcast_to(piece.offsets, inner.shape)
            pieces.append(Piece(piece.area, offsets, inner))
    return pieces


LOCATE: Final[dict[str, Locate]] = {
    "global": _global,
    "const": _global,
    "shared": _shared,
    "local": _local,
    "param": _parameter,
    "generic": _generic,
}


# Races


def stamps_of(group: Group, piece: Piece, size: int) -> tuple[Array, Array, Array | int]:
    """The arguments of `Shadow.read`, `write` and `atomic` for an access: pieces, stamps and floors."""
    area = piece.area
    clock = group.batch.launch.clock
    stamps = group.identities | (clock.now << TIME)
    floors: Array | int = group.floors() if area is group.batch.shared else 1
    if piece.positions is not None:
        stamps = stamps[piece.positions]
        floors = floors if isinstance(floors, int) else floors[piece.positions]
    offsets = piece.offsets if len(piece.offsets) == len(stamps) else np.broadcast_to(piece.offsets, stamps.shape)
    pieces = area.pieces(offsets, size)
    times = len(pieces) // max(len(stamps), 1)
    if times > 1:
        stamps = np.repeat(stamps, times)
        floors = floors if isinstance(floors, int) else np.repeat(floors, times)
    return pieces, stamps, floors


def raise_race(group: Group, piece: Piece, size: int, place: Place, doing: str, conflict: Conflict) -> None:
    """Raise a DataRace for a conflict that `Shadow` has found among the results of `stamps_of`."""
    times = max(size // piece.area.granule, 1)
    position = conflict.position // times
    offset = int(piece.offsets[position if len(piece.offsets) > 1 else 0])
    lane = position if piece.positions is None else int(piece.positions[position])
    earlier = thread_of(conflict.stamp)
    user = "one of several threads" if earlier is None else str(group.batch.launch.thread(*earlier))
    if piece.area is group.batch.shared:
        where = f"byte {offset % group.batch.launch.shared_stride} of shared memory"
        remedy = "no barrier comes in between"
    else:
        where = f"byte {offset} of {piece.area.name} ({piece.area.start + offset:#x})"
        remedy = "nothing orders them within the launch"
    verbs = {"read": "has read", "write": "has written", "atomic": "has accessed atomically"}
    reason = f"{doing} {where}, which {user} {verbs[conflict.earlier]}: {remedy}"
    raise group.fault(DataRace, place, [lane], reason)


def _note_read(group: Group, piece: Piece, size: int, place: Place) -> None:
    area = piece.area
    area.traffic.count_read(size * (group.count if piece.positions is None else len(piece.positions)))
    if area.shadow is not None:
        conflict = area.shadow.read(*stamps_of(group, piece, size))
        if conflict is not None:
            raise_race(group, piece, size, place, "reads", conflict)


def _store(group: Group, piece: Piece, values: Array, count: int, place: Place) -> None:
    """Write values to an area; then, if races are sought, raise a DataRace for an unordered access.

    Unless the launch is strict, a write to global memory does not race if the same value is there already, or if it
    meets only equal writes of the same instruction.
    """
    area = piece.area
    size = values.dtype.itemsize * count
    threads = group.count if piece.positions is None else len(piece.positions)
    area.traffic.count_written(size * threads)
    if piece.positions is not None and len(values) > 1:
        values = values[piece.positions]
    if len(piece.offsets) == 1 and threads > 1:
        piece = piece._replace(offsets=np.broadcast_to(piece.offsets, (threads,)))
    if area.shadow is None:
        area.store(piece.offsets, values, count)
        return
    values = np.broadcast_to(values, (threads, *values.shape[1:]))
    strict = area is group.batch.shared or group.batch.launch.strict
    written, wanted = (piece, values) if strict else _changed(piece, values, count)
    area.store(piece.offsets, values, count)
    if len(written.offsets):
        _note_write(group, written, size, place, strict, wanted, count)


def _changed(piece: Piece, values: Array, count: int) -> tuple[Piece, Array]:
    """Reduce a piece and its values to the accesses by threads whose values differ from the memory's content."""
    different = piece.area.load(piece.offsets, values.dtype, count) != values
    if count > 1:
        different = different.any(axis=1)
    if different.all():
        return piece, values
    positions = np.flatnonzero(different)
    outer = positions if piece.positions is None else piece.positions[positions]
    return Piece(piece.area, piece.offsets[positions], outer), values[positions]


def _note_write(group: Group, piece: Piece, size: int, place: Place, strict: bool, values: Array, count: int) -> None:
    shadow = piece.area.shadow
    assert shadow is not None
    pieces, stamps, floors = stamps_of(group, piece, size)
    conflict = shadow.write(pieces, stamps, floors)
    if conflict is not None:
        raise_race(group, piece, size, place, "writes", conflict)
    lost = shadow.collisions(pieces, stamps)
    if len(lost) and not strict:
        times = len(pieces) // len(piece.offsets)
        threads = lost // times
        different = piece.area.load(piece.offsets[threads], values.dtype, count) != values[threads]
        lost = lost[different.any(axis=1) if count > 1 else different]
    if len(lost):
        position = int(lost[0])
        stamp = shadow.last_writer(int(pieces[position]))
        raise_race(group, piece, size, place, "writes", Conflict(position, "write", stamp))


# Instructions


def address_source(lowering: Lowering, operand: Operand) -> tuple[Source, int]:
    """The register that holds an address, and the offset to add to its content."""
    if not isinstance(operand, Address):
        raise lowering.unsupported("an address is expected here")
    scalar = SCALARS["u64"]
    if operand.base is None:
        return lowering.source(Immediate(operand.offset), scalar), 0
    if lowering.names.slot(operand.base) is None:
        return lowering.source(operand, scalar), 0
    return lowering.source(Register(operand.base), scalar), operand.offset


def read_address(group: Group, source: Source, offset: np.uint64) -> Array:
    """The addresses of all threads."""
    addresses = read(group, source)
    return addresses + offset if offset else addresses


def wrapped(offset: int) -> np.uint64:
    """Return an offset, which may be negative, as an unsigned number to be added to addresses."""
    return np.uint64(offset & 0xFFFFFFFFFFFFFFFF)


def _typed(lowering: Lowering, instruction: Instruction) -> Scalar:
    scalar = scalar_of(instruction.modifiers)
    if scalar is None:
        raise lowering.unsupported("an access of this type is not known")
    return scalar


def _elements(lowering: Lowering, operand: Operand, count: int) -> tuple[Operand, ...]:
    found = operand.parts if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise lowering.unsupported(f"an access to {count} elements has {len(found)} operands for them")
    return found


def lower_load(lowering: Lowering, instruction: Instruction) -> Operation:
    """``ld``, ``ldu``."""
    scalar, count = _typed(lowering, instruction), vector_of(instruction)
    source, offset = address_source(lowering, instruction.operands[1])
    targets = [lowering.target(operand, scalar) for operand in _elements(lowering, instruction.operands[0], count)]
    locate, place = LOCATE[space_of(instruction)], instruction.place
    size, dtype, step = scalar.size * count, scalar.dtype, wrapped(offset)

    def run(group: Group) -> None:
        pieces = locate(group, read_address(group, source, step), size, place, False)
        if len(pieces) == 1 and pieces[0].positions is None:
            values = pieces[0].area.load(pieces[0].offsets, dtype, count)
        else:
            values = np.empty((group.count, count) if count > 1 else group.count, dtype)
            for piece in pieces:
                values[piece.positions] = piece.area.load(piece.offsets, dtype, count)
        for piece in pieces:
            _note_read(group, piece, size, place)
        if count == 1:
            write(group, targets[0], values)
        else:
            _write_columns(group, targets, values)

    return run


def _write_columns(group: Group, targets: Sequence[Target | None], values: Array) -> None:
    for column, target in zip(np.ascontiguousarray(values.T), targets, strict=True):
        write(group, target, column)


def lower_store(lowering: Lowering, instruction: Instruction) -> Operation:
    """``st``."""
    scalar, count = _typed(lowering, instruction), vector_of(instruction)
    source, offset = address_source(lowering, instruction.operands[0])
    values = [lowering.bits(operand, scalar) for operand in _elements(lowering, instruction.operands[1], count)]
    locate, place = LOCATE[space_of(instruction)], instruction.place
    size, step = scalar.size * count, wrapped(offset)

    def run(group: Group) -> None:
        pieces = locate(group, read_address(group, source, step), size, place, True)
        if count == 1:
            stored = read(group, values[0])
        else:
            stored = np.stack(np.broadcast_arrays(*[read(group, value) for value in values]), axis=1)
        for piece in pieces:
            _store(group, piece, stored, count, place)

    return run


def lower_cvta(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """Lower ``cvta``, which converts between generic addresses and those of a state space."""
    start = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}.get(space_of(instruction), 0)
    step = wrapped(-start if "to" in instruction.modifiers else start)
    scalar = SCALARS["u64"]
    target, source = instruction.operands

    def shift(addresses: Array) -> Array:
        return addresses + step if step else addresses

    return lowering.compute(shift, (target, scalar), [(source, scalar)])


def lower_isspacep(lowering: Lowering, instruction: Instruction) -> Operation | None:
    """Lower ``isspacep``: whether generic addresses lie in a state space."""
    space = space_of(instruction)
    target, source = instruction.operands
    # All addresses outside of windows are global, and those of kernels' parameters, too.
    starts = [start for name, start in _STARTS.items() if name != "param"] if space == "global" else [_STARTS[space]]

    def inside(addresses: Array) -> Array:
        found = [addresses - np.uint64(start) < np.uint64(WINDOW) for start in starts]
        within = np.logical_or.reduce(found)
        return np.asarray(~within if space == "global" else within)

    return lowering.compute(inside, (target, SCALARS["pred"]), [(source, SCALARS["u64"])])


# The generic addresses at which the windows of state spaces begin.
_STARTS: Final = {
    "const": CONSTANT_WINDOW,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "param": PARAMETER_WINDOW,
}
