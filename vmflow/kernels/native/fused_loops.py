"""Fused ops in C: from the steps of a fused op to one call, where all of them can be written in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Call
from vmflow.kernels.native import team
from vmflow.kernels.native.addresses import address, is_aligned
from vmflow.kernels.native.call_site import CallSite
from vmflow.kernels.native.chain import Chain
from vmflow.kernels.native.elementwise import Block, Operation, layout_of, write_loop
from vmflow.kernels.native.functions import address_of
from vmflow.kernels.native.processor import streamed_from
from vmflow.kernels.problems.elementwise import REVERSED
from vmflow.kernels.problems.fused import FusedStep

# The shapes and strides of all arrays.
_Key: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def operation_of(step: FusedStep) -> Operation:
    """A step as the emitter sees it."""
    reversed_ = step.attributes == REVERSED
    return Operation(step.name, step.operands, step.scalars, reversed_, step.compute.name, step.output.dtype.name)


class FusedLoops:
    """The C functions of one fused op: one for each way in which its arrays may lie in memory, made when first met.

    Args:
        inputs: the metas of the inputs.
        operations: the steps.
        outputs: the steps whose results are wanted.
        work: see `intra_op.LEAST`.
    """

    def __init__(
        self,
        inputs: tuple[TensorMeta, ...],
        operations: Sequence[Operation],
        outputs: tuple[int, ...],
        work: float,
    ) -> None:
        self._inputs = [it.dtype.name for it in inputs]
        self._operations = operations
        self._outputs = outputs
        self._host = all([it.device.type in ("cpu", "sim") for it in inputs])
        self._work = work
        self._known: dict[_Key, tuple[Chain, Block] | None] = {}
        self._site = CallSite()

    def call(self, arrays: Sequence[Array], outs: Sequence[Array], shape: tuple[int, ...]) -> Call | None:
        """One call that computes all; None if there is none, or not yet.

        The arrays must be kept alive as long as it is used, and the number of threads is that of now.
        """
        together = (*arrays, *outs)
        found = self._found(together, shape)
        if found is None:
            return None
        function, block = found
        words = block.words([address(it) for it in together])
        job = self._job(function, block, words, together)
        shared = None if job is None else team.call_of(job, self._work)
        return shared or (function, ((ctypes.c_int64 * len(words))(*words),), None)

    def compute(self, arrays: Sequence[Array], outs: Sequence[Array], shape: tuple[int, ...], compiles: bool) -> bool:
        """The same, done at once and remembered; whether it was done.

        Args:
            arrays, outs: which have no memory in common.
            shape: see `call`.
            compiles: whether it is worth a run of the C compiler.
        """
        together = (*arrays, *outs)
        if self._site.again(together):
            return True
        found = self._found(together, shape, compiles)
        if found is None:
            return False
        function, block = found
        words = block.words([address(it) for it in together])
        job = self._job(function, block, words, together)
        if job is None or not team.run(job, self._work):
            job = None
            function((ctypes.c_int64 * len(words))(*words))
        if all([it.size for it in together]):
            alone, taken = (address_of(function), words) if job is None else (0, job)
            places = [len(taken) - len(words) + it for it in block.places]
            self._site.note(alone, taken, places, together, self._work, written=len(outs))
        return True

    def _found(
        self, together: tuple[Array, ...], shape: tuple[int, ...], compiles: bool = True
    ) -> tuple[Callable[..., Any], Block] | None:
        """The function for arrays that lie like these, and what it takes."""
        if not self._host or not self._operations or not all(map(is_aligned, together)):
            return None
        key = tuple([(it.shape, it.strides) for it in together])
        # Others may be at this, and clear it, at the same time.
        try:
            found = self._known[key]
        except KeyError:
            if len(self._known) >= 64:
                self._known.clear()
            streams = sum([it.nbytes for it in together]) >= streamed_from()
            found = self._known[key] = self._written(together, shape, streams)
        if found is None:
            return None
        chain, block = found
        function = chain.function(compiles)
        return None if function is None else (function, block)

    def _job(
        self, function: Callable[..., Any], block: Block, words: Sequence[int], together: tuple[Array, ...]
    ) -> team.Job | None:
        """The same shared out among threads; None if that is not worth it."""
        if not team.helps(self._work):
            return None
        return team.job(address_of(function), words, team.Cut(*block.cut([it.itemsize for it in together])), self._work)

    def _written(self, together: Sequence[Array], shape: tuple[int, ...], streams: bool) -> tuple[Chain, Block] | None:
        layout = layout_of(together, shape) if all([type(it) is np.ndarray for it in together]) else None
        if layout is None:
            return None
        steady = layout.steady[: len(self._inputs)]
        loop = write_loop(self._inputs, self._operations, self._outputs, steady, streams)
        if loop is None:
            self._operations = ()
            return None
        return Chain(loop), Block(loop, layout)
