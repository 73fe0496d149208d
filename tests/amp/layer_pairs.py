"""Two layers in a row are trained under autocast, eagerly and as a graph, and compared with float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import vmflow as flow
from vmflow import nn
from vmflow.dtypes import dtype as DType

from .layer_table import INPUTS, LAYERS, LOSSES, TOKENS, WORDS, Entry, Layer, Shape

Array = NDArray[Any]
Gradients = dict[str, Array]

LOWER: Final = (flow.bfloat16, flow.float16)

# How often the float32 reference is repeated, with numbers that are off by as much as the lower precision rounds; and
# the largest difference allowed under autocast, as a multiple of the largest change of a gradient by that.
TRIALS: Final = 3
SPREAD: Final = 4.0
# And which part of a gradient it may be anyway: a number that crosses a bend of a function does so in few trials.
PART: Final = 0.3

# A layer that cannot follow another says so by one of these.
UNFIT: Final = (ValueError, RuntimeError, TypeError, IndexError, ZeroDivisionError, AssertionError)


@dataclass(frozen=True)
class Pair:
    """Two layers, or a layer and a loss, and the shape of the first one's input."""

    first: Entry
    second: Entry
    shape: Shape

    def __str__(self) -> str:
        return f"{self.first}-{self.second}"


class Chain(nn.Module):
    """The model of a pair; its source is a parameter too.

    Args:
        pair: the layers.
        lower: the dtype of the first layer's input; None for float32.
        noise: by which part numbers are off: the source, the parameters, and the values between the layers.
        seed: of the noise.
    """

    def __init__(self, pair: Pair, lower: DType | None = None, noise: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        flow.manual_seed(5)
        self.lower: DType | None = None
        self.noise, self.generator = noise, np.random.default_rng(seed)
        values = np.random.default_rng([3, *pair.shape])
        self.source: flow.Tensor
        if pair.first.words:
            self.register_buffer("source", flow.tensor(values.integers(0, WORDS, pair.shape)))
        else:
            self.source = nn.Parameter(flow.tensor(values.normal(size=pair.shape).astype(np.float32)))
        self.first = pair.first.build(pair.shape)
        self.second = Layer(None, pair.second.call)
        self.second = pair.second.build(tuple(self._between().shape))
        with flow.no_grad():
            for tensor in self.parameters():
                tensor.copy_(self._noisy(tensor))
        self.lower = lower

    def _noisy(self, tensor: flow.Tensor) -> flow.Tensor:
        if not self.noise:
            return tensor
        return tensor * flow.tensor((1 + self.noise * self.generator.normal(size=tensor.shape)).astype(np.float32))

    def _between(self) -> flow.Tensor:
        source = self.source
        return self._noisy(self.first(source.to(self.lower) if self.lower and source.is_floating_point() else source))

    def forward(self) -> tuple[flow.Tensor, flow.Tensor]:
        """The loss, and the result of the second layer."""
        out = self.second(self._between())
        if not out.ndim:
            return out.float() * 16, out
        weights = np.random.default_rng([4, *out.shape]).uniform(0.5, 1.5, out.shape).astype(np.float32)
        return (out.float() * flow.tensor(weights)).sum() * (4 / math.sqrt(out.numel())), out


class Training(nn.Graph):
    """A chain and its backward pass."""

    def __init__(self, chain: Chain, lower: DType) -> None:
        super().__init__()
        self.chain = chain
        self.config.enable_amp(dtype=lower)

    def build(self) -> Any:
        """The loss, the result, and the gradient of each parameter."""
        loss, out = self.chain()
        loss.backward()
        return loss, out, [tensor.grad for tensor in self.chain.parameters()]


def _gradients(chain: Chain, found: list[Any]) -> Gradients:
    """The gradients by name, once they are known to be there, finite and of the parameters' dtypes."""
    gradients: Gradients = {}
    for (name, tensor), gradient in zip(chain.named_parameters(), found, strict=True):
        assert gradient is not None, f"{name} has no gradient"
        assert gradient.dtype is tensor.dtype, f"the gradient of {name} is of {gradient.dtype}"
        gradients[name] = gradient.numpy()
        assert np.isfinite(gradients[name]).all(), f"the gradient of {name} is not finite"
    return gradients


def _trained(chain: Chain, lower: DType | None) -> tuple[Array, Gradients]:
    """The result and the gradients of one eager step."""
    flow.manual_seed(7)
    with flow.autocast(chain.source.device.type, lower or flow.bfloat16, enabled=lower is not None):
        loss, out = chain()
    loss.backward()
    return out.detach().float().numpy(), _gradients(chain, [tensor.grad for tensor in chain.parameters()])


def _trained_in_graph(chain: Chain, lower: DType) -> tuple[Array, Gradients]:
    flow.manual_seed(7)
    _, out, gradients = Training(chain, lower)()
    return out.float().numpy(), _gradients(chain, gradients)


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array.astype(np.float64)))


def check(pair: Pair, lower: DType) -> None:
    """Train a pair in one lower precision.

    Raises:
        AssertionError: if a gradient is missing, not finite, of another dtype than its parameter, or far from that of
            float32, or if the graph says something else than the eager step.
    """
    _, wanted = _trained(Chain(pair), None)
    eps = flow.finfo(lower).eps
    trials = [_trained(Chain(pair, noise=eps, seed=seed), None)[1] for seed in range(TRIALS)]
    out, found = _trained(Chain(pair, lower), lower)
    assert np.isfinite(out).all()
    # Where the parts of a gradient cancel, only the rounding of the others is left.
    rounding = eps * (1 + max([_norm(gradient) for gradient in wanted.values()]))
    for name, gradient in found.items():
        spread = max([_norm(trial[name] - wanted[name]) for trial in trials])
        limit = SPREAD * spread + PART * _norm(wanted[name]) + rounding
        error = _norm(gradient - wanted[name])
        assert error <= limit, f"the gradient of {name} is off by {error:.3g}, where {limit:.3g} is allowed"
    by_graph, gradients = _trained_in_graph(Chain(pair, lower), lower)
    np.testing.assert_array_equal(by_graph, out)
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, found[name], err_msg=name)


def _result(entry: Entry, shape: Shape, lower: DType | None) -> flow.Tensor:
    """A layer's result for random numbers, or for numbers of words."""
    source = flow.zeros(shape, dtype=flow.int64) if entry.words else flow.randn(shape, dtype=lower or flow.float32)
    result: flow.Tensor = entry.build(shape)(source)
    return result


def shapes_of(entry: Entry) -> dict[Shape, Shape]:
    """The shapes that a model may begin with, if this layer comes first, and those that it makes of them."""
    found: dict[Shape, Shape] = {}
    for shape in (TOKENS,) if entry.words else INPUTS:
        if entry.fits(shape, entry.words):
            try:
                found[shape] = tuple(_result(entry, shape, None).shape)
            except UNFIT:
                continue
    return found


def pair_of(first: Entry, second: Entry, shapes: dict[Shape, Shape] | None = None) -> Pair | None:
    """The pair, for the first shape where the second can follow the first; None if there is no such shape.

    Args:
        first, second: the layers.
        shapes: `shapes_of` the first, if they are known.
    """
    for shape, between in (shapes_of(first) if shapes is None else shapes).items():
        if second.fits(between):
            pair = Pair(first, second, shape)
            try:
                with flow.no_grad():
                    Chain(pair)()
            except UNFIT:
                continue
            return pair
    return None


def pairs() -> Iterator[Pair]:
    """All pairs of a layer and a layer or loss that can follow it."""
    for first in LAYERS:
        shapes = shapes_of(first)
        for second in (*LAYERS, *LOSSES):
            if (pair := pair_of(first, second, shapes)) is not None:
                yield pair


def behaviour(entry: Entry) -> tuple[Any, ...]:
    """The dtype of a layer's result under autocast, and whether it has parameters of its own."""
    shape = next(iter(shapes_of(entry)))
    with flow.autocast(flow.zeros(1).device.type, flow.bfloat16):
        results = [_result(entry, shape, lower).dtype for lower in (None, flow.bfloat16)]
    return (entry.words, *results, any([True for _ in entry.build(shape).parameters()]))
