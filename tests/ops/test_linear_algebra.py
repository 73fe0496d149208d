"""Matrix products and einsum: against numpy over dtypes, ranks and layouts, their gradients, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients

from .oracle import FRACTIONAL, NUMBERS, REAL, KernelContract, Row, Shapes, check, forward_test, layouts, sample

PRODUCTS: tuple[Shapes, ...] = (
    ((3, 4), (4, 2)),
    ((4,), (4,)),
    ((4,), (4, 2)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (2, 4, 3)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((3, 0), (0, 2)),
    ((0, 4), (4, 2)),
    ((0,), (0,)),
    ((2, 0, 4), (4, 3)),
)

SQUARES: tuple[Shapes, ...] = (((3, 3),), ((4, 2, 2),), ((0, 3, 3),), ((1, 1),))
SYSTEMS: tuple[Shapes, ...] = (((3, 3), (3, 2)), ((4, 3, 3), (3, 2)), ((3, 3), (4, 3, 1)), ((0, 2, 2), (2, 3)))


def _regular(x: Any) -> Any:
    """Matrices that are far from singular, as their diagonals dominate."""
    if len(x.shape) < 2:
        return x  # to be refused
    size = x.shape[-1]
    return x + (flow.eye(size, dtype=x.dtype) if isinstance(x, flow.Tensor) else np.eye(size)) * 10


ROWS = [
    Row("matmul", flow.matmul, np.matmul, (*FRACTIONAL, *NUMBERS), shapes=PRODUCTS, order=2, tolerance=2e-2),
    Row(
        "inv",
        lambda x: flow.linalg.inv(_regular(x)),
        lambda x: np.linalg.inv(_regular(x)),
        FRACTIONAL,
        shapes=SQUARES,
        order=2,
    ),
    Row(
        "det",
        lambda x: flow.linalg.det(_regular(x) / 10),
        lambda x: np.linalg.det(_regular(x) / 10),
        FRACTIONAL,
        shapes=SQUARES,
        order=2,
        tolerance=5e-2,
    ),
    Row(
        "solve",
        lambda x, y: flow.linalg.solve(_regular(x), y),
        lambda x, y: np.linalg.solve(_regular(x), y),
        FRACTIONAL,
        shapes=SYSTEMS,
        order=2,
        tolerance=2e-2,
    ),
]


test_forward = forward_test(ROWS)


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_gradient(shapes: Shapes, contract: KernelContract) -> None:
    arrays = [sample(shape, "float64", seed) for seed, shape in enumerate(shapes)]
    check_gradients(flow.matmul, *arrays, second=True)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_are_accurate(dtype: str, contract: KernelContract) -> None:
    left, right = sample((7, 30), dtype), sample((30, 5), dtype, 1)
    for (_, first), (_, second) in zip(layouts(left), reversed(list(layouts(right))), strict=True):
        expected = left.astype(np.float64) @ right.astype(np.float64)
        check(first @ second, expected, dtype, tolerance=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_sums_in_single(dtype: str, contract: KernelContract) -> None:
    ones = flow.ones(1, 4096, dtype=getattr(flow, dtype))
    check(ones @ ones.T, [[4096.0]], dtype)
    check(ones[0] @ ones[0], 4096.0, dtype)


def test_complex_gradient() -> None:
    left = flow.tensor(sample((2, 3), "complex128"), requires_grad=True)
    right = flow.tensor(sample((3, 2), "complex128", 1), requires_grad=True)
    weights = sample((2, 2), "complex128", 2)
    flow.abs(left @ right * flow.tensor(weights)).square().sum().backward()
    inner = 2 * np.abs(weights) ** 2 * (left.detach().numpy() @ right.detach().numpy())
    check(left.grad, inner @ right.detach().numpy().conj().T, "complex128", tolerance=1e-12)
    check(right.grad, left.detach().numpy().conj().T @ inner, "complex128", tolerance=1e-12)


def test_products_by_other_names(contract: KernelContract) -> None:
    a, b, batch = sample((2, 3), "float64"), sample((3, 4), "float64", 1), sample((5, 3, 4), "float64", 2)
    x, y, z = flow.tensor(a), flow.tensor(b), flow.tensor(batch)
    many = flow.tensor(a).expand(5, 2, 3)
    check(x.mm(y), a @ b, "float64")
    check(flow.mm(x, y), a @ b, "float64")
    check(many.bmm(z), a @ batch, "float64")
    check(x.mv(y[:, 0]), a @ b[:, 0], "float64")
    check(x[0].dot(y[:, 0]), a[0] @ b[:, 0], "float64")
    check(x[0].outer(y[0]), np.outer(a[0], b[0]), "float64")
    bias = sample((4,), "float64", 3)
    check(flow.addmm(flow.tensor(bias), x, y), bias + a @ b, "float64")
    check(flow.addmm(flow.tensor(bias), x, y, beta=0.5, alpha=2), bias / 2 + 2 * (a @ b), "float64")
    check(flow.addmm(flow.full((4,), np.nan, dtype=flow.float64), x, y, beta=0), a @ b, "float64")
    assert flow.addmm(flow.ones(4, dtype=flow.float64), x.float(), y.float(), beta=0).dtype is flow.float64
    check(flow.tensor(a @ b).addmm_(x, y), 2 * (a @ b), "float64")
    check(flow.baddbmm(flow.tensor(bias), many, z, beta=2), 2 * bias + a @ batch, "float64")
    check(flow.tensor(a @ batch).baddbmm_(many, z, alpha=3), 4 * (a @ batch), "float64")
    check_gradients(lambda p, q, r: flow.addmm(p, q, r, beta=2, alpha=3), bias, a, b)
    check_gradients(lambda p, q: p.outer(q), a[0], b[0], second=True)


def test_systems_of_equations(contract: KernelContract) -> None:
    matrix, right = sample((3, 3), "float64") + 5 * np.eye(3), sample((3, 2), "float64", 1)
    a, b = flow.tensor(matrix), flow.tensor(right)
    check(a @ flow.linalg.solve(a, b), right, "float64", tolerance=1e-12)
    check(flow.linalg.solve(a, b[:, 0]), np.linalg.solve(matrix, right[:, 0]), "float64", tolerance=1e-12)
    check(flow.linalg.solve(a, b.T, left=False) @ a, right.T, "float64", tolerance=1e-12)
    check(flow.linalg.vector_norm(a, 3, 0), np.linalg.norm(matrix, 3, 0), "float64", tolerance=1e-12)
    check_gradients(lambda x, y: flow.linalg.solve(x, y[:, 0]), matrix, right)
    singular = flow.linalg.inv(flow.zeros(2, 2))
    with pytest.raises(flow.linalg.LinAlgError, match=r"linalg.inv: Singular"):
        singular.numpy()


def test_tensordot(contract: KernelContract) -> None:
    a, b = sample((2, 3, 4), "float64"), sample((4, 3, 5), "float64", 1)
    x, y = flow.tensor(a), flow.tensor(b)
    check(flow.tensordot(x, y, ([1, 2], [1, 0])), np.tensordot(a, b, ([1, 2], [1, 0])), "float64")
    check(flow.tensordot(x, y, ([-1], [0])), np.tensordot(a, b, ([2], [0])), "float64")
    check(flow.tensordot(x, y.transpose(0, 1)), np.tensordot(a, b.swapaxes(0, 1)), "float64")
    check(flow.tensordot(x, x, 0), np.tensordot(a, a, 0), "float64")
    check(flow.tensordot(x, x, 3), np.tensordot(a, a, 3), "float64")
    check_gradients(lambda p, q: flow.tensordot(p, q, ([1, 2], [1, 0])), a, b)


EQUATIONS: list[tuple[str, Shapes]] = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("iij->j", ((3, 3, 2),)),
    ("iii->i", ((2, 2, 2),)),
    ("ij->ji", ((2, 3),)),
    ("ba", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("ij->i", ((2, 3),)),
    ("i,i->", ((3,), (3,))),
    ("i,j->ij", ((3,), (4,))),
    ("ij,ij->ij", ((2, 3), (2, 3))),
    ("...ij,...jk->...ik", ((5, 2, 3), (3, 4))),
    ("...ij,...jk", ((1, 2, 3), (5, 3, 4))),
    ("b...i,ij->b...j", ((2, 5, 3), (3, 4))),
    ("i...->...", ((2, 3, 4),)),
    ("...i->i...", ((2, 3, 4),)),
    ("i...,i...->...", ((3, 4), (3, 1))),
    ("ijk,jil,kl->", ((3, 2, 4), (2, 3, 5), (4, 5))),
    ("a,b,c->cab", ((2,), (3,), (4,))),
    ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 2))),
    ("aab,bc->ac", ((2, 2, 3), (3, 4))),
    (",i->i", ((), (3,))),
    ("->", ((),)),
    ("i j , j k -> i k", ((2, 3), (3, 4))),
    ("ij,jk->ik", ((2, 0), (0, 4))),
    ("ij,jk->ik", ((0, 3), (3, 4))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[text for text, _ in EQUATIONS])
def test_einsum(equation: str, shapes: Shapes, contract: KernelContract) -> None:
    arrays = [sample(shape, "float64", seed) for seed, shape in enumerate(shapes)]
    expected = np.einsum(equation, *arrays)
    check(flow.einsum(equation, *[flow.tensor(array) for array in arrays]), expected, "float64", tolerance=1e-12)
    turned = [flow.tensor(np.array(array.T, order="C")).T for array in arrays]
    check(flow.einsum(equation, turned), expected, "float64", tolerance=1e-12)  # type: ignore[arg-type]
    check_gradients(lambda *operands: flow.einsum(equation, *operands), *arrays, second=len(arrays) < 3)


def test_einsum_broadcasts_sizes_of_one_and_keeps_dtypes(contract: KernelContract) -> None:
    a, b = sample((2, 3), "float64"), sample((1, 3), "float64", 1)
    check(flow.einsum("ij,ij->ij", flow.tensor(a), flow.tensor(b)), a * b, "float64")
    check(flow.einsum("ij,jk->ik", flow.tensor(a[:, :1]), flow.tensor(a.T)), a[:, :1] * a.T.sum(0), "float64")
    for dtype in (*REAL, "int64", "complex64"):
        array = sample((3, 3), dtype)
        wide = array.astype(np.complex128 if dtype == "complex64" else np.float64)
        check(flow.einsum("ij,jk->ik", flow.tensor(array), flow.tensor(array)), wide @ wide, dtype, tolerance=2e-2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x @ x, ValueError, r"shapes \[2, 3\] and \[2, 3\] do not fit"),
        (lambda x: x @ x[0, 0], ValueError, "0-d tensors"),
        (lambda x: x @ x.double().T, TypeError, "expected one dtype, got float32 and float64"),
        (lambda x: (x > 0) @ (x > 0).T, TypeError, "not defined for bool"),
        (lambda x: flow.ones(2, 1, 3) @ flow.ones(3, 3, 1), ValueError, "do not broadcast"),
        (lambda x: flow.mm(x, x[0]), ValueError, "expected 2-d tensors"),
        (lambda x: flow.bmm(x, x), ValueError, "expected 3-d tensors"),
        (lambda x: flow.bmm(flow.ones(2, 2, 3), flow.ones(3, 3, 2)), ValueError, "batches of 2 and 3"),
        (lambda x: flow.mv(x, x), ValueError, "expected 1-d tensors"),
        (lambda x: flow.dot(x, x), ValueError, "expected 1-d tensors"),
        (lambda x: flow.dot(x[0], x[:, 0]), ValueError, "do not fit"),
        (lambda x: flow.outer(x, x), ValueError, "expected 1-d tensors"),
        (lambda x: flow.addmm(x, x, x.T), ValueError, "do not broadcast"),
        (lambda x: flow.addmm(flow.ones(1, 2, 2), x, x.T), ValueError, "does not broadcast to the product"),
        (lambda x: flow.tensordot(x, x.T), ValueError, "do not pair one by one"),
        (lambda x: flow.tensordot(x, x, 3), ValueError, "cannot pair 3 dimensions"),
        (lambda x: flow.tensordot(x, x, ([0, 0], [0, 0])), ValueError, "do not pair one by one"),
        (lambda x: flow.linalg.inv(x), ValueError, "expected square matrices"),
        (lambda x: flow.linalg.det(x), ValueError, "expected square matrices"),
        (lambda x: flow.linalg.inv(x[0]), ValueError, "expected square matrices"),
        (lambda x: flow.linalg.inv(flow.eye(2, dtype=flow.int64)), TypeError, "not defined for int64"),
        (lambda x: flow.linalg.solve(flow.eye(3), x), ValueError, "does not fit"),
        (lambda x: flow.linalg.solve(x[0], x, left=False), ValueError, "expected square matrices"),
        (lambda x: flow.linalg.solve_triangular(x.T, x[0], upper=True, left=False), ValueError, "expected square"),
        (lambda x: flow.linalg.solve(flow.eye(2), x.double()), TypeError, "expected one dtype"),
        (lambda x: flow.einsum("ij,jk->ik", x), ValueError, "is for 2 operands, got 1"),
        (lambda x: flow.einsum("ij->ij"), ValueError, "is for 1 operands, got 0"),
        (lambda x: flow.einsum("ij,j->i", x, 1.0), TypeError, "expected tensors"),  # type: ignore[arg-type]
        (lambda x: flow.einsum(x, x), TypeError, "the equation must be a string, not Tensor"),
        (lambda x: flow.chain_matmul(x, 1.0), TypeError, "expected tensors"),  # type: ignore[arg-type]
        (lambda x: flow.einsum("ijk->i", x), ValueError, "does not fit an operand of shape"),
        (lambda x: flow.einsum("i->i", x), ValueError, "does not fit an operand of shape"),
        (lambda x: flow.einsum("i1->i", x), ValueError, "does not fit"),
        (lambda x: flow.einsum("ij->k", x), ValueError, "must name indices of the operands"),
        (lambda x: flow.einsum("ij->ii", x), ValueError, "each once"),
        (lambda x: flow.einsum("ii->i", x[:1]), ValueError, "occurs twice in an operand, with sizes 1 and 3"),
        (lambda x: flow.einsum("ij,jk->ik", x, x), ValueError, "index 'j' has size 3 in one place and 2 in another"),
        (lambda x: flow.einsum("...,...->...", x, x.T), ValueError, "index '...' has size"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def test_gradient_of_a_batch_times_a_matrix_is_one_product(contract: KernelContract) -> None:
    check_gradients(lambda x, w: (x @ w).tanh() @ w.T, *arrays_for(0, (2, 3, 4), (4, 2)), second=True)
