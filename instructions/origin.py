"""Finds the line of the user's program that issued an instruction."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Final

# The directories of the framework's own frames.  Both spellings of this folder count: frames of a checkout have the
# link vmflow/instructions, those of an editable install the folder itself.
_INSIDE = tuple(
    {
        os.path.dirname(os.path.abspath(__file__)) + os.sep,
        os.path.dirname(os.path.abspath(sys.modules["vmflow"].__file__ or "")) + os.sep,
    }
)
_is_inside: Final[dict[str, bool]] = {}
# The last code found outside; the next one is often the same.
_outside: Final[list[CodeType | None]] = [None]
_getframe: Final = sys._getframe
# The number of frames of the functions below themselves: compiled ones have none.
_OWN: Final = int(_getframe().f_code.co_filename == __file__)


def capture() -> tuple[CodeType | None, int]:
    """The innermost frame outside the framework, as (code, bytecode offset).

    Keeping the frame itself would keep the user's locals alive; `describe` computes the line number, which costs more
    than most instructions.
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
    """The `stacklevel` of the innermost frame outside the framework, for `warnings.warn`; the caller's is 1."""
    level = 1
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
        level += 1
    return level


def stack(most: int, only_user: bool) -> tuple[str, ...]:
    """The calls on the stack, the innermost first, each in the form of `describe`.

    Args:
        most: the most calls to return.
        only_user: whether frames of the framework are left out.
    """
    calls: list[str] = []
    frame: FrameType | None = _getframe(_OWN)
    while frame is not None and len(calls) < most:
        if not (only_user and frame.f_code.co_filename.startswith(_INSIDE)):
            calls.append(describe(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def describe(code: CodeType | None, last: int) -> str:
    """``file:line, in function`` of a result of `capture`."""
    if code is None:
        return "an unknown line"
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= last < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}, in {code.co_name}"
