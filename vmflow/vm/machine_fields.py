"""`MachineFields`: those of a machine that every op looks at, apart from its class for compiled code to reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from vmflow.native import mypyc_attr
from vmflow.streams.stream import Stream

from .driver import Driver
from .engine import VirtualMachineEngine
from .loops import Loops
from .releases import Releases

if TYPE_CHECKING:
    from vmflow.devices import device as Device

    from .race_watch import RaceWatch
    from .tracing import Tracer
    from .virtual_machine import VirtualMachine


# The machine of everybody who has not entered one, as soon as there is one; see `virtual_machine.default_machine`.
DEFAULT: Final[list[VirtualMachine]] = []


@final
class FoundStream:
    """A device and its compute stream.  Never changed, for another thread may be looking at it."""

    __slots__ = ("device", "stream")

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device = device
        self.stream = stream


@mypyc_attr(allow_interpreted_subclasses=True)
class MachineFields:
    """The base of `VirtualMachine`, which alone derives from it, sets them and says the rest.

    Attributes:
        driver: runs its turns.
        engine: decides what may run next.
        loops: that drive it.
        releases: memory that is to be given back.
        races: watches for accesses that nothing orders; None if nobody asked for that.
        _gathers: whether what a script issues gathers.
        _hurries: whether what is issued may run at once as far as the settings go; see `inline.reconsider`.
        _inline_only: whether nothing may be left to threads, as in a forked child.
        _recent: what was looked up last in `_streams`, most often the one that there is.
        _streams: by device and kind.
        _tracer: is told of every step of every instruction; None while nobody listens.
    """

    __slots__ = (
        "_gathers",
        "_hurries",
        "_inline_only",
        "_recent",
        "_streams",
        "_tracer",
        "driver",
        "engine",
        "loops",
        "races",
        "releases",
    )

    driver: Driver
    engine: VirtualMachineEngine
    loops: Loops
    races: RaceWatch | None
    releases: Releases
    _gathers: bool
    _hurries: bool
    _inline_only: bool
    _recent: FoundStream | None
    _streams: dict[tuple[Device | None, str], Stream]
    _tracer: Tracer | None
