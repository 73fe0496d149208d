"""`Pace`: whether batches of one kind are computed on the thread of the loop, by how long they take."""

from __future__ import annotations

from typing import Final

# Batches that take fewer seconds than this are computed on the thread of the loop: vmflow's virtual machine may take as
# long for a turn of the loop anyway, see `turn_budget`.
HERE_BELOW: Final = 1e-3

# Batches that took this long or longer while warming up are not tried on the loop's thread, which they would block.
TRIED_BELOW: Final = 5e-3

# A slow batch adds 1 to a count, a quick one takes 1 from it, down to 0; from this count on, a worker computes batches.
GIVEN_UP_AFTER: Final = 8

# So many batches are computed on a worker before one is tried on the loop's thread; the number doubles with each slow
# trial, up to `TRIED_AFTER_MOST`.
TRIED_AFTER: Final = 64
TRIED_AFTER_MOST: Final = 4096


class Pace:
    """Decides for the batches of one size and padding whether they are computed on the loop's thread.

    Other work may have slowed the measured batches, while warming up and later; so the decision may change.

    Args:
        seconds: the quickest time while warming up; infinity for a model that is no graph, whose ops decide themselves.

    Attributes:
        here: whether such batches are computed on the loop's thread, trials apart.
    """

    __slots__ = ("_slow", "_tried_after", "_until_trial", "_worth_trying", "here")

    def __init__(self, seconds: float) -> None:
        self.here = seconds < HERE_BELOW
        self._worth_trying = seconds < TRIED_BELOW
        self._slow = 0
        self._tried_after = self._until_trial = TRIED_AFTER

    def next_is_here(self) -> bool:
        """Whether the next batch runs on the loop's thread, by `here` or as a trial; call this once for each batch."""
        if self.here or not self._worth_trying:
            return self.here
        self._until_trial -= 1
        if self._until_trial >= 0:
            return False
        self._until_trial = self._tried_after  # set here, too: a batch that fails never gets to `took`
        return True

    def took(self, seconds: float) -> None:
        """Note the time of a batch that was computed on the loop's thread."""
        quick = seconds < HERE_BELOW
        if self.here:
            if quick and not self._slow:
                return  # the usual case
            self._slow = max(0, self._slow - 1) if quick else self._slow + 1
            if self._slow < GIVEN_UP_AFTER:
                return
            self.here = False
        elif quick:
            self.here = True
            self._tried_after = TRIED_AFTER
        else:
            self._tried_after = min(2 * self._tried_after, TRIED_AFTER_MOST)
        self._slow = 0
        self._until_trial = self._tried_after
