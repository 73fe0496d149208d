"""`MachineFields`: the fields of a virtual machine that ops read most, in a base class that can be compiled."""

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


# Contains the default machine once it exists; see `virtual_machine.default_machine`.
DEFAULT: Final[list[VirtualMachine]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class MachineFields:
    """The base class of `VirtualMachine`, which is its only subclass and sets the fields.

    Attributes:
        devices: the machine's streams and workers.
        driver: runs the machine's turns.
        engine: decides which instructions may run next.
        loops: the event loops that run the machine's turns.
        observers: the tracer and the race check.
        races: watches for unordered accesses; None unless the machine has a race check.
        releases: the storages whose memory is to be freed.
    """

    __slots__ = ("devices", "driver", "engine", "loops", "observers", "races", "releases")

    devices: Devices
    driver: Driver
    engine: VirtualMachineEngine
    loops: Loops
    observers: Observers
    races: RaceWatch | None
    releases: Releases
