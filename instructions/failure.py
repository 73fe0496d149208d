"""Errors as values: a failure travels with the data that it spoiled until somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import FunctionType, TracebackType

from vmflow.errors import Cancelled, DeadlineExceeded, VirtualMachineClosed

# Made here, with nothing but a message.
_OURS = (Cancelled, DeadlineExceeded, VirtualMachineClosed)


class Failure:
    """Why some storages hold nothing.

    All storages poisoned by one failure share this object.  Looking at any of them raises the original exception; if
    the last of them goes away and none was looked at, the failure reports itself once on the ``vmflow`` logger, as
    asyncio does with exceptions that were never retrieved.

    Attributes:
        dropped: whether nothing went wrong: the work was given up before it began.
    """

    __slots__ = ("__weakref__", "dropped", "error", "observed", "origin")

    def __init__(self, error: BaseException, dropped: bool = False) -> None:
        self.dropped = dropped
        # What is half made, for Ctrl-C has come, has nobody to report to.
        self.observed = True
        self.origin = _lines(error.__traceback__)
        self.error = error.with_traceback(self.origin)
        _detach_chain(error)
        # What was dropped was so by decision, and is no error to report.
        self.observed = dropped

    def throw(self) -> None:
        """Raise the original exception; of what was dropped, one like it, unless it is the user's own.

        An exception holds the frames that it was raised through.  Scopes are kept for long, and their failures are
        raised in many places.
        """
        self.observed = True
        if self.dropped and type(self.error) in _OURS:
            raise type(self.error)(*self.error.args)
        # Raising an exception again appends to its traceback; start from the original one each time.
        raise self.error.with_traceback(self.origin)

    def report(self) -> None:
        """Log the exception, unless somebody saw it."""
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
    """Do with what `error` was raised from, or while handling, as with itself."""
    seen = {id(error)}
    chain = [error]
    while chain:
        later = chain.pop()
        if later.__context__ is not None and _is_running(later.__context__.__traceback__):
            # Raised outside the instruction, and being handled by whoever happened to drive: it explains nothing.
            later.__context__ = None
        for earlier in (later.__context__, later.__cause__):
            if earlier is not None and id(earlier) not in seen:
                seen.add(id(earlier))
                chain.append(earlier.with_traceback(_lines(earlier.__traceback__)))


def _is_running(trace: TracebackType | None) -> bool:
    """Whether the function in which the exception was caught has not returned yet."""
    if trace is None:
        return False
    try:
        trace.tb_frame.clear()
    except RuntimeError:
        return True
    return False


def _lines(trace: TracebackType | None) -> TracebackType | None:
    """A traceback that shows the same lines and holds no frame.

    A frame keeps its locals, which are arrays, and its callers, and so the driver, the instruction and all it accesses,
    this failure included: nothing of it would be freed before a garbage collection.  The driver's own lines, in front,
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
        code = entry.tb_frame.f_code
        stand_in = _stand_in.__code__.replace(
            co_filename=code.co_filename,
            co_firstlineno=code.co_firstlineno,
            co_name=code.co_name,
            co_qualname=code.co_qualname,
        )
        # The one kind of frame that has neither run nor a caller is that of a generator not yet started.
        frame = FunctionType(stand_in, entry.tb_frame.f_globals)().gi_frame
        # Code that the compiler has made up belongs to no line, and Ctrl-C may come there.
        number: int | None = entry.tb_lineno
        lines = TracebackType(lines, frame, -1, code.co_firstlineno if number is None else number)
    return lines


def _stand_in() -> Generator[None, None, None]:
    yield
