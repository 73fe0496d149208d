"""`MachineFields`: those of a machine that every op looks at, apart from its class for compiled code to reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vmflow.native import mypyc_attr

from .devices import Devices
from .driver import Driver
from .engine import VirtualMachineEngine
from .loops import Loops
from .observers import Observers
from .releases import Releases

if TYPE_CHECKING:
    from .race_watch import RaceWatch
    from .virtual_machine import VirtualMachine


# The machine of code that has not entered one, as soon as it exists; see `virtual_machine.default_machine`.
DEFAULT: Final[list[VirtualMachine]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class MachineFields:
    """The base of `VirtualMachine`, which alone derives from it, sets them and says the rest.

    Attributes:
        devices: its streams and workers.
        driver: runs its turns.
        engine: decides what may run next.
        loops: that drive it.
        observers: are told of every instruction.
        races: watches for accesses that nothing orders; None if nobody asked for that.
        releases: memory that is to be given back.
    """

    __slots__ = ("devices", "driver", "engine", "loops", "observers", "races", "releases")

    devices: Devices
    driver: Driver
    engine: VirtualMachineEngine
    loops: Loops
    observers: Observers
    races: RaceWatch | None
    releases: Releases
