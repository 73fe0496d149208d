"""The words, numbers, signs and quoted texts of PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .faults import PtxSyntaxError

# Comments, and texts in quotes, which may have the signs of comments in them.
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# A directive may follow an integer without a space, as in ``.align 16.v2``; ``%`` directly before a character of a name
# begins a name.
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<number>(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}
        |(?:[0-9]*\.[0-9]+|[0-9]+\.(?![A-Za-z_]))(?:[eE][-+]?[0-9]+)?|[0-9]+\.?[eE][-+]?[0-9]+
        |(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?|WARP_SZ)(?![\w$]|\.[0-9]))
    | (?P<word>\.[A-Za-z_]\w*(?:::\w+)*|[%$]?[A-Za-z_$][\w$%.]*(?:::[\w$.]+)*|%[\w$%][\w$%.]*)
    | (?P<sign><<|>>|[<>=!]=|&&|\|\||[-+*/%~^?@!{}()\[\],;:=<>|&])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token.

    Attributes:
        text: as written.
        line: from 1.
        kind: "text" (in quotes), "number", "word" or "sign".
    """

    text: str
    line: int
    kind: str


def _tokens(text: str) -> Iterator[Token]:
    plain = _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "\n" * found[0].count("\n"), text)
    position, line = 0, 1
    while True:
        found = _TOKEN.match(plain, position)
        if found is None:
            rest = plain[position:].lstrip()
            if rest:
                line += plain.count("\n", position, len(plain) - len(rest))
                raise PtxSyntaxError(f"line {line} of the PTX: {rest.splitlines()[0][:40]!r} is not understood")
            return
        kind = found.lastgroup or ""
        line += plain.count("\n", position, found.start(kind))
        yield Token(found[kind], line, kind)
        position = found.end()


class Tokens:
    """The tokens of a text, taken one after the other.

    Attributes:
        next: the number of the next token.

    Raises:
        PtxSyntaxError: if a part of the text is no token.
    """

    def __init__(self, text: str) -> None:
        self.next = 0
        self._lines = text.splitlines()
        # A last token without text or kind is the end.
        self._tokens = [*_tokens(text), Token("", len(self._lines), "")]

    def left(self) -> bool:
        """Whether there is a next token."""
        return self._tokens[self.next].kind != ""

    def peek(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self.next].text

    def kind(self) -> str:
        """The kind of the next token; empty at the end."""
        return self._tokens[self.next].kind

    def take(self) -> str:
        """Go behind the next token and return it; at the end, raise PtxSyntaxError."""
        token = self._tokens[self.next]
        if not token.kind:
            raise PtxSyntaxError(f"line {len(self._lines)} of the PTX: the text ends within a statement")
        self.next += 1
        return token.text

    def go_back(self, number: int) -> None:
        """Make the token of this number, which was taken before, the next one."""
        self.next = number

    def accept(self, text: str) -> bool:
        """Go behind the next token if it is `text`; return whether it is."""
        is_next = self._tokens[self.next].text == text
        self.next += is_next
        return is_next

    def expect(self, text: str) -> None:
        """Go behind the next token; if it is not `text`, raise PtxSyntaxError."""
        found = self.take()
        if found != text:
            raise self.wrong(f"{text!r} was expected, not {found!r}")

    def name(self, what: str) -> str:
        """Go behind the next token, which must be a word, and return it; `what` names such a word in the error."""
        is_word = self.kind() == "word"
        found = self.take()
        if not is_word:
            raise self.wrong(f"{what} was expected, not {found!r}")
        return found

    def wrong(self, reason: str) -> PtxSyntaxError:
        """The error to raise about the token taken last."""
        line = self._tokens[max(self.next - 1, 0)].line
        return PtxSyntaxError(f"line {line} of the PTX: {reason}: {self._lines[line - 1].strip()}")

    def skip_line(self) -> None:
        """Go to the end of the line of the token taken last."""
        line = self._tokens[self.next - 1].line
        while self.left() and self._tokens[self.next].line == line:
            self.next += 1

    def skip_braces(self) -> None:
        """Go behind a part in braces, which must be next."""
        self.expect("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take(), 0)

    def text(self, first: int, last: int | None = None) -> str:
        """The tokens from number `first` to before `last` (None: the next one), joined by spaces except behind "-"."""
        words = [token.text for token in self._tokens[first : self.next if last is None else last]]
        return " ".join(words).replace("- ", "-")

    def line(self, number: int) -> int:
        """The line of the token of this number."""
        return self._tokens[number].line
