"""The notebooks of `examples/notebooks` run, and print the outputs stored in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython", minversion="9", reason="IPython 9 is not installed")

pytestmark = pytest.mark.host

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _run(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook in a process of its own, so that names are counted from the beginning."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment.update(IPYTHONDIR=str(folder), PYTHONPATH=str(ROOT))
    command = [sys.executable, "-W", "error", "-m", "tests.examples.notebook", str(path)]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_its_stored_outputs(path: Path, tmp_path: Path) -> None:
    """After a change, `python -m tests.examples.notebook --write PATH` stores the new outputs."""
    done = _run(path, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    stored = [cell["outputs"] for cell in _read(path)["cells"] if cell["cell_type"] == "code"]
    assert json.loads(done.stdout) == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_of_the_format_4_5_and_stored_in_one_way(path: Path) -> None:
    from tests.examples.notebook import with_outputs

    notebook = _read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    outputs = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert path.read_text(encoding="utf-8") == with_outputs(notebook, outputs)


def test_both_notebooks_are_found() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["quickstart", "serving"]


def test_a_cell_that_fails_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "wrong.ipynb"
    cell = {"cell_type": "code", "source": ["1 / 0"]}
    path.write_text(json.dumps({"cells": [cell]}))
    done = _run(path, tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
