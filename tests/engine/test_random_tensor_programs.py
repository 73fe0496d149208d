"""Random programs of tensors, views and in-place ops, run in every way, against numpy with the same shared memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow.context import MODE
from vmflow.vm import VirtualMachine

Array = NDArray[Any]

DTYPES = (flow.float32, flow.float64, flow.int32, flow.int64, flow.uint8)
SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (3, 4), (2, 3, 4), (4, 1), (0, 3))


class Program:
    """Tensors and, for each, the numpy array that it must equal.

    Arrays are views of each other exactly where tensors are, so that a write through one shows in the same others.
    """

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.pool: list[tuple[flow.Tensor, Array]] = []
        for _ in range(4):
            self.create()

    def steps(self, length: int) -> Iterator[flow.Tensor | None]:
        """Run; at each yield the caller may wait for the tensor, or let others run."""
        actions = [
            (self.create, 1),
            (self.unary, 3),
            (self.binary, 4),
            (self.reduce, 1),
            (self.join, 1),
            (self.cast, 1),
            (self.view, 8),
            (self.change, 8),
            (self.forget, 4),
        ]
        kinds, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(length):
            self.choose.choices(kinds, weights)[0]()
            if self.choose.random() < 0.1:
                tensor, array = self.pick()
                yield tensor
                same(tensor, array)
            elif self.choose.random() < 0.1:
                yield None
        for tensor, _ in self.pool:
            yield tensor
        for tensor, array in self.pool:
            same(tensor, array)

    def pick(self, fits: Callable[[Array], bool] = lambda array: True) -> tuple[flow.Tensor, Array]:
        found = [pair for pair in self.pool if fits(pair[1])]
        return self.choose.choice(found) if found else self.create()

    def keep(self, tensor: flow.Tensor, array: Array) -> tuple[flow.Tensor, Array]:
        if array.base is None:
            # numpy's results follow the layout of their operands; a tensor's are always C-contiguous.
            array = np.array(array, order="C")
        assert tuple(tensor.shape) == array.shape
        assert tensor.dtype.numpy == array.dtype
        self.pool.append((tensor, array))
        return tensor, array

    # New values

    def create(self) -> tuple[flow.Tensor, Array]:
        dtype = self.choose.choice(DTYPES)
        # Once in a while large enough for its memory to be given back by an instruction.
        shape = (130, 140) if self.choose.random() < 0.03 else self.choose.choice(SHAPES)
        array = self.numbers.integers(0, 9, shape).astype(dtype.numpy)
        if self.choose.random() < 0.5:
            return self.keep(flow.tensor(array), np.array(array))
        value = self.choose.randrange(5)
        return self.keep(flow.full(shape, value, dtype=dtype), np.full(shape, value, dtype.numpy))

    def unary(self) -> None:
        tensor, array = self.pick()
        name, function = self.choose.choice(
            (("neg", np.negative), ("square", np.square), ("abs", np.abs), ("clone", np.positive))
        )
        self.keep(getattr(tensor, name)(), np.array(function(array)))

    def binary(self) -> None:
        tensor, array = self.pick()
        other, other_array = self.pick(lambda x: x.dtype == array.dtype and _broadcast(x.shape, array.shape))
        name, function = self.choose.choice(
            (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("maximum", np.maximum))
        )
        if other_array.dtype == array.dtype and _broadcast(other_array.shape, array.shape):
            self.keep(getattr(tensor, name)(other), np.array(function(array, other_array)))

    def reduce(self) -> None:
        tensor, array = self.pick(lambda x: x.ndim > 0)
        if array.ndim:
            axis = self.choose.randrange(array.ndim)
            wide = np.int64 if array.dtype.kind in "iu" else array.dtype
            self.keep(tensor.sum(axis), np.array(array.sum(axis, dtype=wide)))

    def join(self) -> None:
        tensor, array = self.pick(lambda x: x.ndim > 0)
        if array.ndim:
            self.keep(flow.cat((tensor, tensor), 0), np.concatenate((array, array), 0))

    def cast(self) -> None:
        tensor, array = self.pick()
        dtype = self.choose.choice([value for value in DTYPES if _castable(array.dtype, value.numpy)])
        if dtype.numpy != array.dtype:
            self.keep(tensor.to(dtype), array.astype(dtype.numpy))

    # Views

    def view(self) -> None:
        tensor, array = self.pick()
        kind = self.choose.choice((self.sliced, self.selected, self.turned, self.reshaped, self.inserted, self.spread))
        kind(tensor, array)

    def sliced(self, tensor: flow.Tensor, array: Array) -> None:
        if array.ndim:
            index = tuple([self.slice(size) for size in array.shape[: self.choose.randint(1, array.ndim)]])
            self.keep(tensor[index], array[index])

    def slice(self, size: int) -> slice:
        return slice(
            self.choose.choice((None, 0, 1, -2)), self.choose.choice((None, size, 2)), self.choose.choice((1, 2))
        )

    def selected(self, tensor: flow.Tensor, array: Array) -> None:
        if array.ndim and array.shape[0]:
            index = self.choose.randrange(array.shape[0])
            self.keep(tensor[index], array[index, ...])

    def turned(self, tensor: flow.Tensor, array: Array) -> None:
        order = list(range(array.ndim))
        self.choose.shuffle(order)
        self.keep(tensor.permute(order), array.transpose(order))

    def reshaped(self, tensor: flow.Tensor, array: Array) -> None:
        self.keep(tensor.reshape(array.size), array.reshape(array.size))

    def inserted(self, tensor: flow.Tensor, array: Array) -> None:
        if array.ndim < 4:
            self.keep(tensor.unsqueeze(0), array[None])

    def spread(self, tensor: flow.Tensor, array: Array) -> None:
        if array.ndim < 4:
            # Read-only in numpy: nobody writes to it.
            self.keep(tensor.expand(2, *array.shape), np.broadcast_to(array, (2, *array.shape)))

    # Changes in place

    def change(self) -> None:
        tensor, array = self.pick(lambda x: x.flags.writeable)
        other, other_array = self.pick(lambda x: _castable(x.dtype, array.dtype) and _fits_into(x, array))
        if not (_castable(other_array.dtype, array.dtype) and _fits_into(other_array, array)):
            return
        kind = self.choose.randrange(6)
        if kind == 0:
            tensor.copy_(other)
            np.copyto(array, other_array.copy(), casting="unsafe")
        elif kind == 1:
            tensor.fill_(3)
            array.fill(3)
        elif kind == 2:
            tensor.add_(2)
            array += array.dtype.type(2)
        elif kind == 3 and other_array.dtype == array.dtype:
            tensor.add_(other)
            array += other_array
        elif kind == 4 and other_array.dtype == array.dtype:
            tensor.mul_(other)
            array *= other_array
        elif kind == 5 and array.ndim:
            index = self.slice(array.shape[0])
            tensor[index] = 7
            array[index] = 7

    def forget(self) -> None:
        if len(self.pool) > 3:
            self.pool.pop(self.choose.randrange(len(self.pool)))


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    try:
        return len(np.broadcast_shapes(first, second)) <= 4
    except ValueError:
        return False


def _fits_into(array: Array, target: Array) -> bool:
    return _broadcast(array.shape, target.shape) and np.broadcast_shapes(array.shape, target.shape) == target.shape


def _castable(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Casts whose result does not depend on the processor: no floating point into integers."""
    return source.kind in "iu" or target.kind == "f"


def same(tensor: flow.Tensor, array: Array) -> None:
    found = tensor.numpy()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.fixture(params=["never", "always", "auto"])
def machine(request: pytest.FixtureRequest) -> Iterator[VirtualMachine]:
    machine = VirtualMachine("random programs", cpu_worker=request.param, window=8)
    yield machine
    # The end of one drop of tensors may be the beginning of their release.
    for _ in range(3):
        machine.drain()
    assert machine.engine.idle()
    machine.engine.check_invariants()
    machine.close()


@pytest.mark.parametrize("tens", range(4))
def test_in_a_script(tens: int, machine: VirtualMachine) -> None:
    token = MODE.set(MODE.get().replace(machine=machine))
    try:
        for seed in range(10 * tens, 10 * tens + 10):
            with np.errstate(all="ignore"):
                for tensor in Program(seed).steps(30):
                    if tensor is not None:
                        tensor.numpy()
            flow.synchronize()
            machine.engine.check_invariants()
    finally:
        MODE.reset(token)


@pytest.mark.parametrize("tens", range(4))
async def test_in_coroutines(tens: int, machine: VirtualMachine) -> None:
    """Several programs at a time on one loop and one machine."""

    async def run(seed: int) -> None:
        with np.errstate(all="ignore"):
            for tensor in Program(seed).steps(30):
                if tensor is not None:
                    await tensor
                else:
                    await asyncio.sleep(0)
                with machine.driver.turn_lock:  # a worker may be driving
                    machine.engine.check_invariants()

    async with machine:
        for first in range(10 * tens, 10 * tens + 10, 5):
            async with asyncio.TaskGroup() as tasks:
                for seed in range(first, first + 5):
                    tasks.create_task(run(1000 + seed))
