"""The hot modules stay within what mypyc compiles, so that a compiled core is a matter of building, not of rewriting.

Only the translation to C is run: it is where unsupported constructs show, and needs no C compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypyc looks at all that these import, without a cache
def test_the_hot_modules_compile(tmp_path: Path) -> None:
    pytest.importorskip("mypyc", reason="mypyc comes with the dev extra")
    pytest.importorskip("setuptools", reason="mypyc needs setuptools")
    program = "import sys, pathlib, compiled_core; compiled_core.translate(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
