"""The kernels of recurrent layers' time steps, which go through the hidden units of a step's rows (sequences)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from vmflow.kernels.expressions.sources import elements
from vmflow.kernels.problems.recurrent import Layer
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .sources import ELEMENTS_PRELUDE, STORED
from .walks import Walk, part_of, standing, walk

# Arrays by their names in kernels.
Named: TypeAlias = dict[str, DeviceArray]


class Step(NamedTuple):
    """A time step of a recurrent layer, between the steps before and after it in the forward pass.  Its rows are its
    sequences.

    Attributes:
        begin, size: the first of its rows among the rows of all steps, and their number.
        before: the first row of the step before it.
        continued: the number of its first rows that continue from the step before; later rows begin with the initial
            state.
        lasting: the number of its first rows that continue in the step after it.
    """

    begin: int
    size: int
    before: int
    continued: int
    lasting: int

    def of(self, array: DeviceArray) -> DeviceArray:
        """Return this step's rows of an array that has the rows of all steps."""
        return part_of(array, 0, self.begin, self.begin + self.size)

    def before_of(self, array: DeviceArray) -> DeviceArray:
        """Return the rows from which this step continues, of an array that has the rows of all steps."""
        return part_of(array, 0, self.before, self.before + self.continued)

    def first_of(self, array: DeviceArray) -> DeviceArray:
        """Return as many rows as this step has, the first ones, of an array with a row for each sequence."""
        return part_of(array, 0, 0, self.size)

    def arrays(self, every: Named, each: Named) -> Named:
        """Return a kernel's arrays by name: this step's rows of the arrays `every` (of all steps), the rows of the
        states and cells from which the step continues, and the whole arrays `each` (with a row for each sequence).
        """
        named = {name: self.of(array) for name, array in every.items()} | each
        named["state_before"] = self.before_of(every["states"])
        if "cells" in every:
            named["cell_before"] = self.before_of(every["cells"])
        return named


def steps_of(layer: Layer, shape: tuple[int, ...]) -> tuple[Step, ...]:
    """Return a layer's time steps for an input of this shape, in the order of the forward pass."""
    steps = layer.steps(shape)
    sizes = [0, *[step.size for step in steps], 0]
    begins = [0, *[step.rows.start for step in steps]]
    return tuple(
        [
            Step(step.rows.start, step.size, begins[place], min(step.size, sizes[place]), min(step.size, after))
            for place, (step, after) in enumerate(zip(steps, sizes[2:], strict=True))
        ]
    )


class StepKernel(NamedTuple):
    """The kernel of a time step, in C++, for float32 and float64.

    Attributes:
        name: for people, and a part of the kernel's name.
        outs, arrays: the names of arrays that are written, and of those that are only read.
        lines: statements.  A thread has the `row` within the step, and the index `at` of its unit in an array with a
            column for each unit; `hidden`, the number of units; `continued` and `lasting` of the `Step`; and the type
            `value`.
    """

    name: str
    outs: tuple[str, ...]
    arrays: tuple[str, ...]
    lines: tuple[str, ...]

    def launch(self, launcher: Launcher, step: Step, hidden: int, named: Named) -> None:
        """Run the kernel for `hidden` units of each row of a step."""
        outs, arrays = ([standing(named[name], 2) for name in names] for names in (self.outs, self.arrays))
        program = _walk(self, named[self.outs[0]].dtype.name)
        numbers = hidden, step.continued, step.lasting
        walk(launcher, program, (step.size, hidden), outs, arrays, [(1, 0), (hidden, 1)], numbers)


@lru_cache(None)
def _walk(kernel: StepKernel, dtype: str) -> Walk:
    lines = (f"typedef {STORED[dtype]} value;", "const int64 row = row_place, at = at_place;", *kernel.lines)
    return Walk(
        kernel.name,
        tuple([(name, dtype) for name in kernel.outs]),
        tuple([(name, dtype) for name in kernel.arrays]),
        ("row", "at"),
        ("hidden", "continued", "lasting"),
        lines,
        functions=_functions(),
    )


@lru_cache(None)
def _functions() -> str:
    return ELEMENTS_PRELUDE + elements() + _ACTIVATIONS


# The sigmoid, 1 / (1 + exp(-x)), is computed by tanh, which does not overflow.
_ACTIVATIONS: Final = """
INLINED float tangent(float x) { return tanh_f(x); }
INLINED double tangent(double x) { return tanh(x); }
template <typename T> INLINED T logistic(T x) { return tangent(x * (T)0.5) * (T)0.5 + (T)0.5; }
"""


def _before(name: str) -> str:
    """Return the C++ expression of an element of the state, or of the cell, before the step."""
    return f"(row < continued ? {name}_before : initial_{name})[at]"


# Forward
#
# Before the steps run, the gates' sums from the input are computed for all rows, and their sums from the initial state
# for all sequences.


_FROM_STATE: Final = "const value* from = row < continued ? from_state : from_initial;"


def _rnn(rectified: bool) -> StepKernel:
    activation = "total > 0 || total != total ? total : 0" if rectified else "tangent(total)"
    lines = (
        _FROM_STATE,
        "const value total = states[at] + from[at];",
        f"const value state = {activation};",
        "states[at] = state;",
        "if (row >= lasting) last_state[at] = state;",
    )
    name = "rnn_relu_step" if rectified else "rnn_tanh_step"
    return StepKernel(name, ("states", "last_state"), ("from_state", "from_initial"), lines)


def _lstm(projected: bool) -> StepKernel:
    """Build the step of an LSTM.  With a projection, it writes `unprojected`, from which a product makes the state."""
    state = "unprojected" if projected else "states"
    lines = (
        _FROM_STATE,
        "const int64 first = at + row * 3 * hidden;",
        "auto sum = [&](int64 gate) { return gates[first + gate * hidden] + from[first + gate * hidden]; };",
        "const value taken = logistic(sum(0)), kept = logistic(sum(1)), fresh = tangent(sum(2));",
        "const value shown = logistic(sum(3));",
        f"const value cell = kept * {_before('cell')} + taken * fresh;",
        "const value state = shown * tangent(cell);",
        "gates[first] = taken;",
        "gates[first + hidden] = kept;",
        "gates[first + 2 * hidden] = fresh;",
        "gates[first + 3 * hidden] = shown;",
        "cells[at] = cell;",
        f"{state}[at] = state;",
        "if (row >= lasting) last_cell[at] = cell;",
        *([] if projected else ["if (row >= lasting) last_state[at] = state;"]),
    )
    outs = "gates", "cells", state, "last_cell", *([] if projected else ["last_state"])
    arrays = "from_state", "from_initial", "cell_before", "initial_cell"
    return StepKernel("lstm_projected_step" if projected else "lstm_step", outs, arrays, lines)


# In the parameters, the order of a GRU's gates is reset, update, new.  Four arrays are kept for each row: new, reset,
# update, and the part of the new gate that the reset gate multiplies.
_GRU: Final = StepKernel(
    "gru_step",
    ("states", "gates", "last_state"),
    ("from_input", "from_state", "from_initial", "state_before", "initial_state"),
    (
        _FROM_STATE,
        "const int64 in = at + row * 2 * hidden, first = at + row * 3 * hidden;",
        "const value reset = logistic(from_input[in] + from[in]);",
        "const value update = logistic(from_input[in + hidden] + from[in + hidden]);",
        "const value inner = from[in + 2 * hidden];",
        "const value fresh = tangent(from_input[in + 2 * hidden] + reset * inner);",
        f"const value state = fresh + update * ({_before('state')} - fresh);",
        "gates[first] = fresh;",
        "gates[first + hidden] = reset;",
        "gates[first + 2 * hidden] = update;",
        "gates[first + 3 * hidden] = inner;",
        "states[at] = state;",
        "if (row >= lasting) last_state[at] = state;",
    ),
)

# The forward kernels, by the kind of layer and whether it has a projection.
FORWARD: Final = {
    ("rnn_tanh", False): _rnn(False),
    ("rnn_relu", False): _rnn(True),
    ("lstm", False): _lstm(False),
    ("lstm", True): _lstm(True),
    ("gru", False): _GRU,
}


# Backward
#
# `gradient` is the gradient by the state after the step, as far as it comes from later steps or from the last state,
# and `cell_gradient` the gradient by the cell.  A step, with its product, replaces them by the gradients by the state
# and cell before it.  A GRU's product is apart, in `from_later`.


def _by_state(given: bool, more: str = "") -> str:
    """Return the C++ statement that computes the gradient by a step's state; it adds `by_states` if the output has a
    gradient (`given`), and the C++ summand `more`.
    """
    return f"const value by_state = gradient[at]{more}{' + by_states[at]' if given else ''};"


_STATE_BEFORE: Final = f"before[at] = {_before('state')};"
_STATES_BEFORE: Final = ("state_before", "initial_state")


@lru_cache(None)
def _rnn_backward(rectified: bool, given: bool) -> StepKernel:
    slope = "(value)(states[at] > 0)" if rectified else "(1 - states[at] * states[at])"
    lines = (_by_state(given), f"sums[at] = {slope} * by_state;", _STATE_BEFORE)
    arrays = "gradient", "states", *_STATES_BEFORE, *(["by_states"] if given else [])
    return StepKernel("rnn_relu_back" if rectified else "rnn_tanh_back", ("sums", "before"), arrays, lines)


@lru_cache(None)
def projection_backward(given: bool) -> StepKernel:
    """Build the kernel that adds up the gradient by an LSTM's projected state, for the product with the projection;
    for `given` see `_by_state`.
    """
    lines = _by_state(given), "by_projected[at] = by_state;", _STATE_BEFORE
    arrays = "gradient", *_STATES_BEFORE, *(["by_states"] if given else [])
    return StepKernel("lstm_projection_back", ("by_projected", "before"), arrays, lines)


@lru_cache(None)
def _lstm_backward(projected: bool, given: bool) -> StepKernel:
    outs = "sums", "cell_gradient", "unprojected" if projected else "before"
    more = [] if projected else [*_STATES_BEFORE, *(["by_states"] if given else [])]
    arrays = "gradient", "gates", "cells", "cell_before", "initial_cell", *more
    lines = (
        _by_state(given and not projected),
        "const int64 first = at + row * 3 * hidden;",
        "const value taken = gates[first], kept = gates[first + hidden];",
        "const value fresh = gates[first + 2 * hidden], shown = gates[first + 3 * hidden], bent = tangent(cells[at]);",
        "const value by_cell = cell_gradient[at] + (1 - bent * bent) * shown * by_state;",
        "sums[first] = taken * (1 - taken) * fresh * by_cell;",
        f"sums[first + hidden] = kept * (1 - kept) * {_before('cell')} * by_cell;",
        "sums[first + 2 * hidden] = (1 - fresh * fresh) * taken * by_cell;",
        "sums[first + 3 * hidden] = shown * (1 - shown) * bent * by_state;",
        "cell_gradient[at] = by_cell * kept;",
        "unprojected[at] = shown * bent;" if projected else _STATE_BEFORE,
    )
    return StepKernel("lstm_projected_back" if projected else "lstm_back", outs, arrays, lines)


@lru_cache(None)
def _gru_backward(given: bool) -> StepKernel:
    """Build the backward step of a GRU.  The gradients in `sums` have the order of the kept gates: the first three are
    by sums from the input, and the last three by sums from the state.
    """
    lines = (
        # The later step's product, `from_later`, is added here, which saves a kernel.
        _by_state(given, " + from_later[at]"),
        "const int64 first = at + row * 3 * hidden;",
        "const value fresh = gates[first], reset = gates[first + hidden], update = gates[first + 2 * hidden];",
        f"const value state = {_before('state')};",
        "const value by_fresh = (1 - fresh * fresh) * (1 - update), by_inner = by_fresh * reset;",
        "sums[first] = by_fresh * by_state;",
        "sums[first + hidden] = (1 - reset) * by_inner * gates[first + 3 * hidden] * by_state;",
        "sums[first + 2 * hidden] = update * (1 - update) * (state - fresh) * by_state;",
        "sums[first + 3 * hidden] = by_inner * by_state;",
        "gradient[at] = by_state * update;",
        "before[at] = state;",
    )
    arrays = "from_later", "gates", *_STATES_BEFORE, *(["by_states"] if given else [])
    return StepKernel("gru_back", ("sums", "gradient", "before"), arrays, lines)


# By the kind of layer, the function that builds the backward kernel, from whether there is a projection, and whether
# the output has a gradient.
BACKWARD: Final[dict[str, Callable[[bool, bool], StepKernel]]] = {
    "rnn_tanh": lambda projected, given: _rnn_backward(False, given),
    "rnn_relu": lambda projected, given: _rnn_backward(True, given),
    "lstm": _lstm_backward,
    "gru": lambda projected, given: _gru_backward(given),
}

# By the kind of layer, the number of gradients in `sums` for each unit.
KEPT: Final = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 4}
