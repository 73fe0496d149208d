"""`TensorFields`: the fields of tensors, in a class of their own, so that it can be compiled.

Compiled code reaches the fields without a lookup.  Other code asks for the fields by the functions at the end, because
users are not to see them as attributes.
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

# `Tensor`, as soon as there is one, and the function that makes an empty one.
CLASS: Final[list[Any]] = []
NEW: Final[list[Callable[[Any], Any]]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorFields:
    """The base of `TensorOperators`, from which `Tensor` alone derives.

    Attributes:
        _blob: where the values are.
        _lease: releases the memory when the last tensor that has it is gone; None without one.
        _autograd: the place in the graph of autograd; None without one.
        _base: the tensor that it is a view of, for autograd; see `vmflow.autograd.views`.
    """

    __slots__ = ("_autograd", "_base", "_blob", "_lease")

    _blob: Blob
    _lease: Lease | None
    _autograd: AutogradMeta | None
    _base: Any


def new_tensor(blob: Blob, lease: Lease | None) -> Tensor:
    """A tensor of this blob, without autograd history."""
    tensor: Tensor = NEW[0](CLASS[0])
    fields: TensorFields = tensor
    fields._blob = blob
    fields._lease = lease
    fields._autograd = None
    fields._base = None
    return tensor


def new_alias(tensor: TensorFields) -> Tensor:
    """Another tensor object with the same memory and the same history."""
    alias = new_tensor(tensor._blob, tensor._lease)
    fields: TensorFields = alias
    fields._autograd = tensor._autograd
    fields._base = tensor._base
    return alias


def view_of(op: ViewExpr, blob: Blob, attributes: Attributes, storage: Storage) -> Blob:
    """The blob of a view of `blob`, seen in `storage`."""
    old = blob.meta
    strides = old.strides if blob.strides is None else blob.strides
    dtype = old.dtype if op.dtype is None else op.dtype(old.dtype)
    shape, strides, offset = op.view(attributes, old.shape, strides, blob.offset)
    return Blob(storage, meta(shape, dtype, old.device), strides, offset)


# The fields, for others to read


def blob_of(tensor: TensorFields) -> Blob:
    """The blob of a tensor."""
    return tensor._blob


def blobs_of(tensors: Iterable[TensorFields]) -> tuple[Blob, ...]:
    """The blobs of several tensors."""
    return tuple([tensor._blob for tensor in tensors])


def meta_of(tensor: TensorFields) -> TensorMeta:
    """Shape, dtype and device of a tensor."""
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
    """Whether each tensor has the blob beside it, and ``tensor.data`` was given no other memory."""
    for tensor, blob in held:  # noqa: SIM110 (runs at every call of a graph)
        if tensor._blob is not blob:
            return False
    return True


def lease_of(tensor: TensorFields) -> Lease | None:
    """The lease that releases a tensor's memory when its last holder goes; a tensor that shares the memory needs it."""
    return tensor._lease


def autograd_of(tensor: TensorFields) -> AutogradMeta | None:
    """The place of a tensor in the graph of autograd; None without one."""
    return tensor._autograd
