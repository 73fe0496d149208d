"""Random programs of views and in-place writes: shared memory shows all writes; gradients are those of copies.

The same program runs on numpy arrays that share memory in the same way, and for gradients once more without writing
anything in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow

from .oracle import Array, check

_seeded = settings(derandomize=True, database=None)


class Pair(NamedTuple):
    """A tensor, an array of its expected elements, and whether it may be written to."""

    tensor: flow.Tensor
    array: Array
    writable: bool


# Programs without gradients


@st.composite
def _slice(draw: st.DrawFn, size: int) -> slice:
    bound = st.none() | st.integers(-size - 1, size + 1)
    return slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3)))


def _divided(count: int) -> list[tuple[int, ...]]:
    pairs = [(index, count // index) for index in range(1, count + 1) if count % index == 0] if count else [(0, 3)]
    return [(count,), (1, count), *pairs]


def _derive(draw: st.DrawFn, source: Pair) -> Pair:
    """Another view of the same memory, or a copy."""
    tensor, array, writable = source
    kinds = ["reshape", "view", "clone", "contiguous", "unsqueeze", "squeeze", "detach", "flatten", "all"]
    if array.ndim:
        kinds += ["slice", "slice", "permute", "permute", "expand", "narrow", "unfold"]
        kinds += ["select"] if array.shape[0] else []
    if array.ndim > 1:
        kinds += ["transpose", "diagonal", "split"]
    kind = draw(st.sampled_from(kinds))
    if kind in ("reshape", "view"):
        shape = draw(st.sampled_from(_divided(array.size)))
        seen = array.reshape(shape)
        if kind == "view" and not np.shares_memory(seen, array) and array.size:
            with pytest.raises(RuntimeError, match="without copying"):
                tensor.view(shape)
            return source
        copied = array.size > 0 and not np.shares_memory(seen, array)
        return Pair(getattr(tensor, kind)(shape), seen, writable or copied)
    if kind == "clone":
        return Pair(tensor.clone(), array.copy(order="C"), True)
    if kind == "contiguous":
        is_whole = tensor.is_contiguous()
        assert is_whole == (array.flags.c_contiguous or array.size == 0)
        return Pair(tensor.contiguous(), array if is_whole else array.copy(order="C"), writable or not is_whole)
    if kind == "flatten":
        seen = array.reshape(-1)
        copied = array.size > 0 and not np.shares_memory(seen, array)
        return Pair(tensor.flatten(), seen, writable or copied)
    if kind == "unsqueeze":
        dim = draw(st.integers(0, array.ndim))
        return Pair(tensor.unsqueeze(dim), np.expand_dims(array, dim), writable)
    if kind == "squeeze":
        return Pair(tensor.squeeze(), array.squeeze(), writable)
    if kind == "detach":
        return Pair(tensor.detach(), array, writable)
    if kind == "all":
        return Pair(tensor[...], array, writable)
    if kind == "slice":
        index = tuple([draw(_slice(size)) for size in array.shape])
        return Pair(tensor[index], array[index], writable)
    if kind == "select":
        place = draw(st.integers(-array.shape[0], array.shape[0] - 1))
        return Pair(tensor[place], array[place, ...], writable)
    if kind == "permute":
        order = draw(st.permutations(range(array.ndim)))
        return Pair(tensor.permute(order), array.transpose(order), writable)
    if kind == "transpose":
        return Pair(tensor.transpose(0, -1), array.swapaxes(0, -1), writable)
    if kind == "narrow":
        start = draw(st.integers(0, array.shape[-1]))
        length = draw(st.integers(0, array.shape[-1] - start))
        return Pair(tensor.narrow(-1, start, length), array[..., start : start + length], writable)
    if kind == "split":
        at = draw(st.integers(0, array.shape[1]))
        return Pair(tensor.split([at, array.shape[1] - at], 1)[1], array[:, at:], writable)
    if kind == "expand":
        shape = (2, *[3 if size == 1 else size for size in array.shape])
        return Pair(tensor.expand(shape), np.broadcast_to(array, shape), False)
    if kind == "unfold":
        size = draw(st.integers(0, array.shape[0]))
        windows = [array[value : value + size] for value in range(array.shape[0] - size + 1)]
        strides = (array.strides[0], *array.strides[1:], array.strides[0])
        shape = (len(windows), *array.shape[1:], size)
        return Pair(tensor.unfold(0, size, 1), np.lib.stride_tricks.as_strided(array, shape, strides), False)
    length = min(array.shape[:2])
    strides = (*array.strides[2:], array.strides[0] + array.strides[1])
    seen = np.lib.stride_tricks.as_strided(array, (*array.shape[2:], length), strides)
    return Pair(tensor.diagonal(), seen, writable)


def _write(draw: st.DrawFn, target: Pair, source: Pair) -> None:
    """Change the memory in place, by a number or by another tensor, which may be a part of the same memory."""
    tensor, array, _ = target
    kinds = ["fill", "zero", "add", "assign all"]
    fits = True
    try:
        fits = np.broadcast_shapes(array.shape, source.array.shape) == array.shape
    except ValueError:
        fits = False
    if fits:
        kinds += ["copy", "copy", "sub tensor", "mul tensor", "assign tensor"]
    if array.ndim:
        kinds += ["assign slice", "assign mask", "assign index"]
    kind = draw(st.sampled_from(kinds))
    number = float(draw(st.integers(-3, 3)))
    other = source.array.copy()
    if kind == "fill":
        tensor.fill_(number)
        array[...] = number
    elif kind == "zero":
        tensor.zero_()
        array[...] = 0
    elif kind == "add":
        tensor.add_(number)
        array += number
    elif kind == "assign all":
        tensor[...] = number
        array[...] = number
    elif kind == "copy":
        tensor.copy_(source.tensor)
        array[...] = other
    elif kind == "assign tensor":
        tensor[...] = source.tensor
        array[...] = other
    elif kind == "sub tensor":
        tensor.sub_(source.tensor)
        array -= other
    elif kind == "mul tensor":
        tensor.mul_(source.tensor)
        array *= other
    elif kind == "assign slice":
        index = draw(_slice(array.shape[0]))
        tensor[index] = number
        array[index] = number
    elif kind == "assign mask":
        tensor[tensor > number] = 1.0
        array[array > number] = 1.0
    elif array.shape[0]:
        places = draw(st.lists(st.integers(0, array.shape[0] - 1), max_size=3))
        tensor[flow.tensor(places, dtype=flow.int64)] = number
        array[places] = number


@given(st.lists(st.integers(0, 4), max_size=3), st.data())
@settings(_seeded, max_examples=200)
def test_all_that_share_memory_see_every_write(shape: list[int], data: st.DataObject) -> None:
    draw: Any = data.draw
    # Numbers that stay small, so that any order of operations gives the same.
    array = (np.arange(1.0, math.prod(shape) + 1) % 5).reshape(shape)
    pairs = [Pair(flow.tensor(array), array, True)]
    for _ in range(draw(st.integers(1, 10))):
        chosen = pairs[draw(st.integers(0, len(pairs) - 1))]
        if draw(st.booleans()):
            pairs.append(_derive(draw, chosen))
        elif chosen.writable:
            _write(draw, chosen, pairs[draw(st.integers(0, len(pairs) - 1))])
    for pair in pairs:
        check(pair.tensor, pair.array, "float64")


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple), st.data())
@settings(_seeded, max_examples=60)
def test_an_expanded_tensor_cannot_be_written(shape: tuple[int, ...], data: st.DataObject) -> None:
    tensor = flow.ones(shape)
    expanded = tensor.expand(2, *shape)
    order = data.draw(st.permutations(range(len(shape) + 1)))
    writes: list[Callable[[flow.Tensor], Any]] = [
        lambda x: x.add_(1),
        lambda x: x.copy_(flow.zeros(())),
        lambda x: x.zero_(),
        lambda x: x.__setitem__(..., 5.0),
        lambda x: x.__setitem__(x > 0, 5.0),
    ]
    with pytest.raises(RuntimeError, match="share one place in memory"):
        data.draw(st.sampled_from(writes))(expanded.permute(order))
    check(tensor, np.ones(shape), "float32")


# Programs with gradients: steps that change a buffer in place, and steps that read it.

SHAPE = (3, 4)


class Step(NamedTuple):
    """One step: its kind, a part of the buffer, and a number that makes its operand."""

    kind: str
    part: tuple[Any, ...]
    number: int


WRITES = ("assign", "assign constant", "mul", "add", "sub self", "fill", "copy", "masked", "tanh", "index")
READS = ("read", "read square", "read exp")


@st.composite
def _steps(draw: st.DrawFn) -> list[Step]:
    kinds = draw(st.lists(st.sampled_from([*WRITES, *READS]), min_size=1, max_size=7))
    part = st.one_of(
        st.tuples(st.integers(-3, 2)),
        st.tuples(_slice(3)),
        st.tuples(_slice(3), _slice(4)),
        st.tuples(st.just(Ellipsis), st.integers(-4, 3)),
        st.tuples(_slice(3), st.integers(-4, 3)),
    )
    return [Step(kind, draw(part), draw(st.integers(1, 4))) for kind in kinds]


def _positions(part: tuple[Any, ...]) -> Array:
    return np.asarray(np.arange(math.prod(SHAPE)).reshape(SHAPE)[part])


def _flags(number: int) -> Array:
    return np.asarray(np.arange(math.prod(SHAPE)).reshape(SHAPE) % (number + 1) == 0)


def _in_place(lib: Any, buffer: Any, other: Any, steps: list[Step]) -> Any:
    """The sum of the values read from a buffer that is changed in place; for both vmflow and PyTorch."""
    total = (buffer * 0.5).sum()
    for kind, part, number in steps:
        if kind == "assign":
            buffer[part] = other[part] * number
        elif kind == "assign constant":
            buffer[part] = float(number)
        elif kind == "mul":
            buffer.mul_(other.detach() + number)
        elif kind == "add":
            buffer.add_(other * number)
        elif kind == "sub self":
            buffer.sub_(buffer * 0.5)
        elif kind == "fill":
            buffer.fill_(number)
        elif kind == "copy":
            buffer.copy_(other[number % 3])
        elif kind == "masked":
            buffer.masked_fill_(lib.tensor(_flags(number)), float(number))
        elif kind == "tanh":
            buffer.tanh_()
        elif kind == "index":
            buffer[lib.tensor([2, 0])] = other[1:] * number
        elif kind == "read":
            total = total + (buffer[part] * number).sum()
        elif kind == "read square":
            total = total + (buffer[part] * buffer[part]).sum()
        else:
            total = total + buffer[part].exp().sum()
    return total + (buffer * 0.25).sum()


def _replaced(buffer: flow.Tensor, places: Array, values: flow.Tensor) -> flow.Tensor:
    flat = buffer.reshape(-1).scatter(0, flow.tensor(places.reshape(-1)), values.expand(places.shape).reshape(-1))
    return flat.reshape(SHAPE)


def _out_of_place(buffer: flow.Tensor, other: flow.Tensor, steps: list[Step]) -> flow.Tensor:
    """The same, where each change makes a new tensor."""
    total = (buffer * 0.5).sum()
    for kind, part, number in steps:
        if kind == "assign":
            buffer = _replaced(buffer, _positions(part), other[part] * number)
        elif kind == "assign constant":
            buffer = _replaced(buffer, _positions(part), flow.tensor(float(number), dtype=flow.float64))
        elif kind == "mul":
            buffer = buffer * (other.detach() + number)
        elif kind == "add":
            buffer = buffer + other * number
        elif kind == "sub self":
            buffer = buffer - buffer * 0.5
        elif kind == "fill":
            buffer = flow.full(SHAPE, float(number), dtype=flow.float64) + buffer * 0
        elif kind == "copy":
            buffer = other[number % 3].expand(SHAPE) + buffer * 0
        elif kind == "masked":
            buffer = buffer.masked_fill(flow.tensor(_flags(number)), float(number))
        elif kind == "tanh":
            buffer = buffer.tanh()
        elif kind == "index":
            buffer = buffer.index_copy(0, flow.tensor([2, 0]), other[1:] * number)
        else:
            seen = buffer[part].clone()
            read = seen * number if kind == "read" else seen * seen if kind == "read square" else seen.exp()
            total = total + read.sum()
    return total + (buffer * 0.25).sum()


def _overtaken(steps: list[Step]) -> bool:
    """Whether a step keeps the buffer for its gradient, a later one changes it, and the gradient gets there.

    It does not where the whole buffer is written anew before anything was read; PyTorch raises even then.
    """
    for place, step in enumerate(steps):
        later = steps[place + 1 :]
        if not any(value.kind in WRITES for value in later):
            return False
        if step.kind == "read square":
            return True
        if step.kind == "tanh":
            until = next((after for after, value in enumerate(later) if _writes_all(value)), len(later))
            if until == len(later) or any(value.kind in READS for value in later[:until]):
                return True
    return False


def _writes_all(step: Step) -> bool:
    if step.kind in ("assign", "assign constant"):
        return _positions(step.part).shape == SHAPE
    return step.kind in ("fill", "copy")


def _leaves() -> tuple[Array, Array]:
    generator = np.random.default_rng(3)
    return generator.uniform(-1, 1, SHAPE), generator.uniform(-1, 1, SHAPE)


def _gradients(function: Callable[..., flow.Tensor]) -> list[Array]:
    first, second = [flow.tensor(leaf, requires_grad=True) for leaf in _leaves()]
    function(first * 1, second).backward()
    return [np.zeros(SHAPE) if tensor.grad is None else tensor.grad.numpy() for tensor in (first, second)]


@pytest.mark.slow
@given(_steps())
@settings(_seeded, max_examples=200)
def test_gradients_are_those_of_the_program_that_copies(steps: list[Step]) -> None:
    if _overtaken(steps):
        with pytest.raises(RuntimeError, match="changed in place after it was used"):
            _gradients(lambda buffer, other: _in_place(flow, buffer, other, steps))
        return
    found = _gradients(lambda buffer, other: _in_place(flow, buffer, other, steps))
    expected = _gradients(lambda buffer, other: _out_of_place(buffer, other, steps))
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


@given(_steps())
@settings(_seeded, max_examples=100)
def test_gradients_and_errors_are_those_of_pytorch(steps: list[Step]) -> None:
    torch = pytest.importorskip("torch")
    first, second = [torch.tensor(value, requires_grad=True) for value in _leaves()]
    if _overtaken(steps):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            _in_place(torch, first * 1, second, steps).backward()
        return
    try:
        _in_place(torch, first * 1, second, steps).backward()
    except RuntimeError:
        # If no gradient reaches the changed tensor, only PyTorch raises.
        if not any(_writes_all(step) for step in steps):
            raise
        return
    found = _gradients(lambda buffer, other: _in_place(flow, buffer, other, steps))
    for one, leaf in zip(found, (first, second), strict=True):
        expected = np.zeros(SHAPE) if leaf.grad is None else leaf.grad.numpy()
        np.testing.assert_allclose(one, expected, rtol=1e-10, atol=1e-12)


@given(_steps().filter(lambda steps: steps[0].kind in WRITES))
@settings(_seeded, max_examples=40)
def test_leaves_cannot_be_written_while_recording(steps: list[Step]) -> None:
    array, other = _leaves()
    leaf, second = flow.tensor(array, requires_grad=True), flow.tensor(other)
    with pytest.raises(RuntimeError, match="a leaf tensor that requires a gradient"):
        _in_place(flow, leaf, second, steps[:1])
    check(leaf, array, "float64")
    with flow.no_grad():
        _in_place(flow, leaf, second, steps)


@given(_steps())
@settings(_seeded, max_examples=100)
def test_writing_through_a_view_of_all_elements_equals_writing_the_tensor(steps: list[Step]) -> None:
    """As in place, but the changed tensor is a view of the tensor that is read at the end."""

    def through_a_view(buffer: flow.Tensor, other: flow.Tensor) -> flow.Tensor:
        view = buffer.T.view(*SHAPE[::-1]).T
        total: flow.Tensor = _in_place(flow, view, other, steps)
        return total + (buffer * 0.125).sum()

    def copied(buffer: flow.Tensor, other: flow.Tensor) -> flow.Tensor:
        total: flow.Tensor = _in_place(flow, buffer, other, steps)
        return total + (buffer * 0.125).sum()

    if _overtaken(steps):
        return
    try:
        found = _gradients(through_a_view)
    except RuntimeError:
        # Values from before a view was written stay in the base's history, as in PyTorch.
        if not any(_writes_all(step) for step in steps):
            raise
        return
    for one, two in zip(found, _gradients(copied), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-12)


def test_a_view_from_before_a_write_follows_it() -> None:
    leaf = flow.ones(3, requires_grad=True)
    buffer = leaf * 1
    view = buffer[1:]
    buffer[1] = 5.0
    (view * 2).sum().backward()
    assert leaf.grad is not None
    check(leaf.grad, [0.0, 0.0, 2.0], "float32")
