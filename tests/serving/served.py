"""Applications that tests serve in processes of their own; ``VMFLOW_SERVED`` names `application`.

``python -m tests.serving.served`` serves it with uvicorn on a port that the kernel chooses, and prints that; on the
kind of event loop that ``VMFLOW_SERVED_LOOP`` names, and with the limits of the command if there is
``VMFLOW_SERVED_LIMITS``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import vmflow as flow
from tests.serving import hostile
from vmflow import serving
from vmflow.serving.connections import Limits, server

# The events so far.
counts = {"begun": 0, "cancelled": 0, "done": 0, "made": 0, "closed": 0}

# The state of the server, if it is uvicorn.
running: list[Any] = []

# The messages to `until_told`, by ``POST /tell/more`` and ``POST /tell/end``.
told: asyncio.Queue[str] = asyncio.Queue()


def model(x: flow.Tensor) -> flow.Tensor:
    """Twice as much; in many seconds, if it begins with a number above 1000."""
    if x.numpy()[0, 0] > 1000:
        y = flow.zeros(1200, 1200)
        for _ in range(500):
            y = y @ y
        return x + y[0, 0]
    return x * 2


async def until_told(model: Any, x: Any) -> AsyncIterator[int]:
    """A number, and another one whenever it is told so, until it is told to end."""
    count = 0
    yield count
    while await told.get() != "end":
        count += 1
        yield count


async def endless(model: Any, x: Any) -> AsyncIterator[str]:
    """Large chunks, without end."""
    try:
        while True:
            counts["made"] += 1
            yield "x" * 65_536
    finally:
        counts["closed"] += 1


def broken(x: flow.Tensor) -> flow.Tensor:
    """Cannot be called."""
    raise ZeroDivisionError("this model is broken")


def _session(function: Any = model, stream: Any = until_told, inputs: Any = None) -> serving.InferenceSession:
    inputs = inputs or serving.TensorSpec((3,))
    return serving.InferenceSession(function, inputs=inputs, graph=False, max_batch=4, stream=stream)


def _with_counts(made: Any) -> Any:
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def counted(request: Any) -> Any:
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        return JSONResponse({**counts, "loop": loop, "connections": len(running[0].connections) if running else None})

    async def tell(request: Any) -> Any:
        told.put_nowait(request.path_params["message"])
        return JSONResponse(None)

    made.router.routes += [Route("/counts", counted), Route("/tell/{message}", tell, methods=["POST"])]
    return made


async def few(model: Any, x: Any) -> AsyncIterator[int]:
    """Some numbers."""
    for number in range(3):
        yield number


def _hostile() -> Any:
    """Three sessions for requests that make no sense, which are there as long as the application is."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    table = serving.TensorSpec((serving.Dim("rows", (2, hostile.ROWS)), hostile.COLUMNS))
    inputs: dict[str, Any] = {
        hostile.ONE: table,
        hostile.NAMED: {"table": table, "scale": serving.TensorSpec((), flow.int64)},
        hostile.WIDE: serving.TensorSpec((hostile.WIDTH,)),
    }
    functions = {hostile.NAMED: lambda table, scale: table * scale.reshape(-1, 1, 1)}
    sessions = {path: _session(functions.get(path, lambda x: x * 2), few, operand) for path, operand in inputs.items()}

    @asynccontextmanager
    async def living(application: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for session in sessions.values():
                await stack.enter_async_context(session)
            yield

    return Starlette(routes=[Mount(path, serving.app(session)) for path, session in sessions.items()], lifespan=living)


async def work(receive: Any = None) -> None:
    """A handler that waits for an event that never happens."""
    counts["begun"] += 1
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        counts["cancelled"] += 1
        raise
    counts["done"] += 1


async def chunks() -> AsyncIterator[bytes]:
    """The endless answer of a handler."""
    counts["begun"] += 1
    try:
        while True:
            yield b"chunk\n" * 100
            await asyncio.sleep(0.005)
    finally:
        counts["closed"] += 1


def _starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route

    async def works(request: Request) -> Any:
        assert await request.body() == b"x" * 100_000
        await work()
        return PlainTextResponse("done")

    async def streams(request: Request) -> Any:
        return StreamingResponse(chunks())

    return Starlette(routes=[Route("/work", works, methods=["POST"]), Route("/chunks", streams)])


def _fastapi() -> Any:
    from fastapi import Body, FastAPI
    from fastapi.responses import StreamingResponse

    made = FastAPI()

    async def works(body: bytes = Body()) -> str:
        await work()
        return "done"

    async def streams() -> Any:
        return StreamingResponse(chunks())

    made.post("/work")(works)
    made.get("/chunks")(streams)
    return made


def _framework(framework: str, middleware: str) -> Any:
    """An application whose clients are watched below and above the middleware named."""
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.middleware.gzip import GZipMiddleware

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    made = {"starlette": _starlette, "fastapi": _fastapi}[framework]()
    others: Any = {"plain": None, "base": Passing, "gzip": GZipMiddleware}[middleware]
    if others is not None:
        made.add_middleware(others)
    made.add_middleware(serving.DisconnectScope)
    if others is not None:
        made.add_middleware(others)
    return _with_counts(made)


KINDS: Final[dict[str, Callable[[], Any]]] = {
    "session": lambda: _with_counts(
        serving.app(_session(), drain_delay=float(os.environ.get("VMFLOW_SERVED_DELAY", "0")), drain_timeout=20.0)
    ),
    "endless": lambda: _with_counts(serving.app(_session(stream=endless))),
    "hostile": _hostile,
    "unread": lambda: serving.app(
        serving.InferenceSession(
            model, inputs=serving.TensorSpec((3,)), graph=False, stream=endless, max_streams=2, max_batch=4
        ),
        write_timeout=0.5,
    ),
    "large answers": lambda: _with_counts(serving.app(_session(lambda x: x[:, :1] * flow.ones(1, 2_000_000)))),
    "broken": lambda: serving.app(_session(broken)),
    **{
        f"{framework} {middleware}": lambda framework=framework, middleware=middleware: _framework(  # type: ignore[misc]
            framework, middleware
        )
        for framework in ("starlette", "fastapi")
        for middleware in ("plain", "base", "gzip")
    },
}

application: Any = KINDS[os.environ["VMFLOW_SERVED"]]() if "VMFLOW_SERVED" in os.environ else None


def main() -> None:
    """Serve it."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listener:
        print(f"on port {listener.getsockname()[1]}", flush=True)
        loop: Any = os.environ.get("VMFLOW_SERVED_LOOP", "asyncio")
        options: dict[str, Any] = {"log_level": "warning", "lifespan": "on", "loop": loop}
        if "VMFLOW_SERVED_LIMITS" in os.environ:
            made = server(application, listener, Limits(100, write_timeout=0.5), **options)
        else:
            made = uvicorn.Server(uvicorn.Config(application, **options))
        running.append(made.server_state)
        made.run(sockets=[listener])


if __name__ == "__main__":
    main()
    sys.exit(0)
