"""The microseconds of a tiny eager op by parts, each timed alone, for both ways in which an op may run.

``python -m tests.benchmarks.op_profile [--rounds 200]``

An op that a script issues while no other op is pending runs immediately; otherwise, as on an event loop, it becomes an
instruction that runs later.  Each part is timed with the call of a Python function, which it does not need inside an
op: so the true rest of the whole is a little more than "the rest" says.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import restart_with_one_thread
from vmflow import interpreter, tensor_fields
from vmflow.context import MODE
from vmflow.info import compiled_modules
from vmflow.instructions import Instruction, origin
from vmflow.instructions.blob import Blob, Storage
from vmflow.instructions.op_call import op_call
from vmflow.ops.table import OPS
from vmflow.vm.virtual_machine import VirtualMachine, default_machine

# The number of floats in an array, and the number of calls that are timed together.
TINY: Final = 10
TOGETHER: Final = 500

NUMPY: Final = "numpy's add"
DRIVING: Final = "the right to drive, and a context where numpy is quiet"

Parts = dict[str, Callable[[], object]]


def parts_at_once() -> tuple[Callable[[], object], Parts]:
    """Make a call of an op that runs as it is issued, and calls of its parts by name."""
    tensor, machine, op = flow.ones(TINY), default_machine(), OPS["add"]
    pair = (tensor._blob, tensor._blob)
    meta, array = tensor._blob.meta, np.ones(TINY, np.float32)
    stream = machine.stream(meta.device)

    def result() -> object:
        return tensor_fields.new_tensor(Blob(Storage(machine, array, stream), meta), None)

    add = np.add
    call = op_call("add", add, pair, (flow.empty(TINY)._blob,))
    return lambda: tensor + tensor, {
        NUMPY: lambda: add(array, array, None),
        DRIVING: lambda: machine.driver.run(call, stream, 5, None),
        "the mode, and what is known of the op": lambda: interpreter.plan_of(op, pair, (), (), MODE.get().dtype),
        "the result: a storage, a blob and a tensor": result,
    }


def parts_by_turn(machine: VirtualMachine) -> tuple[Callable[[], object], Parts]:
    """Make a call of an op that becomes an instruction, and calls of the parts of issuing it.

    `machine` must not run the instruction, so that issuing is timed alone.
    """
    tensor, op = flow.ones(TINY), OPS["add"]
    blob = tensor._blob
    stream = machine.stream(blob.meta.device)
    read, kernel = blob.storage.dependence, interpreter.plan_of(op, (blob, blob), (), (), None).kernel.function

    def instruction() -> object:
        storage = Storage(machine, None, stream)
        call = op_call("add", kernel, (blob, blob), (Blob(storage, blob.meta),))
        return Instruction(stream, call, (read, read), (storage.dependence,), 5)

    return lambda: tensor + tensor, {"the instruction": instruction, "the user's line": origin.capture}


def timed(work: Callable[[], object], rounds: int, after: Callable[[], object] | None = None) -> float:
    """The microseconds of processor time per call, the median over the rounds, minus the time of an empty function.

    Args:
        work: the function to time.
        rounds: how often to measure.
        after: called after each round, untimed.
    """

    def once(function: Callable[[], object]) -> float:
        taken = processor_time(lambda: _repeatedly(function))
        if after is not None:
            after()
        return taken

    return statistics.median([once(work) - once(_nothing) for _ in range(rounds)])


def processor_time(work: Callable[[], object]) -> float:
    """The microseconds of this thread's processor time per call, where `work` makes `TOGETHER` calls."""
    begin = time.thread_time()
    work()
    return (time.thread_time() - begin) / TOGETHER * 1e6


def _repeatedly(function: Callable[[], object]) -> None:
    for _ in range(TOGETHER):
        function()


def _nothing() -> None:
    pass


@contextmanager
def issuing_to(machine: VirtualMachine) -> Iterator[None]:
    """A context manager in which ops are issued to `machine`."""
    before = MODE.get()
    MODE.set(before.replace(machine=machine))
    try:
        yield
    finally:
        MODE.set(before)


def show(title: str, whole: float, parts: dict[str, float]) -> None:
    """Print the time of the whole op, of its parts, and the rest that the parts do not explain."""
    print(f"{title:60}{whole:8.2f} us")
    for name, taken in parts.items():
        print(f"  {name:58}{taken:8.2f}")
    print(f"  {'the rest':58}{whole - sum(parts.values()):8.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.op_profile", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="how often to measure each")
    rounds: int = parser.parse_args().rounds
    restart_with_one_thread()
    print(f"an add of {TINY} floats; core: {'compiled' if compiled_modules() else 'interpreted'}")
    whole, parts = parts_at_once()
    figures = {name: timed(work, rounds) for name, work in parts.items()}
    figures[DRIVING] -= figures[NUMPY]
    show("at once", timed(whole, rounds), figures)
    patient = VirtualMachine("patient", gather=1 << 60)
    with issuing_to(patient):
        whole, parts = parts_by_turn(patient)
        issued = timed(whole, rounds, patient.drain)
        show("issuing an instruction", issued, {name: timed(work, rounds) for name, work in parts.items()})
        turns = []
        for _ in range(rounds):
            _repeatedly(whole)
            turns.append(processor_time(patient.drain))
    print(f"{'its turn, numpy included':60}{statistics.median(turns):8.2f} us")
    patient.close()


if __name__ == "__main__":
    main()
