"""Train a small GPT to write Python, inside asyncio, and watch it learn.

The text is the standard library's own source, character by character.  While one task trains, another prints a sample
of the network's writing every few hundred steps.  At the end: the mean loss of each tenth of the steps, characters
per second, and a longer sample; with matplotlib, also a picture of the loss.

The program takes about a minute; if other programs keep the processors busy, set OPENBLAS_NUM_THREADS=1.

With a C compiler, the first run on a machine begins by compiling kernels, which are kept for later runs.

    python examples/char_gpt.py [--steps 800] [--seed 0] [--seconds 75] [--outputs outputs]
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import importlib.util
import math
import sysconfig
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import vmflow as flow
import vmflow.nn.functional as F
from vmflow import nn

# Well-commented modules that are in all versions of Python; ordered by name.
MODULES = [
    *("argparse", "ast", "calendar", "codecs", "copy", "csv", "dis", "enum", "fractions", "functools", "gettext"),
    *("heapq", "inspect", "locale", "mailbox", "optparse", "pickle", "random", "shutil", "statistics", "tarfile"),
    *("textwrap", "threading", "tokenize", "traceback", "typing", "uuid", "warnings", "zipfile"),
]


@dataclass(frozen=True)
class Text:
    """A text as numbers: `letters` are its different characters, `numbers` its characters as indices into `letters`."""

    letters: str
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]

    def decode(self, numbers: list[int]) -> str:
        return "".join([self.letters[number] for number in numbers])

    def encode(self, text: str) -> list[int]:
        return [self.letters.index(letter) for letter in text]


def load() -> Text:
    """The source of `MODULES`, except those that this Python does not have as single files."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [folder / f"{name}.py" for name in MODULES]
    source = "\n".join([file.read_text("utf-8") for file in files if file.is_file()])
    source = "".join([letter for letter in source if letter.isascii() and (letter.isprintable() or letter == "\n")])
    letters = "".join(sorted(set(source)))
    return Text(letters, np.array([letters.index(letter) for letter in source], np.int64))


class Block(nn.Module):
    """A transformer block: causal self-attention, then a network of two layers; each adds its result to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def attend(self, x: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: flow.Tensor = self.out(y.transpose(1, 2).reshape(batch, length, width))
        return result

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x + self.attend(self.norm1(x))
        result: flow.Tensor = x + self.mlp(self.norm2(x))
        return result


class GPT(nn.Module):
    """Maps numbers (batch, length) of characters to scores (batch, length, letters) of the next character."""

    def __init__(self, letters: int, context: int = 64, width: int = 128, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.context = context
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        for table in (self.letter, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, numbers: flow.Tensor) -> flow.Tensor:
        x = self.letter(numbers) + self.place(flow.arange(numbers.shape[1]))
        result: flow.Tensor = self.head(self.norm(self.blocks(x)))
        return result


@dataclass
class Progress:
    """The progress of training, which other tasks read.

    Attributes:
        losses: the losses of all steps so far.
        tokens: the number of characters trained on so far.
        due: set when a sample is to be printed.
    """

    losses: list[float] = field(default_factory=list)
    tokens: int = 0
    due: asyncio.Event = field(default_factory=asyncio.Event)

    def recent(self, count: int = 50) -> float:
        """The mean loss of the last `count` steps."""
        return sum(self.losses[-count:]) / len(self.losses[-count:])


def train_step(model: GPT, optimizer: flow.optim.Optimizer, text: Text, starts: Sequence[int]) -> flow.Tensor:
    """Issue a step of training on the windows that begin at `starts`; returns the loss before it is computed."""
    windows = flow.tensor(np.stack([text.numbers[start : start + model.context + 1] for start in starts]))
    scores = model(windows[:, :-1])
    loss: flow.Tensor = F.cross_entropy(scores.reshape(-1, len(text.letters)), windows[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


async def train(
    model: GPT, text: Text, steps: int, seconds: float, seed: int, progress: Progress, every: int, batch: int = 16
) -> None:
    """Train for `steps` steps or `seconds` seconds; print the loss, and set `progress.due`, every `every` steps."""
    generator = np.random.default_rng(seed)
    optimizer = flow.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    end = time.perf_counter() + seconds
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min((step + 1) / 50, 0.55 + 0.45 * math.cos(math.pi * step / steps))
        starts = generator.integers(0, len(text.numbers) - model.context - 1, batch)
        loss = train_step(model, optimizer, text, starts.tolist())
        # The step has only been issued.  During the await, the event loop runs other tasks.
        await loss
        progress.losses.append(loss.item())
        progress.tokens += batch * model.context
        if (step + 1) % every == 0 or step == 0:
            print(f"step {step + 1:5d}   loss {progress.recent():.3f}", flush=True)
            progress.due.set()
        if time.perf_counter() > end:
            print(f"{seconds:.0f} seconds have passed after {step + 1} of {steps} steps")
            break


@flow.no_grad()
async def write(model: GPT, text: Text, prompt: str, count: int) -> str:
    """The prompt and `count` more characters, drawn by their probabilities at temperature 0.8."""
    numbers = text.encode(prompt)
    for _ in range(count):
        window = flow.tensor([numbers[-model.context :]])
        chances = F.softmax(model(window)[0, -1] / 0.8, -1)
        chosen = await flow.multinomial(chances, 1)
        numbers.append(int(chosen.item()))
    return text.decode(numbers)


async def do_all_once(text: Text, batch: int = 16) -> None:
    """Run all computations of `main` once, with a throw-away network."""
    model = GPT(len(text.letters))
    optimizer = flow.optim.AdamW(model.parameters())
    await train_step(model, optimizer, text, range(batch))
    await write(model, text, text.decode(text.numbers[: model.context].tolist()), 1)


async def have_kernels(work: Callable[[], Awaitable[object]]) -> None:
    """Call `work` until all the C kernels that it can use are compiled; once only, if the kernels are on disk."""
    await work()
    while flow.backends.codegen.pending():
        await asyncio.to_thread(flow.backends.codegen.wait, say=print)
        await work()


async def show_samples(model: GPT, text: Text, progress: Progress, count: int) -> None:
    """Print a sample of `count` characters whenever `progress.due` is set, until cancelled."""
    while True:
        await progress.due.wait()
        progress.due.clear()
        begun = len(progress.losses)
        # A copy, since reading parameters waits for the training step that changes them, and each character reads them.
        # With priority, since a character is little work, and a step much.
        frozen = copy.deepcopy(model)
        with flow.scope(priority=1, name="sample"):
            sample = await write(frozen, text, "\ndef ", count)
        print(
            f"----- begun after step {begun}, written by step {len(progress.losses)}\n{sample.strip()}\n-----",
            flush=True,
        )


def draw(path: Path, losses: list[float]) -> None:
    """Draw the loss by step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(losses, color="0.8", label="each step")
    width = min(50, len(losses))
    axes.plot(np.arange(width - 1, len(losses)), np.convolve(losses, np.ones(width) / width, "valid"), label="mean")
    axes.set(xlabel="step", ylabel="cross-entropy per character", title="a small GPT learns to write Python")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


async def main(steps: int, seed: int, seconds: float, outputs: Path, every: int = 200, sample: int = 400) -> Progress:
    """Train, with a task beside it that prints samples, then print the results."""
    text = load()
    async with flow.VirtualMachine("char_gpt"):
        await have_kernels(lambda: do_all_once(text))
        flow.manual_seed(seed)
        model = GPT(len(text.letters))
        count = sum([parameter.numel() for parameter in model.parameters()])
        print(f"{len(text.numbers):,} characters, {len(text.letters)} different; {count:,} parameters")
        progress = Progress()
        sampling = asyncio.create_task(show_samples(model, text, progress, sample // 4))
        begin = time.perf_counter()
        try:
            await train(model, text, steps, seconds, seed, progress, every)
            taken = time.perf_counter() - begin
        finally:
            sampling.cancel()
        curve = [sum(part) / len(part) for part in np.array_split(progress.losses, min(10, len(progress.losses)))]
        print("loss, mean of each tenth:", " ".join([f"{loss:.3f}" for loss in curve]))
        print(f"{len(progress.losses)} steps in {taken:.1f} s: {progress.tokens / taken:,.0f} characters per second")
        print(await write(model, text, "\ndef ", sample))
    if importlib.util.find_spec("matplotlib") is not None:
        draw(outputs / "char_gpt.png", progress.losses)
        print(f"saved {outputs / 'char_gpt.png'}")
    return progress


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=75.0, help="stop training after this time")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder for the picture")
    options = parser.parse_args()
    options.outputs.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(options.steps, options.seed, options.seconds, options.outputs))
