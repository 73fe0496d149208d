"""Factors of matrices and norms: against numpy, their gradients, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import check_gradients
from vmflow import linalg
from vmflow.ops.linalg.triangular_factors import _order

from .oracle import (
    FRACTIONAL,
    REAL,
    Array,
    KernelContract,
    Row,
    Shapes,
    check,
    forward_test,
    gradient_test,
    sample,
    values,
)

SQUARE: tuple[Shapes, ...] = (((3, 3),), ((4, 2, 2),), ((0, 3, 3),), ((1, 1),), ((2, 0, 0),))
ANY: tuple[Shapes, ...] = (((4, 3),), ((3, 4),), ((2, 3, 3),), ((2, 4, 2),), ((0, 3, 2),))
SYSTEMS: tuple[Shapes, ...] = (((3, 3), (3, 2)), ((4, 3, 3), (3, 2)), ((3, 3), (4, 3, 1)), ((0, 2, 2), (2, 3)))


def _adjoint(x: Any) -> Any:
    return (x.conj() if x.is_complex() else x).mT if isinstance(x, flow.Tensor) else np.swapaxes(x, -1, -2).conj()


def _definite(x: Any) -> Any:
    """Symmetric or Hermitian, positive definite matrices."""
    if isinstance(x, flow.Tensor):
        return x @ _adjoint(x) + flow.eye(x.shape[-1], dtype=x.dtype) * 4
    return x @ _adjoint(x) + np.eye(x.shape[-1]) * 4


def _symmetric(x: Any) -> Any:
    return x + _adjoint(x)


def _triangular(x: Any) -> Any:
    """Triangular matrices with diagonals far from 0."""
    size = x.shape[-1]
    return x + (flow.eye(size, dtype=x.dtype) if isinstance(x, flow.Tensor) else np.eye(size)) * 8


def _exponential(x: Array) -> Array:
    """By the power series, which converges fast for small matrices."""
    term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    total = term
    for place in range(1, 80):
        term = term @ x / place
        total = total + term
    return np.asarray(total)


def _rebuilt_qr(x: flow.Tensor) -> flow.Tensor:
    q, r = linalg.qr(x)
    return q @ r


def _rebuilt_svd(x: flow.Tensor) -> flow.Tensor:
    u, s, vh = linalg.svd(x, full_matrices=False)
    return u * s.unsqueeze(-2) @ vh


def _rebuilt_eigh(x: flow.Tensor) -> flow.Tensor:
    eigenvalues, eigenvectors = linalg.eigh(_symmetric(x))
    rebuilt: flow.Tensor = eigenvectors * eigenvalues.unsqueeze(-2) @ _adjoint(eigenvectors)
    return rebuilt


def _rebuilt_lu(x: flow.Tensor) -> flow.Tensor:
    permutation, lower, upper = linalg.lu(x)
    return permutation @ lower @ upper


def _rebuilt_eig(x: flow.Tensor) -> flow.Tensor:
    found, vectors = linalg.eig(x)
    rebuilt = vectors * found.unsqueeze(-2) @ linalg.inv(vectors)
    return rebuilt if x.dtype.is_complex else flow.real(rebuilt)


def _exchanged(pivots: Array, size: int) -> Array:
    """The permutation of these exchanges of rows, one after the other."""
    found = np.empty((*pivots.shape[:-1], size), np.int64)
    for place in np.ndindex(pivots.shape[:-1]):
        order = list(range(size))
        for step, other in enumerate(pivots[place]):
            order[step], order[other] = order[other], order[step]
        found[place] = order
    return found


ROWS: list[Row] = [
    Row(
        "slogdet",
        lambda x: linalg.slogdet(_definite(x)).logabsdet,
        lambda x: np.linalg.slogdet(_definite(x))[1],
        FRACTIONAL,
        "real",
        shapes=SQUARE,
        order=2,
        tolerance=2e-2,
    ),
    Row(
        "cholesky",
        lambda x: linalg.cholesky(_definite(x)),
        lambda x: np.linalg.cholesky(_definite(x)),
        FRACTIONAL,
        shapes=SQUARE,
        order=2,
        tolerance=2e-2,
    ),
    Row(
        "solve_triangular",
        lambda x, y: linalg.solve_triangular(_triangular(x), y, upper=True),
        lambda x, y: np.linalg.solve(np.triu(_triangular(x)), y),
        REAL,
        shapes=SYSTEMS,
        order=2,
        tolerance=2e-2,
    ),
    Row("qr", _rebuilt_qr, lambda x: x, FRACTIONAL, shapes=ANY, order=2, tolerance=3e-2),
    Row("svd", _rebuilt_svd, lambda x: x, FRACTIONAL, shapes=ANY, order=2, tolerance=3e-2),
    Row(
        "svdvals",
        linalg.svdvals,
        lambda x: np.linalg.svd(x, compute_uv=False),
        FRACTIONAL,
        "real",
        shapes=ANY,
        order=2,
        tolerance=2e-2,
    ),
    Row("eigh", _rebuilt_eigh, _symmetric, FRACTIONAL, shapes=SQUARE, order=2, tolerance=6e-2),
    Row("lu_factor", _rebuilt_lu, lambda x: x, REAL, shapes=ANY, order=2, tolerance=3e-2),
    Row(
        "eig",
        _rebuilt_eig,
        lambda x: x,
        ("float64", "float32", "complex64", "complex128"),
        shapes=SQUARE,
        order=2,
        tolerance=1e-3,
    ),
    Row(
        "pivots_to_permutation",
        lambda x: _order(x, 4),
        lambda x: _exchanged(x - 1, 4),
        ("int32", "int64"),
        "int64",
        shapes=(((3,),), ((2, 3),), ((0, 3),), ((2, 0),), ((5, 1),)),
        domain=((1.0, 4.0),),
    ),
    Row("pinv", linalg.pinv, np.linalg.pinv, (*REAL[:2], *FRACTIONAL[4:]), shapes=ANY, order=2, tolerance=1e-4),
    Row("pinv", linalg.pinv, np.linalg.pinv, ("float16", "bfloat16"), shapes=ANY, tolerance=6e-2, label="-half"),
    Row("matrix_exp", linalg.matrix_exp, _exponential, REAL, shapes=SQUARE, order=2, tolerance=2e-2),
]


test_forward = forward_test(ROWS)
test_gradient = gradient_test(ROWS)


@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4), (2, 3, 2)], ids=str)
def test_each_factor_has_its_own_gradient(shape: tuple[int, ...], contract: KernelContract) -> None:
    """The product of all factors would hide errors that cancel."""
    array = sample(shape, "float64", 3)
    check_gradients(lambda x: linalg.qr(x).Q, array, second=True)
    check_gradients(lambda x: linalg.qr(x).R, array)
    check_gradients(lambda x: linalg.svd(x, full_matrices=False).U, array, second=True)
    check_gradients(lambda x: linalg.svd(x, full_matrices=False).Vh, array)
    check_gradients(lambda x: linalg.svd(x).S, array, second=True)
    check_gradients(linalg.svdvals, array)
    check_gradients(linalg.pinv, array, second=True)


def test_eigenvectors_have_gradients(contract: KernelContract) -> None:
    array = sample((2, 3, 3), "float64")
    check_gradients(lambda x: linalg.eigh(_symmetric(x)).eigenvectors, array)
    check_gradients(lambda x: linalg.eigvalsh(_symmetric(x)), array, second=True)


def test_the_factors_have_their_properties(contract: KernelContract) -> None:
    array = sample((2, 4, 3), "float64")
    x = flow.tensor(array)
    for mode, size in (("reduced", 3), ("complete", 4)):
        q, r = linalg.qr(x, mode)
        assert tuple(q.shape) == (2, 4, size)
        check(q.mT @ q, np.broadcast_to(np.eye(size), (2, size, size)), "float64", tolerance=1e-12)
        check(q @ r, array, "float64", tolerance=1e-12)
        check(r.triu(), r.numpy(), "float64")
    assert linalg.qr(x, "r").Q.numel() == 0
    check(linalg.qr(x, "r").R, values(linalg.qr(x).R), "float64")
    u, s, vh = linalg.svd(x)
    assert (tuple(u.shape), tuple(s.shape), tuple(vh.shape)) == ((2, 4, 4), (2, 3), (2, 3, 3))
    check(u.mT @ u, np.broadcast_to(np.eye(4), (2, 4, 4)), "float64", tolerance=1e-12)
    lower = flow.tensor(sample((3, 3), "float64"))
    whole = lower.tril() + lower.tril(-1).mT
    check(linalg.eigvalsh(lower), values(linalg.eigvalsh(whole)), "float64", tolerance=1e-12)
    check(linalg.eigvalsh(lower.mT, "U"), values(linalg.eigvalsh(whole)), "float64", tolerance=1e-12)


def test_the_upper_cholesky_factor_and_its_systems(contract: KernelContract) -> None:
    matrix, right = _definite(sample((2, 3, 3), "float64")), sample((3, 2), "float64", 1)
    a, b = flow.tensor(matrix), flow.tensor(right)
    upper = linalg.cholesky(a, upper=True)
    check(upper.mT @ upper, matrix, "float64", tolerance=1e-12)
    expected = np.linalg.solve(matrix, right)
    check(flow.cholesky_solve(b, upper, True), expected, "float64", tolerance=1e-12)
    check(b.cholesky_solve(linalg.cholesky(a)), expected, "float64", tolerance=1e-12)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_triangular_systems(upper: bool, left: bool, unitriangular: bool, contract: KernelContract) -> None:
    matrix, right = _triangular(sample((3, 3), "float64")), sample((2, 3, 3), "float64", 1)
    triangle = np.triu(matrix) if upper else np.tril(matrix)
    if unitriangular:
        np.fill_diagonal(triangle, 1.0)
    inverse = np.linalg.inv(triangle)

    def solved(a: flow.Tensor, b: flow.Tensor) -> flow.Tensor:
        return linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unitriangular)

    found = solved(flow.tensor(matrix), flow.tensor(right))
    check(found, inverse @ right if left else right @ inverse, "float64", tolerance=1e-11)
    check_gradients(solved, matrix, right, second=True)


def test_determinants(contract: KernelContract) -> None:
    array = sample((4, 3, 3), "float64")
    sign, logarithm = flow.slogdet(flow.tensor(array))
    check(sign * logarithm.exp(), np.linalg.det(array), "float64", tolerance=1e-12)
    with np.errstate(invalid="ignore"):
        check(flow.tensor(array).logdet(), np.log(np.linalg.det(array)), "float64", tolerance=1e-12)
    singular = flow.slogdet(flow.zeros(2, 2))
    check(singular.sign, 0.0, "float32")
    check(singular.logabsdet, -math.inf, "float32")
    check(flow.det(flow.eye(2) * 3), 9.0, "float32")


def test_ranks_and_tolerances(contract: KernelContract) -> None:
    x = flow.tensor(np.diag([4.0, 1.0, 1e-20]))
    check(linalg.matrix_rank(x), 2, "int64")
    check(linalg.matrix_rank(x, rtol=0.0), 3, "int64")
    check(linalg.matrix_rank(x, atol=2.0), 1, "int64")
    check(linalg.matrix_rank(x, hermitian=True), 2, "int64")
    check(linalg.matrix_rank(flow.zeros(2, 3, 0)), [0, 0], "int64")
    check(linalg.pinv(x), np.diag([0.25, 1.0, 0.0]), "float64")
    check(linalg.pinv(x, atol=2.0), np.diag([0.25, 0.0, 0.0]), "float64")
    check(linalg.pinv(x.tril(), hermitian=True), np.diag([0.25, 1.0, 0.0]), "float64")
    check(linalg.pinv(flow.zeros(3, 0)), np.zeros((0, 3)), "float32")


def test_least_squares(contract: KernelContract) -> None:
    a, b = sample((5, 3), "float64"), sample((5, 2), "float64", 1)
    solution, residuals, rank, singular = linalg.lstsq(flow.tensor(a), flow.tensor(b), driver="gelsd")
    expected = np.linalg.lstsq(a, b)
    check(solution, expected[0], "float64", tolerance=1e-12)
    check(residuals, expected[1], "float64", tolerance=1e-12)
    check(rank, 3, "int64")
    check(singular, expected[3], "float64", tolerance=1e-12)
    check(linalg.lstsq(flow.tensor(a), flow.tensor(b[:, 0])).solution, expected[0][:, 0], "float64", tolerance=1e-12)
    wide = linalg.lstsq(flow.tensor(a.T.copy()), flow.tensor(b[:3]), driver="gelss")
    check(wide.solution, np.linalg.lstsq(a.T, b[:3])[0], "float64", tolerance=1e-12)
    assert wide.residuals.numel() == 0
    check_gradients(lambda x, y: linalg.lstsq(x, y).solution, a, b)


@pytest.mark.parametrize(
    ("driver", "residuals", "ranks", "values"),
    [("gels", (2,), (0,), (0,)), ("gelsy", (0,), (), (0,)), ("gelsd", (2,), (), (3,)), ("gelss", (2,), (), (3,))],
)
def test_results_of_each_driver(
    driver: str, residuals: tuple[int, ...], ranks: tuple[int, ...], values: tuple[int, ...]
) -> None:
    found = linalg.lstsq(flow.ones(5, 3), flow.ones(5, 2), driver=driver)
    assert tuple(found.residuals.shape) == residuals
    assert tuple(found.rank.shape) == ranks
    assert found.rank.dtype is flow.int64
    assert tuple(found.singular_values.shape) == values


def test_a_vector_for_each_matrix(contract: KernelContract) -> None:
    a, b = sample((2, 3, 3), "float64"), sample((2, 3), "float64", 1)
    expected = np.linalg.solve(a, b[..., None])[..., 0]
    check(linalg.solve(flow.tensor(a), flow.tensor(b)), expected, "float64", tolerance=1e-11)
    check(linalg.lstsq(flow.tensor(a), flow.tensor(b)).solution, expected, "float64", tolerance=1e-11)
    check_gradients(linalg.solve, a, b, second=True)
    # Two matrices of three rows and two columns do not count as vectors.
    right = sample((3, 2), "float64", 1)
    check(linalg.solve(flow.tensor(a), flow.tensor(right)), np.linalg.solve(a, right), "float64", tolerance=1e-11)


def test_tolerances_by_tensors(contract: KernelContract) -> None:
    array = np.array([[[4.0, 0.0], [0.0, 1.0]], [[8.0, 0.0], [0.0, 3.0]]])
    x = flow.tensor(array)
    atol = flow.tensor([2.0, 2.0], dtype=flow.float64)
    check(linalg.pinv(x, atol=atol), [[[0.25, 0], [0, 0]], [[0.125, 0], [0, 1 / 3]]], "float64", tolerance=1e-12)
    check(linalg.matrix_rank(x, atol=atol), [1, 2], "int64")
    check(linalg.matrix_rank(x, tol=atol[:1]), [1, 2], "int64")
    check(linalg.matrix_rank(x, rtol=flow.tensor([[0.3], [0.9]])), [[1, 2], [1, 1]], "int64")
    check(linalg.matrix_rank(x, atol=flow.tensor(0.0), rtol=0.3), [1, 2], "int64")
    assert tuple(linalg.pinv(x[:, :, :0], atol=flow.ones(3, 1)).shape) == (3, 2, 0, 2)
    assert tuple(linalg.matrix_rank(x[:, :, :0], atol=flow.ones(3, 1)).shape) == (3, 2)
    check(linalg.pinv(x, 0.3), linalg.pinv(x, rtol=0.3).numpy(), "float64")
    wide = sample((2, 3, 4), "float64")
    check_gradients(lambda y: linalg.pinv(y, atol=flow.tensor([0.1, 0.2]), rtol=flow.zeros(1)), wide, second=True)


@pytest.mark.parametrize("n", [-2, -1, 0, 1, 2, 5])
def test_powers_of_matrices(n: int, contract: KernelContract) -> None:
    array = _triangular(sample((2, 3, 3), "float64")) / 5
    expected = np.linalg.matrix_power(array, n)
    x = flow.tensor(array)
    check(x.matrix_power(n), expected, "float64", tolerance=1e-11)
    assert x.matrix_power(n) is not x
    check_gradients(lambda y: y.matrix_power(n), array, second=True)


def test_the_exponential_of_large_matrices(contract: KernelContract) -> None:
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    angles = np.array([0.1, 3.0, 200.0])
    expected = [[[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]] for angle in angles]
    check(flow.matrix_exp(flow.tensor(turn * angles[:, None, None])), expected, "float64", tolerance=1e-11)
    check_gradients(linalg.matrix_exp, sample((2, 3, 3), "float64"), second=True)


@pytest.mark.parametrize("order", ["fro", "nuc", 2, -2, 1, -1, math.inf, -math.inf])
def test_norms_of_matrices(order: Any, contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    x = flow.tensor(array)
    for dim in ((-2, -1), (0, 2), (2, 0)):
        for keepdim in (False, True):
            expected = np.linalg.norm(array, order, dim, keepdim)
            check(linalg.matrix_norm(x, order, dim, keepdim), expected, "float64", tolerance=1e-12)
            check(linalg.norm(x, order, dim, keepdim), expected, "float64", tolerance=1e-12)
    check(linalg.norm(x[0], order), np.linalg.norm(array[0], order), "float64", tolerance=1e-12)
    check(linalg.matrix_norm(x.float(), order, dtype=flow.float64)[0] * 0, 0.0, "float64")
    check_gradients(lambda y: linalg.matrix_norm(y, order), array)


def test_norms_of_vectors_and_of_all_elements(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    x = flow.tensor(array)
    check(linalg.norm(x), np.linalg.norm(array), "float64", tolerance=1e-12)
    check(linalg.norm(x, 3, 1), np.linalg.norm(array, 3, 1), "float64", tolerance=1e-12)
    check(linalg.norm(x[0, 0], 1), np.linalg.norm(array[0, 0], 1), "float64", tolerance=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linalg.inv(flow.ones(2, 2)), "linalg.inv: Singular matrix"),
        (lambda: linalg.solve(flow.ones(2, 2), flow.ones(2, 1)), "linalg.solve: Singular matrix"),
        (lambda: linalg.cholesky(-flow.eye(2)), "linalg.cholesky: Matrix is not positive definite"),
        (lambda: linalg.solve_triangular(flow.zeros(2, 2), flow.ones(2, 1), upper=True), "linalg.solve_triangular"),
        (lambda: linalg.svdvals(flow.full((2, 2), math.nan)), "linalg.svdvals: SVD did not converge"),
    ],
)
def test_matrices_without_a_decomposition_raise_errors(call: Callable[[], flow.Tensor], message: str) -> None:
    result = call()
    assert issubclass(linalg.LinAlgError, RuntimeError)
    with pytest.raises(linalg.LinAlgError, match=message):
        result.numpy()


def test_a_complete_qr_of_a_tall_matrix_has_no_gradient() -> None:
    x = flow.ones(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no more rows than columns"):
        linalg.qr(x, "complete").R.sum().backward()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *[
            (lambda x, function=function: function(x), ValueError, "expected square matrices")
            for function in (linalg.cholesky, linalg.slogdet, linalg.eigh, linalg.matrix_exp)
        ],
        *[
            (lambda x, function=function: function(x.long()), TypeError, "not defined for int64")
            for function in (linalg.qr, linalg.svd, linalg.svdvals, linalg.pinv, linalg.matrix_rank, linalg.matrix_norm)
        ],
        *[
            (lambda x, function=function: function(x[0]), ValueError, "expected matrices")
            for function in (linalg.qr, linalg.svd, linalg.svdvals, linalg.pinv, linalg.matrix_norm)
        ],
        (lambda x: linalg.matrix_exp(x.to(flow.complex64)), TypeError, "not defined for complex64"),
        (lambda x: linalg.qr(x, "full"), ValueError, "mode must be"),
        (lambda x: linalg.eigh(flow.eye(2), "X"), ValueError, "UPLO must be"),
        (lambda x: linalg.pinv(x, rtol=-1.0), ValueError, "a tolerance must be"),
        (lambda x: linalg.pinv(x, 0.1, rtol=0.1), TypeError, "give one of them"),
        (lambda x: linalg.pinv(x, hermitian=True), ValueError, "expected symmetric matrices"),
        (
            lambda x: linalg.pinv(x, atol=flow.ones(2)[:, None].to(flow.complex64)),
            TypeError,
            "a tolerance must be real",
        ),
        *[
            (lambda x, value=value: linalg.matrix_rank(x, value), TypeError, "matrix_rank: a tolerance must be real")
            for value in (1j, np.complex64(1), np.complex128(1))
        ],
        (lambda x: linalg.matrix_rank(x, 0.1, rtol=0.1), TypeError, "give tol"),
        (lambda x: linalg.lstsq(x, x, driver="gelsx"), ValueError, "driver must be one of"),
        (lambda x: linalg.solve(flow.eye(3), flow.ones(3), left=False), ValueError, "left=False needs a matrix"),
        (lambda x: linalg.matrix_power(x, 2), ValueError, "expected square matrices"),
        (lambda x: linalg.matrix_power(flow.eye(2), 0.5), TypeError, "n must be an integer"),  # type: ignore[arg-type]
        (lambda x: linalg.lstsq(x, flow.ones(3)), ValueError, "does not fit"),
        (lambda x: linalg.lstsq(x, x.double()), TypeError, "expected one dtype"),
        (lambda x: linalg.solve_triangular(flow.eye(3), x, upper=True), ValueError, "does not fit"),
        (lambda x: linalg.solve_triangular(flow.eye(2), x.double(), upper=True), TypeError, "expected one dtype"),
        (lambda x: linalg.matrix_norm(x, 3), ValueError, "ord must be"),
        (lambda x: linalg.matrix_norm(x, dim=(0, -2)), ValueError, "names one dimension twice"),
        (lambda x: linalg.matrix_norm(x, dim=[0]), ValueError, "two dimensions"),
        (lambda x: linalg.norm(x, "fro", 0), ValueError, "is for matrices"),
        (lambda x: linalg.norm(flow.ones(1, 2, 3), 2), ValueError, "expected 1-d or 2-d"),
    ],
)
def test_bad_arguments(call: Callable[[flow.Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(2, 3))


def _complex(shape: tuple[int, ...], seed: int = 0) -> Array:
    return sample(shape, "complex128", seed)


def test_the_older_svd_of_complex_matrices(contract: KernelContract) -> None:
    array = _complex((2, 4, 3))
    u, s, v = flow.svd(flow.tensor(array))
    check(u @ (s.unsqueeze(-1) * v.mH), array, "complex128", tolerance=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 2), (2, 4)], ids=str)
def test_gradients_of_complex_matrices(shape: tuple[int, ...], contract: KernelContract) -> None:
    """The inputs are real and imaginary parts, since numerical gradients need real numbers."""
    parts = [_complex(shape).real.copy(), _complex(shape).imag.copy()]
    square = shape[-1] == shape[-2]
    check_gradients(lambda x, y: linalg.svdvals(flow.complex(x, y)), *parts)
    check_gradients(lambda x, y: linalg.svd(flow.complex(x, y)).S, *parts)
    check_gradients(lambda x, y: linalg.pinv(flow.complex(x, y)).abs(), *parts)
    if square:
        check_gradients(lambda x, y: linalg.slogdet(flow.complex(x, y)).logabsdet, *parts)
        check_gradients(lambda x, y: linalg.eigvalsh(_symmetric(flow.complex(x, y))), *parts)
        check_gradients(lambda x, y: linalg.eigh(_symmetric(flow.complex(x, y))).eigenvectors.abs(), *parts)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: linalg.slogdet(x).sign, "the sign of slogdet"),
        (lambda x: linalg.cholesky(_definite(x)), "cholesky"),
        (lambda x: linalg.qr(x).Q, "qr"),
        (lambda x: linalg.svd(x).U, "the vectors of svd"),
        (lambda x: linalg.svd(x).Vh, "the vectors of svd"),
    ],
)
def test_some_factors_of_complex_matrices_have_no_gradient(
    call: Callable[[flow.Tensor], flow.Tensor], name: str
) -> None:
    x = flow.tensor(_complex((3, 3)), requires_grad=True)
    with pytest.raises(RuntimeError, match=f"{name}: complex matrices have no gradient"):
        call(x).abs().sum().backward()
