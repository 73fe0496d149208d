"""`Outcome`: the result of running an instruction: None, a `Failure` or `LATER` (not ended); see `running.run`."""

from __future__ import annotations

from typing import Final, TypeAlias

from vmflow.instructions.failure import Failure


class Later:
    """The outcome of a `Deferred` instruction whose `compute` has returned, and whose end is reported separately."""


LATER: Final = Later()

Outcome: TypeAlias = Failure | Later | None
