"""Every function that PyTorch also has gives the same in a graph as eagerly, or says that it needs values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import pytest

pytest.importorskip("torch", reason="the calls are those that are compared with PyTorch")

import vmflow as flow
from tests.ops.test_against_torch import FUNCTIONS, METHODS, namespaces, operands

from .support import Of, check_in_graph, flattened

# Functions whose result, or its shape, depends on values, which do not exist while a graph is built.
VALUED: Final = {
    "a Python number is wanted": ("allclose", "equal", "is_nonzero"),
    "the shape depends on data": (
        *("argwhere", "bincount", "masked_select", "nonzero", "unique", "unique_consecutive"),
    ),
}
NEED_VALUES: Final = {name for names in VALUED.values() for name in names}

CALLS: Final = FUNCTIONS + METHODS


def _name(call: str) -> str:
    matched = re.match(r"\w+(?:\.clone\(\))?\.(\w+)", call)
    assert matched is not None
    return matched[1]


def _prepared(call: str) -> tuple[Callable[..., Any], Callable[[], list[flow.Tensor]]]:
    """The call as a function of its operands, which also gives the gradients, if there are any; and the operands."""
    arrays = {name: operand for name, operand in operands().items() if re.search(rf"\b{name}\b", call)}

    def evaluated(*given: flow.Tensor, graded: bool = True) -> Any:
        named = {
            name: tensor.detach().requires_grad_() if graded and _fractional(name, arrays[name]) else tensor
            for name, tensor in zip(arrays, given, strict=True)
        }
        result = eval(call, {**namespaces(flow), **named, "float": float})
        traced = [tensor for tensor in flattened(result) if isinstance(tensor, flow.Tensor) and tensor.requires_grad]
        if not traced:
            return result
        total = flow.stack([_weighted(entry) for entry in traced]).sum()
        wanted = [value for value in named.values() if value.requires_grad]
        gradients = flow.autograd.grad(total, wanted, allow_unused=True)
        return result, [gradient for gradient in gradients if gradient is not None]

    def given() -> list[flow.Tensor]:
        return [flow.tensor(array) for array in arrays.values()]

    try:
        evaluated(*given())
    except (RuntimeError, TypeError, ValueError):
        # Refused, or not differentiable.
        return lambda *given: evaluated(*given, graded=False), given
    return evaluated, given


def _refused(function: Callable[..., Any], given: Callable[[], list[flow.Tensor]]) -> Exception | None:
    try:
        function(*given())
    except (RuntimeError, TypeError, ValueError) as refused:
        return refused
    return None


def _fractional(name: str, array: Any) -> bool:
    return array.dtype.kind == "f" and name != "fixed"


def _weighted(result: flow.Tensor) -> flow.Tensor:
    weights = flow.arange(result.numel(), dtype=flow.float64).reshape(result.shape)
    total = (result * weights).sum()
    return total.abs() if total.dtype.is_complex else total


def _placed(call: str) -> Any:
    # A tensor that is made while building has a value only on the host.
    counted = _name(call) == "repeat_interleave" and "tensor(" in call
    return pytest.param(call, marks=pytest.mark.host) if counted else call


@pytest.mark.parametrize("call", [_placed(call) for call in CALLS if _name(call) not in NEED_VALUES])
def test_a_function_gives_the_same_in_a_graph(call: str) -> None:
    function, given = _prepared(call)
    refused = _refused(function, given)
    if refused is None:
        check_in_graph(function, given)
        return
    with pytest.raises(type(refused)) as found:
        Of(function)(*given())
    assert str(found.value) == str(refused)


@pytest.mark.parametrize("call", [call for call in CALLS if _name(call) in NEED_VALUES])
def test_a_function_that_needs_values_says_so(call: str) -> None:
    function, given = _prepared(call)
    function(*given())
    with pytest.raises(RuntimeError, match=r"needed while the graph is being built.*where"):
        Of(function)(*given())


def test_the_list_names_functions_that_are_called() -> None:
    assert not NEED_VALUES - {_name(call) for call in CALLS}
