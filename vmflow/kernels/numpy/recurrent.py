"""The arithmetic of recurrent layers: a whole sequence forward, and backward again, step after step.

All rows of a sequence lie behind each other: those of one step are neighbours, and a step may have fewer rows than the
one before it, as in a packed sequence.  What does not depend on the step before is done for all rows at once: products
with the input, the derivatives of the gates, and the products that give the gradients of the weights.  What is left
for a step is one product with the state and a handful of passes over its gates.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from vmflow.instructions.blob import Array

# Elements that are worked on while they are in the cache.
_IN_CACHE: Final = 1 << 15


class Step(NamedTuple):
    """One step: its `size` rows are ``start`` up to ``stop``."""

    start: int
    stop: int
    size: int


def steps_of(sizes: tuple[int, ...], reverse: bool) -> list[Step]:
    """The steps of a sequence with these numbers of rows, in the order in which they run."""
    found: list[Step] = []
    start = 0
    for size in sizes:
        found.append(Step(start, start + size, size))
        start += size
    return found[::-1] if reverse else found


class Weights(NamedTuple):
    """The parameters of a layer; `input_bias`, `state_bias` and `projection` may be None."""

    by_input: Array
    by_state: Array
    input_bias: Array | None
    state_bias: Array | None
    projection: Array | None


def _carried(xp: Any, state: Array, initial: Array, step: Step) -> Array:
    """The state from which a step goes on: a row that begins with this step has its initial one."""
    if step.size == len(state):
        return state
    if step.size < len(state):
        return state[: step.size]
    return xp.concatenate([state, initial[len(state) : step.size]])


def previous(xp: Any, states: Array, initial: Array, steps: list[Step]) -> Array:
    """For each row the state before its step."""
    result = xp.empty_like(states)
    state = initial
    for step in steps:
        state = _carried(xp, state, initial, step)
        result[step.start : step.stop] = state
        state = states[step.start : step.stop]
    return result


def last(xp: Any, states: Array, initial: Array, steps: list[Step]) -> Array:
    """The state of each sequence after its last step."""
    result = initial.copy()
    for step, size_after in zip(steps, [*[it.size for it in steps[1:]], 0], strict=True):
        if size_after < step.size:
            result[size_after : step.size] = states[step.start + size_after : step.stop]
    return result


def _halved(xp: Any, weights: Weights, parts: int, straight: int) -> tuple[Array, Weights]:
    """The factor of each gate, and the weights multiplied by it: 1/2 for all but number `straight`.

    The logistic function of x is (tanh(x/2) + 1) / 2, so that one call of tanh serves all gates.
    """
    hidden = len(weights.by_input) // parts
    factor = xp.full(len(weights.by_input), 0.5, weights.by_input.dtype)
    factor[straight * hidden : (straight + 1) * hidden] = 1
    column = factor[:, None]
    input_bias = None if weights.input_bias is None else weights.input_bias * factor
    state_bias = None if weights.state_bias is None else weights.state_bias * factor
    halved = Weights(weights.by_input * column, weights.by_state * column, input_bias, state_bias, weights.projection)
    return factor, halved


# Plain layers


def rnn_forward(xp: Any, steps: list[Step], rectified: bool, rows: Array, initial: Array, weights: Weights) -> Array:
    """The state after each step."""
    states = xp.matmul(rows, weights.by_input.T)
    if weights.input_bias is not None:
        states += weights.input_bias + weights.state_bias
    by_state = xp.ascontiguousarray(weights.by_state.T)
    room = xp.empty_like(initial)
    state = initial
    for step in steps:
        state = _carried(xp, state, initial, step)
        current = states[step.start : step.stop]
        xp.add(current, xp.matmul(state, by_state, room[: step.size]), current)
        state = xp.maximum(current, 0, out=current) if rectified else xp.tanh(current, current)
    return states


def rnn_backward(
    xp: Any, steps: list[Step], rectified: bool, states: Array, by_states: Array | None, by_last: Array, by_state: Array
) -> tuple[Array, Array]:
    """The gradients by the sums that go into the activation, and by the initial state."""
    sums = (states > 0).astype(states.dtype) if rectified else 1 - states * states
    carried = by_last.copy()
    for step in reversed(steps):
        current = sums[step.start : step.stop]
        gradient = carried[: step.size]
        if by_states is not None:
            gradient += by_states[step.start : step.stop]
        xp.multiply(current, gradient, current)
        xp.matmul(current, by_state, gradient)
    return sums, carried


# Long short-term memory: gates in the order input, forget, cell, output


def lstm_forward(
    xp: Any, steps: list[Step], rows: Array, initial: Array, initial_cell: Array, weights: Weights
) -> tuple[Array, Array, Array]:
    """State, gates and cell after each step."""
    factor, weights = _halved(xp, weights, 4, 2)
    offset = 1 - factor
    hidden = initial_cell.shape[1]
    gates = xp.matmul(rows, weights.by_input.T)
    if weights.input_bias is not None:
        gates += weights.input_bias + weights.state_bias
    by_state = xp.ascontiguousarray(weights.by_state.T)
    projection = weights.projection
    states = xp.empty((len(rows), initial.shape[1]), gates.dtype)
    cells = xp.empty((len(rows), hidden), gates.dtype)
    room, small = xp.empty((len(initial), 4 * hidden), gates.dtype), xp.empty_like(initial_cell)
    state, cell = initial, initial_cell
    for step in steps:
        state, cell = _carried(xp, state, initial, step), _carried(xp, cell, initial_cell, step)
        rows_of = slice(step.start, step.stop)
        current, free = gates[rows_of], small[: step.size]
        xp.add(current, xp.matmul(state, by_state, room[: step.size]), current)
        xp.tanh(current, current)
        xp.multiply(current, factor, current)
        xp.add(current, offset, current)
        cell = xp.multiply(current[:, hidden : 2 * hidden], cell, cells[rows_of])
        xp.multiply(current[:, :hidden], current[:, 2 * hidden : 3 * hidden], free)
        xp.add(cell, free, cell)
        xp.tanh(cell, free)
        if projection is None:
            state = xp.multiply(current[:, 3 * hidden :], free, states[rows_of])
        else:
            xp.multiply(current[:, 3 * hidden :], free, free)
            state = xp.matmul(free, projection.T, states[rows_of])
    return states, gates, cells


class LstmGradients(NamedTuple):
    """Gradients by the sums that go into the gates, by the initial state and cell, and by the projection."""

    sums: Array
    initial: Array
    initial_cell: Array
    projection: Array | None


def lstm_backward(
    xp: Any,
    steps: list[Step],
    gates: Array,
    cells: Array,
    initial_cell: Array,
    by_states: Array | None,
    by_last: list[Array],
    weights: Weights,
) -> LstmGradients:
    """See `LstmGradients`."""
    hidden = initial_cell.shape[1]
    bent = xp.tanh(cells)
    sums = _lstm_factors(xp, gates, bent, previous(xp, cells, initial_cell, steps))
    carried, carried_cell = by_last[0].copy(), by_last[1].copy()
    room = xp.empty_like(initial_cell)
    projection = weights.projection
    # With a projection: the gradient by the projected state after each step.
    kept = None if projection is None else xp.empty((len(gates), carried.shape[1]), gates.dtype)
    for step in reversed(steps):
        rows_of = slice(step.start, step.stop)
        current, gate, free = sums[rows_of], gates[rows_of], room[: step.size]
        gradient, by_cell = carried[: step.size], carried_cell[: step.size]
        if by_states is not None:
            gradient += by_states[rows_of]
        by_hidden = gradient
        if kept is not None:
            kept[rows_of] = gradient
            by_hidden = xp.matmul(gradient, projection)
        # output * (1 - tanh(cell)**2), by which the cell hears from the state
        now = bent[rows_of]
        xp.multiply(now, now, free)
        xp.subtract(1, free, free)
        xp.multiply(free, gate[:, 3 * hidden :], free)
        xp.multiply(free, by_hidden, free)
        xp.add(by_cell, free, by_cell)
        three = current[:, : 3 * hidden].reshape(step.size, 3, hidden)
        xp.multiply(three, by_cell[:, None], three)
        xp.multiply(current[:, 3 * hidden :], by_hidden, current[:, 3 * hidden :])
        xp.multiply(by_cell, gate[:, hidden : 2 * hidden], by_cell)
        xp.matmul(current, weights.by_state, gradient)
    by_projection = None if kept is None else xp.matmul(kept.T, gates[:, 3 * hidden :] * bent)
    return LstmGradients(sums, carried, carried_cell, by_projection)


def _lstm_factors(xp: Any, gates: Array, bent: Array, before: Array) -> Array:
    """What the gradient by the cell (three gates) or by the state (the last) is multiplied by, for each gate."""
    hidden = bent.shape[1]
    result = xp.empty_like(gates)
    several = max(_IN_CACHE // max(4 * hidden, 1), 1)
    for start in range(0, len(gates), several):
        rows_of = slice(start, start + several)
        gate = gates[rows_of]
        taken, new = gate[:, :hidden], gate[:, 2 * hidden : 3 * hidden]
        factor = result[rows_of]
        xp.subtract(1, gate, factor)
        xp.multiply(factor, gate, factor)  # right for three of the four
        factor[:, :hidden] *= new
        factor[:, hidden : 2 * hidden] *= before[rows_of]
        third = factor[:, 2 * hidden : 3 * hidden]
        xp.multiply(new, new, third)
        xp.subtract(1, third, third)
        third *= taken
        factor[:, 3 * hidden :] *= bent[rows_of]
    return result


# Gated recurrent units: gates in the order reset, update, new
#
# Kept are four for each row: new, reset, update, and the part of the new one that the reset gate is multiplied with.
# In this order, the gradients by the sums from the input are the first three and those from the state the last three.


def new_first(xp: Any, parameter: Array) -> Array:
    """The opposite of `new_last`."""
    third = len(parameter) // 3
    return xp.concatenate([parameter[2 * third :], parameter[: 2 * third]])


def new_last(xp: Any, parameter: Array) -> Array:
    """From the order in which gradients by sums from the input are kept, to that of the parameters."""
    third = len(parameter) // 3
    return xp.concatenate([parameter[third:], parameter[:third]])


def gru_forward(xp: Any, steps: list[Step], rows: Array, initial: Array, weights: Weights) -> tuple[Array, Array]:
    """State and gates after each step."""
    hidden = initial.shape[1]
    _, weights = _halved(xp, weights, 3, 2)
    half = rows.dtype.type(0.5)
    gates = xp.empty((len(rows), 4 * hidden), rows.dtype)
    gates[:, : 3 * hidden] = xp.matmul(rows, new_first(xp, weights.by_input).T)
    offset = None
    if weights.input_bias is not None and weights.state_bias is not None:
        gates[:, : 3 * hidden] += new_first(xp, weights.input_bias)
        gates[:, hidden : 3 * hidden] += weights.state_bias[: 2 * hidden]
        offset = weights.state_bias[2 * hidden :]
    by_state = xp.ascontiguousarray(weights.by_state.T)
    states = xp.empty((len(rows), hidden), rows.dtype)
    room, small = xp.empty((len(initial), 3 * hidden), rows.dtype), xp.empty_like(initial)
    state = initial
    for step in steps:
        state = _carried(xp, state, initial, step)
        rows_of = slice(step.start, step.stop)
        current, free = gates[rows_of], small[: step.size]
        from_state = xp.matmul(state, by_state, room[: step.size])
        both = current[:, hidden : 3 * hidden]
        xp.add(both, from_state[:, : 2 * hidden], both)
        xp.tanh(both, both)
        xp.multiply(both, half, both)
        xp.add(both, half, both)
        inner = current[:, 3 * hidden :]
        if offset is None:
            inner[...] = from_state[:, 2 * hidden :]
        else:
            xp.add(from_state[:, 2 * hidden :], offset, inner)
        new = current[:, :hidden]
        xp.multiply(both[:, :hidden], inner, free)
        xp.add(new, free, new)
        xp.tanh(new, new)
        xp.subtract(state, new, free)
        xp.multiply(free, both[:, hidden:], free)
        state = xp.add(free, new, states[rows_of])
    return states, gates


def gru_backward(
    xp: Any,
    steps: list[Step],
    gates: Array,
    before: Array,
    by_states: Array | None,
    by_last: Array,
    by_state: Array,
) -> tuple[Array, Array]:
    """The gradients by the sums, four for each row, and by the initial state."""
    hidden = by_last.shape[1]
    sums = _gru_factors(xp, gates, before)
    carried = by_last.copy()
    room = xp.empty_like(carried)
    for step in reversed(steps):
        rows_of = slice(step.start, step.stop)
        current, gradient, free = sums[rows_of], carried[: step.size], room[: step.size]
        if by_states is not None:
            gradient += by_states[rows_of]
        four = current.reshape(step.size, 4, hidden)
        xp.multiply(four, gradient[:, None], four)
        xp.matmul(current[:, hidden:], by_state, free)
        xp.multiply(gradient, gates[rows_of, 2 * hidden : 3 * hidden], gradient)
        xp.add(gradient, free, gradient)
    return sums, carried


def _gru_factors(xp: Any, gates: Array, before: Array) -> Array:
    """What the gradient by the state is multiplied by, for each of the four."""
    hidden = before.shape[1]
    result = xp.empty_like(gates)
    several = max(_IN_CACHE // max(4 * hidden, 1), 1)
    for start in range(0, len(gates), several):
        rows_of = slice(start, start + several)
        new, reset, update, inner = (gates[rows_of, k * hidden : (k + 1) * hidden] for k in range(4))
        by_new, by_reset, by_update, by_inner = (result[rows_of, k * hidden : (k + 1) * hidden] for k in range(4))
        xp.subtract(1, update, by_update)
        xp.multiply(new, new, by_new)
        xp.subtract(1, by_new, by_new)
        by_new *= by_update
        by_update *= update
        by_update *= before[rows_of] - new
        xp.multiply(by_new, reset, by_inner)
        xp.subtract(1, reset, by_reset)
        by_reset *= by_inner
        by_reset *= inner
    return result
