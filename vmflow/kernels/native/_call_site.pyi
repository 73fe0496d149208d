"""The extension module that `call_site.c` is."""

from collections.abc import Callable
from typing import Any

def remember(known: bytes) -> Callable[[tuple[Any, ...]], bool]: ...
