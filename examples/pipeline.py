"""Overlap three stages of a graph, inside asyncio, and draw when each ran.

Batches of small pictures are stored as JPEG stores them, as cosine coefficients of blocks of 8 x 8.  One graph does the
rest: it decodes a batch on the CPU, copies it to a device (the simulated one, which computes with numpy), and there a
convolutional network computes scores.  Each of the three stages is a task of the graph on a stream of its own.

First each launch is awaited before the next, so that one stage runs at a time.  Then several launches run together:
while one batch is being computed, the next is decoded.  The profiler records both ways, and a picture shows the tracks.
Each slice is wall-clock time: if other programs use the cores, overlapping gains little.

The CPU's stage has a thread of its own.  The simulated device has none: its copies and kernels take turns on the event
loop's thread, so that two of the three stages can run at a time, and a copy never runs while the device computes.  The
gaps in the tracks have the same cause: between two kernels the loop decides about the next one.

With a C compiler, the first run on a machine begins by compiling kernels, which are kept for later runs.

    python examples/pipeline.py [--launches 24] [--concurrent 8] [--seed 0] [--outputs outputs]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import attrs

# Threads of BLAS would take the cores of other stages.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import vmflow as flow
from vmflow import nn, profiler
from vmflow.profiler.events import Event

SIDE = 8

# Each stage, by the name of its stream's track in the profiler.
STAGES = {"cpu:compute": "load", "sim:0:host_to_device": "copy", "sim:0:compute": "compute"}


@attrs.frozen
class Slice:
    """The milliseconds, since the first event, in which a stage was busy."""

    stage: str
    begin: float
    end: float


@attrs.frozen
class Recorded:
    """The times and results of some launches.

    Attributes:
        seconds: from the first call to the last result.
        slices: by stage, the times at which it was busy, one for each launch.
        classes: by launch, the class of each picture.
    """

    seconds: float
    slices: dict[str, list[Slice]]
    classes: list[list[int]]

    def busy(self, stage: str) -> float:
        """The fraction of `seconds` in which a stage was busy."""
        return sum([slice_.end - slice_.begin for slice_ in self.slices[stage]]) / 1e3 / self.seconds


class Decoder(nn.Module):
    """Maps coefficients (n, rows, columns, 8, 8) to pictures (n, 1, 8 * rows, 8 * columns) in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        waves = np.arange(SIDE)
        basis = np.cos(np.pi * (2 * waves[None, :] + 1) * waves[:, None] / (2 * SIDE)) * np.sqrt(2 / SIDE)
        basis[0] /= np.sqrt(2)
        self.register_buffer("basis", flow.tensor(basis.astype(np.float32)))
        # The rounding step of each coefficient: the finer its wave, the larger.
        self.register_buffer("steps", flow.tensor((1 + waves[None, :] + waves[:, None]).astype(np.float32) / 256))

    def forward(self, coefficients: flow.Tensor) -> flow.Tensor:
        count, rows, columns = coefficients.shape[:3]
        blocks = self.basis.T @ (coefficients.float() * self.steps) @ self.basis
        pictures = blocks.permute(0, 1, 3, 2, 4).reshape(count, 1, rows * SIDE, columns * SIDE)
        result: flow.Tensor = (pictures + 0.5).clamp(0.0, 1.0)
        return result

    def encode(self, pictures: np.ndarray) -> flow.Tensor:
        """The inverse of `forward`, with rounding, for pictures (n, height, width) in numpy."""
        count, height, width = pictures.shape
        blocks = (pictures - 0.5).reshape(count, height // SIDE, SIDE, width // SIDE, SIDE).transpose(0, 1, 3, 2, 4)
        basis = self.basis.numpy()
        return flow.tensor(np.rint(basis @ blocks @ basis.T / self.steps.numpy()).astype(np.int16))


def network() -> nn.Module:
    """Three convolutions and a linear layer, on the simulated device."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ).to("sim")


class Pipeline(nn.Graph):
    """Decode, copy, compute; and copy the classes back."""

    def __init__(self, decoder: Decoder, model: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder
        self.model = model
        # Two slots between stages: one is filled while the other is read.
        self.config.set_outputs_buffer_size(2)

    def build(self, coefficients: flow.Tensor) -> flow.Tensor:
        """The class of each picture."""
        pictures = self.decoder(coefficients).to("sim")
        classes: flow.Tensor = self.model(pictures).argmax(1).to("cpu")
        return classes


def make_batches(decoder: Decoder, count: int, size: int, width: int, seed: int) -> list[flow.Tensor]:
    """Make `count` batches of `size` pictures, each of two crossed waves, as coefficients."""
    generator = np.random.default_rng(seed)
    place = np.linspace(0, 2 * np.pi, width)
    batches = []
    for _ in range(count):
        across, down = generator.uniform(1, 9, (2, size, 1, 1))
        pictures = 0.5 + 0.25 * np.sin(across * place[None, None, :]) + 0.25 * np.sin(down * place[None, :, None])
        batches.append(decoder.encode(pictures.astype(np.float32)))
    return batches


async def launch_all(
    graph: Pipeline, batches: Sequence[flow.Tensor], launches: int, concurrent: int
) -> list[list[int]]:
    """Call the graph `launches` times, with `concurrent` calls running at a time; return the results in order."""
    waiting: deque[flow.Tensor] = deque()
    classes: list[list[int]] = []
    for number in range(launches):
        waiting.append(graph(batches[number % len(batches)]))  # returns immediately
        if len(waiting) == concurrent:
            classes.append((await waiting.popleft()).tolist())
    while waiting:
        classes.append((await waiting.popleft()).tolist())
    return classes


async def have_kernels(work: Callable[[], Awaitable[object]]) -> None:
    """Call `work` until all the C kernels that it can use are compiled; once only, if the kernels are on disk."""
    await work()
    while flow.backends.codegen.pending():
        await asyncio.to_thread(flow.backends.codegen.wait, say=print)
        await work()


def stage_of(event: Event, graph: Pipeline) -> str | None:
    """The stage of which an event is a run; None for other events."""
    if event.kind != "run" or not event.name.startswith(f"{graph.name}: "):
        return None
    # Copying the classes back takes almost no time, and is no stage.
    return STAGES.get(event.track)


async def record(graph: Pipeline, batches: Sequence[flow.Tensor], launches: int, concurrent: int) -> Recorded:
    """Launch the graph under the profiler, and collect the slices of each stage."""
    async with profiler.profile() as recording:
        begin = time.perf_counter()
        classes = await launch_all(graph, batches, launches, concurrent)
        seconds = time.perf_counter() - begin
    slices: dict[str, list[Slice]] = {stage: [] for stage in STAGES.values()}
    events = [(stage, event) for event in recording.events() if (stage := stage_of(event, graph)) is not None]
    first = min([event.begin for _, event in events])
    for stage, event in events:
        slices[stage].append(Slice(stage, (event.begin - first) / 1e3, (event.end - first) / 1e3))
    return Recorded(seconds, slices, classes)


def report(name: str, recorded: Recorded) -> None:
    """Print the time of the launches, and the fraction of it in which each stage was busy."""
    launches = len(recorded.classes)
    shares = {stage: recorded.busy(stage) for stage in recorded.slices}
    busy = ", ".join([f"{stage} {share:.0%}" for stage, share in shares.items()])
    print(
        f"{name}: {launches} launches in {recorded.seconds:.2f} s, {recorded.seconds / launches * 1e3:.0f} ms each; "
        f"busy: {busy}, together {sum(shares.values()):.0%} of the time"
    )


def draw(path: Path, panels: dict[str, Recorded], shown: int = 10) -> None:
    """Draw the tracks of both runs above each other, on one scale; each launch has a colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(panels), 1, sharex=True, figsize=(11, 5), layout="constrained")
    colours = plt.get_cmap("tab10").colors
    for axes, (title, recorded) in zip(rows, panels.items(), strict=True):
        for height, (stage, slices) in enumerate(recorded.slices.items()):
            share = recorded.busy(stage)
            for number, slice_ in enumerate(slices[:shown]):
                colour = colours[number % len(colours)]
                axes.broken_barh(
                    [(slice_.begin, slice_.end - slice_.begin)], (height - 0.4, 0.8), color=colour, edgecolor="white"
                )
                if stage != "copy":  # too narrow for a number
                    middle = (slice_.begin + slice_.end) / 2
                    axes.text(middle, height, str(number), ha="center", va="center", color="white", fontsize=9)
            axes.text(1.01, height, f"busy {share:.0%}", transform=axes.get_yaxis_transform(), va="center")
        axes.set_yticks(range(len(recorded.slices)), list(recorded.slices))
        axes.invert_yaxis()
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
    rows[-1].set_xlabel(f"milliseconds; the first {shown} launches, by number")
    figure.savefig(path, dpi=110)
    plt.close(figure)


async def main(
    launches: int, concurrent: int, seed: int, outputs: Path, size: int = 48, width: int = 160
) -> dict[str, Recorded]:
    """Run both ways, print how busy the stages were, and draw the picture into the folder `outputs`."""
    flow.manual_seed(seed)
    async with flow.VirtualMachine("pipeline"):
        decoder = Decoder()
        model = network()
        batches = make_batches(decoder, 4, size, width, seed)
        graph = Pipeline(decoder, model)
        # Builds the graph, too.
        await have_kernels(lambda: launch_all(graph, batches, 2, 2))
        panels = {
            "each launch awaited before the next": await record(graph, batches, launches, 1),
            f"{concurrent} launches at a time": await record(graph, batches, launches, concurrent),
        }
        for name, recorded in panels.items():
            report(name, recorded)
        awaited, overlapped = panels.values()
        if awaited.classes != overlapped.classes:
            raise RuntimeError("overlapping has changed the results")
        print(f"the results are the same, {awaited.seconds / overlapped.seconds:.2f} times as fast")
    picture = outputs / "pipeline.png"
    draw(picture, panels)
    print(f"saved {picture}")
    return panels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=24)
    parser.add_argument("--concurrent", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder for the picture")
    options = parser.parse_args()
    options.outputs.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(options.launches, options.concurrent, options.seed, options.outputs))
