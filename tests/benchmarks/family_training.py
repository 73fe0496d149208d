"""The time of training steps, eagerly and as graphs, and of an optimizer's step alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vmflow as flow
from tests.benchmarks import models
from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, GRAPH, Bar, Case
from tests.benchmarks.models import Training, eager_training, finish, repeated

# Functions that make a model of a library, and an optimizer of a library for a model's parameters.
MakeModel = Callable[[Any], Any]
MakeOptimizer = Callable[[Any, Any], Any]


def training(company: Company) -> Iterator[Case]:
    """Generate the cases of training steps of a dense classifier, two convolutional ones, and a GPT's blocks."""
    for batch, graph_share in ((2, 0.5), (4, 0.6)) if company.quick else ((64, 0.5), (512, 0.6)):
        yield mlp(company, batch, graph_share)
    batch = 2 if company.quick else 64
    yield classifier(company, "digits CNN step", models.digits_network, (batch, 1, 8, 8))
    yield classifier(company, "LeNet step", models.lenet, (batch, 1, 28, 28))
    yield gpt(company)


def momentum(library: Any, parameters: Any) -> Any:
    """The optimizer of the dense classifier."""
    return library.optim.SGD(parameters, lr=models.MLP_RATE, momentum=models.MLP_MOMENTUM)


def adam(library: Any, parameters: Any) -> Any:
    """The optimizer of the convolutional classifiers."""
    return library.optim.Adam(parameters, lr=1e-3)


def adam_w(library: Any, parameters: Any) -> Any:
    """The optimizer of the GPT."""
    return library.optim.AdamW(parameters, lr=3e-4)


def steps(
    company: Company, make: MakeModel, optimizer_of: MakeOptimizer, loss: str, arrays: tuple[Any, Any], count: int
) -> dict[str, Callable[[], Any]]:
    """Make the contenders of a training benchmark: functions that train `count` steps by each library.

    Args:
        company: the libraries.
        make: makes a model of a library.
        optimizer_of: makes an optimizer of a library for a model's parameters.
        loss: the name of the loss function in a library's `nn.functional`.
        arrays: inputs and targets.
        count: the number of steps, after which the loss is read.
    """

    def operands(library: Any) -> list[Any]:
        return [library.tensor(array) for array in arrays]

    def eager(library: Any) -> Callable[[], Any]:
        library.manual_seed(0)
        model = make(library)
        optimizer = optimizer_of(library, model.parameters())
        return eager_training(model, optimizer, getattr(library.nn.functional, loss), *operands(library))

    model = make(flow)
    graph = Training(model, optimizer_of(flow, model.parameters()), getattr(flow.nn.functional, loss))
    given = operands(flow)
    contenders: dict[str, Callable[[], Any]] = {
        EAGER: _trained(eager(flow), count, finish),
        GRAPH: _trained(lambda: graph(*given), count, finish),
    }
    if company.torch is not None:
        contenders["torch"] = _trained(eager(company.torch), count)
    return contenders


def _trained(step: Callable[[], Any], count: int, finish: Callable[[], object] | None = None) -> Callable[[], None]:
    """Make a function that runs `count` steps and reads the loss of the last one, as programs do now and then."""

    def last() -> None:
        step().item()
        if finish is not None:
            finish()

    return repeated(step, count - 1, last)


def mlp(company: Company, batch: int, graph_share: float) -> Case:
    """Make the case of the dense classifier's training step; for numpy and jax the step is written out by hand."""
    random = np.random.default_rng(0)
    x = random.standard_normal((batch, models.MLP_SIZES[0])).astype(np.float32)
    target = random.integers(0, models.MLP_SIZES[-1], batch)
    count = 1 if company.quick else max(2, 1280 // batch)
    contenders = steps(company, models.mlp, momentum, "cross_entropy", (x, target), count)
    if company.numpy:
        contenders["numpy"] = repeated(models.numpy_mlp_step(x, target), count)
        contenders["its products"] = repeated(models.numpy_mlp_products(batch), count)
    if company.jax is not None:
        contenders["jax"] = repeated(models.jax_mlp_step(company.jax, x, target), count)
    return Case(f"MLP step, batch {batch}", contenders, count, bars=(Bar(0.95), Bar(graph_share, GRAPH)))


def classifier(company: Company, name: str, make: MakeModel, shape: tuple[int, ...]) -> Case:
    """Make the case of a training step of a convolutional classifier with Adam."""
    random = np.random.default_rng(0)
    arrays = random.standard_normal(shape).astype(np.float32), random.integers(0, 10, shape[0])
    count = 1 if company.quick else 5
    contenders = steps(company, make, adam, "cross_entropy", arrays, count)
    return Case(f"{name}, batch {shape[0]}", contenders, count, bars=(Bar(1.6), Bar(1.1, GRAPH)))


def gpt(company: Company) -> Case:
    """Make the case of a training step of a GPT's blocks, which learn to reproduce their input."""
    depth, width, length, batch = (1, 16, 4, 2) if company.quick else (4, 256, 128, 8)
    x = np.random.default_rng(0).standard_normal((batch, length, width)).astype(np.float32)

    def make(library: Any) -> Any:
        return models.gpt_blocks(library, depth, width, heads=4)

    contenders = steps(company, make, adam_w, "mse_loss", (x, x), 1)
    name = f"GPT step, {depth} blocks of {width}, {batch} x {length}"
    return Case(name, contenders, bars=(Bar(1.1), Bar(0.8, GRAPH)))


# Adam alone

RATE, FIRST, SECOND, SMALL = 1e-3, 0.9, 0.999, 1e-8


def optimizer(company: Company) -> Iterator[Case]:
    """Generate the case of a step of Adam on two million parameters."""
    shapes = [(16, 16)] * 2 if company.quick else [(512, 512)] * 8
    random = np.random.default_rng(0)
    arrays = [[random.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(2)]

    def adam_of(library: Any, **options: bool) -> Callable[[], Any]:
        parameters = [library.nn.Parameter(library.tensor(array)) for array in arrays[0]]
        for parameter, gradient in zip(parameters, arrays[1], strict=True):
            parameter.grad = library.tensor(gradient)
        step: Callable[[], Any] = library.optim.Adam(parameters, lr=RATE, **options).step
        return step

    contenders: dict[str, Callable[[], Any]] = {EAGER: repeated(adam_of(flow), 1, finish)}
    if company.numpy:
        contenders["numpy"] = _numpy_adam(*arrays)
    if company.torch is not None:
        contenders["torch"] = adam_of(company.torch)
        contenders["torch, fused"] = adam_of(company.torch, fused=True)
    if company.jax is not None:
        contenders["jax"] = _jax_adam(company.jax, *arrays)
    total = sum([array.size for array in arrays[0]])
    yield Case(f"Adam step, {total:,} parameters", contenders, bars=(Bar(0.8),))


def _numpy_adam(values: list[Any], gradients: list[Any]) -> Callable[[], None]:
    """Make numpy's step of Adam, in place with one or two temporary arrays for each operation."""
    states = [
        (entry.copy(), np.zeros_like(entry), np.zeros_like(entry), g)
        for entry, g in zip(values, gradients, strict=True)
    ]
    number = 0

    def step() -> None:
        nonlocal number
        number += 1
        rate, root = RATE / (1 - FIRST**number), (1 - SECOND**number) ** 0.5
        for value, first, second, gradient in states:
            first += (1 - FIRST) * (gradient - first)
            second *= SECOND
            second += (1 - SECOND) * gradient * gradient
            value -= rate * first / (np.sqrt(second) / root + SMALL)

    return step


def _jax_adam(jax: Any, values: list[Any], gradients: list[Any]) -> Callable[[], None]:
    """Make jax's step of Adam, compiled, which reuses the memory of the former state for the new one."""
    array = jax.numpy
    given = [array.asarray(entry) for entry in gradients]

    def moved(state: Any, gradient: Any, number: Any) -> Any:
        value, first, second = state
        first = FIRST * first + (1 - FIRST) * gradient
        second = SECOND * second + (1 - SECOND) * gradient * gradient
        root = array.sqrt(second / (1 - SECOND**number)) + SMALL
        return value - RATE / (1 - FIRST**number) * first / root, first, second

    update = jax.jit(
        lambda states, number: [moved(entry, g, number) for entry, g in zip(states, given, strict=True)],
        donate_argnums=0,
    )
    states = [
        (array.asarray(entry), array.zeros_like(entry), array.zeros_like(entry)) for entry in map(array.array, values)
    ]
    number = 0

    def step() -> None:
        nonlocal states, number
        number += 1
        states = jax.block_until_ready(update(states, float(number)))

    return step
