"""Recurrent layers (RNN, LSTM, GRU): the forward and the backward pass over sequences, one time step after the other.

The input has a row for each sequence and step.  The rows of one step are neighbours; in a packed sequence, steps may
differ in their numbers of rows.  Products that do not depend on the step before are computed for all rows together.  A
step is at most one product with the state, or with gradients, and one kernel over the hidden units of all its rows.  A
projection adds a product, and maybe a copy or a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.recurrent import GATES, Layer, Weights
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, copy_array, launch_pointwise
from .products import multiply
from .recurrent_steps import BACKWARD, FORWARD, KEPT, Named, Step, projection_backward, steps_of
from .rows import reduce_rows, sums_in
from .walks import contiguous, in_order, part_of, separate, transposed


@builds("rnn_layer", "lstm_layer", "gru_layer", package=PACKAGE)
def _forward(problem: Problem) -> Kernel:
    layer = Layer(*problem.attributes)
    source = problem.inputs[0]
    steps, rows, wide = steps_of(layer, source.shape), prod(source.shape[:-1]), computes_in(source.dtype)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, *rest = [contiguous(launcher, separate(launcher, operand, *outs), wide) for operand in operands]
        with ExitStack() as stack:
            made = [stack.enter_context(in_order(launcher, out, wide)) for out in outs]
            _run_forward(launcher, layer, steps, _matrix(array, rows), rest, made)

    return Kernel(into_outs(launch, problem), casts=True)


def _matrix(array: DeviceArray, rows: int) -> DeviceArray:
    """Return the array as a matrix with the rows of all steps, one step below the other."""
    return array.reshape(rows, array.shape[-1])


def _run_forward(
    launcher: Launcher,
    layer: Layer,
    steps: Sequence[Step],
    rows: DeviceArray,
    operands: Sequence[DeviceArray],
    outs: Sequence[DeviceArray],
) -> None:
    """Run a layer's forward pass over the `rows` of its input into `outs`; all arrays are contiguous and of one dtype.

    `operands` are those of the layer behind its input.
    """
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
    kernel, states = FORWARD[layer.kind, layer.projected], every["states"]
    for step in steps:
        if step.continued:
            products = part_of(from_state, 0, 0, step.continued)
            multiply(launcher, step.before_of(states), by_state, products, weights.state_bias)
        kernel.launch(launcher, step, hidden, step.arrays(every, each))
        if layer.projected:
            now = step.of(states)
            multiply(launcher, step.first_of(each["unprojected"]), _turned(weights.projection), now)
            if step.lasting < step.size:
                ended = part_of(now, 0, step.lasting, step.size)
                copy_array(launcher, ended, part_of(each["last_state"], 0, step.lasting, step.size))


# By kind of layer, the array that holds the gates' sums from the input; a step, but for a GRU's, overwrites them.
_FROM_INPUT: Final = {"rnn_tanh": "states", "rnn_relu": "states", "lstm": "gates", "gru": "from_input"}


def _arrays(
    layer: Layer, rows: int, initial: Sequence[DeviceArray], outs: Sequence[DeviceArray]
) -> tuple[Named, Named]:
    """Return two dictionaries of arrays by name: with a row for each sequence and step, and with a row for each
    sequence.
    """
    kept = [_matrix(outs[0], rows), *[_matrix(out, rows) for out in outs[1 + layer.states :]]]
    every = dict(zip(("states", "gates", "cells"), kept, strict=False))
    each = dict(zip(("initial_state", "initial_cell"), initial, strict=False))
    each.update(zip(("last_state", "last_cell"), outs[1 : 1 + layer.states], strict=False))
    return every, each


def _turned(matrix: DeviceArray) -> DeviceArray:
    return transposed(matrix, (1, 0))


class _Passed(NamedTuple):
    """The results of a backward pass through all steps, for the gradients by the layer's operands.

    Attributes:
        rows: the input, all steps one below the other.
        weights: see `Layer.split`.
        from_input, from_state: the gradients by the gates' sums from the input and from the state.
        initial: the gradients by the initial state and cell.
        before: the state before each step.
        projected: the gradient by the projected states, and the states before the projection; None without a
            projection.
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
    """Build the kernel of a layer's gradients.  Attributes: the fields of `Layer`; for each of the layer's results,
    whether it has a gradient; for each of its operands, whether the operand's gradient is wanted.

    Operands: the existing gradients, the results saved by the forward pass, the operands of the layer.
    """
    attributes, present, wanted = problem.attributes
    layer = Layer(*attributes)
    source = problem.inputs[sum(present) + layer.saved]
    steps, wide = steps_of(layer, source.shape), computes_in(source.dtype)

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
    launcher: Launcher, layer: Layer, steps: Sequence[Step], present: tuple[bool, ...], arrays: Sequence[DeviceArray]
) -> _Passed:
    """Run a layer's backward pass through all steps; all arrays are contiguous and of one dtype."""
    gradients, saved = sum(present), layer.saved
    source, *operands = arrays[gradients + saved :]
    initial, weights = layer.split(operands)
    rows, hidden = _matrix(source, prod(source.shape[:-1])), initial[-1].shape[1]
    given = iter(arrays[:gradients])
    by_states, *by_last = [next(given) if there else None for there in present]
    carried = [_begun(launcher, last, like) for last, like in zip(by_last, initial, strict=True)]
    every, each = _backward_arrays(launcher, layer, rows, initial, arrays[gradients : gradients + saved])
    each.update(zip(("gradient", "cell_gradient"), carried, strict=False))
    if by_states is not None:
        every["by_states"] = _matrix(by_states, rows.shape[0])
    into = each.get("from_later", carried[0])
    sums = every["sums"]
    from_state = part_of(sums, 1, hidden if layer.kind == "gru" else 0, sums.shape[1])
    kernel = BACKWARD[layer.kind](layer.projected, by_states is not None)
    for step in reversed(steps):
        named = step.arrays(every, each)
        if layer.projected:
            projection_backward(by_states is not None).launch(launcher, step, initial[0].shape[1], named)
            multiply(launcher, named["by_projected"], weights.projection, step.first_of(each["by_hidden"]))
            named["gradient"] = each["by_hidden"]
        kernel.launch(launcher, step, hidden, named)
        multiply(launcher, step.of(from_state), weights.by_state, step.first_of(into))
    if into is not carried[0]:
        launch_pointwise(launcher, _sum(rows.dtype.name), (carried[0], into), (), (carried[0],))
    from_input = part_of(sums, 1, 0, GATES[layer.kind] * hidden)
    projected = (every["by_projected"], every["unprojected"]) if layer.projected else None
    return _Passed(rows, weights, from_input, from_state, carried, every["before"], projected)


def _backward_arrays(
    launcher: Launcher, layer: Layer, rows: DeviceArray, initial: Sequence[DeviceArray], saved: Sequence[DeviceArray]
) -> tuple[Named, Named]:
    """Return the saved arrays, and memory for the results of steps, in two dictionaries as `_arrays` does."""
    count, hidden = rows.shape[0], initial[-1].shape[1]

    def scratch(*shape: int) -> DeviceArray:
        return launcher.scratch(shape, rows.dtype)

    every = dict(zip(("states", "gates", "cells"), [_matrix(array, count) for array in saved], strict=False))
    every.update(sums=scratch(count, KEPT[layer.kind] * hidden), before=scratch(*every["states"].shape))
    each = dict(zip(("initial_state", "initial_cell"), initial, strict=False))
    if layer.projected:
        every.update(by_projected=scratch(*every["states"].shape), unprojected=scratch(count, hidden))
        each["by_hidden"] = scratch(*initial[-1].shape)
    if layer.kind == "gru":
        each["from_later"] = _begun(launcher, None, initial[0])
    return every, each


def _begun(launcher: Launcher, last: DeviceArray | None, like: DeviceArray) -> DeviceArray:
    """Return memory for a gradient that each step updates; it begins as `last`, the gradient by the last state or cell,
    or as zeros.
    """
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
    """Return for each operand of the layer a function that writes its gradient, since not all are wanted."""
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
    """Return ranges of columns of the gradients by sums from the input, each with the range of the parameters' rows
    that it belongs to: for a GRU, the order of gates differs.
    """
    third = columns // 3
    if layer.kind == "gru":
        return [((0, third), (2 * third, columns)), ((third, columns), (0, 2 * third))]
    return [((0, columns), (0, columns))]
