"""Formulas: one op and its gradient are equal to their steps, to the bit; and the operations that a formula refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F
from tests.kernels.support import hard_numbers, same_bits
from tests.support import check_gradients, instructions_issued
from vmflow.ops.formula import Formula
from vmflow.ops.table import OPS

from .oracle import KernelContract, layouts, sample

# By the name of the op, the tensors that a formula takes and the numbers behind them.
CALLS: Final[dict[str, tuple[int, tuple[Any, ...]]]] = {
    "absolute_difference": (2, ()),
    "elu": (1, (1.5,)),
    "exponential_linear": (1, (1.5, 0.5, 2.0)),
    "gelu_by_tanh": (1, ()),
    "hardshrink": (1, (0.5,)),
    "hardsigmoid": (1, ()),
    "hardswish": (1, ()),
    "hardtanh": (1, (-1.0, 2)),
    "huber": (2, (0.75,)),
    "leaky_relu": (1, (0.3,)),
    "logsigmoid": (1, ()),
    "mish": (1, ()),
    "quick_gelu": (1, ()),
    "silu_gradient": (2, ()),
    "smooth_l1": (2, (0.75,)),
    "softplus": (1, (2, 20)),
    "softshrink": (1, (0.5,)),
    "softsign": (1, ()),
    "square_relu": (1, ()),
    "squared_difference": (2, ()),
    "tanhshrink": (1, ()),
    "threshold": (1, (0.1, -3)),
}

FORMULAS: Final[dict[str, Formula]] = {
    name: it
    for name, op in OPS.items()
    if isinstance(it := getattr(op.infer, "__self__", None), Formula) and it.name == name
}

Found = list[np.ndarray[Any, Any]]


def tensors_for(name: str, dtype: str, shape: tuple[int, ...] = (3, 50)) -> list[flow.Tensor]:
    count = int(np.prod(shape))
    arrays = [hard_numbers((count,), dtype, seed).reshape(shape) for seed in range(CALLS[name][0])]
    return [flow.tensor(array, requires_grad=True) for array in arrays]


def everything(call: Callable[..., flow.Tensor], tensors: list[flow.Tensor], numbers: tuple[Any, ...]) -> Found:
    """The result and the gradients by all tensors."""
    result = call(*tensors, *numbers)
    gradients = flow.autograd.grad(result, tensors, result.detach().cos())
    return [gradient.detach().numpy() for gradient in (result, *gradients) if gradient is not None]


def test_every_formula_is_tested() -> None:
    assert FORMULAS.keys() == CALLS.keys()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_one_op_is_equal_to_its_steps(name: str, dtype: str, contract: KernelContract) -> None:
    formula, numbers = FORMULAS[name], CALLS[name][1]
    tensors = tensors_for(name, dtype)
    expected, found = (everything(call, tensors, numbers) for call in (formula.by_steps, formula))
    assert all([same_bits(one, other) for one, other in zip(expected, found, strict=True)])
    assert {name, f"{name}_gradient"} <= contract.seen


@pytest.mark.parametrize("name", sorted(CALLS))
def test_half_precision_is_rounded_once(name: str) -> None:
    formula, numbers = FORMULAS[name], CALLS[name][1]
    for dtype in ("float16", "bfloat16"):
        tensors = [flow.tensor(sample((40,), dtype, seed), requires_grad=True) for seed in range(CALLS[name][0])]
        wide = formula(*[tensor.detach().float() for tensor in tensors], *numbers)
        result = formula(*tensors, *numbers)
        assert result.dtype is tensors[0].dtype
        assert same_bits(result.detach().numpy(), wide.to(result.dtype).numpy())
        assert all(
            [value.dtype is result.dtype for value in flow.autograd.grad(result.sum(), tensors) if value is not None]
        )


@pytest.mark.parametrize("name", ["mish", "squared_difference"])
def test_layouts(name: str) -> None:
    formula, numbers = FORMULAS[name], CALLS[name][1]
    array = sample((6, 10), "float32")
    for label, tensor in layouts(array):
        tensors = [tensor.requires_grad_(), *[flow.tensor(array.copy()) for _ in range(CALLS[name][0] - 1)]]
        result = formula(*tensors, *numbers)
        expected = formula.by_steps(*[flow.tensor(value.detach().numpy()) for value in tensors], *numbers)
        assert same_bits(result.detach().numpy(), expected.numpy()), label
        assert result.is_contiguous()


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"hardshrink", "threshold"}))  # which are flat, or jump
def test_gradients_of_gradients(name: str) -> None:
    operands, numbers = CALLS[name]
    arrays = [sample((4,), "float64", seed + 3) for seed in range(operands)]
    check_gradients(lambda *tensors: FORMULAS[name](*tensors, *numbers), *arrays, second=True)


def test_a_step_taken_once_is_one_instruction() -> None:
    x = flow.ones(3, requires_grad=True)
    with instructions_issued() as names:
        F.mish(x).sum().backward()
    assert names.count("mish") == names.count("mish_gradient") == 1
    assert "tanh" not in names


def test_only_the_gradients_that_are_wanted_are_found() -> None:
    one, other = flow.tensor([1.0, 5.0], requires_grad=True), flow.tensor([0.5, 2.0], requires_grad=True)
    for wanted in ([one], [other], [other, one]):
        found = flow.autograd.grad(F.smooth_l1_loss(one, other, "sum"), wanted)
        expected = [[0.5, 1.0] if value is one else [-0.5, -1.0] for value in wanted]
        assert [tensor.tolist() for tensor in found if tensor is not None] == expected
    F.huber_loss(one, one, "sum").backward()
    assert one.grad is not None
    assert one.grad.tolist() == [0.0, 0.0]


def test_the_operands_hooks_hear_of_the_whole_gradient_once() -> None:
    x = flow.tensor([2.0], requires_grad=True)
    heard: list[list[float]] = []
    x.register_hook(lambda gradient: heard.append(gradient.tolist()))
    (first,) = flow.autograd.grad(F.square_relu(x).sum(), x, create_graph=True)
    assert first is not None
    assert heard == [[4.0]] == [first.tolist()]
    first.sum().backward()
    assert heard == [[4.0], [2.0]]


def test_changing_an_operand_before_the_backward_pass_raises() -> None:
    x = flow.ones(3, requires_grad=True) * 2
    y = F.softsign(x)
    x += 1
    with pytest.raises(RuntimeError, match="softsign"):
        y.sum().backward()


def test_numbers_of_one_value_and_of_different_kinds_or_signs_are_told_apart() -> None:
    x = flow.tensor([0.0, 1.0])
    assert [np.signbit(F.threshold(x, 0.5, value).numpy()[0]) for value in (0.0, -0.0, 0)] == [False, True, False]
    assert F.leaky_relu(-x, 1).tolist() == F.leaky_relu(-x, 1.0).tolist() == [0.0, -1.0]


def test_other_operands_take_the_steps() -> None:
    """Operands of several dtypes, of integers, or with a tensor in place of a number."""
    one = flow.tensor([1.0, 4.0])
    assert F.mse_loss(one, one.double() + 1, "none").dtype is flow.float64
    assert F.leaky_relu(-one, flow.tensor(0.5)).tolist() == [-0.5, -2.0]  # type: ignore[arg-type]
    assert F.hardtanh(flow.tensor([-5, 0, 5])).tolist() == [-1, 0, 1]


def test_a_graph_records_the_steps() -> None:
    class Activated(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return F.mish(x)

    graph, x = Activated(), flow.tensor(sample((3, 4), "float32"))
    assert same_bits(graph(x).numpy(), F.mish(x).numpy())
    assert graph.job is not None
    assert "tanh" in [op.op for op in graph.job.ops]
    assert "mish" not in [op.op for op in graph.job.ops]


def _in_place(x: flow.Tensor) -> flow.Tensor:
    y = x * 2
    y += 1
    return y


REFUSED: Final[dict[str, Callable[[flow.Tensor], flow.Tensor]]] = {
    "sum": lambda x: x * x.sum(),
    "add_scalar in place": _in_place,
    "a value": lambda x: x * 2 if bool(x > 0) else x,
    "permute": lambda x: x.T * 2,
    "a tensor from elsewhere": lambda x: flow.tensor([1.0]) * 2,
    "random numbers": lambda x: x + flow.rand_like(x),
    "another device": lambda x: x.to("cpu" if x.device.type == "sim" else "sim"),
    "a result of its own": lambda x: x,
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_a_formula_is_made_of_elementwise_ops(what: str) -> None:
    formula = Formula(f"refused {what}", REFUSED[what])
    try:
        with pytest.raises(TypeError, match=rf"refused .*: a formula is made of elementwise ops; .*{what}"):
            formula(flow.ones(1))
        assert flow.ones(2).sum().item() == 2, "the mode is as it was"
    finally:
        del OPS[formula.name], OPS[f"{formula.name}_gradient"]


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_sizes_of_less_than_a_tile_and_of_several(size: int) -> None:
    formula, x = FORMULAS["softplus"], flow.tensor(sample((size,), "float32"))
    assert same_bits(formula(x, 1, 20).numpy(), formula.by_steps(x, 1, 20).numpy())
