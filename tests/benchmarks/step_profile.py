"""The time of vmflow's training steps by op: kernels, the longest first, and the time outside of kernels.

``python -m tests.benchmarks.step_profile [--only NAME...] [--rounds 15] [--quick]``

The steps are those of the family "training" in `tests.benchmarks`, which compares them with other libraries.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable

from tests.benchmarks.contenders import Company, restart_with_one_thread
from tests.benchmarks.family_training import training
from tests.benchmarks.measure import EAGER, Case
from vmflow.instructions import Instruction
from vmflow.vm.virtual_machine import current_machine


class _Stopwatch:
    """A tracer of a virtual machine that adds up the seconds of instructions by name."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._begun: dict[Instruction, float] = {}

    def began(self, instruction: Instruction) -> None:
        self._begun[instruction] = time.perf_counter()

    def ended(self, instruction: Instruction, outcome: object) -> None:
        self.spent[instruction.name] += time.perf_counter() - self._begun.pop(instruction)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def profile(case: Case, rounds: int) -> dict[str, float]:
    """The milliseconds of an eager step by instruction name, the longest first; the whole step is called "step".

    With a tracer, every op becomes an instruction, so that the time outside of kernels is longer than without.
    """
    steps = case.contenders[EAGER]
    steps()
    machine = current_machine()
    machine.tracer = stopwatch = _Stopwatch()
    spent = stopwatch.spent
    try:
        begin = time.perf_counter()
        for _ in range(rounds):
            steps()
        spent["step"] = time.perf_counter() - begin
    finally:
        machine.tracer = None
    ordered = sorted(spent.items(), key=lambda x: -x[1])
    return {name: seconds * 1000 / rounds / case.repeat for name, seconds in ordered}


def main() -> None:
    """Profile the chosen steps, and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.step_profile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="times the steps are run")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="how the names of the rows begin")
    parser.add_argument("--quick", action="store_true", help="small networks and two rounds, to see that it works")
    options = parser.parse_args()
    restart_with_one_thread()
    names = tuple(options.only or ("",))
    for case in training(Company(numpy=False, quick=options.quick)):
        if not case.name.startswith(names):
            continue
        times = profile(case, 2 if options.quick else options.rounds)
        print(f"{case.name}: milliseconds per step")
        for name, taken in times.items():
            print(f"  {name:44}{taken:9.3f}")
        print(f"  {'outside of kernels':44}{2 * times['step'] - sum(times.values()):9.3f}")


if __name__ == "__main__":
    main()
