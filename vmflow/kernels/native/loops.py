"""Elementwise ops as generated C loops: `FusedLoops` for a fused op, and `SingleLoop` for one op on large arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from vmflow.dtypes import by_name
from vmflow.instructions.blob import Array, TensorMeta
from vmflow.kernels.choosing import Call
from vmflow.kernels.expressions.bodies import Operation

from .addresses import address, is_aligned, is_plain
from .arrays import NativeCall
from .call_site import CallSite
from .elementwise import OUTER, Block, Layout, Loop, layout_of, write_loop
from .functions import WORTHWHILE, CFunction, address_of, common_source, function
from .loading import LOADER
from .processor import streamed_from

# The number of calls after which an elementwise op on large arrays is compiled as C.
_COMPILED_FROM: Final = 3

# The most layouts (shapes and strides) of its arrays for which a fused op keeps C functions.
_KEPT: Final = 64

# The shapes and strides of all arrays of a call, as the key of a fused op's C functions.
_Key: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class Chain:
    """The C function of one chain of elementwise ops, loaded when it is first needed.

    A lookup that has failed is repeated only to compile a missing library: once it is loaded, kernels are chosen anew.

    Args:
        loop: the function's source.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._function: CFunction | None = None
        # Whether the last lookup was allowed to request a compilation; None before the first lookup.
        self._missed: bool | None = None

    def function(self, makes: bool = True) -> CFunction | None:
        """Return the C function, which takes the words of a `Block`; None if it is not loaded or may not be used.

        Args:
            makes: the `make` of `Loader.request`.
        """
        if self._function is None and (self._missed is None or (makes and not self._missed)):
            self._missed = makes
            self._function = self._found(makes)
        return self._function

    def _found(self, makes: bool) -> CFunction | None:
        # A chain must agree with the ops called one by one.  So it is used only if these use C, too, for the ops whose
        # results can differ from numpy's.
        consistent = all([function(f"single_{name}", WORTHWHILE if makes else 0) for name in self._loop.inexact])
        library = LOADER.request(common_source() + "\n" + self._loop.source, makes)
        if not consistent or library is None or not library.usable(exact=True):
            return None
        found = library.function(self._loop.name)
        return CFunction(found, address_of(found))


class _Form(NamedTuple):
    """A chain's C function and its argument for one layout (shapes and strides) of the arrays.

    Attributes:
        chain: the C function.
        block: the function's argument, without the arrays' addresses.
        work: the work of a call; see `intra_op.LEAST`.
    """

    chain: Chain
    block: Block
    work: float

    def call(
        self, arrays: tuple[Array, ...], written: int = 1, compiles: bool = True, in_place: bool = False
    ) -> NativeCall | None:
        """Return the C call for arrays of this layout, the last `written` being results; None if C cannot.

        `compiles`: the `makes` of `Chain.function`; `in_place`: see `CallSite.note`.
        """
        function, block = self.chain.function(compiles), self.block
        if function is None:
            return None
        words = tuple(block.words([address(array) for array in arrays]))
        return NativeCall(
            function,
            words,
            lambda: block.cut([array.itemsize for array in arrays]),
            self.work,
            arrays,
            places=block.places,
            written=written,
            in_place=in_place,
        )


# Fused ops


class FusedLoops:
    """The C functions of one fused op: one for each layout of its arrays, written when needed.

    Args:
        inputs: the metas of the inputs.
        operations: the elementwise ops that are fused, in order.
        outputs: the numbers of the operations whose results are wanted.
        work: the work of a call; see `intra_op.LEAST`.
    """

    def __init__(
        self,
        inputs: tuple[TensorMeta, ...],
        operations: Sequence[Operation],
        outputs: tuple[int, ...],
        work: float,
    ) -> None:
        self._inputs = [operand.dtype.name for operand in inputs]
        self._operations = operations
        self._outputs = outputs
        self._host = all([operand.device.type in ("cpu", "sim") for operand in inputs])
        self._work = work
        self._known: dict[_Key, _Form | None] = {}
        self._site = CallSite()

    def call(self, arrays: Sequence[Array], outs: Sequence[Array], shape: tuple[int, ...]) -> Call | None:
        """Prepare one call that computes all results, of `shape`; None if C cannot, or its library is not loaded yet.

        The arrays must be kept alive as long as the call is used.  The call keeps the present number of threads.
        """
        found = self._found((*arrays, *outs), shape)
        return None if found is None else found.placed()

    def compute(self, arrays: Sequence[Array], outs: Sequence[Array], shape: tuple[int, ...], compiles: bool) -> bool:
        """Compute all results now, and remember the call; returns whether C could.

        Args:
            arrays, outs: the inputs, and the results' memory, which overlaps with no other array; but a result may take
                the memory of an input of its dtype and layout.
            shape: see `call`.
            compiles: whether the op is worth a run of the C compiler.
        """
        together = (*arrays, *outs)
        if self._site.again(together):
            return True
        found = self._found(together, shape, compiles)
        if found is not None:
            found.make(self._site)
        return found is not None

    def _found(self, together: tuple[Array, ...], shape: tuple[int, ...], compiles: bool = True) -> NativeCall | None:
        if not self._host or not self._operations or not all(map(is_aligned, together)):
            return None
        key = tuple([(array.shape, array.strides) for array in together])
        # The lookup is a single operation, since another thread may clear the dict at any time.
        try:
            form = self._known[key]
        except KeyError:
            if len(self._known) >= _KEPT:
                self._known.clear()
            form = self._known[key] = self._form(together, shape)
        return None if form is None else form.call(together, len(self._outputs), compiles)

    def _form(self, together: Sequence[Array], shape: tuple[int, ...]) -> _Form | None:
        layout = layout_of(together, shape) if all([type(array) is np.ndarray for array in together]) else None
        if layout is None:
            return None
        streams = sum([array.nbytes for array in together]) >= streamed_from()
        steady = layout.steady[: len(self._inputs)]
        loop = write_loop(self._inputs, self._operations, self._outputs, steady, streams)
        if loop is None:
            self._operations = ()
            return None
        return _Form(Chain(loop), Block(loop, layout), self._work)


# A single op


class SingleLoop:
    """The generated C functions of one elementwise op on large arrays: some operands may be one number each.

    Unlike numpy's loops, they can prefetch, C's helper threads may share them, and results of arrays that are too large
    for the cache are written past the cache.

    Args:
        operation: the op; its operands are those of `call`, in order.
        inputs: the names of the operands' dtypes.
        output: the meta of the result.
        work: the work of a call; see `intra_op.LEAST`.

    Attributes:
        site: remembers the latest calls.
    """

    def __init__(self, operation: Operation, inputs: Sequence[str], output: TensorMeta, work: float) -> None:
        self._operation = operation
        self._inputs = inputs
        self._dtypes = [by_name(operand).numpy for operand in inputs]
        self._output = output
        self._work = work
        self._streams = (1 + len(inputs)) * output.nbytes >= streamed_from()
        self._occurrences = 0
        self.site = CallSite()
        # The C functions, by a tuple of bools: for each operand, whether it is one number for all elements; and
        # whether the result is written past the cache.
        self._known: dict[tuple[bool, ...], _Form | None] = {}

    def call(self, operands: Sequence[Array], out: Array | None) -> Array | None:
        """Compute the op; None in the first `_COMPILED_FROM` calls, and later if the library is not loaded or C cannot.

        Args:
            operands: arrays that broadcast to the result; C takes those of the result's shape or without dimensions.
            out: memory for the result, or None.
        """
        found = self.site.result(operands, out)
        if found is not None:
            return found
        if self._occurrences < _COMPILED_FROM:
            self._occurrences += 1
            return None
        shape, to = self._output.shape, self._output.dtype.numpy
        if out is None:
            out = np.empty(shape, to)
        elif type(out) is not np.ndarray or out.dtype is not to or out.shape != shape or not is_plain(out):
            return None
        steady: list[bool] = []
        in_place = False
        written = address(out)
        for array, dtype in zip(operands, self._dtypes, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or not is_plain(array):
                return None
            still, place = array.ndim == 0, address(array)
            if not still and array.shape != shape:
                return None
            # An operand may share the result's memory only element by element: no element may be written before the
            # loop has read it.
            overlaps = place < written + out.nbytes and written < place + array.nbytes
            if overlaps and (still or place != written or array.itemsize != out.itemsize):
                return None
            steady.append(still)
            in_place = in_place or place == written
        # A result that has an operand's memory is not written past the cache, since the loop has just read its cache
        # lines.
        streams = self._streams and not in_place
        kind = (*steady, streams)
        try:
            form = self._known[kind]
        except KeyError:
            form = self._known[kind] = self._form(tuple(steady), streams)
        call = None if form is None else form.call((*operands, out), in_place=not streams)
        if call is None:
            return None
        # A call in place does not write past the cache.  Where other calls do, the call in place is not remembered: it
        # must not be repeated for arrays that call for streaming stores.
        call.make(self.site if streams is self._streams else None)
        return out

    def _form(self, steady: tuple[bool, ...], streams: bool) -> _Form | None:
        loop = write_loop(self._inputs, (self._operation,), (0,), steady, streams)
        if loop is None or all(steady):
            return None
        arrays = len(steady) + 1
        layout = Layout((*steady, False), self._output.numel, (1,) * OUTER, ((0,) * OUTER,) * arrays)
        return _Form(Chain(loop), Block(loop, layout), self._work)
