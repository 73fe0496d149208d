"""A random sample of the docstrings and comments of the sources, to be read without the code.

``python -m tests.docs.reading [--seed 1] [--count 60] [--lines]`` prints it, with ``--lines`` also line numbers.  Each
text comes with its file, class and signature, as an editor shows them.  A reader who has not seen the code writes down
the meaning of each text, and somebody else compares that with the code: see ``docs/internals/reading.md``.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("vmflow", "streams", "instructions", "graph_mode")

# Shorter texts, such as "Inline", say nothing apart from their code.
_FEWEST_WORDS: Final = 6


class Text(NamedTuple):
    """A docstring or a comment.

    Attributes:
        place: "file:line" of its beginning.
        subject: the class and the signature of a documented function, or the name and bases of a documented class; for
            a comment, the function or class around it; empty for a module.
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


Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(node: ast.AST, around: str = "") -> Iterator[tuple[Definition, str]]:
    """The functions and classes within a node, each with the qualified name of the definition around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield child, around
            yield from _definitions(child, f"{around}{child.name}.")
        else:
            yield from _definitions(child, around)


def _docstrings(source: str, name: str) -> list[Text]:
    tree = ast.parse(source)
    found = [Text(f"{name}:1", "", ast.get_docstring(tree) or "")]
    for node, around in _definitions(tree):
        doc = ast.get_docstring(node)
        if doc is not None:
            found.append(Text(f"{name}:{node.lineno}", _signature(node, around), doc))
    return found


def _signature(node: Definition, around: str) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join([ast.unparse(part) for part in (*node.bases, *node.keywords)])
        return f"class {around}{node.name}({bases})" if bases else f"class {around}{node.name}"
    results = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"def {around}{node.name}({ast.unparse(node.args)}){results}"


def _comments(source: str, name: str) -> list[Text]:
    """Comments, those on consecutive lines as one."""
    definitions = list(_definitions(ast.parse(source)))
    found: list[Text] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#: ")
            line = token.start[0]
            if line == last + 1 and found:
                found[-1] = found[-1]._replace(text=f"{found[-1].text} {words}")
            else:
                inside = [
                    f"{around}{node.name}"
                    for node, around in definitions
                    if node.lineno <= line <= cast("int", node.end_lineno)
                ]
                found.append(Text(f"{name}:{line}", f"comment in {inside[-1]}" if inside else "comment", words))
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
    parser.add_argument("--lines", action="store_true", help="also print the line of each")
    options = parser.parse_args()
    for number, text in enumerate(sample(options.seed, options.count), 1):
        place = text.place if options.lines else text.place.partition(":")[0]
        print(f"## {number}. {place}  {text.subject}\n\n{text.text}\n")


if __name__ == "__main__":
    main()
