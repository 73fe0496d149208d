"""Sharding rules of normalisation, recurrent layers and attention."""

from __future__ import annotations

from typing import Any, cast

from vmflow.distributed.sbp import Sbp, broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of
from vmflow.instructions.blob import TensorMeta
from vmflow.kernels.problems.recurrent import Layer

from .elementwise import aligned

_CHANNELS, _OF_CHANNELS = split(1), split(0)


# Normalisation.  Batch norm over a split batch is composed of other ops, see `decompositions`.


@rule_of("batch_norm")
def _batch_norm(call: Call) -> list[Signature]:
    """Signatures of batch norm: (input, weight, bias) -> (output, mean and variance of each channel)."""
    parameters = (_OF_CHANNELS,) * (len(call.inputs) - 1)
    return [Signature((_CHANNELS, *parameters), (_CHANNELS, _OF_CHANNELS, _OF_CHANNELS))]


@rule_of("batch_norm_gradient")
def _batch_norm_gradient(call: Call) -> list[Signature]:
    """Signatures: (gradient, input, mean, variance, weight) -> gradients by (input, weight, bias) of batch norm."""
    parameters = (_OF_CHANNELS,) * (len(call.inputs) - 2)
    found = [Signature((_CHANNELS, _CHANNELS, *parameters), (_CHANNELS, _OF_CHANNELS, _OF_CHANNELS))]
    return [*found, _sum_of_gradients(call)]


def _sum_of_gradients(call: Call) -> Signature:
    """Signature of a backward op whose first operand, the gradient, is a partial sum: so are the results."""
    return Signature((partial_sum, *(broadcast,) * (len(call.inputs) - 1)), (partial_sum,) * len(call.outputs))


@rule_of("batch_norm_inference")
def _batch_norm_inference(call: Call) -> list[Signature]:
    """Signatures of batch norm in inference, of operands (input, mean, variance, weight, bias)."""
    parameters = len(call.inputs) - 1
    return [
        Signature((split(dim), *((_OF_CHANNELS if dim == 1 else broadcast),) * parameters), (split(dim),))
        for dim in range(len(call.inputs[0].shape))
    ]


@rule_of("layer_norm")
def _layer_norm(call: Call) -> list[Signature]:
    """Signatures of layer norm: (input, weight, bias) -> (output, mean and normalising factor of each row)."""
    parameters = (broadcast,) * (len(call.inputs) - 1)
    return [Signature((split(dim), *parameters), (split(dim),) * 3) for dim in range(len(call.outputs[1].shape))]


@rule_of("layer_norm_gradient")
def _layer_norm_gradient(call: Call) -> list[Signature]:
    """Signatures: (gradient, input, means, factors, weight) -> gradients by (input, weight, bias) of layer norm."""
    parameters = (broadcast,) * (len(call.inputs) - 4)
    found = [
        Signature(((split(dim),) * 4 + parameters), (split(dim), partial_sum, partial_sum))
        for dim in range(len(call.inputs[2].shape))
    ]
    return [*found, _sum_of_gradients(call)]


# Recurrent layers of (steps, samples, features); the samples may be split, but not those of packed sequences, whose
# rows are not in the order of the samples.


@rule_of("rnn_layer", "lstm_layer", "gru_layer")
def _recurrent(call: Call) -> list[Signature]:
    """Signatures of recurrent layers: (input, states, parameters) -> (state after each step, last states, saved)."""
    layer = Layer(*cast(Any, call.attributes))
    if layer.sizes:
        return []
    parameters = len(call.inputs) - 1 - layer.states
    kept = len(call.outputs) - 1 - layer.states
    states = (split(0),) * layer.states
    return [Signature((split(1), *states, *(broadcast,) * parameters), (split(1), *states, *(split(1),) * kept))]


@rule_of("rnn_layer_gradient", "lstm_layer_gradient", "gru_layer_gradient")
def _recurrent_gradient(call: Call) -> list[Signature]:
    """Signatures of recurrent layers' backward: (given gradients, saved tensors, operands) -> wanted gradients."""
    attributes, present, wanted = cast("tuple[Any, tuple[bool, ...], tuple[bool, ...]]", call.attributes)
    layer = Layer(*attributes)
    if layer.sizes:
        return []
    states = (split(0),) * layer.states
    parameters = len(wanted) - 1 - layer.states
    gradients = [sbp for sbp, there in zip((split(1), *states), present, strict=True) if there]
    operands = (split(1), *states, *(broadcast,) * parameters)
    results = (split(1), *states, *(partial_sum,) * parameters)
    return [
        Signature(
            (*gradients, *(split(1),) * layer.saved, *operands),
            tuple([sbp for sbp, want in zip(results, wanted, strict=True) if want]),
        )
    ]


# Attention of a query (..., L, E), a key (..., S, E) and a value (..., S, V)


@rule_of("scaled_dot_product_attention")
def _attention(call: Call) -> list[Signature]:
    """Signatures of attention: (query, key, value, mask) -> (output, saved tensor (..., L) or (..., L, S))."""
    _, causal, p, _ = cast("tuple[float, bool, float, bool]", call.attributes)
    if p:
        return []
    operands = call.inputs
    output, _ = call.outputs
    leading = len(output.shape) - 2
    found = [
        Signature(_leading(operands, dim, leading, size), (split(dim), split(dim)))
        for dim, size in enumerate(output.shape[:-2])
    ]
    masks = (broadcast,) * (len(operands) - 3)
    if not causal:
        found.append(Signature(_rows(operands, leading), (split(leading), split(leading))))
    last = len(operands[2].shape) - 1
    found.append(Signature((broadcast, broadcast, split(last), *masks), (split(leading + 1), broadcast)))
    found.append(Signature((broadcast, broadcast, partial_sum, *masks), (partial_sum, broadcast)))
    return found


def _leading(operands: tuple[TensorMeta, ...], dim: int, leading: int, size: int) -> tuple[Sbp, ...]:
    """The sbps of query, key, value and mask if dimension `dim` of the output, of size `size`, is split.

    `dim` is one of the `leading` dimensions before the last two.
    """
    query, key, value, *masks = operands
    three = [aligned(dim, leading, tuple(operand.shape[:-2]), size) for operand in (query, key, value)]
    return (*three, *[aligned(dim, leading + 2, tuple(mask.shape), size) for mask in masks])


def _rows(operands: tuple[TensorMeta, ...], leading: int) -> tuple[Sbp, ...]:
    """The sbps of query, key, value and mask if the rows of the query, dimension `leading` of the output, are split."""
    query, _, _, *masks = operands
    rows = len(query.shape) - 2
    return (
        split(rows),
        broadcast,
        broadcast,
        *[aligned(leading, leading + 2, tuple(mask.shape), query.shape[rows]) for mask in masks],
    )


@rule_of("scaled_dot_product_attention_gradient")
def _attention_gradient(call: Call) -> list[Signature]:
    """Signatures of attention's backward, of operands (given gradients, saved tensor, query, key, value, mask).

    Results have all dimensions before the last two, also where operands broadcast.
    """
    options, present, wanted = cast("tuple[Any, tuple[bool, bool], tuple[bool, ...]]", call.attributes)
    _, causal, p, _ = options
    if p:
        return []
    first = sum(present) + 1
    operands = call.inputs[first:]
    kept = call.inputs[first - 1]
    leading = len(kept.shape) - (2 if options[3] else 1)
    found = [
        Signature(
            (*(split(dim),) * first, *_leading(operands, dim, leading, kept.shape[dim])),
            (split(dim),) * len(call.outputs),
        )
        for dim in range(leading)
    ]
    if not causal:
        by = [split(leading), partial_sum, partial_sum, split(leading)]
        results = tuple([sbp for sbp, want in zip(by, wanted, strict=False) if want])
        found.append(Signature((*(split(leading),) * first, *_rows(operands, leading)), results))
    others = (broadcast,) * (len(operands) + 1)
    found.append(Signature((*(partial_sum,) * (first - 1), *others), (partial_sum,) * len(call.outputs)))
    return found
