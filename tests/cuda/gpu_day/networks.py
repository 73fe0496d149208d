"""The networks that are trained and timed, of vmflow or of torch, in two sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from tests.benchmarks.models import gpt_blocks, lenet, mlp


class Network(NamedTuple):
    """A network with its training.

    Attributes:
        make: of a library.
        optimizer: of a library, and the parameters.
        loss: the name of a function in a library's `nn.functional`.
        batch: of a seed, the inputs and the targets.
    """

    make: Callable[[Any], Any]
    optimizer: Callable[[Any, Any], Any]
    loss: str
    batch: Callable[[int], tuple[Any, Any]]


def networks(small: bool) -> dict[str, Network]:
    """By name: a perceptron, LeCun's network or one like it, and blocks of a GPT."""
    return _SMALL if small else _LARGE


def _small_perceptron(library: Any) -> Any:
    layers = library.nn
    return layers.Sequential(layers.Linear(12, 16), layers.ReLU(), layers.Linear(16, 4))


def _small_lenet(library: Any) -> Any:
    layers = library.nn
    return layers.Sequential(
        *(layers.Conv2d(1, 3, 3, padding=1), layers.ReLU(), layers.MaxPool2d(2)),
        *(layers.Conv2d(3, 4, 3), layers.ReLU(), layers.Flatten(), layers.Linear(16, 4)),
    )


def _classes(shape: tuple[int, ...], count: int) -> Callable[[int], tuple[Any, Any]]:
    def batch(seed: int) -> tuple[Any, Any]:
        random = np.random.default_rng(seed)
        return random.standard_normal(shape).astype(np.float32), random.integers(0, count, shape[0])

    return batch


def _same(shape: tuple[int, ...]) -> Callable[[int], tuple[Any, Any]]:
    """The targets are the inputs of the seed."""

    def batch(seed: int) -> tuple[Any, Any]:
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        return x, x

    return batch


def _momentum(library: Any, parameters: Any) -> Any:
    return library.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _adam(library: Any, parameters: Any) -> Any:
    return library.optim.Adam(parameters, lr=1e-3)


def _adam_w(library: Any, parameters: Any) -> Any:
    return library.optim.AdamW(parameters, lr=3e-4)


_SMALL: Final = {
    "MLP": Network(_small_perceptron, _momentum, "cross_entropy", _classes((6, 12), 4)),
    "CNN": Network(_small_lenet, _adam, "cross_entropy", _classes((2, 1, 8, 8), 4)),
    "GPT": Network(lambda library: gpt_blocks(library, 1, 16, 2), _adam_w, "mse_loss", _same((2, 4, 16))),
}
_LARGE: Final = {
    "MLP": Network(mlp, _momentum, "cross_entropy", _classes((64, 784), 10)),
    "CNN": Network(lenet, _adam, "cross_entropy", _classes((64, 1, 28, 28), 10)),
    "GPT": Network(lambda library: gpt_blocks(library, 4, 256, 4), _adam_w, "mse_loss", _same((8, 128, 256))),
}
