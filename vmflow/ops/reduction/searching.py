"""Search in sorted sequences, and tests of membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from vmflow import dtypes, interpreter as _interpreter, tensors as _tensors
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.copying import full_of
from vmflow.ops.declaration import function
from vmflow.ops.destination import out_by_copy
from vmflow.ops.elementwise.inference import CHEAP, number
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device
from vmflow.transfers import beside

if TYPE_CHECKING:
    from vmflow.ops.elementwise.inference import Scalar
    from vmflow.tensors import Tensor


def _as_tensor(tensor: Tensor, value: Tensor | Scalar, name: str) -> Tensor:
    """Convert a number to a 0-d tensor on the device and the ranks of `tensor`; return a tensor unchanged."""
    if isinstance(value, _tensors.Tensor):
        return value
    kind = dtypes.of_scalar(type(number(name, value)))
    return beside(full_of(meta((), kind, tensor.device), value), tensor)


def _infer_searchsorted(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    name, _, result = cast("tuple[str, bool, dtypes.dtype]", attributes)
    sequence, values = metas
    device = common_device(name, metas)
    if max(sequence.dtype.category, values.dtype.category) > FLOATING:
        raise TypeError(f"{name} is not defined for {sequence.dtype.name} and {values.dtype.name} tensors")
    if not sequence.shape or (len(sequence.shape) > 1 and sequence.shape[:-1] != values.shape[:-1]):
        raise ValueError(
            f"{name}: a sequence of shape {list(sequence.shape)} does not fit values of {list(values.shape)}; it must "
            "be a vector, or have the same sizes in all dimensions but the last"
        )
    return Inferred(meta(values.shape, result, device), values.numel * CHEAP * 40)


_SEARCHSORTED = OpExpr("searchsorted", _infer_searchsorted, Form(2, tuple[str, bool, dtypes.dtype]), "searching")


@function()
@out_by_copy()
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Find the indices in an ascending sequence before which values can be inserted without breaking the order.

    Args:
        sorted_sequence: a vector, or sequences along the last dimension, each for the values in the same row.
        input: the values, or one number.
        out_int32: whether the result is int32 and not int64.
        right: whether to insert a value behind elements that equal it, instead of before them.
        side: "right" or "left", in place of `right`.
        sorter: the indices that sort the sequence, if it is not sorted.

    Raises:
        ValueError: if shapes do not fit, `side` is another word, or "left" with `right` True.
        TypeError: for complex numbers, or a `sorter` of another dtype than integers.
        IndexError: if the sorter names no element, when the result is read.

    Example:
        >>> flow.searchsorted(flow.tensor([1, 3, 5]), flow.tensor([3, 6]))
        tensor([1, 3])
    """
    check_tensors("searchsorted", sorted_sequence, optional=(sorter,))
    if side not in (None, "left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', not {side!r}")
    if side == "left" and right:
        raise ValueError("searchsorted: side='left' contradicts right=True")
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise ValueError(
                f"searchsorted: the sorter's shape {list(sorter.shape)} is not the sequence's, "
                f"{list(sorted_sequence.shape)}"
            )
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    return _search("searchsorted", sorted_sequence, input, right or side == "right", out_int32)


def _search(name: str, sequence: Tensor, values: Tensor | Scalar, right: bool, out_int32: bool) -> Tensor:
    result = dtypes.int32 if out_int32 else dtypes.int64
    return _interpreter.dispatch(
        _SEARCHSORTED, (sequence, _as_tensor(sequence, values, name)), (name, bool(right), result)
    )


@function()
@out_by_copy()
def bucketize(
    input: Tensor | Scalar,
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Find the number of the interval between ascending `boundaries` in which each value lies; 0 is below the first.

    Args:
        input: the values, or one number.
        boundaries: a vector.
        out_int32: whether the result is int32 and not int64.
        right: whether a value that equals a boundary belongs to the interval above that boundary.

    Raises:
        ValueError: if `boundaries` is no vector.
        TypeError: for complex numbers.

    Example:
        >>> flow.bucketize(flow.tensor([0, 3, 6]), flow.tensor([1, 3, 5]))
        tensor([0, 1, 3])
    """
    check_tensors("bucketize", boundaries)
    if boundaries.ndim != 1:
        raise ValueError(f"bucketize: the boundaries must be a vector, got shape {list(boundaries.shape)}")
    return _search("bucketize", boundaries, input, right, out_int32)


def _infer_isin(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    elements, among = metas
    device = common_device("isin", metas)
    cost = (elements.numel + among.numel) * CHEAP * 100
    return Inferred(meta(elements.shape, dtypes.bool_, device), cost)


_ISIN = OpExpr("isin", _infer_isin, Form(2, tuple[bool]), "searching")


@function()
@out_by_copy()
def isin(
    elements: Tensor | Scalar,
    test_elements: Tensor | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Whether each of `elements` equals one of `test_elements`; bools in the shape of `elements`.

    Args:
        elements: a tensor, or one number.
        test_elements: a tensor, or one number unless `elements` is a number.
        assume_unique: accepted for PyTorch's sake.
        invert: whether to negate the result.

    Raises:
        TypeError: if both are numbers.

    Example:
        >>> flow.isin(flow.tensor([1, 2, 3]), flow.tensor([3, 1]))
        tensor([ True, False,  True])
    """
    if isinstance(elements, _tensors.Tensor):
        test_elements = _as_tensor(elements, test_elements, "isin")
    elif isinstance(test_elements, _tensors.Tensor):
        elements = _as_tensor(test_elements, elements, "isin")
    else:
        raise TypeError("isin: elements and test_elements are both numbers; one of them must be a tensor")
    return _interpreter.dispatch(_ISIN, (elements, test_elements), (bool(invert),))
