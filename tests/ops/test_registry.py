"""Every op of the table has a row of cases or another file that tests it; and the checker of kernels finds faults."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import source_files
from vmflow import interpreter
from vmflow.instructions.blob import meta
from vmflow.kernels.choosing import Kernel
from vmflow.ops.table import OPS, Attributes, Inferred, Kinds, Metas, OpExpr, ViewExpr
from vmflow.random import standard_gamma

from . import (
    test_activation,
    test_complex_parts,
    test_decompositions,
    test_elementwise,
    test_fourier,
    test_indexing,
    test_joining,
    test_linear_algebra,
    test_reduction,
    test_running,
    test_scatter_reduction,
    test_searching,
    test_special,
    test_strided,
    test_view,
)
from .oracle import KernelContract, Row

# Imported so that everything that declares ops has done so.
DECLARING = (
    "vmflow.nn.functional",
    "vmflow.nn.init",
    *[name for name in source_files() if name.startswith("vmflow.ops.")],
)

ROWS: list[Row] = [
    *test_activation.ROWS,
    *test_complex_parts.ROWS,
    *test_decompositions.ROWS,
    *test_elementwise.ROWS,
    *test_fourier.ROWS,
    *test_indexing.ROWS,
    *test_joining.ROWS,
    *test_linear_algebra.ROWS,
    *test_reduction.ROWS,
    *test_scatter_reduction.ROWS,
    *test_searching.ROWS,
    *test_strided.ROWS,
    *test_running.ROWS,
    *test_special.ROWS,
    *test_view.ROWS,
]

# Ops that are no function of arrays alone, or that run in a backward pass: a call that runs them, and their test file.
SPECIAL: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: flow.empty(2), "tests/ops/test_creation.py"),
    "arange": (lambda: flow.arange(3), "tests/ops/test_creation.py"),
    "linspace": (lambda: flow.linspace(0, 1, 3), "tests/ops/test_creation.py"),
    "eye": (lambda: flow.eye(3), "tests/ops/test_creation.py"),
    "frequencies": (lambda: flow.fft.fftfreq(3), "tests/ops/test_fourier.py"),
    "triangle_places": (lambda: flow.tril_indices(2, 3), "tests/ops/test_inquiry.py"),
    "randn": (lambda: flow.randn(2), "tests/test_random.py"),
    "rand": (lambda: flow.rand(2), "tests/test_random.py"),
    "randint": (lambda: flow.randint(3, (2,)), "tests/test_random.py"),
    "randperm": (lambda: flow.randperm(3), "tests/test_random.py"),
    "bernoulli": (lambda: flow.bernoulli(flow.full((2,), 0.5)), "tests/test_random.py"),
    "multinomial": (lambda: flow.multinomial(flow.ones(3), 2), "tests/test_random.py"),
    "exponential": (lambda: flow.empty(2).exponential_(), "tests/test_random.py"),
    "poisson": (lambda: flow.poisson(flow.ones(2)), "tests/test_random.py"),
    "standard_gamma": (lambda: standard_gamma(flow.ones(2)), "tests/test_random.py"),
    "argsort": (lambda: flow.ones(3).argsort(), "tests/ops/test_ordering.py"),
    "topk": (lambda: flow.ones(3).topk(2), "tests/ops/test_ordering.py"),
    "element_of_rank": (lambda: flow.ones(3).median(), "tests/ops/test_ordering.py"),
    "histogram": (lambda: flow.ones(3).histc(2), "tests/ops/test_counting.py"),
    "mode": (lambda: flow.ones(3).mode(), "tests/ops/test_quantiles.py"),
    "gelu_gradient": (lambda: _backward(lambda x: flow.nn.functional.gelu(x)), "tests/kernels/test_tiles.py"),
    "recurrence": (lambda: _backward(lambda x: x.cumprod(0)), "tests/ops/test_reduction.py"),
    "relu_gradient": (lambda: _backward(flow.relu), "tests/ops/test_activation.py"),
    "strided_get": (lambda: _backward(lambda x: _assigned(x)), "tests/ops/test_indexing.py"),
}

# Ops of other families, by the module that infers them or, where that is a shared one, by name.
ELSEWHERE = {
    "vmflow.ops.nn.adaptive_pooling": "tests/ops/test_pooling.py",
    "vmflow.ops.nn.attention": "tests/ops/test_attention.py",
    "vmflow.ops.loss.class_loss": "tests/ops/test_loss.py",
    "vmflow.ops.nn.convolution": "tests/ops/test_convolution.py",
    "vmflow.ops.loss.ctc_loss": "tests/ops/test_ctc_loss.py",
    "vmflow.ops.nn.dropout": "tests/ops/test_dropout.py",
    "vmflow.ops.nn.embedding": "tests/ops/test_embedding.py",
    "vmflow.ops.nn.embedding_bag": "tests/ops/test_embedding_bag.py",
    "vmflow.ops.formula": "tests/ops/test_formula.py",
    "vmflow.ops.fused": "tests/ops/test_fused.py",
    "vmflow.ops.nn.linear": "tests/ops/test_linear.py",
    "vmflow.ops.loss.loss": "tests/ops/test_loss.py",
    "vmflow.ops.nn.normalization": "tests/ops/test_normalization.py",
    "vmflow.ops.shape.padding": "tests/ops/test_padding.py",
    "vmflow.ops.nn.pooling": "tests/ops/test_pooling.py",
    "vmflow.ops.nn.resampling": "tests/ops/test_resampling.py",
    "vmflow.ops.nn.unfolding": "tests/ops/test_unfolding.py",
    "vmflow.ops.nn.recurrent": "tests/ops/test_recurrent.py",
    "to_device": "tests/ops/test_transfer.py",
    "trunc_normal_": "tests/nn/test_init.py",
    "orthogonal_": "tests/nn/test_init.py",
}


def _backward(function: Callable[[flow.Tensor], flow.Tensor]) -> None:
    function(flow.ones(3, requires_grad=True)).sum().backward()


def _assigned(x: flow.Tensor) -> flow.Tensor:
    buffer = flow.zeros(3)
    buffer[1:] = x[1:]
    return buffer


@pytest.fixture(scope="module", autouse=True)
def _everything_declared() -> None:
    for name in DECLARING:
        importlib.import_module(name)


def test_every_op_has_a_row_or_a_file_that_covers_it() -> None:
    covered = {row.op for row in ROWS} | set(SPECIAL) | set(ELSEWHERE)
    missing = [
        f"{name} (inferred in {op.infer.__module__})"
        for name, op in OPS.items()
        if name not in covered and op.infer.__module__ not in ELSEWHERE
    ]
    assert not missing, f"no case for {', '.join(missing)}"


def test_no_row_is_for_an_op_that_is_gone() -> None:
    assert {row.op for row in ROWS} <= set(OPS)
    assert set(SPECIAL) <= set(OPS)


def test_the_files_named_here_exist() -> None:
    root = Path(__file__).parents[2]
    for file in {file for _, file in SPECIAL.values()} | set(ELSEWHERE.values()):
        assert (root / file).is_file(), file


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_ops_run_and_keep_the_contract(name: str, contract: KernelContract) -> None:
    SPECIAL[name][0]()
    flow.synchronize()
    assert name in contract.seen


def test_each_row_runs_the_op_it_is_for(contract: KernelContract) -> None:
    """So that a row cannot go on claiming an op that its call no longer uses."""
    for row in ROWS:
        contract.seen.clear()
        for op in OPS.values():
            op.forget()
        row.call(*[flow.tensor(operand) for operand in row.operands(row.usual(), row.dtypes[0])])
        flow.synchronize()
        assert row.op in contract.seen, str(row)


def test_differentiable_ops_are_tested_for_it() -> None:
    graded = {row.op for row in ROWS if row.order}
    # Ops whose gradients have tests of their own, or that no gradient can reach.
    apart = {
        *("remainder", "remainder_scalar", "fmod", "fmod_scalar", "floor_divide", "floor_divide_scalar"),
        *("trunc_divide", "trunc_divide_scalar", "conj", "fill", "index_add_to_zeros", "clamp_min", "clamp_max"),
        *("clamp_min_scalar", "clamp_max_scalar", "weighted_half", "igamma", "igammac", "zeta"),
    }
    for row in ROWS:
        op = OPS[row.op]
        if op.rule is not None:
            assert row.op in graded | apart, f"{row.op} has a gradient that no row checks"
        else:
            assert not row.order, f"{row.op} has no gradient for its row to check"


def test_names_are_unique_and_cannot_be_declared_twice() -> None:
    assert all(name == op.name for name, op in OPS.items())
    with pytest.raises(ValueError, match="op 'add' is declared twice"):
        OpExpr("add", OPS["add"].infer)
    view = OPS["reshape"]
    assert isinstance(view, ViewExpr)
    with pytest.raises(NotImplementedError):
        view.infer((), (), ())
    assert repr(OPS["add"]) == "<op add>"


def test_plans_are_remembered_by_attributes_and_metas() -> None:
    op = OPS["mul_scalar"]
    op.forget()
    tensor = flow.ones(3)
    for number in (0.1, 0.2, 0.3):
        tensor * number
    assert len(op.known) == 1
    tensor * 2
    flow.ones(4) * 0.1
    assert len(op.known) == 3


# The checker itself


def _broken(kernel: Callable[..., Any]) -> OpExpr:
    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        return Inferred(meta((3, 2), flow.float32, flow.device("cpu")), 1, Kernel(kernel))

    return OpExpr("deliberately_broken", infer)


@pytest.mark.host_arrays
@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        (lambda x, out: x, "shares memory with an input"),
        (lambda x, out: x[:], "shares memory with an input"),
        (lambda x, out: (x + 1).astype(np.float64), "returned float64"),
        (lambda x, out: x[:2] + 1, "returned float32"),
        (lambda x, out: np.asfortranarray(x + 1), "returned strides"),
        (lambda x, out: (x + 1).tolist(), "returned a list"),
        (lambda x, out: x + (1 if out is None else 2), "differs with and without a destination"),
        (lambda x, out: np.add(x, 1, x).copy(), "differs as input and afterwards"),
        (lambda x, out: x + x.strides[0], "differs of contiguous and of actual inputs"),
    ],
)
def test_the_contract_is_enforced(kernel: Callable[..., Any], complaint: str) -> None:
    op = _broken(kernel)
    try:
        with pytest.raises(AssertionError, match=complaint):
            _run(op)
    finally:
        del OPS[op.name]


def _run(op: OpExpr) -> KernelContract:
    with KernelContract().entered() as checker:
        for tensor in (flow.ones(3, 2), flow.ones(2, 3).T):
            try:
                interpreter.dispatch(op, (tensor,)).numpy()
            except (ValueError, AttributeError, TypeError):
                continue  # a result so wrong that the machine could not store it
    return checker


def test_a_sound_kernel_passes() -> None:
    op = _broken(lambda x, out: np.add(x, 1, out))
    try:
        assert "deliberately_broken" in _run(op).seen
    finally:
        del OPS[op.name]
