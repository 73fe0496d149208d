"""The arithmetic of recurrent layers: a whole sequence forward, and backward again, step after step.

All rows of a sequence lie behind each other: those of one step are neighbours, and a step may have fewer rows than the
one before it, as in a packed sequence.  Work that does not depend on the step before is done for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from vmflow.kernels.choosing import Problem
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.recurrent import Layer, Step, Weights

from .arrays import by_arrays


def _carried(xp: Any, state: Any, initial: Any, step: Step) -> Any:
    """The state from which a step goes on: a row that begins with this step has its initial one."""
    if step.size <= len(state):
        return state[: step.size]
    return xp.concatenate([state, initial[len(state) : step.size]])


def _previous(xp: Any, states: Any, initial: Any, steps: list[Step]) -> Any:
    """For each row the state before its step."""
    result = xp.empty_like(states)
    state = initial
    for step in steps:
        result[step.rows] = _carried(xp, state, initial, step)
        state = states[step.rows]
    return result


def _last(states: Any, initial: Any, steps: list[Step]) -> Any:
    """The state of each sequence after its last step."""
    result = initial.copy()
    for step, size_after in zip(steps, [*[step.size for step in steps[1:]], 0], strict=True):
        if size_after < step.size:
            result[size_after : step.size] = states[step.rows][size_after:]
    return result


def _sums_from_input(xp: Any, rows: Any, weights: Weights) -> Any:
    """The inputs of the activations of all rows, without the part that comes from the state."""
    result = xp.matmul(rows, weights.by_input.T)
    return result if weights.input_bias is None else result + (weights.input_bias + weights.state_bias)


def _logistic(xp: Any, array: Any) -> Any:
    """1 / (1 + exp(-x)), which by way of tanh overflows nowhere."""
    half = array.dtype.type(0.5)
    return xp.tanh(array * half) * half + half


class _Passed(NamedTuple):
    """The arrays of a backward pass: the layer's operands, the results that it has kept, and the gradients that came.

    Attributes:
        rows: the input, all steps one below the other.
        initial, weights: see `Layer.split`.
        states, every: the state after each step, and what else was kept.
        before: the state before each step.
        by_states, by_last: the gradients by the states, None for none, and by what was there after the last step.
    """

    rows: Any
    initial: list[Any]
    weights: Weights
    states: Any
    every: list[Any]
    before: Any
    by_states: Any
    by_last: list[Any]

    def by_state(self, carried: Any, step: Step) -> Any:
        """The gradient by the state after a step, of which the part that comes from later steps is `carried`."""
        later = carried[: step.size]
        return later if self.by_states is None else later + self.by_states[step.rows]


# The gradients by the sums that come from the input and from the state, by the initial state, and by the projection.
_Found: TypeAlias = "tuple[Any, Any, list[Any], Any]"


# Plain layers


def _rnn_forward(
    rectified: bool, xp: Any, steps: list[Step], rows: Any, begin: list[Any], weights: Weights
) -> tuple[Any, ...]:
    """The state after each step."""
    (initial,) = begin
    states = _sums_from_input(xp, rows, weights)
    state = initial
    for step in steps:
        total = states[step.rows] + xp.matmul(_carried(xp, state, initial, step), weights.by_state.T)
        states[step.rows] = xp.maximum(total, 0) if rectified else xp.tanh(total)
        state = states[step.rows]
    return (states,)


def _rnn_backward(rectified: bool, xp: Any, steps: list[Step], had: _Passed) -> _Found:
    states = had.states
    sums = (states > 0).astype(states.dtype) if rectified else 1 - states * states
    carried = had.by_last[0].copy()
    for step in reversed(steps):
        sums[step.rows] *= had.by_state(carried, step)
        carried[: step.size] = xp.matmul(sums[step.rows], had.weights.by_state)
    return sums, sums, [carried], None


# Long short-term memory: gates in the order input, forget, cell, output


def _lstm_forward(xp: Any, steps: list[Step], rows: Any, begin: list[Any], weights: Weights) -> tuple[Any, ...]:
    """State, gates and cell after each step."""
    initial, initial_cell = begin
    hidden = initial_cell.shape[1]
    gates = _sums_from_input(xp, rows, weights)
    states = xp.empty((len(rows), initial.shape[1]), gates.dtype)
    cells = xp.empty((len(rows), hidden), gates.dtype)
    state, cell = initial, initial_cell
    for step in steps:
        state, cell = _carried(xp, state, initial, step), _carried(xp, cell, initial_cell, step)
        current = gates[step.rows]
        current += xp.matmul(state, weights.by_state.T)
        taken, kept, new, shown = _parts(current, 4)
        for gate in (taken, kept, shown):
            gate[...] = _logistic(xp, gate)
        new[...] = xp.tanh(new)
        cell = kept * cell + taken * new
        state = shown * xp.tanh(cell)
        if weights.projection is not None:
            state = xp.matmul(state, weights.projection.T)
        cells[step.rows], states[step.rows] = cell, state
    return states, gates, cells


def _parts(array: Any, count: int) -> list[Any]:
    """Views of so many equal parts of the columns."""
    width = array.shape[1] // count
    return [array[:, part * width : (part + 1) * width] for part in range(count)]


def _lstm_backward(xp: Any, steps: list[Step], had: _Passed) -> _Found:
    (gates, cells), initial_cell, projection = had.every, had.initial[1], had.weights.projection
    bent = xp.tanh(cells)
    sums = _lstm_factors(xp, gates, bent, _previous(xp, cells, initial_cell, steps))
    carried, carried_cell = [array.copy() for array in had.by_last]
    # With a projection: the gradient by the projected state after each step.
    by_states = None if projection is None else xp.empty((len(gates), carried.shape[1]), gates.dtype)
    for step in reversed(steps):
        _, kept, _, shown = _parts(gates[step.rows], 4)
        by_hidden = had.by_state(carried, step)
        if by_states is not None:
            by_states[step.rows] = by_hidden
            by_hidden = xp.matmul(by_hidden, projection)
        now = bent[step.rows]
        by_cell = carried_cell[: step.size] + (1 - now * now) * shown * by_hidden
        for part, gradient in zip(_parts(sums[step.rows], 4), (by_cell, by_cell, by_cell, by_hidden), strict=True):
            part *= gradient
        carried_cell[: step.size] = by_cell * kept
        carried[: step.size] = xp.matmul(sums[step.rows], had.weights.by_state)
    by_projection = None if by_states is None else xp.matmul(by_states.T, _parts(gates, 4)[3] * bent)
    return sums, sums, [carried, carried_cell], by_projection


def _lstm_factors(xp: Any, gates: Any, bent: Any, before: Any) -> Any:
    """For each gate, the factor of the gradient by the cell (three gates) or by the state (the last)."""
    taken, kept, new, shown = _parts(gates, 4)
    factors = [
        taken * (1 - taken) * new,
        kept * (1 - kept) * before,
        (1 - new * new) * taken,
        shown * (1 - shown) * bent,
    ]
    return xp.concatenate(factors, axis=1)


# Gated recurrent units: gates in the order reset, update, new
#
# Kept are four for each row: new, reset, update, and the part of the new one that the reset gate is multiplied with.
# In this order, the gradients by the sums from the input are the first three and those from the state the last three.


def _new_first(xp: Any, parameter: Any) -> Any:
    """The opposite of `_new_last`."""
    third = len(parameter) // 3
    return xp.concatenate([parameter[2 * third :], parameter[: 2 * third]])


def _new_last(xp: Any, parameter: Any) -> Any:
    """From the order in which gradients by sums from the input are kept, to that of the parameters."""
    third = len(parameter) // 3
    return xp.concatenate([parameter[third:], parameter[:third]])


def _gru_forward(xp: Any, steps: list[Step], rows: Any, begin: list[Any], weights: Weights) -> tuple[Any, ...]:
    """State and gates after each step."""
    (initial,) = begin
    hidden = initial.shape[1]
    from_input = xp.matmul(rows, weights.by_input.T)
    if weights.input_bias is not None:
        from_input += weights.input_bias
    gates = xp.empty((len(rows), 4 * hidden), rows.dtype)
    states = xp.empty((len(rows), hidden), rows.dtype)
    state = initial
    for step in steps:
        state = _carried(xp, state, initial, step)
        from_state = xp.matmul(state, weights.by_state.T)
        if weights.state_bias is not None:
            from_state += weights.state_bias
        current = from_input[step.rows]
        both = _logistic(xp, current[:, : 2 * hidden] + from_state[:, : 2 * hidden])
        reset, update = _parts(both, 2)
        inner = from_state[:, 2 * hidden :]
        new = xp.tanh(current[:, 2 * hidden :] + reset * inner)
        state = new + update * (state - new)
        states[step.rows] = state
        gates[step.rows] = xp.concatenate([new, both, inner], axis=1)
    return states, gates


def _gru_backward(xp: Any, steps: list[Step], had: _Passed) -> _Found:
    (gates,), (by_last,) = had.every, had.by_last
    hidden = by_last.shape[1]
    # Four for each row; see above.
    sums = _gru_factors(xp, gates, had.before)
    update = _parts(gates, 4)[2]
    carried = by_last.copy()
    for step in reversed(steps):
        gradient = had.by_state(carried, step)
        current = sums[step.rows]
        for part in _parts(current, 4):
            part *= gradient
        carried[: step.size] = gradient * update[step.rows] + xp.matmul(current[:, hidden:], had.weights.by_state)
    return sums[:, : 3 * hidden], sums[:, hidden:], [carried], None


def _gru_factors(xp: Any, gates: Any, before: Any) -> Any:
    """For each of the four, the factor of the gradient by the state."""
    new, reset, update, inner = _parts(gates, 4)
    by_new = (1 - new * new) * (1 - update)
    by_inner = by_new * reset
    by_reset = (1 - reset) * by_inner * inner
    by_update = update * (1 - update) * (before - new)
    return xp.concatenate([by_new, by_reset, by_update, by_inner], axis=1)


# Layers

_FORWARD: Final[dict[str, Callable[..., tuple[Any, ...]]]] = {
    "rnn_tanh": partial(_rnn_forward, False),
    "rnn_relu": partial(_rnn_forward, True),
    "lstm": _lstm_forward,
    "gru": _gru_forward,
}

_BACKWARD: Final[dict[str, Callable[..., _Found]]] = {
    "rnn_tanh": partial(_rnn_backward, False),
    "rnn_relu": partial(_rnn_backward, True),
    "lstm": _lstm_backward,
    "gru": _gru_backward,
}


@by_arrays("rnn_layer", "lstm_layer", "gru_layer")
def _forward(xp: Any, problem: Problem, *arguments: Any) -> None:
    layer = Layer(*problem.attributes)
    count = len(problem.inputs)
    outs = arguments[count:]
    wide = computes_in(problem.inputs[0].dtype)
    array, *rest = [each.astype(wide, copy=False) for each in arguments[:count]]
    initial, weights = layer.split(rest)
    steps = layer.steps(array.shape)
    rows = array.reshape(prod(array.shape[:-1]), array.shape[-1])
    states, *saved = _FORWARD[layer.kind](xp, steps, rows, initial, weights)
    # The gates, which are kept first, are no state; the cells behind them are.
    finals = [_last(every, first, steps) for every, first in zip((states, *saved[1:]), initial, strict=True)]
    for out, result in zip(outs, [states, *finals, *saved], strict=True):
        xp.copyto(out, result.reshape(out.shape), casting="unsafe")


def _passed(xp: Any, layer: Layer, present: tuple[bool, ...], arrays: list[Any]) -> tuple[_Passed, list[Step]]:
    """The arrays by their names, and the steps."""
    gradients, saved = sum(present), layer.saved
    given = iter(arrays[:gradients])
    by_states, *by_rest = [next(given) if there else None for there in present]
    source, *rest = arrays[gradients + saved :]
    steps = layer.steps(source.shape)
    rows = prod(source.shape[:-1])
    initial, weights = layer.split(rest)
    shown = initial[0].shape[1]
    states = arrays[gradients].reshape(rows, shown)
    passed = _Passed(
        source.reshape(rows, source.shape[-1]),
        initial,
        weights,
        states,
        [each.reshape(rows, each.shape[-1]) for each in arrays[gradients + 1 : gradients + saved]],
        _previous(xp, states, initial[0], steps),
        None if by_states is None else by_states.reshape(rows, shown),
        [xp.zeros_like(each) if have is None else have for have, each in zip(by_rest, initial, strict=True)],
    )
    return passed, steps


def _by_operands(xp: Any, layer: Layer, had: _Passed, found: _Found) -> list[Callable[[], Any]]:
    """For each operand what makes the gradient by it, since not all are wanted."""
    from_input, from_state, by_initial, by_projection = found
    is_gru = layer.kind == "gru"

    def ordered(parameter: Any) -> Any:
        return _new_last(xp, parameter) if is_gru else parameter

    def by_input() -> Any:
        matrix = had.weights.by_input
        return xp.matmul(from_input, _new_first(xp, matrix) if is_gru else matrix)

    makers: list[Callable[[], Any]] = [by_input, *[lambda array=array: array for array in by_initial]]
    makers += [lambda: ordered(xp.matmul(from_input.T, had.rows)), lambda: xp.matmul(from_state.T, had.before)]
    if layer.biased:
        makers += [lambda: ordered(xp.sum(from_input, axis=0)), lambda: xp.sum(from_state, axis=0)]
    if layer.projected:
        makers.append(lambda: by_projection)
    return makers


@by_arrays("rnn_layer_gradient", "lstm_layer_gradient", "gru_layer_gradient")
def _backward(xp: Any, problem: Problem, *arguments: Any) -> None:
    """Attributes: those of the layer; which of the shown results have a gradient; which operands want one.

    Operands: the gradients there are, the results that were saved, the operands of the layer.
    """
    attributes, present, wanted = problem.attributes
    layer = Layer(*attributes)
    count = len(problem.inputs)
    outs = iter(arguments[count:])
    wide = computes_in(problem.inputs[sum(present) + layer.saved].dtype)
    had, steps = _passed(xp, layer, present, [each.astype(wide, copy=False) for each in arguments[:count]])
    makers = _by_operands(xp, layer, had, _BACKWARD[layer.kind](xp, steps, had))
    for make, want in zip(makers, wanted, strict=True):
        if want:
            out = next(outs)
            xp.copyto(out, make().reshape(out.shape), casting="unsafe")
