"""Pages in browsers: requests that a server refuses, and redirects that it does not make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serving.asgi_support import Exchange, http_scope
from tests.serving.test_app import called, living, session_of

pytest.importorskip("starlette", reason="starlette comes with the serve extra")

pytestmark = pytest.mark.host


async def drained(headers: dict[str, str], **options: Any) -> tuple[int, str]:
    """The status of an answer to ``POST /drain``, and the state of the session behind it."""
    session = session_of()
    async with living(session, drain_route=True, **options) as application:
        answer = await called(application, Exchange(), http_scope("POST", "/drain", headers))
        assert json.loads(answer.body)["status"] in (answer.status, "draining")
        return answer.status, session.state


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost:8000", "Origin": "http://elsewhere.example"},
        {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:9000"},
        {"Host": "127.0.0.1:8000", "Origin": "null"},
        {"Host": "127.0.0.1:8000", "Origin": "http://["},
        {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site"},
        {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://elsewhere.example"},
        # Its name leads to this server's address.
        {"Host": "elsewhere.example:8000", "Origin": "http://elsewhere.example:8000", "Sec-Fetch-Site": "same-origin"},
        {"Host": "elsewhere.example"},
        {"Host": "127.0.0.1.elsewhere.example"},
        {"Host": "[::1"},
    ],
)
async def test_a_page_elsewhere_cannot_drain_the_server(headers: dict[str, str]) -> None:
    assert await drained(headers) == (403, "ready")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "127.0.0.1:8000"},
        {"Host": "[::1]:8000"},
        {"Host": "localhost"},
        {"Host": "LOCALHOST:8000", "Origin": "http://localhost:8000", "Sec-Fetch-Site": "same-origin"},
        {"Host": "models.internal:80"},
    ],
)
async def test_programs_and_the_servers_own_pages_can(headers: dict[str, str]) -> None:
    assert await drained(headers, hosts=["Models.internal"]) == (200, "draining")


async def test_two_hosts_are_none() -> None:
    session = session_of()
    scope = http_scope("POST", "/drain", {"Host": "localhost"})
    scope["headers"].append((b"host", b"127.0.0.1"))
    async with living(session, drain_route=True) as application:
        assert (await called(application, Exchange(), scope)).status == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_there_are_no_redirects(method: str) -> None:
    async with living(session_of(), drain_route=True) as application:
        for path in [route.path for route in application.routes if route.path != "/"]:
            for asked in (f"{path}/", f"/{path}", f"{path}//"):
                scope = http_scope(method, asked, {"Host": "elsewhere.example"})
                answer = await called(application, Exchange(), scope)
                assert answer.status == 404
                assert "location" not in answer.headers
