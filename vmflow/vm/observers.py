"""`Observers`: the tracer and the race check of a machine, which observe its instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from .race_watch import RaceWatch
    from .tracing import Tracer


@final
class Observers:
    """The tracer and the race check of one virtual machine.

    Args:
        gathers: whether instructions are gathered before they run, so that ops do not run as they are issued.
        races: watches for unordered accesses; None unless the machine has a race check.

    Attributes:
        tracer: records instructions; None without a recording.
        inline: whether ops may run as they are issued: without a tracer, race check or gathering.
    """

    def __init__(self, gathers: bool, races: RaceWatch | None) -> None:
        self.tracer: Tracer | None = None
        self._races = races
        self._gathers = gathers
        self.inline = not gathers and races is None

    def gather(self, gathers: bool) -> None:
        """Set whether instructions are gathered; see `Observers`."""
        self._gathers = gathers
        self.listen(self.tracer)

    def listen(self, tracer: Tracer | None) -> None:
        """Record instructions with `tracer` from now on, or with None end the recording."""
        self.tracer = tracer
        self.inline = not self._gathers and tracer is None and self._races is None
