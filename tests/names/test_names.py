"""Each name is there, and does what its oracle does; see the package."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import vmflow as flow

from .case import Case

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.host


def _cases() -> list[Case]:
    """The cases of all modules of this folder that have some."""
    found: list[Case] = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith(("test_", "__")):
            found += getattr(import_module(f"{__package__}.{path.stem}"), "CASES", [])
    return found


CASES = _cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{number} {case.name}" for number, case in enumerate(CASES)])
def test_name(case: Case) -> None:
    with_torch = case.expected is None or case.name.startswith("utils.tensor.")
    if with_torch and torch is None:
        pytest.skip("compares with PyTorch, which is not installed")
    library: ModuleType = flow
    case.check(library, torch)
    thing: object = library
    for part in case.name.split("."):
        thing = getattr(thing, part)
