"""Training here and in PyTorch, from the same weights over the same batches, gives the same losses."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .sources import DIGITS, GPT2, SEQUENCE, TRAINING, loaded

torch = pytest.importorskip("torch", reason="compares with PyTorch")

Batches = list[tuple[Any, ...]]


def digits_batches(steps: int) -> Batches:
    load_digits = pytest.importorskip("sklearn.datasets", reason="has the digits").load_digits
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0)
    return [(images[chosen], labels[chosen]) for chosen in (order.permutation(len(images))[:64] for _ in range(steps))]


def text_batches(steps: int) -> Batches:
    """Characters of the standard library's own source, and the characters that follow."""
    text = (Path(sysconfig.get_paths()["stdlib"]) / "argparse.py").read_bytes()
    codes = np.minimum(np.frombuffer(text, np.uint8), 210).astype(np.int64)
    order = np.random.default_rng(0)
    batches: Batches = []
    for _ in range(steps):
        windows = np.stack([codes[at : at + 33] for at in order.integers(0, len(codes) - 33, 8)])
        batches.append((windows[:, :-1].copy(), windows[:, 1:].copy()))
    return batches


def series_batches(steps: int) -> Batches:
    """Windows of two waves and noise, and the value that follows each."""
    order = np.random.default_rng(0)
    at = np.arange(4000)
    series = np.sin(at / 9) + 0.5 * np.sin(at / 31) + 0.05 * order.standard_normal(4000)
    windows = np.lib.stride_tricks.sliding_window_view(series.astype(np.float32), 25)
    chosen = order.integers(0, len(windows), (steps, 32))
    return [(windows[value, :-1, None].copy(), windows[value, -1].copy()) for value in chosen]


def curves(source: str, loss: str, batches: Batches, **settings: Any) -> tuple[list[float], list[float]]:
    """The losses on torch, and those on vmflow from the same weights."""
    torch.manual_seed(0)
    theirs, ours = loaded(source, "torch").build(), loaded(source, "vmflow").build()
    ours.load_state_dict({name: flow.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    their_training, our_training = loaded(TRAINING, "torch"), loaded(TRAINING, "vmflow")
    expected = their_training.train(theirs, getattr(their_training, loss), batches, **settings)
    found = our_training.train(ours, getattr(our_training, loss), batches, **settings)
    return expected, found


def check(expected: list[float], found: list[float], improves_by: float) -> None:
    """They agree, closely as long as rounding has not been amplified; and something is learned."""
    np.testing.assert_allclose(found[:10], expected[:10], rtol=1e-4)
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    assert np.mean(found[-5:]) < improves_by * np.mean(found[:5])


@pytest.mark.slow
def test_digits() -> None:
    check(*curves(DIGITS, "classify", digits_batches(60), lr=2e-3, weight_decay=0.01), improves_by=0.6)


@pytest.mark.slow
def test_characters() -> None:
    check(*curves(GPT2, "next_token", text_batches(60), lr=1e-3, weight_decay=0.1, max_norm=1.0), improves_by=0.8)


@pytest.mark.slow
def test_series() -> None:
    check(*curves(SEQUENCE, "forecast", series_batches(60), lr=5e-3, max_norm=0.5), improves_by=0.5)
