"""Editors and notebooks find names, signatures and docstrings: `dir`, `help`, jedi and IPython's completer."""

from __future__ import annotations

import inspect
import pydoc
import warnings
from types import ModuleType
from typing import Any

import pytest

import vmflow as flow
from vmflow import nn

pytestmark = pytest.mark.host

PLACES: list[Any] = [flow, flow.Tensor, nn, nn.functional, flow.optim, flow.linalg, flow.serving]

named = pytest.mark.parametrize("place", PLACES, ids=[place.__name__ for place in PLACES])


def _public(place: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(place, name)) for name in dir(place) if not name.startswith("_")]


@named
def test_all_public_functions_and_classes_have_docstrings(place: Any) -> None:
    things = [(name, thing) for name, thing in _public(place) if inspect.isroutine(thing) or inspect.isclass(thing)]
    own = [(name, thing) for name, thing in things if (thing.__module__ or "").startswith("vmflow")]
    assert own
    assert [name for name, thing in own if not inspect.getdoc(thing)] == []


@named
def test_all_public_functions_and_methods_have_signatures(place: Any) -> None:
    for name, thing in _public(place):
        if inspect.isroutine(thing):
            assert inspect.signature(thing) is not None, name


def test_all_properties_of_tensors_have_docstrings() -> None:
    properties = inspect.getmembers(flow.Tensor, lambda value: isinstance(value, property))
    assert [name for name, value in properties if not name.startswith("_") and not value.__doc__] == []


@pytest.mark.parametrize("thing", [flow.add, flow.Tensor.add])
def test_help_shows_name_arguments_and_text(thing: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(thing))
    assert "add(input: 'Tensor | Scalar', other: 'Tensor | Scalar', *, alpha: 'Scalar' = 1" in text
    assert "``input + alpha * other``" in text
    assert text.startswith("Python Library Documentation: function add in module vmflow.ops.elementwise.arithmetic")


def test_a_bound_method_shows_the_arguments_that_are_left() -> None:
    assert list(inspect.signature(flow.ones(2).add).parameters) == ["other", "alpha", "out"]


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (flow.ones(1), ["T", "add", "add_", "backward", "grad", "numpy", "relu", "shape", "sum"]),
        (flow, ["Tensor", "add", "cuda", "graph", "nn", "optim", "sbp", "serving", "synchronize"]),
        (nn, ["AdaptiveLogSoftmaxWithLoss", "Graph", "LazyConv2d", "LazyLinear", "Linear", "parallel"]),
        (nn.Sequential(nn.Linear(1, 1)), ["append", "forward", "parameters"]),
        (nn.Linear(1, 1), ["bias", "in_features", "weight"]),
    ],
    ids=["tensor", "vmflow", "vmflow.nn", "Sequential", "Linear"],
)
def test_dir_lists_names_that_are_made_or_loaded_late(place: Any, names: list[str]) -> None:
    assert set(names) <= set(dir(place))
    if isinstance(place, ModuleType):
        assert all([hasattr(place, name) for name in dir(place)])


# Jedi, on which the completers of notebooks and editors are built

_SOURCE = "import vmflow as flow\nx = flow.ones(2)\nmodel = flow.nn.Linear(2, 2)\n"

CASES = [
    ("x.squ", "squeeze"),
    ("x.sum().squ", "squeeze"),
    ("(x + 1).squ", "squeeze"),
    ("flow.add(x, x).squ", "squeeze"),
    ("flow.conv2", "conv2d"),
    ("flow.nn.Lin", "Linear"),
    ("flow.nn.Gra", "Graph"),
    ("flow.optim.Ada", "AdamW"),
    ("flow.nn.functional.cross", "cross_entropy"),
    ("flow.serving.Inf", "InferenceSession"),
    ("model.wei", "weight"),
    ("model.forw", "forward"),
]

cases = pytest.mark.parametrize(("code", "name"), CASES, ids=[code for code, _ in CASES])


@cases
def test_editors_complete_names_from_the_source(code: str, name: str) -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    assert name in [completion.name for completion in jedi.Script(_SOURCE + code).complete()]


def test_editors_show_signatures_and_docstrings_from_the_source() -> None:
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    (method,) = jedi.Script(_SOURCE + "x.add(").get_signatures()
    assert [parameter.name for parameter in method.params] == ["other", "alpha", "out"]
    (function,) = jedi.Script(_SOURCE + "flow.add(").get_signatures()
    assert [parameter.name for parameter in function.params] == ["input", "other", "alpha", "out"]


@cases
def test_notebooks_complete_names_of_living_objects(code: str, name: str) -> None:
    pytest.importorskip("IPython", minversion="9", reason="IPython 9 is not installed")
    from IPython.core.completer import IPCompleter, provisionalcompleter

    namespace: dict[str, Any] = {}
    exec(_SOURCE, namespace)
    with warnings.catch_warnings(), provisionalcompleter():
        warnings.simplefilter("ignore")
        completer = IPCompleter(namespace=namespace, global_namespace=namespace)
        completer.disable_matchers = ["IPCompleter.magic_matcher"]  # which would need a shell
        found = [completion.text for completion in completer.completions(code, len(code))]
    assert name in found
