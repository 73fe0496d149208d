"""Examples in docstrings know vmflow under its usual name."""

from __future__ import annotations

from typing import Any

import pytest

import vmflow


@pytest.fixture(autouse=True)
def _examples_know_vmflow(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["flow"] = doctest_namespace["vmflow"] = vmflow
