"""Copies, casts and fills of tensors; and `conform`, which gives a gradient the shape and dtype of its tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.memory_formats import (
    contiguous_format,
    inverse,
    memory_format,
    order_of,
    preserve_format,
    preserved_order,
)
from vmflow.operands import check_tensors
from vmflow.transfers import dispatch_transfer

from .declaration import function, method, public
from .elementwise.inference import CHEAP, fitting
from .table import (
    Attributes,
    Form,
    Inferred,
    Kinds,
    Metas,
    OpExpr,
    broadcast_shapes,
    common_device,
)

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

    from .elementwise.inference import Scalar


def _infer_cast(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (target,) = attributes
    source = metas[0]
    assert isinstance(target, DType)
    output = meta(source.shape, target, source.device)
    return Inferred(output, output.numel * CHEAP)


_CAST = OpExpr("cast", _infer_cast, Form(1, tuple[DType]), "copying")


@_CAST.gradient()
def _cast_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)  # autograd, the caller, casts a gradient to the input's dtype


@function()
def cast(input: Tensor, dtype: DType) -> Tensor:
    """Copy a tensor of any shape to another dtype.

    Floating point to integer rounds towards zero; complex to real drops the imaginary part; to bool is "not zero".

    Raises:
        TypeError: if `input` is no tensor, or `dtype` no dtype.

    Example:
        >>> flow.cast(flow.tensor([1.7, -1.7]), flow.int32)
        tensor([ 1, -1], dtype=vmflow.int32)
    """
    if not isinstance(dtype, DType):
        raise TypeError(f"cast: expected a dtype such as vmflow.float32, got {dtype!r}")
    return _interpreter.dispatch(_CAST, (input,), (dtype,))


_TRANSFER = OpExpr("to_device", _infer_cast, Form(1, tuple[DType]), "copying")


@_TRANSFER.gradient()
def _transfer_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (transfer(gradient, node.meta(0).device),)


def transfer(input: Tensor, device: Device) -> Tensor:
    """Copy a tensor to another device; the gradient of the copy is copied back to the device of `input`.

    Between two accelerators, unless both are CUDA devices, the copy goes through the host's memory.  To the meta device
    go only the shape and the dtype, and no gradient comes back.

    Raises:
        RuntimeError: if `input` is a meta or global tensor, and `device` not the meta device.
    """
    kinds = {input.device.type, device.type}
    if device.type == "meta":
        # A lazy module's parameter has no `shape` yet, but its blob of no elements has one.
        return full_of(meta(input._blob.meta.shape, input.dtype, device), 0)
    if input.device.type == "meta":
        raise RuntimeError(
            f"a tensor on the meta device has no data to copy to {device}; make one by empty_like(tensor, device=...), "
            "and modules by to_empty(device=...)"
        )
    if input._blob.meta.spread is not None:
        raise RuntimeError(
            f"a global tensor cannot be copied to {device}; move it by to_global(placement=..., sbp=...), or copy this "
            "rank's part, to_local()"
        )
    if "cpu" not in kinds and kinds != {"cuda"}:
        input = transfer(input, Device("cpu"))
    if input.device.type == "cuda":
        input = contiguous(input)  # a device copies contiguous bytes
    return dispatch_transfer(_TRANSFER, input, device)


@public()
def clone(input: Tensor, *, memory_format: memory_format = contiguous_format) -> Tensor:
    """Copy a tensor; the gradient of the copy passes to `input` unchanged.

    Args:
        input: any tensor.
        memory_format: the order of the copy's elements in memory; `preserve_format` is the order of `input` if its
            elements lie without gaps or overlaps, else C order.

    Raises:
        TypeError: if `input` is no tensor, or the memory format none of vmflow's.
        ValueError: if the memory format is for another number of dimensions.

    Example:
        >>> flow.clone(flow.tensor([1, 2]))
        tensor([1, 2])
    """
    check_tensors("clone", input)
    if memory_format is contiguous_format:
        return _interpreter.dispatch(_CAST, (input,), (input.dtype,))
    return cast_in_order(input, input.dtype, chosen_order("clone", input, memory_format))


def cast_in_order(input: Tensor, dtype: DType, order: tuple[int, ...] | None) -> Tensor:
    """Copy a tensor to `dtype`, with its dimensions stored in `order` from outermost to innermost; None is C order."""
    if order is None:
        return cast(input, dtype)
    return cast(input.permute(order), dtype).permute(inverse(order))


def chosen_order(name: str, like: Tensor, wanted: memory_format) -> tuple[int, ...] | None:
    """Return the order, outermost first, in which the memory format `wanted` stores the dimensions of `like`.

    None is C order.  Errors name the function `name`.

    Raises:
        TypeError: if `like` is no tensor, or the memory format none of vmflow's.
        ValueError: if the memory format is for another number of dimensions.

    Example:
        >>> flow.random.chosen_order("empty", flow.zeros(1, 3, 2, 2), flow.channels_last)
        (0, 2, 3, 1)
    """
    check_tensors(name, like)
    if wanted is preserve_format:
        return preserved_order(like.shape, like.stride())
    return order_of(name, like.ndim, wanted)


@method()
def contiguous(input: Tensor, memory_format: memory_format = contiguous_format) -> Tensor:
    """Return `input` if its elements lie without gaps in the order of `memory_format`, else a copy in that order.

    Args:
        input: any tensor.
        memory_format: by default C order; `channels_last` is for images, `channels_last_3d` for volumes.

    Raises:
        TypeError: if the memory format is none of vmflow's.
        ValueError: if the format is for another number of dimensions, or `preserve_format` for `input` not in C order.

    Example:
        >>> flow.zeros(1, 3, 2, 2).contiguous(memory_format=flow.channels_last).stride()
        (12, 1, 6, 3)
    """
    if input.is_contiguous(memory_format):
        return input
    order_of("contiguous", input.ndim, memory_format)
    return clone(input, memory_format=memory_format)


def _infer_copy(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (target,) = attributes
    (source,) = metas
    assert isinstance(target, TensorMeta)
    common_device("copy_", (target, source))
    if broadcast_shapes("copy_", target.shape, source.shape) != target.shape:
        raise ValueError(
            f"copy_: a tensor of shape {list(source.shape)} does not broadcast to the target's {list(target.shape)}"
        )
    return Inferred(target, target.numel * CHEAP)


_COPY = OpExpr("copy_", _infer_copy, Form(1, tuple[TensorMeta]), "copying")


@_COPY.gradient()
def _copy_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (gradient,)


@method()
def copy_(input: Tensor, src: Tensor | Scalar, non_blocking: bool = False) -> Tensor:
    """Copy the elements of `src`, which broadcasts and may be on another device, into `input`, in `input`'s dtype.

    Raises:
        TypeError: if `src` is neither a tensor, a number nor a 0-d array, or is a complex number for a real `input`.
        ValueError: if `src` does not broadcast to `input`, or is a number out of the range of `input`'s dtype.
        OverflowError: if `src` is an integer out of the ranges of int64 and uint64.
        RuntimeError: if `input` is expanded; if only `src` is a meta tensor, or only one of the two is global; or if
            `input` is, or views, a leaf that requires a gradient, while gradients are recorded.

    Example:
        >>> flow.zeros(2).copy_(flow.tensor([1, 2]))
        tensor([1., 2.])
    """
    if not isinstance(src, _tensors.Tensor):
        return fill_(input, src)
    if src.device is not input.device:
        src = transfer(src, input.device)
    return _interpreter.dispatch_into(_COPY, input, (src,), (input._blob.meta,))


def _infer_fill(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    (output,) = attributes
    assert isinstance(output, TensorMeta)
    return Inferred(output, output.numel * CHEAP)


_FILL = OpExpr("fill", _infer_fill, Form(0, tuple[TensorMeta], scalars=1), "copying")


@_FILL.gradient()
def _fill_gradient(node: OpNode, gradient: Tensor) -> tuple[()]:
    return ()  # no inputs


def full_of(output: TensorMeta, value: Scalar) -> Tensor:
    """Make a tensor of the meta `output` (shape, dtype, device) filled with `value`.

    Raises:
        TypeError, ValueError, OverflowError: as `fitting`.
    """
    return _interpreter.dispatch(_FILL, (), (output,), (fitting("full", value, output.dtype),))


def zeros_of(output: TensorMeta) -> Tensor:
    """Make a tensor of the meta `output` (shape, dtype, device) filled with zeros."""
    return _interpreter.dispatch(_FILL, (), (output,), (0,))


def ones_of(output: TensorMeta) -> Tensor:
    """Make a tensor of the meta `output` (shape, dtype, device) filled with ones."""
    return _interpreter.dispatch(_FILL, (), (output,), (1,))


@method()
def fill_(input: Tensor, value: Tensor | Scalar) -> Tensor:
    """Set every element to `value`, a number, or a tensor or array without dimensions.

    Raises:
        TypeError: if `value` is none of these, or a complex number for a real `input`.
        ValueError: if `value` is a tensor with dimensions, or a number out of the range of the dtype of `input`.
        OverflowError: if `value` is an integer that neither int64 nor uint64 holds.
        RuntimeError: if `input` is expanded; or is, or views, a leaf that requires a gradient, while gradients are
            recorded.
    """
    check_tensors("fill_", input)
    if isinstance(value, _tensors.Tensor):
        if value.shape:
            raise ValueError(f"fill_: the value must be a number or a 0-d tensor, not of shape {list(value.shape)}")
        return copy_(input, value)
    if isinstance(value, np.ndarray) and not value.shape:
        value = value.item()
    return _interpreter.dispatch_into(_FILL, input, (), (input._blob.meta,), (fitting("fill_", value, input.dtype),))


@public()
def zero_(input: Tensor) -> Tensor:
    """Set every element to zero.

    Raises:
        TypeError: if `input` is no tensor.
        RuntimeError: as `fill_`.

    Example:
        >>> flow.tensor([1, 2]).zero_()
        tensor([0, 0])
    """
    return fill_(input, 0)


def broadcasts_to(shape: Sequence[int], wider: Sequence[int]) -> bool:
    """Return whether a tensor of `shape` can be broadcast to the shape `wider`."""
    if len(shape) > len(wider):
        return False
    return all([size in (1, full) for size, full in zip(reversed(shape), reversed(wider), strict=False)])


def conform(gradient: Tensor, wanted: TensorMeta) -> Tensor:
    """Fit a gradient to its tensor's meta `wanted`: sum over broadcast dimensions, cast, and spread over ranks."""
    if gradient._blob.meta.shape != wanted.shape:
        extra = len(gradient.shape) - len(wanted.shape)
        dims = [*range(extra)]
        dims += [
            axis + extra for axis, size in enumerate(wanted.shape) if size == 1 and gradient.shape[axis + extra] != 1
        ]
        if dims:
            gradient = gradient.sum(dims, keepdim=True)
        gradient = gradient.reshape(wanted.shape) if extra else gradient
    if gradient.dtype is not wanted.dtype:
        if gradient.dtype.is_complex and not wanted.dtype.is_complex:
            gradient = cast(gradient, gradient.dtype.to_real())
        gradient = cast(gradient, wanted.dtype) if gradient.dtype is not wanted.dtype else gradient
    if wanted.spread is not None:
        from vmflow.distributed.global_tensors import conformed  # needed by few programs

        return conformed(gradient, wanted.spread)
    return gradient
