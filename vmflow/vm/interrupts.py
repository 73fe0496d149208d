"""`Shield`: holds Ctrl-C back while the engine changes its state.

Python runs signal handlers between bytecodes of the main thread, and the default one raises KeyboardInterrupt.  A
script computes inside the machine's turns, so an interrupt would often hit the engine half-way through a change.  While
a `Shield` is raised the signal is noted instead, and handled when the shield is lowered.
"""

from __future__ import annotations

# The C module that `signal` wraps: the functions of `signal` are slower, and importing it takes time.
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
    """Holds SIGINT back between `raise_it` and `lower`, on the main thread and if Python handles the signal."""

    __slots__ = ("_handler", "interrupted")

    def __init__(self) -> None:
        self.interrupted = False
        self._handler: Callable[[int, FrameType | None], object] = _signal.default_int_handler

    def raise_it(self) -> bool:
        """Begin to hold SIGINT back; False if it is held already or cannot be.  After True the caller must `lower`."""
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
        """Restore the SIGINT handler, unless another was set meanwhile; if a signal came, call the handler now set."""
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
    """Make Python end the process by SIGINT if Ctrl-C has ended the program, as a shell expects.

    Python does so by itself, unless any thread has run code from a string since: Python notes how the last such code
    ended.
    """
    interactive = hasattr(sys, "ps1")  # then Ctrl-C ends only a statement, not the program, and sets `last_type`, too
    if getattr(sys, "last_type", None) is KeyboardInterrupt and not interactive:
        with suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


def after_fork_in_child() -> None:
    """Note in a forked child that the thread that called fork is now the main thread."""
    global _main_ident
    _main_ident = _get_ident()
