"""Errors as values: a failure takes the place of the data until somebody reads it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from opcode import opmap
from types import CellType, FunctionType, TracebackType
from typing import Final

from vmflow.errors import Cancelled, DeadlineExceeded, VirtualMachineClosed

# vmflow's own exceptions, which can be made anew from their message alone.
_OURS = (Cancelled, DeadlineExceeded, VirtualMachineClosed)


class Failure:
    """The error because of which some storages hold no data.

    All storages poisoned by one failure share this object.  Reading any of them raises the original exception; if the
    last of them goes away and none was read, the failure logs itself once on the ``vmflow`` logger, as asyncio does
    with exceptions that were never retrieved.

    Attributes:
        dropped: whether the work was dropped before it began, and no error occurred.
    """

    __slots__ = ("__weakref__", "dropped", "error", "observed", "origin")

    def __init__(self, error: BaseException, dropped: bool = False) -> None:
        self.dropped = dropped
        # A half-made object, after Ctrl-C, must not report itself.
        self.observed = True
        self.origin = _lines(error.__traceback__)
        self.error = error.with_traceback(self.origin)
        _detach_chain(error)
        # Dropped work was dropped on purpose, which is no error to report.
        self.observed = dropped

    def observe(self) -> None:
        """Note that the error is reported in another way, so that this failure does not log it."""
        self.observed = True

    def throw(self) -> None:
        """Raise the original exception; for dropped work a copy, unless the exception is the user's own.

        An exception holds the frames that it was raised through.  Scopes live long, and their failures are raised in
        many places.
        """
        self.observed = True
        if self.dropped and type(self.error) in _OURS:
            raise type(self.error)(*self.error.args)
        # Raising an exception again appends to its traceback; start from the original one each time.
        raise self.error.with_traceback(self.origin)

    def report(self) -> None:
        """Log the exception, unless somebody has seen it."""
        if self.observed:
            return
        self.observed = True
        import logging  # here, because few programs fail and importing it takes milliseconds

        logging.getLogger("vmflow").error(
            "the result of a failed instruction was never looked at",
            exc_info=(type(self.error), self.error, self.origin),
        )

    def __del__(self) -> None:
        # While the interpreter is torn down the machine's exit handler has already reported, and logging is gone.
        if not self.observed and not sys.is_finalizing():
            self.report()


def _detach_chain(error: BaseException) -> None:
    """Replace the tracebacks of the exceptions that `error` was raised from, or while handling."""
    seen = {id(error)}
    chain = [error]
    while chain:
        later = chain.pop()
        if later.__context__ is not None and _is_running(later.__context__.__traceback__):
            # Raised outside the instruction, and being handled by the driving thread: unrelated to the error.
            later.__context__ = None
        for earlier in (later.__context__, later.__cause__):
            if earlier is not None and id(earlier) not in seen:
                seen.add(id(earlier))
                chain.append(earlier.with_traceback(_lines(earlier.__traceback__)))


def _is_running(trace: TracebackType | None) -> bool:
    """Return whether the function that `trace` begins in, the one that caught the exception, has not returned yet."""
    if trace is None:
        return False
    try:
        trace.tb_frame.clear()
    except RuntimeError:
        return True
    return False


def _lines(trace: TracebackType | None) -> TracebackType | None:
    """A traceback that shows the same lines and holds no frame.

    A frame keeps its locals, which are arrays, and its callers: the driver, the instruction and its operands, including
    this failure.  None of these would be freed before a garbage collection.  The driver's own lines, which come first,
    are left out.
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
    """One entry of a traceback with the same code, instruction and line, and without the locals of its frame.

    The only frame that has neither run nor a caller is that of a generator that has not started.  So instructions in
    front turn the code into a generator's; the others keep their positions in the source.  Python shows the line of the
    instruction rather than ``tb_lineno``, and other tools search for the instruction until they find it: the code must
    contain it.
    """
    code = entry.tb_frame.f_code
    # Code that the compiler has added belongs to no line, and Ctrl-C may occur there.
    number: int | None = entry.tb_lineno
    line = code.co_firstlineno if number is None else number
    free = code.co_freevars
    start = bytes([_COPY_FREE_VARS, len(free)]) + _START if 0 < len(free) < 256 else _START
    if entry.tb_lasti < 0 or len(free) > 255:
        # Compiled modules have a line, and no instruction.
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
    """The instructions that the code of every generator begins with, up to where it resumes."""
    code = _generator.__code__.co_code
    end = next(offset for offset in range(0, len(code), 2) if code[offset] == opmap["RESUME"])
    return code[: end + 2]


_START: Final = _start_of_generators()
_COPY_FREE_VARS: Final = opmap["COPY_FREE_VARS"]

# The position of a generator that has not started: from Python 3.13 on after its first instructions; debuggers read its
# line.  The code of a closure itself begins with an instruction that belongs to no line.
_STAND: Final = bytes([opmap["NOP"], 0])


def _position(code: bytes, lines: int) -> bytes:
    """The entry in a table of positions that puts `code` so many lines after the function's first.

    The format is that of CPython's ``Objects/locations.md``: a byte for the kind of entry, 13 for a line without
    columns, and the number of code units; then the signed number of lines in groups of six bits.
    """
    entry = bytearray([0x80 | 13 << 3 | len(code) // 2 - 1])
    rest = lines << 1 if lines >= 0 else -lines << 1 | 1
    while rest >= 64:
        entry.append(rest & 63 | 64)
        rest >>= 6
    entry.append(rest)
    return bytes(entry)
