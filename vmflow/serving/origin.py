"""`check_origin`: refuses requests that a foreign page makes a browser send (CSRF and DNS rebinding).

A page in somebody's browser can make that browser send requests to a server that only the browser's machine can reach.
The browser then names the page's origin in ``Origin``, and the name by which it has found the server in ``Host``.  A
page of another origin is recognized by ``Origin`` or ``Sec-Fetch-Site``.  A page whose own name has been made to
resolve to the server's address has that name in ``Origin`` and ``Host``, and is recognized by the unknown ``Host``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from .errors import ServingError


class ForeignOrigin(ServingError, status=403):
    """The request comes from another page, or ``Host`` is no known name of the server."""


def check_origin(headers: Iterable[tuple[bytes, bytes]], hosts: Sequence[str] = ()) -> None:
    """Check that a request comes from a program or a page of the server, and that ``Host``, if given, is a known name.

    Args:
        headers: of the request, names in lower case.
        hosts: known names of the server, without ports; ``localhost`` and IP addresses, which DNS cannot redirect, are
            known in any case.

    Raises:
        ForeignOrigin: if the request comes from another page, or ``Host`` gives an unknown name or several names.
    """
    values: dict[bytes, set[str]] = {}
    for name, value in headers:
        values.setdefault(name, set()).add(value.decode("latin-1").strip().lower())
    named = values.get(b"host", set())
    if len(named) > 1 or not all([_is_own(host, hosts) for host in named]):
        raise ForeignOrigin(
            f"Host is {', '.join(sorted(named))[:200]!r}, which is no known name of this server; call it by an "
            "address or as localhost, or name it in hosts="
        )
    for origin in values.get(b"origin", set()):
        if {origin.partition("://")[2]} != named:
            raise ForeignOrigin(f"a page of {origin[:200]!r} must not ask for this")
    if values.get(b"sec-fetch-site", set()) - {"same-origin", "none"}:
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
