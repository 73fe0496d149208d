"""Random programs of ops, and runs of them in planned memory that check their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from vmflow.graph_mode.memory_planning import Layout, Op

Bytes = npt.NDArray[np.uint8]


@attrs.frozen
class Program:
    """Ops that can run in the given order.

    Attributes:
        ops: each reads buffers that are pinned or were written before.
        nbytes: the size of each buffer, by id.
        pinned: buffers with memory of their own: those that no op writes, and some others.
    """

    ops: list[Op]
    nbytes: dict[int, int]
    pinned: list[int]


@st.composite
def programs(draw: st.DrawFn, at_most: int = 12) -> Program:
    """Ops with up to three inputs, also the same one twice, and up to two outputs that mostly may share some input."""
    nbytes = {0: 100, 1: 64}
    pinned = [0, 1]
    ops: list[Op] = []
    for _ in range(draw(st.integers(1, at_most))):
        # The most recent ones above all, so that much ends soon.
        known = sorted(nbytes)[-5:]
        inputs = tuple(draw(st.lists(st.sampled_from(known), max_size=3)))
        outputs: list[int] = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
            outputs.append(len(nbytes))
            sizes = [nbytes[operand] for operand in inputs] or [100]
            nbytes[outputs[-1]] = draw(st.sampled_from(sizes * 3) | st.sampled_from([0, 1, 64, 65, 300, 1000]))
            if draw(st.integers(0, 7)) == 0:
                pinned.append(outputs[-1])
        pairs = [(one, other) for one in range(len(inputs)) for other in range(len(outputs))]
        allowed = tuple(pair for pair in pairs if draw(st.integers(0, 3)))
        ops.append(Op(inputs, tuple(outputs), allowed))
    return Program(ops, nbytes, pinned)


def run(program: Program, memory: Mapping[int, Bytes], story: list[list[Bytes]]) -> None:
    """Run the ops on this memory, without any checks, and return the values that each has read.

    An op spoils its outputs before it looks at its inputs, but for those that may share: these it reads beforehand if
    they really do.
    """
    for step, op in enumerate(program.ops):
        together = {
            given for given, taken in op.may_share if _same(memory[op.inputs[given]], memory[op.outputs[taken]])
        }
        early = {at: memory[op.inputs[at]].copy() for at in together}
        for name in op.outputs:
            memory[name][:] = 255 - step
        read = [early[at] if at in early else memory[name].copy() for at, name in enumerate(op.inputs)]
        story.append(read)
        for at, name in enumerate(op.outputs):
            memory[name][:] = _computed(read, step, at, memory[name].size)


def _computed(read: Sequence[Bytes], step: int, at: int, size: int) -> Bytes:
    result = np.full(size, 31 * step + at, np.int64) + np.arange(size)
    for number, values in enumerate(read):
        if values.size:
            result += (number + 2) * np.resize(values, size).astype(np.int64)
    return (result % 251).astype(np.uint8)


def _same(one: Bytes, other: Bytes) -> bool:
    return one.size > 0 and other.size > 0 and np.shares_memory(one, other)


def apart(program: Program) -> dict[int, Bytes]:
    """Memory of its own for each buffer."""
    return {name: np.full(nbytes, name % 251, np.uint8) for name, nbytes in program.nbytes.items()}


def in_one(program: Program, layout: Layout) -> dict[int, Bytes]:
    """Memory as the layout has it, and separate memory for pinned buffers."""
    memory = apart(program)
    whole = np.full(layout.nbytes, 77, np.uint8)
    for name, offset in layout.offsets.items():
        memory[name] = whole[offset : offset + program.nbytes[name]]
    return memory
