"""One number from all elements of many arrays: each block reduces its part, and one block combines the results.

The order of combinations is always the same, and so are the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from vmflow.kernels.cuda.sources import STORED, THREADS, CudaKernel
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .together import REDUCING, Change, Given

# The most elements of a row that a block goes through.
_PART: Final = 16 * THREADS


class Combination(NamedTuple):
    """A combination of two float64 numbers, associative but for rounding.

    Attributes:
        start: the neutral element.
        function: the function of two numbers, in C++.
    """

    start: str
    function: str

    @property
    def head(self) -> str:
        """C++ statements in front of the first element, which declare a `total` and the function `combine`."""
        return f"double total = {self.start};\nauto combine = {self.function};\n"

    def of_rows(self, name: str, arrays: tuple[str, ...], body: str, common: tuple[Given, ...], head: str = "",
                writes: tuple[str, ...] = ()) -> Change:  # fmt: skip
        """Return a `Change` whose blocks compute one number each, `total`; `body` combines an element with `total`
        by `combine`.  It reads `arrays`; for the other arguments see `Change`.
        """
        tail = "total = of_block(total, combine); if (threadIdx.x == 0) partial[0] = total;"
        return Change(name, writes, arrays, body, self.head + head, (), (), common, tail, 1, _PART)


ADDED: Final = Combination("0", "[](double x, double y) { return x + y; }")

# For numbers that are not negative; nan is the largest.
LARGEST: Final = Combination("0", "[](double x, double y) { return x != x || x >= y ? x : y; }")


class Fold(NamedTuple):
    """The reduction of the blocks' numbers to one result.

    Attributes:
        name: for people, and a part of the kernel's name.
        combination: the combination of the blocks' numbers.
        finish: turns the `total` into the result, in C++.
        common: further parameters of the kernel, of type double.
    """

    name: str
    combination: Combination
    finish: str
    common: tuple[Given, ...] = ()


def fold(
    launcher: Launcher,
    last: Fold,
    partial: DeviceArray,
    out: DeviceArray,
    common: Sequence[Argument] = (),
    skip: DeviceArray | None = None,
) -> None:
    """Combine the numbers `partial` into the one element of `out`, unless `skip` holds a number that is not zero."""
    kernel = _fold_kernel(last, out.dtype.name, None if skip is None else skip.dtype.name)
    kernel.launch(launcher, 1, [out, partial, partial.size, 0 if skip is None else skip, *common])


@lru_cache(64)
def _fold_kernel(last: Fold, dtype: str, skip: str | None) -> CudaKernel:
    name = f"fold_{last.name}_{dtype}"
    common = "".join([f", {kind} {given}" for kind, given in last.common])
    source = f"""{REDUCING}
extern "C" __global__ void {name}({STORED[dtype]}* out, const double* partial, int64 count,
                                  const {STORED[skip or "float32"]}* skip{common}) {{
    {"" if skip is None else "if (converted<bool>(*skip)) return;"}
    {last.combination.head}
    for (int64 i = threadIdx.x; i < count; i += blockDim.x) total = combine(total, partial[i]);
    total = of_block(total, combine);
    if (threadIdx.x == 0) *out = converted<{STORED[dtype]}>({last.finish});
}}
"""
    return CudaKernel(name, source)
