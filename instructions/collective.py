"""`Collective`: an instruction that sends and receives arrays in an exchange between ranks, such as an all-reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import origin
from .blob import Blob, fault_of
from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from vmflow.streams.channel import Operation
    from vmflow.streams.communication import CommunicationStreamPolicy

    from .instruction import Instruction


class Collective(InstructionPolicy):
    """Run this rank's half of a collective operation: send an array to other ranks, and receive their arrays.

    No scope drops the instruction, and no other collective of its stream overtakes it: the other ranks would wait for
    it.  If `given` could not be computed, the instruction runs nevertheless, and makes the operation fail on all ranks.

    Args:
        operation: the collective operation.
        given: the blob that this rank sends; None if it sends nothing.
        gotten: the blob that receives this rank's result, a whole storage; of no elements if it receives nothing.
        lane: the policy of the communication stream that runs the instruction.
    """

    __slots__ = ("_place", "given", "gotten", "lane", "name", "operation")

    prepares = True
    droppable = False

    def __init__(self, operation: Operation, given: Blob | None, gotten: Blob, lane: CommunicationStreamPolicy) -> None:
        self.name = operation.kind
        self.operation = operation
        self.given = given
        self.gotten = gotten
        self.lane = lane
        self._place = ""

    def prepare(self, instruction: Instruction) -> None:
        self._place = origin.describe(instruction.code, instruction.last)

    def compute(self) -> None:
        failure = None if self.given is None else self.given.storage.failure
        if failure is not None:
            self.lane.start(self.operation, None, None, failure.error, self._place)
            return
        try:
            given = None if self.given is None else np.ascontiguousarray(self.given.array()).reshape(-1)
            self.gotten.storage.mend()
            whole = self.gotten.destination()
        except Exception as error:  # such as MemoryError: tell the other ranks, which wait for this one
            self.lane.start(self.operation, None, None, error, self._place)
            raise
        gotten = whole.reshape(-1) if self.gotten.meta.numel else None
        self.lane.start(self.operation, given, gotten, None, self._place)

    def fail(self, failure: Failure) -> None:
        self.gotten.storage.poison(failure)

    def settle(self, failure: Failure | None) -> Failure | None:
        fault = fault_of(() if self.given is None else (self.given,), failure)
        self.gotten.storage.settle(fault, True)
        return fault

    def describe(self) -> str:
        return str(self.operation)
