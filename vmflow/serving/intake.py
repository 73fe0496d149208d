"""`Intake`: requests from their first moment to their inputs, and what each may hold until then.

A client decides how fast its body comes.  So a request takes a place in the queue when it begins, not when all of it is
there: its deadline counts from then, its body has a time to come in, and the bytes that have come count against a
budget, of which one client may have half.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from .bodies import Receive, SlowBody, kind_of, read_body
from .decoding import Decoder
from .errors import Expired, Overloaded
from .session import InferenceSession

# Bytes of bodies that are held at a time, or those of so many bodies of the largest kind if that is more.
_BUDGET: Final = 256 << 20
_BUDGET_BODIES: Final = 4


class ByteBudget:
    """Bytes that all bodies may have together while they come in and are read.

    Args:
        most: of all; half of them may be one known client's.

    Attributes:
        most: that.
        held: how many are, now.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0
        self._by_client: dict[Hashable, int] = {}

    @contextmanager
    def share(self, client: Hashable) -> Iterator[Callable[[int], None]]:
        """A function that takes bytes for a body of a client; all are given back at the end of the block.

        It raises `Overloaded` if there are not as many left.
        """
        own = 0

        def take(size: int) -> None:
            nonlocal own
            others = self._by_client.get(client, 0)
            if self.held + size > self.most or (client is not None and others + size > self.most // 2):
                whose = "all bodies" if self.held + size > self.most else "the bodies of this client"
                raise Overloaded(f"{whose} that are on their way have as many bytes together as may be held", 1.0)
            own += size
            self.held += size
            self._by_client[client] = others + size

        try:
            yield take
        finally:
            self.held -= own
            left = self._by_client.pop(client, 0) - own
            if left:
                self._by_client[client] = left


class Intake:
    """Takes requests in.

    Args:
        session: for which.
        most: bytes of one body.
        budget: bytes of all bodies at a time; None for 256 MiB, or those of four bodies if these are more.
        body_timeout: seconds in which a body has to come.

    Attributes:
        budget: see `ByteBudget`.

    Raises:
        ValueError: for a budget in which one body has no room, or a time that is not positive.
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

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A block that takes a request in; if it is left by an error, the request counts as turned away for that."""
        statistics = self._session.statistics
        statistics.arrived += 1
        try:
            yield
        except BaseException as error:
            statistics.reject(error)
            raise

    async def inputs(
        self, headers: Any, receive: Receive, client: Hashable, *, stream: bool
    ) -> tuple[Any, float | None]:
        """The inputs of a request, and the seconds that are left for its answer; None for no limit.

        They are to be given to the session at once, see `InferenceSession.arriving`.

        Args:
            headers, receive: of the request.
            client: whose it is; None if nobody knows.
            stream: whether it is to be answered by a stream.

        Raises:
            InvalidInput: if they are not what the session takes.
            Overloaded, Draining, NotReady: before the body is read, if the session takes none now; or `Overloaded` as
                soon as there are too many bytes.
            SlowBody: if the body does not come in time.
            Expired: if the deadline passes before the inputs are there.
            ClientGone: if the client leaves.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with (
            self._session.arriving(client=client, stream=stream) as deadline,
            self.budget.share(client) as take,
            _no_later_than(deadline, begun + self._body_timeout) as limit,
        ):
            kind = kind_of(headers)
            async with limit:
                body = await read_body(receive, headers, self._most, take)
                limit.reschedule(deadline)
                inputs = await self._decoder.inputs(body, kind)
        if deadline is None:
            return inputs, None
        left = deadline - loop.time()
        if left <= 0:
            raise _expired()
        return inputs, left


@contextmanager
def _no_later_than(deadline: float | None, received: float) -> Iterator[asyncio.Timeout]:
    """A limit for a block: the deadline, or the moment by which the body must have come, if that is earlier."""
    limit = asyncio.timeout_at(received if deadline is None else min(deadline, received))
    try:
        yield limit
    except TimeoutError:
        if not limit.expired():
            raise
        if limit.when() == deadline:
            raise _expired() from None
        raise SlowBody("the body has not come in the time that the server waits for it") from None


def _expired() -> Expired:
    return Expired("the deadline has passed while the request was on its way in: its body was received or read")
