"""`Intake`: receives the bodies of requests, within limits of time and memory.

A client decides how fast its body arrives.  So a request takes a place in the queue when it begins, not when it is
complete: its deadline counts from then, its body must arrive in time, and the bytes count as they arrive against a
budget, of which one known client may have half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any, Final

import attrs

from .bodies import Receive, SlowBody, kind_of, read_body
from .decoding import Decoder
from .errors import Expired, Overloaded
from .session import InferenceSession

# How many bytes of bodies are held at a time by default, or how many bodies of the largest size if these have more.
_BUDGET: Final = 256 << 20
_BUDGET_BODIES: Final = 4


@attrs.define(eq=False)
class ByteBudget:
    """Limits the bytes of all bodies together while they arrive and are read.

    Attributes:
        most: the limit; a known client may have half of it.
        held: the bytes that are held now.
    """

    most: int
    held: int = 0
    _by_client: dict[Hashable, int] = attrs.field(factory=dict)

    def take(self, client: Hashable, size: int) -> None:
        """Take bytes for a body of a client.

        Raises:
            Overloaded: if the budget, or a known client's half of it, would be exceeded.
        """
        own = self._by_client.get(client, 0) + size
        if self.held + size > self.most or (client is not None and own > self.most // 2):
            whose = "all bodies" if self.held + size > self.most else "the bodies of this client"
            raise Overloaded(f"{whose} that are on their way have as many bytes together as may be held", 1.0)
        self.held += size
        self._by_client[client] = own

    def give_back(self, client: Hashable, size: int) -> None:
        """Give back bytes that have been taken."""
        self.held -= size
        left = self._by_client.pop(client, 0) - size
        if left:
            self._by_client[client] = left


@attrs.define(eq=False)
class Share:
    """The bytes that one body has of a budget; all of them are given back at the end of its ``with`` block.

    Args:
        budget: the budget.
        client: the sender of the body; None if unknown.
    """

    _budget: ByteBudget
    _client: Hashable
    _size: int = 0

    def take(self, size: int) -> None:
        """Take more bytes.

        Raises:
            Overloaded: as `ByteBudget.take`.
        """
        self._budget.take(self._client, size)
        self._size += size

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *error: object) -> None:
        if self._size:
            self._budget.give_back(self._client, self._size)


class Intake:
    """Receives bodies and makes them inputs.

    Args:
        session: takes the inputs.
        most: the most bytes of one body.
        budget: the most bytes of all bodies at a time; None for 256 MiB, or those of four bodies if these are more.
        body_timeout: seconds in which a body must arrive.

    Attributes:
        budget: see `ByteBudget`.

    Raises:
        ValueError: for a budget below two bodies of `most` bytes, or a time that is not positive.
    """

    def __init__(self, session: InferenceSession, most: int, budget: int | None, body_timeout: float) -> None:
        if budget is not None and budget < 2 * most:
            raise ValueError(
                f"a budget of {budget} bytes for bodies is too small: a body may have {most}, and one client may "
                f"have half of the budget; give {2 * most} or more"
            )
        if not body_timeout > 0:
            raise ValueError(f"body_timeout must be a positive number of seconds, not {body_timeout!r}")
        self.budget = ByteBudget(max(_BUDGET, _BUDGET_BODIES * most) if budget is None else budget)
        self._session = session
        self._most = most
        self._body_timeout = body_timeout
        self._decoder = Decoder(session)

    async def inputs(
        self, headers: Any, receive: Receive, client: Hashable, *, stream: bool
    ) -> tuple[Any, float | None]:
        """The inputs of a request, and the seconds that are left for its answer; None for no limit.

        Pass the inputs to the session without an await in between, see `InferenceSession.arriving`.

        Args:
            headers, receive: of the request.
            client: the sender of the request; None if unknown.
            stream: whether the request is answered by a stream.

        Raises:
            InvalidInput: if the inputs do not fit the session, the body does not fit its headers or is too large, or a
                stream is wanted and the session has no stream function.
            Overloaded, Draining, NotReady: before the body is read, if the session takes no request now; or
                `Overloaded` as soon as the bytes exceed the budget.
            SlowBody: if the body does not arrive in time.
            Expired: if the deadline passes before the inputs are read.
            ClientGone: if the client leaves.
        """
        loop = asyncio.get_running_loop()
        received_by = loop.time() + self._body_timeout
        with self._session.arriving(client=client, stream=stream) as arrival, Share(self.budget, client) as share:
            deadline = arrival.deadline
            kind = kind_of(headers)
            limit = asyncio.timeout_at(received_by if deadline is None else min(deadline, received_by))
            try:
                async with limit:
                    body = await read_body(receive, headers, self._most, share.take)
                    limit.reschedule(deadline)
                    inputs = await self._decoder.inputs(body, kind)
            except TimeoutError:
                if not limit.expired():
                    raise
                if limit.when() == deadline:
                    raise _expired() from None
                raise SlowBody("the body has not come in the time that the server waits for it") from None
        if deadline is None:
            return inputs, None
        left = deadline - loop.time()
        if left <= 0:
            raise _expired()
        return inputs, left


def _expired() -> Expired:
    return Expired("the deadline has passed while the request was on its way in: its body was received or read")
