"""Decompositions of matrices, and determinants and systems of equations by decomposition.

The functions take batches of matrices.  The ops compute half precision in float32, since LAPACK has none.
For a matrix without the decomposition, reading the result raises `LinAlgError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op
from vmflow.ops.creation.creation import eye
from vmflow.ops.declaration import public
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.elementwise.selection import where
from vmflow.ops.nn.layer_operands import check_floating
from vmflow.ops.shape.joining import cat, tril, triu
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, broadcast_shapes, common_device
from vmflow.transfers import beside

from .linear_algebra import inv, matmul, square_matrices

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    Gradients = Tensor | None


class SignLogabsdet(NamedTuple):
    """The result of `slogdet`: the sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class QR(NamedTuple):
    """The result of `qr`: an orthogonal, or unitary, matrix Q and an upper triangular matrix R."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """The result of `svd`: left singular vectors, singular values (descending), conjugated right vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Eigen(NamedTuple):
    """The result of `eigh` and `eig`: eigenvalues, and the eigenvectors as columns of a matrix."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def real_matrices(name: str, matrix: TensorMeta) -> None:
    """Raise ValueError unless `matrix` has two dimensions or more; TypeError unless it is real and floating-point."""
    fractional_matrices(name, matrix)
    check_floating(name, matrix)


def fractional_matrices(name: str, matrix: TensorMeta) -> None:
    """Raise ValueError unless `matrix` has two dimensions or more; TypeError unless it is floating-point or complex."""
    if len(matrix.shape) < 2:
        raise ValueError(f"{name}: expected matrices, got shape {list(matrix.shape)}")
    if not matrix.is_complex:
        check_floating(name, matrix)


def adjoint(x: Tensor) -> Tensor:
    """Return the conjugate transpose of each matrix."""
    return conj_if_complex(x).mT


def _check_gradient(name: str, node: OpNode, wanted: bool = True) -> None:
    """Raise RuntimeError, naming `name`, if `wanted` is true and the matrices that `node` decomposed are complex."""
    if wanted and node.meta(0).is_complex:
        raise RuntimeError(
            f"{name}: complex matrices have no gradient; compute the loss with slogdet, svdvals, pinv, solve or eigh, "
            "which have one"
        )


def decomposition_cost(matrix: TensorMeta) -> float:
    """Estimate the nanoseconds of a decomposition, by the number of elements times the smaller size of a matrix."""
    return 3.0 * matrix.numel * min(matrix.shape[-2:], default=1) + 20_000


def factored(
    name: str,
    shapes: Callable[[tuple[int, ...], Attributes], tuple[tuple[int, ...], ...]],
    *,
    square: bool = False,
    options: Any = None,
    reals: tuple[int, ...] | None = (),
) -> OpExpr:
    """Declare the op of a decomposition, which takes one batch of matrices and has one or several results.

    Args:
        name: of the op.
        shapes: a function from the input's shape and the attributes to the results' shapes.
        square: whether the matrices must be square.
        options: the type of the attributes, if there are any.
        reals: positions of the results that are real even for complex matrices; None if the op
            takes only real matrices.
    """
    check = real_matrices if reals is None else fractional_matrices

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        (source,) = metas
        check(name, source)
        if square:
            square_matrices(name, source)
        outputs = tuple(
            [
                meta(shape, source.dtype.to_real() if place in (reals or ()) else source.dtype, source.device)
                for place, shape in enumerate(shapes(source.shape, attributes))
            ]
        )
        return Inferred(outputs if len(outputs) > 1 else outputs[0], decomposition_cost(source))

    return OpExpr(name, infer, Form(1, options), "decompositions")


# Determinants


_SLOGDET = factored(
    "slogdet",
    lambda shape, attributes: (shape[:-2], shape[:-2]),
    square=True,
    reals=(1,),
)


@_SLOGDET.gradient(inputs=(0,))
def _slogdet_gradient(node: OpNode, sign: Gradients, logabsdet: Gradients) -> tuple[Gradients]:
    _check_gradient("the sign of slogdet", node, sign is not None)
    if logabsdet is None:
        return (None,)
    return (logabsdet.unsqueeze(-1).unsqueeze(-1) * adjoint(inv(node.input(0))),)


@public()
@outs_by_copy()
def slogdet(A: Tensor, *, out: tuple[Tensor, ...] | None = None) -> SignLogabsdet:
    """The sign, and the logarithm of the absolute value, of each determinant; 0 and -inf for a singular matrix.

    Args:
        A: square matrices, (..., n, n).

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if the matrices are not square.
        RuntimeError: in the backward pass through the sign, for complex matrices.
        LinAlgError: for a singular matrix, when the gradient is read.

    Example:
        >>> flow.linalg.slogdet(flow.tensor([[0.0, 1.0], [1.0, 0.0]]))
        SignLogabsdet(sign=tensor(-1.), logabsdet=tensor(0.))
    """
    return SignLogabsdet(*_interpreter.dispatch_several(_SLOGDET, (A,)))


@public()
def logdet(A: Tensor) -> Tensor:
    """The logarithm of each determinant: (..., n, n) gives (...); nan for a negative determinant.

    Raises:
        TypeError: if `A` is no tensor, or integer, bool or complex.
        ValueError: if the matrices are not square.
        LinAlgError: for a singular matrix, when the gradient is read.

    Example:
        >>> flow.logdet(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor(2.0794)
    """
    sign, logarithm = slogdet(A)
    return where(sign < 0, float("nan"), logarithm)


# The Cholesky decomposition, and systems of equations with triangular matrices


_CHOLESKY = factored("cholesky", lambda shape, attributes: (shape,), square=True)


@_CHOLESKY.gradient(outputs=(0,))
def _cholesky_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    """Compute the gradient of `cholesky` by A, made symmetric.

    I. Murray, Differentiation of the Cholesky decomposition, 2016.
    """
    _check_gradient("cholesky", node)
    lower = node.output(0)
    inside = _halved_diagonal(tril(matmul(lower.mT, gradient)))
    left = solve_triangular(lower.mT, inside, upper=True)
    both = solve_triangular(lower.mT, left.mT, upper=True).mT
    return ((both + both.mT) * 0.5,)


def _halved_diagonal(matrix: Tensor) -> Tensor:
    return matrix - _diagonal_of(matrix) * 0.5


def _diagonal_of(matrix: Tensor) -> Tensor:
    """Replace the elements off the diagonal of each matrix by zeros."""
    return tril(triu(matrix))


@out_by_copy()
def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """The lower triangular L with ``L @ L.mH = A``, or the upper triangular ``L.mH``.

    Args:
        A: (..., n, n), symmetric or Hermitian, and positive definite.  Only the lower triangle is read, or the upper
            one if `upper`.
        upper: whether to return the upper triangular factor.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if the matrices are not square.
        RuntimeError: in the backward pass, for complex matrices.
        LinAlgError: for a matrix that is not positive definite, when the result is read.

    Example:
        >>> flow.linalg.cholesky(flow.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    check_tensors("cholesky", A)
    return (
        _interpreter.dispatch(_CHOLESKY, (A.mT,)).mT
        if flag("cholesky", "upper", upper)
        else _interpreter.dispatch(_CHOLESKY, (A,))
    )


@public()
@autocast_as_op
@out_by_copy()
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The X with ``A @ X = B``, from the factor of A that `cholesky` returns.

    Args:
        B: (..., n, k).
        L: (..., n, n).
        upper: whether `L` is the upper factor.

    Raises:
        TypeError: if an operand is no tensor, or integer, bool or complex, or the dtypes differ.
        ValueError: if the shapes do not fit.
        LinAlgError: for a factor with 0 on its diagonal, when the result is read.

    Example:
        >>> flow.cholesky_solve(flow.tensor([[4.0], [1.0]]), flow.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([[1.],
                [1.]])
    """
    check_tensors("cholesky_solve", L)
    lower = L.mT if upper else L
    return solve_triangular(lower.mT, solve_triangular(lower, B, upper=False), upper=True)


@public()
@autocast_as_op
@out_by_copy()
def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a matrix A, from the factor of A that `cholesky` returns.

    Args:
        L: (..., n, n).
        upper: whether `L` is the upper factor.

    Raises:
        TypeError, ValueError, LinAlgError: as `cholesky_solve`.

    Example:
        >>> flow.cholesky_inverse(flow.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([[0.2500, 0.0000],
                [0.0000, 1.0000]])
    """
    check_tensors("cholesky_inverse", L)
    real_matrices("cholesky_inverse", L._blob.meta)
    return cholesky_solve(beside(eye(L.shape[-1], dtype=L.dtype, device=L.device), L), L, upper)


def _infer_solve_triangular(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    matrix, right = metas
    device = common_device("solve_triangular", metas)
    real_matrices("solve_triangular", matrix)
    square_matrices("solve_triangular", matrix)
    if matrix.dtype is not right.dtype:
        raise TypeError(f"solve_triangular: expected one dtype, got {matrix.dtype.name} and {right.dtype.name}")
    if len(right.shape) < 2 or right.shape[-2] != matrix.shape[-1]:
        raise ValueError(
            f"solve_triangular: a right side of shape {list(right.shape)} does not fit {list(matrix.shape)}"
        )
    batch = broadcast_shapes("solve_triangular", matrix.shape[:-2], right.shape[:-2])
    output = meta((*batch, *right.shape[-2:]), matrix.dtype, device)
    return Inferred(output, output.numel * matrix.shape[-1] + decomposition_cost(matrix))


_SOLVE_TRIANGULAR = OpExpr("solve_triangular", _infer_solve_triangular, Form(2, tuple[bool, bool]), "decompositions")


@_SOLVE_TRIANGULAR.gradient(inputs=(0,), outputs=(0,))
def _solve_triangular_gradient(node: OpNode, gradient: Tensor) -> tuple[Gradients, Tensor]:
    upper, unitriangular = cast("tuple[bool, bool]", node.attributes)
    right = solve_triangular(node.input(0).mT, gradient, upper=not upper, unitriangular=unitriangular)
    if not node.needs[0]:
        return None, right
    of_matrix = -matmul(right, node.output(0).mT)
    first = 1 if unitriangular else 0
    return triu(of_matrix, first) if upper else tril(of_matrix, -first), right


@out_by_copy()
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Tensor | None = None
) -> Tensor:
    """The X with ``A @ X = B``, or with ``X @ A = B`` if not `left`, for a triangular A.

    Args:
        A: (..., n, n); only the triangle that `upper` selects is read.
        B: (..., n, k), or (..., k, n) if not `left`.
        upper: whether A is upper triangular, instead of lower.
        left: whether A stands left of X.
        unitriangular: whether to use ones as the diagonal, instead of that of A.

    Raises:
        TypeError: if an operand is no tensor, or integer, bool or complex, or the dtypes differ.
        ValueError: if the shapes do not fit.
        LinAlgError: for a zero on the diagonal unless `unitriangular`, when the result is read.

    Example:
        >>> flow.linalg.solve_triangular(flow.tensor([[2.0, 0.0], [2.0, 1.0]]), flow.ones(2, 1), upper=False)
        tensor([[0.5000],
                [0.0000]])
    """
    upper = flag("solve_triangular", "upper", upper)
    unitriangular = flag("solve_triangular", "unitriangular", unitriangular)
    check_tensors("solve_triangular", A, B)
    if not flag("solve_triangular", "left", left) and min(A.ndim, B.ndim) >= 2:
        return solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    return _interpreter.dispatch(_SOLVE_TRIANGULAR, (A, B), (upper, unitriangular))


# Orthogonal and triangular


def _qr_shapes(shape: tuple[int, ...], attributes: Attributes) -> tuple[tuple[int, ...], ...]:
    rows, columns = shape[-2:]
    inner = rows if attributes == ("complete",) else min(rows, columns)
    return (*shape[:-2], rows, inner), (*shape[:-2], inner, columns)


_QR = factored(
    "qr",
    _qr_shapes,
    options=tuple[Literal["reduced", "complete", "r"]],
)


@_QR.gradient(inputs=(0,), outputs=(0, 1))
def _qr_gradient(node: OpNode, of_q: Gradients, of_r: Gradients) -> tuple[Tensor]:
    _check_gradient("qr", node)
    q, r = node.output(0), node.output(1)
    rows, columns = node.meta(0).shape[-2:]
    if q.shape[-1] > min(rows, columns):
        raise RuntimeError("qr: mode='complete' has a gradient only for matrices with no more rows than columns")
    of_q = q.new_zeros(q.shape) if of_q is None else of_q
    of_r = r.new_zeros(r.shape) if of_r is None else of_r
    if rows >= columns:
        return (_tall_qr_gradient(q, r, of_q, of_r),)
    # The input's first columns, a square A1 = Q @ R1, determine Q; the columns after A1 are Q times the rest of R.
    rest = columns - rows
    right = node.input(0).narrow(-1, rows, rest)
    of_rest = of_r.narrow(-1, rows, rest)
    first = _tall_qr_gradient(q, r.narrow(-1, 0, rows), of_q + matmul(right, of_rest.mT), of_r.narrow(-1, 0, rows))
    return (cat([first, matmul(q, of_rest)], -1),)


def _tall_qr_gradient(q: Tensor, r: Tensor, of_q: Tensor, of_r: Tensor) -> Tensor:
    """Compute the gradient of `qr`, for no more columns than rows, from the gradients of Q and R.

    S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions (2010), section 3.
    """
    inner = matmul(r, of_r.mT) - matmul(of_q.mT, q)
    symmetric = tril(inner, -1) + tril(inner).mT
    return solve_triangular(r.mT, (of_q + matmul(q, symmetric)), upper=False, left=False)


@outs_by_copy()
def qr(A: Tensor, mode: str = "reduced", *, out: tuple[Tensor, ...] | None = None) -> QR:
    """An orthogonal, or unitary, Q and an upper triangular R with ``Q @ R = A``.

    Args:
        A: (..., m, n).
        mode: "reduced": Q is (m, k) and R is (k, n), where k is the smaller of m and n.  "complete": k is m.  "r": as
            "reduced", but Q is empty and there are no gradients.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: for another `mode`, or if `A` has fewer than two dimensions.
        RuntimeError: in the backward pass, if `A` is complex, or if `mode` is "complete" and m > n.
        LinAlgError: if R has a zero on its diagonal, when the gradient is read.

    Example:
        >>> a = flow.tensor([[3.0, 1.0], [4.0, 2.0]])
        >>> q, r = flow.linalg.qr(a)
        >>> flow.allclose(q @ r, a)
        True
    """
    check_tensors("qr", A)
    if mode == "r":
        reduced = qr(A.detach())
        return QR(reduced.R.new_zeros(0), reduced.R)
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode must be 'reduced', 'complete' or 'r', not {mode!r}")
    return QR(*_interpreter.dispatch_several(_QR, (A,), (mode,)))


@public("orgqr", own=False)
@autocast_as_op
@out_by_copy()
def householder_product(input: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first n columns of the product of the reflections ``I - tau[i] * v[i] @ v[i].T``.

    Method: R. Schreiber and C. Van Loan, A storage-efficient WY representation for products of Householder
    transformations, 1989.

    Args:
        input: (..., m, n), m at least n.  Vector v[i] is column i, with 1 in place of the diagonal element and 0 above.
        tau: (..., k), k at most n.

    Returns:
        A tensor of shape (..., m, n).

    Raises:
        TypeError: if an operand is no tensor, or integer, bool or complex, or the dtypes differ.
        ValueError: if the shapes do not fit.

    Example:
        >>> flow.orgqr(flow.tensor([[1.0], [1.0]]), flow.tensor([1.0]))
        tensor([[ 0.],
                [-1.]])
    """
    check_tensors("householder_product", input, tau)
    name = "householder_product"
    real_matrices(name, input._blob.meta)
    if tau.dtype is not input.dtype:
        raise TypeError(f"{name}: expected one dtype, got {input.dtype.name} and {tau.dtype.name}")
    rows, columns = input.shape[-2:]
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]) or tau.ndim < 1 or not tau.shape[-1] <= columns <= rows:
        raise ValueError(
            f"{name}: expected (..., m, n) with m >= n and tau (..., k) with k <= n, got {list(input.shape)} and "
            f"{list(tau.shape)}"
        )
    count = tau.shape[-1]
    vectors = tril(input.narrow(-1, 0, count), -1)
    vectors = vectors + beside(eye(rows, count, dtype=input.dtype, device=input.device), input)
    scaled = triu(matmul(vectors.mT, vectors), 1) * tau.unsqueeze(-1)
    small = beside(eye(count, dtype=input.dtype, device=input.device), input)
    # The product of the reflections is I - V @ middle @ V.T.  The inverse of `middle` has 1 / tau on its diagonal:
    # solve a system scaled by tau instead, since tau may be 0.
    middle = solve_triangular(scaled, small * tau.unsqueeze(-1), upper=True, unitriangular=True)
    first = vectors.narrow(-2, 0, columns)
    identity = beside(eye(rows, columns, dtype=input.dtype, device=input.device), input)
    return identity - matmul(vectors, matmul(middle, first.mT))


# Singular values


def _svd_shapes(shape: tuple[int, ...], attributes: Attributes) -> tuple[tuple[int, ...], ...]:
    (full,) = attributes
    rows, columns = shape[-2:]
    inner = min(rows, columns)
    return (
        (*shape[:-2], rows, rows if full else inner),
        (*shape[:-2], inner),
        (*shape[:-2], columns if full else inner, columns),
    )


_SVD = factored(
    "svd",
    _svd_shapes,
    options=tuple[bool],
    reals=(1,),
)
_SVDVALS = factored(
    "svdvals",
    lambda shape, attributes: ((*shape[:-2], min(shape[-2:])),),
    reals=(0,),
)


@_SVD.gradient(outputs=(0, 1, 2))
def _svd_gradient(node: OpNode, of_u: Gradients, of_s: Gradients, of_vh: Gradients) -> tuple[Tensor]:
    """Compute the gradient of `svd` (J. Townsend, Differentiating the singular value decomposition, 2016).

    Gradients of singular vectors beyond the first min(m, n) are ignored.
    """
    _check_gradient("the vectors of svd", node, of_u is not None or of_vh is not None)
    s = node.output(1)
    inner = s.shape[-1]
    u, vh = node.output(0).narrow(-1, 0, inner), node.output(2).narrow(-2, 0, inner)
    middle = u.new_zeros((*s.shape, inner))
    if of_s is not None:
        middle = middle + beside(eye(inner, dtype=s.dtype, device=s.device), s) * of_s.unsqueeze(-1)
    gaps = value_gaps(s * s)
    left = right = None
    if of_u is not None:
        of_u = of_u.narrow(-1, 0, inner)
        left = matmul(u.mT, of_u)
        middle = middle + (left - left.mT) / gaps * s.unsqueeze(-2)
    if of_vh is not None:
        of_vh = of_vh.narrow(-2, 0, inner)
        right = matmul(vh, of_vh.mT)
        middle = middle + (right - right.mT) / gaps * s.unsqueeze(-1)
    result = matmul(matmul(u, middle), vh)
    if of_u is not None and left is not None and u.shape[-2] > inner:
        result = result + matmul((of_u - matmul(u, left)) / s.unsqueeze(-2), vh)
    if of_vh is not None and right is not None and vh.shape[-1] > inner:
        result = result + matmul(u, (of_vh - matmul(right.mT, vh)) / s.unsqueeze(-1))
    return (result,)


def value_gaps(values: Tensor) -> Tensor:
    """Return divisors: matrices with ``values[j] - values[i]`` in row i and column j, and 1 on the diagonal."""
    difference = values.unsqueeze(-2) - values.unsqueeze(-1)
    return difference + beside(eye(values.shape[-1], dtype=values.dtype, device=values.device), values)


@_SVDVALS.gradient(inputs=(0,))
def _svdvals_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    u, _, vh = svd(node.input(0), False)
    return (matmul(u * gradient.unsqueeze(-2), vh),)


@outs_by_copy()
def svd(A: Tensor, full_matrices: bool = True, *, out: tuple[Tensor, ...] | None = None) -> SVD:
    """Orthogonal, or unitary, U and Vh, and non-negative S in descending order, with ``U @ diag(S) @ Vh = A``.

    The gradients of U and Vh are defined where all singular values differ; for the U of a tall A and the Vh of a wide A
    none may be 0 either.  The gradients of vectors beyond the first k are ignored.

    Args:
        A: (..., m, n).
        full_matrices: whether U is (m, m) and Vh (n, n), or (m, k) and (k, n), where k is the smaller of m and n.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if `A` has fewer than two dimensions.
        RuntimeError: in the backward pass through U or Vh, for complex matrices.
        LinAlgError: if the iteration does not converge, when the result is read.

    Example:
        >>> flow.linalg.svd(flow.tensor([[2.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 2.])
    """
    return SVD(*_interpreter.dispatch_several(_SVD, (A,), (bool(full_matrices),)))


@out_by_copy()
def svdvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The singular values in descending order: (..., m, n) gives (..., min(m, n)).

    The gradient is finite also where singular values are 0 or equal.

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if `A` has fewer than two dimensions.
        LinAlgError: if the iteration does not converge, when the result is read.

    Example:
        >>> flow.linalg.svdvals(flow.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([4., 2.])
    """
    return _interpreter.dispatch(_SVDVALS, (A,))


# `vmflow.cholesky`, `vmflow.qr` and `vmflow.svd`, the older forms, which PyTorch keeps beside those of `torch.linalg`


@public("cholesky", own=False)
@out_by_copy("cholesky")
def cholesky_of(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The lower or upper triangular factor of each matrix, (..., n, n); see `vmflow.linalg.cholesky`.

    Raises:
        TypeError, ValueError, RuntimeError, LinAlgError: as `vmflow.linalg.cholesky`.

    Example:
        >>> flow.cholesky(flow.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    return cholesky(input, upper=upper)


@public("qr", own=False)
@outs_by_copy("qr")
def qr_of(input: Tensor, some: bool = True, *, out: tuple[Tensor, ...] | None = None) -> QR:
    """The orthogonal and triangular factors of each matrix, (..., m, n); see `vmflow.linalg.qr`.

    Args:
        some: whether the mode is "reduced", instead of "complete".

    Raises:
        TypeError, ValueError, RuntimeError, LinAlgError: as `vmflow.linalg.qr`.

    Example:
        >>> a = flow.tensor([[3.0, 1.0], [4.0, 2.0]])
        >>> q, r = flow.qr(a)
        >>> flow.allclose(q @ r, a)
        True
    """
    return qr(input, "reduced" if some else "complete")


class SVDFactors(NamedTuple):
    """The result of `vmflow.svd`: left singular vectors, singular values (descending), right vectors as columns."""

    U: Tensor
    S: Tensor
    V: Tensor


@public("svd", own=False)
@outs_by_copy("svd")
def svd_of(
    input: Tensor, some: bool = True, compute_uv: bool = True, *, out: tuple[Tensor, ...] | None = None
) -> SVDFactors:
    """The matrices U and V, and the vector S, with ``U @ diag(S) @ V.mH = input``; see `vmflow.linalg.svd`.

    Args:
        input: (..., m, n).
        some: whether U and V have only as many columns as there are singular values, instead of m and n.
        compute_uv: whether to compute U and V; otherwise they are zeros, (..., m, m) and (..., n, n).

    Raises:
        TypeError, ValueError, RuntimeError, LinAlgError: as `vmflow.linalg.svd`.

    Example:
        >>> flow.svd(flow.tensor([[2.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 2.])
    """
    check_tensors("svd", input)
    if not compute_uv:
        values = svdvals(input)
        *batch, rows, columns = input.shape
        return SVDFactors(input.new_zeros((*batch, rows, rows)), values, input.new_zeros((*batch, columns, columns)))
    left, values, right = svd(input, not some)
    return SVDFactors(left, values, adjoint(right))


# Eigenvalues of symmetric matrices


_EIGH = factored(
    "eigh",
    lambda shape, attributes: (shape[:-1], shape),
    square=True,
    options=tuple[Literal["L", "U"]],
    reals=(0,),
)


@_EIGH.gradient(outputs=(0, 1))
def _eigh_gradient(node: OpNode, of_values: Gradients, of_vectors: Gradients) -> tuple[Tensor]:
    values, vectors = node.output(0), node.output(1)
    size = values.shape[-1]
    middle = vectors.new_zeros(vectors.shape)
    if of_values is not None:
        middle = middle + beside(eye(size, dtype=values.dtype, device=values.device), values) * of_values.unsqueeze(-1)
    if of_vectors is not None:
        projected = matmul(adjoint(vectors), of_vectors)
        middle = middle + (projected - adjoint(projected)) / value_gaps(values) * 0.5
    return (matmul(matmul(vectors, middle), adjoint(vectors)),)


@outs_by_copy()
def eigh(A: Tensor, UPLO: str = "L", *, out: tuple[Tensor, ...] | None = None) -> Eigen:
    """The eigenvalues, in ascending order, and the eigenvectors of symmetric or Hermitian matrices.

    The gradients of the eigenvectors are defined where all eigenvalues differ.

    Args:
        A: (..., n, n).
        UPLO: the triangle that is read, "L" or "U".

    Raises:
        TypeError: if `A` is no tensor, or integer or bool.
        ValueError: if the matrices are not square, or for another `UPLO`.
        LinAlgError: if the iteration does not converge, when the result is read.

    Example:
        >>> flow.linalg.eigh(flow.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    if UPLO not in ("L", "U"):
        raise ValueError(f"eigh: UPLO must be 'L' or 'U', not {UPLO!r}")
    return Eigen(*_interpreter.dispatch_several(_EIGH, (A,), (UPLO,)))


@out_by_copy()
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of symmetric or Hermitian matrices in ascending order: (..., n, n) gives (..., n).

    Raises:
        TypeError, ValueError, LinAlgError: as `eigh`.

    Example:
        >>> flow.linalg.eigvalsh(flow.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    return eigh(A, UPLO).eigenvalues
