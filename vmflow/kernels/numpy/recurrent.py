"""Recurrent layers (RNN, LSTM, GRU): the forward and the backward pass over sequences, one time step after the other.

The input has a row for each sequence and step.  The rows of one step are neighbours.  In a packed sequence, a step may
have fewer rows than the step before it, or, run backwards, more.  Computations that do not depend on the step before
are made for all rows together: products with the input, the derivatives of the gates, and the products that compute the
gradients of the weights.  Each step only computes a product with the state's weights, one with the projection if there
is one, and a few passes over its gates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from vmflow.instructions.blob import Array
from vmflow.kernels.choosing import Function, Problem, builds
from vmflow.kernels.problems.recurrent import Layer, Step, Weights

from .half import computes_in

# About the number of elements of gates whose factors are computed together.
_IN_CACHE: Final = 1 << 15


def _carried(state: Array, initial: Array, step: Step) -> Array:
    """Return the state from which a step continues: a sequence that begins with this step has its initial state."""
    if step.size == len(state):
        return state
    if step.size < len(state):
        return state[: step.size]
    return np.concatenate([state, initial[len(state) : step.size]])


def previous(states: Array, initial: Array, steps: list[Step]) -> Array:
    """Return for each row the state before its step."""
    result = np.empty_like(states)
    state = initial
    for step in steps:
        state = _carried(state, initial, step)
        result[step.rows] = state
        state = states[step.rows]
    return result


def last(states: Array, initial: Array, steps: list[Step]) -> Array:
    """Return the state of each sequence after its last step."""
    result = initial.copy()
    for step, size_after in zip(steps, [*[step.size for step in steps[1:]], 0], strict=True):
        if size_after < step.size:
            result[size_after : step.size] = states[step.rows][size_after:]
    return result


def _halved(weights: Weights, parts: int, unhalved: int) -> tuple[Array, Weights]:
    """Return a factor for each row of the gates, 1 for gate `unhalved`, else 1/2; and the gates' parameters times it.

    The logistic function of x is (tanh(x/2) + 1) / 2, so that one call of tanh serves several gates.
    """
    hidden = len(weights.by_input) // parts
    factor = np.full(len(weights.by_input), 0.5, weights.by_input.dtype)
    factor[unhalved * hidden : (unhalved + 1) * hidden] = 1
    column = factor[:, None]
    input_bias = None if weights.input_bias is None else weights.input_bias * factor
    state_bias = None if weights.state_bias is None else weights.state_bias * factor
    halved = Weights(weights.by_input * column, weights.by_state * column, input_bias, state_bias, weights.projection)
    return factor, halved


def _sums_from_input(rows: Array, weights: Weights) -> Array:
    """Return the part of the gates' sums that comes from the input and both biases, for all rows."""
    result = np.matmul(rows, weights.by_input.T)
    if weights.input_bias is not None:
        result += weights.input_bias + weights.state_bias
    return result


class _Passed(NamedTuple):
    """The arrays of a backward pass: the layer's operands, its kept results, and the gradients of its outputs.

    Attributes:
        rows: the input, all steps one below the other.
        initial, weights: see `Layer.split`.
        states, every: the state after each step, and the other kept arrays.
        before: the state before each step.
        by_states, by_last: the gradients by the states, or None, and by the final states.
    """

    rows: Array
    initial: list[Array]
    weights: Weights
    states: Array
    every: list[Array]
    before: Array
    by_states: Array | None
    by_last: list[Array]


# The gradients by the sums that come from the input and from the state, by the initial state, and by the projection.
_Found: TypeAlias = tuple[Array, Array, list[Array], "Array | None"]


# Plain layers


def _rnn_forward(
    rectified: bool, steps: list[Step], rows: Array, begin: list[Array], weights: Weights
) -> tuple[Array, ...]:
    """Run an RNN forward, with relu if `rectified`, else tanh; return (states after each step,)."""
    (initial,) = begin
    states = _sums_from_input(rows, weights)
    by_state = np.ascontiguousarray(weights.by_state.T)
    scratch = np.empty_like(initial)
    state = initial
    for step in steps:
        state = _carried(state, initial, step)
        current = states[step.rows]
        np.add(current, np.matmul(state, by_state, scratch[: step.size]), current)
        state = np.maximum(current, 0, out=current) if rectified else np.tanh(current, current)
    return (states,)


def _rnn_backward(rectified: bool, steps: list[Step], had: _Passed) -> _Found:
    states = had.states
    sums = (states > 0).astype(states.dtype) if rectified else 1 - states * states
    carried = had.by_last[0].copy()
    for step in reversed(steps):
        current = sums[step.rows]
        gradient = carried[: step.size]
        if had.by_states is not None:
            gradient += had.by_states[step.rows]
        np.multiply(current, gradient, current)
        np.matmul(current, had.weights.by_state, gradient)
    return sums, sums, [carried], None


# Long short-term memory: gates in the order input, forget, cell, output


def _lstm_forward(steps: list[Step], rows: Array, begin: list[Array], weights: Weights) -> tuple[Array, ...]:
    """Run an LSTM forward; return the state, the gates and the cell of each step."""
    initial, initial_cell = begin
    factor, weights = _halved(weights, 4, 2)
    offset = 1 - factor
    hidden = initial_cell.shape[1]
    gates = _sums_from_input(rows, weights)
    by_state = np.ascontiguousarray(weights.by_state.T)
    projection = weights.projection
    states = np.empty((len(rows), initial.shape[1]), gates.dtype)
    cells = np.empty((len(rows), hidden), gates.dtype)
    scratch, small = np.empty((len(initial), 4 * hidden), gates.dtype), np.empty_like(initial_cell)
    state, cell = initial, initial_cell
    for step in steps:
        state, cell = _carried(state, initial, step), _carried(cell, initial_cell, step)
        current, free = gates[step.rows], small[: step.size]
        np.add(current, np.matmul(state, by_state, scratch[: step.size]), current)
        np.tanh(current, current)
        np.multiply(current, factor, current)
        np.add(current, offset, current)
        cell = np.multiply(current[:, hidden : 2 * hidden], cell, cells[step.rows])
        np.multiply(current[:, :hidden], current[:, 2 * hidden : 3 * hidden], free)
        np.add(cell, free, cell)
        np.tanh(cell, free)
        if projection is None:
            state = np.multiply(current[:, 3 * hidden :], free, states[step.rows])
        else:
            np.multiply(current[:, 3 * hidden :], free, free)
            state = np.matmul(free, projection.T, states[step.rows])
    return states, gates, cells


def _lstm_backward(steps: list[Step], had: _Passed) -> _Found:
    (gates, cells), initial_cell, projection = had.every, had.initial[1], had.weights.projection
    hidden = initial_cell.shape[1]
    bent = np.tanh(cells)
    sums = _lstm_factors(gates, bent, previous(cells, initial_cell, steps))
    carried, carried_cell = [value.copy() for value in had.by_last]
    scratch = np.empty_like(initial_cell)
    # With a projection: the gradient by the projected state after each step.
    kept = None if projection is None else np.empty((len(gates), carried.shape[1]), gates.dtype)
    for step in reversed(steps):
        current, gate, free = sums[step.rows], gates[step.rows], scratch[: step.size]
        gradient, by_cell = carried[: step.size], carried_cell[: step.size]
        if had.by_states is not None:
            gradient += had.by_states[step.rows]
        by_hidden = gradient
        if kept is not None:
            kept[step.rows] = gradient
            by_hidden = np.matmul(gradient, projection)
        # The gradient by the state adds to that by the cell, times output * (1 - tanh(cell)**2).
        now = bent[step.rows]
        np.multiply(now, now, free)
        np.subtract(1, free, free)
        np.multiply(free, gate[:, 3 * hidden :], free)
        np.multiply(free, by_hidden, free)
        np.add(by_cell, free, by_cell)
        three = current[:, : 3 * hidden].reshape(step.size, 3, hidden)
        np.multiply(three, by_cell[:, None], three)
        np.multiply(current[:, 3 * hidden :], by_hidden, current[:, 3 * hidden :])
        np.multiply(by_cell, gate[:, hidden : 2 * hidden], by_cell)
        np.matmul(current, had.weights.by_state, gradient)
    by_projection = None if kept is None else np.matmul(kept.T, gates[:, 3 * hidden :] * bent)
    return sums, sums, [carried, carried_cell], by_projection


def _lstm_factors(gates: Array, bent: Array, before: Array) -> Array:
    """Return the factors by which the gradient by the cell gives the gradients by the gates' sums.

    For the output gate, the factor is for the gradient by the state before its projection instead.

    Args:
        bent, before: the tanh of the cell after each step, and the cell before each step.
    """
    hidden = bent.shape[1]
    result = np.empty_like(gates)
    several = max(_IN_CACHE // max(4 * hidden, 1), 1)
    for start in range(0, len(gates), several):
        rows_of = slice(start, start + several)
        gate = gates[rows_of]
        taken, new = gate[:, :hidden], gate[:, 2 * hidden : 3 * hidden]
        factor = result[rows_of]
        np.subtract(1, gate, factor)
        np.multiply(factor, gate, factor)  # the derivative of all gates but the cell's, replaced below
        factor[:, :hidden] *= new
        factor[:, hidden : 2 * hidden] *= before[rows_of]
        third = factor[:, 2 * hidden : 3 * hidden]
        np.multiply(new, new, third)
        np.subtract(1, third, third)
        third *= taken
        factor[:, 3 * hidden :] *= bent[rows_of]
    return result


# Gated recurrent units: parameters have the gates in the order reset, update, new
#
# The kept array has four parts: new, reset, update, and the part of the new gate that the reset gate multiplies.  In
# this order, the gradients by the sums from the input are the first three and those from the state the last three.


def new_first(parameter: Array) -> Array:
    """Return a parameter of a GRU with the gate "new" moved from the end to the front."""
    third = len(parameter) // 3
    return np.concatenate([parameter[2 * third :], parameter[: 2 * third]])


def new_last(parameter: Array) -> Array:
    """Return an array in the order of `new_first` with the gate "new" moved back to the end."""
    third = len(parameter) // 3
    return np.concatenate([parameter[third:], parameter[:third]])


def _gru_forward(steps: list[Step], rows: Array, begin: list[Array], weights: Weights) -> tuple[Array, ...]:
    """Run a GRU forward; return the state and the kept array of all steps."""
    (initial,) = begin
    hidden = initial.shape[1]
    _, weights = _halved(weights, 3, 2)
    half = rows.dtype.type(0.5)
    gates = np.empty((len(rows), 4 * hidden), rows.dtype)
    gates[:, : 3 * hidden] = np.matmul(rows, new_first(weights.by_input).T)
    offset = None
    if weights.input_bias is not None and weights.state_bias is not None:
        gates[:, : 3 * hidden] += new_first(weights.input_bias)
        gates[:, hidden : 3 * hidden] += weights.state_bias[: 2 * hidden]
        offset = weights.state_bias[2 * hidden :]
    by_state = np.ascontiguousarray(weights.by_state.T)
    states = np.empty((len(rows), hidden), rows.dtype)
    scratch, small = np.empty((len(initial), 3 * hidden), rows.dtype), np.empty_like(initial)
    state = initial
    for step in steps:
        state = _carried(state, initial, step)
        current, free = gates[step.rows], small[: step.size]
        from_state = np.matmul(state, by_state, scratch[: step.size])
        both = current[:, hidden : 3 * hidden]
        np.add(both, from_state[:, : 2 * hidden], both)
        np.tanh(both, both)
        np.multiply(both, half, both)
        np.add(both, half, both)
        inner = current[:, 3 * hidden :]
        if offset is None:
            inner[...] = from_state[:, 2 * hidden :]
        else:
            np.add(from_state[:, 2 * hidden :], offset, inner)
        new = current[:, :hidden]
        np.multiply(both[:, :hidden], inner, free)
        np.add(new, free, new)
        np.tanh(new, new)
        np.subtract(state, new, free)
        np.multiply(free, both[:, hidden:], free)
        state = np.add(free, new, states[step.rows])
    return states, gates


def _gru_backward(steps: list[Step], had: _Passed) -> _Found:
    (gates,), (by_last,) = had.every, had.by_last
    hidden = by_last.shape[1]
    # Four factors, and then gradients, for each row, in the order of the kept gates.
    sums = _gru_factors(gates, had.before)
    carried = by_last.copy()
    scratch = np.empty_like(carried)
    for step in reversed(steps):
        current, gradient, free = sums[step.rows], carried[: step.size], scratch[: step.size]
        if had.by_states is not None:
            gradient += had.by_states[step.rows]
        four = current.reshape(step.size, 4, hidden)
        np.multiply(four, gradient[:, None], four)
        np.matmul(current[:, hidden:], had.weights.by_state, free)
        np.multiply(gradient, gates[step.rows, 2 * hidden : 3 * hidden], gradient)
        np.add(gradient, free, gradient)
    return sums[:, : 3 * hidden], sums[:, hidden:], [carried], None


def _gru_factors(gates: Array, before: Array) -> Array:
    """Return the factors by which the gradient by the state gives the four gradients of `_gru_backward`."""
    hidden = before.shape[1]
    result = np.empty_like(gates)
    several = max(_IN_CACHE // max(4 * hidden, 1), 1)
    for start in range(0, len(gates), several):
        rows_of = slice(start, start + several)
        new, reset, update, inner = (gates[rows_of, k * hidden : (k + 1) * hidden] for k in range(4))
        by_new, by_reset, by_update, by_inner = (result[rows_of, k * hidden : (k + 1) * hidden] for k in range(4))
        np.subtract(1, update, by_update)
        np.multiply(new, new, by_new)
        np.subtract(1, by_new, by_new)
        by_new *= by_update
        by_update *= update
        by_update *= before[rows_of] - new
        np.multiply(by_new, reset, by_inner)
        np.subtract(1, reset, by_reset)
        by_reset *= by_inner
        by_reset *= inner
    return result


# Layers

_FORWARD: Final[dict[str, Callable[[list[Step], Array, list[Array], Weights], tuple[Array, ...]]]] = {
    "rnn_tanh": partial(_rnn_forward, False),
    "rnn_relu": partial(_rnn_forward, True),
    "lstm": _lstm_forward,
    "gru": _gru_forward,
}

_BACKWARD: Final[dict[str, Callable[[list[Step], _Passed], _Found]]] = {
    "rnn_tanh": partial(_rnn_backward, False),
    "rnn_relu": partial(_rnn_backward, True),
    "lstm": _lstm_backward,
    "gru": _gru_backward,
}


@builds("rnn_layer", "lstm_layer", "gru_layer")
def _forward(problem: Problem) -> Function:
    layer = Layer(*problem.attributes)
    source, output = problem.inputs[0], problem.outputs[0]
    steps = layer.steps(source.shape)
    rows, features, compute = prod(source.shape[:-1]), source.shape[-1], computes_in(source.dtype)

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        array, *rest = [argument.astype(compute, copy=False) for argument in arguments[:-1]]
        initial, weights = layer.split(rest)
        states, *saved = _FORWARD[layer.kind](steps, array.reshape(rows, features), initial, weights)
        # Unless it is empty, `saved` begins with the gates, which are no state; the cells of an LSTM follow.
        finals = [last(every, first, steps) for every, first in zip((states, *saved[1:]), initial, strict=True)]
        shown = [states.reshape(output.shape), *finals]
        kept = [value.reshape(*source.shape[:-1], value.shape[-1]) for value in saved]
        return (*[value.astype(source.dtype.numpy, copy=False) for value in shown], *kept)

    return kernel


def _passed(layer: Layer, steps: list[Step], rows: int, present: tuple[bool, ...], arrays: list[Array]) -> _Passed:
    """Return the arrays of a gradient's kernel as a `_Passed`, with zeros for missing gradients by final states."""
    gradients, saved = sum(present), layer.saved
    given = iter(arrays[:gradients])
    by_states, *by_rest = [next(given) if there else None for there in present]
    source, *rest = arrays[gradients + saved :]
    initial, weights = layer.split(rest)
    shown = initial[0].shape[1]
    states = arrays[gradients].reshape(rows, shown)
    return _Passed(
        source.reshape(rows, source.shape[-1]),
        initial,
        weights,
        states,
        [array.reshape(rows, array.shape[-1]) for array in arrays[gradients + 1 : gradients + saved]],
        previous(states, initial[0], steps),
        None if by_states is None else by_states.reshape(rows, shown),
        [np.zeros_like(value) if have is None else have for have, value in zip(by_rest, initial, strict=True)],
    )


def _by_operands(layer: Layer, had: _Passed, found: _Found) -> list[Callable[[], Array]]:
    """Return for each operand of the layer a function that returns its gradient, since not all are wanted."""
    from_input, from_state, by_initial, by_projection = found

    def ordered(parameter: Array) -> Array:
        return new_last(parameter) if layer.kind == "gru" else parameter

    def by_input() -> Array:
        matrix = had.weights.by_input
        return np.matmul(from_input, new_first(matrix) if layer.kind == "gru" else matrix)

    makers: list[Callable[[], Any]] = [by_input, *[lambda value=value: value for value in by_initial]]
    makers += [lambda: ordered(np.matmul(from_input.T, had.rows)), lambda: np.matmul(from_state.T, had.before)]
    if layer.biased:
        makers += [lambda: ordered(np.add.reduce(from_input, 0)), lambda: np.add.reduce(from_state, 0)]
    if layer.projected:
        makers.append(lambda: by_projection)
    return makers


@builds("rnn_layer_gradient", "lstm_layer_gradient", "gru_layer_gradient")
def _backward(problem: Problem) -> Function:
    """Build the kernel of a layer's gradients.

    Attributes: the layer's; for its output and each final state, whether the gradient exists; for each operand, whether
    its gradient is wanted.  Operands: the existing gradients, the results saved by the forward pass, the layer's
    operands.
    """
    given, present, wanted = cast("tuple[Any, tuple[bool, ...], tuple[bool, ...]]", problem.attributes)
    layer = Layer(*given)
    source = problem.inputs[sum(present) + layer.saved]
    steps = layer.steps(source.shape)
    rows, compute, to = prod(source.shape[:-1]), computes_in(source.dtype), source.dtype.numpy

    def kernel(*arguments: Any) -> tuple[Array, ...]:
        had = _passed(
            layer, steps, rows, present, [argument.astype(compute, copy=False) for argument in arguments[:-1]]
        )
        makers = _by_operands(layer, had, _BACKWARD[layer.kind](steps, had))
        made = [make() for make, want in zip(makers, wanted, strict=True) if want]
        results = zip(made, problem.outputs, strict=True)
        return tuple([value.astype(to, copy=False).reshape(of.shape) for value, of in results])

    return kernel
