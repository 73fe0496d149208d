"""`Chain`: the C function of one loop, made when it is first wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .elementwise import Loop
from .functions import WORTHWHILE, common_source, function
from .loading import LOADER


class Chain:
    """The function of one chain.

    If it is not there when it is asked for, it is for kernels that are chosen when it is.

    Args:
        loop: see `Loop`.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._function: Callable[[Any], None] | None = None
        # Whether it was to be made when it was asked for in vain; None before.
        self._missed: bool | None = None

    def function(self, makes: bool = True) -> Callable[[Any], None] | None:
        """The function, called with a `Block`, if it is there and may be used.

        Args:
            makes: whether it is to be made if it was not before.
        """
        if self._function is None and (self._missed is None or (makes and not self._missed)):
            self._missed = makes
            self._function = self._found(makes)
        return self._function

    def _found(self, makes: bool) -> Callable[[Any], None] | None:
        # What eager ops compute is the measure, whether that is C or numpy.
        alike = all([function(f"single_{name}", WORTHWHILE if makes else 0) for name in self._loop.inexact])
        library = LOADER.request(common_source() + "\n" + self._loop.source, makes)
        if not alike or library is None or not library.usable(exact=True):
            return None
        return library.function(self._loop.name)
