"""Complex eigenvalues and eigenvectors of general square matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vmflow import dtypes, interpreter as _interpreter
from vmflow.dtypes import COMPLEX
from vmflow.instructions.blob import meta
from vmflow.ops.creation.creation import eye
from vmflow.ops.destination import out_by_copy, outs_by_copy
from vmflow.ops.elementwise.complex_parts import real
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr
from vmflow.transfers import beside

from .decompositions import Eigen, decomposition_cost, value_gaps
from .linear_algebra import matmul, solve, square_matrices

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    Gradients = Tensor | None

_RESULTS: Final = {
    dtypes.float32: dtypes.complex64,
    dtypes.float64: dtypes.complex128,
    dtypes.complex64: dtypes.complex64,
    dtypes.complex128: dtypes.complex128,
}


def _infer_eig(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    square_matrices("eig", source)
    if source.dtype not in _RESULTS:
        raise TypeError(f"eig is not defined for {source.dtype.name} tensors; convert with .float() first")
    to = _RESULTS[source.dtype]
    outputs = meta(source.shape[:-1], to, source.device), meta(source.shape, to, source.device)
    return Inferred(outputs, 10 * decomposition_cost(source))


_EIG = OpExpr("eig", _infer_eig, Form(1), "decompositions")


@_EIG.gradient(outputs=(0, 1))
def _eig_gradient(node: OpNode, of_values: Gradients, of_vectors: Gradients) -> tuple[Tensor]:
    """Compute the gradient of `eig` (C. Boeddeker and others, On the computation of complex-valued gradients, 2017).

    The gradient accounts for the normalization of eigenvectors to length 1.
    """
    values, vectors = node.output(0), node.output(1)
    transposed = vectors.mH
    identity = beside(eye(values.shape[-1], dtype=values.dtype, device=values.device), values)
    inner = identity * 0
    if of_vectors is not None:
        change = matmul(transposed, of_vectors)
        lengths = real((change * identity).sum(-2)).unsqueeze(-2)
        change = (change - matmul(transposed, vectors) * lengths) / value_gaps(values).conj()
        inner = change * (1 - identity)
    if of_values is not None:
        inner = inner + identity * of_values.unsqueeze(-2)
    result = solve(transposed, matmul(inner, transposed))
    return (result if node.meta(0).dtype.category == COMPLEX else real(result),)


@outs_by_copy()
def eig(A: Tensor, *, out: tuple[Tensor, ...] | None = None) -> Eigen:
    """The eigenvalues of square matrices, in no order, and the eigenvectors as columns of length 1; both complex.

    The gradients are defined where all eigenvalues differ.  The gradients of the eigenvectors are defined only for
    functions that ignore the eigenvectors' complex phases.

    Args:
        A: (..., n, n), float32, float64, complex64 or complex128.

    Returns:
        eigenvalues: (..., n).
        eigenvectors: (..., n, n).

    Raises:
        TypeError: if `A` is no tensor, or of another dtype.
        ValueError: if the matrices are not square.
        LinAlgError: for nan and inf, or if the iteration does not converge, when the result is read.

    Example:
        >>> flow.linalg.eig(flow.tensor([[0.0, -1.0], [1.0, 0.0]])).eigenvalues.imag.sort().values
        tensor([-1.,  1.])
    """
    return Eigen(*_interpreter.dispatch_several(_EIG, (A,)))


@out_by_copy()
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of square matrices, in no order: (..., n, n) gives (..., n), complex.

    Raises:
        TypeError, ValueError, LinAlgError: as `eig`.

    Example:
        >>> flow.linalg.eigvals(flow.tensor([[0.0, -1.0], [1.0, 0.0]])).imag.sort().values
        tensor([-1.,  1.])
    """
    return eig(A).eigenvalues
