"""Checks of the parameters that a user gives an optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import GeneratorType
from typing import Any

from vmflow.nn.containers import ParameterList
from vmflow.nn.module import Module
from vmflow.tensors import Tensor

_OF_MODULE = "give its parameters, as by model.parameters()"


def listed(name: str, params: Any) -> list[Any]:
    """Return `params`, an ordered iterable, as a list, whose elements are not checked.

    Args:
        name: the optimizer's name, for errors.
        params: the argument that the user gave the optimizer.

    Raises:
        TypeError: for a tensor, a dict, a set, a string, a module other than a `ParameterList`, and for objects that
            are not iterable.
        ValueError: for a generator that has been used up.
    """
    if isinstance(params, Module) and not isinstance(params, ParameterList):
        raise TypeError(f"{name}: got the module {type(params).__name__}; {_OF_MODULE}")
    if isinstance(params, Tensor):
        raise TypeError(f"{name}: got a single tensor of shape {list(params.shape)}; put it into a list")
    if isinstance(params, Mapping):
        raise TypeError(
            f"{name}: got a {type(params).__name__} with the keys {', '.join([repr(key) for key in params]):.60}; "
            "give a list: of tensors, such as list(names.values()), or of groups, [{'params': ...}]"
        )
    if isinstance(params, (set, frozenset)):
        raise TypeError(f"{name}: the parameters must be in an order that does not change, not in a set")
    if isinstance(params, str) or not isinstance(params, Iterable):
        hint = "; call it: model.parameters()" if callable(params) else ""
        raise TypeError(f"{name}: expected a list of parameters or of groups, got {type(params).__name__}{hint}")
    if isinstance(params, GeneratorType) and params.gi_frame is None:
        raise ValueError(
            f"{name}: the generator of parameters has been used up; call model.parameters() once more, or keep "
            "list(model.parameters())"
        )
    return list(params)


def check_is_tensor(name: str, position: int, parameter: Any) -> None:
    """Raise TypeError unless `parameter`, at `position` of the list, is a tensor."""
    if isinstance(parameter, Tensor):
        return
    found = type(parameter).__name__
    if isinstance(parameter, Module):
        found = f"the module {found}; {_OF_MODULE}"
    elif isinstance(parameter, tuple) and len(parameter) == 2 and isinstance(parameter[1], Tensor):
        found = f"the pair of the name {parameter[0]!r} and a tensor; give parameters() instead of named_parameters()"
    elif isinstance(parameter, dict):
        found = "a group, behind parameters without one; put all into groups, [{'params': ...}, ...]"
    elif isinstance(parameter, Iterable) and not isinstance(parameter, str):
        found += "; expected tensors, all in one list; make one of numbers with vmflow.nn.Parameter(vmflow.tensor(...))"
    raise TypeError(f"{name}: parameter {position} is {found}" + ("" if ";" in found else ", not a tensor"))
