"""The public names of vmflow, and what is missing in their docstrings.

``python -m tests.docs.public_names [PART ...]`` prints each name whose docstring lacks something, with the module that
defines it, and the examples that fail.  A PART limits the names to those that contain it, or whose module does.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import vmflow

MODULES: Final = (
    "vmflow",
    "vmflow.amp",
    "vmflow.array_api",
    "vmflow.autograd",
    "vmflow.autograd.functional",
    "vmflow.autograd.graph",
    "vmflow.backends",
    "vmflow.cuda",
    "vmflow.distributed",
    "vmflow.distributions",
    "vmflow.env",
    "vmflow.errors",
    "vmflow.fft",
    "vmflow.func",
    "vmflow.graph_mode",
    "vmflow.linalg",
    "vmflow.nn",
    "vmflow.nn.functional",
    "vmflow.nn.init",
    "vmflow.nn.utils",
    "vmflow.nn.utils.parametrizations",
    "vmflow.nn.utils.parametrize",
    "vmflow.nn.utils.prune",
    "vmflow.nn.utils.rnn",
    "vmflow.optim",
    "vmflow.optim.lr_scheduler",
    "vmflow.optim.swa_utils",
    "vmflow.profiler",
    "vmflow.random",
    "vmflow.serving",
    "vmflow.special",
    "vmflow.utils.checkpoint",
    "vmflow.utils.data",
)

# Words by which a docstring says which shapes a function takes or gives.
_SHAPES: Final = re.compile(
    r"\b(shapes?|dimensions?|dim|sizes?|scalars?|numbers?|vectors?|matri\w+|elements?|rows?)\b|\(\*|\(N"
)


class Name(NamedTuple):
    """A public name.

    Attributes:
        name: the first dotted name under which it is found.
        module: that defines it.
        thing: a function, a class, a property or a method.
    """

    name: str
    module: str
    thing: Any

    @property
    def doc(self) -> str:
        """The docstring, "" without one."""
        return inspect.getdoc(self.thing) or ""


def public_names() -> list[Name]:
    """Functions and classes of the public modules, and methods and attributes of `Tensor`, each once."""
    found: dict[int, Name] = {}
    for place, owner in _owners():
        for name in dir(owner):
            # Looked up first, so that a method whose module is imported late is there.
            looked_up = getattr(owner, name)
            thing = inspect.getattr_static(owner, name) if inspect.isclass(owner) else looked_up
            module = _module_of(thing)
            if not name.startswith("_") and module.startswith("vmflow") and _is_documentable(thing):
                found.setdefault(id(thing), Name(f"{place}.{name}", module, thing))
    in_place = {name.name for name in found.values()}
    return [name for name in found.values() if not (name.name.endswith("_") and name.name[:-1] in in_place)]


def _owners() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        yield module, importlib.import_module(module)
    yield "vmflow.Tensor", vmflow.Tensor


def _module_of(thing: Any) -> str:
    return str(getattr(thing.fget if isinstance(thing, property) else thing, "__module__", None) or "")


def _is_documentable(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, property)


def missing(name: Name) -> list[str]:
    """Parts that its docstring has not: "docstring", "shapes", "errors" (a section "Raises:"), "example" (``>>>``)."""
    if not name.doc:
        return ["docstring"]
    absent = []
    takes_tensors = "Tensor" in _annotations(name.thing)
    if takes_tensors and not _SHAPES.search(name.doc):
        absent.append("shapes")
    if _can_raise(name.thing) and not re.search(r"^Raises:|\b[Rr]aises no\b", name.doc, re.MULTILINE):
        absent.append("errors")
    if ">>>" not in name.doc:
        absent.append("example")
    return absent


def _annotations(thing: Any) -> str:
    function = thing.fget if isinstance(thing, property) else thing
    function = getattr(function, "__func__", function)
    if inspect.isclass(function):
        function = getattr(function, "forward", function.__init__)
    return " ".join(str(annotation) for annotation in getattr(function, "__annotations__", {}).values())


def _can_raise(thing: Any) -> bool:
    """Whether there are arguments that could be wrong; the constructor of an exception takes all."""
    if isinstance(thing, property) or (inspect.isclass(thing) and issubclass(thing, BaseException)):
        return False
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return True
    return bool(parameters)


def failed_examples(name: Name) -> str:
    """The report of doctest on the examples that fail, "" if all pass."""
    said: list[str] = []
    namespace = {"flow": vmflow, "vmflow": vmflow}
    test = doctest.DocTestParser().get_doctest(name.doc, namespace, name.name, None, 0)
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    return "".join(said)


def main(parts: list[str]) -> int:
    """Print what is missing; returns how many names lack something."""
    lacking = 0
    for name in public_names():
        if parts and not any(part in name.name or part in name.module for part in parts):
            continue
        absent, failures = missing(name), failed_examples(name)
        if absent or failures:
            lacking += 1
            print(f"{name.name} ({name.module}): {', '.join(absent)}\n{failures}".rstrip())
    print(f"{lacking} names lack something")
    return lacking


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
