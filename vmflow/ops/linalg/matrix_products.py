"""Products composed of other ops: `kron`, `cross`, `inner`, `vdot`, `trace` and products of several matrices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vmflow.operands import check_tensors
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.arithmetic import conj_if_complex
from vmflow.ops.shape.joining import roll
from vmflow.ops.shape.view import broadcast_tensors, diagonal
from vmflow.ops.table import normalize_dim

from .linear_algebra import dot, matmul, tensordot

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@public()
@out_by_copy()
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Kronecker's product: each element of `input` is replaced by its product with the tensor `other`.

    The shape with fewer dimensions gets sizes of 1 in front.  Each size of the result is the product of both sizes.

    Raises:
        TypeError: if an operand is no tensor.

    Example:
        >>> flow.kron(flow.tensor([1, 10]), flow.tensor([1, 2]))
        tensor([ 1,  2, 10, 20])
    """
    check_tensors("kron", input, other)
    rank = max(input.ndim, other.ndim)
    first = [1] * (rank - input.ndim) + list(input.shape)
    second = [1] * (rank - other.ndim) + list(other.shape)
    left = input.reshape([factor for size in first for factor in (size, 1)])
    right = other.reshape([factor for size in second for factor in (1, size)])
    return (left * right).reshape([rows * columns for rows, columns in zip(first, second, strict=True)])


@public()
@out_by_copy()
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The cross product of vectors of three elements along `dim`.  The other dimensions broadcast.

    By default, `dim` is the first dimension of `input` with size 3.

    Raises:
        TypeError: if an operand is no tensor, or both are bool.
        ValueError: if the dimension has another size, the operands differ in their number of dimensions, or the shapes
            do not broadcast.
        IndexError: if there is no dimension `dim`.

    Example:
        >>> flow.cross(flow.tensor([1, 0, 0]), flow.tensor([0, 1, 0]))
        tensor([0, 0, 1])
    """
    check_tensors("cross", input, other)
    if dim is None:
        threes = [axis for axis, size in enumerate(input.shape) if size == 3]
        if not threes:
            raise ValueError(f"cross: no dimension of {list(input.shape)} has size 3")
        dim = threes[0] - input.ndim
    return _cross("cross", input, other, dim)


@out_by_copy("cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The cross product of vectors of three elements along `dim`.  The other dimensions broadcast.

    Raises:
        TypeError, ValueError, IndexError: as `vmflow.cross`.

    Example:
        >>> flow.linalg.cross(flow.tensor([1, 0, 0]), flow.tensor([0, 1, 0]))
        tensor([0, 0, 1])
    """
    check_tensors("linalg_cross", input, other)
    return _cross("linalg.cross", input, other, dim)


def _cross(name: str, input: Tensor, other: Tensor, dim: int) -> Tensor:
    if input.ndim != other.ndim:
        raise ValueError(
            f"{name}: expected the same number of dimensions, got shapes {list(input.shape)} and {list(other.shape)}"
        )
    axis = normalize_dim(name, dim, input.ndim)
    for tensor in (input, other):
        if not tensor.ndim or tensor.shape[axis] != 3:
            raise ValueError(f"{name}: expected size 3 in dimension {dim}, got shape {list(tensor.shape)}")
    input, other = broadcast_tensors(input, other)
    return roll(input, -1, axis) * roll(other, -2, axis) - roll(input, -2, axis) * roll(other, -1, axis)


@public()
@out_by_copy()
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sums of products along the last dimensions: (..., n) and (*, n) give (..., *).

    If an operand is 0-d, the result is the elementwise product.

    Raises:
        TypeError: if an operand is no tensor; or, unless one is 0-d, if the dtypes differ or are bool.
        ValueError: if the last dimensions differ in size.

    Example:
        >>> flow.inner(flow.tensor([1, 2]), flow.tensor([[1, 10], [100, 1000]]))
        tensor([  21, 2100])
    """
    check_tensors("inner", input, other)
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise ValueError(f"inner: the last dimensions of {list(input.shape)} and {list(other.shape)} differ in size")
    return tensordot(input, other, ([-1], [-1]))


@public()
@out_by_copy()
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inner product of two vectors, with `input` conjugated; 0-d.

    Raises:
        TypeError: as `vmflow.matmul`.
        ValueError: if an operand is no vector, or the sizes differ.

    Example:
        >>> flow.vdot(flow.tensor([1j, 2]), flow.tensor([1j, 3]))
        tensor(7.+0.j)
    """
    check_tensors("vdot", input, other)
    return dot(conj_if_complex(input), other)


@public()
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal, 0-d.

    Raises:
        TypeError: if `input` is no tensor.
        ValueError: unless `input` has two dimensions.

    Example:
        >>> flow.trace(flow.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    check_tensors("trace", input)
    if input.ndim != 2:
        raise ValueError(f"trace: expected a 2-d tensor, got one of shape {list(input.shape)}")
    return diagonal(input).sum()


@out_by_copy()
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of two or more matrices, in the order of multiplication that takes the fewest operations.

    The first tensor may be a vector, which counts as a row, and so may the last, which counts as a column; the result
    has no dimension for a vector.

    Raises:
        TypeError: as `vmflow.matmul`.
        ValueError: if there are fewer than two matrices, or the shapes do not fit.

    Example:
        >>> flow.linalg.multi_dot([flow.tensor([[1, 2]]), flow.tensor([[1, 0], [0, 1]]), flow.tensor([3, 4])])
        tensor([11])
    """
    chain = list(tensors)
    check_tensors("multi_dot", *chain)
    if len(chain) < 2:
        raise ValueError(f"multi_dot: expected at least two tensors, got {len(chain)}")
    for place, tensor in enumerate(chain):
        if tensor.ndim != 2 and not (tensor.ndim == 1 and place in (0, len(chain) - 1)):
            raise ValueError(f"multi_dot: tensor {place} has shape {list(tensor.shape)}, expected a matrix")
    from_vector, to_vector = chain[0].ndim == 1, chain[-1].ndim == 1
    if from_vector:
        chain[0] = chain[0].unsqueeze(0)
    if to_vector:
        chain[-1] = chain[-1].unsqueeze(1)
    for place, (left, right) in enumerate(pairwise(chain)):
        if left.shape[1] != right.shape[0]:
            raise ValueError(
                f"multi_dot: tensors {place} and {place + 1}, of shapes {list(left.shape)} and {list(right.shape)}, "
                "do not fit"
            )
    product = _multiplied(chain, _splits(chain), 0, len(chain) - 1)
    if from_vector:
        product = product.squeeze(0)
    return product.squeeze(-1) if to_vector else product


def _splits(chain: list[Tensor]) -> dict[tuple[int, int], int]:
    """Find the cheapest order of multiplication by dynamic programming.

    The result maps (i, j) to the last matrix of the left factor in the product of the matrices i to j."""
    sizes = [tensor.shape[0] for tensor in chain] + [chain[-1].shape[1]]
    costs = {(place, place): 0 for place in range(len(chain))}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, len(chain)):
        for start in range(len(chain) - length):
            end = start + length
            choices = [
                (costs[start, cut] + costs[cut + 1, end] + sizes[start] * sizes[cut + 1] * sizes[end + 1], cut)
                for cut in range(start, end)
            ]
            costs[start, end], splits[start, end] = min(choices)
    return splits


def _multiplied(chain: list[Tensor], splits: dict[tuple[int, int], int], start: int, end: int) -> Tensor:
    if start == end:
        return chain[start]
    cut = splits[start, end]
    return matmul(_multiplied(chain, splits, start, cut), _multiplied(chain, splits, cut + 1, end))


@function()
@out_by_copy()
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, (n, k), (k, m) and so on; see `vmflow.linalg.multi_dot`.

    Raises:
        TypeError: if an operand is no tensor, several are bool, or the dtypes differ.
        ValueError: if there is no matrix, a tensor has not two dimensions, or the shapes do not fit.

    Example:
        >>> flow.chain_matmul(flow.tensor([[1, 2]]), flow.tensor([[1, 0], [0, 1]]), flow.tensor([[3], [4]]))
        tensor([[11]])
    """
    check_tensors("chain_matmul", *matrices)
    for matrix in matrices:
        if matrix.ndim != 2:
            raise ValueError(f"chain_matmul: expected 2-d tensors, got one of shape {list(matrix.shape)}")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices)
