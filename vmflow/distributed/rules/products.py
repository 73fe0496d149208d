"""Sharding rules of products: of matrices, linear layers and convolutions.

A rule that accepts a split of a dimension that is summed over gives partial sums.
"""

from __future__ import annotations

from typing import Any, cast

from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of, rule_of_family
from vmflow.dtypes import FLOATING


def _wanted(wanted: tuple[bool, ...], *sbps: Sbp) -> tuple[Sbp, ...]:
    """Return the sbps of the wanted results."""
    return tuple([sbp for sbp, want in zip(sbps, wanted, strict=True) if want])


@rule_of("matmul")
def _matmul(call: Call) -> list[Signature]:
    left, right = call.inputs
    out = len(call.outputs[0].shape)
    rows, columns = len(left.shape) > 1, len(right.shape) > 1
    batch = out - rows - columns
    found = []
    if rows:
        found.append(Signature((split(len(left.shape) - 2), broadcast), (split(batch),)))
    if columns:
        found.append(Signature((broadcast, split(len(right.shape) - 1)), (split(out - 1),)))
    inner = split(len(left.shape) - 1), split(len(right.shape) - 2 if columns else 0)
    found.append(Signature(inner, (partial_sum,)))
    for dim in range(batch):
        inputs = []
        for operand in call.inputs:
            own = dim - (batch - max(len(operand.shape) - 2, 0))
            inputs.append(split(own) if own >= 0 and len(operand.shape) > 2 and operand.shape[own] != 1 else broadcast)
        if any([sbp.is_split for sbp in inputs]):
            found.append(Signature(tuple(inputs), (split(dim),)))
    if call.outputs[0].dtype.category >= FLOATING:
        found += [
            Signature((partial_sum, broadcast), (partial_sum,)),
            Signature((broadcast, partial_sum), (partial_sum,)),
        ]
    return found


@rule_of("linear")
def _linear(call: Call) -> list[Signature]:
    source, _, *bias = call.inputs
    last = len(source.shape) - 1
    none, by_sum = (broadcast,) * len(bias), (partial_sum,) * len(bias)
    found = [Signature((split(dim), broadcast, *none), (split(dim),)) for dim in range(last)]
    found.append(Signature((broadcast, split(0), *(split(0),) * len(bias)), (split(last),)))
    found.append(Signature((split(last), split(1), *by_sum), (partial_sum,)))
    found.append(Signature((partial_sum, broadcast, *by_sum), (partial_sum,)))
    found.append(Signature((broadcast, partial_sum, *by_sum), (partial_sum,)))
    return found


@rule_of("linear_gradient")
def _linear_gradient(call: Call) -> list[Signature]:
    """Operands: gradient, input, weight; results: the wanted gradients by input, weight and bias."""
    last = len(call.inputs[1].shape) - 1
    wanted = cast("tuple[bool, ...]", call.attributes)
    found = [
        Signature((split(dim), split(dim), broadcast), _wanted(wanted, split(dim), partial_sum, partial_sum))
        for dim in range(last)
    ]
    found.append(Signature((split(last), broadcast, split(0)), _wanted(wanted, partial_sum, split(0), split(0))))
    found.append(Signature((broadcast, split(last), split(1)), _wanted(wanted, split(last), split(1), broadcast)))
    return found + _gradients_of_sums(wanted)


def _gradients_of_sums(wanted: tuple[bool, ...]) -> list[Signature]:
    """Signatures for the operands and results of `_linear_gradient`, with partial sums among the operands."""
    return [
        Signature(inputs, _wanted(wanted, *outputs), like=broadcast)
        for inputs, outputs in (
            ((partial_sum, broadcast, broadcast), (partial_sum, partial_sum, partial_sum)),
            ((broadcast, partial_sum, broadcast), (broadcast, partial_sum, broadcast)),
            ((broadcast, broadcast, partial_sum), (partial_sum, broadcast, broadcast)),
            ((broadcast, partial_sum, partial_sum), (partial_sum, partial_sum, broadcast)),
        )
    ]


# Convolutions: inputs (samples, channels, ...), weights (filters, channels of a group, ...)

_SAMPLES, _CHANNELS, _FILTERS = split(0), split(1), split(0)


@rule_of_family("convolution")
def _convolution(call: Call) -> list[Signature]:
    _, _, *bias = call.inputs
    none, by_sum = (broadcast,) * len(bias), (partial_sum,) * len(bias)
    found = [Signature((_SAMPLES, broadcast, *none), (_SAMPLES,))]
    if _groups(call.attributes) == 1:
        found.append(Signature((broadcast, _FILTERS, *(_FILTERS,) * len(bias)), (_CHANNELS,)))
        found.append(Signature((_CHANNELS, split(1), *by_sum), (partial_sum,)))
    found.append(Signature((partial_sum, broadcast, *by_sum), (partial_sum,)))
    found.append(Signature((broadcast, partial_sum, *by_sum), (partial_sum,)))
    return found


def _groups(window: Any) -> int:
    groups: int = window.groups
    return groups


@rule_of("conv1d_with_columns", "conv2d_with_columns", "conv3d_with_columns")
def _with_columns(call: Call) -> list[Signature]:
    """Signatures without a split of samples: one dimension of the columns has the windows of all samples."""
    _, _, *bias = call.inputs
    by_sum = (partial_sum,) * len(bias)
    found = [
        Signature((partial_sum, broadcast, *by_sum), (partial_sum, partial_sum)),
        Signature((broadcast, partial_sum, *by_sum), (partial_sum, broadcast)),
    ]
    if _groups(call.attributes) == 1:
        found.append(Signature((broadcast, _FILTERS, *(_FILTERS,) * len(bias)), (_CHANNELS, broadcast)))
    return found


@rule_of("conv1d_gradient", "conv2d_gradient", "conv3d_gradient")
def _convolution_gradient(call: Call) -> list[Signature]:
    """Operands: gradient, input or its columns, weight; results: the wanted gradients by input, weight and bias."""
    window, wanted, _, has_columns = cast("tuple[Any, tuple[bool, ...], Any, bool]", call.attributes)
    if has_columns:
        return _gradients_of_sums(wanted)
    found = [
        Signature((_SAMPLES, _SAMPLES, broadcast), _wanted(wanted, _SAMPLES, partial_sum, partial_sum), like=_SAMPLES)
    ]
    if _groups(window) == 1:
        found.append(
            Signature(
                (_CHANNELS, broadcast, _FILTERS), _wanted(wanted, partial_sum, _FILTERS, _FILTERS), like=broadcast
            )
        )
        found.append(
            Signature((broadcast, _CHANNELS, split(1)), _wanted(wanted, _CHANNELS, split(1), broadcast), like=_CHANNELS)
        )
    return found


@rule_of("conv1d_input_gradient", "conv2d_input_gradient", "conv3d_input_gradient")
def _input_gradient(call: Call) -> list[Signature]:
    """Operands: gradient, weight."""
    found = [Signature((_SAMPLES, broadcast), (_SAMPLES,))]
    if _groups(call.attributes) == 1:
        found.append(Signature((broadcast, split(1)), (_CHANNELS,)))
        found.append(Signature((_CHANNELS, _FILTERS), (partial_sum,)))
    found.append(Signature((partial_sum, broadcast), (partial_sum,)))
    found.append(Signature((broadcast, partial_sum), (partial_sum,)))
    return found


@rule_of("conv1d_weight_gradient", "conv2d_weight_gradient", "conv3d_weight_gradient")
def _weight_gradient(call: Call) -> list[Signature]:
    """Operands: input, gradient."""
    found = [Signature((_SAMPLES, _SAMPLES), (partial_sum,))]
    if _groups(call.attributes) == 1:
        found.append(Signature((broadcast, _CHANNELS), (_FILTERS,)))
        found.append(Signature((_CHANNELS, broadcast), (split(1),)))
    found.append(Signature((partial_sum, broadcast), (partial_sum,)))
    found.append(Signature((broadcast, partial_sum), (partial_sum,)))
    return found
