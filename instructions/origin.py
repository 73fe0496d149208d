"""Which line of the user's program issued an instruction."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Final

# The directories whose frames are the framework's own.  Both spellings of this folder count: a checkout shows it
# through the link vmflow/instructions, an editable install through the folder itself.
_INSIDE = tuple(
    {
        os.path.dirname(os.path.abspath(__file__)) + os.sep,
        os.path.dirname(os.path.abspath(sys.modules["vmflow"].__file__ or "")) + os.sep,
    }
)
_is_inside: Final[dict[str, bool]] = {}
# Code that lies outside, as it was found last: often the next is the same.
_outside: Final[list[CodeType | None]] = [None]
_getframe: Final = sys._getframe
# How many frames the functions below have themselves: compiled ones have none.
_OWN: Final = int(_getframe().f_code.co_filename == __file__)


def capture() -> tuple[CodeType | None, int]:
    """The innermost frame outside the framework, as (code, bytecode offset).

    Keeping the frame itself would keep the user's locals alive; the line number is worked out in `describe`, since that
    costs more than most instructions.
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
    """How many frames the innermost one outside the framework is above the caller, which is 1; for `warnings.warn`."""
    level = 1
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
        level += 1
    return level


def stack(most: int, only_user: bool) -> tuple[str, ...]:
    """So many calls, the innermost first, each as `describe` has it.

    Args:
        most: how many at most.
        only_user: whether frames of the framework are left out.
    """
    found: list[str] = []
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and len(found) < most:
        if not (only_user and frame.f_code.co_filename.startswith(_INSIDE)):
            found.append(describe(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def describe(code: CodeType | None, last: int) -> str:
    """``file:line, in function`` of a result of `capture`."""
    if code is None:
        return "an unknown line"
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= last < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}, in {code.co_name}"
