"""Finds the line of the user's program that issued an instruction."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Final

_STANDARD_LIBRARY: Final = os.path.dirname(os.__file__)

# Paths of code that is not the user's: the package; this folder, in case its frames do not have the path of the link
# vmflow/instructions; and the parts of Python that start threads and event loops, which no user wants to see as the
# place of an error.
_INSIDE = tuple(
    {
        os.path.dirname(os.path.abspath(__file__)) + os.sep,
        os.path.dirname(os.path.abspath(sys.modules["vmflow"].__file__ or "")) + os.sep,
        *[os.path.join(_STANDARD_LIBRARY, name) for name in ("asyncio", "concurrent", "threading.py")],
    }
)
_is_inside: Final[dict[str, bool]] = {}
# The user's code object that `capture` found last: each call compares frames with it first, and often finds it again.
_outside: Final[list[CodeType | None]] = [None]
_getframe: Final = sys._getframe
# The number of stack frames that each function of this module has itself: 1 in Python, 0 if the module is compiled.
_OWN: Final = int(_getframe().f_code.co_filename == __file__)


def capture() -> tuple[CodeType | None, int]:
    """Find the innermost stack frame of the user's code; return its (code object, bytecode offset), or (None, 0).

    Frames of vmflow, asyncio, concurrent and threading are not the user's.

    A reference to the frame itself would keep the user's locals alive.  The line number is left to `describe`, since
    few instructions need it.
    """
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None:
        code = frame.f_code
        if code is _outside[0]:
            return code, frame.f_lasti
        inside = _is_inside.get(code.co_filename)
        if inside is None:
            inside = _is_inside[code.co_filename] = code.co_filename.startswith(_INSIDE)
        if not inside:
            _outside[0] = code
            return code, frame.f_lasti
        frame = frame.f_back
    return None, 0


def depth() -> int:
    """Return the `stacklevel` with which `warnings.warn`, called by the caller, names the user's innermost frame."""
    level = 1
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
        level += 1
    return level


def stack(most: int, only_user: bool) -> tuple[str, ...]:
    """Return the lines of the calls on the stack, the innermost first, each as ``file:line, in function``.

    Args:
        most: the largest number of lines to return.
        only_user: whether frames are left out that are not the user's, see `capture`.
    """
    calls: list[str] = []
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and len(calls) < most:
        if not (only_user and frame.f_code.co_filename.startswith(_INSIDE)):
            calls.append(describe(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def describe(code: CodeType | None, last: int) -> str:
    """Return the text ``file:line, in function`` for a result of `capture`; for None, "an unknown line"."""
    if code is None:
        return "an unknown line"
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= last < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}, in {code.co_name}"
