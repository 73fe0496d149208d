"""Errors as values: a failure travels with the data that it spoiled until somebody looks at it."""

from __future__ import annotations

import sys
import traceback


class Failure:
    """Why some storages hold nothing.

    All storages poisoned by one failure share this object.  Looking at any of them raises the original exception; if
    the last of them goes away and none was looked at, the failure reports itself once on the ``vmflow`` logger, as
    asyncio does with exceptions that were never retrieved.
    """

    __slots__ = ("__weakref__", "error", "observed", "origin")

    def __init__(self, error: BaseException) -> None:
        # The frames' locals are arrays; the lines are worth keeping, the arrays are not.
        traceback.clear_frames(error.__traceback__)
        self.error = error
        self.origin = error.__traceback__
        self.observed = False

    def throw(self) -> None:
        """Raise the original exception."""
        self.observed = True
        # Raising an exception again appends to its traceback; start from the original one each time.
        raise self.error.with_traceback(self.origin)

    def report(self) -> None:
        """Log the exception, unless somebody saw it."""
        if self.observed:
            return
        self.observed = True
        import logging  # here, because few programs fail and importing it takes milliseconds

        logging.getLogger("vmflow").error(
            "the result of a failed instruction was never looked at",
            exc_info=(type(self.error), self.error, self.origin),
        )

    def __del__(self) -> None:
        # While the interpreter is torn down the machine's exit handler has already reported, and logging is gone.
        if not self.observed and not sys.is_finalizing():
            self.report()
