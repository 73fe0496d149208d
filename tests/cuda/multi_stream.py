"""Random programs on several streams of two emulated devices, compared with numpy.

    python -m tests.cuda.multi_stream --programs 10000

Tensors hold small integers in float64, so that every order of additions gives the same bits.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

import vmflow as flow
from vmflow.devices import device as Device
from vmflow.vm.stream_table import device_memory

from .emulated import Emulated, emulated

STEPS: Final = 30
SHAPES: Final = ((7,), (3, 4), (2, 3, 5), (64,), (40, 50), (1,))
_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {"neg": np.negative, "clone": np.copy, "abs": np.abs}


class Pair(NamedTuple):
    """A tensor, and the array that it should equal; views of a tensor go with views of its array."""

    tensor: flow.Tensor
    array: np.ndarray[Any, Any]


class Program:
    """One random program, which is run while it is made.

    Args:
        seed: decides everything.
        count: of CUDA devices.
    """

    def __init__(self, seed: int, count: int = 2) -> None:
        self.random = random.Random(seed)
        self.pairs: list[Pair] = []
        indices = range(count)
        self.devices = [*[f"cuda:{index}" for index in indices], "cpu"]
        self.streams = [flow.cuda.Stream(index, self.random.choice((0, -1))) for index in indices for _ in range(2)]
        self.streams += [flow.cuda.default_stream(index) for index in indices]
        self.events: list[flow.cuda.Event] = []

    def run(self, steps: int) -> None:
        """Make and run so many steps, and compare everything at the end."""
        for _ in range(3):
            self.new()
        choices: list[Callable[[], None]] = [
            self.new,
            self.binary,
            self.binary,
            self.unary,
            self.unary,
            self.in_place,
            self.in_place,
            self.view,
            self.transfer,
            self.transfer,
            self.copy_into,
            self.drop,
            self.event,
            self.wait_stream,
            self.read,
            self.pin,
        ]
        for _ in range(steps):
            with flow.cuda.stream(self.random.choice(self.streams)), flow.cuda.stream(self.random.choice(self.streams)):
                self.random.choice(choices)()
        for pair in self.pairs:
            compare(pair)

    def pick(self) -> Pair:
        """One of the tensors."""
        if not self.pairs:
            self.new()
        return self.random.choice(self.pairs)

    def add(self, tensor: flow.Tensor, array: np.ndarray[Any, Any]) -> None:
        """One more tensor, unless there are many."""
        if len(self.pairs) < 12:
            self.pairs.append(Pair(tensor, array))

    def new(self) -> None:
        shape = self.random.choice(SHAPES)
        array = np.array([self.random.randrange(-9, 10) for _ in range(int(np.prod(shape)))], float).reshape(shape)
        device = self.random.choice(self.devices)
        self.add(flow.tensor(array.copy()).to(device), array)

    def binary(self) -> None:
        first = self.pick()
        fitting = [
            pair
            for pair in self.pairs
            if pair.tensor.device is first.tensor.device and pair.array.shape == first.array.shape
        ]
        second = self.random.choice(fitting)
        name = self.random.choice(("add", "sub", "maximum", "minimum"))
        numpy_name = {"sub": "subtract"}.get(name, name)
        made = getattr(flow, name)(first.tensor, second.tensor)
        self.add(made, np.asarray(getattr(np, numpy_name)(first.array, second.array)))

    def unary(self) -> None:
        tensor, array = self.pick()
        name = self.random.choice(("neg", "clone", "sum", "amax", "abs"))
        if name == "sum":
            self.add(tensor.sum(0), np.asarray(array.sum(0)))
        elif name == "amax":
            self.add(tensor.amax(0), np.asarray(array.max(0)))
        else:
            self.add(getattr(tensor, name)(), np.asarray(_FUNCTIONS[name](array)))

    def in_place(self) -> None:
        tensor, array = self.pick()
        kind = self.random.choice(("add_number", "fill", "add"))
        if kind == "add_number":
            tensor.add_(2)
            array += 2
        elif kind == "fill":
            tensor.fill_(3)
            array[...] = 3
        else:
            tensor.add_(tensor)
            array += array.copy()
            # Doubling again and again would leave the numbers that float64 holds exactly.
            tensor.clamp_(-1000, 1000)
            np.clip(array, -1000, 1000, array)

    def view(self) -> None:
        tensor, array = self.pick()
        if self.random.random() < 0.5 and array.ndim > 1:
            self.add(tensor.transpose(0, 1), array.swapaxes(0, 1))
        elif array.ndim:
            self.add(tensor[::2], array[::2])

    def transfer(self) -> None:
        tensor, array = self.pick()
        device = Device(self.random.choice(self.devices))
        if device is not tensor.device:
            self.add(tensor.to(device, non_blocking=True), array.copy())

    def copy_into(self) -> None:
        target = self.pick()
        fitting = [pair for pair in self.pairs if pair.array.shape == target.array.shape]
        source = self.random.choice(fitting)
        target.tensor.copy_(source.tensor)
        target.array[...] = source.array.copy()

    def drop(self) -> None:
        if self.pairs:
            self.pairs.pop(self.random.randrange(len(self.pairs)))

    def event(self) -> None:
        stream = self.random.choice(self.streams)
        if self.events and self.random.random() < 0.6:
            self.random.choice(self.events).wait(stream)
        else:
            self.events.append(stream.record_event())

    def wait_stream(self) -> None:
        first, second = self.random.sample(self.streams, 2)
        first.wait_stream(second)
        if self.random.random() < 0.1:
            second.synchronize()

    def pin(self) -> None:
        tensor, array = self.pick()
        if tensor.device.type == "cpu" and not tensor.is_pinned():
            self.add(tensor.contiguous().pin_memory(), array.copy())

    def read(self) -> None:
        if self.random.random() < 0.3:
            compare(self.pick())


def compare(pair: Pair) -> None:
    """Read the tensor, which must have the values of the array."""
    found = pair.tensor.numpy()
    if not np.array_equal(found, pair.array):
        raise AssertionError(f"found\n{found}\ninstead of\n{pair.array}")


def run(seed: int, steps: int = STEPS) -> None:
    """Run one program; raises if anything is wrong, or left in the end."""
    mode = ("lazy", "random", "random", "eager")[seed % 4]
    with emulated(mode, seed) as devices:
        program = Program(seed)
        program.run(steps)
        del program
        _leave_nothing(devices)


def _leave_nothing(devices: Emulated) -> None:
    machine = devices.machine
    for _ in range(4):
        machine.drain()
    assert machine.engine.idle(), list(machine.engine.lively)
    assert not machine.has_waiters()
    assert machine.completion.busy() is None
    for (device, kind), allocator in machine.memory.allocators.items():
        allocator.check_invariants()
        left = allocator.statistics()["allocated_bytes.all.current"]
        if left:
            gc.collect()
            machine.drain()
            left = allocator.statistics()["allocated_bytes.all.current"]
        assert not left, f"{left} bytes of {device} {kind} are left: {allocator.largest(3)}"
        allocator.shrink()
    for index in (0, 1):
        assert device_memory(Device("cuda", index)).used == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    failed = 0
    for seed in range(options.first, options.first + options.programs):
        try:
            run(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
    print(f"{options.programs} programs, {failed} failed, in {time.perf_counter() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
