"""Stand-ins for pytest and hypothesis where they are not installed, as on a machine that has a GPU for a while.

In the modules with tables of calls, they only mark the tests.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Final

_TEST_LIBRARIES: Final = ("pytest", "hypothesis")


def do_without_test_libraries() -> None:
    """Let modules of tests be imported, whether the libraries of tests are installed or not."""
    for name in _TEST_LIBRARIES:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = _StandIn()  # type: ignore[assignment]


class _StandIn:
    """Stands for a module, and for all that is in it, is called or decorates there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self
