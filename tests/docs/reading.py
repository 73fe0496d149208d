"""A random sample of the docstrings and comments of the sources, to be read without the code.

``python -m tests.docs.reading [--seed 1] [--count 60] [--where]`` prints it, with ``--where`` also files and lines.  A
reader who has not seen the code writes down the meaning of each text, and somebody else compares that with the code:
see ``docs/internals/reading.md``.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("vmflow", "streams", "instructions", "graph_mode")

# Shorter texts, such as "Inline", say nothing apart from their code.
_FEWEST_WORDS: Final = 6


class Text(NamedTuple):
    """A docstring or a comment.

    Attributes:
        place: "file:line" of its beginning.
        subject: the name and signature line of the documented function or class, "comment" for comments.
        text: the words.
    """

    place: str
    subject: str
    text: str


def texts(folders: Sequence[str] = FOLDERS) -> list[Text]:
    """All docstrings and comments of at least six words, in order of files and lines."""
    found: list[Text] = []
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        if any([part.is_symlink() for part in path.parents]):
            continue
        source = path.read_text(encoding="utf-8")
        name = str(path.relative_to(ROOT))
        found += [text for text in (*_docstrings(source, name), *_comments(source, name)) if _is_long(text.text)]
    return found


def _docstrings(source: str, name: str) -> list[Text]:
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            doc = ast.get_docstring(node)
            line = 1 if isinstance(node, ast.Module) else node.lineno
            subject = f"module {name}" if isinstance(node, ast.Module) else lines[line - 1].strip().rstrip(":")
            if doc is not None:
                found.append(Text(f"{name}:{line}", subject, doc))
    return found


def _comments(source: str, name: str) -> list[Text]:
    """Comments, those on consecutive lines as one."""
    found: list[Text] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#: ")
            line = token.start[0]
            if line == last + 1 and found:
                found[-1] = found[-1]._replace(text=f"{found[-1].text} {words}")
            else:
                found.append(Text(f"{name}:{line}", "comment", words))
            last = line
    return found


def _is_long(text: str) -> bool:
    return len(text.split()) >= _FEWEST_WORDS and not text.startswith(("noqa", "type:"))


def sample(seed: int, count: int, folders: Sequence[str] = FOLDERS) -> list[Text]:
    """The texts that a seed chooses."""
    return random.Random(seed).sample(texts(folders), count)


def main() -> None:
    """Print a sample."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs.reading", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--where", action="store_true", help="also print the file and line of each")
    options = parser.parse_args()
    for number, text in enumerate(sample(options.seed, options.count), 1):
        print(f"## {number}. {text.place if options.where else ''} {text.subject}\n\n{text.text}\n")


if __name__ == "__main__":
    main()
