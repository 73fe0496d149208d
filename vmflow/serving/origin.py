"""`check_origin`: whether a request that changes the server may come from where it says that it does.

A page in somebody's browser can make that browser send requests to a server that only the browser's machine can reach.
The browser then says in ``Origin`` where the page is from, and in ``Host`` by which name it has found the server.  A
page of another origin gives itself away by the first.  One that has let its own name lead to the server's address, by
which both become the same, gives itself away by that name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from .errors import ServingError


class ForeignOrigin(ServingError, status=403):
    """A page that is not the server's own asks for something."""


def check_origin(headers: Iterable[tuple[bytes, bytes]], hosts: Sequence[str] = ()) -> None:
    """Return if a request is one of a program, or of a page that the server itself has sent.

    Args:
        headers: of the request, names in lower case.
        hosts: names of the server, beside ``localhost`` and addresses, which no other can let lead elsewhere.

    Raises:
        ForeignOrigin: if it is not.
    """
    given: dict[bytes, set[str]] = {}
    for name, value in headers:
        given.setdefault(name, set()).add(value.decode("latin-1").strip().lower())
    named = given.get(b"host", set())
    if len(named) > 1 or not all([_is_own(host, hosts) for host in named]):
        raise ForeignOrigin(
            f"Host is {', '.join(sorted(named))[:200]!r}, which is not known for a name of this server; call it by an "
            "address or as localhost, or name it in hosts="
        )
    for origin in given.get(b"origin", set()):
        if {urlsplit(origin).netloc} != named:
            raise ForeignOrigin(f"a page of {origin[:200]!r} must not ask for this")
    if given.get(b"sec-fetch-site", set()) - {"same-origin", "none"}:
        raise ForeignOrigin("a page of another origin must not ask for this")


def _is_own(host: str, hosts: Sequence[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("", "localhost") or name in [known.lower() for known in hosts]:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
