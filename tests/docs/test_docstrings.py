"""Every public name has a docstring that says its shapes and errors and shows an example, which prints what it says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from .public_names import Name, failed_examples, missing, public_names
from .reading import sample, texts

pytestmark = pytest.mark.host


def by_module() -> dict[str, list[Name]]:
    """The public names, by the module that defines them."""
    names = sorted(public_names(), key=lambda name: name.module)
    return {module: list(group) for module, group in itertools.groupby(names, key=lambda name: name.module)}


MODULES = by_module()


def test_docstrings_are_whole() -> None:
    lacking = {name.name: missing(name) for name in itertools.chain(*MODULES.values()) if missing(name)}
    assert not lacking, f"{len(lacking)} docstrings lack a part: {lacking}"


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module: str) -> None:
    assert "".join([failed_examples(name) for name in MODULES[module]]) == ""


def test_the_walk_finds_names_of_each_kind() -> None:
    names = {name.name for name in itertools.chain(*MODULES.values())}
    assert len(names) > 1400
    for kind in (
        "vmflow.exp",
        "vmflow.Tensor.backward",
        "vmflow.Tensor.T",
        "vmflow.nn.Linear",
        "vmflow.linalg.svdvals",
    ):
        assert kind in names
    assert not [name for name in names if name.startswith("vmflow.Tensor._")]


def _documented(doc: str | None) -> Any:
    def function(input: Any) -> None: ...

    function.__doc__ = doc
    return function


@pytest.mark.parametrize(
    ("doc", "parts"),
    [
        (None, ["docstring"]),
        ("The sum of the elements.", ["errors", "example"]),
        ("The sum.\n\nRaises:\n    TypeError: if it is no tensor.\n\nExample:\n    >>> 1 + 1\n    2\n", []),
    ],
)
def test_missing_parts_are_found(doc: str | None, parts: list[str]) -> None:
    assert missing(Name("name", "module", _documented(doc))) == parts


def test_a_wrong_example_is_found() -> None:
    assert "Expected:\n    3\nGot:\n    2" in failed_examples(Name("name", "module", _documented(">>> 1 + 1\n3\n")))


def test_a_sample_of_texts_depends_on_the_seed_alone() -> None:
    folders = ("instructions",)
    first = sample(1, 5, folders)
    assert first == sample(1, 5, folders) != sample(2, 5, folders)
    assert len({text.place for text in first}) == 5
    assert {text.subject.startswith("comment") for text in texts(folders)} == {True, False}
