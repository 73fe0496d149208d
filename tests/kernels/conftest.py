"""C kernels for these tests: compiled while they wait, once, and kept in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import vmflow as flow
from vmflow.kernels.native import functions
from vmflow.kernels.native.compiling import CompileError, compiler_command
from vmflow.kernels.native.loading import LOADER


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where libraries are kept; the workers of one run, whose folders lie next to each other, share them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernels"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture
def compiled(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the test, C computes everything that it can."""
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(kept))
    try:
        compiler_command()
    except CompileError as error:
        pytest.skip(str(error))
    before = LOADER.mode
    LOADER.mode = "wait"
    yield
    assert LOADER.problem is None
    LOADER.mode = before


@pytest.fixture
def panels(compiled: None) -> None:
    """Within the test, products of matrices are computed in C, and attention is."""
    library = LOADER.request(functions.source("products"))
    assert library is not None
    if not functions.panels_pay(library):
        pytest.skip("without vectors that multiply and add at once, products of matrices are left to BLAS")


@pytest.fixture
def threads() -> Iterator[None]:
    """Afterwards there are as many threads as before."""
    before = flow.get_num_threads()
    yield
    flow.set_num_threads(before)
