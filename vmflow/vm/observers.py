"""`Observers`: the tracer and the race check of a machine, which see every instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from .race_watch import RaceWatch
    from .tracing import Tracer


@final
class Observers:
    """The tracer and the race check of one machine.  With either, no call runs inline.

    Args:
        gathers: whether instructions of a script are gathered, so that none runs inline.
        races: watches for unordered accesses; None unless it was asked for.

    Attributes:
        tracer: is called at every step of every instruction; None without a recording.
        inline: whether the observers permit calls to run inline.
    """

    def __init__(self, gathers: bool, races: RaceWatch | None) -> None:
        self.tracer: Tracer | None = None
        self._races = races
        self._gathers = gathers
        self.inline = not gathers and races is None

    def gather(self, gathers: bool) -> None:
        """Gather the instructions of a script, or run them inline again."""
        self._gathers = gathers
        self.listen(self.tracer)

    def listen(self, tracer: Tracer | None) -> None:
        """Use this tracer from now on; None for none."""
        self.tracer = tracer
        self.inline = not self._gathers and tracer is None and self._races is None
