"""How running an instruction came out: well (None), badly (a failure), or not yet (`LATER`)."""

from __future__ import annotations

from typing import Final, TypeAlias

from vmflow.instructions.failure import Failure


class Later:
    """The instruction has returned, and its end will be reported."""


LATER: Final = Later()

Outcome: TypeAlias = Failure | Later | None
