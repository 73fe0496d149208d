"""`MachineMemory`: the allocators of one machine on each device; and `rescue`, for a device with too little memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow.errors import OutOfMemory
from vmflow.instructions import origin
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import LAUNCHED, READY, Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams import Allocation, BinAllocator

from .failing import failure_of
from .stream_table import device_memory

if TYPE_CHECKING:
    from vmflow.devices import device as Device

    from .virtual_machine import VirtualMachine

# How many of the largest living allocations of one allocator an OutOfMemory error names, at most.
_NAMED: Final = 5


class MachineMemory:
    """The memory allocators of one machine: one per device, and one for each stream there that needs its own.

    Args:
        on_handout, on_free: see `BinAllocator`.

    Attributes:
        allocators: the allocators made so far, by device and kind of stream.
    """

    def __init__(
        self,
        on_handout: Callable[[Allocation], None] | None = None,
        on_free: Callable[[Allocation], None] | None = None,
    ) -> None:
        self._on_handout = on_handout
        self._on_free = on_free
        self.allocators: dict[tuple[Device, str], BinAllocator] = {}
        self._by_device: dict[object, list[BinAllocator]] = {}

    def allocator(self, device: Device, kind: str = "compute") -> BinAllocator:
        """Return the allocator that serves `device` in the order of its stream of this kind; made at the first use."""
        allocator = self.allocators.get((device, kind))
        if allocator is None:
            new = BinAllocator(device_memory(device), on_handout=self._on_handout, on_free=self._on_free)
            allocator = self.allocators.setdefault((device, kind), new)
            if allocator is new:  # else another thread was faster
                self._by_device.setdefault(device, []).append(new)
        return allocator

    def of_device(self, device: object) -> Sequence[BinAllocator]:
        """Return all allocators of `device` made so far."""
        return self._by_device.get(device, ())

    def kind_of(self, allocator: BinAllocator) -> str | None:
        """Return the kind of stream that an allocator belongs to; None if it is another machine's allocator."""
        for (_, kind), own in list(self.allocators.items()):
            if own is allocator:
                return kind
        return None


def release_early(lively: Iterable[Instruction], unrun: Iterable[Instruction]) -> None:
    """Free memory that a ready or launched `ReleaseTensor` in `lively` would free, unless one of `unrun` will use it.

    Args:
        lively: the machine's lively instructions.
        unrun: the launched instructions that have not ended; of a chain that runs one by one, the members not begun.
    """
    wanted: set[Dependence] = set()
    for instruction in unrun:
        if instruction.policy is not None and instruction.policy.touches_memory:
            wanted.update(instruction.reads, instruction.writes)
    for instruction in lively:
        # A release that is still WAITING follows an instruction that may still use the memory.
        policy = instruction.policy
        if policy is None or instruction.state not in (READY, LAUNCHED):
            continue
        if wanted.isdisjoint(instruction.writes):
            policy.give_back_early(instruction)


def rescue(
    machine: VirtualMachine, instruction: Instruction, policy: InstructionPolicy, unrun: tuple[Instruction, ...]
) -> Failure | None:
    """Reclaim unused memory of a device that has too little left, and prepare the instruction once more.

    Waits for devices and, for a limited time, for workers.

    Args:
        unrun: this instruction; for a member of a chain that runs one by one, also the members after it.

    Returns:
        The failure, if there is still too little memory; else None.
    """
    allocator = instruction.stream.allocator
    allocator.tried_again()
    # Tensors in reference cycles, mostly of tracebacks, hold memory that nobody can use: collect them.
    gc.collect()
    machine.driver.finish_running()
    machine.releases.issue()
    while machine.engine.has_work():
        machine.driver.turn()
    # Instructions may still run on workers, for which `finish_running` waits a limited time.
    posted = [other for other in machine.engine.lively if other.state == LAUNCHED and other.stream.posted]
    release_early(machine.engine.lively, [*unrun, *machine.driver.launched(), *posted])
    for own in machine.memory.of_device(instruction.stream.device):
        own.shrink()
    for other in machine.others():
        other.shrink(cast("Device", instruction.stream.device))
    try:
        policy.prepare(instruction)
    except OutOfMemory as error:
        allocator.ran_out()
        return failure_of(machine, instruction, explain(error, allocator, instruction))
    return None


def explain(error: OutOfMemory, allocator: BinAllocator, instruction: Instruction) -> OutOfMemory:
    """Make an OutOfMemory error like `error` that also names the instruction, and the allocator's largest tensors."""
    policy = instruction.policy
    doing = policy.describe() if policy is not None else instruction.name
    lines = [f"{error}, for {doing}; releasing and shrinking was tried."]
    largest = allocator.largest(_NAMED)
    if largest:
        lines.append("The largest tensors alive:")
        lines += [f"  {format_bytes(allocation.requested)} by {created_by(allocation.owner)}" for allocation in largest]
    lines.append("Make the work smaller, drop tensors that are not needed, or raise the limit with set_memory_limit().")
    return OutOfMemory("\n".join(lines), error.requested, error.limit, error.used)


def created_by(owner: Any) -> str:
    """Describe an allocation's `owner`, the instruction for which it was made, by name and user's line if known."""
    if not isinstance(owner, tuple):
        return "an unknown instruction"
    name, code, last = owner[:3]
    return f"{name}, issued at {origin.describe(code, last)}"


def format_bytes(count: int) -> str:
    """Format a number of bytes for people, such as "1.5 MiB"."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
