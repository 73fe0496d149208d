"""Products, differences, distances and covariances that are made of other ops: against numpy, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients

from .oracle import KernelContract, Shapes, check, sample


def _tensors(*arrays: Any) -> Any:
    return [flow.tensor(array) for array in arrays]


@pytest.mark.parametrize(
    "shapes", [((2, 3), (4, 2)), ((3,), (2, 2)), ((2, 1, 3), (2, 2)), ((), (3,)), ((0, 2), (3, 2))]
)
def test_kron(shapes: Shapes, contract: KernelContract) -> None:
    a, b = [sample(shape, "float64", seed) for seed, shape in enumerate(shapes)]
    check(flow.kron(*_tensors(a, b)), np.kron(a, b), "float64")
    check_gradients(flow.kron, a, b)


def test_cross(contract: KernelContract) -> None:
    a, b = sample((2, 3, 4), "float64"), sample((2, 3, 4), "float64", 1)
    expected = np.cross(a, b, axis=1)
    check(flow.cross(*_tensors(a, b)), expected, "float64")
    check(flow.tensor(a).cross(flow.tensor(b), 1), expected, "float64")
    one = sample((1, 3), "float64", 2)
    check(flow.linalg.cross(flow.tensor(a[:, :, 0]), flow.tensor(one)), np.cross(a[:, :, 0], one), "float64")
    check_gradients(lambda x, y: flow.linalg.cross(x, y, dim=1), a[:1], b[:1])


def test_inner_products_and_traces(contract: KernelContract) -> None:
    a, b = sample((2, 3), "float64"), sample((4, 3), "float64", 1)
    check(flow.inner(*_tensors(a, b)), np.inner(a, b), "float64", tolerance=1e-12)
    check(flow.inner(flow.tensor(a), flow.tensor(2.0, dtype=flow.float64)), a * 2, "float64")
    check(flow.inner(*_tensors(a[0], b[0])), np.inner(a[0], b[0]), "float64", tolerance=1e-12)
    check(flow.tensor(a).trace(), np.trace(a), "float64")
    z = sample((3,), "complex128")
    check(flow.vdot(*_tensors(z, z * 1j)), np.vdot(z, z * 1j), "complex128")
    check_gradients(lambda x: flow.inner(x, x).trace(), a)


def test_chains_of_matrices(contract: KernelContract) -> None:
    arrays = [sample(shape, "float64", seed) for seed, shape in enumerate(((2, 7), (7, 3), (3, 5), (5, 4)))]
    expected = np.linalg.multi_dot(arrays)
    check(flow.linalg.multi_dot(_tensors(*arrays)), expected, "float64", tolerance=1e-12)
    check(flow.chain_matmul(*_tensors(*arrays)), expected, "float64", tolerance=1e-12)
    ends = [arrays[0][0], *arrays[1:-1], arrays[-1][:, 0]]
    check(flow.linalg.multi_dot(_tensors(*ends)), np.linalg.multi_dot(ends), "float64", tolerance=1e-12)
    check(flow.linalg.multi_dot(_tensors(ends[0], arrays[1])), ends[0] @ arrays[1], "float64", tolerance=1e-12)
    check(flow.chain_matmul(flow.tensor(arrays[0])), arrays[0], "float64")
    check_gradients(lambda *given: flow.linalg.multi_dot(given), *arrays)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
@pytest.mark.parametrize("dim", [0, -1])
def test_diff(n: int, dim: int, contract: KernelContract) -> None:
    array, more = sample((3, 4), "float64"), sample((3, 4), "float64", 1)
    check(flow.diff(flow.tensor(array), n, dim), np.diff(array, n, dim), "float64")
    expected = np.diff(array, n, dim, prepend=more, append=more)
    check(flow.diff(flow.tensor(array), n, dim, flow.tensor(more), flow.tensor(more)), expected, "float64")
    check_gradients(lambda x: x.diff(n, dim), array)


def test_diff_of_integers_and_bools(contract: KernelContract) -> None:
    check(flow.diff(flow.tensor([1, 4, 9])), [3, 5], "int64")
    check(flow.diff(flow.tensor([True, False, False])), [True, False], "bool")


def test_trapezoid(contract: KernelContract) -> None:
    y, x = sample((3, 4), "float64"), np.sort(sample((4,), "float64", 1))
    check(flow.trapezoid(flow.tensor(y)), np.trapezoid(y), "float64")
    check(flow.trapezoid(flow.tensor(y), dx=0.5, dim=0), np.trapezoid(y, dx=0.5, axis=0), "float64")
    check(flow.trapezoid(*_tensors(y, x)), np.trapezoid(y, x), "float64")
    check(flow.trapezoid(*_tensors(y, y), dim=0), np.trapezoid(y, y, axis=0), "float64")
    check_gradients(flow.trapezoid, y, x)


def test_covariances(contract: KernelContract) -> None:
    array = sample((3, 6), "float64")
    often, much = np.array([1, 2, 1, 3, 1, 1]), np.linspace(0.5, 1.5, 6)
    check(flow.cov(flow.tensor(array)), np.cov(array), "float64", tolerance=1e-12)
    check(flow.cov(flow.tensor(array), correction=0), np.cov(array, ddof=0), "float64", tolerance=1e-12)
    check(flow.cov(flow.tensor(array[0])), np.cov(array[0]), "float64", tolerance=1e-12)
    found = flow.cov(flow.tensor(array), fweights=flow.tensor(often), aweights=flow.tensor(much))
    check(found, np.cov(array, fweights=often, aweights=much), "float64", tolerance=1e-12)
    found = flow.cov(flow.tensor(array), fweights=flow.tensor(often))
    check(found, np.cov(array, fweights=often), "float64", tolerance=1e-12)
    check(flow.corrcoef(flow.tensor(array)), np.corrcoef(array), "float64", tolerance=1e-12)
    check(flow.tensor(array[0]).corrcoef(), 1.0, "float64")
    z = sample((2, 5), "complex128")
    check(flow.cov(flow.tensor(z)), np.cov(z), "complex128", tolerance=1e-12)
    check(flow.cov(flow.tensor([[1, 2, 4], [3, 3, 0]])), np.cov([[1, 2, 4], [3, 3, 0]]), "float32")
    check_gradients(flow.cov, array)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float, contract: KernelContract) -> None:
    a, b = sample((2, 4, 3), "float64"), sample((5, 3), "float64", 1)
    expected = np.linalg.norm(a[:, :, None] - b, p, -1)
    check(flow.cdist(flow.tensor(a), flow.tensor(b), p), expected, "float64", tolerance=1e-12)
    if p:
        check_gradients(lambda x, y: flow.cdist(x, y, p), a[0], b)


def test_distances_by_a_matrix_product(contract: KernelContract) -> None:
    a, b = sample((30, 3), "float64"), sample((2, 3), "float64", 1)
    expected = np.linalg.norm(a[:, None] - b, 2, -1)
    check(flow.cdist(*_tensors(a, b)), expected, "float64", tolerance=1e-10)
    mode = "use_mm_for_euclid_dist"
    check_gradients(lambda x, y: flow.cdist(x, y, compute_mode=mode), a[:3], b)
    same = flow.tensor([[1.0, 2.0]], requires_grad=True)
    for each in (mode, "donot_use_mm_for_euclid_dist"):
        distance = flow.cdist(same, same.detach(), compute_mode=each)
        check(distance, [[0.0]], "float32")
        check(flow.autograd.grad(distance.sum(), same)[0], [[0.0, 0.0]], "float32")
    check(flow.cdist(flow.ones(2, 0), flow.ones(3, 0)), np.zeros((2, 3)), "float32")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: flow.cross(x[:, :2], x[:, :2]), ValueError, "no dimension"),
        (lambda x: flow.cross(x, x, 0), ValueError, "expected size 3"),
        (lambda x: flow.linalg.cross(x, x[0]), ValueError, "the same number of dimensions"),
        (lambda x: flow.inner(x, x.T), ValueError, "differ in size"),
        (lambda x: flow.trace(x[0]), ValueError, "expected a 2-d tensor"),
        (lambda x: flow.linalg.multi_dot([x]), ValueError, "at least two"),
        (lambda x: flow.linalg.multi_dot([x, x]), ValueError, "tensors 0 and 1"),
        (lambda x: flow.linalg.multi_dot([x, x[0], x]), ValueError, "tensor 1 has shape"),
        (lambda x: flow.chain_matmul(x, x[0]), ValueError, "expected 2-d tensors"),
        (lambda x: flow.diff(x[0, 0]), ValueError, "at least one dimension"),
        (lambda x: flow.diff(x, -1), ValueError, "0 or more"),
        (lambda x: flow.cov(flow.ones(1, 2, 3)), ValueError, "at most two dimensions"),
        (lambda x: flow.cov(x.bool()), TypeError, "not defined for bool"),
        (lambda x: flow.cov(x, fweights=flow.ones(3)), TypeError, "fweights cannot be float32"),
        (lambda x: flow.cov(x, aweights=flow.tensor([1, 2, 3])), TypeError, "aweights cannot be int64"),
        (lambda x: flow.cov(x, aweights=flow.tensor([True, False, True])), TypeError, "aweights cannot be bool"),
        (lambda x: flow.cov(x, aweights=flow.ones(2)), ValueError, "for 3 observations"),
        (lambda x: flow.cdist(x, x.T), ValueError, "rows of one length"),
        (lambda x: flow.cdist(x, x.double()), TypeError, "one floating-point dtype"),
        (lambda x: flow.cdist(x, x, -1.0), ValueError, "p must be 0 or more"),
        (lambda x: flow.cdist(x, x, compute_mode="fast"), ValueError, "compute_mode must be"),
        (lambda x: flow.cdist(flow.ones(2, 2, 3), flow.ones(3, 2, 3)), ValueError, "do not broadcast"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))
