"""Whole programs print the same as on PyTorch, after a change of their imports alone."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pytest

from .running import SCRIPTS, kept, printed

try:
    import torch
except ImportError:
    torch = None

# The programs say that they run on the CPU.
pytestmark = pytest.mark.host

NUMBER: Final = re.compile(r"-?\d+\.\d+")

# By how much numbers differ: the U-Net computes in bfloat16.
TOLERANCE: Final = {"unet": 3e-2}


def compare(found: str, expected: str, tolerance: float) -> None:
    """The same text, with decimal numbers that are close."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", expected)
    one, other = ([float(number) for number in NUMBER.findall(text)] for text in (found, expected))
    # The last digit that is printed may be rounded the other way.
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=2e-4 if tolerance < 1e-2 else tolerance)


@pytest.mark.parametrize("name", SCRIPTS)
def test_program_prints_the_same_as_on_pytorch(name: str) -> None:
    compare(printed(name, "vmflow"), kept(name), TOLERANCE.get(name, 2e-3))


@pytest.mark.parametrize("name", SCRIPTS)
def test_pytorch_prints_the_recorded_text(name: str) -> None:
    """The texts in `printed` are PyTorch's, of the programs as they are now."""
    if torch is None:
        pytest.skip("PyTorch is not installed")
    compare(printed(name, "torch"), kept(name), TOLERANCE.get(name, 2e-3))
