"""`Decoder`: bodies into the inputs of a session, large ones without holding the event loop up.

What holds a loop up is JSON.  Its parser is a single call that keeps the interpreter's lock, on whichever thread it is
called; only where it calls back into Python, which it does here for every number, can others have the lock meanwhile.
So large bodies are read on a thread, and each thousand numbers it lets others go on.  What is counted beforehand, and
made of the numbers in the end, takes a tenth of the time, without a pause.
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

# Bytes from which a body is read on a thread: these take between one and two milliseconds, and a thread takes one more.
LARGE: Final = 1 << 16


class _GivenUp(Exception):
    """Nobody waits any more for what is being read."""


@attrs.define(eq=False)
class _Pace:
    """Lets others go on now and then, and ends what is read in vain."""

    stopped: bool = False

    def __call__(self) -> None:
        if self.stopped:
            raise _GivenUp
        time.sleep(0)


@attrs.define(eq=False)
class Decoder:
    """Reads the bodies for a session; of the large ones one at a time, since two would only take turns.

    Args:
        session: whose inputs they are.
    """

    _session: InferenceSession
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)

    async def inputs(self, body: bytes, kind: str) -> Any:
        """The inputs in a body, as arrays of just the kind that the session takes.

        Args:
            body: all of it.
            kind: one of `bodies.KINDS`.

        Raises:
            InvalidInput: if it is none of that kind, or does not fit.
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
            # Who leaves gives up waiting; the turn passes on when the thread has noticed.
            return await asyncio.shield(task)
        finally:
            pace.stopped = True
            del task  # has the error, if there is one, which has this frame, which has the body

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._turn.release()
        if not task.cancelled():
            task.exception()  # who waited has it, or has gone


def _inputs(body: bytes, kind: str, signature: Signature, pause: Pause | None) -> Any:
    # As arrays of just the kind, which a session takes without a further look at every number.
    arrays, _ = signature.arrays(inputs_of(body, kind, signature, pause))
    return signature.given(arrays)
