"""What the engine was told and what it decided, turn by turn, for people and for replays."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from vmflow.instructions.instruction import Dependence, Instruction


class Turn:
    """One turn: what was erased, absorbed and launched, and which failures were reported."""

    __slots__ = ("absorbed", "erased", "failures", "launched")

    def __init__(
        self,
        erased: list[Instruction],
        absorbed: list[Instruction],
        launched: list[Instruction],
        failures: list[tuple[int, str]],
    ) -> None:
        self.erased = erased
        self.absorbed = absorbed
        self.launched = launched
        self.failures = failures


class Story:
    """The last turns of an engine.

    An instruction drops its policy when it has run, so that remembering it keeps a few hundred bytes and no array.
    """

    def __init__(self, length: int) -> None:
        self.turns: deque[Turn] = deque(maxlen=length)

    def remember(
        self,
        erased: list[Instruction],
        absorbed: list[Instruction],
        launched: list[Instruction],
        failures: list[tuple[int, str]],
    ) -> None:
        """Add a turn; the lists are kept, not copied."""
        self.turns.append(Turn(erased, absorbed, launched, failures))

    def events(self, about: Instruction | int | str | None = None) -> list[tuple[str, int, str]]:
        """The story as ``(event, serial, detail)``, oldest first.

        Args:
            about: keep one instruction (itself or its serial), or those of one name; None keeps all.
        """
        serial = about.serial if isinstance(about, Instruction) else about
        told = [event for turn in self.turns for event in _tell(turn)]
        if serial is None:
            return told
        if isinstance(serial, str):
            serials = {number for _, number, detail in told if detail.split(" ", 1)[0] == serial}
            return [event for event in told if event[1] in serials]
        return [event for event in told if event[1] == serial]

    def script(self) -> list[dict[str, object]]:
        """The story as plain data, from which the turns can be replayed on a fresh engine (see `replay`).

        Complete only if no turn has been forgotten yet.
        """
        numbers: dict[Dependence, int] = {}

        def number(dependences: tuple[Dependence, ...]) -> list[int]:
            return [numbers.setdefault(dependence, len(numbers)) for dependence in dependences]

        return [
            {
                "absorbed": [
                    {
                        "serial": it.serial,
                        "name": it.name,
                        "stream": it.stream.name,
                        "reads": number(it.reads),
                        "writes": number(it.writes),
                    }
                    for it in turn.absorbed
                ],
                "erased": [it.serial for it in turn.erased],
                "failed": [serial for serial, _ in turn.failures],
                "launched": [it.serial for it in turn.launched],
            }
            for turn in self.turns
        ]

    def __str__(self) -> str:
        return "\n".join(f"{event:9} #{serial} {detail}".rstrip() for event, serial, detail in self.events())


def _tell(turn: Turn) -> Iterator[tuple[str, int, str]]:
    for serial, error in turn.failures:
        yield "failed", serial, error
    for instruction in turn.erased:
        yield "erased", instruction.serial, f"{instruction.name} on {instruction.stream.name}"
    for instruction in turn.absorbed:
        yield "absorbed", instruction.serial, f"{instruction.name} on {instruction.stream.name}"
    for instruction in turn.launched:
        yield "launched", instruction.serial, f"{instruction.name} on {instruction.stream.name}"
