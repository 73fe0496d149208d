"""Train a small convolutional network on handwritten digits, inside asyncio.

The data are scikit-learn's: 1797 scanned digits of 8 x 8 pixels.  While the network trains, another coroutine ticks
every millisecond and records how late the event loop wakes it.  At the end of this first act, the network is evaluated
on digits that it was not trained on, saved and loaded again, and a picture shows the loss and some predictions.

In the second act the same network is trained and evaluated as a graph, which is recorded once and then run as a whole:
with the same weights and batches, it has the same losses to the last bit.

With a C compiler, the first run on a machine begins by compiling kernels, which are kept for later runs.

With --device cuda, both acts are computed on the CUDA device, and the losses of the first steps are compared with the
CPU's.  VMFLOW_CUDA=emulated shows the same without a GPU, where --steps 20 keeps the wait short.

With --serve there is a third act: the network of the second act is saved as a graph, for batches of several sizes, and
served on a page on which digits can be drawn (this needs the extra "serve").

    python examples/digits.py [--epochs 10] [--steps STEPS] [--seed 0] [--device cpu] [--outputs outputs]
                              [--serve [PORT]]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import vmflow as flow
from vmflow import nn


@dataclass(frozen=True)
class Digits:
    """Images (n, 1, 8, 8) in [0, 1], and labels (n,) from 0 to 9."""

    images: flow.Tensor
    labels: flow.Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass
class Heartbeat:
    """Sleeps for `interval` seconds again and again, and records in `lags` how many seconds late it wakes."""

    interval: float = 1e-3
    lags: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(self.interval)
            self.lags.append(time.perf_counter() - begin - self.interval)

    def __str__(self) -> str:
        median, worst = statistics.median(self.lags) * 1e3, max(self.lags) * 1e3
        return f"{len(self.lags)} ticks, late by {median:.2f} ms in the median, {worst:.1f} ms at worst"


def load(seed: int) -> tuple[Digits, Digits]:
    """The digits to train on and those to test on, four to one."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    parts = train_test_split(images, labels.astype(np.int64), test_size=0.2, random_state=seed, stratify=labels)
    train_images, test_images, train_labels, test_labels = [flow.tensor(part) for part in parts]
    return Digits(train_images, train_labels), Digits(test_images, test_labels)


def build() -> nn.Module:
    """Two convolutions and a linear layer: 6,200 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )


def train_step(model: nn.Module, optimizer: Any, images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
    """Issue a step of training, and return its loss before it is computed."""
    loss: flow.Tensor = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batches(digits: Digits, steps: int, batch: int = 64) -> Iterator[tuple[flow.Tensor, flow.Tensor]]:
    """Yield `steps` batches of images and labels: all digits in a random order, again and again."""
    left = steps
    while left:
        for chosen in flow.randperm(len(digits)).split(batch)[:left]:
            left -= 1
            yield digits.images[chosen], digits.labels[chosen]


Step = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]


async def train(step: Step, digits: Digits, steps: int, title: str) -> list[float]:
    """Call `step` on `steps` batches, and return the loss of every step."""
    losses: list[float] = []
    with tqdm(total=steps, unit="step", desc=title) as progress:
        for images, labels in batches(digits, steps):
            loss = step(images, labels)
            # The step has only been issued.  During the await, the event loop runs other coroutines.
            await loss
            losses.append(loss.item())
            progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            progress.update()
    return losses


class TrainGraph(nn.Graph):
    """A step of training, recorded at its first call."""

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        super().__init__()
        self.model = model
        self.loss_of = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer)
        # Fused ops round differently; without them the losses are those of eager training.
        self.config.allow_fusion(False)
        # Two shapes, since the last batch of an epoch is smaller.
        self.with_dynamic_input_shape(size=2)

    def build(self, images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        """The loss; the graph adds the optimizer's step after the backward pass."""
        loss: flow.Tensor = self.loss_of(self.model(images), labels)
        loss.backward()
        return loss


class PredictGraph(nn.Graph):
    """The most likely digit for each image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.config.allow_fusion(False)

    def build(self, images: flow.Tensor) -> flow.Tensor:
        """The same as `predict`."""
        digits: flow.Tensor = self.model(images).argmax(1)
        return digits


class ScoreGraph(nn.Graph):
    """The probability of each of the ten digits, for each image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.with_dynamic_input_shape(size=6)

    def build(self, images: flow.Tensor) -> flow.Tensor:
        """The probabilities."""
        likely: flow.Tensor = self.model(images).softmax(1)
        return likely


async def save_for_serving(model: nn.Module, folder: Path) -> None:
    """Write a folder for `python -m vmflow serve`: a graph that was built for each size of batch."""
    model.eval()
    graph = ScoreGraph(model)
    with flow.no_grad():
        for size in (1, 2, 4, 8, 16, 32):
            await graph(flow.zeros(size, 1, 8, 8))
    flow.save(graph, folder)


@flow.no_grad()
async def predict(model: nn.Module, images: flow.Tensor) -> flow.Tensor:
    """The most likely digit for each image."""
    model.eval()
    digits: flow.Tensor = model(images).argmax(1)
    return await digits


def draw(path: Path, losses: list[float], digits: Digits, predictions: flow.Tensor, accuracy: float) -> None:
    """Save a picture of the loss by step and of twenty digits with their predictions, wrong ones first."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    images, labels, predicted = digits.images.numpy(), digits.labels.numpy(), predictions.numpy()
    shown = np.argsort(predicted == labels, kind="stable")[:20]
    figure = plt.figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.2))
    axes = left.subplots()
    axes.semilogy(losses, color="0.8", label="each step")
    width = 20
    axes.semilogy(np.convolve(losses, np.ones(width) / width, "valid"), label=f"mean of {width}")
    axes.set(xlabel="step", ylabel="cross-entropy", title=f"training; test accuracy {accuracy:.4f}")
    axes.legend()
    right.suptitle("predictions on the test set, mistakes first")
    for position, one in zip(shown, right.subplots(4, 5).flat, strict=True):
        right_one = predicted[position] == labels[position]
        one.imshow(images[position, 0], cmap="gray_r")
        one.set_title(
            str(predicted[position]) if right_one else f"{predicted[position]}, is {labels[position]}",
            color="black" if right_one else "crimson",
            fontsize=10,
        )
        one.set_axis_off()
    figure.savefig(path, dpi=110)
    plt.close(figure)


@dataclass(frozen=True)
class Times:
    """The seconds of a step eagerly and as a graph, and graph by eager: each the median of many pairs of runs."""

    eager: float
    graph: float
    ratio: float


async def compare(digits: Digits, pairs: int, steps: int = 10, batch: int = 64) -> Times:
    """Time steps of two new networks, one trained eagerly and one as a graph; they take turns.

    A turn is `steps` steps.  Programs train in one way; changing at every step would measure each way with the caches
    and helper threads in the state that the other way has left.
    """
    model, twin = build(), build()
    optimizer = optimizer_of(model)
    graph = TrainGraph(twin, optimizer_of(twin))
    ways: tuple[Callable[..., Awaitable[flow.Tensor]], ...] = (partial(train_step, model, optimizer), graph)
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(pairs + 1):
        chosen = flow.randperm(len(digits))[:batch]
        images, labels = await digits.images[chosen], await digits.labels[chosen]
        for way in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            for _ in range(steps):
                await ways[way](images, labels)
            spent[way].append((time.perf_counter() - begin) / steps)
    eagerly, as_graph = [times[1:] for times in spent]  # without the first turn, which builds the graph
    ratios = [graphed / eager for graphed, eager in zip(as_graph, eagerly, strict=True)]
    return Times(statistics.median(eagerly), statistics.median(as_graph), statistics.median(ratios))


async def do_all_once(train_digits: Digits, test_digits: Digits) -> None:
    """Run all computations of the two acts once, with throw-away networks."""
    await compare(train_digits, pairs=1, steps=1)
    model = build()
    await predict(model, test_digits.images)
    await PredictGraph(model)(test_digits.images)


async def have_kernels(work: Callable[[], Awaitable[object]]) -> None:
    """Call `work` until all the C kernels that it can use are compiled; once only, if the kernels are on disk."""
    await work()
    while flow.backends.codegen.pending():
        await asyncio.to_thread(flow.backends.codegen.wait, say=print)
        await work()


@dataclass(frozen=True)
class Start:
    """The weights before training, and the state of the random generator of batches and dropout."""

    weights: dict[str, flow.Tensor]
    state: flow.Tensor

    @classmethod
    def from_seed(cls, seed: int) -> Start:
        """The start for a seed, the same on all devices."""
        flow.manual_seed(seed)
        weights = {name: value.to("cpu").clone() for name, value in build().state_dict().items()}
        return cls(weights, flow.get_rng_state())

    def model(self) -> nn.Module:
        """Make a network with these weights, and reset the random generator to `state`."""
        model = build()
        model.load_state_dict(self.weights)
        flow.set_rng_state(self.state)
        return model


def optimizer_of(model: nn.Module) -> Any:
    """Adam, for all parameters."""
    return flow.optim.Adam(model.parameters(), lr=2e-3)


async def first_act(start: Start, digits: Digits, steps: int) -> tuple[list[float], nn.Module]:
    """Train eagerly; returns the losses and the network."""
    model = start.model()
    heartbeat = Heartbeat()
    ticking = asyncio.create_task(heartbeat.run())
    begin = time.perf_counter()
    losses = await train(partial(train_step, model, optimizer_of(model)), digits, steps, "training")
    seconds = time.perf_counter() - begin
    ticking.cancel()
    print(f"{steps} steps in {seconds:.1f} s, {seconds / steps * 1e3:.1f} ms each")
    print(f"meanwhile on the event loop: {heartbeat}")
    return losses, model


async def second_act(start: Start, digits: Digits, steps: int) -> tuple[list[float], nn.Module]:
    """Train as a graph; returns the losses and the network."""
    model = start.model()
    graph = TrainGraph(model, optimizer_of(model))
    return await train(graph, digits, steps, "training as a graph"), model


async def compare_with_cpu(start: Start, seed: int, losses: list[float]) -> None:
    """Take the first steps, at most 20, on the CPU, too, and print the largest difference of the losses."""
    with flow.device("cpu"):
        digits, _ = load(seed)
        model = start.model()
        step = partial(train_step, model, optimizer_of(model))
        expected = await train(step, digits, min(len(losses), 20), "the same on the CPU")
    furthest = max([abs(loss - reference) for loss, reference in zip(losses, expected, strict=False)])
    print(f"the first {len(expected)} losses differ from the CPU's by {furthest:.1e} at most")


async def main(
    epochs: int, seed: int, outputs: Path, served: Path | None = None, *, device: str = "cpu", steps: int | None = None
) -> None:
    """Train, evaluate, save into the folder `outputs`, load again and predict.

    Args:
        epochs: the number of epochs of training.
        seed: the seed of all random numbers.
        outputs: the folder for checkpoint and picture.
        served: the folder for a graph to serve; None for none.
        device: the device on which to compute.
        steps: the most steps of training, without timing graphs; None for all steps of the epochs, with timing.
    """
    async with flow.VirtualMachine("digits"):
        with flow.device(device):
            train_digits, test_digits = load(seed)
            steps_per_epoch = -(-len(train_digits) // 64)
            count = epochs * steps_per_epoch if steps is None else min(steps, epochs * steps_per_epoch)
            if steps is None:
                # Compiled first, so that the same kernels compute all that is timed and compared below.
                await have_kernels(lambda: do_all_once(train_digits, test_digits))
            start = Start.from_seed(seed)
            losses, model = await first_act(start, train_digits, count)
            if device != "cpu":
                await compare_with_cpu(start, seed, losses)
            await evaluate(model, test_digits, losses, epochs, outputs)

            # A third of the steps suffices to show that the losses agree.
            part = -(-epochs // 3) * steps_per_epoch if steps is None else count
            graph_losses, twin = await second_act(start, train_digits, part)
            if graph_losses != losses[: len(graph_losses)]:
                raise RuntimeError("the losses of the graph and of eager training differ")
            twin.eval()
            graph_predictions = await PredictGraph(twin)(test_digits.images)
            if not (await (graph_predictions == await predict(twin, test_digits.images)).all()).item():
                raise RuntimeError("the predictions of the graph and of the eager network differ")
            print(f"the {len(graph_losses)} losses and the predictions of the graph are the same to the last bit")
            if steps is None:
                pairs, turn = 20, 10
                times = await compare(train_digits, pairs, turn)
                print(
                    f"a step takes {times.graph * 1e3:.1f} ms as a graph and {times.eager * 1e3:.1f} ms eagerly: "
                    f"{times.ratio:.2f} of the time (medians of {pairs} pairs of {turn} steps each)"
                )
            if served is not None:
                await save_for_serving(twin, served)


async def evaluate(model: nn.Module, digits: Digits, losses: list[float], epochs: int, outputs: Path) -> None:
    """Test the network, save it, check that the loaded one predicts the same, and draw the picture."""
    predictions = await predict(model, digits.images)
    correct = await (predictions == digits.labels).sum()
    accuracy = correct.item() / len(digits)
    checkpoint = outputs / "digits.safetensors"
    flow.save({"model": model.state_dict(), "epochs": epochs, "accuracy": accuracy}, checkpoint)
    reloaded = build()
    reloaded.load_state_dict(flow.load(checkpoint)["model"])
    same = await (await predict(reloaded, digits.images) == predictions).all()
    if not same.item():
        raise RuntimeError("the predictions of the reloaded and of the saved network differ")
    picture = outputs / "digits.png"
    draw(picture, losses, digits, predictions, accuracy)
    print(f"saved {checkpoint} and {picture}; the reloaded network predicts the same")
    print(f"test accuracy {accuracy:.4f}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse options, by default this process's; exits if --serve is given and packages for serving are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="stop training after so many steps; nothing is timed then")
    parser.add_argument("--device", default="cpu", help="the device to compute on: cpu, cuda or cuda:1, for instance")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder for checkpoint and picture")
    parser.add_argument("--serve", type=int, nargs="?", const=8000, metavar="PORT", help="serve the network in the end")
    options = parser.parse_args(arguments)
    absent = [name for name in ("safetensors", "starlette", "uvicorn") if find_spec(name) is None]
    if options.serve is not None and absent:
        parser.error(f"--serve needs {', '.join(absent)}; install it with: pip install '.[examples,serve]'")
    return options


if __name__ == "__main__":
    options = parse()
    options.outputs.mkdir(parents=True, exist_ok=True)
    served = options.outputs / "digits_graph" if options.serve is not None else None
    asyncio.run(main(options.epochs, options.seed, options.outputs, served, device=options.device, steps=options.steps))
    if served is not None:
        from vmflow.serving.command import serve

        sys.exit(serve(str(served), port=options.serve))
