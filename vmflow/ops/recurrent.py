"""Recurrent layers: one direction of one layer over a whole sequence is one op, and so is its backward pass.

A step of a small layer is less work than issuing an instruction, and written in ops it would be ten of them.  A
backward pass that is recorded itself (``create_graph=True``) runs the layer again in differentiable ops, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from vmflow import interpreter as _interpreter
from vmflow.autograd.grad_mode import is_grad_enabled
from vmflow.dtypes import FLOATING
from vmflow.instructions.blob import Array, TensorMeta, meta
from vmflow.kernels.numpy import recurrent as kernels
from vmflow.kernels.numpy.recurrent import Step, Weights

from .activation import relu, sigmoid, tanh
from .joining import cat
from .layer_operands import check_shape, computes_in
from .linear import linear
from .table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, array_module, common_device, computed_by

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor

# Gates of each kind of layer.
GATES: Final = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}

# Nanoseconds per multiplication and addition: a guess, for inline or worker only.
_PER_PRODUCT: Final = 0.1


class Layer(NamedTuple):
    """What a call is besides its operands.

    Attributes:
        kind: a key of `GATES`.
        reverse: whether it begins with the last step.
        biased, projected: which of the optional parameters there are.
        sizes: the rows of each step of a packed sequence; empty for (steps, batch, features).
    """

    kind: str
    reverse: bool
    biased: bool
    projected: bool
    sizes: tuple[int, ...] = ()

    @property
    def states(self) -> int:
        """How many tensors the state consists of."""
        return 2 if self.kind == "lstm" else 1

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], Weights]:
        """The initial state, and the parameters, of all operands behind the input."""
        given = list(operands)
        state = [given.pop(0) for _ in range(self.states)]
        by_input, by_state = given.pop(0), given.pop(0)
        input_bias, state_bias = (given.pop(0), given.pop(0)) if self.biased else (None, None)
        return state, Weights(by_input, by_state, input_bias, state_bias, given.pop(0) if self.projected else None)


def _check(layer: Layer, metas: Metas) -> None:
    """Raise unless the operands fit together; see `recurrent_layer`."""
    name = layer.kind
    if name not in GATES or len(metas) != 3 + layer.states + 2 * layer.biased + layer.projected:
        raise ValueError(f"{name}: there is no such layer of {len(metas)} operands")
    if any([not it.shape for it in metas]) or (layer.projected and name != "lstm"):
        raise ValueError(f"{name}: {list(metas)} are no operands of a layer")
    source = metas[0]
    if any([it.dtype is not source.dtype for it in metas]) or source.dtype.category != FLOATING:
        given = ", ".join([it.dtype.name for it in metas])
        raise TypeError(f"{name}: expected floating-point tensors of one dtype, got {given}; cast with .to()")
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


class _Shape(NamedTuple):
    """What the kernels ask of an input: its steps, rows and features, and the dtype to compute in."""

    steps: list[Step]
    rows: int
    features: int
    compute: Any


def _shape_of(layer: Layer, source: TensorMeta) -> _Shape:
    sizes = layer.sizes or (source.shape[1],) * source.shape[0]
    compute = computes_in(source).numpy
    return _Shape(kernels.steps_of(sizes, layer.reverse), sum(sizes), source.shape[-1], compute)


def _infer_forward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    layer = Layer(*cast("tuple[str, bool, bool, bool, tuple[int, ...]]", attributes))
    source = metas[0]
    _check(layer, metas)
    device = common_device(layer.kind, metas)
    xp = array_module(device)
    steps, rows, features, compute = _shape_of(layer, source)
    state, weights = layer.split(metas[1:])
    gates = GATES[layer.kind]
    hidden = state[-1].shape[1]
    output = meta((*source.shape[:-1], state[0].shape[1]), source.dtype, device)
    kept_dtype = computes_in(source)
    kept: list[TensorMeta] = []
    if gates > 1:
        kept.append(meta((rows, 4 * hidden), kept_dtype, device))
    if gates == 4:
        kept.append(meta((rows, hidden), kept_dtype, device))

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        array, *rest = [it.astype(compute, copy=False) for it in arguments[:-1]]
        initial, given = layer.split(rest)
        flat = array.reshape(rows, features)
        finals: list[Array] = []
        saved: tuple[Array, ...] = ()
        if layer.kind == "lstm":
            states, every, cells = kernels.lstm_forward(xp, steps, flat, initial[0], initial[1], given)
            finals, saved = [kernels.last(xp, cells, initial[1], steps)], (every, cells)
        elif layer.kind == "gru":
            states, every = kernels.gru_forward(xp, steps, flat, initial[0], given)
            saved = (every,)
        else:
            states = kernels.rnn_forward(xp, steps, layer.kind == "rnn_relu", flat, initial[0], given)
        finals.insert(0, kernels.last(xp, states, initial[0], steps))
        to = source.dtype.numpy
        shown = [states.reshape(output.shape), *finals]
        return (*[it.astype(to, copy=False) for it in shown], *saved)

    cost = rows * (weights.by_input.numel + weights.by_state.numel) * _PER_PRODUCT + len(steps) * 10000
    return computed_by((output, *state, *kept), kernel, cost)


# Attributes: those of the layer; which of the shown results have a gradient; which operands want one.
_Options = tuple[str, bool, bool, bool, tuple[int, ...]]
_Backward = tuple[_Options, tuple[bool, ...], tuple[bool, ...]]


class _Passed(NamedTuple):
    """What a backward pass has: the operands of the layer, what it has kept, and the gradients that came.

    Attributes:
        rows: the input, all steps one below the other.
        initial, weights: see `Layer.split`.
        states, every: the state after each step, and what else was kept.
        by_states, by_last: the gradients by the states, None for none, and by what was there after the last step.
    """

    rows: Array
    initial: list[Array]
    weights: Weights
    states: Array
    every: list[Array]
    by_states: Array | None
    by_last: list[Array]


class _Found(NamedTuple):
    """Gradients by the sums that come from the input and from the state, by the initial state, by the projection."""

    from_input: Array
    from_state: Array
    by_initial: list[Array]
    by_projection: Array | None = None


def _passed(xp: Any, layer: Layer, rows: int, present: tuple[bool, ...], arrays: list[Array]) -> _Passed:
    """The arrays by their names."""
    gradients, saved = sum(present), _saved(layer)
    given = iter(arrays[:gradients])
    by_states, *by_rest = [next(given) if there else None for there in present]
    source, *rest = arrays[gradients + saved :]
    initial, weights = layer.split(rest)
    shown = initial[0].shape[1]
    return _Passed(
        source.reshape(rows, source.shape[-1]),
        initial,
        weights,
        arrays[gradients].reshape(rows, shown),
        arrays[gradients + 1 : gradients + saved],
        None if by_states is None else by_states.reshape(rows, shown),
        [xp.zeros_like(it) if have is None else have for have, it in zip(by_rest, initial, strict=True)],
    )


def _saved(layer: Layer) -> int:
    """How many results are kept for the backward pass."""
    return layer.states + (layer.kind in ("lstm", "gru"))


def _found(xp: Any, layer: Layer, steps: list[Step], had: _Passed, before: Array) -> _Found:
    """Go back through the steps; `before` are the states before each."""
    by_state, by_last = had.weights.by_state, had.by_last
    if layer.kind == "lstm":
        cells = had.every[1]
        found = kernels.lstm_backward(
            xp, steps, had.every[0], cells, had.initial[1], had.by_states, by_last, had.weights
        )
        return _Found(found.sums, found.sums, [found.initial, found.initial_cell], found.projection)
    if layer.kind == "gru":
        hidden = had.initial[0].shape[1]
        sums, carried = kernels.gru_backward(xp, steps, had.every[0], before, had.by_states, by_last[0], by_state)
        # Gradients by sums from the input stand in another order than the weights; see the kernels.
        return _Found(sums[:, : 3 * hidden], sums[:, hidden:], [carried])
    rectified = layer.kind == "rnn_relu"
    sums, carried = kernels.rnn_backward(xp, steps, rectified, had.states, had.by_states, by_last[0], by_state)
    return _Found(sums, sums, [carried])


def _by_operands(xp: Any, layer: Layer, had: _Passed, found: _Found, before: Array) -> list[Callable[[], Array]]:
    """For each operand what makes the gradient by it, since not all are wanted."""
    from_input, from_state, by_initial, by_projection = found

    def ordered(parameter: Array) -> Array:
        return kernels.new_last(xp, parameter) if layer.kind == "gru" else parameter

    def by_input() -> Array:
        matrix = had.weights.by_input
        return xp.matmul(from_input, kernels.new_first(xp, matrix) if layer.kind == "gru" else matrix)

    makers: list[Callable[[], Any]] = [by_input, *[lambda it=it: it for it in by_initial]]
    makers += [lambda: ordered(xp.matmul(from_input.T, had.rows)), lambda: xp.matmul(from_state.T, before)]
    if layer.biased:
        makers += [lambda: ordered(xp.add.reduce(from_input, 0)), lambda: xp.add.reduce(from_state, 0)]
    if layer.projected:
        makers.append(lambda: by_projection)
    return makers


def _check_passed(layer: Layer, present: tuple[bool, ...], metas: Metas, operands: Metas) -> None:
    """Raise unless these are the gradients there are, and what the forward op has kept."""
    source = operands[0]
    state = layer.split(operands[1:])[0]
    rows, shown, hidden = source.numel // max(source.shape[-1], 1), state[0].shape[1], state[-1].shape[1]
    saved: list[tuple[int, ...]] = [(*source.shape[:-1], shown)]
    saved += [(rows, 4 * hidden)] if GATES[layer.kind] > 1 else []
    saved += [(rows, hidden)] if GATES[layer.kind] == 4 else []
    results = [saved[0], *[tuple(it.shape) for it in state]]
    if len(present) != len(results) or any([it.dtype.category != FLOATING for it in metas]):
        raise ValueError(f"{layer.kind}: {list(metas)} are no gradients of its results")
    shapes = [shape for shape, there in zip(results, present, strict=True) if there] + saved
    for given, shape in zip(metas, shapes, strict=True):
        check_shape(layer.kind, "a gradient or a result", given, shape)


def _infer_backward(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    """Operands: the gradients there are, the results that were saved, the operands of the layer."""
    given, present, wanted = cast("_Backward", attributes)
    layer = Layer(*given)
    operands = metas[sum(present) + _saved(layer) :]
    _check(layer, operands)
    source = operands[0]
    _check_passed(layer, present, metas[: sum(present) + _saved(layer)], operands)
    xp = array_module(source.device)
    steps, rows, _, compute = _shape_of(layer, source)
    _, weights = layer.split(operands[1:])
    results = tuple([it for it, want in zip(operands, wanted, strict=True) if want])

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        had = _passed(xp, layer, rows, present, [it.astype(compute, copy=False) for it in arguments[:-1]])
        before = kernels.previous(xp, had.states, had.initial[0], steps)
        makers = _by_operands(xp, layer, had, _found(xp, layer, steps, had, before), before)
        made = [make() for make, want in zip(makers, wanted, strict=True) if want]
        to = source.dtype.numpy
        return tuple([it.astype(to, copy=False).reshape(of.shape) for it, of in zip(made, results, strict=True)])

    products = rows * (weights.by_input.numel + weights.by_state.numel)
    return computed_by(results, kernel, products * 2 * _PER_PRODUCT + len(steps) * 10000)


_LAYERS = {name: OpExpr(f"{name}_layer", _infer_forward, Form((4, 8), _Options)) for name in ("rnn", "lstm", "gru")}
_BACKWARD = {
    name: OpExpr(f"{name}_layer_gradient", _infer_backward, Form((5, 20), _Backward)) for name in ("rnn", "lstm", "gru")
}
_MOST_OPERANDS: Final = tuple(range(8))


def _gradient(node: OpNode, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    layer = Layer(*cast("tuple[str, bool, bool, bool, tuple[int, ...]]", node.attributes))
    operands = tuple([node.input(place) for place in range(len(node.metas))])
    shown = gradients[: 1 + layer.states]
    if is_grad_enabled():
        return _recorded_gradient(layer, operands, node.needs, shown)
    given = [it for it in shown if it is not None]
    saved = [node.output(place) for place in node.op.saves_outputs]
    attributes = (tuple(layer), tuple([it is not None for it in shown]), node.needs)
    op = _BACKWARD[_family(layer.kind)]
    found = iter(_interpreter.dispatch_several(op, (*given, *saved, *operands), attributes))
    return tuple([next(found) if need else None for need in node.needs])


_LAYERS["rnn"].gradient(_MOST_OPERANDS, (0,))(_gradient)
_LAYERS["lstm"].gradient(_MOST_OPERANDS, (0, 3, 4))(_gradient)
_LAYERS["gru"].gradient(_MOST_OPERANDS, (0, 2))(_gradient)


def _recorded_gradient(
    layer: Layer, operands: tuple[Tensor, ...], needs: tuple[bool, ...], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradient of the layer run again in differentiable ops."""
    from vmflow import autograd  # which needs the ops

    results = composed_layer(layer, *operands)
    pairs = [(result, it) for result, it in zip(results, gradients, strict=True) if it is not None]
    wanted = [it for it, need in zip(operands, needs, strict=True) if need]
    found = iter(
        autograd.grad(
            [result for result, _ in pairs], wanted, [it for _, it in pairs], create_graph=True, allow_unused=True
        )
    )
    return tuple([next(found) if need else None for need in needs])


def _family(kind: str) -> str:
    return kind.partition("_")[0]


def recurrent_layer(layer: Layer, *operands: Tensor) -> tuple[Tensor, ...]:
    """One direction of one layer.

    Args:
        layer: see `Layer`.
        operands: the input, (steps, batch, features) or the rows of a packed sequence; the initial state (batch, shown)
            and, for "lstm", the initial cell (batch, hidden); weight_ih (gates * hidden, features) and weight_hh (gates
            * hidden, shown), and if there are biases, bias_ih and bias_hh, all as in PyTorch; if there is a
            projection, weight_hr (shown, hidden), without which shown is hidden.

    Returns:
        The state after each step, with the dimensions of the input; the last state; for "lstm", the last cell.

    Raises:
        TypeError: unless all are floating-point tensors of one dtype.
        ValueError: for shapes that do not fit.
    """
    op = _LAYERS[_family(layer.kind)]
    return _interpreter.dispatch_several(op, operands, tuple(layer))[: 1 + layer.states]


# In ops of which each is differentiable


def composed_layer(layer: Layer, *operands: Tensor) -> tuple[Tensor, ...]:
    """As `recurrent_layer`, written in plain ops: slower by far, and differentiable as often as wanted."""
    source, *rest = operands
    initial, weights = layer.split(rest)
    flat = source.reshape(-1, source.shape[-1])
    sizes = layer.sizes or (source.shape[1],) * source.shape[0]
    steps = kernels.steps_of(sizes, layer.reverse)
    state: list[Tensor] = initial
    ended: list[tuple[Tensor, ...]] = []
    every: list[Tensor] = []
    for position, step in enumerate(steps):
        size = state[0].shape[0]
        if step.size < size:
            state = [it[: step.size] for it in state]
        elif step.size > size:
            state = [cat([it, first[size : step.size]]) for it, first in zip(state, initial, strict=True)]
        state = _STEPS[layer.kind](flat[step.start : step.stop], state, weights)
        every.append(state[0])
        ends = position + 1 == len(steps)
        size_after = 0 if ends else steps[position + 1].size
        # The sequences of an empty batch end too, though none is left out.
        if ends or size_after < step.size:
            ended.append(tuple([it[size_after:] for it in state]))
    if layer.reverse:
        every.reverse()
    last = [cat([it[place] for it in reversed(ended)]) for place in range(layer.states)]
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
