"""Scaled dot-product attention, with the scores of all queries and keys in memory.

Between the two matrix products, masks are applied elementwise, and one kernel, with a block of threads for each
row of scores, computes the rest.  Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.kernels.problems.attention import Extent
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .philox import PHILOX, PLACE, READ_PLACE, place_of
from .pointwise import Pointwise, copy_array, launch_pointwise
from .products import multiply
from .rows import BLOCK, into_order, threads_for
from .sources import ELEMENTS_PRELUDE, STORED, THREADS, CudaKernel
from .walks import contiguous


class _Scores(NamedTuple):
    """The settings of an attention op, and the computation of its scores, ``(query * factor) @ key.T``.

    Attributes:
        extent: the leading dimensions, and the numbers of queries and keys.
        factor: the number by which the scores are scaled.
        causal: whether query l attends to keys up to l only.
        p: the probability of dropping a weight.
        keeps: whether the weights are kept for the gradient; otherwise, the logarithm of each row's softmax divisor.
        wide: the dtype to compute in.
    """

    extent: Extent
    factor: float
    causal: bool
    p: float
    keeps: bool
    wide: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores: (*leading, queries, keys)."""
        return (*self.extent.leading, self.extent.length, self.extent.others)

    @property
    def rows(self) -> int:
        """The number of rows of the scores: one for each query."""
        return prod(self.shape[:-1])

    def found(
        self, launcher: Launcher, query: DeviceArray, key: DeviceArray, masks: Sequence[DeviceArray]
    ) -> DeviceArray:
        """Compute ``(query * factor) @ key.T``, -inf where a boolean mask is False, with other masks added, but without
        the causal limit.
        """
        scaled = launcher.scratch(query.shape, self.wide)
        _scale(launcher, query, self.factor, scaled)
        scores = self.product(launcher, scaled, _turned(self.widened(launcher, key)))
        for mask in masks:
            flags = mask.dtype == np.bool_
            result = "x1 ? x0 : -INF" if flags else f"x0 + ({STORED[self.wide.name]})x1"
            lines = (f"const {STORED[self.wide.name]} result = {result};",)
            dtypes = self.wide.name, mask.dtype.name
            function = Pointwise("masked", dtypes, (), lines, (("result", self.wide.name),))
            launch_pointwise(launcher, function, (scores, mask), (), (scores,))
        return scores

    def product(
        self, launcher: Launcher, left: DeviceArray, right: DeviceArray, out: DeviceArray | None = None
    ) -> DeviceArray:
        """Return the product of matrices, broadcast to the leading dimensions of the scores, in `out`, or in new memory
        if that is None.
        """
        if out is None:
            out = launcher.scratch((*self.extent.leading, left.shape[-2], right.shape[-1]), self.wide)
        multiply(launcher, left, right, out)
        return out

    def widened(self, launcher: Launcher, array: DeviceArray) -> DeviceArray:
        """Return the array in the dtype to compute in, cast if necessary."""
        if array.dtype == self.wide:
            return array
        wide = launcher.scratch(array.shape, self.wide)
        copy_array(launcher, array, wide)
        return wide

    def drawn(self, numbers: Sequence[Any]) -> list[Argument]:
        """Return a kernel's arguments for dropout, see `_DROPPED`, from (seed, offset), unread if `p` is 0."""
        if not self.p:
            return [0, 0, 0, 0, 0, 0.0, 1.0]
        limit = int(self.p * 65536)
        scale = float(self.wide.type(1 / (1 - self.p))) if self.p < 1 else 0.0
        return [*place_of(numbers[0], numbers[1]), limit, self.p * 65536 - limit, scale]


def _turned(array: DeviceArray) -> DeviceArray:
    """Return a view with the last two dimensions transposed."""
    *leading, rows, columns = array.shape
    *steps, down, across = array.strides
    return array.strided((*leading, columns, rows), array.dtype, 0, (*steps, across, down))


def _scale(launcher: Launcher, array: DeviceArray, factor: float, out: DeviceArray) -> None:
    """Compute ``out = array * factor``, with the factor rounded to the dtype to compute in."""
    compute = "float64" if np.float64 in (array.dtype, out.dtype) else "float32"
    line = f"const {STORED[compute]} result = ({STORED[compute]})x0 * s0;"
    dtypes = array.dtype.name, out.dtype.name
    function = Pointwise("scaled", dtypes[:1], (compute,), (line,), (("result", dtypes[1]),))
    launch_pointwise(launcher, function, (array,), (float(factor),), (out,))


def _scores_of(problem: Problem, options: Any, query: Any) -> _Scores:
    factor, causal, p, keeps = options
    return _Scores(problem.details, factor, causal, p, keeps, np.dtype(computes_in(query.dtype)))


@builds("scaled_dot_product_attention", package=PACKAGE)
def _attention(problem: Problem) -> Kernel:
    """Build the kernel of attention.  Operands: query, key, value, and perhaps a mask; with dropout, also seed and
    offset.
    """
    inputs = len(problem.inputs)
    scores = _scores_of(problem, problem.attributes, problem.inputs[0])
    masked = inputs > 3
    kept_as = problem.outputs[1].dtype.name
    kernel = _softmax(scores.wide.name, kept_as, scores.keeps, scores.causal, masked, bool(scores.p))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        query, key, value = operands[:3]
        found = scores.found(launcher, query, key, operands[3:inputs])
        numbers = *scores.extent[1:], *scores.drawn(operands[inputs:])

        def run(out: DeviceArray, kept: DeviceArray) -> None:
            kernel.launch(launcher, scores.rows, (found, kept, *numbers), threads_for(scores.extent.others))
            target = out if out.dtype == scores.wide else None
            result = scores.product(launcher, found, scores.widened(launcher, value), target)
            if result is not out:
                copy_array(launcher, result, out)

        into_order(launcher, outs, run)

    return Kernel(into_outs(launch, problem), casts=True)


@builds("scaled_dot_product_attention_gradient", package=PACKAGE)
def _attention_gradient(problem: Problem) -> Kernel:
    """Build the kernel of attention's gradients.  Attributes: the forward op's attributes; for each of its results,
    whether it has a gradient; for each of its operands, whether the operand's gradient is wanted.

    Operands: the existing gradients, the array kept by the forward op, query, key, value; a mask, if there was one and
    weights were not kept; with dropout, seed and offset.
    """
    options, present, wanted = problem.attributes
    gradients, inputs = sum(present), len(problem.inputs)
    scores = _scores_of(problem, options, problem.inputs[gradients + 1])
    by_query, by_key, by_value, by_mask = (*wanted, False)[:4]
    masked = inputs > gradients + 4

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        coming = iter(operands[:gradients])
        by_result, by_weights = [next(coming) if there else None for there in present]
        kept, query, key, value = operands[gradients : gradients + 4]
        wide = scores.wide
        outer = None if by_result is None else scores.widened(launcher, by_result)
        slopes = (
            launcher.scratch(scores.shape, wide)
            if outer is None
            else scores.product(launcher, outer, _turned(scores.widened(launcher, value)))
        )
        # If only logarithms of divisors were kept, the scores are computed and masked again.
        masks = operands[gradients + 4 : inputs] if masked else ()
        weights = contiguous(launcher, kept) if scores.keeps else scores.found(launcher, query, key, masks)
        logarithms: Argument = 0 if scores.keeps else contiguous(launcher, kept)
        direct = None if by_weights is None else contiguous(launcher, by_weights)
        used = launcher.scratch(scores.shape, wide) if by_value and outer is not None else None
        kernel = _slopes(
            wide.name,
            weights.dtype.name,
            "" if scores.keeps else kept.dtype.name,
            "" if direct is None else direct.dtype.name,
            outer is not None,
            used is not None,
            scores.causal,
            bool(scores.p),
        )
        arrays: list[Argument] = [slopes, used or 0, weights, logarithms, direct or 0]
        numbers = *scores.extent[1:], *scores.drawn(operands[inputs:])
        kernel.launch(launcher, scores.rows, (*arrays, *numbers), threads_for(scores.extent.others))
        wanting = iter(outs)
        if by_query:
            product = scores.product(launcher, slopes, scores.widened(launcher, key))
            _scale(launcher, product, scores.factor, next(wanting))
        if by_key:
            product = scores.product(launcher, _turned(slopes), scores.widened(launcher, query))
            _scale(launcher, product, scores.factor, next(wanting))
        if by_value:
            _put_by_value(launcher, scores, used, outer, next(wanting))
        if by_mask:
            copy_array(launcher, slopes, next(wanting))

    return Kernel(into_outs(launch, problem), casts=True)


def _put_by_value(
    launcher: Launcher, scores: _Scores, used: DeviceArray | None, outer: DeviceArray | None, out: DeviceArray
) -> None:
    """Compute the gradient by the values, ``used.T @ outer``, from the weights after dropout and the gradient by the
    result; zeros if one of both is None.
    """
    if used is None or outer is None:
        function = Pointwise("nothing", (), (), (), (("0", out.dtype.name),))
        launch_pointwise(launcher, function, (), (), (out,))
        return
    copy_array(launcher, scores.product(launcher, _turned(used), outer), out)


# Tells whether dropout keeps an element, in the way that the module `dropout` describes.
_KEPT: Final = """
struct Kept {
    int64 block;
    words found;
    __device__ __forceinline__ bool at(uint64_t seed, uint64_t offset, int64 i, int64 limit, double rest) {
        if (block != i / 8) {
            block = i / 8;
            found = philox(seed, offset + block, 0);
        }
        const int64 bits = chosen(found, (int)(i / 2 & 3)) >> i % 2 * 16 & 0xFFFF;
        if (bits != limit) return bits > limit;
        return chosen(philox(seed, offset + i / 4, 1), (int)(i & 3)) * 0x1p-32 >= rest;
    }
    static __device__ __forceinline__ uint32_t chosen(const words& all, int place) {
        return place & 2 ? (place & 1 ? all.of[3] : all.of[2]) : (place & 1 ? all.of[1] : all.of[0]);
    }
};
"""

# Parameters of a kernel for dropout: the place of random numbers, the probability, and the scale of kept weights.
_DROPPED: Final = f"{PLACE}, int64 limit, double rest, double scale"

# The loop over a row's elements.  With dropout, a thread goes through groups of eight neighbouring elements; one
# block of random words nearly always decides for a group.
_BY_EIGHT: Final = """
    const int64 begin = (int64)blockIdx.x * columns;
    for (int64 eight = begin / 8 + threadIdx.x; eight * 8 < begin + columns; eight += blockDim.x) {
        for (int64 place = eight * 8; place < eight * 8 + 8; place++) {
            const int64 i = place - begin;
            if (i < 0 || i >= columns) continue;"""
_BY_ONE: Final = """
    {
        for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {"""


def _factor(drops: bool) -> str:
    """Return the C++ statement that declares a weight's `factor`: with dropout 0 or `scale`, else 1."""
    kept = "kept_elements.at(seed, offset, place, limit, rest)"
    return f"const value factor = {kept} ? (value)scale : 0;" if drops else "const value factor = 1;"


@lru_cache(None)
def _softmax(wide: str, kept: str, keeps: bool, causal: bool, masked: bool, drops: bool) -> CudaKernel:
    """Build the kernel that turns rows of scores into softmax weights in place, with a causal limit if `causal`, and
    dropout if `drops`; if `masked`, a row of only -inf becomes zeros.  The second result, of the dtype `kept`, is the
    weights before dropout if `keeps` is set, else the logarithms of divisors.
    """
    options = {"weights": keeps, "causal": causal, "masked": masked, "drops": drops}
    name = "_".join(["attention", wide, kept, *[option for option, there in options.items() if there]])
    source = f"""{ELEMENTS_PRELUDE}{BLOCK}{PHILOX}{_KEPT}
extern "C" __global__ void {name}({STORED[wide]}* scores, {STORED[kept]}* kept, int64 length, int64 columns,
                                  {_DROPPED}) {{
    typedef {STORED[wide]} value;
    __shared__ value shared[{THREADS}];
    {STORED[wide]}* row = scores + blockIdx.x * columns;
    const int64 query = blockIdx.x % length, seen = {"query < columns ? query + 1 : columns" if causal else "columns"};
    value largest = -INF;
    for (int64 i = threadIdx.x; i < seen; i += blockDim.x) {{
        const value v = row[i];
        largest = v != v || v > largest ? v : largest;
    }}
    largest = of_block(largest, shared, [](value p, value q) {{ return p != p || p > q ? p : q; }});
    {"if (largest == -INF) largest = 0;" if masked else ""}
    value total = 0;
    for (int64 i = threadIdx.x; i < seen; i += blockDim.x) total += exp(row[i] - largest);
    total = of_block(total, shared, [](value p, value q) {{ return p + q; }});
    {"if (total == 0) total = 1;" if masked else ""}
    {"" if keeps else "if (threadIdx.x == 0) kept[blockIdx.x] = columns ? largest + log(total) : 0;"}
    const value part = 1 / total;
    {READ_PLACE if drops else ""}
    Kept kept_elements = {{-1}};
    {_BY_EIGHT if drops else _BY_ONE}
            const value weight = i < seen ? exp(row[i] - largest) * part : 0;
            {f"kept[blockIdx.x * columns + i] = converted<{STORED[kept]}>(weight);" if keeps else ""}
            {_factor(drops)}
            row[i] = weight * factor;
        }}
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))


@lru_cache(None)
def _slopes(
    wide: str, weights: str, logarithms: str, direct: str, through: bool, used: bool, causal: bool, drops: bool
) -> CudaKernel:
    """Build the kernel that turns `slopes`, the gradient by the weights after dropout, into the gradient by the scores.

    Args:
        wide: the dtype to compute in.
        weights: the dtype of the kept softmax weights, or of the scores.
        logarithms: the dtype of the kept logarithms of divisors; "" if the weights were kept.
        direct: the dtype of the gradient by the weights before dropout; "" if there is none.
        through: whether `slopes` holds the gradient by the weights after dropout.
        used: whether the kernel also writes the weights after dropout.
        causal, drops: whether there is a causal limit, and dropout.
    """
    options = {"through": through, "used": used, "causal": causal, "drops": drops}
    chosen = [option for option, there in options.items() if there]
    name = "_".join(["attention_gradient", wide, weights, logarithms, direct, *chosen])
    weight = "exp(row[i] - logarithm)" if logarithms else "converted<value>(row[i])"
    slope = "slopes[blockIdx.x * columns + i] * factor" if through else "0"
    more = " + converted<value>(direct[blockIdx.x * columns + i])" if direct else ""
    source = f"""{BLOCK}{PHILOX}{_KEPT}
extern "C" __global__ void {name}({STORED[wide]}* slopes, {STORED[wide]}* used, const {STORED[weights]}* weights,
                                  const {STORED[logarithms or wide]}* logarithms,
                                  const {STORED[direct or wide]}* direct, int64 length, int64 columns, {_DROPPED}) {{
    typedef {STORED[wide]} value;
    __shared__ value shared[{THREADS}];
    const {STORED[weights]}* row = weights + blockIdx.x * columns;
    const int64 query = blockIdx.x % length, seen = {"query < columns ? query + 1 : columns" if causal else "columns"};
    {"const value logarithm = converted<value>(logarithms[blockIdx.x]);" if logarithms else ""}
    value dot = 0;
    {READ_PLACE if drops else ""}
    Kept kept_elements = {{-1}};
    {_BY_EIGHT if drops else _BY_ONE}
            const value weight = i < seen ? {weight} : 0;
            {_factor(drops)}
            const value slope = {slope}{more};
            slopes[blockIdx.x * columns + i] = slope;
            {"used[blockIdx.x * columns + i] = weight * factor;" if used else ""}
            dot += slope * weight;
        }}
    }}
    dot = of_block(dot, shared, [](value p, value q) {{ return p + q; }});
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
        const value weight = i < seen ? {weight} : 0;
        slopes[blockIdx.x * columns + i] = (slopes[blockIdx.x * columns + i] - dot) * weight;
    }}
}}
"""
    return CudaKernel(name, source, (0, 1))
