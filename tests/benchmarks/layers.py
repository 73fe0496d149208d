"""The time of convolutions, forward and with their gradients, compared with PyTorch on one thread.

``python -m tests.benchmarks.layers [--quick] [--rounds 15] [--json FILE]``

The libraries take turns within each round, and medians over the rounds are compared; both compute in float32 on one
thread.  vmflow's BLAS reads its number of threads from the environment when numpy is imported; so this program restarts
itself if the environment says otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import restart_with_one_thread, torch_if_installed
from tests.benchmarks.measure import Case, Result, measure
from tests.benchmarks.tables import Table, conditions


class Shape(NamedTuple):
    """A convolution of a network.

    Attributes:
        name: the name of the table's row.
        input: the input's shape, (samples, channels, ...).
        filters, kernel: the number of filters, and their size in each direction.
        stride, padding: of the convolution in each direction.
        transposed: whether it is a transposed convolution.
    """

    name: str
    input: tuple[int, ...]
    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0
    transposed: bool = False

    def function(self, library: Any) -> Callable[..., Any]:
        """Make the function of `library` that computes the convolution of an input, a weight and a bias."""
        rank = len(self.input) - 2
        called = getattr(library.nn.functional, f"conv_transpose{rank}d" if self.transposed else f"conv{rank}d")
        return lambda *operands: called(*operands, stride=self.stride, padding=self.padding)

    def operands(self) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
        """Make an input, a weight and a bias of random numbers, the same at each call."""
        generator = np.random.default_rng(0)
        size = [self.kernel] * (len(self.input) - 2)
        lead = [self.input[1], self.filters] if self.transposed else [self.filters, self.input[1]]
        shapes = (self.input, (*lead, *size), (self.filters,))
        return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


# Convolutions of LeNet, of a small network for small images, and of ResNet-50; then 1-d, 3-d and transposed ones.
SHAPES = (
    Shape("LeNet1 64x1x28, 6@5 p2", (64, 1, 28, 28), 6, 5, padding=2),
    Shape("LeNet2 64x6x14, 16@5", (64, 6, 14, 14), 16, 5),
    Shape("32x64x32, 64@3", (32, 64, 32, 32), 64, 3, padding=1),
    Shape("32x128x16, 128@3", (32, 128, 16, 16), 128, 3, padding=1),
    Shape("R50 2x3x224, 64@7 s2", (2, 3, 224, 224), 64, 7, 2, 3),
    Shape("R50 4x64x56, 64@3", (4, 64, 56, 56), 64, 3, padding=1),
    Shape("R50 4x256x56, 64@1", (4, 256, 56, 56), 64, 1),
    Shape("R50 4x512x7, 512@3", (4, 512, 7, 7), 512, 3, padding=1),
    Shape("1d 16x64x512, 64@5", (16, 64, 512), 64, 5, padding=2),
    Shape("3d 2x16x16x28x28, 32@3", (2, 16, 16, 28, 28), 32, 3, padding=1),
    Shape("transposed 8x64x28, 32@4 s2", (8, 64, 28, 28), 32, 4, 2, 1, True),
)
QUICK = SHAPES[:2]

COLUMNS = ("forward ms", "torch ms", "ratio", "both ms", "torch both ms", "ratio of both")


def forward(shape: Shape, torch: Any) -> Case:
    """Make the case of a convolution's output alone."""
    arrays = shape.operands()
    operands = [flow.tensor(array) for array in arrays]
    function = shape.function(flow)
    contenders: dict[str, Callable[[], object]] = {"vmflow": lambda: function(*operands).numpy()}
    if torch is not None:
        others = [torch.tensor(array) for array in arrays]
        reference = shape.function(torch)
        contenders["torch"] = lambda: reference(*others)
    return Case(shape.name, contenders)


def forward_and_backward(shape: Shape, torch: Any) -> Case:
    """Make the case of a convolution's output and its gradients by input, weight and bias."""
    contenders = {"vmflow": _trained(flow, shape)}
    if torch is not None:
        contenders["torch"] = _trained(torch, shape)
    return Case(shape.name, contenders)


def _trained(library: Any, shape: Shape) -> Callable[[], object]:
    operands = [library.tensor(value) for value in shape.operands()]
    for operand in operands:
        operand.requires_grad_()
    function = shape.function(library)
    seed = library.ones(tuple(function(*operands).shape))

    def work() -> object:
        gradients = library.autograd.grad(function(*operands), operands, seed)
        return [gradient.numpy() for gradient in gradients]  # numpy() waits for the gradients

    return work


def run(shapes: tuple[Shape, ...], rounds: int, torch: Any) -> Table:
    """Measure and print one row for each shape."""
    table = Table("layer", COLUMNS)
    table.print_head()
    for shape in shapes:
        one = measure(forward(shape, torch), rounds)
        both = measure(forward_and_backward(shape, torch), rounds)
        table.add(
            shape.name,
            forward_ms=_milliseconds(one, "vmflow"),
            torch_ms=_milliseconds(one, "torch"),
            ratio=one.ratio("torch"),
            both_ms=_milliseconds(both, "vmflow"),
            torch_both_ms=_milliseconds(both, "torch"),
            ratio_of_both=both.ratio("torch"),
        )
    return table


def _milliseconds(result: Result, name: str) -> float | None:
    return result.microseconds[name] / 1000 if name in result.microseconds else None


def main() -> None:
    """Print the table, and write it to the file that ``--json`` names."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.layers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two small shapes and three rounds, to see that it works")
    parser.add_argument("--rounds", type=int, default=15, help="times each contender runs; the median counts")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    restart_with_one_thread()
    torch = torch_if_installed()
    print(f"{conditions()}; medians, one thread; ratios are vmflow's time to PyTorch's")
    table = run(QUICK if options.quick else SHAPES, 3 if options.quick else options.rounds, torch)
    if options.json is not None:
        table.write(options.json, conditions())


if __name__ == "__main__":
    main()
