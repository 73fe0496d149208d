"""`SingleLoop`: an eager elementwise op on large arrays, in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from vmflow.dtypes import by_name
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.native import team
from vmflow.kernels.native.addresses import address, is_plain
from vmflow.kernels.native.call_site import CallSite
from vmflow.kernels.native.chain import Chain
from vmflow.kernels.native.elementwise import OUTER, Block, Layout, Operation, write_loop
from vmflow.kernels.native.functions import address_of
from vmflow.kernels.native.processor import streamed_from

# How often an op must have been met before it is worth a run of the C compiler.
_COMPILED_FROM: Final = 3


class SingleLoop:
    """The C function of one elementwise op on large arrays.

    It asks for what lies ahead, which numpy's loops do not, may be shared out among threads, and writes results that no
    cache holds past it.

    Args:
        operation: the op; its operands are those of `call`, in order.
        inputs: the names of their dtypes, without which nothing is computed.
        output: the meta of the result.
        work: see `intra_op.LEAST`.

    Attributes:
        site: where its calls are remembered.
    """

    def __init__(self, operation: Operation, inputs: Sequence[str], output: TensorMeta, work: float) -> None:
        self._operation = operation
        self._inputs = inputs
        self._dtypes = [by_name(it).numpy for it in inputs]
        self._output = output
        self._work = work
        self._streams = (1 + len(inputs)) * output.nbytes >= streamed_from()
        self._met = 0
        self.site = CallSite()
        # By which of the operands are one number for all, and whether the result is streamed.
        self._known: dict[tuple[bool, ...], _Form | None] = {}

    def call(self, operands: Sequence[Array], out: Array | None) -> Array | None:
        """The result; None if it cannot be had so, or not yet.

        Args:
            operands: arrays that broadcast to the result.
            out: where it should go, or None.
        """
        found = self.site.result(operands, out)
        if found is not None:
            return found
        if self._met < _COMPILED_FROM:
            self._met += 1
            return None
        shape, to = self._output.shape, self._output.dtype.numpy
        if out is None:
            out = np.empty(shape, to)
        elif type(out) is not np.ndarray or out.dtype is not to or out.shape != shape or not is_plain(out):
            return None
        steady: list[bool] = []
        places: list[int] = []
        written = address(out)
        for array, dtype in zip(operands, self._dtypes, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or not is_plain(array):
                return None
            still, place = array.ndim == 0, address(array)
            if not still and array.shape != shape:
                return None
            # What is read at one place must not be written at another before that.
            overlaps = place < written + out.nbytes and written < place + array.nbytes
            if overlaps and (still or place != written or array.itemsize != out.itemsize):
                return None
            steady.append(still)
            places.append(place)
        # In place it would be written past a line that has just been read.
        kind = (*steady, self._streams and written not in places)
        try:
            form = self._known[kind]
        except KeyError:
            form = self._known[kind] = self._form(tuple(steady), kind[-1])
        places.append(written)
        # What does not stream, since it is done in place, is not to be done again where that is not so.
        site = self.site if kind[-1] is self._streams else None
        return out if form is not None and form.run((*operands, out), places, self._work, site) else None

    def _form(self, steady: tuple[bool, ...], streams: bool) -> _Form | None:
        loop = write_loop(self._inputs, (self._operation,), (0,), steady, streams)
        function = None if loop is None or all(steady) else Chain(loop).function()
        if loop is None or function is None:
            return None
        itemsizes = [it.itemsize for it in (*self._dtypes, self._output.dtype.numpy)]
        layout = Layout((*steady, False), self._output.numel, (1,) * OUTER, ((0,) * OUTER,) * len(itemsizes))
        return _Form(function, Block(loop, layout), itemsizes, streams)


class _Form:
    """A function and what it is called with, but for the addresses."""

    def __init__(self, function: Callable[..., Any], block: Block, itemsizes: Sequence[int], streams: bool) -> None:
        self._function = function
        self._block = block
        self._cut = team.Cut(*block.cut(itemsizes))
        self._streams = streams

    def run(self, arrays: tuple[Array, ...], places: Sequence[int], work: float, site: CallSite | None) -> bool:
        """Compute; whether it was done.

        Args:
            arrays: the operands and the result.
            places: their addresses.
            work: see `intra_op.LEAST`.
            site: which is to note the call, or None.
        """
        function = self._function
        words = self._block.words(places)
        job = team.job(address_of(function), words, self._cut, work)
        if job is None:
            function((ctypes.c_int64 * len(words))(*words))
        elif not team.run(job, work):
            return False
        if site is not None:
            alone, taken = (address_of(function), words) if job is None else (0, job)
            before = len(taken) - len(words)
            site.note(
                alone, taken, [before + it for it in self._block.places], arrays, work, in_place=not self._streams
            )
        return True
