"""The C functions of an op are looked up when its kernel is chosen, and not when it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

import vmflow as flow
import vmflow.nn.functional as F
from vmflow.kernels import numpy as kernels
from vmflow.kernels.generation import GENERATION
from vmflow.kernels.native import functions
from vmflow.kernels.native.loading import LOADER

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that were looked up, by whichever module."""
    names: list[str] = []
    usual = functions.function
    for module in iter_modules(kernels.__path__, f"{kernels.__name__}."):
        import_module(module.name)

    def function(name: str, elements: int) -> functions.CFunction | None:
        names.append(name)
        return usual(name, elements)

    for name, found in list(sys.modules.items()):
        if name.startswith("vmflow.kernels.native.") and getattr(found, "function", None) is usual:
            monkeypatch.setattr(found, "function", function)
    return names


def _cross_entropy() -> flow.Tensor:
    return F.cross_entropy(flow.ones(64, 100, requires_grad=True), flow.zeros(64, dtype=flow.int64))


def _convolution() -> flow.Tensor:
    return F.conv2d(flow.ones(4, 3, 16, 16, requires_grad=True), flow.ones(8, 3, 3, 3, requires_grad=True))


def _linear(rows: int, features: int, outputs: int) -> flow.Tensor:
    operands = [flow.ones(*shape, requires_grad=True) for shape in ((rows, features), (outputs, features), (outputs,))]
    return F.linear(*operands)


def _attention(p: float = 0.0) -> flow.Tensor:
    query, key, value = [flow.ones(2, 50, 8, requires_grad=True) for _ in range(3)]
    return F.scaled_dot_product_attention(query, key, value, dropout_p=p)


OPS: dict[str, Callable[[], flow.Tensor]] = {
    "attention": _attention,
    "attention with dropout": lambda: _attention(0.5),
    "convolution": _convolution,
    "cross_entropy": _cross_entropy,
    "layer": lambda: _linear(100, 80, 90),
    "layer that is small": lambda: _linear(2000, 2, 7),
    "product": lambda: flow.ones(70, 80, requires_grad=True) @ flow.ones(80, 90),
    "products": lambda: flow.ones(3, 70, 80, requires_grad=True) @ flow.ones(3, 80, 90),
    "sum of columns": lambda: flow.ones(100, 100).sum(0).requires_grad_(),
    "sum of others": lambda: flow.ones(20, 100, 20).sum((0, 2)).requires_grad_(),
}


def _check(compute: Callable[[], object], looked: list[str]) -> None:
    # The first time may load a library, which has kernels chosen anew.
    compute()
    compute()
    assert looked, "nothing of this is in C"
    looked.clear()
    compute()
    assert not looked


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_an_op_looks_its_functions_up_once(name: str, looked: list[str]) -> None:
    def compute() -> None:
        result = OPS[name]()
        result.sum().backward()
        result.numpy()

    _check(compute, looked)


@pytest.mark.parametrize("kind", [flow.optim.SGD, flow.optim.Adam])
def test_an_optimizer_looks_its_function_up_once(kind: Any, looked: list[str]) -> None:
    parameter = flow.ones(20, requires_grad=True)
    optimizer = kind([parameter], lr=0.5)

    def step() -> None:
        parameter.grad = flow.ones(20)
        optimizer.step()
        parameter.numpy()

    _check(step, looked)


class _Layer(flow.nn.Graph):
    def build(self, x: flow.Tensor, weight: flow.Tensor) -> flow.Tensor:
        return F.linear(x, weight).softmax(-1)


@pytest.mark.parametrize("batch", [100, 1000])  # of which the larger one is read and written where the caller has it
def test_a_graph_has_kernels_chosen_anew_when_others_may_be_used(batch: int, looked: list[str]) -> None:
    graph = _Layer()
    x, weight = flow.ones(batch, 80), flow.ones(90, 80)

    def eager() -> flow.Tensor:
        return F.linear(x, weight).softmax(-1)

    _check(lambda: graph(x, weight).numpy(), looked)
    GENERATION.advance()
    _check(lambda: graph(x, weight).numpy(), looked)
    for mode in ("off", "wait"):
        LOADER.mode = mode
        looked.clear()
        found = graph(x, weight).numpy()
        assert looked
        np.testing.assert_array_equal(found, eager().numpy())
