"""Tests of CUDA devices run on emulated ones, and need NVRTC.

``VMFLOW_REQUIRE_NVRTC=1`` makes failures of those that would be skipped without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from vmflow.cuda import availability
from vmflow.kernels.cuda import nvrtc

REQUIRED = os.environ.get("VMFLOW_REQUIRE_NVRTC", "0") != "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need NVRTC if it is not installed."""
    if nvrtc.find() is not None or REQUIRED:
        return
    skip = pytest.mark.skip(reason="kernels are compiled by NVRTC, which is not installed: see the extra cuda-check")
    for item in items:
        if item.get_closest_marker("emulated") is not None:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _emulation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CUDA devices are emulated, as the environment says or at random."""
    if request.node.get_closest_marker("emulated") is None or os.environ.get("VMFLOW_CUDA", "").startswith("emulated"):
        yield
        return
    monkeypatch.setenv("VMFLOW_CUDA", "emulated:random:1")
    availability.forget()
    yield
    availability.forget()
