"""The outcome of running an instruction: success (None), a failure, or not known yet (`LATER`)."""

from __future__ import annotations

from typing import Final, TypeAlias

from vmflow.instructions.failure import Failure


class Later:
    """The outcome of an instruction that has returned and whose end will be reported later."""


LATER: Final = Later()

Outcome: TypeAlias = Failure | Later | None
