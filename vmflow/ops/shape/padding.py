"""`pad`: elements added at the borders of a tensor, or removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from vmflow import interpreter as _interpreter
from vmflow.arguments import is_integer
from vmflow.instructions.blob import meta
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP, fitting
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

Pair = tuple[int, int]


def _infer_pad(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    pairs = cast("tuple[Pair, ...]", attributes)
    (source,) = metas
    shape = tuple([size + before + after for size, (before, after) in zip(source.shape, pairs, strict=True)])
    output = meta(shape, source.dtype, source.device)
    return Inferred(output, output.numel * CHEAP * 2)


_PAD = OpExpr("pad", _infer_pad, Form(1, tuple[Pair, ...], scalars=1), "padding")


@_PAD.gradient()
def _pad_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    for axis, (before, after) in enumerate(cast("tuple[Pair, ...]", node.attributes)):
        if before or after:
            gradient = gradient.narrow(axis, before, node.meta(0).shape[axis])
    return (gradient,)


# The op that pads with elements of the tensor itself, and its gradient op.  Attributes of both: (mode, the numbers of
# elements added (before, after) each dimension)

_Borders = tuple[str, tuple[Pair, ...]]


def _infer_borders(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    _, pairs = cast("_Borders", attributes)
    (source,) = metas
    shape = [size + before + after for size, (before, after) in zip(source.shape, pairs, strict=True)]
    output = meta(tuple(shape), source.dtype, source.device)
    return Inferred(output, output.numel * CHEAP * 2 + 5000)


def _infer_borders_gradient(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    _, pairs = cast("_Borders", attributes)
    (gradient,) = metas
    size = tuple([length - before - after for length, (before, after) in zip(gradient.shape, pairs, strict=True)])
    output = meta(size, gradient.dtype, gradient.device)
    return Inferred(output, gradient.numel * CHEAP * 3 + 5000)


_BORDERS = OpExpr("pad_borders", _infer_borders, Form(1, _Borders), "padding")
_BORDERS_GRADIENT = OpExpr("pad_borders_gradient", _infer_borders_gradient, Form(1, _Borders), "padding")


@_BORDERS.gradient()
def _borders_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_BORDERS_GRADIENT, (gradient,), node.attributes),)


@_BORDERS_GRADIENT.gradient()
def _borders_gradient_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    return (_interpreter.dispatch(_BORDERS, (gradient,), node.attributes),)


# For each mode, a function from the size of a dimension to the most elements that can be added at one end of it; None
# for no limit.
_REACH: dict[str, Any] = {
    "reflect": lambda size: size - 1,
    "circular": lambda size: size,
    "replicate": lambda size: None if size else 0,
}


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Add elements at the borders of a tensor, or remove some, where a number is negative.

    Args:
        input: to pad.
        pad: the numbers of elements (before, after) the last dimension, then the one before it, and so on.
        mode: the kind of elements to add: "constant", "reflect" (mirrored at the border element), "replicate" (the
            border element) or "circular" (from the other end).
        value: of the elements of mode "constant", 0 by default.

    Raises:
        TypeError: if a number in `pad` is no integer, or `value` is no number or complex for real elements.
        ValueError: for an odd number of numbers, more pairs than dimensions, more elements removed than there are, an
            unknown mode, or a `value` out of the dtype's range; in modes other than "constant" also for a `value` other
            than 0, for pairs that leave out none or more than two of the first dimensions, and for more elements added
            at one end than the dimension has ("circular"), than it has without the border element ("reflect"), or than
            0 if it has none.
        OverflowError: if `value` is an integer that neither int64 nor uint64 holds.

    Example:
        >>> flow.nn.functional.pad(flow.tensor([1, 2]), (1, 2), value=9)
        tensor([9, 1, 2, 9, 9])
    """
    check_tensors("pad", input)
    if mode not in ("constant", *_REACH):
        raise ValueError(f"pad: mode must be one of constant, {', '.join(_REACH)}, not {mode!r}")
    if mode != "constant" and value not in (None, 0):
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
    if not all([is_integer(number) for number in pad]):
        raise TypeError(f"pad: expected integers, got {list(pad)}")
    numbers = [int(number) for number in pad]
    if len(numbers) % 2 or len(numbers) // 2 > input.ndim:
        raise ValueError(f"pad: expected at most {input.ndim} pairs of numbers, got {numbers}")
    if mode != "constant" and input.ndim - len(numbers) // 2 not in (1, 2):
        raise ValueError(
            f"pad: mode {mode!r} pads all dimensions of (samples, channels, ...) or (channels, ...) behind these; "
            f"{len(numbers) // 2} pairs of numbers do not fit to the shape {list(input.shape)}"
        )
    # `pad` lists pairs from the last dimension to the first: reverse them, and put pairs of 0 before them.
    pairs = [(0, 0)] * (input.ndim - len(numbers) // 2) + list(zip(numbers[::2], numbers[1::2], strict=True))[::-1]
    for axis, (before, after) in enumerate(pairs):
        size = input.shape[axis]
        if size + before + after < 0 or size + min(before, 0) + min(after, 0) < 0:
            raise ValueError(f"pad: cannot take {before} and {after} away from dimension {axis} of size {size}")
        if before < 0 or after < 0:
            length = size + min(before, 0) + min(after, 0)
            input = input.narrow(axis, max(-before, 0), length)
            pairs[axis] = max(before, 0), max(after, 0)
    element = fitting("pad", 0 if value is None else value, input.dtype)
    if not any(before or after for before, after in pairs):
        return input.clone()
    if mode == "constant":
        return _interpreter.dispatch(_PAD, (input,), tuple(pairs), (element,))
    return _from_within(input, pairs, mode)


def _from_within(input: Tensor, pairs: Sequence[Pair], mode: str) -> Tensor:
    for axis, (before, after) in enumerate(pairs):
        size = input.shape[axis]
        reach = _REACH[mode](size)
        if reach is not None and max(before, after) > max(reach, 0):
            raise ValueError(
                f"pad: mode {mode!r} can add at most {max(reach, 0)} elements to dimension {axis} of size {size}, got "
                f"{before} and {after}"
            )
    return _interpreter.dispatch(_BORDERS, (input,), (mode, tuple(pairs)))
