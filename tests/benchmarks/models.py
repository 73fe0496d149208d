"""The models and programs that several benchmarks run, by any library with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import numpy as np

import vmflow as flow
from vmflow import nn
from vmflow.vm.virtual_machine import default_machine

MLP_SIZES: Final = (784, 256, 128, 10)
MLP_RATE: Final = 0.01
MLP_MOMENTUM: Final = 0.9


def repeated(work: Callable[[], object], count: int, finish: Callable[[], object] | None = None) -> Callable[[], None]:
    """Make a function that calls `work` `count` times, and then `finish`, which waits for unfinished work."""

    def run() -> None:
        for _ in range(count):
            work()
        if finish is not None:
            finish()

    return run


def elementwise_chain(x: Any, y: Any) -> Any:
    """Compute eight elementwise ops of arithmetic on `x` and `y`, arrays of any library."""
    t = (x + y) * 1.5 - y
    return ((t * x + 0.5) * y - x) * 0.25


# Models


def mlp(library: Any) -> Any:
    """Make a classifier of small images with dense layers, of the sizes `MLP_SIZES`."""
    layers: list[Any] = []
    for given, made in pairwise(MLP_SIZES):
        layers += [library.nn.Linear(given, made), library.nn.ReLU()]
    return library.nn.Sequential(*layers[:-1])


def digits_network(library: Any) -> Any:
    """Make the convolutional network of the digits example, for images of 8 x 8 pixels."""
    layers = library.nn
    return layers.Sequential(
        layers.Conv2d(1, 16, 3, padding=1),
        layers.BatchNorm2d(16),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(16, 32, 3, padding=1),
        layers.BatchNorm2d(32),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Linear(128, 10),
    )


def lenet(library: Any) -> Any:
    """Make LeNet with ReLU and max pooling, for images of 28 x 28 pixels."""
    layers = library.nn
    return layers.Sequential(
        layers.Conv2d(1, 6, 5, padding=2),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Conv2d(6, 16, 5),
        layers.ReLU(),
        layers.MaxPool2d(2),
        layers.Flatten(),
        layers.Linear(400, 120),
        layers.ReLU(),
        layers.Linear(120, 84),
        layers.ReLU(),
        layers.Linear(84, 10),
    )


def gpt_blocks(library: Any, depth: int, width: int, heads: int) -> Any:
    """Make a GPT's blocks: causal attention and a perceptron, each with a layer norm and a residual connection."""
    layers, functional = library.nn, library.nn.functional

    class Block(layers.Module):  # type: ignore[misc, name-defined]  # mypy does not know the library
        def __init__(self) -> None:
            super().__init__()
            self.first_norm, self.second_norm = layers.LayerNorm(width), layers.LayerNorm(width)
            self.in_projection, self.out_projection = layers.Linear(width, 3 * width), layers.Linear(width, width)
            self.perceptron = layers.Sequential(
                layers.Linear(width, 4 * width), layers.GELU(), layers.Linear(4 * width, width)
            )

        def attention(self, x: Any) -> Any:
            samples, length, _ = x.shape
            parts = self.in_projection(x).reshape(samples, length, 3, heads, width // heads)
            queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            return self.out_projection(mixed.transpose(1, 2).reshape(samples, length, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.first_norm(x))
            return x + self.perceptron(self.second_norm(x))

    return layers.Sequential(*[Block() for _ in range(depth)])


# Graphs and steps


class AddOne(nn.Graph):
    """A graph of one op: ``x + 1``."""

    def build(self, x: flow.Tensor) -> flow.Tensor:
        return x + 1


class GraphOf(nn.Graph):
    """A graph of a function of two tensors."""

    def __init__(self, function: Callable[[Any, Any], Any], fusion: bool = True) -> None:
        super().__init__()
        self.function = function
        self.config.allow_fusion(fusion)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> Any:
        return self.function(x, y)


class Training(nn.Graph):
    """A training step of a model as a graph."""

    def __init__(self, model: nn.Module, optimizer: flow.optim.Optimizer, loss: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor, target: flow.Tensor) -> flow.Tensor:
        loss: flow.Tensor = self.loss(self.model(x), target)
        loss.backward()
        return loss


def eager_training(
    model: Any, optimizer: Any, loss_of: Callable[[Any, Any], Any], x: Any, target: Any
) -> Callable[[], Any]:
    """Make a function that runs an eager training step and returns the loss."""

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def finish() -> None:
    """Wait for all issued ops of vmflow, also for those that follow the loss, such as the optimizer's."""
    default_machine().drain()


# The dense classifier written by hand for libraries without layers and optimizers


def mlp_parameters() -> list[np.ndarray[Any, Any]]:
    """Draw the classifier's parameters: for each layer a weight of shape (inputs, outputs) and a bias."""
    random = np.random.default_rng(0)
    found: list[np.ndarray[Any, Any]] = []
    for given, made in pairwise(MLP_SIZES):
        bound = given**-0.5
        found += [random.uniform(-bound, bound, value).astype(np.float32) for value in ((given, made), (made,))]
    return found


def numpy_mlp_step(x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], float]:
    """Make a function that runs numpy's training step of the dense classifier, gradients written out by hand."""
    parameters = mlp_parameters()
    velocities = [np.zeros_like(value) for value in parameters]
    rows = np.arange(len(x))

    def step() -> float:
        seen = [x]
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            x_next = seen[-1] @ weight + bias
            seen.append(np.maximum(x_next, 0) if len(seen) < len(MLP_SIZES) - 1 else x_next)
        logits = seen.pop()
        exponents = np.exp(logits - logits.max(1, keepdims=True))
        shares = exponents / exponents.sum(1, keepdims=True)
        loss = -float(np.log(shares[rows, target]).mean())
        shares[rows, target] -= 1
        gradient = shares / np.float32(len(x))
        gradients: list[np.ndarray[Any, Any]] = []
        for number in reversed(range(len(seen))):
            gradients[:0] = [seen[number].T @ gradient, gradient.sum(0)]
            if number:
                gradient = (gradient @ parameters[2 * number].T) * (seen[number] > 0)
        for parameter, velocity, change in zip(parameters, velocities, gradients, strict=True):
            velocity *= MLP_MOMENTUM
            velocity += change
            parameter -= MLP_RATE * velocity
        return loss

    return step


def numpy_mlp_products(batch: int) -> Callable[[], None]:
    """Make a function that computes only a training step's matrix products, into existing arrays: a lower bound."""
    products: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    random = np.random.default_rng(0)

    def add(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> None:
        products.append((left, right, np.empty((left.shape[0], right.shape[1]), np.float32)))

    for number, (before, after) in enumerate(pairwise(MLP_SIZES)):
        weight, x, gradient = (
            random.standard_normal(shape).astype(np.float32)
            for shape in ((after, before), (batch, before), (batch, after))
        )
        add(x, weight.T)
        add(gradient.T, x)
        if number:
            add(gradient, weight)

    def multiply() -> None:
        for left, right, product in products:
            np.matmul(left, right, out=product)

    return multiply


def jax_mlp_step(jax: Any, x: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], Any]:
    """Make a function that runs jax's training step of the dense classifier, compiled as a whole."""
    array = jax.numpy
    images, labels = array.asarray(x), array.asarray(target)

    def loss_of(parameters: list[Any]) -> Any:
        hidden = images
        for number in range(0, len(parameters), 2):
            hidden = hidden @ parameters[number] + parameters[number + 1]
            if number + 2 < len(parameters):
                hidden = array.maximum(hidden, 0)
        return -array.take_along_axis(jax.nn.log_softmax(hidden), labels[:, None], 1).mean()

    def update(parameters: list[Any], velocities: list[Any]) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        velocities = [MLP_MOMENTUM * value + change for value, change in zip(velocities, gradients, strict=True)]
        parameters = [
            parameter - MLP_RATE * velocity for parameter, velocity in zip(parameters, velocities, strict=True)
        ]
        return loss, parameters, velocities

    compiled = jax.jit(update)
    parameters = [array.asarray(parameter) for parameter in mlp_parameters()]
    state: list[Any] = [None, parameters, [array.zeros_like(parameter) for parameter in parameters]]

    def step() -> Any:
        state[:] = compiled(state[1], state[2])
        return jax.block_until_ready(state)[0]

    return step
