"""The HTML of modules for notebooks: a collapsible tree with the number of parameters of each module."""

from __future__ import annotations

from vmflow.markup import Tree, folding, stacked

from .module import Module
from .parameter import is_lazy


def html_of(module: Module) -> str:
    """Return the HTML of a module's collapsible tree."""
    return stacked(folding(_branch(module, "")))


def _branch(module: Module, name: str) -> Tree:
    """Return a module's tree: the name, the settings, the number of parameters, and the trees of submodules."""
    parameters = list(module.parameters())
    count = f"{sum([0 if is_lazy(parameter) else parameter.numel() for parameter in parameters]):,} parameters"
    frozen = len([parameter for parameter in parameters if not parameter.requires_grad])
    notes = [count] if parameters else []
    if any([is_lazy(parameter) for parameter in parameters]):
        notes.append("some without a shape yet")
    if frozen:
        notes.append("frozen" if frozen == len(parameters) else f"{frozen} of {len(parameters)} tensors frozen")
    settings = " ".join(module.extra_repr().split())
    children = [_branch(child, key) for key, child in module._modules.items() if child is not None]
    own = f"{module._get_name()}({settings})"
    return Tree(f"({name}): {own}" if name else own, ", ".join(notes), children)
