"""Writes a chain of elementwise ops as one C function, and the block of numbers that is the function's argument.

The function's source contains neither sizes nor the Python numbers among the operands.  It has one inner loop, in which
each array either stays at one element or advances by one, and four loops around it, in which arrays advance by any
number of bytes: so broadcasting needs no copies.

The block holds, in this order: the length of the inner loop; the lengths of the four outer loops; for each array, its
address and its step in each of the outer loops, in bytes; and the Python numbers, in eight bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.kernels.expressions.bodies import Number, Operation, write_body
from vmflow.kernels.expressions.rules import C_TYPES

from .blocks import in_blocks, in_streamed_blocks
from .team import TOGETHER, Cut

# The number of loops around the inner loop of a chain's C function.
OUTER: Final = 4

_ARRAYS_AT: Final = 1 + OUTER

# Threads would get too unequal shares of an outermost loop of fewer iterations; see `Block.cut`.
_SHAREABLE: Final = 16


class Loop(NamedTuple):
    """The C function of a chain of elementwise ops.

    Attributes:
        name: the function's name.
        source: the function's source, without the source that all functions share.
        steady: for each array, inputs before outputs, whether it stays at one element in the inner loop.
        scalars: the bits of each Python number among the operands, as an int64, for the function's argument.
        inexact: the names of the chain's ops whose results can differ from numpy's.
    """

    name: str
    source: str
    steady: tuple[bool, ...]
    scalars: tuple[int, ...]
    inexact: frozenset[str]


def write_loop(
    inputs: Sequence[str],
    operations: Sequence[Operation],
    outputs: Sequence[int],
    steady: Sequence[bool],
    streams: bool = False,
) -> Loop | None:
    """Write the C function of a chain of elementwise ops; None if one of its ops, dtypes or numbers cannot be written.

    Args:
        inputs: the names of the input arrays' dtypes.
        operations: the ops, in order.
        outputs: the numbers of the operations whose results are wanted.
        steady: for each input, whether it stays at one element in the inner loop; outputs never do.
        streams: whether to write results past the cache, where they are aligned to cache lines.
    """
    written = write_body(inputs, operations, C_TYPES)
    if written is None:
        return None
    kinds = [*inputs, *[operations[number].result for number in outputs]]
    scalars_at = _ARRAYS_AT + len(kinds) * (1 + OUTER)
    before = [
        f"const {C_TYPES[value.dtype]} s{number} = *(const {C_TYPES[value.dtype]} *)(block + {scalars_at + number});"
        for number, value in enumerate(written.numbers)
    ]
    pointers: list[str] = []
    for number, dtype in enumerate(kinds):
        at = _ARRAYS_AT + number * (1 + OUTER)
        place = " + ".join([f"block[{at}]", *[f"i{axis} * block[{at + 1 + axis}]" for axis in range(OUTER)]])
        constant = "const " if number < len(inputs) else ""
        pointers.append(f"{constant}{C_TYPES[dtype]} *const p{number} = ({constant}{C_TYPES[dtype]} *)({place});")
    loads = [
        f"const {C_TYPES[dtype]} x{number} = p{number}[{'0' if still else 'i'}];"
        for number, (dtype, still) in enumerate(zip(inputs, steady, strict=True))
    ]
    held = [line for line, still in zip(loads, steady, strict=True) if still]
    moving = [line for line, still in zip(loads, steady, strict=True) if not still]
    made = [
        (f"p{len(inputs) + number}", place, C_TYPES[operations[place].result]) for number, place in enumerate(outputs)
    ]
    stores = [f"{to}[i] = t{place};" for to, place, _ in made]
    read = [f"p{number}" for number, still in enumerate(steady) if not still]
    streaming = in_streamed_blocks(read, [*moving, *written.lines], made) if streams else []
    blocks = in_blocks(read, [to for to, _, _ in made], [*moving, *written.lines, *stores])
    around = [*pointers, *held, "int64_t done = 0;", *streaming, *blocks]
    body = _nested(
        before,
        around,
        [*moving, *written.lines, *stores],
        "#ifdef STREAMS\n    streamed();\n#endif\n" if streams else "",
    )
    import hashlib  # imported here, since it loads a library for cryptography

    name = "chain_" + hashlib.sha256(body.encode()).hexdigest()[:16]
    source = f"void {name}(const int64_t *block) {{\n{body}}}\n"
    moves = (*steady, *[False] * len(outputs))
    return Loop(name, source, moves, tuple(map(_word, written.numbers)), written.inexact)


def _word(number: Number) -> int:
    """Return the bits of a Python number in its dtype as an int64, for the C function's block of numbers."""
    word = np.zeros(1, np.int64)
    word.view(number.dtype)[0] = number.value
    return int(word[0])


def _nested(before: Sequence[str], around: Sequence[str], inside: Sequence[str], behind: str) -> str:
    lines = ["    const int64_t n = block[0];", *[f"    {line}" for line in before]]
    for axis in reversed(range(OUTER)):
        lines.append(f"    for (int64_t i{axis} = 0; i{axis} < block[{1 + axis}]; i{axis}++)")
    lines += ["    {", *[f"        {line}" for line in around]]
    lines += ["        LANES", "        for (int64_t i = done; i < n; i++) {"]
    lines += [*[f"            {line}" for line in inside], "        }", "    }", ""]
    return "\n".join(lines) + behind


# Calling it


class Layout(NamedTuple):
    """The lengths and steps of a chain's loops, for arrays of certain shapes and strides.

    Attributes:
        steady: for each array, whether it stays at one element in the inner loop.
        inner: the length of the inner loop.
        outer: the lengths of the outer loops, the innermost first.
        steps: for each array, its step in each of the outer loops, in bytes.
    """

    steady: tuple[bool, ...]
    inner: int
    outer: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]


def layout_of(arrays: Sequence[Any], shape: tuple[int, ...]) -> Layout | None:
    """Find the loops over arrays that broadcast to `shape`.

    None if the result is empty, too many loops are needed, or an inner step is neither 0 nor one element.
    """
    if 0 in shape:
        return None
    sizes: list[int] = []
    strides: list[list[int]] = []
    spread = [np.broadcast_to(array, shape).strides for array in arrays]
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        steps = [value[axis] for value in spread]
        if sizes and all([step == last * sizes[-1] for step, last in zip(steps, strides[-1], strict=True)]):
            sizes[-1] *= shape[axis]
            continue
        sizes.append(shape[axis])
        strides.append(steps)
    if not sizes:
        sizes, strides = [1], [[0] * len(arrays)]
    if len(sizes) > 1 + OUTER:
        return None
    if any([step not in (0, value.itemsize) for step, value in zip(strides[0], arrays, strict=True)]):
        return None
    still = tuple([step == 0 for step in strides[0]])
    padding = [0] * (OUTER - len(sizes) + 1)
    outer = tuple([*sizes[1:], *[1] * len(padding)])
    steps_ = tuple([tuple([*[stride[number] for stride in strides[1:]], *padding]) for number in range(len(arrays))])
    return Layout(still, sizes[0], outer, steps_)


class Block:
    """The block of numbers that is the argument of a chain's C function, except for the addresses of its arrays.

    Args:
        loop: the function.
        layout: the lengths and steps of its loops over the arrays.

    Attributes:
        places: the positions of the arrays' addresses in the block.
    """

    def __init__(self, loop: Loop, layout: Layout) -> None:
        numbers = [layout.inner, *layout.outer]
        for steps in layout.steps:
            numbers += [0, *steps]
        numbers += loop.scalars
        self._numbers = numbers
        self.places = [_ARRAYS_AT + number * (1 + OUTER) for number in range(len(layout.steps))]
        self._steady = loop.steady

    def words(self, addresses: Sequence[int]) -> list[int]:
        """Return the block for arrays at these addresses, whose shapes and strides are those of the layout."""
        words = self._numbers.copy()
        for place, found in zip(self.places, addresses, strict=True):
            words[place] = found
        return words

    def cut(self, itemsizes: Sequence[int]) -> Cut:
        """Return the `Cut` that shares one of the function's loops among threads.

        Args:
            itemsizes: the bytes of an element of each array.
        """
        # Threads share the outermost loop of more than one iteration if it is long enough, else the longest.
        axis = max([number for number in range(_ARRAYS_AT) if self._numbers[number] > 1], default=0)
        if self._numbers[axis] < _SHAREABLE:
            axis = max(range(_ARRAYS_AT), key=self._numbers.__getitem__)
        moves: list[tuple[int, int]] = []
        for place, itemsize, still in zip(self.places, itemsizes, self._steady, strict=True):
            step = self._numbers[place + axis] if axis else 0 if still else itemsize
            if step:
                moves.append((place, step))
        return Cut(axis, tuple(moves), 1 if axis else TOGETHER)
