"""These tests compile CUDA C++, for which they need NVRTC, and run it without a GPU."""

from __future__ import annotations

import pytest

from vmflow.kernels.cuda import nvrtc


@pytest.fixture(autouse=True)
def _needs_nvrtc() -> None:
    if nvrtc.find() is None:
        pytest.skip("NVRTC, which compiles these kernels, is not installed: pip install 'vmflow[cuda-check]'")
