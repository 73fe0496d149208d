"""Chooses the threads that run next: those in the deepest call, and among them those at the earliest basic block.

So threads that took different branches meet again.  Threads at a gate (see `warps`) wait until all that must meet are
there.  When no thread can run any more, the gates are checked again, since missing threads may have ended.  Now and
then the last threads in this order have a turn, since others may wait for them by polling memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .blocks import Block, Branch, Call, Exit, Jump, Meet, Return, Switch
from .faults import BarrierError, NoProgress, UnsupportedInstruction
from .groups import Batch, Group, Registers, join
from .program import Program
from .types import Array
from .warps import BlockGate

Key = tuple[int, int, tuple[int, ...]]

# Every `_PATIENCE` basic blocks, the last threads in order have a turn of about `_TURN` basic blocks.
_PATIENCE: Final = 512
_TURN: Final = 64


class Execution:
    """Runs a batch to its end.

    Args:
        batch: the threads to run.
        program: the program that the threads run.
        limit: the number of basic blocks, over all groups, at which NoProgress is raised.
    """

    def __init__(self, batch: Batch, program: Program, limit: int) -> None:
        self._batch = batch
        self._blocks = program.blocks
        self._limit = limit
        self._ready: dict[Key, list[Group]] = {}
        # The least key in `_ready`.
        self._first: Key | None = None
        self._waiting: dict[Key, list[Group]] = {}
        self._live: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self._steps = 0
        # The value of `_steps` at which the last threads in order have their next turn.
        self._turn_at = _PATIENCE
        self._registers: Registers = list(program.constants)
        for name, slot in program.special.items():
            self._registers[slot] = batch.launch.special(batch, name)

    def run(self) -> None:
        """Run until all threads have ended.

        Raises:
            KernelFault: if a thread makes an error.
            UnsupportedInstruction: if ``brx`` leaves its table.
        """
        self._put(self._batch.start(self._registers))
        while True:
            if self._ready:
                self._run_some()
            elif self._waiting:
                self._release()
            else:
                return

    def _run_some(self) -> None:
        if self._steps < self._turn_at:
            self._advance(self._take())
        else:
            self._turn_at = self._steps + _PATIENCE
            self._advance(self._take(farthest=True), _TURN)

    # Groups

    def _put(self, group: Group) -> None:
        key = (-len(group.stack), group.pc, group.stack)
        self._ready.setdefault(key, []).append(group)
        if self._first is None or key < self._first:
            self._first = key

    def _take(self, farthest: bool = False) -> Group:
        key = max(self._ready) if farthest or self._first is None else self._first
        groups = self._ready.pop(key)
        self._first = min(self._ready) if self._ready else None
        return join(groups, self._needed(groups[0].pc, groups[0].stack))

    def _needed(self, pc: int, stack: tuple[int, ...]) -> tuple[int, ...]:
        """The registers that threads need from block `pc` on, or from the blocks of `stack` to which they return."""
        found = self._live.get((pc, stack))
        if found is None:
            live = self._blocks[pc].live.union(*[self._blocks[number].live for number in stack])
            found = self._live[pc, stack] = tuple(sorted(live))
        return found

    def _part(self, group: Group, positions: Array, pc: int) -> Group:
        return group.part(positions, self._needed(pc, group.stack), pc)

    # Steps

    def _advance(self, group: Group, turn: int = 0) -> None:
        """Run a group, for one basic block at least, until it ends, splits or waits, or another is to run.

        Args:
            group: the group.
            turn: the basic blocks after the first one for which no other group is to run.
        """
        blocks = self._blocks
        least = self._steps + turn
        while True:
            block = blocks[group.pc]
            for operation in block.operations:
                operation(group)
            self._batch.launch.counters.executed(block.size * group.count)
            self._steps += 1
            if self._steps >= self._limit:
                self._raise_endless(group)
            if not self._end(block, group):
                return
            if self._first is not None and self._steps > least:
                is_first = (-len(group.stack), group.pc, group.stack) < self._first
                if not is_first or self._steps >= self._turn_at:
                    self._put(group)
                    return

    def _raise_endless(self, group: Group) -> None:
        place = self._blocks[group.pc].place
        reason = f"the threads of its blocks have not ended after {self._steps} steps"
        raise group.fault(NoProgress, place, [0], reason)

    def _end(self, block: Block, group: Group) -> bool:
        """Let a group follow the end of a basic block; return whether the caller goes on with the group.

        If not, its threads have ended, wait, or are in groups of `_ready`.
        """
        end = block.end
        if isinstance(end, Branch):
            stays = self._branch(end, group)
        elif isinstance(end, Jump):
            group.go(end.target)
            stays = True
        elif isinstance(end, Meet):
            stays = self._meet(end, group)
        else:
            stays = self._leave(end, group)
        if stays:
            registers = group.registers
            for slot in block.dead:
                registers[slot] = None
        return stays

    def _branch(self, end: Branch, group: Group) -> bool:
        holds = group.registers[end.predicate]
        count = int(np.count_nonzero(holds))
        if count == len(holds):
            group.go(end.following if end.negated else end.target)
            return True
        if count == 0:
            group.go(end.target if end.negated else end.following)
            return True
        chosen = ~holds if end.negated else holds
        self._put(self._part(group, np.flatnonzero(chosen), end.target))
        self._put(self._part(group, np.flatnonzero(~chosen), end.following))
        return False

    def _leave(self, end: Call | Return | Exit | Switch, group: Group) -> bool:
        """Let a group call, return, exit or jump by a table; return whether the caller goes on with the group."""
        if isinstance(end, Call):
            group.call(end.entry, end.following)
            return True
        if isinstance(end, Return) and group.stack:
            group.come_back()
            return True
        if isinstance(end, (Return, Exit)):
            self._batch.end(group.lanes)
            return False
        self._switch(end, group)
        return False

    def _switch(self, end: Switch, group: Group) -> None:
        index = group.spread(group.registers[end.selector])
        if int(index.max()) >= len(end.targets):
            raise UnsupportedInstruction(f"an index of a jump is beyond its table, which is undefined: {end.place}")
        for number in np.unique(index).tolist():
            self._put(self._part(group, np.flatnonzero(index == number), end.targets[number]))

    # Gates

    def _meet(self, end: Meet, group: Group) -> bool:
        """Let a group arrive at a gate; return whether the caller goes on with the group.

        If not, its threads wait, or are in groups of `_ready`.
        """
        key = (-len(group.stack), group.pc, group.stack)
        others = self._waiting.pop(key, None)
        if others is None and end.gate.missing(group) is None:
            end.gate.pass_through(group)
            group.go(end.following)
            return True
        together = join([*(others or []), group], self._needed(group.pc, group.stack))
        self._pass_some(end, together, key)
        return False

    def _pass_some(self, end: Meet, group: Group, key: Key) -> bool:
        """Let the threads of a group that need not wait pass a gate; return whether there are any."""
        absent = end.gate.missing(group)
        if absent is not None:
            held = np.flatnonzero(absent)
            self._waiting[key] = [self._part(group, held, group.pc)]
            if len(held) == group.count:
                return False
            group = self._part(group, np.flatnonzero(~absent), group.pc)
        end.gate.pass_through(group)
        group.go(end.following)
        self._put(group)
        return True

    def _release(self) -> None:
        """Let waiting threads pass whose missing partners have ended meanwhile.

        Raises:
            BarrierError: if no thread can pass, so that all would wait forever.
        """
        passed = False
        for key in list(self._waiting):
            groups = self._waiting.pop(key)
            group = join(groups, self._needed(groups[0].pc, groups[0].stack))
            end = self._blocks[group.pc].end
            assert isinstance(end, Meet)
            passed |= self._pass_some(end, group, key)
        if not passed:
            self._raise_stuck()

    def _raise_stuck(self) -> None:
        """Raise a BarrierError that names a thread that waits at a gate and, if any, a partner at another gate."""
        waiting = [group for groups in self._waiting.values() for group in groups]
        group = min(waiting, key=lambda group: group.pc)
        end = self._blocks[group.pc].end
        assert isinstance(end, Meet)
        gate = end.gate
        whole = self._batch.stride if isinstance(gate, BlockGate) else 32
        team = int(group.lanes[0]) // whole
        missing = [
            (int(lane), other)
            for other in waiting
            if other is not group
            for lane in other.lanes[other.lanes // whole == team][:1]
        ]
        gate_name = "a barrier" if isinstance(gate, BlockGate) else "an instruction of its warp"
        if missing:
            lane, other = missing[0]
            where = self._blocks[other.pc].place
            rest = f"{self._batch.thread(lane)}, which waits elsewhere, at {where}"
        else:
            rest = "threads that have ended, or more threads than there are"
        raise group.fault(BarrierError, gate.place, [0], f"waits at {gate_name} for {rest}")
