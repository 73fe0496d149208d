"""The entry point to replays: some devices launch kernels that always use the same memory as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array

# call(places, noted): call all kernels in order, with these positions of random numbers, and noted(note) behind each,
# where note(error) takes an error that the device finds later.
Calls: TypeAlias = "Callable[[Sequence[Any], Callable[[Callable[[Exception], None]], None]], None]"


class Replay(Protocol):
    """The kernels of a graph's run, which run over the same memory at each call of the graph."""

    def run(self, call: Calls, places: Sequence[int]) -> None:
        """Run the kernels once.

        Args:
            call: see `Calls`; it is not called if the kernels run as one launch.
            places: the positions of random numbers in this run.
        """
        ...


# make(changed, results, places, report): see `vmflow.kernels.cuda.replay.Replay`.
MakeReplay: TypeAlias = "Callable[[Sequence[Array], Sequence[Array], int, Callable[[str | None], None]], Replay]"


def replays_of(device: Device) -> MakeReplay | None:
    """The function that makes replays of a device's kernels; None if the device calls them one by one."""
    if device.type != "cuda":
        return None
    from .cuda.replay import Replay as OnCuda  # not imported by programs without such a device

    return OnCuda
