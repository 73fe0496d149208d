"""Linear algebra of the standard against numpy: stacks of matrices, complex numbers, and all norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import vmflow as flow
from vmflow import array_api as xp

from .support import FLOATING, FLOATS, INTEGERS, NUMERIC, broadcasting, few, kinds, made, same, seeds, some, tensor

stacks = st.sampled_from([(), (2,), (2, 3), (0,), (1, 2)])
sizes = st.integers(1, 4)
PRECISE = {"float32": 2e-3, "complex64": 2e-3, "float64": 1e-8, "complex128": 1e-8}


def close(ours: flow.Tensor, theirs: Any) -> None:
    """Assert equal dtypes and shapes, and values within the precision of solvers."""
    expected = np.asarray(theirs)
    assert (tuple(ours.shape), ours.dtype.name) == (expected.shape, expected.dtype.name)
    limit = PRECISE.get(ours.dtype.name, 0)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=limit, atol=limit)


def _square(stack: tuple[int, ...], size: int, name: str, seed: int) -> Any:
    """Matrices that are far from singular."""
    return made((*stack, size, size), name, seed, low=-1, high=1) + np.eye(size, dtype=name) * 4


def _hermitian(stack: tuple[int, ...], size: int, name: str, seed: int) -> Any:
    array = _square(stack, size, name, seed)
    return array @ np.conj(np.swapaxes(array, -1, -2))


def _both(x: flow.Tensor) -> flow.Tensor:
    return xp.conj(xp.matrix_transpose(x))


# Products


@some
@given(broadcasting(), sizes, sizes, sizes, kinds(NUMERIC), seeds)
def test_matmul(both: list[tuple[int, ...]], m: int, k: int, n: int, names: tuple[str, ...], seed: int) -> None:
    one, other = made((*both[0], m, k), names[0], seed), made((*both[1], k, n), names[1], seed + 1)
    for namespace in (xp, xp.linalg):
        same(namespace.matmul(tensor(one), tensor(other)), np.matmul(one, other), tolerance=20)
    vector = made((k,), names[0], seed)
    same(xp.matmul(tensor(vector), tensor(other)), np.matmul(vector, other), tolerance=20)
    same(xp.matmul(tensor(one), tensor(vector)), np.matmul(one, vector), tolerance=20)
    same(xp.matmul(tensor(vector), tensor(vector)), np.asarray(np.matmul(vector, vector)), tolerance=20)


@some
@given(broadcasting(), sizes, kinds(NUMERIC), seeds)
def test_vecdot(both: list[tuple[int, ...]], size: int, names: tuple[str, ...], seed: int) -> None:
    one, other = (made((*shape, size), name, seed) for shape, name in zip(both, names, strict=True))
    vecdot: Any = np.vecdot
    same(xp.vecdot(tensor(one), tensor(other)), np.asarray(vecdot(one, other)), tolerance=20)
    if min(one.ndim, other.ndim) > 1:
        one, other = np.moveaxis(one, -1, -2), np.moveaxis(other, -1, -2)
        same(
            xp.linalg.vecdot(tensor(one), tensor(other), axis=-2),
            np.asarray(vecdot(one, other, axis=-2)),
            tolerance=20,
        )


@some
@given(kinds(NUMERIC), seeds, st.integers(0, 3))
def test_tensordot(names: tuple[str, ...], seed: int, count: int) -> None:
    one, other = made((2, 3, 4), names[0], seed), made((4, 3, 2), names[1], seed)
    turned = np.ascontiguousarray(other.transpose(2, 1, 0))
    second = np.ascontiguousarray(np.moveaxis(turned, range(3), range(-3, 0)))
    if count:
        second = np.ascontiguousarray(turned.transpose(*range(3 - count, 3), *range(3 - count)))
    same(xp.tensordot(tensor(one), tensor(second), axes=count), np.tensordot(one, second, count), tolerance=20)
    for axes in (((2, 1), (0, 1)), ((0, -1), (-1, 0)), ((), ())):
        found = xp.tensordot(tensor(one), tensor(other), axes=axes)
        same(found, np.tensordot(one, other, axes), tolerance=20)


@some
@given(broadcasting(), kinds(NUMERIC), seeds)
def test_cross(both: list[tuple[int, ...]], names: tuple[str, ...], seed: int) -> None:
    one, other = (made((*shape, 3), name, seed + n) for n, (shape, name) in enumerate(zip(both, names, strict=True)))
    same(xp.linalg.cross(tensor(one), tensor(other)), np.linalg.cross(one, other), tolerance=50)
    if one.ndim == other.ndim > 1:
        one, other = np.moveaxis(one, -1, -2), np.moveaxis(other, -1, -2)
        same(xp.linalg.cross(tensor(one), tensor(other), axis=-2), np.linalg.cross(one, other, axis=-2), tolerance=50)


@some
@given(kinds(NUMERIC), seeds, st.integers(0, 4), st.integers(0, 4))
def test_outer(names: tuple[str, ...], seed: int, m: int, n: int) -> None:
    one, other = made((m,), names[0], seed), made((n,), names[1], seed + 1)
    same(xp.linalg.outer(tensor(one), tensor(other)), np.linalg.outer(one, other))


@some
@given(stacks, sizes, sizes, st.sampled_from(NUMERIC), seeds, st.integers(-4, 4))
def test_diagonals(stack: tuple[int, ...], m: int, n: int, name: str, seed: int, offset: int) -> None:
    array = made((*stack, m, n), name, seed)
    if -m <= offset <= n:
        same(xp.linalg.diagonal(tensor(array), offset=offset), np.linalg.diagonal(array, offset=offset))
        same(
            xp.linalg.trace(tensor(array), offset=offset),
            np.asarray(np.linalg.trace(array, offset=offset)),
            tolerance=20,
        )
    found = xp.linalg.trace(tensor(array), dtype=xp.complex128)
    same(found, np.asarray(np.linalg.trace(array, dtype=np.complex128)), tolerance=1e6)
    same(xp.linalg.matrix_transpose(tensor(array)), np.linalg.matrix_transpose(array))


@pytest.mark.parametrize("name", INTEGERS)
def test_traces_of_integers_have_the_dtype_of_sums(name: str) -> None:
    x = xp.ones((3, 3), dtype=getattr(xp, name))
    assert xp.linalg.trace(x).dtype is xp.sum(x).dtype


# Systems of equations and decompositions


@some
@given(stacks, sizes, st.sampled_from(FLOATING), seeds, st.integers(-2, 3))
def test_inverses_and_determinants(stack: tuple[int, ...], size: int, name: str, seed: int, power: int) -> None:
    array = _square(stack, size, name, seed)
    x = tensor(array)
    close(xp.linalg.inv(x), np.linalg.inv(array))
    close(xp.linalg.det(x), np.linalg.det(array))
    close(xp.linalg.matrix_power(x, power) * 1e-2, np.linalg.matrix_power(array, power) * np.array(1e-2, name))
    found, expected = xp.linalg.slogdet(x), np.linalg.slogdet(array)
    assert found._fields == ("sign", "logabsdet")
    close(found.sign, expected.sign)
    close(found.logabsdet, expected.logabsdet)


@some
@given(broadcasting(), sizes, sizes, st.sampled_from(FLOATING), seeds)
def test_solve(both: list[tuple[int, ...]], size: int, columns: int, name: str, seed: int) -> None:
    """The right side is a vector only if it has one dimension, even where a batch of vectors would fit."""
    array, right = _square(both[0], size, name, seed), made((*both[1], size, columns), name, seed)
    close(xp.linalg.solve(tensor(array), tensor(right)), np.linalg.solve(array, right))
    vector = made((size,), name, seed)
    close(xp.linalg.solve(tensor(array), tensor(vector)), np.linalg.solve(array, vector))


def test_solve_treats_two_dimensions_as_a_matrix() -> None:
    array, right = _square((3,), 3, "float64", 1), made((3, 3), "float64", 2)
    close(xp.linalg.solve(tensor(array), tensor(right)), np.linalg.solve(array, right))
    with pytest.raises(ValueError, match="solve"):
        xp.linalg.solve(xp.ones((2, 3, 3)), xp.ones((2, 3)))


@some
@given(stacks, sizes, st.sampled_from(FLOATING), seeds, st.booleans())
def test_cholesky(stack: tuple[int, ...], size: int, name: str, seed: int, upper: bool) -> None:
    array = _hermitian(stack, size, name, seed)
    close(xp.linalg.cholesky(tensor(array), upper=upper), np.linalg.cholesky(array, upper=upper))


@some
@given(stacks, sizes, st.sampled_from(FLOATING), seeds)
def test_eigenvalues(stack: tuple[int, ...], size: int, name: str, seed: int) -> None:
    array = _hermitian(stack, size, name, seed)
    found = xp.linalg.eigh(tensor(array))
    assert found._fields == ("eigenvalues", "eigenvectors")
    close(found.eigenvalues, np.linalg.eigvalsh(array))
    close(xp.linalg.eigvalsh(tensor(array)), np.linalg.eigvalsh(array))
    assert found.eigenvectors.dtype.name == name
    values = xp.astype(found.eigenvalues, found.eigenvectors.dtype)
    close(found.eigenvectors * xp.expand_dims(values, axis=-2) @ _both(found.eigenvectors), array)


@some
@given(stacks, sizes, sizes, st.sampled_from(FLOATING), seeds, st.sampled_from(["reduced", "complete"]))
def test_qr(stack: tuple[int, ...], m: int, n: int, name: str, seed: int, mode: Any) -> None:
    array = made((*stack, m, n), name, seed)
    found, expected = xp.linalg.qr(tensor(array), mode=mode), np.linalg.qr(array, mode)
    assert found._fields == ("Q", "R")
    assert [(tuple(value.shape), value.dtype.name) for value in found] == [
        (value.shape, value.dtype.name) for value in expected
    ]
    close(found.Q @ found.R, array)
    inner = found.Q.shape[-1]
    close(_both(found.Q) @ found.Q, np.broadcast_to(np.eye(inner, dtype=name), (*stack, inner, inner)))
    close(xp.triu(found.R), found.R.numpy())


@some
@given(stacks, sizes, sizes, st.sampled_from(FLOATING), seeds, st.booleans())
def test_svd(stack: tuple[int, ...], m: int, n: int, name: str, seed: int, full: bool) -> None:
    array = made((*stack, m, n), name, seed)
    found, expected = xp.linalg.svd(tensor(array), full_matrices=full), np.linalg.svd(array, full)
    assert found._fields == ("U", "S", "Vh")
    assert [(tuple(value.shape), value.dtype.name) for value in found] == [
        (value.shape, value.dtype.name) for value in expected
    ]
    close(found.S, expected.S)
    close(xp.linalg.svdvals(tensor(array)), expected.S)
    inner = min(m, n)
    scaled = found.U[..., :inner] * xp.expand_dims(xp.astype(found.S, found.U.dtype), axis=-2)
    close(scaled @ found.Vh[..., :inner, :], array)


@some
@given(stacks, sizes, sizes, st.sampled_from(FLOATING), seeds, st.sampled_from([None, 1e-3, 0.3]))
def test_ranks_and_pseudo_inverses(
    stack: tuple[int, ...], m: int, n: int, name: str, seed: int, rtol: float | None
) -> None:
    array = made((*stack, m, 2), name, seed) @ made((*stack, 2, n), name, seed + 1)
    x = tensor(array)
    close(xp.linalg.matrix_rank(x, rtol=rtol), np.asarray(np.linalg.matrix_rank(array, rtol=rtol)))
    wanted = np.linalg.pinv(array) if rtol is None else np.linalg.pinv(array, rtol=rtol)
    close(xp.linalg.pinv(x, rtol=rtol or 1e-4), np.linalg.pinv(array, rtol=1e-4) if rtol is None else wanted)
    each = np.full(stack, rtol or 1e-4, array.real.dtype)
    close(xp.linalg.matrix_rank(x, rtol=tensor(each)), np.asarray(np.linalg.matrix_rank(array, rtol=each)))
    close(xp.linalg.pinv(x, rtol=tensor(each)), np.linalg.pinv(array, rtol=each))


# Norms


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf, None])
def test_norms_of_matrices(order: Any) -> None:
    @few
    @given(stacks, sizes, sizes, st.sampled_from(FLOATING), seeds, st.booleans())
    def test(stack: tuple[int, ...], m: int, n: int, name: str, seed: int, keepdims: bool) -> None:
        array = made((*stack, m, n), name, seed)
        found = xp.linalg.matrix_norm(tensor(array), keepdims=keepdims, ord=order)
        close(found, np.asarray(np.linalg.matrix_norm(array, keepdims=keepdims, ord=order)))

    test()


@pytest.mark.parametrize("order", [1, -1, np.inf, -np.inf])
def test_norms_of_integer_matrices_are_not_negative(order: float) -> None:
    assert xp.linalg.matrix_norm(tensor(np.array([[-128]], np.int8)), ord=order).item() == 128
    assert xp.linalg.matrix_norm(tensor(np.array([[2**63]], np.uint64)), ord=order).item() == 2**63


@pytest.mark.parametrize("order", [0, 1, 2, 3, -1, -2, 0.5, np.inf, -np.inf])
def test_norms_of_vectors(order: Any) -> None:
    @few
    @given(
        st.sampled_from([(3,), (2, 3), (2, 1, 3)]),
        st.sampled_from([None, 0, -1, (), (0,), (-1, 0)]),
        st.sampled_from(FLOATING),
        seeds,
        st.booleans(),
    )
    def test(shape: tuple[int, ...], axes: Any, name: str, seed: int, keepdims: bool) -> None:
        array = made(shape, name, seed)
        if axes == (-1, 0) and len(shape) < 2:
            axes = 0
        found = xp.linalg.vector_norm(tensor(array), axis=axes, keepdims=keepdims, ord=order)
        close(found, np.asarray(np.linalg.vector_norm(array, axis=axes, keepdims=keepdims, ord=order)))

    test()


def test_gradients_with_a_tolerance_for_each_matrix() -> None:
    array = made((2, 3, 2), "float64", 1)
    x = tensor(array).requires_grad_()
    xp.sum(xp.linalg.pinv(x, rtol=tensor(np.array([1e-9, 1e-9])))).backward()
    found, x.grad = x.grad, None
    xp.sum(xp.linalg.pinv(x, rtol=1e-9)).backward()
    assert found is not None
    assert x.grad is not None
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-8)


@pytest.mark.parametrize("name", FLOATS)
def test_empty_matrices(name: str) -> None:
    x = xp.zeros((2, 0, 0), dtype=getattr(xp, name))
    assert xp.linalg.det(x).tolist() == [1.0, 1.0]
    assert xp.linalg.inv(x).shape == (2, 0, 0)
    assert xp.matmul(xp.zeros((2, 0)), xp.zeros((0, 3))).tolist() == [[0.0] * 3] * 2
    for order in ("fro", "nuc", 1, 2, np.inf):
        assert xp.linalg.matrix_norm(x, ord=order).tolist() == [0.0, 0.0]
