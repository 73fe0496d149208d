"""Recurrent layers: a whole sequence forward, and backward again, step after step.

All rows of a sequence lie behind each other: those of one step are neighbours, and a step may have fewer rows than the
one before it, as in a packed sequence.  Products that do not depend on the step before are computed for all rows at
once.  A step is one product with the state, or with gradients, and one kernel: a thread for each unit of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.expressions.sources import elements
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.recurrent import GATES, Layer, Weights
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, copy_array, launch_pointwise
from .products import multiply
from .rows import reduce_rows, sums_in
from .sources import ELEMENTS_PRELUDE, STORED
from .walks import Walk, contiguous, in_order, part_of, separate, standing, transposed, walk

# Arrays by the names that kernels have for them.
_Named: TypeAlias = dict[str, DeviceArray]


class _Step(NamedTuple):
    """A step between the one before it and the one behind it, in the order in which they run.

    Attributes:
        begin, size: its rows among those of all steps.
        before: where the rows of the step before it begin.
        continued: so many of its rows, the first ones, go on from there; the others from the initial state.
        lasting: so many of its rows, the first ones, go on in the step behind it.
    """

    begin: int
    size: int
    before: int
    continued: int
    lasting: int

    def of(self, array: DeviceArray) -> DeviceArray:
        """Its rows of an array of all rows."""
        return part_of(array, 0, self.begin, self.begin + self.size)

    def before_of(self, array: DeviceArray) -> DeviceArray:
        """The rows of an array of all rows from which it goes on."""
        return part_of(array, 0, self.before, self.before + self.continued)

    def first_of(self, array: DeviceArray) -> DeviceArray:
        """As many rows as it has of an array with a row for each sequence."""
        return part_of(array, 0, 0, self.size)

    def arrays(self, every: _Named, each: _Named) -> _Named:
        """For a kernel: its rows of arrays of all rows, those of the step before it, and arrays of all sequences."""
        named = {name: self.of(array) for name, array in every.items()} | each
        named["state_before"] = self.before_of(every["states"])
        if "cells" in every:
            named["cell_before"] = self.before_of(every["cells"])
        return named


def _steps_of(layer: Layer, shape: tuple[int, ...]) -> tuple[_Step, ...]:
    steps = layer.steps(shape)
    sizes = [0, *[step.size for step in steps], 0]
    begins = [0, *[step.rows.start for step in steps]]
    return tuple(
        [
            _Step(step.rows.start, step.size, begins[place], min(step.size, sizes[place]), min(step.size, after))
            for place, (step, after) in enumerate(zip(steps, sizes[2:], strict=True))
        ]
    )


class _Kind(NamedTuple):
    """The kernel of a step: the names of the arrays that it writes and of those that it reads, and its statements.

    Statements know of their thread the `row` among those of the step, the place `at` of its unit in an array with as
    many columns as there are units, and the numbers `hidden`, `continued` and `lasting`; `value` is the type.
    """

    name: str
    outs: tuple[str, ...]
    arrays: tuple[str, ...]
    lines: tuple[str, ...]

    def launch(self, launcher: Launcher, step: _Step, hidden: int, named: _Named) -> None:
        """Run it for so many units of all rows of a step."""
        outs, arrays = ([standing(named[name], 2) for name in names] for names in (self.outs, self.arrays))
        what = _walk(self, named[self.outs[0]].dtype.name)
        numbers = hidden, step.continued, step.lasting
        walk(launcher, what, (step.size, hidden), outs, arrays, [(1, 0), (hidden, 1)], numbers)


@lru_cache(None)
def _walk(kind: _Kind, dtype: str) -> Walk:
    lines = (f"typedef {STORED[dtype]} value;", "const int64 row = row_place, at = at_place;", *kind.lines)
    return Walk(
        kind.name,
        tuple([(name, dtype) for name in kind.outs]),
        tuple([(name, dtype) for name in kind.arrays]),
        ("row", "at"),
        ("hidden", "continued", "lasting"),
        lines,
        functions=_functions(),
    )


@lru_cache(None)
def _functions() -> str:
    return ELEMENTS_PRELUDE + elements() + _ACTIVATIONS


# 1 / (1 + exp(-x)) by way of tanh overflows nowhere.
_ACTIVATIONS: Final = """
INLINED float tangent(float x) { return tanh_f(x); }
INLINED double tangent(double x) { return tanh(x); }
template <typename T> INLINED T logistic(T x) { return tangent(x * (T)0.5) * (T)0.5 + (T)0.5; }
"""


def _before(name: str) -> str:
    """An element of the state before the step, or of the cell."""
    return f"(row < continued ? {name}_before : initial_{name})[at]"


# Forward
#
# The sums of a gate that come from the input have been computed for all rows, and those that come from the initial
# state for all sequences.


_FROM_STATE: Final = "const value* from = row < continued ? from_state : from_initial;"


def _rnn(rectified: bool) -> _Kind:
    activation = "total > 0 || total != total ? total : 0" if rectified else "tangent(total)"
    lines = (
        _FROM_STATE,
        "const value total = states[at] + from[at];",
        f"const value state = {activation};",
        "states[at] = state;",
        "if (row >= lasting) last_state[at] = state;",
    )
    name = "rnn_relu_step" if rectified else "rnn_tanh_step"
    return _Kind(name, ("states", "last_state"), ("from_state", "from_initial"), lines)


def _lstm(projected: bool) -> _Kind:
    """With a projection, what it makes of `unprojected` is the state."""
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
    return _Kind("lstm_projected_step" if projected else "lstm_step", outs, arrays, lines)


# The gates of the parameters are reset, update and new.  Four are kept for each row: new, reset, update, and the part
# of the new one that the reset gate is multiplied with.
_GRU: Final = _Kind(
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

# By the kind of layer, and whether it has a projection.
_FORWARD: Final = {
    ("rnn_tanh", False): _rnn(False),
    ("rnn_relu", False): _rnn(True),
    ("lstm", False): _lstm(False),
    ("lstm", True): _lstm(True),
    ("gru", False): _GRU,
}


@builds("rnn_layer", "lstm_layer", "gru_layer", package=PACKAGE)
def _forward(problem: Problem) -> Kernel:
    layer = Layer(*problem.attributes)
    source = problem.inputs[0]
    steps, rows, wide = _steps_of(layer, source.shape), prod(source.shape[:-1]), computes_in(source.dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, *rest = [contiguous(launcher, separate(launcher, operand, *outs), wide) for operand in operands]
        with ExitStack() as stack:
            made = [stack.enter_context(in_order(launcher, out, wide)) for out in outs]
            _run_forward(launcher, layer, steps, _matrix(array, rows), rest, made)

    return Kernel(into_outs(launch, problem), casts=True)


def _matrix(array: DeviceArray, rows: int) -> DeviceArray:
    """All steps of an array below each other."""
    return array.reshape(rows, array.shape[-1])


def _run_forward(
    launcher: Launcher,
    layer: Layer,
    steps: Sequence[_Step],
    rows: DeviceArray,
    operands: Sequence[DeviceArray],
    outs: Sequence[DeviceArray],
) -> None:
    """Compute into contiguous arrays, of contiguous ones, all of one dtype."""
    initial, weights = layer.split(operands)
    batch, hidden = initial[-1].shape
    every, each = _arrays(layer, rows.shape[0], initial, outs)
    from_state, from_initial = (launcher.scratch((batch, GATES[layer.kind] * hidden), rows.dtype) for _ in range(2))
    each.update(from_state=from_state, from_initial=from_initial)
    if layer.kind == "gru":
        every["from_input"] = launcher.scratch((rows.shape[0], 3 * hidden), rows.dtype)
    if layer.projected:
        each["unprojected"] = launcher.scratch((batch, hidden), rows.dtype)
    by_input, by_state = _turned(weights.by_input), _turned(weights.by_state)
    multiply(launcher, rows, by_input, every[_FROM_INPUT[layer.kind]], weights.input_bias)
    multiply(launcher, initial[0], by_state, from_initial, weights.state_bias)
    kind, states = _FORWARD[layer.kind, layer.projected], every["states"]
    for step in steps:
        if step.continued:
            room = part_of(from_state, 0, 0, step.continued)
            multiply(launcher, step.before_of(states), by_state, room, weights.state_bias)
        kind.launch(launcher, step, hidden, step.arrays(every, each))
        if layer.projected:
            now = step.of(states)
            multiply(launcher, step.first_of(each["unprojected"]), _turned(weights.projection), now)
            if step.lasting < step.size:
                ended = part_of(now, 0, step.lasting, step.size)
                copy_array(launcher, ended, part_of(each["last_state"], 0, step.lasting, step.size))


# Where the sums that come from the input are, before the step puts its results there.
_FROM_INPUT: Final = {"rnn_tanh": "states", "rnn_relu": "states", "lstm": "gates", "gru": "from_input"}


def _arrays(
    layer: Layer, rows: int, initial: Sequence[DeviceArray], outs: Sequence[DeviceArray]
) -> tuple[_Named, _Named]:
    """Those with a row for each row of each step, and those with one for each sequence."""
    kept = [_matrix(outs[0], rows), *[_matrix(out, rows) for out in outs[1 + layer.states :]]]
    every = dict(zip(("states", "gates", "cells"), kept, strict=False))
    each = dict(zip(("initial_state", "initial_cell"), initial, strict=False))
    each.update(zip(("last_state", "last_cell"), outs[1 : 1 + layer.states], strict=False))
    return every, each


def _turned(matrix: DeviceArray) -> DeviceArray:
    return transposed(matrix, (1, 0))


# Backward
#
# `gradient` is the gradient by the state after the step, as far as it comes from later steps, and `cell_gradient` that
# by the cell.  The step before it will find its own there.


def _by_state(given: bool, more: str = "") -> str:
    """The statement that finds the gradient by the state; `by_states` is there if the states have one themselves."""
    return f"const value by_state = gradient[at]{more}{' + by_states[at]' if given else ''};"


_STATE_BEFORE: Final = f"before[at] = {_before('state')};"
_STATES_BEFORE: Final = ("state_before", "initial_state")


def _rnn_backward(rectified: bool, given: bool) -> _Kind:
    slope = "(value)(states[at] > 0)" if rectified else "(1 - states[at] * states[at])"
    lines = (_by_state(given), f"sums[at] = {slope} * by_state;", _STATE_BEFORE)
    arrays = "gradient", "states", *_STATES_BEFORE, *(["by_states"] if given else [])
    return _Kind("rnn_relu_back" if rectified else "rnn_tanh_back", ("sums", "before"), arrays, lines)


def _projection_backward(given: bool) -> _Kind:
    """What has to be known before the product with the projection."""
    lines = _by_state(given), "by_projected[at] = by_state;", _STATE_BEFORE
    arrays = "gradient", *_STATES_BEFORE, *(["by_states"] if given else [])
    return _Kind("lstm_projection_back", ("by_projected", "before"), arrays, lines)


def _lstm_backward(projected: bool, given: bool) -> _Kind:
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
    return _Kind("lstm_projected_back" if projected else "lstm_back", outs, arrays, lines)


def _gru_backward(given: bool) -> _Kind:
    """In the order in which gates are kept, gradients by sums from the input come first, those from the state last."""
    lines = (
        # The product of the later step is added here, not by a kernel of its own.
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
    return _Kind("gru_back", ("sums", "gradient", "before"), arrays, lines)


# By the kind of layer: from whether there is a projection, and whether the states have a gradient themselves.
_BACKWARD: Final[dict[str, Callable[[bool, bool], _Kind]]] = {
    "rnn_tanh": lambda projected, given: _rnn_backward(False, given),
    "rnn_relu": lambda projected, given: _rnn_backward(True, given),
    "lstm": _lstm_backward,
    "gru": lambda projected, given: _gru_backward(given),
}


class _Passed(NamedTuple):
    """What a backward pass has found, from which the gradients by the parameters follow.

    Attributes:
        rows: the input, all steps one below the other.
        weights: see `Layer.split`.
        from_input, from_state: the gradients by the sums that come from the input and from the state.
        initial: those by the initial state.
        before: the state before each step.
        projected: the gradient by the states, and the states before the projection; None without one.
    """

    rows: DeviceArray
    weights: Weights
    from_input: DeviceArray
    from_state: DeviceArray
    initial: list[DeviceArray]
    before: DeviceArray
    projected: tuple[DeviceArray, DeviceArray] | None


@builds("rnn_layer_gradient", "lstm_layer_gradient", "gru_layer_gradient", package=PACKAGE)
def _backward(problem: Problem) -> Kernel:
    """Attributes: those of the layer; which of the shown results have a gradient; which operands want one.

    Operands: the gradients there are, the results that were saved, the operands of the layer.
    """
    attributes, present, wanted = problem.attributes
    layer = Layer(*attributes)
    source = problem.inputs[sum(present) + layer.saved]
    steps, wide = _steps_of(layer, source.shape), computes_in(source.dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        arrays = [contiguous(launcher, separate(launcher, operand, *outs), wide) for operand in operands]
        makers = _by_operands(launcher, layer, _run_backward(launcher, layer, steps, present, arrays))
        targets = iter(outs)
        for make, want in zip(makers, wanted, strict=True):
            if want:
                with in_order(launcher, next(targets), wide) as out:
                    make(out)

    return Kernel(into_outs(launch, problem), casts=True)


def _run_backward(
    launcher: Launcher, layer: Layer, steps: Sequence[_Step], present: tuple[bool, ...], arrays: Sequence[DeviceArray]
) -> _Passed:
    """Go back through all steps, from contiguous arrays of one dtype."""
    gradients, saved = sum(present), layer.saved
    given = iter(arrays[:gradients])
    by_states, *by_last = [next(given) if there else None for there in present]
    source, *rest = arrays[gradients + saved :]
    rows, dtype = prod(source.shape[:-1]), source.dtype
    initial, weights = layer.split(rest)
    batch, hidden = initial[-1].shape

    def scratch(*shape: int) -> DeviceArray:
        return launcher.scratch(shape, dtype)

    kept = [_matrix(array, rows) for array in arrays[gradients : gradients + saved]]
    every = dict(zip(("states", "gates", "cells"), kept, strict=False))
    every.update(sums=scratch(rows, _KEPT[layer.kind] * hidden), before=scratch(*every["states"].shape))
    if by_states is not None:
        every["by_states"] = _matrix(by_states, rows)
    each = dict(zip(("initial_state", "initial_cell"), initial, strict=False))
    carried = [_begun(launcher, last, like) for last, like in zip(by_last, initial, strict=True)]
    each.update(zip(("gradient", "cell_gradient"), carried, strict=False))
    if layer.projected:
        every.update(by_projected=scratch(*every["states"].shape), unprojected=scratch(rows, hidden))
        each["by_hidden"] = scratch(batch, hidden)
    into = each["gradient"]
    if layer.kind == "gru":
        into = each["from_later"] = _begun(launcher, None, initial[0])
    from_state = part_of(every["sums"], 1, hidden if layer.kind == "gru" else 0, every["sums"].shape[1])
    kind = _BACKWARD[layer.kind](layer.projected, by_states is not None)
    for step in reversed(steps):
        named = step.arrays(every, each)
        if layer.projected:
            _projection_backward(by_states is not None).launch(launcher, step, initial[0].shape[1], named)
            multiply(launcher, named["by_projected"], weights.projection, step.first_of(each["by_hidden"]))
            named["gradient"] = each["by_hidden"]
        kind.launch(launcher, step, hidden, named)
        multiply(launcher, step.of(from_state), weights.by_state, step.first_of(into))
    if layer.kind == "gru":
        launch_pointwise(launcher, _sum(dtype.name), (carried[0], into), (), (carried[0],))
    from_input = part_of(every["sums"], 1, 0, GATES[layer.kind] * hidden)
    projected = (every["by_projected"], every["unprojected"]) if layer.projected else None
    matrix = _matrix(source, rows)
    return _Passed(matrix, weights, from_input, from_state, carried, every["before"], projected)


# The gradients by sums that are kept for each unit.
_KEPT: Final = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 4}


def _begun(launcher: Launcher, last: DeviceArray | None, like: DeviceArray) -> DeviceArray:
    """An array that steps change, from what there is after the last one, or zeros."""
    begun = launcher.scratch(like.shape, like.dtype)
    if last is not None:
        copy_array(launcher, last, begun)
    elif begun.size:
        launcher.fill(begun, 0)
    return begun


@lru_cache(None)
def _sum(dtype: str) -> Pointwise:
    return Pointwise("add", (dtype, dtype), (), (), (("x0 + x1", dtype),))


def _by_operands(launcher: Launcher, layer: Layer, had: _Passed) -> list[Callable[[DeviceArray], None]]:
    """For each operand what writes the gradient by it, since not all are wanted."""
    sums = sums_in(had.rows.dtype)
    parts = _parts(layer, had.from_input.shape[1])

    def by_input(out: DeviceArray) -> None:
        weight = had.weights.by_input
        if len(parts) > 1:
            weight = launcher.scratch(weight.shape, weight.dtype)
            for columns, places in parts:
                copy_array(launcher, part_of(had.weights.by_input, 0, *places), part_of(weight, 0, *columns))
        multiply(launcher, had.from_input, weight, _matrix(out, had.rows.shape[0]))

    def by_weight(out: DeviceArray) -> None:
        for columns, places in parts:
            multiply(launcher, _turned(part_of(had.from_input, 1, *columns)), had.rows, part_of(out, 0, *places))

    def by_bias(out: DeviceArray) -> None:
        for columns, places in parts:
            reduce_rows(launcher, sums, part_of(had.from_input, 1, *columns), (0,), part_of(out, 0, *places))

    def by_state_weight(out: DeviceArray) -> None:
        multiply(launcher, _turned(had.from_state), had.before, out)

    def by_projection(out: DeviceArray) -> None:
        if had.projected is not None:
            by_projected, unprojected = had.projected
            multiply(launcher, _turned(by_projected), unprojected, out)

    def copied(array: DeviceArray) -> Callable[[DeviceArray], None]:
        return lambda out: copy_array(launcher, array, out)

    makers = [by_input, *map(copied, had.initial), by_weight, by_state_weight]
    if layer.biased:
        makers += [by_bias, lambda out: reduce_rows(launcher, sums, had.from_state, (0,), out)]
    return [*makers, by_projection] if layer.projected else makers


def _parts(layer: Layer, columns: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Of the gradients by sums from the input some columns, and the rows of the parameters that belong to them."""
    third = columns // 3
    if layer.kind == "gru":
        return [((0, third), (2 * third, columns)), ((third, columns), (0, 2 * third))]
    return [((0, columns), (0, columns))]
