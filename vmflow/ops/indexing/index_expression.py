"""Index expressions ``x[...]``: check their items, and apply integers, slices, None and ``...`` as views.

`parted` returns the index tensors and masks, for the ops that read or write by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.instructions.blob import Array, meta
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import tensor
from vmflow.ops.declaration import public
from vmflow.ops.destination import delivered
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.shape.view import select, sliced, unsqueeze
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size
from vmflow.ops.value_shapes import from_values
from vmflow.transfers import beside

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def parted(input: Tensor, index: tuple[Any, ...]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """Apply the integers, slices, None and ``...`` of an index expression to `input` as views.

    Returns the view, or `input` itself if they change nothing; and each index tensor or mask with the dimension of the
    view at which it begins.  A 0-d mask adds a dimension to the view."""
    consumed = sum([_consumes(item) for item in index])
    if consumed > input.ndim:
        raise IndexError(f"too many indices: the tensor has {input.ndim} dimensions and {consumed} were indexed")
    if sum([item is Ellipsis for item in index]) > 1:
        raise IndexError("an index can contain '...' only once")
    tensors: list[tuple[int, Tensor]] = []
    dim = 0
    for position, item in enumerate(index):
        if item is Ellipsis:
            dim = input.ndim - sum([_consumes(later) for later in index[position + 1 :]])
        elif item is None:
            input = unsqueeze(input, dim)
            dim += 1
        elif isinstance(item, slice):
            input = _apply_slice(input, dim, item)
            dim += 1
        elif isinstance(item, _tensors.Tensor):
            if item.dtype is dtypes.bool_:
                _check_mask(input, dim, item)
                if item.ndim == 0:
                    input = unsqueeze(input, dim)  # a 0-d mask keeps or drops a new dimension of size 1
            tensors.append((dim, item))
            dim += max(_consumes(item), 1)
        else:
            input = select(input, dim, item)
    return input, tensors


def _consumes(item: Any) -> int:
    """Return how many dimensions of the indexed tensor an item of an index expression covers, 0 for ``...``."""
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, _tensors.Tensor) and item.dtype is dtypes.bool_:
        return item.ndim
    return 1


def _check_mask(input: Tensor, dim: int, mask: Tensor) -> None:
    if tuple(mask.shape) != tuple(input.shape[dim : dim + mask.ndim]):
        raise IndexError(
            f"the mask's shape {list(mask.shape)} does not match the indexed dimensions "
            f"{list(input.shape[dim : dim + mask.ndim])}"
        )


def _apply_slice(input: Tensor, dim: int, item: slice) -> Tensor:
    if item.step is not None and item.step <= 0:
        raise ValueError(f"the step of a slice must be positive, got {item.step}; use flip() to reverse")
    start, stop, step = item.indices(input.shape[dim])
    length = max(0, -(-(stop - start) // step))
    if length == input.shape[dim]:
        return input
    return sliced(input, dim, start if length else 0, length, step)


def normal_index(index: Any, input: Tensor) -> tuple[Any, ...]:
    """Return the items of an index of `input`; lists, ranges, arrays and bools become tensors, global if `input` is."""
    items = index if isinstance(index, tuple) else (index,)
    return tuple([_normal_item(item, input) for item in items])


def _normal_item(item: Any, input: Tensor) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return _tensor_of(np.asarray(item), input)
    if isinstance(item, (list, np.ndarray, range)):
        array = np.asarray(item)
        array = array.astype(np.int64) if array.size == 0 and array.dtype.kind == "f" else array
        return _tensor_of(array, input)
    if isinstance(item, _tensors.Tensor):
        if item.dtype.category > dtypes.INTEGER:
            raise IndexError(f"tensors used as indices must be integers or bools, not {item.dtype.name}")
        return item
    if hasattr(item, "__index__"):
        return item
    raise IndexError(
        f"only integers, slices, '...', None, and integer or bool tensors are valid indices, not {type(item).__name__}"
    )


def _tensor_of(array: Array, input: Tensor) -> Tensor:
    """Make an index of an array, on the device of `input`, and spread over ranks if `input` is global."""
    if array.dtype.kind not in "biu":
        raise IndexError(f"arrays used as indices must be integers or bools, not {array.dtype}")
    return beside(tensor(array if array.dtype.kind == "b" else array.astype(np.int64), device=input.device), input)


def flat_masks(tensors: list[tuple[int, Tensor]]) -> list[tuple[int, Tensor]]:
    """Replace each mask by the indices of its True elements: a vector for each of the mask's dimensions, one if 0-d.

    Waits for the masks, since the number of indices depends on their values.
    """
    result: list[tuple[int, Tensor]] = []
    for dim, item in tensors:
        if item.dtype is dtypes.bool_:
            result += [(dim + axis, part) for axis, part in enumerate(nonzero(item, as_tuple=True))]
        else:
            result.append((dim, item))
    return result


def _infer_count_nonzero(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (source,) = metas
    return Inferred(meta((), dtypes.int64, source.device), source.numel * CHEAP)


_COUNT_NONZERO = OpExpr("count_nonzero", _infer_count_nonzero, Form(1), "indexing")


def number_of_nonzero(input: Tensor) -> Tensor:
    """Count the elements that are not zero; the result is a 0-d int64 tensor."""
    return _interpreter.dispatch(_COUNT_NONZERO, (input,))


# Attributes: (the number n of non-zero elements, whether the result is (dimensions, n) instead of (n, dimensions))
_Found = tuple[Size, bool]


def _infer_nonzero(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    count, by_dimension = cast("tuple[int, bool]", attributes)
    (source,) = metas
    rank = len(source.shape)
    shape = (rank, count) if by_dimension else (count, rank)
    return Inferred(meta(shape, dtypes.int64, source.device), (source.numel + count * rank) * CHEAP * 4)


_NONZERO = OpExpr("nonzero", _infer_nonzero, Form(1, _Found), "indexing", remembers=256)


@public()
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """The indices of the non-zero elements: an (n, ndim) int64 tensor, or with `as_tuple` a vector for each dimension
    (one for a 0-d tensor).

    Waits until the non-zero elements are counted, since the shape depends on their number.

    Raises:
        TypeError: if `input` is no tensor; for `out` with `as_tuple`.

    Example:
        >>> flow.nonzero(flow.tensor([0, 5, 6]))
        tensor([[1],
                [2]])
    """
    if out is not None:
        if as_tuple:
            raise TypeError("nonzero: a tuple of indices has no out; give out without as_tuple")
        return delivered("nonzero", out, (input,), lambda: nonzero(input))
    check_tensors("nonzero", input)

    def compute(source: Tensor) -> tuple[Tensor]:
        if as_tuple and not source.ndim:
            source = source.reshape(1)
        count = number_of_nonzero(source).item()
        return (_interpreter.dispatch(_NONZERO, (source,), (count, as_tuple)),)

    (found,) = from_values(compute, input)
    return tuple([select(found, 0, axis) for axis in range(max(input.ndim, 1))]) if as_tuple else found
