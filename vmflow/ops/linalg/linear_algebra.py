"""Matrix products, and systems of linear equations."""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import is_integer
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy, written
from vmflow.ops.elementwise.arithmetic import conj_if_complex, scaled
from vmflow.ops.in_place import copied_in_place
from vmflow.ops.inquiry import result_type
from vmflow.ops.table import (
    Attributes,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    broadcast_shapes,
    common_device,
    normalize_dim,
)

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Floating-point operations per nanosecond and core in a large matrix product: a rough value, for estimates of cost.
_PER_NANOSECOND = 20.0


def _infer_matmul(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    first, second = metas
    device = common_device("matmul", metas)
    if first.dtype is not second.dtype:
        raise TypeError(
            f"matmul: expected one dtype, got {first.dtype.name} and {second.dtype.name}; cast one with .to()"
        )
    if first.dtype is dtypes.bool_:
        raise TypeError("matmul is not defined for bool tensors; convert with .to()")
    if not first.shape or not second.shape:
        raise ValueError("matmul: 0-d tensors cannot be multiplied as matrices; use *")
    rows = first.shape[-2:-1]
    columns = second.shape[-1:] if len(second.shape) > 1 else ()
    inner = second.shape[-2] if len(second.shape) > 1 else second.shape[0]
    if first.shape[-1] != inner:
        raise ValueError(
            f"matmul: shapes {list(first.shape)} and {list(second.shape)} do not fit: the last dimension of the first "
            f"({first.shape[-1]}) must equal the {'second-last' if len(second.shape) > 1 else 'only'} dimension of the "
            f"second ({inner})"
        )
    batch = broadcast_shapes("matmul", tuple(first.shape[:-2]), tuple(second.shape[:-2]))
    output = meta(batch + tuple(rows) + tuple(columns), first.dtype, device)
    sizes = prod(rows), inner, prod(columns), prod(batch)
    return Inferred(output, 2.0 * prod(sizes) / _PER_NANOSECOND + 500)


_MATMUL = OpExpr("matmul", _infer_matmul, Form(2), "linear_algebra")


@_MATMUL.gradient(inputs=(0, 1), readers={0: 1, 1: 0})
def _matmul_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    needs_first, needs_second = node.needs
    first = second = None
    vector_first = len(node.meta(0).shape) == 1
    vector_second = len(node.meta(1).shape) == 1
    if vector_first:
        gradient = gradient.unsqueeze(-1 if vector_second else -2)
    if vector_second:
        gradient = gradient.unsqueeze(-1)
    if needs_first:
        right = conj_if_complex(node.input(1))
        right = right.unsqueeze(-1) if vector_second else right
        first = matmul(gradient, right.mT)
        first = first.squeeze(-2) if vector_first else first
    if needs_second:
        left = conj_if_complex(node.input(0))
        left = left.unsqueeze(0) if vector_first else left
        if not vector_second and left.ndim > 2 and len(node.meta(1).shape) == 2:
            # One product of the batch, flattened into rows, instead of one product per matrix of the batch and a sum.
            rows = prod(left.shape[:-1])
            left = left.reshape(rows, left.shape[-1])
            gradient = gradient.reshape(rows, gradient.shape[-1])
        second = matmul(left.mT, gradient)
        second = second.squeeze(-1) if vector_second else second
    return first, second


@public("__matmul__", reflected="__rmatmul__")
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product: (..., n, k) and (..., k, m) give (..., n, m).

    The dimensions in front broadcast.  A vector `input` counts as a row, a vector `other` as a column, and the result
    has no dimension for it: (k,) and (k,) give ().

    Raises:
        TypeError: if an operand is no tensor, or bool, or the dtypes differ.
        ValueError: if the shapes do not fit, or an operand is 0-d.

    Example:
        >>> flow.matmul(flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]))
        tensor([21, 43])
    """
    if out is not None:
        return written(_MATMUL, out, (input, other))
    return _interpreter.dispatch(_MATMUL, (input, other))


@public()
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices: (n, k) and (k, m) give (n, m).

    Raises:
        TypeError: as `matmul`.
        ValueError: if an operand is no matrix, or the sizes do not fit.

    Example:
        >>> flow.mm(flow.tensor([[1, 2], [3, 4]]), flow.tensor([[1], [10]]))
        tensor([[21],
                [43]])
    """
    check_tensors("mm", input, mat2)
    _ranks("mm", 2, input, mat2)
    return matmul(input, mat2, out=out)


@public()
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products of two batches of matrices: (b, n, k) and (b, k, m) give (b, n, m).

    Raises:
        TypeError: as `matmul`.
        ValueError: if an operand has not three dimensions, or the sizes do not fit.

    Example:
        >>> flow.bmm(flow.tensor([[[1, 2]]]), flow.tensor([[[1], [10]]]))
        tensor([[[21]]])
    """
    _ranks("bmm", 3, input, mat2)
    if input.shape[0] != mat2.shape[0]:
        raise ValueError(f"bmm: batches of {input.shape[0]} and {mat2.shape[0]} matrices do not fit")
    return matmul(input, mat2, out=out)


@public()
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of a matrix and a vector: (n, k) and (k,) give (n,).

    Raises:
        TypeError: as `matmul`.
        ValueError: if `input` is no matrix, `vec` is no vector, or the sizes do not fit.

    Example:
        >>> flow.mv(flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]))
        tensor([21, 43])
    """
    check_tensors("mv", input, vec)
    _ranks("mv", 2, input)
    _ranks("mv", 1, vec)
    return matmul(input, vec, out=out)


@public()
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors of the same size, 0-d.

    Raises:
        TypeError: as `matmul`.
        ValueError: if an operand is no vector, or the sizes differ.

    Example:
        >>> flow.dot(flow.tensor([1, 2]), flow.tensor([3, 4]))
        tensor(11)
    """
    check_tensors("dot", input, tensor)
    _ranks("dot", 1, input, tensor)
    return matmul(input, tensor, out=out)


@public("ger")
@out_by_copy()
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The products of each element of a vector with each element of another vector: (n,) and (m,) give (n, m).

    Raises:
        TypeError: if an operand is no tensor.
        ValueError: if an operand is no vector.

    Example:
        >>> flow.outer(flow.tensor([1, 2]), flow.tensor([3, 4, 5]))
        tensor([[ 3,  4,  5],
                [ 6,  8, 10]])
    """
    check_tensors("outer", input, vec2)
    _ranks("outer", 1, input, vec2)
    return input.unsqueeze(1) * vec2


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """``beta * input + alpha * mm(mat1, mat2)``: (n, k) and (k, m) give (n, m).

    With beta 0, nan and inf in `input` have no effect.

    Raises:
        TypeError: if an operand is no tensor, the matrices are bool or of two dtypes, or `beta` or `alpha` does not fit
            the dtype.
        ValueError: if `input` does not broadcast to the shape of the product, or the operands do not fit.

    Example:
        >>> flow.addmm(flow.tensor([1, 2]), flow.tensor([[1, 2], [3, 4]]), flow.tensor([[1, 0], [0, 1]]), alpha=10)
        tensor([[11, 22],
                [31, 42]])
    """
    return _added("addmm", input, mm(mat1, mat2), beta, alpha)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2)``, as `addmm`; the shapes (b, n, k) and (b, k, m) give (b, n, m).

    Raises:
        TypeError, ValueError: as `addmm`.

    Example:
        >>> flow.baddbmm(flow.tensor([5]), flow.tensor([[[1, 2]]]), flow.tensor([[[3], [4]]]))
        tensor([[[16]]])
    """
    return _added("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """``beta * input + alpha * mv(mat, vec)``, as `addmm`; the shapes (n, k) and (k,) give (n,).

    Raises:
        TypeError, ValueError: as `addmm`.

    Example:
        >>> flow.addmv(flow.tensor([5, 5]), flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]))
        tensor([26, 48])
    """
    return _added("addmv", input, mv(mat, vec), beta, alpha)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``, as `addmm`; the shapes (n,) and (m,) give (n, m).

    Raises:
        TypeError: if an operand is no tensor, or `beta` or `alpha` does not fit the dtype.
        ValueError: if `input` does not broadcast to the shape of the product, or `vec1` or `vec2` is no vector.

    Example:
        >>> flow.addr(flow.tensor([100, 200]), flow.tensor([1, 2]), flow.tensor([3, 4]))
        tensor([[103, 204],
                [106, 208]])
    """
    return _added("addr", input, outer(vec1, vec2), beta, alpha)


@public()
@copied_in_place()
@autocast_as_op
@out_by_copy()
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2).sum(0)``, as `addmm`; shapes (b, n, k) and (b, k, m) give (n, m).

    Raises:
        TypeError, ValueError: as `addmm`.

    Example:
        >>> flow.addbmm(flow.tensor([5]), flow.tensor([[[1]], [[2]]]), flow.tensor([[[3]], [[4]]]))
        tensor([[16]])
    """
    _ranks("addbmm", 3, batch1, batch2)
    if batch1.shape[0] != batch2.shape[0]:
        raise ValueError(f"addbmm: batches of {batch1.shape[0]} and {batch2.shape[0]} matrices do not fit")
    # One matrix product, whose inner dimension is that of the matrices times the batch, sums over the batch too.
    count, rows, inner = batch1.shape
    left = batch1.permute(1, 0, 2).reshape(rows, count * inner)
    return _added("addbmm", input, mm(left, batch2.reshape(count * batch2.shape[1], batch2.shape[2])), beta, alpha)


def _added(name: str, input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    check_tensors(name, input, product)
    if broadcast_shapes(name, input.shape, product.shape) != product.shape:
        raise ValueError(
            f"{name}: an input of shape {list(input.shape)} does not broadcast to the product's {list(product.shape)}"
        )
    dtype = result_type(input, product)
    if alpha != 1:
        product = scaled(name, "alpha", product, alpha, dtype)
    if beta == 0:
        return product.to(dtype)
    return (input if beta == 1 else scaled(name, "beta", input, beta, dtype)) + product


@function()
@out_by_copy()
def tensordot(
    a: Tensor, b: Tensor, dims: int | tuple[list[int], list[int]] = 2, *, out: Tensor | None = None
) -> Tensor:
    """The products of elements, summed over the dimensions of `a` that are paired with dimensions of `b`.

    The result has the unpaired dimensions of `a`, then the unpaired ones of `b`.

    Args:
        a, b: of one dtype.
        dims: how many of the last dimensions of `a` to pair with the first of `b`; or two lists, the dimensions of `a`
            and their partners in `b`.

    Raises:
        TypeError: if an operand is no tensor, or bool, or the dtypes differ; for other types of `dims`.
        ValueError: if `dims` is negative, a tensor has fewer than `dims` dimensions, the lists differ in length, a
            dimension is listed twice, or paired dimensions differ in size.
        IndexError: if a listed dimension does not exist.

    Example:
        >>> flow.tensordot(flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]), 1)
        tensor([21, 43])
    """
    check_tensors("tensordot", a, b)
    if is_integer(dims):
        count = operator.index(cast("int", dims))
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ValueError(
                f"tensordot: cannot pair {count} dimensions of tensors with {a.ndim} and {b.ndim} dimensions"
            )
        dims = list(range(a.ndim - count, a.ndim)), list(range(count))
    elif not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise TypeError(f"tensordot: dims must be an integer or two lists of dimensions, not {dims!r}")
    of_a = [normalize_dim("tensordot", dim, a.ndim) for dim in dims[0]]
    of_b = [normalize_dim("tensordot", dim, b.ndim) for dim in dims[1]]
    paired = [a.shape[dim] for dim in of_a]
    if paired != [b.shape[dim] for dim in of_b] or len(set(of_a)) != len(of_a) or len(set(of_b)) != len(of_b):
        raise ValueError(
            f"tensordot: dimensions {of_a} of {list(a.shape)} and {of_b} of {list(b.shape)} do not pair one by one"
        )
    rest_a = [dim for dim in range(a.ndim) if dim not in of_a]
    rest_b = [dim for dim in range(b.ndim) if dim not in of_b]
    rows, columns = [a.shape[dim] for dim in rest_a], [b.shape[dim] for dim in rest_b]
    left = a.permute([*rest_a, *of_a]).reshape(prod(rows), prod(paired))
    right = b.permute([*of_b, *rest_b]).reshape(prod(paired), prod(columns))
    return matmul(left, right).reshape([*rows, *columns])


# Systems of equations


def square_matrices(name: str, matrix: TensorMeta) -> None:
    """Raise ValueError unless `matrix` holds square matrices; TypeError unless it is floating-point or complex."""
    if len(matrix.shape) < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name}: expected square matrices, got shape {list(matrix.shape)}")
    if matrix.dtype.category < dtypes.FLOATING:
        raise TypeError(f"{name} is not defined for {matrix.dtype.name} tensors; convert with .float() first")


def _infer_inv(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    square_matrices("inv", source)
    return Inferred(source, source.numel * (source.shape or (1,))[-1] + 20_000)


_INV = OpExpr("inv", _infer_inv, Form(1), "linear_algebra")


@_INV.gradient(outputs=(0,))
def _inv_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    transposed = conj_if_complex(node.output(0)).mT
    return (-matmul(matmul(transposed, gradient), transposed),)


@public("inverse", own=False)
@out_by_copy()
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of each square matrix, (..., n, n).

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if the matrices are not square.
        LinAlgError: for a singular matrix, when the result is read.

    Example:
        >>> flow.inverse(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    return _interpreter.dispatch(_INV, (A,))


def _infer_solve(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    matrix, right = metas
    device = common_device("solve", metas)
    square_matrices("solve", matrix)
    if matrix.dtype is not right.dtype:
        raise TypeError(f"solve: expected one dtype, got {matrix.dtype.name} and {right.dtype.name}")
    if len(right.shape) < 2 or right.shape[-2] != matrix.shape[-1]:
        raise ValueError(f"solve: a right side of shape {list(right.shape)} does not fit {list(matrix.shape)}")
    batch = broadcast_shapes("solve", matrix.shape[:-2], right.shape[:-2])
    output = meta((*batch, *right.shape[-2:]), matrix.dtype, device)
    return Inferred(output, output.numel * matrix.shape[-1] + 20_000)


_SOLVE = OpExpr("solve", _infer_solve, Form(2), "linear_algebra")


@_SOLVE.gradient(inputs=(0,), outputs=(0,))
def _solve_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
    transposed = conj_if_complex(node.input(0)).mT
    right = _interpreter.dispatch(_SOLVE, (transposed, gradient))
    return -matmul(right, conj_if_complex(node.output(0)).mT) if node.needs[0] else None, right


def are_vectors(A: Tensor, B: Tensor) -> bool:
    """Return whether the right side B of ``A @ X = B`` is a vector, or a batch with one vector for each matrix of A."""
    return B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))


@out_by_copy()
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """The X with ``A @ X = B``, or with ``X @ A = B`` if not `left`.

    Args:
        A: square matrices, (..., n, n).
        B: matrices (..., n, k), or (..., k, n) if not `left`; or vectors: (n,), or the shape of A without its last
            dimension.
        left: whether A stands left of X.

    Raises:
        TypeError: if an operand is no tensor, or integer or bool, or the dtypes differ.
        ValueError: if the shapes do not fit, or if not `left` for vectors.
        LinAlgError: for a singular matrix, when the result is read.

    Example:
        >>> flow.linalg.solve(flow.tensor([[2.0, 0.0], [0.0, 4.0]]), flow.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
    """
    check_tensors("solve", A, B)
    if are_vectors(A, B):
        if not left:
            raise ValueError(
                f"solve: left=False needs a matrix as the right side, got vectors of shape {list(B.shape)}"
            )
        return _interpreter.dispatch(_SOLVE, (A, B.unsqueeze(-1))).squeeze(-1)
    if not left and min(A.ndim, B.ndim) >= 2:
        return _interpreter.dispatch(_SOLVE, (A.mT, B.mT)).mT
    return _interpreter.dispatch(_SOLVE, (A, B))


def _infer_det(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    square_matrices("det", source)
    output = meta(source.shape[:-2], source.dtype, source.device)
    return Inferred(output, source.numel * source.shape[-1] + 20_000)


_DET = OpExpr("det", _infer_det, Form(1), "linear_algebra")


@_DET.gradient(inputs=(0,), outputs=(0,))
def _det_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    scaled = gradient * conj_if_complex(node.output(0))
    return (scaled.unsqueeze(-1).unsqueeze(-1) * conj_if_complex(inv(node.input(0))).mT,)


@public()
@out_by_copy()
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The determinant of each square matrix: (..., n, n) gives (...).

    The gradient is defined for invertible matrices.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if the matrices are not square.

    Example:
        >>> flow.det(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(8.)
    """
    return _interpreter.dispatch(_DET, (A,))


def _ranks(name: str, rank: int, *tensors: Any) -> None:
    check_tensors(name, *tensors)
    for tensor in tensors:
        if tensor.ndim != rank:
            raise ValueError(f"{name}: expected {rank}-d tensors, got one of shape {list(tensor.shape)}")
