"""Kernels of CUDA devices against those of the CPU: elementwise ops, reductions, running sums, and formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.ops.table import OPS, encoded

from .comparing import DTYPES, FLOATS, compare, on_both, on_cpu, results, some_of, values

pytestmark = pytest.mark.emulated

_SHAPES = [((3, 5), (3, 5)), ((4, 1, 3), (2, 3)), ((), ()), ((0, 2), (0, 2)), ((7,), ())]
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan)
# The numbers that formulas take behind their tensors.
_NUMBERS = {
    "leaky_relu": (0.1,),
    "elu": (1.5,),
    "softplus": (2.0, 3.0),
    "hardtanh": (-1.0, 1.5),
    "threshold": (0.1, 7.0),
    "exponential_linear": (1.5, 1.1, 0.9),
    "hardshrink": (0.5,),
    "softshrink": (0.5,),
    "smooth_l1": (0.7,),
    "huber": (0.7,),
}


def _of_family(family: str) -> list[str]:
    return sorted([name for name, op in OPS.items() if op.family == family])


def _operands(name: str) -> int:
    """How many tensors an op takes."""
    form = OPS[name].form
    assert form is not None
    assert isinstance(form.inputs, int)
    return form.inputs


@pytest.mark.parametrize(("name", "dtype"), some_of(_of_family("elementwise"), DTYPES))
def test_elementwise(name: str, dtype: str) -> None:
    if name.endswith("_scalar"):
        numbers: list[Any] = [2, -1, 300, True, 0.5, 0.0] + [1 + 2j] * dtype.startswith("complex")
        for number in numbers:
            compare(name, (values(1, (3, 5), dtype),), (), (number,))
            compare(name, (values(1, (3, 5), dtype),), ("reversed",), (number,))
        return
    operands = _operands(name)
    # The gradient is never asked for with operands of two shapes.
    for seed, shapes in enumerate(_SHAPES[:1] if name == "relu_gradient" else _SHAPES):
        tensors = [values(seed + 10 * place, shape, dtype) for place, shape in enumerate(shapes)]
        if name in ("floor_divide", "trunc_divide", "remainder", "fmod"):
            # The CPU raises an error for integers divided by 0.
            tensors[1] = flow.where(tensors[1] == 0, flow.ones_like(tensors[1]), tensors[1])
        compare(name, tuple(tensors[:operands]))


@pytest.mark.parametrize(("name", "dtype"), some_of(_of_family("elementwise"), FLOATS))
def test_elementwise_of_special_values(name: str, dtype: str) -> None:
    numbers = list(_SPECIAL)
    if name.startswith("gelu") and dtype == "float64":
        numbers = [number for number in numbers if not np.isinf(number)]  # of which the CPU knows no limit here
    if name == "pow_scalar" and dtype == "bfloat16":
        numbers.remove(0.5)  # of -inf the CPU takes the power here, and the square root elsewhere
    special = np.array(numbers)
    first, second = np.meshgrid(special, special)
    tensors = [on_cpu(array.astype(by_name(dtype).numpy)) for array in (first, second)]
    if name.endswith("_scalar"):
        for number in numbers:
            compare(name, (tensors[0],), (), (number,))
    else:
        compare(name, tuple(tensors[: _operands(name)]))


@pytest.mark.parametrize("name", ["add", "neg", "pow", "sign", "gelu_gradient"])
def test_a_result_may_lie_where_an_operand_does(name: str) -> None:
    tensors = [values(place, (4, 6), "float32", 0.5, 2.0) for place in range(_operands(name))]
    expected = interpreter.dispatch(OPS[name], tuple(tensors)).numpy()
    target = flow.stack([tensors[0], tensors[0]], -1).to("cuda")[..., 0]
    interpreter.dispatch_into(OPS[name], target, (target, *[tensor.to("cuda") for tensor in tensors[1:]]))
    np.testing.assert_allclose(target.to("cpu").numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("row", [0, 1])
def test_a_row_is_read_before_its_elements_change(row: int) -> None:
    target = flow.arange(6.0, device="cuda").reshape(2, 3)
    target += target[row : row + 1]
    expected = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(target.numpy(), expected + expected[row])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_polygamma(n: int) -> None:
    for dtype in FLOATS:
        compare("polygamma", (values(n, (3, 5), dtype, 0.3, 6.0),), (n,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "amax", "amin", "norm", "all", "any", "argmax", "argmin"])
def test_reductions(name: str, dtype: str) -> None:
    shapes: dict[tuple[int, ...], list[tuple[int, ...]]] = {
        (2, 3, 4): [(0,), (1, 2), (0, 1, 2)],
        (): [()],
        (3, 0): [(0,)],
    }
    for shape, choices in shapes.items():
        for dims in choices:
            for keepdim in (False, True):
                attributes: Any = (dims, keepdim)
                if name.startswith("arg"):
                    attributes = ((dims[0] if len(dims) == 1 else None), keepdim)
                compare(name, (values(len(shape), shape, dtype),), attributes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4), (0, 3), (1,)])
def test_running(shape: tuple[int, ...], dtype: str) -> None:
    tensor = values(3, shape, dtype)
    for dim in range(len(shape)):
        for name in ("cumsum", "cumprod"):
            for reverses in (False, True):
                compare(name, (tensor,), (dim, reverses))
        for name in ("cummax", "cummin", "logcumsumexp"):
            if not dtype.startswith("complex"):
                compare(name, (tensor,), (dim,))
        if dtype in FLOATS:
            compare("recurrence", (tensor, values(4, shape, dtype)), (dim,))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str, dtype: str) -> None:
    for shape, dim in [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((), 0), ((0, 3), 1)]:
        compare(name, (values(5, shape, dtype),), (dim,))


@pytest.mark.parametrize(
    "call",
    [
        lambda device: flow.arange(2, 11, 3, device=device),
        lambda device: flow.arange(7, device=device),
        lambda device: flow.arange(0.5, 3.0, 0.25, device=device),
        lambda device: flow.linspace(-1, 2, 9, device=device),
        lambda device: flow.linspace(3, 3, 1, device=device, dtype=flow.float64),
        lambda device: flow.eye(3, 5, device=device),
        lambda device: flow.eye(2, device=device, dtype=flow.bool),
        lambda device: flow.tril_indices(4, 3, 1, device=device),
        lambda device: flow.triu_indices(4, 6, -2, device=device),
        lambda device: flow.triu_indices(3, 2, 5, device=device),
    ],
)
def test_creation(call: Callable[[str], flow.Tensor]) -> None:
    on_both(call, exact=True)


def test_memory_that_is_not_filled_has_the_shape() -> None:
    assert flow.empty(2, 3, device="cuda").to("cpu").shape == (2, 3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_where_and_clamp(dtype: str) -> None:
    condition = values(1, (3, 5), "float32") > 0
    first, second = values(2, (3, 5), dtype), values(3, (5,), dtype)
    compare("where", (condition, first, second), exact=True)
    for attributes in ((), ("reversed",)):
        compare("where", (condition, first), attributes, (-0.0,), exact=True)
    compare("clamp", (first,), (), (-0.7, 0.3), exact=True)


@pytest.mark.parametrize("name", [name for name in _of_family("fused") if name != "fused"])
def test_formulas(name: str) -> None:
    operands = _operands(name)
    base = name.removesuffix("_gradient")
    is_gradient = name != base and base in OPS and OPS[base].family == "fused"
    attributes: Any = tuple([encoded(number) for number in _NUMBERS.get(base, ())])
    if is_gradient:
        attributes = ((True,) * (operands - 1), *attributes)
    for dtype in ("float32", "float64"):
        tensors = tuple([values(place, (3, 4), dtype) for place in range(operands)])
        assert results(name, tensors, attributes, ())
        compare(name, tensors, attributes)
