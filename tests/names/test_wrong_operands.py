"""Anything but a tensor in place of a tensor: functions refuse it with an error of their own, before they read it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .test_names import CASES

pytestmark = pytest.mark.host

WRONG = (None, 3, "a", [1.0, 2.0], np.ones(3), object())

# Errors of these functions are about something else: the first two need either none of the running statistics or both,
# the next takes objects of any type as inputs of a function, the last takes what the module takes.
ABOUT_OTHERS = {
    *("batch_norm", "instance_norm", "autograd.gradcheck", "autograd.gradgradcheck"),
    *("func.functional_call", "nn.utils.stateless.functional_call"),
}


class Recorder:
    """The library, or a module of it, that records the calls of one function."""

    def __init__(self, module: ModuleType, path: str, name: str, calls: list[tuple[Any, ...]]) -> None:
        self._module, self._path, self._name, self._calls = module, path, name, calls

    def __getattr__(self, part: str) -> Any:
        found = getattr(self._module, part)
        path = f"{self._path}.{part}".lstrip(".")
        if path == self._name:
            return lambda *args, **kwargs: self._record(found, args, kwargs)
        return Recorder(found, path, self._name, self._calls) if isinstance(found, ModuleType) else found

    def _record(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls.append((function, args, kwargs))
        return function(*args, **kwargs)


def calls_of(name: str) -> list[tuple[Any, ...]]:
    """The calls of a function in its cases, as triples: the function, its arguments and its keyword arguments."""
    calls: list[tuple[Any, ...]] = []
    for case in CASES:
        if case.name == name:
            case.call(Recorder(flow, "", name, calls))
    return calls


def optional_tensors(function: Any, args: list[Any]) -> list[str]:
    """The names of parameters that are tensors or None, not given by position; without results' destinations."""
    if not isinstance(function, FunctionType):
        return []
    parameters = list(inspect.signature(function).parameters.values())[len(args) :]
    return [one.name for one in parameters if str(one.annotation) == "Tensor | None" and one.name != "out"]


def wrong_calls(name: str) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """The calls of a function in its cases, with one tensor, or one sequence of tensors, replaced.

    An optional tensor is replaced, too, whether or not the case gives it.
    """
    for function, args, kwargs in calls_of(name):
        for place, given in enumerate(args):
            if isinstance(given, (list, tuple)) and given and isinstance(given[0], flow.Tensor):
                replacements: list[Any] = [None, 3, "a", [None], [np.ones(2)]]
            elif isinstance(given, flow.Tensor):
                replacements = list(WRONG)
            else:
                continue
            for wrong in replacements:
                yield function, [*args[:place], wrong, *args[place + 1 :]], kwargs
        for key in optional_tensors(function, args):
            for wrong in WRONG[1:]:
                yield function, args, {**kwargs, key: wrong}


def is_function(name: str) -> bool:
    """Whether a name is a function's; not for types of tensors, whose cases need the types themselves."""
    owner: Any = flow
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    found = getattr(owner, last)
    return (
        isinstance(owner, ModuleType)
        and callable(found)
        and not isinstance(found, type)
        and not re.search("Tensor|torch", name)
    )


NAMES = sorted({case.name for case in CASES if is_function(case.name)} - ABOUT_OTHERS)


def complaint(function: Any, args: list[Any], kwargs: dict[str, Any]) -> str | None:
    """The message of the error that a call raises; None if it raises none."""
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return str(error)
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_errors_about_other_objects_in_place_of_a_tensor_begin_with_the_function(name: str) -> None:
    for function, args, kwargs in wrong_calls(name):
        message = complaint(function, args, kwargs)
        # The function may be one that it consists of.
        assert message is None or re.match(r"\w+(\.\w+)*(: | is | expects | takes )|the |arrays ", message), args


def test_calls_are_found_for_many_functions() -> None:
    assert len([name for name in NAMES if next(wrong_calls(name), None) is not None]) > 250


MODULES = ("", "nn.functional", "linalg", "fft", "special", "nn.init", "nn.utils", "array_api")

# Arguments for parameters without a default, by the beginning of their annotation; 1 for others.
ARGUMENTS: dict[str, Any] = {
    "Tensor": flow.ones(2, 2),
    "Sequence[Tensor": [flow.ones(2, 2)],
    "bool": False,
    "float": 1.0,
    "str": "a",
    "tuple[int": (1,),
    "Sequence[int": (1,),
    "DType": flow.float32,
}


def argument_for(parameter: inspect.Parameter) -> Any:
    if parameter.default is not parameter.empty:
        return parameter.default
    fitting = [argument for start, argument in ARGUMENTS.items() if str(parameter.annotation).startswith(start)]
    return fitting[0] if fitting else 1


def functions_of_tensors(path: str) -> Iterator[tuple[Any, list[inspect.Parameter]]]:
    """The public functions of a module with parameters annotated as tensors, each with its positional parameters."""
    module: Any = flow
    for part in filter(None, path.split(".")):
        module = getattr(module, part)
    for name in sorted(set(dir(module))):
        function = getattr(module, name)
        if isinstance(function, FunctionType) and not name.startswith("_"):
            parameters = inspect.signature(function).parameters.values()
            positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
            if any([one.annotation == "Tensor" for one in positional]):
                yield function, positional


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", MODULES)
def test_nothing_else_is_read_as_a_tensor(path: str) -> None:
    checked = 0
    for function, parameters in functions_of_tensors(path):
        arguments = [argument_for(parameter) for parameter in parameters]
        for place, parameter in enumerate(parameters):
            for wrong in (None, 3, [1.0], np.ones((2, 2))) if parameter.annotation == "Tensor" else ():
                # An AttributeError is not caught: it would be about an attribute of `wrong`.
                message = complaint(function, [*arguments[:place], wrong, *arguments[place + 1 :]], {})
                assert "unsupported operand" not in str(message), function
                checked += 1
    assert checked


@pytest.mark.parametrize("wrong", [3, [1.0], np.ones(2)], ids=["number", "list", "array"])
@pytest.mark.parametrize("name", ["broadcast_arrays", "concat", "meshgrid", "stack"])
def test_array_api_functions_of_several_tensors_refuse_other_objects(name: str, wrong: object) -> None:
    function, operands = getattr(flow.array_api, name), [flow.ones(2), wrong]
    with pytest.raises(TypeError, match="expected tensors, got Tensor, "):
        function(operands) if name in ("concat", "stack") else function(*operands)


@pytest.mark.parametrize(("name", "operands"), [("qr", ([[1.0]], "r")), ("multi_dot", ([3.0, flow.ones(2, 2)],))])
def test_functions_of_matrices_refuse_other_objects(name: str, operands: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=f"{name}: expected tensors, got "):
        getattr(flow.linalg, name)(*operands)
