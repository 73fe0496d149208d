"""Recurrent layers: one direction of one layer over a whole sequence is one op, and so is its backward pass.

A backward pass that is recorded itself (``create_graph=True``) runs the layer again in differentiable ops, step by
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, cast

from vmflow import autograd, interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import TensorMeta, meta
from vmflow.kernels.problems.recurrent import GATES as GATES, Layer as Layer, Weights
from vmflow.ops.elementwise.activation import relu, sigmoid, tanh
from vmflow.ops.shape.joining import cat
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, common_device

from .layer_operands import check_shape, computes_in
from .linear import linear

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Nanoseconds per multiply-add, for estimates of cost.
_PER_PRODUCT: Final = 0.1


def _check(layer: Layer, metas: Metas) -> None:
    """Raise TypeError or ValueError unless the operands of a recurrent layer fit together; see `recurrent_layer`."""
    name = layer.kind
    if name not in GATES or len(metas) != 3 + layer.states + 2 * layer.biased + layer.projected:
        raise ValueError(f"{name}: there is no such layer of {len(metas)} operands")
    if any([not meta.shape for meta in metas]) or (layer.projected and name != "lstm"):
        raise ValueError(f"{name}: {list(metas)} are no operands of a layer")
    source = metas[0]
    if any([meta.dtype is not source.dtype for meta in metas]) or source.dtype.category != FLOATING:
        names = ", ".join([meta.dtype.name for meta in metas])
        raise TypeError(f"{name}: expected floating-point tensors of one dtype, got {names}; cast with .to()")
    rank = 2 if layer.sizes else 3
    if len(source.shape) != rank:
        raise ValueError(f"{name}: expected a {rank}-d input, got one of shape {list(source.shape)}")
    state, weights = layer.split(metas[1:])
    gates, hidden = GATES[layer.kind], state[-1].shape[-1]
    shown = state[0].shape[-1]
    batch = layer.sizes[0] if layer.sizes else source.shape[1]
    wanted = {
        "the input": (source.shape, (*source.shape[:-1], weights.by_input.shape[-1])),
        "the initial state": (state[0].shape, (batch, shown)),
        "the initial cell": (state[-1].shape, (batch, hidden)),
        "weight_ih": (weights.by_input.shape, (gates * hidden, source.shape[-1])),
        "weight_hh": (weights.by_state.shape, (gates * hidden, shown)),
    }
    for word, bias in (("bias_ih", weights.input_bias), ("bias_hh", weights.state_bias)):
        if bias is not None:
            wanted[word] = (bias.shape, (gates * hidden,))
    if weights.projection is not None:
        wanted["weight_hr"] = (weights.projection.shape, (shown, hidden))
    for word, (shape, fitting) in wanted.items():
        if tuple(shape) != tuple(fitting):
            raise ValueError(f"{name}: {word} has shape {list(shape)}, where {list(fitting)} would fit the rest")
    if layer.sizes and sum(layer.sizes) != source.shape[0]:
        raise ValueError(f"{name}: {source.shape[0]} rows are not the {sum(layer.sizes)} that the batch sizes promise")
    if not layer.sizes and not source.shape[0]:
        raise ValueError(f"{name}: a sequence needs at least one step, got an input of shape {list(source.shape)}")


def _infer_forward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    layer = Layer(*cast("tuple[str, bool, bool, bool, tuple[int, ...]]", attributes))
    source = metas[0]
    _check(layer, metas)
    device = common_device(layer.kind, metas)
    steps, rows = len(layer.sizes) or source.shape[0], prod(source.shape[:-1])
    state, weights = layer.split(metas[1:])
    gates = GATES[layer.kind]
    hidden = state[-1].shape[1]
    output = meta((*source.shape[:-1], state[0].shape[1]), source.dtype, device)
    kept_dtype = computes_in(source)
    kept: list[TensorMeta] = []
    if gates > 1:
        kept.append(meta((*source.shape[:-1], 4 * hidden), kept_dtype, device))
    if gates == 4:
        kept.append(meta((*source.shape[:-1], hidden), kept_dtype, device))
    cost = rows * (weights.by_input.numel + weights.by_state.numel) * _PER_PRODUCT + steps * 10000
    return Inferred((output, *state, *kept), cost)


# The attributes of the backward op: (those of the layer, which of the layer's results have a gradient, which of its
# operands need a gradient)
_Options = tuple[str, bool, bool, bool, tuple[int, ...]]
_Backward = tuple[_Options, tuple[bool, ...], tuple[bool, ...]]


def _check_passed(layer: Layer, present: tuple[bool, ...], metas: Metas, operands: Metas) -> None:
    """Raise ValueError unless `metas` fit: the gradients of results marked in `present`, then the saved results."""
    source = operands[0]
    state = layer.split(operands[1:])[0]
    shown, hidden = state[0].shape[1], state[-1].shape[1]
    saved: list[tuple[int, ...]] = [(*source.shape[:-1], shown)]
    saved += [(*source.shape[:-1], 4 * hidden)] if GATES[layer.kind] > 1 else []
    saved += [(*source.shape[:-1], hidden)] if GATES[layer.kind] == 4 else []
    results = [saved[0], *[tuple(tensor.shape) for tensor in state]]
    if len(present) != len(results) or any([meta.dtype.category != FLOATING for meta in metas]):
        raise ValueError(f"{layer.kind}: {list(metas)} are no gradients of its results")
    shapes = [shape for shape, exists in zip(results, present, strict=True) if exists] + saved
    for operand, shape in zip(metas, shapes, strict=True):
        check_shape(layer.kind, "a gradient or a result", operand, shape)


def _infer_backward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Infer the backward op.  Operands: the existing gradients of results, the saved results, the layer's operands."""
    given, present, wanted = cast("_Backward", attributes)
    layer = Layer(*given)
    operands = metas[sum(present) + layer.saved :]
    _check(layer, operands)
    source = operands[0]
    _check_passed(layer, present, metas[: sum(present) + layer.saved], operands)
    steps, rows = len(layer.sizes) or source.shape[0], prod(source.shape[:-1])
    _, weights = layer.split(operands[1:])
    results = tuple([operand for operand, needed in zip(operands, wanted, strict=True) if needed])
    products = rows * (weights.by_input.numel + weights.by_state.numel)
    return Inferred(results, products * 2 * _PER_PRODUCT + steps * 10000)


_LAYERS = {
    name: OpExpr(f"{name}_layer", _infer_forward, Form((4, 8), _Options), "recurrent")
    for name in ("rnn", "lstm", "gru")
}
_BACKWARD = {
    name: OpExpr(f"{name}_layer_gradient", _infer_backward, Form((5, 20), _Backward), "recurrent")
    for name in ("rnn", "lstm", "gru")
}
_MOST_OPERANDS: Final = tuple(range(8))


def _gradient(node: OpNode, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    layer = Layer(*cast("tuple[str, bool, bool, bool, tuple[int, ...]]", node.attributes))
    operands = tuple([node.input(place) for place in range(len(node.metas))])
    shown = gradients[: 1 + layer.states]
    if is_grad_enabled():
        return _recorded_gradient(layer, operands, node.needs, shown)
    existing = [gradient for gradient in shown if gradient is not None]
    saved = [node.output(place) for place in node.op.saves_outputs]
    attributes = (tuple(layer), tuple([gradient is not None for gradient in shown]), node.needs)
    op = _BACKWARD[_family(layer.kind)]
    computed = iter(_interpreter.dispatch_several(op, (*existing, *saved, *operands), attributes))
    return tuple([next(computed) if need else None for need in node.needs])


_LAYERS["rnn"].gradient(_MOST_OPERANDS, (0,))(_gradient)
_LAYERS["lstm"].gradient(_MOST_OPERANDS, (0, 3, 4))(_gradient)
_LAYERS["gru"].gradient(_MOST_OPERANDS, (0, 2))(_gradient)


def _recorded_gradient(
    layer: Layer, operands: tuple[Tensor, ...], needs: tuple[bool, ...], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Compute the gradients of a layer's operands by running the layer again in differentiable ops."""
    results = composed_layer(layer, *operands)
    pairs = [(result, gradient) for result, gradient in zip(results, gradients, strict=True) if gradient is not None]
    wanted = [operand for operand, need in zip(operands, needs, strict=True) if need]
    computed = iter(
        autograd.grad(
            [result for result, _ in pairs],
            wanted,
            [gradient for _, gradient in pairs],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple([next(computed) if need else None for need in needs])


def _family(kind: str) -> str:
    return kind.partition("_")[0]


def recurrent_layer(layer: Layer, *operands: Tensor) -> tuple[Tensor, ...]:
    """Run one direction of one recurrent layer over a sequence, as one op.

    Args:
        layer: the kind and options of the layer, see `Layer`.
        operands: the input, (steps, batch, features) or the rows of a packed sequence; the initial state (batch, shown)
            and, for "lstm", the initial cell (batch, hidden); weight_ih (gates * hidden, features) and weight_hh (gates
            * hidden, shown), and if there are biases, bias_ih and bias_hh, all as in PyTorch; if there is a
            projection, weight_hr (shown, hidden).  `shown`, the size of the state, is `hidden` without a projection.

    Returns:
        The state after each step, (steps, batch, shown) or packed rows; the last state; for "lstm", the last cell.

    Raises:
        TypeError: unless all operands are floating-point tensors of one dtype.
        ValueError: for shapes that do not fit.
    """
    op = _LAYERS[_family(layer.kind)]
    return _interpreter.dispatch_several(op, operands, tuple(layer))[: 1 + layer.states]


# In differentiable ops


def composed_layer(layer: Layer, *operands: Tensor) -> tuple[Tensor, ...]:
    """Compute `recurrent_layer` in differentiable ops, step by step, for backward passes that are recorded."""
    source, *rest = operands
    initial, weights = layer.split(rest)
    flat = source.reshape(-1, source.shape[-1])
    steps = layer.steps(source.shape)
    state: list[Tensor] = initial
    ended: list[tuple[Tensor, ...]] = []
    every: list[Tensor] = []
    for position, step in enumerate(steps):
        size = state[0].shape[0]
        if step.size < size:
            state = [tensor[: step.size] for tensor in state]
        elif step.size > size:
            state = [cat([tensor, first[size : step.size]]) for tensor, first in zip(state, initial, strict=True)]
        state = _STEPS[layer.kind](flat[step.rows], state, weights)
        every.append(state[0])
        ends = position + 1 == len(steps)
        size_after = 0 if ends else steps[position + 1].size
        # Collect the states of sequences that end at this step.  The sequences of an empty batch end at the last step,
        # although the batch does not shrink.
        if ends or size_after < step.size:
            ended.append(tuple([tensor[size_after:] for tensor in state]))
    if layer.reverse:
        every.reverse()
    last = [cat([tensor[place] for tensor in reversed(ended)]) for place in range(layer.states)]
    return (cat(every).reshape(*source.shape[:-1], initial[0].shape[-1]), *last)


def _rnn_step(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor, list[Tensor], Weights], list[Tensor]]:
    def step(rows: Tensor, state: list[Tensor], weights: Weights) -> list[Tensor]:
        from_input = linear(rows, weights.by_input, weights.input_bias)
        return [activation(from_input + linear(state[0], weights.by_state, weights.state_bias))]

    return step


def _lstm_step(rows: Tensor, state: list[Tensor], weights: Weights) -> list[Tensor]:
    before, cell = state
    sums = linear(rows, weights.by_input, weights.input_bias) + linear(before, weights.by_state, weights.state_bias)
    taken, kept, new, shown = sums.chunk(4, 1)
    cell = sigmoid(kept) * cell + sigmoid(taken) * tanh(new)
    result = sigmoid(shown) * tanh(cell)
    return [result if weights.projection is None else linear(result, weights.projection), cell]


def _gru_step(rows: Tensor, state: list[Tensor], weights: Weights) -> list[Tensor]:
    (before,) = state
    from_input = linear(rows, weights.by_input, weights.input_bias).chunk(3, 1)
    from_state = linear(before, weights.by_state, weights.state_bias).chunk(3, 1)
    reset, update = (sigmoid(one + other) for one, other in zip(from_input[:2], from_state[:2], strict=True))
    new = tanh(from_input[2] + reset * from_state[2])
    return [new + update * (before - new)]


_STEPS: dict[str, Callable[[Tensor, list[Tensor], Weights], list[Tensor]]] = {
    "rnn_tanh": _rnn_step(tanh),
    "rnn_relu": _rnn_step(relu),
    "lstm": _lstm_step,
    "gru": _gru_step,
}
