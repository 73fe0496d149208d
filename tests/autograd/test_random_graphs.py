"""Random programs have the gradients that they have without checkpoints and functions, and in PyTorch."""

from __future__ import annotations

from collections import Counter

import pytest

import vmflow as flow

from .program_runs import Check, run, shrunk
from .program_steps import Step, our_library, torch_library
from .random_graphs import Kinds, drawn


def _problems(check: Check, seeds: range, kinds: Kinds) -> list[str]:
    found: list[str] = []
    for seed in seeds:
        program = drawn(seed, kinds)
        problem = check.problem(program)
        if problem is not None:
            found.append("\n".join([f"seed {seed}: {problem}", *map(str, program)]))
    return found


@pytest.mark.parametrize("kinds", [Kinds(), Kinds(dropout=True)])
def test_as_without_checkpoints_and_functions(kinds: Kinds) -> None:
    without = our_library(plain=True)
    assert _problems(Check(our_library(), without, without), range(80), kinds) == []


# The programs ask for lower precision on the host alone.
LOW = [pytest.param(low, marks=pytest.mark.host) for low in ("bfloat16", "float16")]


@pytest.mark.parametrize("low", [None, *LOW])
def test_as_in_pytorch(low: str | None) -> None:
    pytest.importorskip("torch", reason="programs are compared with PyTorch's results")
    counts: Counter[str] = Counter()
    check = Check(our_library(), torch_library(), torch_library(plain=True), counts)
    assert _problems(check, range(150 if low is None else 40), Kinds(low=low)) == []


def test_a_wrong_gradient_is_found_and_shrunk() -> None:
    program = (
        Step("leaf", (), ((2, 3), "float64", 1, True), ("x",)),
        Step("method", ("x",), ("neg",), ("other",)),
        Step("function", ("x",), ("scale",), ("y",)),
        Step("backward", ("y",), (3, True, False), ()),
    )
    wrong = our_library(plain=True)
    wrong = type(wrong)("wrong", flow, {**wrong.functions, "scale": lambda x: x.detach() + x * 0.5}, wrong.checkpoint)
    check = Check(our_library(), wrong, wrong)
    assert (check.problem(program) or "").startswith("x.grad: other values")
    smaller = shrunk(program, lambda value: check.problem(value) is not None)
    assert [step.op for step in smaller] == ["leaf", "function", "backward"]
    assert run(our_library(), smaller)[1] is None
