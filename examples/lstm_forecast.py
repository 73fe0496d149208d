"""Forecast brain waves with an LSTM.

The series is an electroencephalogram that ships with matplotlib: 800 samples of four electrodes.  From the samples so
far, the network predicts the change of each electrode at the next one.  It is trained on the first 600
samples.  On the rest, it is compared with a naive forecast, which predicts no change, and with linear regression on the
last eight samples.

With a C compiler, the first run on a machine begins by compiling kernels, which are kept for later runs.

    python examples/lstm_forecast.py [--steps 150] [--seed 0] [--outputs outputs]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cbook import get_sample_data

import vmflow as flow
from vmflow import nn

Array = np.ndarray[Any, np.dtype[np.float32]]

ELECTRODES = 4
TRAINED_ON = 600
# The number of samples from which linear regression predicts the next one.
SEEN = 8


def load() -> Array:
    """The series (samples, electrodes), scaled to mean 0 and variance 1 over the samples for training."""
    file = get_sample_data("eeg.dat", asfileobj=False)
    series = np.fromfile(str(file), np.float64).reshape(-1, ELECTRODES)
    known = series[:TRAINED_ON]
    return np.asarray((series - known.mean(0)) / known.std(0), np.float32)


class Forecaster(nn.Module):
    """Maps samples (batch, steps, electrodes) to the next sample after each step but the first."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2 * ELECTRODES, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(hidden, ELECTRODES)

    def forward(self, series: flow.Tensor) -> flow.Tensor:
        changes = series[:, 1:] - series[:, :-1]
        states, _ = self.lstm(flow.cat([series[:, 1:], changes], -1))
        # The network predicts changes, so that it need not learn to repeat its input.
        result: flow.Tensor = series[:, 1:] + self.head(self.dropout(states))
        return result


async def train(model: Forecaster, series: Array, steps: int, seed: int, length: int = 64) -> list[float]:
    """Train on random stretches, and return the loss of every step."""
    generator = np.random.default_rng(seed)
    optimizer = flow.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.02)
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * (1 - step / steps)
        starts = generator.integers(0, len(series) - length, 16)
        stretches = flow.tensor(np.stack([series[start : start + length] for start in starts]))
        loss = (model(stretches[:, :-1]) - stretches[:, 2:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        # Everything above has only been issued.  During the await, the event loop may run other tasks.
        await loss
        losses.append(loss.item())
    return losses


@flow.no_grad()
async def forecast(model: Forecaster, series: Array) -> Array:
    """The model's predictions of samples 2, 3, ..., each from the samples before it."""
    model.eval()
    predictions: flow.Tensor = await model(flow.tensor(series[None, :-1]))
    return np.asarray(predictions[0].numpy())


async def do_all_once(series: Array) -> None:
    """Run all computations of `main` once, with a throw-away network."""
    model = Forecaster()
    await train(model, series[:TRAINED_ON], 1, 0)
    await forecast(model, series)


async def have_kernels(work: Callable[[], Awaitable[object]]) -> None:
    """Call `work` until all the C kernels that it can use are compiled; once only, if the kernels are on disk."""
    await work()
    while flow.backends.codegen.pending():
        await asyncio.to_thread(flow.backends.codegen.wait, say=print)
        await work()


def regression(series: Array) -> Array:
    """Predictions of samples `SEEN`, ... by a linear regression fitted to the first `TRAINED_ON` samples."""
    seen = np.concatenate([series[index : len(series) - SEEN + index] for index in range(SEEN)], 1)
    seen = np.concatenate([seen, np.ones_like(seen[:, :1])], 1)
    factors = np.linalg.lstsq(seen[: TRAINED_ON - SEEN], series[SEEN:TRAINED_ON], rcond=None)[0]
    return np.asarray(seen @ factors, np.float32)


def error(predictions: Array, truth: Array) -> float:
    """The root of the mean squared error."""
    return float(np.sqrt(np.mean((predictions - truth) ** 2)))


@dataclass(frozen=True)
class Errors:
    """Errors of three forecasts on samples that were not trained on, in standard deviations of the series."""

    lstm: float
    naive: float
    linear: float


def draw(path: Path, losses: list[float], truth: Array, predictions: Array, errors: Errors) -> None:
    """Draw the loss by step, and a stretch of each electrode with its forecasts."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = slice(0, 100)
    figure = plt.figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.6))
    axes = left.subplots()
    axes.semilogy(losses)
    axes.set(xlabel="step", ylabel="mean squared error", title="training")
    right.suptitle(f"one sample ahead: error {errors.lstm:.3f}, naive {errors.naive:.3f}, linear {errors.linear:.3f}")
    for number, plot in enumerate(right.subplots(ELECTRODES, 1, sharex=True)):
        plot.plot(truth[shown, number], color="0.6", label="measured")
        plot.plot(predictions[shown, number], linewidth=1, label="forecast")
        plot.set_ylabel(f"electrode {number + 1}")
    plot.legend(loc="upper right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


async def main(steps: int, seed: int, outputs: Path) -> Errors:
    """Train, forecast, print the errors and draw the picture into the folder `outputs`."""
    series = load()
    async with flow.VirtualMachine("lstm_forecast"):
        await have_kernels(lambda: do_all_once(series))
        flow.manual_seed(seed)
        model = Forecaster()
        begin = time.perf_counter()
        losses = await train(model, series[:TRAINED_ON], steps, seed)
        seconds = time.perf_counter() - begin
        print(f"{steps} steps in {seconds:.1f} s, {seconds / steps * 1e3:.1f} ms each; loss {losses[-1]:.4f}")
        predictions = (await forecast(model, series))[TRAINED_ON - 2 :]
    truth = series[TRAINED_ON:]
    errors = Errors(
        lstm=error(predictions, truth),
        naive=error(series[TRAINED_ON - 1 : -1], truth),
        linear=error(regression(series)[TRAINED_ON - SEEN :], truth),
    )
    picture = outputs / "lstm_forecast.png"
    draw(picture, losses, truth, predictions, errors)
    print(f"saved {picture}")
    print(
        f"error of the forecast of {len(truth)} samples, in standard deviations: {errors.lstm:.3f}; "
        f"naive {errors.naive:.3f}, linear regression {errors.linear:.3f}"
    )
    return errors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder for the picture")
    options = parser.parse_args()
    options.outputs.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(options.steps, options.seed, options.outputs))
