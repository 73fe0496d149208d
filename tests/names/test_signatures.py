"""What PyTorch takes as an argument, vmflow takes; the exceptions are deliberate, and each has its reason."""

from __future__ import annotations

from typing import Final

import pytest

from .signatures import walk

torch = pytest.importorskip("torch", reason="compares with PyTorch")

pytestmark = pytest.mark.host

