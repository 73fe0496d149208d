"""The entry point to replays: CUDA devices can launch the same kernels over the same memory again as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array

# call(places, noted): call all kernels in order, with these positions in the random number generators' streams, and
# call noted(note) behind the kernels of each op, where note(error) adds a note to an error that the device finds later
# in one of them.
Calls: TypeAlias = "Callable[[Sequence[Any], Callable[[Callable[[Exception], None]], None]], None]"


class Replay(Protocol):
    """A sequence of kernels that runs over the same memory again and again."""

    def run(self, call: Calls, places: Sequence[int]) -> None:
        """Do one run of the kernels; a run that also verifies the graph computes twice, with the results of one run.

        Args:
            call: calls the kernels one by one, see `Calls`; it is not called if they run as one launch.
            places: the positions in the random number generators' streams for this run.
        """
        ...


# A function that makes a `Replay`: make(changed, results, places, report); see `vmflow.kernels.cuda.replay.Replay`.
MakeReplay: TypeAlias = "Callable[[Sequence[Array], Sequence[Array], int, Callable[[str | None], None]], Replay]"


def replays_of(device: Device) -> MakeReplay | None:
    """Return the function that makes a `Replay` of a device's kernels; None if the device cannot replay."""
    if device.type != "cuda":
        return None
    from .cuda.replay import Replay as OnCuda  # imported here: only CUDA programs need it

    return OnCuda
