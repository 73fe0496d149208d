"""Functions composed of views, joins and other ops: `dstack`, `block_diag`, `rot90` and others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations as _combinations, combinations_with_replacement as _combinations_with_replacement
from typing import TYPE_CHECKING, Any

from vmflow.arguments import whole_number
from vmflow.dtypes import int64
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors, listed_tensors
from vmflow.ops.copying import clone
from vmflow.ops.creation.creation import empty, tensor
from vmflow.ops.declaration import function, public
from vmflow.ops.destination import out_by_copy
from vmflow.ops.indexing.gathering import scatter_diagonal
from vmflow.ops.indexing.indexing import index_select
from vmflow.ops.table import normalize_dim
from vmflow.transfers import beside

from .joining import cat, flip, stack
from .view import meshgrid, ravel, reshape, split, tensor_split, transpose

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


# Minimum numbers of dimensions


def _at_least(name: str, tensors: tuple[Any, ...], to_shape: Any) -> Any:
    listed = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    check_tensors(name, *listed)
    results = tuple([reshape(tensor, to_shape(tuple(tensor.shape))) for tensor in listed])
    return results[0] if listed is tensors and len(results) == 1 else results


@function()
def atleast_1d(*tensors: Any) -> Any:
    """Give a tensor at least one dimension; for several tensors or a list, return a tuple.

    Raises:
        TypeError: if an argument is no tensor.

    Example:
        >>> flow.atleast_1d(flow.tensor(2))
        tensor([2])
    """
    return _at_least("atleast_1d", tensors, lambda shape: shape or (1,))


@function()
def atleast_2d(*tensors: Any) -> Any:
    """Give a tensor at least two dimensions (a vector becomes a row); for several tensors or a list, return a tuple.

    Raises:
        TypeError: as `atleast_1d`.

    Example:
        >>> flow.atleast_2d(flow.tensor([1, 2]))
        tensor([[1, 2]])
    """
    return _at_least("atleast_2d", tensors, lambda shape: (1,) * (2 - len(shape)) + shape)


@function()
def atleast_3d(*tensors: Any) -> Any:
    """Give a tensor at least three dimensions: (n,) as (1, n, 1), (m, n) as (m, n, 1).  Several or a list give a tuple.

    Raises:
        TypeError: as `atleast_1d`.

    Example:
        >>> flow.atleast_3d(flow.tensor([1, 2])).shape
        vmflow.Size([1, 2, 1])
    """
    return _at_least("atleast_3d", tensors, _three)


def _three(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) >= 3:
        return shape
    return (*shape, 1) if len(shape) == 2 else (1, *(shape or (1,)), 1)


# Joining


@function()
@out_by_copy()
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the third dimension; vectors and matrices first get three dimensions, as by `atleast_3d`.

    Raises:
        ValueError: if there is no tensor, or other sizes than the third differ.

    Example:
        >>> flow.dstack([flow.tensor([1, 2]), flow.tensor([3, 4])])
        tensor([[[1, 3],
                 [2, 4]]])
    """
    return cat(atleast_3d(listed_tensors("dstack", tensors)), 2)


@function()
@out_by_copy()
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors side by side; vectors become columns.

    Raises:
        ValueError: if there is no tensor, or numbers of rows differ.

    Example:
        >>> flow.column_stack([flow.tensor([1, 2]), flow.tensor([3, 4])])
        tensor([[1, 3],
                [2, 4]])
    """
    listed = listed_tensors("column_stack", tensors)
    return cat([reshape(tensor, (tensor.numel(), 1)) if tensor.ndim < 2 else tensor for tensor in listed], 1)


@function()
def block_diag(*tensors: Tensor) -> Tensor:
    """Make a matrix with the tensors as blocks along its diagonal and zeros elsewhere; a vector becomes a row.

    Raises:
        ValueError: if a tensor has more than two dimensions.

    Example:
        >>> flow.block_diag(flow.tensor([[1, 2]]), flow.tensor(3))
        tensor([[1, 2, 0],
                [0, 0, 3]])
    """
    check_tensors("block_diag", *tensors)
    if any([tensor.ndim > 2 for tensor in tensors]):
        raise ValueError(
            f"block_diag: expected at most 2 dimensions, got shapes {[list(tensor.shape) for tensor in tensors]}"
        )
    if not tensors:
        return empty(1, 0)
    blocks = [atleast_2d(tensor) for tensor in tensors]
    width = sum([block.shape[1] for block in blocks])
    rows: list[Tensor] = []
    before = 0
    for block in blocks:
        height, own = block.shape
        sides = block.new_zeros((height, before)), block.new_zeros((height, width - before - own))
        rows.append(cat([sides[0], block, sides[1]], 1))
        before += own
    return cat(rows, 0)


# Splitting


@public("unsafe_split_with_sizes")
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Cut a dimension into pieces of the given sizes.

    Raises:
        IndexError: if the dimension does not exist.
        ValueError: if the sizes do not add up to the dimension's size, or one is negative.

    Example:
        >>> flow.split_with_sizes(flow.arange(4), [1, 3])
        (tensor([0]), tensor([1, 2, 3]))
    """
    check_tensors("split_with_sizes", input)
    return split(input, tuple(split_sizes), dim)


def _split_along(
    name: str, input: Tensor, indices_or_sections: int | Sequence[int], dim: int, least: int
) -> tuple[Tensor, ...]:
    if input.ndim < least:
        raise ValueError(f"{name}: expected at least {least} dimensions, got shape {list(input.shape)}")
    if not isinstance(indices_or_sections, Iterable):
        size = input.shape[dim]
        if whole_number(name, "the number of pieces", indices_or_sections) <= 0 or size % indices_or_sections:
            raise ValueError(
                f"{name}: dimension {dim} of size {size} cannot be cut into {indices_or_sections} equal pieces"
            )
        return tensor_split(input, indices_or_sections, dim)
    return tensor_split(input, tuple(indices_or_sections), dim)


@public()
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Cut the second dimension, or a vector, before each of the given indices or into a number of equal pieces.

    Raises:
        ValueError: if the number of pieces is no positive divisor of the size, or for a 0-d tensor.

    Example:
        >>> flow.hsplit(flow.tensor([[1, 2], [3, 4]]), 2)
        (tensor([[1],
                [3]]), tensor([[2],
                [4]]))
    """
    check_tensors("hsplit", input)
    return _split_along("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1, 1)


@public()
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Cut the first dimension before each of the given indices or into a number of equal pieces.

    Raises:
        ValueError: if the number of pieces is no positive divisor of the size, or for less than two dimensions.

    Example:
        >>> flow.vsplit(flow.tensor([[1, 2], [3, 4]]), 2)
        (tensor([[1, 2]]), tensor([[3, 4]]))
    """
    check_tensors("vsplit", input)
    return _split_along("vsplit", input, indices_or_sections, 0, 2)


@public()
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Cut the third dimension before each of the given indices or into a number of equal pieces.

    Raises:
        ValueError: if the number of pieces is no positive divisor of the size, or for less than three dimensions.

    Example:
        >>> flow.dsplit(flow.tensor([[[1, 2]]]), 2)
        (tensor([[[1]]]), tensor([[[2]]]))
    """
    check_tensors("dsplit", input)
    return _split_along("dsplit", input, indices_or_sections, 2, 3)


# Rotations and diagonals


@public()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotate by `k` quarter turns, from the first towards the second of the two dimensions `dims`.

    Raises:
        ValueError: if `dims` are not two different dimensions.
        IndexError: if a dimension does not exist.

    Example:
        >>> flow.rot90(flow.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    check_tensors("rot90", input)
    if len(dims) != 2:
        raise ValueError(f"rot90: expected two dims, got {list(dims)}")
    first, second = [normalize_dim("rot90", dim, input.ndim) for dim in dims]
    if first == second or input.ndim < 2:
        raise ValueError(f"rot90: dims {list(dims)} of a {input.ndim}-d tensor are not two different dimensions")
    turns = whole_number("rot90", "k", k) % 4
    if turns == 0:
        return clone(input)
    if turns == 2:
        return flip(input, first, second)
    return transpose(flip(input, second if turns == 1 else first), first, second)


@public()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Make matrices of zeros with the last dimension of `input` on a diagonal.

    Args:
        input: of at least one dimension.
        offset: which diagonal; above the main one if positive.
        dim1, dim2: the result's dimensions that form the matrices.

    Raises:
        ValueError: if both dimensions are the same.
        IndexError: for a 0-d tensor, or if a dimension does not exist.

    Example:
        >>> flow.diag_embed(flow.tensor([1, 2]), offset=1)
        tensor([[0, 1, 0],
                [0, 0, 2],
                [0, 0, 0]])
    """
    check_tensors("diag_embed", input)
    if input.ndim == 0:
        raise IndexError("diag_embed: a 0-d tensor has no dimension to put on a diagonal")
    offset = whole_number("diag_embed", "offset", offset)
    rank = input.ndim + 1
    first, second = normalize_dim("diag_embed", dim1, rank), normalize_dim("diag_embed", dim2, rank)
    if first == second:
        raise ValueError(f"diag_embed: dim1 and dim2 are the same dimension ({dim1} and {dim2})")
    side = input.shape[-1] + abs(offset)
    rest = iter(input.shape[:-1])
    shape = tuple([side if axis in (first, second) else next(rest) for axis in range(rank)])
    return scatter_diagonal(input, meta(shape, input.dtype, input.device), (offset, first, second))


@public()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Make a matrix of zeros with all elements of `input` on a diagonal.

    Raises:
        TypeError: if the offset is no integer.

    Example:
        >>> flow.diagflat(flow.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    return diag_embed(ravel(input), offset)


# Sets


@function()
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """List all ways to take one element of each vector, as rows; a single vector is returned itself.

    Raises:
        ValueError: if a tensor is no vector, or there is none.

    Example:
        >>> flow.cartesian_prod(flow.tensor([1, 2]), flow.tensor([3, 4]))
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]])
    """
    if not tensors or any([tensor.ndim != 1 for tensor in tensors]):
        raise ValueError(f"cartesian_prod: expected vectors, got shapes {[list(tensor.shape) for tensor in tensors]}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([ravel(grid) for grid in meshgrid(*tensors, indexing="ij")], 1)


@function()
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """List all ways to take `r` elements of a vector, in the vector's order, as rows.

    Args:
        input: a vector.
        r: the number of elements in a row; for 0 the result is an empty vector.
        with_replacement: whether an element may be taken several times.

    Raises:
        ValueError: if `input` is no vector, or `r` is negative.

    Example:
        >>> flow.combinations(flow.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    check_tensors("combinations", input)
    if input.ndim != 1:
        raise ValueError(f"combinations: expected a vector, got shape {list(input.shape)}")
    r = whole_number("combinations", "r", r)
    if r < 0:
        raise ValueError(f"combinations: r cannot be negative, got {r}")
    if r == 0:
        return input.new_zeros((0,))
    chosen = (_combinations_with_replacement if with_replacement else _combinations)(range(input.shape[0]), r)
    places = beside(tensor([place for row in chosen for place in row], dtype=int64, device=input.device), input)
    return reshape(index_select(input, 0, places), (places.shape[0] // r, r))
