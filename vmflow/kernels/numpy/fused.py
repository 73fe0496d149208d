"""Several elementwise ops fused into one, which computes large arrays in tiles.

Intermediate results within a tile stay in the cache until they are used, so that memory is read and written once for
any number of ops.  The kernels of the ops themselves compute each tile: results agree to the bit with those of single
ops. With a C compiler the chain of a large array may become one loop instead, see `vmflow.kernels.native.loops`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels import intra_op
from vmflow.kernels.choosing import Call, Function, Kernel, Problem, builds
from vmflow.kernels.expressions.bodies import operation_of
from vmflow.kernels.native.loops import FusedLoops
from vmflow.kernels.numpy.spreading import work
from vmflow.kernels.problems.fused import Fused
from vmflow.kernels.strides import with_merged_dimensions

# The most bytes of one array's tile.  Smaller tiles lose time by numpy's calls; larger ones fill the cache that cores
# share.
TILE: Final = 1 << 17

# Where possible, tiles have a multiple of so many elements, so that the vector loops of numpy's kernels end where they
# would in the whole array.
_WHOLE: Final = 64

# The bytes of a cache line: tiles begin at multiples of them in the workspace.
_LINE: Final = 64

# From this many elements on, a fused op is worth a run of the C compiler.
_COMPILED_FROM: Final = 1 << 12

# The call from which on a fused op of eager ops is worth a run of the C compiler; and the number of forms of fused ops
# whose calls are counted.
COMPILED_FROM_TIMES: Final = 3
_FORMS: Final = 1024

_occurrences: dict[Hashable, int] = {}


def _occurs_often(form: Hashable) -> bool:
    """Count a call of a form, unless it is new and `_FORMS` others are known; return whether the form occurs often."""
    times = _occurrences.get(form, 0)
    if times < COMPILED_FROM_TIMES and (times or len(_occurrences) < _FORMS):
        times = _occurrences[form] = times + 1
    return times >= COMPILED_FROM_TIMES


# `FusedKernel.placed` prepares all calls of numpy once if there are about so many or fewer.  Of more it prepares none:
# they are made anew in each run.
_CALLS: Final = 2048


# Memory of intermediate results


def _offsets(fused: Fused, inputs: int, elements: int) -> tuple[list[int | None], int]:
    """Return each step's offset in the workspace, None if the step writes an output; and the workspace's bytes.

    Args:
        inputs: the number of the fused op's inputs.
        elements: the number of elements of a tile.
    """
    steps, outputs = fused.steps, fused.outputs
    last = list(range(len(steps)))
    for position, step in enumerate(steps):
        for operand in step.operands:
            if operand >= inputs:
                last[operand - inputs] = position
    offsets: list[int | None] = []
    # By the bytes of an element, the offsets of tiles that are free again.
    free: defaultdict[int, list[int]] = defaultdict(list)
    nbytes = 0

    def release(number: int) -> None:
        offset = offsets[number]
        assert offset is not None
        free[steps[number].output.dtype.itemsize].append(offset)

    for position, step in enumerate(steps):
        read = dict.fromkeys([operand - inputs for operand in step.operands if operand >= inputs])
        ending = [number for number in read if last[number] == position and number not in outputs]
        if step.kernel.sharing:
            # The step may work in place, but not on an operand of another dtype, whose elements could be lost unread.
            for value in [value for value in ending if steps[value].output.dtype is step.output.dtype][:1]:
                release(value)
                ending.remove(value)
        if position in outputs:
            offsets.append(None)
        else:
            size = step.output.dtype.itemsize
            if not free[size]:
                free[size].append(nbytes)
                nbytes += -(-elements * size // _LINE) * _LINE
            offsets.append(free[size].pop())
            if last[position] == position:
                ending.append(position)
        for value in ending:
            release(value)
    return offsets, nbytes


class FusedKernel:
    """The kernel of a fused op.

    Args:
        fused: see `Fused`.
        metas: the metas of the inputs.

    Attributes:
        scratch: the bytes of scratch memory that `placed` needs.
    """

    def __init__(self, fused: Fused, metas: tuple[TensorMeta, ...]) -> None:
        self._inputs = len(metas)
        self._steps = fused.steps
        self._outputs = outputs = fused.outputs
        self._made = tuple([self._steps[number].output for number in outputs])
        self._shape = tuple(self._steps[0].output.shape)
        self._numel = numel = math.prod(self._shape)
        self._work = work(self._made[0], sum([step.cost for step in fused.steps]) / max(numel, 1))
        self._in_c = FusedLoops(metas, [operation_of(step) for step in fused.steps], outputs, self._work)
        # The key by which `_occurs_often` counts the calls of an occasional op: the same for all scalars and sizes.
        self._form = (
            (
                tuple([(step.name, step.attributes, step.operands) for step in fused.steps]),
                tuple([meta.dtype for meta in metas]),
            )
            if fused.occasional
            else None
        )
        widest = max([value.dtype.itemsize for value in (*metas, *[step.output for step in self._steps])])
        self._tile = max(1, TILE // widest // _WHOLE) * _WHOLE
        elements = min(numel, self._tile)
        self._offsets, self.scratch = _offsets(fused, len(metas), elements)
        # For each step: the function, its arguments before the operands, the operands' numbers, the arguments behind
        # them, and the number of the output that it writes, or -1.  Prepared here, since every tile needs them.
        self._recipe: list[tuple[Function, tuple[Any, ...], tuple[int, ...], tuple[Any, ...], int]] = []
        for position, step in enumerate(fused.steps):
            function, before, after = step.kernel.with_scalars(step.scalars)
            output = outputs.index(position) if position in outputs else -1
            self._recipe.append((function, before, step.operands, after, output))
        # A lower bound of the number of calls; arrays that are not contiguous may need more tiles.
        self._calls_at_least = max(1, -(-numel // self._tile)) * len(self._steps)

    def compute(self, *arguments: Any) -> Any:
        arrays = arguments[: self._inputs]
        given = arguments[self._inputs]
        several = len(self._made) > 1
        wanted = (given if several else (given,)) if given is not None else (None,) * len(self._made)
        outs = [
            np.empty(made.shape, made.dtype.numpy) if out is None else out
            for out, made in zip(wanted, self._made, strict=True)
        ]
        compiles = self._numel >= _COMPILED_FROM and (self._form is None or _occurs_often(self._form))
        if not self._in_c.compute(arrays, outs, self._shape, compiles):
            if self._shape and self._numel <= self._tile:
                self._run_whole(arrays, outs)
            else:
                _make(self.calls(arrays, outs, np.empty(self.scratch, np.uint8)))
        return tuple(outs) if several else outs[0]

    def _run_whole(self, arrays: Sequence[Array], outs: Sequence[Array]) -> None:
        """Compute a single tile by numpy, without a workspace: dividing one takes longer than allocating results."""
        values = list(arrays)
        for function, before, operands, after, output in self._recipe:
            out = outs[output] if output >= 0 else None
            result = function(*before, *[values[operand] for operand in operands], *after, out)
            if out is not None and result is not out:
                np.copyto(out, result, casting="unsafe")
            values.append(result if out is None else out)

    def native(self, arrays: Sequence[Array], outs: Sequence[Array]) -> Call | None:
        """Return one call of C for all steps, valid as long as the arrays live; None if C has none for them now."""
        return self._in_c.call(arrays, outs, self._shape)

    def placed(self, arrays: Sequence[Array], outs: Sequence[Array], scratch: Array | None) -> list[Call]:
        """Return calls for arrays that stay in place: one of C if possible, else numpy's, perhaps as one."""
        native = self.native(arrays, outs)
        if native is not None:
            return [native]
        workspace = np.empty(self.scratch, np.uint8) if scratch is None else scratch
        if self._calls_at_least > _CALLS:
            return [(lambda: _make(self.calls(arrays, outs, workspace)), (), None)]
        return list(self.calls(arrays, outs, workspace))

    def calls(self, arrays: Sequence[Array], outs: Sequence[Array], workspace: Array) -> Iterator[Call]:
        """Yield the calls of numpy in order; if several threads share them now, one call that runs all."""
        pieces = intra_op.pieces(self._work)
        if pieces > 1:
            parts: list[tuple[list[Call]]] = []
            for given, wanted, shape in tiles(arrays, outs, self._shape, -(-self._numel // pieces)):
                memory = np.empty(self.scratch, np.uint8) if parts else workspace
                parts.append((list(self._calls_of(given, wanted, shape, memory)),))
            yield intra_op.run, (_make, parts), None
            return
        yield from self._calls_of(arrays, outs, self._shape, workspace)

    def _calls_of(
        self, arrays: Sequence[Array], outs: Sequence[Array], whole: tuple[int, ...], workspace: Array
    ) -> Iterator[Call]:
        """Yield one thread's calls of numpy, for arrays that broadcast to the shape `whole`."""
        if math.prod(whole) <= self._tile:
            yield from self._calls(arrays, outs, self._scratch(whole, workspace))
            return
        # Most tiles have one shape.
        scratch: dict[tuple[int, ...], list[Array]] = {}
        for given, wanted, shape in tiles(arrays, outs, whole, self._tile):
            if shape not in scratch:
                scratch[shape] = self._scratch(shape, workspace)
            yield from self._calls(given, wanted, scratch[shape])

    def _scratch(self, shape: tuple[int, ...], workspace: Array) -> list[Array]:
        """Return for each step of the fused op its tile in the workspace; None where the result is an output."""
        # One array for each memory: numpy takes long to check arrays that share memory, unless they are one object.
        made: dict[tuple[int | None, np.dtype[Any]], Array] = {}
        found: list[Array] = []
        for step, offset in zip(self._steps, self._offsets, strict=True):
            key = (offset, step.output.dtype.numpy)
            if offset is not None and key not in made:
                made[key] = np.ndarray(shape, key[1], workspace, offset)
            found.append(made.get(key))
        return found

    def _calls(self, arrays: Sequence[Array], outs: Sequence[Array], scratch: Sequence[Array]) -> list[Call]:
        values = list(arrays)
        calls: list[Call] = []
        for (function, before, operands, after, output), target in zip(self._recipe, scratch, strict=True):
            out = target if target is not None else outs[output]
            calls.append((function, (*before, *[values[operand] for operand in operands], *after, out), out))
            values.append(out)
        return calls

    def sharing(self) -> list[tuple[int, int]]:
        """Return pairs (input, output): the output may take the input's memory, if dtype and layout are the same.

        The input must have been read for the last time before the step that writes the output, or by that step, if its
        kernel may work in place.
        """
        pairs: list[tuple[int, int]] = []
        for number in range(self._inputs):
            last = max([at for at, step in enumerate(self._steps) if number in step.operands])
            for output, at in enumerate(self._outputs):
                if last < at or (last == at and self._steps[at].kernel.sharing):
                    pairs.append((number, output))
        return pairs


def _make(calls: Iterable[Call]) -> None:
    for function, given, out in calls:
        result = function(*given)
        if out is not None and result is not out:
            np.copyto(out, result, casting="unsafe")


# Tiles


def tiles(
    arrays: Sequence[Array], outs: Sequence[Array], shape: tuple[int, ...], elements: int
) -> Iterator[tuple[list[Array], list[Array], tuple[int, ...]]]:
    """Yield matching pieces of `arrays`, which broadcast to `shape`, and of `outs`, of that shape; and their shape.

    Args:
        elements: the most elements of a piece; an operand of a single element comes whole, without dimensions.
    """
    count = len(arrays)
    if all([array.size == 1 or (array.shape == shape and array.flags.c_contiguous) for array in (*arrays, *outs)]):
        # Gives the same views as the general way below, in less time.
        merged: tuple[int, ...] = (math.prod(shape),)
        views = [array.reshape(() if array.size == 1 else -1) for array in (*arrays, *outs)]
    else:
        spread = [array.reshape(()) if array.size == 1 else np.broadcast_to(array, shape) for array in arrays] + list(
            outs
        )
        merged, views = _merged(spread, shape)
    axis = len(merged) - 1
    inner = 1
    while axis > 0 and inner * merged[axis] <= elements:
        inner *= merged[axis]
        axis -= 1
    length = max(1, elements // inner)
    even = _WHOLE // math.gcd(inner, _WHOLE)
    if length > even:
        length -= length % even
    for before in product(*[range(size) for size in merged[:axis]]):
        for start in range(0, merged[axis], length):
            where = (*before, slice(start, start + length))
            pieces = [view[where] if view.ndim else view for view in views]
            yield pieces[:count], pieces[count:], (min(length, merged[axis] - start), *merged[axis + 1 :])


def _merged(arrays: list[Array], shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[Array]]:
    """Return a shape of as few dimensions as possible, and the arrays as views of it; 0-d arrays stay as they are."""
    rank = len(shape)
    merged, strides = with_merged_dimensions(shape, [array.strides or (0,) * rank for array in arrays])
    views = [
        np.lib.stride_tricks.as_strided(value, merged, have) if value.ndim else value
        for value, have in zip(arrays, strides, strict=True)
    ]
    return merged, views


@builds("fused")
def _fused(problem: Problem) -> Kernel:
    fused = FusedKernel(problem.details, problem.inputs)
    return Kernel(fused.compute, placed=fused.placed, scratch=fused.scratch, sharing=fused.sharing())
