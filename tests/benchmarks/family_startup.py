"""The cost of importing a library, in time and in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, Bar, Case

# A program's last lines, which print its resident memory in MiB, as Linux counts it.
RESIDENT: Final = """
with open("/proc/self/status") as status:
    print([int(line.split()[1]) for line in status if line.startswith("VmRSS:")][0] / 1024)
"""


def startup(company: Company) -> Iterator[Case]:
    """Generate the cases of a new interpreter that imports a library and ends: its time and its memory."""
    names = (EAGER, *company.names())
    with tempfile.TemporaryDirectory() as cache:
        # Installed packages have their bytecode cached; a cache is given to the checkout, too.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(program: str) -> str:
            done = subprocess.run(
                [sys.executable, "-c", program], check=True, env=environment, stdout=subprocess.PIPE, text=True
            )
            return done.stdout

        def importing(name: str) -> Callable[[], Any]:
            return lambda: run(f"import {name}")

        def resident(name: str) -> Callable[[], Any]:
            return lambda: float(run(f"import {name}\n{RESIDENT}"))

        bars = (Bar(0.1), Bar(1.5, to="numpy"))
        yield Case("import", {name: importing(name) for name in names}, bars=bars)
        if os.path.exists("/proc/self/status"):
            yield Case("memory after import", {name: resident(name) for name in names}, bars=(Bar(0.1),), unit="MB")
