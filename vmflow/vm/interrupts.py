"""Hold Ctrl-C back while the engine is between two consistent states.

Python runs signal handlers between any two bytecodes of the main thread, and the usual ones raise KeyboardInterrupt.  A
script computes inside the machine's turns, so an interrupt would often hit the engine half-way through a change.  While
a `Shield` is up the signal is noted instead, and handled when it comes down.
"""

from __future__ import annotations

# The C module: `signal`, which wraps it, makes a call ten times as slow and takes half a millisecond to import.
import _signal  # type: ignore[import-not-found]
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

_SIGINT: Final[int] = _signal.SIGINT
_get_ident = threading.get_ident
_main_ident = threading.main_thread().ident


class Shield:
    """Notes SIGINT between `raise_it` and `lower`, if this is the main thread and Python handles the signal.

    A noted signal is passed to the handler: Python's own raises KeyboardInterrupt, asyncio's cancels the main task and
    raises the second time.
    """

    __slots__ = ("_handler", "interrupted")

    def __init__(self) -> None:
        self.interrupted = False
        self._handler: Callable[[int, FrameType | None], object] = _signal.default_int_handler

    def raise_it(self) -> bool:
        """Hold signals back, unless they are already; if this returns True, the caller must call `lower`."""
        if _get_ident() != _main_ident:
            return False
        handler = _signal.getsignal(_SIGINT)
        if not callable(handler) or handler == self._note:
            return False
        self._handler = handler
        self.interrupted = False
        _signal.signal(_SIGINT, self._note)
        return True

    def lower(self) -> None:
        """Restore the handler, unless another was set meanwhile, and call it if there was a signal."""
        handler = _signal.getsignal(_SIGINT)
        if handler == self._note:
            handler = self._handler
            _signal.signal(_SIGINT, handler)
        if self.interrupted:
            self.interrupted = False
            if callable(handler):
                handler(_SIGINT, sys._getframe())

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.interrupted = True


def remember_at_exit() -> None:
    """If Ctrl-C has ended the program, let the process end by the signal, as a shell expects.

    Python does so unless a string was compiled and run since, in any thread: it notes the end of the last such program.
    Importing a module with a named tuple is enough, and a thread that makes C kernels does that.
    """
    interactive = hasattr(sys, "ps1")  # a session, in which Ctrl-C ends only the statement and sets `last_type`, too
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not interactive:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def after_fork_in_child() -> None:
    """Note that the forking thread is the child's main thread."""
    global _main_ident
    _main_ident = _get_ident()
