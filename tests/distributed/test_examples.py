"""The examples of docstrings, with global tensors in place of local ones: no function adds a local tensor of its own.

Constants and random numbers that a function makes for its own use have to be spread over the ranks of its operands.
"""

from __future__ import annotations

import doctest
import itertools
import re
import sys
import types
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, Final
from unittest import mock

import pytest

import vmflow as flow
from tests.docs.public_names import Name, public_names
from vmflow import distributed as dist, sbp

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")]

# Modules that have no functions of tensors, or need local ones.
_LEFT_OUT: Final = ("cuda", "distributed", "env", "errors", "graph_mode", "profiler", "serving", "utils.data")

# Names whose examples need local tensors, and why.
LOCAL_ONLY: Final[dict[str, str]] = {
    "vmflow.comm_scope": "the example makes a simulation of its own",
    **dict.fromkeys(("vmflow.global_function", "vmflow.load_graph"), "graphs compute local tensors only"),
    **dict.fromkeys(
        ("vmflow.TypedStorage", "vmflow.Tensor.storage", "vmflow.Tensor.untyped_storage", "vmflow.Tensor.data_ptr"),
        "a global tensor is in the memory of several ranks",
    ),
    **dict.fromkeys(
        ("vmflow.Tensor.fill_diagonal_", "vmflow.nn.utils.prune.BasePruningMethod"),
        "the view of the part that is written needs an exchange",
    ),
    "vmflow.func.Module": "the example's class has local parameters",
    **dict.fromkeys(
        ("vmflow.nn.utils.skip_init", "vmflow.nn.utils.prune.l1_unstructured"), "skip_init takes a class of modules"
    ),
}

# Functions that make the tensors of examples.
_MAKERS: Final = (
    *("arange", "as_tensor", "empty", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn"),
    *("randperm", "tensor", "zeros"),
)


class Spread:
    """A module of vmflow whose functions make split tensors, and whose classes make modules of global parameters."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return Spread(found)
        if isinstance(found, type) and issubclass(found, flow.nn.Module) and not name.startswith("Lazy"):
            return _Spreading(found) if found is not flow.nn.Module else found
        if isinstance(found, type) and issubclass(found, flow.distributions.Distribution):
            return _Spreading(found)
        return _split_results(found) if self._module is flow and name in _MAKERS else found


class _Spreading:
    """Stands for a class of modules or distributions; its calls make global ones."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if issubclass(self._kind, flow.nn.Module):
            made = self._kind(*arguments, **named)
            return made if any([each.is_global for each in made.parameters()]) else made.to_global(*_everywhere())
        if not any([isinstance(each, flow.Tensor) for each in arguments]):
            arguments = tuple(
                [flow.tensor(each).to_global(*_everywhere()) if isinstance(each, float) else each for each in arguments]
            )
        return self._kind(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return (self._kind,)


def _everywhere() -> tuple[flow.placement, Any]:
    return flow.placement.all("cpu"), sbp.broadcast


def _split_results(maker: Any) -> Any:
    def make(*arguments: Any, requires_grad: bool = False, **named: Any) -> flow.Tensor:
        made: flow.Tensor = maker(*arguments, **named)
        if not made.is_global and made.device.type == "cpu":
            made = made.to_global(flow.placement.all("cpu"), sbp.split(0) if made.ndim else sbp.broadcast)
        return made.requires_grad_() if requires_grad else made

    return make


def _names() -> Iterator[Name]:
    for name in public_names():
        module = name.name.removeprefix("vmflow.")
        if name.name in LOCAL_ONLY or any([module.startswith(f"{each}.") for each in _LEFT_OUT]):
            continue
        if not re.search(r"Lazy|\bawait\b|\basync\b|simulate", name.name + name.doc):
            yield name


def by_module() -> dict[str, list[Name]]:
    names = sorted(_names(), key=lambda name: name.module)
    return {module: list(group) for module, group in itertools.groupby(names, key=lambda name: name.module)}


MODULES: Final = by_module()


def failures(name: Name) -> list[str]:
    namespace: dict[str, Any] = {"flow": Spread(flow), "vmflow": Spread(flow)}
    for example in doctest.DocTestParser().get_examples(name.doc):
        try:
            # Python's own hook would keep the last value as `_`.
            with redirect_stdout(StringIO()), mock.patch.object(sys, "displayhook", repr):
                exec(compile(example.source, name.name, "single"), namespace)
        except Exception as error:
            if example.exc_msg is None:
                return [f"{name.name}: {example.source.strip()}: {type(error).__name__}: {error}"]
    return []


@pytest.mark.parametrize("module", MODULES)
def test_examples_run_with_global_tensors(module: str) -> None:
    def program() -> list[str]:
        return [said for name in MODULES[module] for said in failures(name)]

    (found,) = dist.simulate(program, 1)
    assert not found, "\n".join(found)


def test_the_table_names_what_is_there() -> None:
    assert set(LOCAL_ONLY) <= {name.name for name in public_names()}
