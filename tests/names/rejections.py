"""Wrong calls, which PyTorch refuses: what vmflow refuses as well, and what it takes on purpose.

Each line of `REJECTED` is a call that is evaluated with `t` for the library, `F` for its nn.functional, `L` for its
linalg, `nn`, `optim`, `LR` (lr_scheduler), `I` (nn.init), `U` (nn.utils), `D` (distributions), `G` (fft), `data`
(utils.data), and the tensors of `operands`.  The error has to name one of the functions or classes called, or what stands
behind the bar.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def operands() -> dict[str, Any]:
    """The tensors of the calls, as arrays."""

    def wave(*shape: int) -> Any:
        return np.sin(np.arange(np.prod(shape)) * 1.7 + 0.3).reshape(shape)

    a = wave(4, 4) + 3 * np.eye(4)
    return {
        # Matrices, of floats unless said otherwise.
        "x": wave(3, 4),
        "y": wave(3, 4)[::-1].copy(),
        "p": np.abs(wave(3, 4)) + 0.1,
        "h": np.abs(wave(3, 4)) * 0.9 + 0.05,
        "a": a,
        "spd": a @ a.T + np.eye(4),
        "m": wave(3, 4) > 0,
        "k": np.arange(12).reshape(3, 4) % 5,
        "z": np.zeros((0, 4)),
        "ix": np.array([[0, 1, 2, 0], [1, 1, 0, 2]]),
        "e": wave(7, 5),
        # Vectors and numbers.
        "s": np.array(0.7),
        "v": wave(5),
        "w": wave(5) + 1,
        "r": wave(4),
        "i": np.array([2, 0, 1, 2]),
        "labels": np.array([1, 0, 3]),
        "sgn": np.array([1.0, -1.0, 1.0]),
        # Batches: of matrices, lines, images and volumes.
        "b": wave(2, 3, 4),
        "b2": wave(2, 4, 5),
        "seq": wave(2, 3, 10),
        "img": wave(2, 3, 8, 6),
        "vol": wave(1, 3, 5, 4, 6),
        "grid": wave(2, 4, 5, 2),
        "q4": wave(2, 2, 3, 4),
        "kernel2": wave(4, 3, 3, 2),
        # In float32, as layers compute.
        "f3": wave(3).astype(np.float32),
        "f4": wave(4).astype(np.float32),
        "f34": wave(3, 4).astype(np.float32),
        "f23": wave(2, 3).astype(np.float32),
        "f235": wave(2, 3, 5).astype(np.float32),
        "f2345": wave(2, 3, 4, 5).astype(np.float32),
        "f23456": wave(2, 3, 4, 5, 6).astype(np.float32),
    }
