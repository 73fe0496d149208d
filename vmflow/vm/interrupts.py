"""Hold Ctrl-C back while the engine is between two consistent states.

Python raises KeyboardInterrupt between any two bytecodes of the main thread.  A script computes inside the machine's
turns, so an interrupt would often hit the engine half-way through a change.  While a `Shield` is up the signal is noted
instead, and raised when it comes down.
"""

from __future__ import annotations

# The C module: signal.signal wraps it in enum conversions that cost ten times the call.
import _signal  # type: ignore[import-not-found]
import signal
import threading
from types import FrameType
from typing import Final

_SIGINT: Final = int(signal.SIGINT)
_get_ident = threading.get_ident
_main_ident = threading.main_thread().ident


class Shield:
    """Notes SIGINT between `raise_it` and `lower`, if this is the main thread and nobody else handles the signal.

    asyncio and applications install handlers that do not raise; those are left alone.
    """

    __slots__ = ("interrupted",)

    def __init__(self) -> None:
        self.interrupted = False

    def raise_it(self) -> bool:
        """Begin; whoever gets True must call `lower`."""
        if _get_ident() == _main_ident and _signal.getsignal(_SIGINT) is signal.default_int_handler:
            _signal.signal(_SIGINT, self._note)
            return True
        return False

    def lower(self) -> None:
        """Restore the handler; raises KeyboardInterrupt if there was a signal meanwhile."""
        _signal.signal(_SIGINT, signal.default_int_handler)
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.interrupted = True


def after_fork_in_child() -> None:
    """The forking thread is the child's main thread."""
    global _main_ident
    _main_ident = _get_ident()
