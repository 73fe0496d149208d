"""Attributes in the bodies of policies' classes are found by interpreted and by compiled code."""

from __future__ import annotations

from typing import Any

import pytest

from vmflow.instructions import Dependence, Instruction, InstructionPolicy
from vmflow.streams import Stream, StreamPolicy
from vmflow.vm import VirtualMachineEngine


class Deep(StreamPolicy):
    kind = "deep"
    depth = 5_000

    def on_scheduler_thread(self, cost: int, loop_attached: bool) -> bool:
        return True


class Shallow(Deep):
    depth = 500


class Sequential(Shallow):
    """One whose constructor sets an attribute that its base sets in the class."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.sequential = True


class Ordered(InstructionPolicy):
    __slots__ = ("name", "preschedulable")

    def __init__(self, name: str, preschedulable: bool = True) -> None:
        self.name = name
        self.preschedulable = preschedulable


class Fence(InstructionPolicy):
    __slots__ = ()
    name = "fence"
    barrier = True


def _launched(policy: StreamPolicy, *kinds: InstructionPolicy) -> list[str]:
    """The instructions, of a microsecond each, that an engine launches in its first turn."""
    engine = VirtualMachineEngine()
    stream = Stream("stream", None, policy)
    for kind in kinds:
        engine.receive(Instruction(stream, kind, (), (Dependence(),), 1_000))
    return [value.name for value in engine.schedule()]


@pytest.mark.parametrize(("policy", "many"), [(Deep(), 3), (Shallow(), 1), (Sequential(3_000), 2), (StreamPolicy(), 9)])
def test_an_engine_sees_the_depth_of_a_policy(policy: StreamPolicy, many: int) -> None:
    assert len(_launched(policy, *[Ordered(str(number)) for number in range(9)])) == many


def test_an_engine_sees_that_a_policy_keeps_order() -> None:
    assert _launched(Sequential(99_000), Ordered("a"), Ordered("b", preschedulable=False)) == ["a"]
    assert _launched(Deep(), Ordered("a"), Ordered("b", preschedulable=False)) == ["a", "b"]


def test_an_engine_sees_which_policies_are_barriers() -> None:
    assert _launched(StreamPolicy(), Ordered("a"), Fence(), Ordered("b")) == ["a", "b"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Deep(), {"kind": "deep", "depth": 5_000, "sequential": False}),
        (Shallow(), {"kind": "deep", "depth": 500, "asynchronous": False}),
        (Sequential(7), {"kind": "deep", "depth": 7, "sequential": True}),
        (Fence(), {"name": "fence", "barrier": True, "preschedulable": True}),
        (Ordered("it"), {"name": "it", "barrier": False, "preschedulable": True}),
    ],
)
def test_a_policy_has_the_attributes_of_its_class(made: Any, expected: dict[str, object]) -> None:
    assert {name: getattr(made, name) for name in expected} == expected
