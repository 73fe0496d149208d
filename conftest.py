"""The tier of tests that `pytest -m core` runs; and the names `flow` and `vmflow` for examples in docstrings."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any, Final

import pytest

import vmflow

ROOT: Final = Path(__file__).parent

# The files of the tier "core", or their folders: the engine whole, since everything relies on it; one or two files of
# each other part, those that most changes of the part break; and the rules for the sources.  Left out are tests that
# start processes, that try thousands of random programs, or that wait.  The tier ends in under two minutes on two
# cores; a file that makes it much longer belongs elsewhere.
CORE: Final = (
    "tests/engine",
    "tests/streams",
    "tests/vm/test_inline.py",
    "tests/vm/test_drivers.py",
    "tests/vm/test_failures.py",
    "tests/vm/test_flow_control.py",
    "tests/vm/test_fuse.py",
    "tests/vm/test_isolation.py",
    "tests/vm/test_memory.py",
    "tests/vm/test_priorities.py",
    "tests/vm/test_scopes.py",
    "tests/vm/test_shutdown.py",
    "tests/vm/test_turn_lock.py",
    "tests/ops/test_creation.py",
    "tests/ops/test_declaration.py",
    "tests/ops/test_joining.py",
    "tests/ops/test_linear.py",
    "tests/ops/test_loss.py",
    "tests/ops/test_messages.py",
    "tests/ops/test_promotion.py",
    "tests/ops/test_reduction.py",
    "tests/ops/test_registry.py",
    "tests/ops/test_view.py",
    "tests/autograd/test_backward.py",
    "tests/autograd/test_function.py",
    "tests/autograd/test_grad_modes.py",
    "tests/autograd/test_views.py",
    "tests/nn/test_layers.py",
    "tests/nn/test_module.py",
    "tests/optim/test_optimizers.py",
    "tests/data/test_loader.py",
    "tests/graph_mode/test_graph.py",
    "tests/graph_mode/test_guards.py",
    "tests/serving/test_batcher.py",
    "tests/serving/test_requests.py",
    "tests/serving/test_session.py",
    "tests/serving/test_specs.py",
    "tests/test_copying.py",
    "tests/test_imports.py",
    "tests/test_io.py",
    "tests/test_ownership.py",
    "tests/test_project_files.py",
    "tests/test_random.py",
    "tests/test_representation.py",
    "tests/test_smoke.py",
    "tests/test_warnings.py",
)
_CORE: Final = frozenset([ROOT / name for name in CORE])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m core`, do not import the files of other tiers: collecting all tests takes half a minute by itself."""
    if config.option.markexpr != "core" or _is_core(collection_path):
        return None
    leads_to_core = any([collection_path in path.parents for path in _CORE])
    return None if leads_to_core else True


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the tier "core", except those marked slow."""
    for item in items:
        if _is_core(item.path) and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.core)


def _is_core(path: Path) -> bool:
    return path in _CORE or not _CORE.isdisjoint(path.parents)


@pytest.fixture(autouse=True)
def _examples_know_vmflow(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["flow"] = doctest_namespace["vmflow"] = vmflow
    if isinstance(request.node, pytest.DoctestItem):
        # Else doctest asks the file system before each example about all files that tracebacks have quoted so far.
        linecache.clearcache()
