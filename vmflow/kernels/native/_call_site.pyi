"""The extension module that is compiled from `call_site.c`."""

from collections.abc import Callable
from typing import Any

def remember(known: bytes) -> Callable[[tuple[Any, ...]], bool]: ...
