"""A hook of mkdocs that adds the pages of the API reference: every public name of each module, with its docstring.

Many functions are made by declarations, which no tool can read without running them.  So the pages are generated from
the imported functions; griffe parses their docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import TYPE_CHECKING, Any

from griffe import Docstring, DocstringSection, DocstringSectionKind as Kind, Parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

# By page name: the page's title, and the modules and classes whose public names the page lists.
PAGES = {
    "vmflow": ("vmflow", ["vmflow"]),
    "tensor": ("vmflow.Tensor", ["vmflow.Tensor"]),
    "nn": ("vmflow.nn", ["vmflow.nn", "vmflow.nn.init", "vmflow.nn.utils", "vmflow.nn.utils.rnn"]),
    "functional": ("vmflow.nn.functional", ["vmflow.nn.functional"]),
    "optim": ("vmflow.optim", ["vmflow.optim", "vmflow.optim.lr_scheduler", "vmflow.optim.swa_utils"]),
    "autograd": ("vmflow.autograd and vmflow.func", ["vmflow.autograd", "vmflow.autograd.functional", "vmflow.func"]),
    "graph": ("vmflow.graph", ["vmflow.graph"]),
    "serving": ("vmflow.serving", ["vmflow.serving"]),
    "data": ("vmflow.utils", ["vmflow.utils.data", "vmflow.utils.checkpoint"]),
    "devices": ("vmflow.cuda, vmflow.backends and vmflow.errors", ["vmflow.cuda", "vmflow.backends", "vmflow.errors"]),
    "distributed": ("vmflow.distributed", ["vmflow.distributed", "vmflow.env"]),
    "mathematics": ("vmflow.linalg, vmflow.fft and vmflow.special", ["vmflow.linalg", "vmflow.fft", "vmflow.special"]),
    "others": ("Other modules", ["vmflow.amp", "vmflow.distributions", "vmflow.profiler", "vmflow.array_api"]),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference to mkdocs' files."""
    from mkdocs.structure.files import File

    for name, (title, places) in PAGES.items():
        lines = [f"# {title}"]
        for place in places:
            if len(places) > 1:
                lines.append(f"## {place}")
            thing = resolved(place)
            for public in public_names(thing):
                lines += entry(f"{place}.{public}", getattr(thing, public))
        files.append(File.generated(config, f"reference/{name}.md", content="\n\n".join(lines)))
    return files


def entry(name: str, thing: Any) -> list[str]:
    """The Markdown paragraphs about a function or class, and about the public methods of a class."""
    paragraphs = [f"### {name}", f"```python\n{name.rpartition('.')[2]}{signature_of(thing)}\n```"]
    paragraphs += described(inspect.getdoc(thing) or "")
    if inspect.isclass(thing):
        for method, function in vars(thing).items():
            if not method.startswith("_") and is_documented(function):
                paragraphs.append(f"#### {name.rpartition('.')[2]}.{method}")
                paragraphs.append(f"```python\n{method}{signature_of(function)}\n```")
                paragraphs += described(inspect.getdoc(function) or "")
    return paragraphs


def signature_of(thing: Any) -> str:
    """A signature as text, with defaults and without annotations; "(...)" if Python cannot tell it."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def described(text: str) -> list[str]:
    """Turn a docstring into Markdown paragraphs."""
    griffe_log = logging.getLogger("griffe")
    griffe_log.setLevel(logging.ERROR)  # otherwise griffe warns that docstrings lack annotations
    paragraphs: list[str] = []
    for section in Docstring(text).parse(Parser.google):
        paragraphs += _SECTIONS.get(section.kind, _as_list)(section)
    return paragraphs


def _as_text(section: DocstringSection) -> list[str]:
    return [str(section.value)]


def _as_examples(section: DocstringSection) -> list[str]:
    return [text if kind is Kind.text else f"```pycon\n{text}\n```" for kind, text in section.value]


def _as_admonition(section: DocstringSection) -> list[str]:
    return [f"**{section.title}**", str(section.value.description)]


def _as_list(section: DocstringSection) -> list[str]:
    items = section.value if isinstance(section.value, list) else [section.value]
    lines = []
    for item in items:
        name = getattr(item, "name", "") or str(getattr(item, "annotation", None) or "")
        described_as = " ".join(str(getattr(item, "description", item)).split())
        lines.append(f"- `{name}`: {described_as}" if name else f"- {described_as}")
    return [f"**{section.kind.value.capitalize()}**", "\n".join(lines)]


_SECTIONS = {Kind.text: _as_text, Kind.examples: _as_examples, Kind.admonition: _as_admonition}


def public_names(thing: Any) -> list[str]:
    """The sorted public names of functions, classes and methods with a docstring, in a module or class."""
    names = [name for name in dir(thing) if not name.startswith("_")]
    return [name for name in sorted(set(names)) if is_documented(getattr(thing, name, None))]


def resolved(place: str) -> Any:
    """Import the module or class that `place` names, such as "vmflow.Tensor"."""
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        return getattr(importlib.import_module(module), name)


def is_documented(thing: Any) -> bool:
    """Whether `thing` is a function or a class with a docstring."""
    return (inspect.isclass(thing) or inspect.isroutine(thing)) and bool(inspect.getdoc(thing))
