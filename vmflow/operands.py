"""Checks of operands and their error messages: wrong types, and targets that cannot be changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .tensor_fields import TensorFields

if TYPE_CHECKING:
    from .instructions.blob import TensorMeta
    from .tensors import Tensor


def described(given: Any) -> str:
    """An operand's type for error messages, for an array with dtype and shape: ``ndarray float64[2, 3]``."""
    kind = type(given)
    if isinstance(given, np.ndarray):
        return f"{kind.__name__} {given.dtype}{list(given.shape)}"
    # Another library's class Tensor gets its package's name, to tell it from vmflow's.
    package = kind.__module__.partition(".")[0]
    return f"{package}.{kind.__name__}" if kind.__name__ == "Tensor" and package != "vmflow" else kind.__name__


def advice(given: Sequence[Any]) -> str:
    """A hint for the end of an error message, on how to make tensors of the operands; empty if there is none."""
    if any([isinstance(operand, np.ndarray) for operand in given]):
        return (
            "; make a tensor of the array: vmflow.from_numpy(array) shares its memory, vmflow.tensor(array) copies it"
        )
    if any([isinstance(operand, (list, tuple)) for operand in given]):
        return "; make a tensor of numbers in sequences with vmflow.tensor(...)"
    if any([described(operand).endswith(".Tensor") for operand in given]):
        return "; vmflow.from_dlpack(...) takes another library's tensor over"
    return ""


def not_tensors(name: str, given: Sequence[Any]) -> TypeError:
    """Make the TypeError for the operands `given` to the op `name`, which takes tensors only."""
    return TypeError(
        f"{name}: expected tensors, got {', '.join([described(operand) for operand in given])}{advice(given)}"
    )


def check_tensors(name: str, *operands: Any, optional: Sequence[Any] = ()) -> None:
    """Raise TypeError unless all operands are tensors, and all optional ones tensors or None."""
    if optional:
        operands += tuple([operand for operand in optional if operand is not None])
    for operand in operands:
        if not isinstance(operand, TensorFields):
            raise not_tensors(name, operands)


def listed_tensors(name: str, sequence: Any) -> tuple[Tensor, ...]:
    """Convert an iterable of tensors, the argument of the function `name`, to a tuple.

    Raises:
        TypeError: for anything else; also for one tensor, which may be passed by mistake or to mean its rows.
    """
    if isinstance(sequence, TensorFields):
        raise TypeError(
            f"{name}: expected a sequence of tensors, got one tensor of shape {list(sequence._blob.meta.shape)}; "
            "put it into a list, or take its rows with unbind()"
        )
    if isinstance(sequence, str) or not hasattr(sequence, "__iter__"):
        raise TypeError(f"{name}: expected a sequence of tensors, got {described(sequence)}{advice((sequence,))}")
    tensors = tuple(sequence)
    check_tensors(name, *tensors)
    return tensors


def no_number(name: str, given: Any) -> TypeError:
    """Make the TypeError for the operand `given` to the op `name`, which takes a tensor or a number."""
    return TypeError(f"{name}: expected a tensor or a number, got {described(given)}{advice((given,))}")


def changed_leaf(name: str, shape: Sequence[int]) -> RuntimeError:
    """Make the RuntimeError for the in-place op `name` on a leaf of this shape that requires a gradient."""
    return RuntimeError(
        f"{name}: a leaf tensor that requires a gradient cannot be changed in place while autograd records, nor can "
        f"its views; this one has the shape {list(shape)}. Do it under vmflow.no_grad(), or change a copy, "
        "x = x.clone(), through which gradients flow"
    )


def check_fits(name: str, result: TensorMeta, target: Tensor) -> None:
    """Raise RuntimeError unless op `name` may write a result of the shape and dtype of `result` into `target`.

    The shapes must be equal, the result's category of dtype not higher, and `target` not expanded.
    """
    strides = target._blob.strides
    if (
        strides is not None
        and any([stride == 0 and size > 1 for stride, size in zip(strides, target._blob.meta.shape, strict=True)])
        and target._blob.meta.numel
    ):
        raise RuntimeError(
            f"{name}: several elements of an expanded tensor of shape {list(target.shape)} share one place in memory; "
            "clone() it before changing it in place"
        )
    meta = target._blob.meta
    if result is meta:
        return
    name = name.removesuffix("_scalar")
    if result.shape != meta.shape:
        raise RuntimeError(
            f"{name}: the result has shape {list(result.shape)}, which does not fit the tensor of shape "
            f"{list(meta.shape)} that is to be written in place; no tensor is resized"
        )
    if result.dtype.category > meta.dtype.category:
        raise RuntimeError(
            f"{name}: the result is {result.dtype.name}, which cannot be written in place into a "
            f"{meta.dtype.name} tensor; use the form that returns a new tensor"
        )
