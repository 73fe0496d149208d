"""LU factors, eigenvalues of general matrices, reflections, and functions that report singular matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients
from vmflow import linalg

from .oracle import KernelContract, check, sample


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3, 4), (1, 1), (0, 3, 2)], ids=str)
@pytest.mark.parametrize("pivot", [False, True])
def test_gradients_of_factors(shape: tuple[int, ...], pivot: bool, contract: KernelContract) -> None:
    array = sample(shape, "float64") + 6 * np.eye(shape[-2], shape[-1])
    check_gradients(lambda x: linalg.lu_factor(x, pivot=pivot).LU, array, second=True)
    check_gradients(lambda x: linalg.lu(x, pivot=pivot).L, array)
    check_gradients(lambda x: linalg.lu(x, pivot=pivot).U, array)


def test_gradients_reach_exchanged_rows(contract: KernelContract) -> None:
    array = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 0.5], [4.0, 1.0, 1.0]])
    assert linalg.lu_factor(flow.tensor(array)).pivots.tolist() == [3, 2, 3]
    check_gradients(lambda x: linalg.lu_factor(x).LU, array, second=True)


@pytest.mark.parametrize("shape", [(33, 33), (100, 70), (65, 130), (2, 64, 64)], ids=str)
def test_many_columns(shape: tuple[int, ...], contract: KernelContract) -> None:
    """The kernel eliminates blocks of columns together."""
    array = sample(shape, "float64")
    permutation, lower, upper = linalg.lu(flow.tensor(array))
    check(permutation @ lower @ upper, array, "float64", tolerance=1e-11)
    assert np.abs(lower.numpy()).max() <= 1
    without = linalg.lu_factor(flow.tensor(array), pivot=False)
    steps = min(shape[-2:])
    check(without.pivots, np.broadcast_to(np.arange(1, steps + 1), (*shape[:-2], steps)), "int32")
    assert linalg.lu(flow.tensor(array), pivot=False).P.numel() == 0


def test_systems_with_factors(contract: KernelContract) -> None:
    array, right = sample((2, 3, 3), "float64"), sample((4, 1, 3, 2), "float64", 1)
    factors = linalg.lu_factor(flow.tensor(array))
    check(linalg.lu_solve(*factors, flow.tensor(right)), np.linalg.solve(array, right), "float64", tolerance=1e-10)
    turned = np.linalg.solve(np.swapaxes(array, -1, -2), right)
    check(linalg.lu_solve(*factors, flow.tensor(right), adjoint=True), turned, "float64", tolerance=1e-10)
    for left in (False, True):
        for adjoint in (False, True):
            check_gradients(
                lambda x, y, left=left, adjoint=adjoint: linalg.lu_solve(
                    *linalg.lu_factor(x), y if left else y.mT, left=left, adjoint=adjoint
                ),
                array,
                right[0],
                second=left,
            )


def test_singular_matrices_among_others(contract: KernelContract) -> None:
    array = sample((3, 3, 3), "float64")
    array[1] = [[1, 2, 3], [2, 4, 6], [1, 0, 0]]
    x, b = flow.tensor(array, requires_grad=True), flow.tensor(sample((3, 2), "float64", 1))
    found, info = linalg.solve_ex(x, b)
    check(info, [0, 3, 0], "int32")
    assert np.isnan(found[1].numpy()).all()
    check(found[::2], np.linalg.solve(array[::2], b.numpy()), "float64", tolerance=1e-10)
    found[::2].sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()
    inverse, info = linalg.inv_ex(x)
    check(info, [0, 3, 0], "int32")
    check(inverse[::2], np.linalg.inv(array[::2]), "float64", tolerance=1e-10)
    for call in (
        lambda: linalg.inv_ex(x, check_errors=True),
        lambda: linalg.solve_ex(x, b, check_errors=True),
        lambda: linalg.lu_factor_ex(x, check_errors=True),
    ):
        with pytest.raises(linalg.LinAlgError, match=r"info is \[0, 3, 0\]"):
            call()
    singular = linalg.lu_solve(*linalg.lu_factor(x.detach()[1]), b)
    with pytest.raises(linalg.LinAlgError):
        singular.numpy()


def test_factors_of_matrices_that_are_not_positive_definite(contract: KernelContract) -> None:
    good = np.array([[4.0, 2.0, 0.0], [2.0, 3.0, 1.0], [0.0, 1.0, 2.0]])
    bad = good * [[1, 1, 1], [1, -1, 1], [1, 1, 1]]
    x = flow.tensor(np.stack([good, bad, -good]), requires_grad=True)
    lower, info = linalg.cholesky_ex(x)
    check(info, [0, 2, 1], "int32")
    check(lower[0], np.linalg.cholesky(good), "float64", tolerance=1e-12)
    assert np.isnan(lower[1:].numpy()).all()
    lower[0].sum().backward()
    assert x.grad is not None
    assert np.isfinite(x.grad.numpy()).all()
    with pytest.raises(linalg.LinAlgError, match="not positive definite"):
        linalg.cholesky_ex(x, check_errors=True)
    # The other triangle has no effect.
    half = flow.tensor(np.where(np.tri(3) > 0, good, np.nan))
    check(linalg.cholesky_ex(half).L, np.linalg.cholesky(good), "float64", tolerance=1e-12)
    check(linalg.cholesky_ex(half.mT, upper=True).L, np.linalg.cholesky(good).T, "float64", tolerance=1e-12)
    check_gradients(lambda y: linalg.cholesky_ex(y @ y.mT).L, good, second=True)


def test_gradients_of_eigenvalues_and_eigenvectors(contract: KernelContract) -> None:
    array = sample((2, 3, 3), "float64")
    check_gradients(lambda x: flow.view_as_real((linalg.eigvals(x) ** 3).sum(-1)), array, second=True)
    # Absolute values do not depend on the phase of the vectors.
    check_gradients(lambda x: linalg.eig(x).eigenvectors.abs().square(), array, second=True)
    check_gradients(lambda x: linalg.eig(flow.complex(x, x.mT)).eigenvectors.abs(), array)


def test_reflections(contract: KernelContract) -> None:
    array, tau = sample((2, 4, 3), "float64"), sample((2, 3), "float64", 1)
    expected = np.broadcast_to(np.eye(4), (2, 4, 4))
    for place in range(3):
        vector = array[:, :, place].copy()
        vector[:, :place], vector[:, place] = 0, 1
        expected = expected @ (np.eye(4) - tau[:, place, None, None] * vector[:, :, None] * vector[:, None, :])
    check(flow.orgqr(flow.tensor(array), flow.tensor(tau)), expected[..., :3], "float64", tolerance=1e-11)
    check_gradients(linalg.householder_product, array, tau, second=True)
    tau[:] = 0
    check(linalg.householder_product(flow.tensor(array), flow.tensor(tau)), np.eye(4, 3) + 0 * array, "float64")


def test_singular_matrices_of_a_batch_have_an_infinite_condition(contract: KernelContract) -> None:
    matrices = flow.tensor([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 4.0]]])
    check(linalg.cond(matrices, "nuc"), [np.inf, 4.5], "float32")


def test_gradients_of_composed_functions(contract: KernelContract) -> None:
    square = sample((3, 3), "float64") + 4 * np.eye(3)
    for p in (None, "fro", 1, 2, -2, np.inf):
        check_gradients(lambda x, p=p: linalg.cond(x, p), square)
    check_gradients(lambda x: linalg.tensorinv(x.reshape(3, 1, 3), ind=1), square, second=True)
    check_gradients(linalg.tensorsolve, square, sample((3,), "float64", 1), second=True)
    check_gradients(linalg.vander, np.array([0.0, 1.5, -2.0]), second=True)
    check_gradients(linalg.vecdot, square, sample((2, 1, 3), "float64", 1), second=True)
    check_gradients(flow.cholesky_inverse, square)
    check_gradients(lambda x, y: flow.dist(x, y, 3), square, square[:1] + 1)


def test_half_precision_and_autocast(contract: KernelContract) -> None:
    array = sample((3, 3), "float32") + 4 * np.eye(3, dtype="float32")
    x = flow.tensor(array)
    check(linalg.inv_ex(x.half()).inverse, np.linalg.inv(array), "float16", tolerance=1e-2)
    with flow.autocast(x.device.type, dtype=flow.bfloat16):
        assert linalg.lu_factor(x.bfloat16()).LU.dtype is flow.float32
        assert linalg.eigvals(x.bfloat16()).dtype is flow.complex64
        assert flow.cholesky_inverse(x.bfloat16()).dtype is flow.float32


def test_in_a_graph(contract: KernelContract) -> None:
    class Solve(flow.nn.Graph):
        def build(self, a: flow.Tensor, b: flow.Tensor) -> Any:
            found = linalg.solve_ex(a, b)
            return found.result, found.info, linalg.eigvals(a).abs().sum()

    a, b = flow.tensor(sample((3, 3), "float64")), flow.tensor(sample((3, 2), "float64", 1))
    result, info, total = Solve()(a, b)
    check(result, np.linalg.solve(a.numpy(), b.numpy()), "float64", tolerance=1e-10)
    assert info.item() == 0
    check(total, np.abs(np.linalg.eigvals(a.numpy())).sum(), "float64", tolerance=1e-10)


def test_out() -> None:
    x = flow.eye(3)
    out = flow.zeros(3, 3), flow.zeros(3, dtype=flow.int32)
    found = linalg.lu_factor(x, out=out)
    assert found.LU is out[0]
    assert out[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: linalg.lu(x.long()), TypeError, "not defined for int64"),
        (lambda x: linalg.lu_factor(x[0]), ValueError, "expected matrices"),
        (lambda x: linalg.lu_factor(x + 1j), TypeError, "not defined for complex64"),
        (lambda x: linalg.lu_solve(x, flow.ones(2).int(), x), ValueError, "expected square matrices"),
        (lambda x: linalg.lu_solve(flow.eye(2), flow.ones(3).int(), x), ValueError, r"pivots of shape \[3\]"),
        (lambda x: linalg.lu_solve(flow.eye(2), flow.ones(2), x), TypeError, "expected pivots of int32"),
        (lambda x: linalg.lu_solve(flow.eye(2), flow.ones(2).int(), x.mT), ValueError, "does not fit"),
        (lambda x: linalg.lu_solve(flow.eye(2), flow.ones(2).int(), x[0], left=False), ValueError, "does not fit"),
        (lambda x: flow.lu_unpack(x, flow.ones(3).int()), ValueError, r"pivots of shape \[3\]"),
        (lambda x: linalg.solve_ex(flow.eye(3), flow.ones(3), left=False), ValueError, "left=False needs a matrix"),
        (lambda x: linalg.inv_ex(x), ValueError, "expected square matrices"),
        (lambda x: linalg.cholesky_ex(x), ValueError, "expected square matrices"),
        (lambda x: linalg.eig(x), ValueError, "expected square matrices"),
        (lambda x: linalg.eigvals(flow.eye(2).half()), TypeError, "eig is not defined for float16"),
        (lambda x: linalg.householder_product(x, flow.ones(2)), ValueError, "with m >= n"),
        (lambda x: linalg.householder_product(x.mT, flow.ones(2).double()), TypeError, "expected one dtype"),
        (lambda x: linalg.cond(x, 1), ValueError, "expected square matrices"),
        (lambda x: linalg.cond(x, 3), ValueError, "p must be"),
        (lambda x: linalg.tensorinv(x), ValueError, "differ"),
        (lambda x: linalg.tensorinv(x, 0), ValueError, "positive ind"),
        (lambda x: linalg.tensorsolve(x, flow.ones(2)), ValueError, "does not fit"),
        (lambda x: linalg.vander(flow.ones(())), ValueError, "at least one dimension"),
        (lambda x: linalg.vander(x, N=1), ValueError, "more than one power"),
        (lambda x: flow.vander(x), ValueError, "expected a vector"),
        (lambda x: linalg.vecdot(x, x.double()), TypeError, "expected one dtype"),
        (lambda x: linalg.vecdot(x, flow.ones(2, 2)), ValueError, "differ in length"),
        (lambda x: linalg.vector_norm(x, dtype=flow.float16), TypeError, "does not hold the numbers"),
        (lambda x: linalg.vector_norm(x[:0], -1), IndexError, "of no elements"),
        (lambda x: linalg.norm(x, dim=()), ValueError, "one or two dimensions"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


@pytest.mark.parametrize("pivot", [3, 0, -1])
def test_pivots_out_of_range(pivot: int) -> None:
    pivots = flow.tensor([1, pivot], dtype=flow.int32)
    message = f"pivot {pivot} is no row of a matrix of 2 rows"
    with pytest.raises(IndexError, match=message):
        flow.lu_unpack(flow.eye(2), pivots).P.numpy()
    with pytest.raises(IndexError, match=message):
        flow.linalg.lu_solve(flow.eye(2), pivots, flow.ones(2, 1)).numpy()
