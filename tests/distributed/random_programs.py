"""Random programs of global tensors on simulated ranks, compared with numpy.

    python -m tests.distributed.random_programs --programs 5000
    python -m tests.distributed.random_programs --programs 500 --faults

Tensors hold small integers in float64, so that every order of additions gives the same bits.  With faults, one rank is
lost, frozen, or wants something else; each other rank has to end with an error that says so.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np

import vmflow as flow
from vmflow import distributed as dist
from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.nn import functional as F

STEPS: Final = 12
SHAPES: Final = ((4, 6), (5, 7), (3, 4), (6, 6), (1, 5), (2, 3, 5))
MESHES: Final[dict[int, tuple[Any, ...]]] = {
    2: ([0, 1], [1, 0]),
    3: ([0, 1, 2], [2, 0]),
    4: ([0, 1, 2, 3], [[0, 1], [2, 3]], [[3, 1], [0, 2]], [1, 3]),
}


def _places(x: flow.Tensor, below: int) -> flow.Tensor:
    """Whole numbers from 0 up to, without, `below`, by the elements."""
    return (x.detach().abs() % below).long()


def _weights(x: flow.Tensor, *shape: int) -> flow.Tensor:
    """Small whole numbers beside a tensor, which is global or local."""
    values = np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(np.float64)
    return x.new_tensor(values)


def _images(x: flow.Tensor) -> flow.Tensor:
    """Lines of more than one pixel."""
    return F.pad(x if x.ndim == 3 else x.reshape(1, -1, x.shape[-1]), (0, 1))


# Functions whose results are whole numbers again.  They are compared with themselves on a local tensor, which the tests
# of ops compare with numpy.
FUNCTIONS: Final[dict[str, Callable[[flow.Tensor], flow.Tensor]]] = {
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, -1),
    "pad": lambda x: F.pad(x, (1, 0)),
    "tril": lambda x: x.tril(),
    "tile": lambda x: x.tile(2, 1),
    "sort": lambda x: x.sort(-1).values,
    "topk": lambda x: x.topk(1, -1).values,
    "argmax": lambda x: x.argmax(0, keepdim=True).double(),
    "gather": lambda x: x.gather(1, _places(x, x.shape[1])),
    "take rows": lambda x: x[_places(x, x.shape[0]).reshape(-1)[:3]],
    "scatter_add": lambda x: x.scatter_add(0, _places(x, x.shape[0]), x * 2),
    "where": lambda x: flow.where(x > 0, x, x * -2),
    "mean": lambda x: (x.mean(0, keepdim=True) * x.shape[0]).round(),
    "any": lambda x: x * (x > 2).any(1, keepdim=True),
    "cat": lambda x: flow.cat([x, x * 2], 1),
    "embedding": lambda x: F.embedding(_places(x, 5), _weights(x, 5, 3)),
    "linear": lambda x: F.linear(x, _weights(x, 3, x.shape[-1]), _weights(x, 3)),
    "convolution": lambda x: F.conv1d(_images(x), _weights(x, 4, _images(x).shape[1], 2)),
    "pooling": lambda x: F.max_pool1d(_images(x), 2, 1),
    "outer": lambda x: flow.einsum("...i,...j->...ij", x, x),
    "count": lambda x: x * flow.count_nonzero(x).double(),
    "dropout": lambda x: F.dropout(x, 0.5),
}
# Linear ones, whose gradients are whole numbers, too.
LINEAR: Final = (
    *("flip", "roll", "pad", "tril", "tile", "gather", "take rows", "scatter_add", "where", "cat"),
    *("linear", "convolution", "pooling", "dropout"),
)


class Pair(NamedTuple):
    """A global tensor, and the array that it should equal."""

    tensor: flow.Tensor
    array: np.ndarray[Any, Any]


class Program:
    """One random program; each rank runs the same one.

    Args:
        seed: decides everything.
        ranks: how many.
    """

    def __init__(self, seed: int, ranks: int) -> None:
        self.random = random.Random(seed)
        self.meshes = [flow.placement("cpu", mesh) for mesh in MESHES[ranks]]
        self.pairs: list[Pair] = []

    def run(self) -> None:
        """Make and run it, and compare everything at the end."""
        for _ in range(3):
            self.new()
        steps: list[Callable[[], None]] = [
            self.new,
            self.binary,
            self.binary,
            self.unary,
            self.box,
            self.box,
            self.matmul,
            self.reduce,
            self.view,
            self.in_place,
            self.gradient,
            self.function,
            self.function,
            self.gradient_of_function,
        ]
        for _ in range(STEPS):
            self.random.choice(steps)()
            # So that products stay small enough to be exact.
            self.pairs = [
                pair for pair in self.pairs if np.abs(pair.array).max(initial=0) < 1 << 20 and 2 <= pair.array.ndim <= 4
            ]
            if not self.pairs:
                self.new()
        for tensor, array in self.pairs:
            self.compare(tensor, array)

    def compare(self, tensor: flow.Tensor, array: np.ndarray[Any, Any]) -> None:
        """Raise if this rank has another value."""
        if dist.get_rank() in tensor.placement.group:
            found = tensor.detach().numpy()
            np.testing.assert_array_equal(found, array)
            assert tuple(tensor.shape) == array.shape

    def sbps(self, where: Any, rank: int) -> list[Sbp]:
        """One for each axis."""
        choices = [broadcast, partial_sum, *[split(dim) for dim in range(rank)]]
        return [self.random.choice(choices) for _ in where.shape]

    def any(self, like: Pair | None = None) -> Pair:
        """One of the tensors, of the placement and shape of another."""
        found = [
            pair
            for pair in self.pairs
            if like is None or (pair.array.shape == like.array.shape and pair.tensor.placement is like.tensor.placement)
        ]
        return self.random.choice(found)

    # Steps

    def new(self) -> None:
        shape = self.random.choice(SHAPES)
        chance = np.random.default_rng(self.random.randrange(1 << 30))
        array = chance.integers(-4, 5, shape).astype(np.float64)
        where = self.random.choice(self.meshes)
        everywhere = [broadcast] * len(where.shape)
        if dist.get_rank() in where.group:
            tensor = flow.tensor(array).to_global(where, everywhere)
        else:
            tensor = flow.zeros(*shape, dtype=flow.float64, placement=where, sbp=everywhere)
        self.pairs.append(Pair(tensor.to_global(sbp=self.sbps(where, len(shape))), array))

    def binary(self) -> None:
        one = self.any()
        other = self.any(one)
        function = self.random.choice([np.add, np.subtract, np.multiply])
        made: Any = {np.add: flow.add, np.subtract: flow.sub, np.multiply: flow.mul}[function]
        self.pairs.append(Pair(made(one.tensor, other.tensor), function(one.array, other.array)))

    def unary(self) -> None:
        tensor, array = self.any()
        name = self.random.choice(["neg", "abs", "square", "twice", "relu"])
        if name == "twice":
            self.pairs.append(Pair(tensor * 2, array * 2))
        elif name == "relu":
            self.pairs.append(Pair(tensor.relu(), np.maximum(array, 0)))
        else:
            made = {"neg": np.negative, "abs": np.abs, "square": np.square}[name](array)
            self.pairs.append(Pair(getattr(tensor, name)(), made))

    def box(self) -> None:
        pair = self.any()
        where = self.random.choice(self.meshes)
        self.pairs.append(pair._replace(tensor=pair.tensor.to_global(where, self.sbps(where, pair.array.ndim))))

    def matmul(self) -> None:
        one = self.any()
        other = self.any(one)
        self.pairs.append(Pair(one.tensor @ other.tensor.mT, one.array @ np.swapaxes(other.array, -1, -2)))

    def reduce(self) -> None:
        tensor, array = self.any()
        dim = self.random.randrange(array.ndim)
        keep = self.random.random() < 0.5
        name = self.random.choice(["sum", "amax", "cumsum"])
        if name == "cumsum":
            self.pairs.append(Pair(tensor.cumsum(dim), array.cumsum(dim)))
        else:
            self.pairs.append(
                Pair(getattr(tensor, name)(dim, keepdim=keep), getattr(array, name[-3:])(dim, keepdims=keep))
            )

    def view(self) -> None:
        tensor, array = self.any()
        name = self.random.choice(["permute", "reshape", "slice", "unsqueeze"])
        if name == "permute":
            order = self.random.sample(range(array.ndim), array.ndim)
            self.pairs.append(Pair(tensor.permute(order), array.transpose(order)))
        elif name == "reshape":
            self.pairs.append(Pair(tensor.reshape(-1, array.shape[-1]), array.reshape(-1, array.shape[-1])))
        elif name == "unsqueeze":
            self.pairs.append(Pair(tensor.unsqueeze(0), array[None]))
        else:
            self.pairs.append(Pair(tensor[:, : array.shape[1] - 1], array[:, : array.shape[1] - 1]))

    def in_place(self) -> None:
        tensor, array = self.any()
        copy = Pair(tensor.clone(), array.copy())
        copy.tensor.add_(1).mul_(3)
        self.pairs.append(copy._replace(array=(copy.array + 1) * 3))

    def gradient(self) -> None:
        one = self.any()
        other = self.any(one)
        x, y = [pair.tensor.detach().clone().requires_grad_() for pair in (one, other)]
        (x * y + x).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        self.pairs += [Pair(x.grad, other.array + 1), Pair(y.grad, one.array)]

    def function(self) -> None:
        tensor, array = self.any()
        call = FUNCTIONS[self.random.choice(sorted(FUNCTIONS))]
        self.pairs.append(Pair(*self._both(call, tensor, array)))

    def gradient_of_function(self) -> None:
        tensor, array = self.any()
        call = FUNCTIONS[self.random.choice(LINEAR)]

        def gradient(x: flow.Tensor) -> flow.Tensor:
            leaf = x.detach().clone().requires_grad_()
            result = call(leaf)
            (result * _places(result, 3)).sum().backward()
            assert leaf.grad is not None
            return leaf.grad

        self.pairs.append(Pair(*self._both(gradient, tensor, array)))

    def _both(
        self, call: Callable[[flow.Tensor], flow.Tensor], tensor: flow.Tensor, array: np.ndarray[Any, Any]
    ) -> tuple[flow.Tensor, np.ndarray[Any, Any]]:
        seed = self.random.randrange(1 << 30)
        flow.manual_seed(seed)
        found = call(tensor)
        flow.manual_seed(seed)
        return found, call(flow.tensor(array)).detach().numpy()


def run(seed: int) -> None:
    """One program; raises if it goes wrong, or leaves something."""
    chance = random.Random(seed)
    ranks = chance.choice([2, 3, 4])
    dist.simulate(lambda: Program(seed, ranks).run(), ranks, seed, delay=chance.choice([0.0, 0.0, 1.0]))


def run_with_fault(seed: int) -> None:
    """One program in which something goes wrong on a rank; raises if another rank does not end by saying so."""
    chance = random.Random(seed)
    ranks = chance.choice([2, 3, 4])
    victim, at = chance.randrange(ranks), chance.randrange(6)
    kinds: list[Literal["lose", "freeze"] | None] = ["lose", "freeze", None]
    kind = chance.choice(kinds)  # None: the victim wants something else than the others
    faults = [] if kind is None else [dist.Fault(victim, at, kind)]

    def program() -> None:
        if kind is None:
            flow.distributed.barrier().tolist()
            if dist.get_rank() == victim:
                dist.all_reduce(flow.ones(3)).tolist()
        for number in range(3):
            Program(seed + number, ranks).run()
            # Other ranks may still wait for operations that a rank has only issued.
            flow.distributed.barrier().tolist()

    results = dist.simulate(program, ranks, seed, faults=faults, return_exceptions=True, timeout=60)
    for rank, found in enumerate(results):
        if rank == victim and kind is not None:
            assert found is None, f"rank {rank} was to be gone, and has {found!r}"
        else:
            assert isinstance(found, dist.CollectiveError), f"rank {rank} ended with {found!r}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    failed = 0
    for seed in range(options.first, options.first + options.programs):
        try:
            (run_with_fault if options.faults else run)(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
    gc.collect()
    left = threading.active_count() - 1
    print(f"{options.programs} programs, {failed} failed, {left} threads left, {time.perf_counter() - began:.0f} s")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
