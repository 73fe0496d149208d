"""`TensorFields`: the private fields of tensors, in a base class that mypyc can compile.

Compiled code reads the fields of a compiled class without an attribute lookup.  The functions at the end of this module
read the fields for other modules, since they are no attributes for users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from .instructions.blob import Blob, Storage, TensorMeta, meta
from .instructions.release_tensor import Lease
from .native import mypyc_attr

if TYPE_CHECKING:
    from .autograd.node import AutogradMeta
    from .ops.table import Attributes, ViewExpr
    from .tensors import Tensor

# Lists of one element, filled when their modules are imported: the class `Tensor`, and a function that makes an object
# of it without calling ``__init__``.
CLASS: Final[list[Any]] = []
NEW: Final[list[Callable[[Any], Any]]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorFields:
    """The compiled base class of tensors, with their fields; `Tensor` derives from it by way of `TensorOperators`.

    Attributes:
        _blob: describes the values: storage, shape, dtype, device and strides.
        _lease: releases the memory when the last tensor on it is gone; None where none is needed, as for small tensors.
        _autograd: requires_grad, grad and the node in the autograd graph; None for a tensor that needs none of them.
        _base: the tensor that this one is a view of, for autograd, see `vmflow.autograd.views`; else None.
    """

    __slots__ = ("_autograd", "_base", "_blob", "_lease")

    _blob: Blob
    _lease: Lease | None
    _autograd: AutogradMeta | None
    _base: Any


def new_tensor(blob: Blob, lease: Lease | None) -> Tensor:
    """Make a tensor of a blob and a lease, without autograd history."""
    tensor: Tensor = NEW[0](CLASS[0])
    fields: TensorFields = tensor
    fields._blob = blob
    fields._lease = lease
    fields._autograd = None
    fields._base = None
    return tensor


def new_alias(tensor: TensorFields) -> Tensor:
    """Make another tensor object with the same memory and the same autograd history."""
    alias = new_tensor(tensor._blob, tensor._lease)
    fields: TensorFields = alias
    fields._autograd = tensor._autograd
    fields._base = tensor._base
    return alias


def view_of(op: ViewExpr, blob: Blob, attributes: Attributes, storage: Storage) -> Blob:
    """Make the blob in `storage` of the view of `blob` that `op` and its attributes describe."""
    old = blob.meta
    strides = old.strides if blob.strides is None else blob.strides
    dtype = old.dtype if op.dtype is None else op.dtype(old.dtype)
    shape, strides, offset = op.view(attributes, old.sizes, strides, blob.offset)
    return Blob(storage, meta(shape, dtype, old.device), strides, offset)


# Functions by which other modules read the fields of tensors


def blob_of(tensor: TensorFields) -> Blob:
    """The blob of a tensor."""
    return tensor._blob


def blobs_of(tensors: Iterable[TensorFields]) -> tuple[Blob, ...]:
    """The blobs of several tensors."""
    return tuple([tensor._blob for tensor in tensors])


def meta_of(tensor: TensorFields) -> TensorMeta:
    """A tensor's meta: the object with its shape, dtype and device."""
    return tensor._blob.meta


def metas_of(tensors: Iterable[TensorFields]) -> tuple[TensorMeta, ...]:
    """The metas of several tensors."""
    return tuple([tensor._blob.meta for tensor in tensors])


def blobs_if(operands: Sequence[Any], metas: tuple[TensorMeta, ...]) -> tuple[Blob, ...] | None:
    """The blobs of the operands, if they are tensors of exactly these metas, none of a derived class; else None.

    For frequent calls: one pass over the operands, which compares metas by identity.
    """
    if len(operands) != len(metas):
        return None
    kind = CLASS[0]
    blobs: list[Blob] = []
    for place, tensor in enumerate(operands):
        if type(tensor) is not kind:
            return None
        fields: TensorFields = tensor
        blob = fields._blob
        if blob.meta is not metas[place]:
            return None
        blobs.append(blob)
    return tuple(blobs)


def still_have(held: list[tuple[TensorFields, Blob]]) -> bool:
    """Whether each tensor still has the blob of its pair, so that no ``tensor.data`` was assigned other memory."""
    for tensor, blob in held:  # noqa: SIM110 (runs at every call of a graph)
        if tensor._blob is not blob:
            return False
    return True


def lease_of(tensor: TensorFields) -> Lease | None:
    """The lease of all tensors on a memory, which releases it after the last of them; None where none is needed."""
    return tensor._lease


def autograd_of(tensor: TensorFields) -> AutogradMeta | None:
    """A tensor's autograd data: requires_grad, grad and its node in the autograd graph; None if it has none."""
    return tensor._autograd
