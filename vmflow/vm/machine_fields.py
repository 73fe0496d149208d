"""`MachineFields`: those of a machine that every op looks at, apart from its class for compiled code to reach them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from vmflow.instructions.blob import Storage
from vmflow.native import mypyc_attr
from vmflow.streams.stream import Stream

from .engine import VirtualMachineEngine
from .loops import Loops
from .turn_lock import TurnLock

if TYPE_CHECKING:
    from vmflow.devices import device as Device

    from .interrupts import Shield
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
        engine: decides what may run next.
        loops: that drive it.
        races: watches for accesses that nothing orders; None if nobody asked for that.
        _at_hand: the arguments of the call that is being made at once and must not be left half done; None without one.
        _enlisted: those who would drive if there were something to do.
        _escaping: what is to be raised by whoever drives, once the turn has ended.
        _gathers: whether what a script issues gathers.
        _hurries: whether what is issued may run at once as far as the settings go; see `inline.reconsider`.
        _in_context: calls a function in the context of kernels.
        _inline_only: whether nothing may be left to threads, as in a forked child.
        _recent: what was looked up last in `_streams`, most often the one that there is.
        _refusing: whether new work is turned away.
        _released: storages whose last tensor is gone, to be released behind what still uses them.
        _shield: holds back Ctrl-C.
        _streams: by device and kind.
        _tracer: is told of every step of every instruction; None while nobody listens.
        _turn_lock: the right to drive; its owner is the thread that does.
    """

    __slots__ = (
        "_at_hand",
        "_enlisted",
        "_escaping",
        "_gathers",
        "_hurries",
        "_in_context",
        "_inline_only",
        "_recent",
        "_refusing",
        "_released",
        "_shield",
        "_streams",
        "_tracer",
        "_turn_lock",
        "engine",
        "loops",
        "races",
    )

    engine: VirtualMachineEngine
    loops: Loops
    races: RaceWatch | None
    _at_hand: tuple[Any, ...] | None
    _enlisted: deque[Any]
    _escaping: BaseException | None
    _gathers: bool
    _hurries: bool
    _in_context: Callable[..., Any]
    _inline_only: bool
    _refusing: bool
    _released: deque[Storage]
    _shield: Shield
    _recent: FoundStream | None
    _streams: dict[tuple[Device | None, str], Stream]
    _tracer: Tracer | None
    _turn_lock: TurnLock
