"""`Decoder`: from bodies to the inputs of a session, without blocking the event loop for long.

The JSON parser is a single call that keeps the interpreter's lock, on every thread; other threads get the lock only
where the parser calls back into Python, as it does in `inputs_of` for every number if there is a `pause`.  So large
JSON is read on a thread, which pauses after about every thousand numbers, but not while it counts beforehand and makes
arrays in the end.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import attrs

from .bodies import JSON, Pause, inputs_of
from .session import InferenceSession
from .specs import Signature
from .threads import in_thread

# JSON of so many bytes or more is read on a thread.
LARGE: Final = 1 << 16


class _GivenUp(Exception):
    """Raised on the reading thread when nothing waits for the inputs any more."""


@attrs.define(eq=False)
class _Pace:
    """A `Pause`: lets other threads run, and stops the reading once nobody waits for the inputs."""

    stopped: bool = False

    def __call__(self) -> None:
        if self.stopped:
            raise _GivenUp
        time.sleep(0)


@attrs.define(eq=False)
class Decoder:
    """Reads bodies for a session; large JSON one at a time, since two would only share the interpreter's lock.

    Args:
        session: the session.
    """

    _session: InferenceSession
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def inputs(self, body: bytes, kind: str) -> Any:
        """The inputs in a body, as arrays of the dtypes and shapes that the session takes.

        Args:
            body: the whole body.
            kind: one of `bodies.KINDS`.

        Raises:
            InvalidInput: if the body is not of that kind, or the inputs do not fit.
        """
        if kind != JSON or len(body) < LARGE:
            return _inputs(body, kind, self._session.signature, None)
        await self._turn.acquire()
        pace = _Pace()
        signature = self._session.signature
        task = asyncio.create_task(
            in_thread(lambda: _inputs(body, kind, signature, pace), f"{self._session.name}: body")
        )
        task.add_done_callback(self._ended)
        try:
            # A cancelled caller stops waiting immediately; the next body has its turn when the thread has noticed.
            return await asyncio.shield(task)
        finally:
            pace.stopped = True
            del task  # breaks the cycle from the task to its error, to this frame, which would keep the body

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._turn.release()
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it: the caller has it, or was cancelled


def _inputs(body: bytes, kind: str, signature: Signature, pause: Pause | None) -> Any:
    # Converted here, for large JSON on the thread: the session checks and copies converted arrays much faster than
    # lists.
    arrays, _ = signature.arrays(inputs_of(body, kind, signature, pause))
    return signature.packed(arrays)
