"""Limits of the connections of `python -m vmflow serve`: their number, and how long each may wait for its client.

By default uvicorn accepts connections until there are no more file descriptors, and sets no limit of time for a head
or for a client that does not read its answer.  So this module accepts connections itself:

- It accepts so many that descriptors are left for other things.  At that number, for each new connection it ends one
  that waits for its client.  It takes the client with the most connections that has such a one, and ends that client's
  oldest one without a request, else the oldest that is sending a body, else the oldest that does not read its answer.
  If no connection waits for its client, it refuses the new one with 503.
- Once in a while it looks at each connection, and ends those that have waited for their client too long.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

import attrs

from .problems import Problem

_log: Final = logging.getLogger(__name__)

# A connection waits for a request, for the rest of one, for its answer, or for its client to read the answer.
Phase: TypeAlias = Literal["head", "body", "answer", "write"]
# The phases in which a connection waits for its client; to make room, a client's connections are ended in this order.
_PHASES: Final[tuple[Phase, ...]] = ("head", "body", "write")

# How many connections are accepted by default, at most; how many descriptors are left for other things.
MOST: Final = 1000
_OTHER_DESCRIPTORS: Final = 64

# How many connections are accepted in one turn of the loop, before existing ones are served.
_TOGETHER: Final = 16

# Without descriptors: seconds until the next try to accept a connection, and between two log messages about that.
_PAUSE: Final = 0.1
_WARNING_INTERVAL: Final = 60.0
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_FULL: Final = Problem(503, "Overloaded", "there are as many connections as may be, and all are being answered", 1.0)


@attrs.frozen
class Limits:
    """The limits of the server.

    Attributes:
        connections: how many connections there may be.
        header_timeout: seconds in which the head of a request must have arrived, from when the connection was made or
            the previous answer was complete.
        body_timeout: seconds in which the rest of the request must have arrived.
        write_timeout: seconds in which the client must read some of the data that waits to be sent.
        keep_alive: seconds that a connection is kept without a further request after an answer, if `header_timeout` is
            not shorter.

    Raises:
        ValueError: for a number that is not positive, or infinite.
    """

    connections: int
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    write_timeout: float = 30.0
    keep_alive: float = 5.0

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if not value > 0 or not math.isfinite(value):
                raise ValueError(f"{name} must be a positive number, not {value!r}")

    def seconds(self, phase: Phase) -> float:
        """The seconds that a connection may be in a phase; in "write", without its client reading."""
        limits: dict[Phase, float] = {
            "head": self.header_timeout,
            "body": self.body_timeout,
            "answer": math.inf,
            "write": self.write_timeout,
        }
        return limits[phase]


def connection_limit(wanted: int | None) -> int:
    """How many connections there may be.

    Args:
        wanted: None for `MOST`, or fewer if the limit of descriptors requires it.

    Raises:
        ValueError: if `wanted` is not positive, or more than there can be descriptors for.
    """
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = MOST if soft == resource.RLIM_INFINITY else soft - _OTHER_DESCRIPTORS
    if wanted is None:
        return max(1, min(MOST, possible))
    if wanted < 1:
        raise ValueError(f"the number of connections must be positive, not {wanted}")
    if soft != resource.RLIM_INFINITY and wanted > possible:
        raise ValueError(
            f"{wanted} connections need {wanted + _OTHER_DESCRIPTORS} descriptors, and this process may have {soft}; "
            "raise that with ulimit -n, or let in fewer"
        )
    return wanted


@attrs.define(eq=False)
class Connection:
    """One connection, as its server's protocol knows it.

    Attributes:
        client: the client's host address; None if the socket has none.
        protocol: uvicorn's protocol for the connection; None until there is one.
        ended: whether `end` was called.
        taken: how often the client has read enough that the server resumed writing.
    """

    client: Hashable
    protocol: Any = None
    ended: bool = False
    taken: int = 0
    _last_state: Any = None
    _since: float = 0.0

    def made(self) -> bool:
        """Whether the connection has its protocol and transport yet."""
        return self.protocol is not None and self.protocol.transport is not None

    def phase(self) -> Phase:
        """The present phase."""
        return self._doing()[0]

    def waited(self, now: float) -> tuple[Phase, float]:
        """The present phase, and the seconds since a call of this method noticed that `_doing` had changed."""
        doing = self._doing()
        if doing != self._last_state:
            self._last_state, self._since = doing, now
        return doing[0], now - self._since

    def end(self) -> None:
        """Abort the connection; unsent data is lost."""
        self.ended = True
        self.protocol.transport.abort()

    def _doing(self) -> tuple[Phase, Any]:
        """The present phase, and a value that changes with each request; in "write", with the amount of unsent data."""
        protocol = self.protocol
        cycle = protocol.cycle
        unsent = protocol.transport.get_write_buffer_size()
        answered = cycle is None or cycle.response_complete
        if unsent and (answered or protocol.flow.write_paused or protocol.transport.is_closing()):
            return "write", (unsent, self.taken)
        if cycle is not None and cycle.more_body:
            return "body", cycle
        return ("head" if answered else "answer"), cycle


class Acceptor:
    """Accepts connections, and ends those that wait for their clients too long or keep others out.

    Args:
        listener: a socket that listens.
        limits: see `Limits`.
        make: makes a connection's protocol, given the `Connection` and a function to call when the connection is lost.
    """

    def __init__(self, listener: socket.socket, limits: Limits, make: Any) -> None:
        self._listener = listener
        self._limits = limits
        self._make = make
        # The connections of each client, in the order in which they were accepted.
        self._there: dict[Hashable, dict[Connection, None]] = {}
        self._count = 0
        self._ending = 0
        self._coming: set[asyncio.Task[Any]] = set()
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._last_warning = -math.inf
        self._interval = min(1.0, *[limits.seconds(phase) / 4 for phase in _PHASES])

    def open(self) -> None:
        """Start accepting, and ending connections that wait too long, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listen()
        self._look()

    def shut(self) -> None:
        """Accept no more connections; the limits of time still hold for the existing ones."""
        self._loop.remove_reader(self._listener)
        self._cancel("listen")

    def leave(self) -> None:
        """Stop ending connections that exceed the limits of time."""
        self._cancel("look")

    # Accepting

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Accept up to `_TOGETHER` waiting connections; if there are as many as may be, make room instead."""
        for _ in range(_TOGETHER):
            if self._count >= self._limits.connections:
                self._make_room()
                return
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted(error)
                    return
                continue  # the client has gone already
            accepted.setblocking(False)
            connection = Connection(address[0] if isinstance(address, tuple) else None)
            self._there.setdefault(connection.client, {})[connection] = None
            self._count += 1
            task = self._loop.create_task(self._let_in(accepted, connection))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _let_in(self, accepted: socket.socket, connection: Connection) -> None:
        try:
            with suppress(OSError):  # the client has gone meanwhile
                await self._loop.connect_accepted_socket(lambda: self._make(connection, self._lost), accepted)
        finally:
            if not connection.made():
                accepted.close()
                self._lost(connection)

    def _lost(self, connection: Connection) -> None:
        """Forget a connection that has ended; may be called again for the same one."""
        of_client = self._there.get(connection.client, {})
        if connection not in of_client:
            return
        del of_client[connection]
        if not of_client:
            del self._there[connection.client]
        self._count -= 1
        self._ending -= connection.ended

    # Ending

    def _make_room(self) -> None:
        """End a connection in favour of a new one, or refuse the new one; do nothing while a connection is ending."""
        if self._ending:
            return  # in the next turn of the event loop, the connection that ends has made room
        victim = self._victim()
        if victim is not None:
            self._end(victim)
            return
        with suppress(OSError):
            refused, _ = self._listener.accept()
            with refused:
                refused.setblocking(False)
                refused.send(_refusal())

    def _victim(self) -> Connection | None:
        """The connection to end first; None if none waits for its client."""
        for of_client in sorted(self._there.values(), key=len, reverse=True):
            first: dict[Phase, Connection] = {}
            for connection in of_client:
                if connection.made():
                    first.setdefault(connection.phase(), connection)
                if _PHASES[0] in first:
                    break
            for phase in _PHASES:
                if phase in first:
                    return first[phase]
        return None

    def _end(self, connection: Connection) -> None:
        if not connection.ended:
            self._ending += 1
            connection.end()

    def _exhausted(self, error: OSError) -> None:
        """Pause accepting, and end a connection if one can be ended: file descriptors or memory are used up."""
        now = self._loop.time()
        if now >= self._last_warning + _WARNING_INTERVAL:
            self._last_warning = now
            _log.warning("no connection can be accepted beside %d others: %s", self._count, error)
        victim = self._victim()
        if victim is not None:
            self._end(victim)
        self._loop.remove_reader(self._listener)
        self._handles["listen"] = self._loop.call_later(_PAUSE, self._listen)

    def _look(self) -> None:
        """End the connections that have waited for their client too long."""
        now = self._loop.time()
        for of_client in list(self._there.values()):
            for connection in list(of_client):
                if connection.made():
                    phase, seconds = connection.waited(now)
                    if seconds >= self._limits.seconds(phase):
                        self._end(connection)
        self._handles["look"] = self._loop.call_later(self._interval, self._look)

    def _cancel(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()


def _refusal() -> bytes:
    """Return the HTTP answer, as bytes, for connections that are refused."""
    start, body = _FULL.messages()
    lines = [b"HTTP/1.1 503 Service Unavailable", b"connection: close"]
    lines += [name + b": " + value for name, value in start["headers"]]
    return b"\r\n".join([*lines, b"", body["body"]])


# uvicorn


def server(application: Any, listener: socket.socket, limits: Limits, **options: Any) -> Any:
    """A `uvicorn.Server` whose ``run()`` serves an application on a socket, within limits.

    Args:
        application: an ASGI application.
        listener: a socket that listens.
        limits: see `Limits`.
        options: further arguments of `uvicorn.Config`; not ``http``, ``ws`` and ``timeout_keep_alive``.

    Raises:
        ImportError: if uvicorn is not installed.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Watched(H11Protocol):
        """uvicorn's protocol for one connection, which also keeps its `Connection` up to date."""

        def __init__(self, *args: Any, connection: Connection, lost: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._connection, self._lost = connection, lost
            connection.protocol = self

        def connection_lost(self, exc: Exception | None) -> None:
            try:
                super().connection_lost(exc)
            finally:
                self._lost(self._connection)

        def resume_writing(self) -> None:
            self._connection.taken += 1
            super().resume_writing()

    class Server(uvicorn.Server):
        """Accepts connections by an `Acceptor`."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=[])

            def make(connection: Connection, lost: Any) -> Any:
                return Watched(
                    config=self.config,
                    server_state=self.server_state,
                    app_state=self.lifespan.state,
                    connection=connection,
                    lost=lost,
                )

            self.acceptor = Acceptor(listener, limits, make)
            self.acceptor.open()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            self.acceptor.shut()
            await super().shutdown(sockets=[listener])
            self.acceptor.leave()

    # h11 bounds the heads of requests, which uvicorn's other parser, httptools, does not.  Web sockets would escape the
    # limits, so there are none.
    options |= {"http": "h11", "ws": "none", "timeout_keep_alive": limits.keep_alive}
    return Server(uvicorn.Config(application, **options))
