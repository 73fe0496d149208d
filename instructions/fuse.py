"""`FuseInstructionPolicy`: one instruction that stands for consecutive instructions of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .failure import Failure
from .policy import InstructionPolicy

if TYPE_CHECKING:
    from .instruction import Instruction


class FuseInstructionPolicy(InstructionPolicy):
    """Run consecutive instructions of one stream, one after the other, as one instruction.

    The engine makes it, to schedule one instruction in place of its members.  Each member keeps its own origin,
    scope and outputs.  Unless this is a `Chain`, a machine runs the members one by one: if one fails or is dropped by
    its scope, the others run, except those that depend on its outputs.

    Args:
        members: the consecutive instructions, in program order; see `Instruction.members`.

    Attributes:
        failed: pairs of a member that has failed and its failure.
    """

    __slots__ = ("failed", "members")

    name = "fuse"

    def __init__(self, members: tuple[Instruction, ...]) -> None:
        self.members = members
        self.failed: list[tuple[Instruction, Failure]] = []

    def failed_together(self, failure: Failure) -> None:
        """Note in `failed` that every member has failed with `failure`."""
        self.failed = [(member, failure) for member in self.members]

    def settle(self, failure: Failure | None) -> Failure | None:
        failed = {member for member, _ in self.failed}
        for member in self.members:
            fault = member.policy.settle(failure) if member.policy is not None and member not in failed else None
            if fault is not None:
                self.failed.append((member, fault))
        return self.failed[0][1] if self.failed else None

    def fail(self, failure: Failure) -> None:
        for policy in self._policies():
            policy.fail(failure)

    def drop(self, failure: Failure) -> None:
        for policy in self._policies():
            policy.drop(failure)

    def describe(self) -> str:
        return "; ".join([policy.describe() for policy in self._policies()])

    def _policies(self) -> list[InstructionPolicy]:
        return [member.policy for member in self.members if member.policy is not None]
