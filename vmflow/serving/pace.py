"""`Pace`: whether batches of one kind are computed on the thread of the loop, by how long they take."""

from __future__ import annotations

from typing import Final

# What a batch takes, in seconds, that is computed on the thread of the loop: as much as a machine takes of a turn
# anyway. To hand it to a worker, and to hear of its end, keeps that thread for a fifth of it, and on a busy server the
# batch for half of it longer.
HERE_BELOW: Final = 1e-3

# Where it takes longer than this while warming up, the loop is not to stand still to see whether it takes less now.
TRIED_BELOW: Final = 5e-3

# How many more slow ones than quick ones it takes for the next to be computed elsewhere.
GIVEN_UP_AFTER: Final = 8

# How many are computed elsewhere before one is tried on the loop's thread; after each in vain twice as many, up to the
# second.
TRIED_AFTER: Final = 64
TRIED_AFTER_MOST: Final = 4096


class Pace:
    """Of batches of one size and padding.

    A machine has other things to do, while warming up as later: what it was too busy for is tried again.

    Args:
        seconds: what the quickest took while warming up; infinity for those that are never computed on the loop's
            thread.

    Attributes:
        here: whether they are computed there, as a rule.
    """

    __slots__ = ("_slow", "_tried_after", "_until_trial", "_worth_trying", "here")

    def __init__(self, seconds: float) -> None:
        self.here = seconds < HERE_BELOW
        self._worth_trying = seconds < TRIED_BELOW
        self._slow = 0
        self._tried_after = self._until_trial = TRIED_AFTER

    def next_is_here(self) -> bool:
        """Whether the next one is: as a rule, or to see how long it takes."""
        if self.here or not self._worth_trying:
            return self.here
        self._until_trial -= 1
        if self._until_trial >= 0:
            return False
        self._until_trial = self._tried_after  # also if nobody will tell how long it took, since it failed
        return True

    def took(self, seconds: float) -> None:
        """Be told of one that was computed on the loop's thread."""
        quick = seconds < HERE_BELOW
        if self.here:
            if quick and not self._slow:
                return  # as nearly all
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
