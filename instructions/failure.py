"""`Failure`: an instruction's exception, which its outputs hold instead of data, for readers to raise."""

from __future__ import annotations

import sys
from collections.abc import Generator
from opcode import opmap
from types import CellType, CodeType, FunctionType, TracebackType
from typing import Final, NamedTuple

from vmflow.errors import Cancelled, DeadlineExceeded, VirtualMachineClosed

from . import origin

# Exception classes of vmflow that have nothing but a message, so that an equal exception can be made from its args.
_OURS = (Cancelled, DeadlineExceeded, VirtualMachineClosed)


class Place(NamedTuple):
    """The origin of an instruction: the op, the line that issued it (see `origin.capture`), and the module's path."""

    op: str
    code: CodeType | None
    last: int
    module: str | None

    def notes(self, how: str, op: str) -> list[str]:
        """Return the notes that an exception gets: `how` it is related to the op, which `op` describes."""
        notes = [f"{how} {op}", f"issued at {origin.describe(self.code, self.last)}"]
        return notes if self.module is None else [*notes, f"in module {self.module}"]


class Failure:
    """The exception of an instruction, held by the storages that the instruction should have written.

    These storages, and those of results computed from them, share this object.  Reading any of them raises the
    exception, see `throw`.  If this object goes away, or the machine closes, before any was read, the failure is logged
    once on the ``vmflow`` logger, unless the instruction was dropped.

    Args:
        error: the exception.
        dropped: whether the instruction was dropped before it began, for instance by a cancelled scope.
        place: the origin of a dropped instruction, for notes; None without notes.
    """

    __slots__ = ("__weakref__", "_place", "dropped", "error", "observed", "origin")

    def __init__(self, error: BaseException, dropped: bool = False, place: Place | None = None) -> None:
        self.dropped = dropped
        self._place = place
        # If Ctrl-C interrupts this constructor, `__del__` must not report the half-made Failure.
        self.observed = True
        self.origin = _lines(error.__traceback__)
        self.error = error.with_traceback(self.origin)
        _detach_chain(error)
        # An instruction is dropped on purpose, so its failure is no error to log.
        self.observed = dropped

    def at(self, place: Place) -> Failure:
        """Return the failure of one instruction that is dropped with others; `place` is its origin.

        If the class of the exception is not in `_OURS`, this failure itself is returned.
        """
        return Failure(self.error, dropped=True, place=place) if type(self.error) in _OURS else self

    def observe(self) -> None:
        """Note that somebody has seen the error, so that it will not be logged."""
        self.observed = True

    def throw(self) -> None:
        """Raise the original exception; for a dropped instruction a copy, if the exception's class is one of `_OURS`.

        A scope's failure is raised in many places and lives long: a copy does not keep the frames of all places alive.
        """
        self.observed = True
        if self.dropped and type(self.error) in _OURS:
            copy = type(self.error)(*self.error.args)
            if self._place is not None:
                for note in self._place.notes("instead of running", self._place.op):
                    copy.add_note(note)
            raise copy
        # Raising an exception again appends to its traceback, so each raise starts from the original traceback.
        raise self.error.with_traceback(self.origin)

    def report(self) -> None:
        """Log the exception, unless somebody has seen it, it was logged before, or the instruction was dropped."""
        if self.observed:
            return
        self.observed = True
        import logging  # imported here, because few programs fail and the import takes milliseconds

        logging.getLogger("vmflow").error(
            "the result of a failed instruction was never looked at",
            exc_info=(type(self.error), self.error, self.origin),
        )

    def __del__(self) -> None:
        # While the interpreter is torn down, the machine's exit handler has logged all failures, and logging is gone.
        if not self.observed and not sys.is_finalizing():
            self.report()


def _detach_chain(error: BaseException) -> None:
    """Let no cause or context of `error` keep locals alive; drop a context that was handled before the instruction."""
    seen = {id(error)}
    chain = [error]
    while chain:
        later = chain.pop()
        if later.__context__ is not None and _is_running(later.__context__.__traceback__):
            # The context is an exception that the thread was handling when it began to run the instruction: it has
            # nothing to do with this error.
            later.__context__ = None
        for earlier in (later.__context__, later.__cause__):
            if earlier is not None and id(earlier) not in seen:
                seen.add(id(earlier))
                chain.append(earlier.with_traceback(_lines(earlier.__traceback__)))


def _is_running(trace: TracebackType | None) -> bool:
    """Whether the function of the traceback's first frame is still running; clears the frame's locals if it is not."""
    if trace is None:
        return False
    try:
        trace.tb_frame.clear()
    except RuntimeError:
        return True
    return False


def _lines(trace: TracebackType | None) -> TracebackType | None:
    """Return a copy of a traceback that keeps no locals alive.

    A real frame keeps its locals, such as arrays, and its callers alive, which refer to this failure in turn.  The
    first lines are left out as long as their functions are still running: they are the driver's.  The last line stays.
    """
    while trace is not None and trace.tb_next is not None and _is_running(trace):
        trace = trace.tb_next
    entries: list[TracebackType] = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    lines: TracebackType | None = None
    for entry in reversed(entries):
        lines = _without_frame(entry, lines)
    return lines


def _without_frame(entry: TracebackType, following: TracebackType | None) -> TracebackType:
    """Copy one entry of a traceback; the copy shows the same function and line, and its frame has no locals.

    The frame is that of a generator that has not started.  So the copy of the code begins with the bytecode of a
    generator; the code's own bytecode follows, since Python and other tools find the line by the bytecode's offset.
    """
    code = entry.tb_frame.f_code
    # tb_lineno is None where Ctrl-C came in bytecode that the compiler has added, which belongs to no line.
    number: int | None = entry.tb_lineno
    line = code.co_firstlineno if number is None else number
    free = code.co_freevars
    start = bytes([_COPY_FREE_VARS, len(free)]) + _START if 0 < len(free) < 256 else _START
    if entry.tb_lasti < 0 or len(free) > 255:
        # Entries of compiled modules have a line number, but no bytecode.  COPY_FREE_VARS takes a byte.
        free, body, last = (), _START + _STAND, 0
        positions = _position(body, line - code.co_firstlineno)
    elif code.co_code.startswith(start):
        body, last, positions = code.co_code, entry.tb_lasti, code.co_linetable
    else:
        front = start + _STAND
        body, last = front + code.co_code, len(front) + entry.tb_lasti
        positions = _position(front, 0) + code.co_linetable
    stand_in = code.replace(
        co_code=body,
        co_linetable=positions,
        co_exceptiontable=b"",
        co_flags=_generator.__code__.co_flags,
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_freevars=free,
    )
    frame = FunctionType(stand_in, entry.tb_frame.f_globals, closure=tuple(CellType() for _ in free))().gi_frame
    return TracebackType(following, frame, last, line)


def _generator() -> Generator[None, None, None]:
    yield


def _start_of_generators() -> bytes:
    """Return the bytecode that every generator function begins with, up to and including RESUME."""
    code = _generator.__code__.co_code
    end = next(offset for offset in range(0, len(code), 2) if code[offset] == opmap["RESUME"])
    return code[: end + 2]


_START: Final = _start_of_generators()
_COPY_FREE_VARS: Final = opmap["COPY_FREE_VARS"]

# A NOP between a generator's first bytecode and the copied code.  From Python 3.13 on, a generator that has not started
# stands there, and debuggers read the line of that place; a closure's own code begins with bytecode without a line.
_STAND: Final = bytes([opmap["NOP"], 0])


def _position(code: bytes, lines: int) -> bytes:
    """Return an entry of `co_linetable`: the bytecode `code` stands `lines` lines after the previous entry's line.

    The first entry counts from the function's first line.  The format is that of CPython's ``Objects/locations.md``.
    """
    entry = bytearray([0x80 | 13 << 3 | len(code) // 2 - 1])
    rest = lines << 1 if lines >= 0 else -lines << 1 | 1
    while rest >= 64:
        entry.append(rest & 63 | 64)
        rest >>= 6
    entry.append(rest)
    return bytes(entry)
