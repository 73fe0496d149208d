"""A page of the documentation, and the Python code in it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

DOCS: Final = Path(__file__).parents[2] / "docs"

# A block of code in Markdown, and the language in its first line.
_FENCED: Final = re.compile(r"^```(?P<language>\w+)?[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of Python.

    Attributes:
        line: of the page, where the code begins.
        code: the source.
        output: the text that it prints, from a block of the language "text" right behind it; None if there is none.
    """

    line: int
    code: str
    output: str | None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of Python in a page, but for those with ``>>>``, which doctest runs."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = -1
    for match in _FENCED.finditer(text):
        between = text[end : match.start()].strip() if end >= 0 else "something"
        if match["language"] == "python" and not match["text"].lstrip().startswith(">>>"):
            found.append(Block(text.count("\n", 0, match.start()) + 2, match["text"], None))
            end = match.end()
        elif match["language"] == "text" and not between:
            found[-1] = found[-1]._replace(output=match["text"])
    return found


def run_page(page: Path) -> int:
    """Run the blocks of a page in one namespace; returns how many there are.

    Blocks with ``await`` outside of functions run on an event loop, as in notebooks, and others as a script does.

    Raises:
        AssertionError: if a block prints another text than the page says.
    """
    blocks = blocks_of(page)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    with asyncio.Runner() as runner:
        for block in blocks:
            code = _compiled(page, block)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                if code.co_flags & inspect.CO_COROUTINE:
                    runner.run(eval(code, namespace))
                else:
                    exec(code, namespace)
            if block.output is not None:
                assert printed.getvalue() == block.output, f"{page.name}:{block.line} prints\n{printed.getvalue()}"
    return len(blocks)


def _compiled(page: Path, block: Block) -> CodeType:
    """The code with its lines numbered as in the page; ``await`` may stand outside of functions, as in notebooks."""
    code: CodeType = compile("\n" * (block.line - 1) + block.code, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code
