"""The hot modules stay within what mypyc compiles, so that a compiled core is a matter of building, not of rewriting.

Only the translation to C is run: it is where unsupported constructs show, and needs no C compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOT = [
    *[
        f"vmflow/graph_mode/actors/{name}.py"
        for name in (
            "actor",
            "buffers",
            "bus",
            "checks",
            "construction",
            "descriptors",
            "identifiers",
            "light",
            "messages",
            "stalls",
            "system",
        )
    ],
    "vmflow/instructions/blob.py",
    "vmflow/instructions/fuse.py",
    "vmflow/instructions/instruction.py",
    "vmflow/instructions/op_call.py",
    "vmflow/instructions/policy.py",
    "vmflow/instructions/release_tensor.py",
    "vmflow/instructions/scope.py",
    "vmflow/streams/allocator.py",
    "vmflow/streams/allocator_checks.py",
    "vmflow/streams/control.py",
    "vmflow/streams/cpu.py",
    "vmflow/streams/device_memory.py",
    "vmflow/streams/pieces.py",
    "vmflow/streams/stream.py",
    "vmflow/streams/worker.py",
    "vmflow/vm/engine.py",
    "vmflow/vm/story.py",
]


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypyc looks at all that these import, without a cache
def test_the_hot_modules_compile(tmp_path: Path) -> None:
    pytest.importorskip("mypyc", reason="mypyc comes with the dev extra")
    pytest.importorskip("setuptools", reason="mypyc needs setuptools")
    # A copy with the links followed: the compiler derives module names from paths.
    shutil.copytree(ROOT / "vmflow", tmp_path / "vmflow", ignore=shutil.ignore_patterns("__pycache__"))
    program = f"from mypyc.build import mypycify; mypycify({HOT!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
