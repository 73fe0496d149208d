"""Batch and layer normalization, with gradients: by the mean and variance of each channel, or of the last dimensions.

Half precision is computed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from vmflow.kernels.choosing import Kernel, Problem, builds
from vmflow.kernels.numpy.half import computes_in
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.driver import Argument
from vmflow.streams.cuda.launching import Launcher

from .arrays import PACKAGE, into_outs
from .pointwise import Pointwise, launch_pointwise
from .rows import BLOCK, as_rows, into_order, threads_for
from .sources import STORED, THREADS, CudaKernel
from .walks import contiguous

# An op's attributes: (eps, whether there is a weight, whether there is a bias)
_Options: TypeAlias = tuple[float, bool, bool]

# A channel is cut into parts, a block each: one for each begun `_LEAST_PART` elements, but at most `_MOST_PARTS`, and
# no more than give all channels together `_ENOUGH_BLOCKS`.
_LEAST_PART: Final = 1 << 12
_ENOUGH_BLOCKS: Final = 1024

# For layer normalization's gradients by weight and bias, a thread adds up a column of a part of the rows: one part for
# each begun `_LEAST_ROWS`, but no more than give `_ENOUGH_THREADS`, and at most `_MOST_PARTS`.
_LEAST_ROWS: Final = 32
_ENOUGH_THREADS: Final = 1 << 16
_MOST_PARTS: Final = 256

_ADDED: Final = "of_block({}, shared, [](value p, value q) {{ return p + q; }})".format


class _Parameters(NamedTuple):
    """The dtypes of a kernel's optional weight and bias; "" for a missing array."""

    weight: str
    bias: str

    def read(self, index: str) -> tuple[str, str]:
        """Return the ends of a C++ expression that multiply by the weight's element, and add the bias's; "" for a
        missing array.
        """
        weight = f" * converted<value>(weight[{index}])" if self.weight else ""
        return weight, f" + converted<value>(bias[{index}])" if self.bias else ""


def _split(options: _Options, given: Sequence[DeviceArray]) -> tuple[Argument, Argument, _Parameters]:
    """Return the weight and the bias as arguments (0 if missing), and their dtypes; `given` has the existing ones."""
    rest = iter(given)
    weight, bias = (next(rest) if there else None for there in options[1:])
    names = _Parameters(*["" if array is None else array.dtype.name for array in (weight, bias)])
    return 0 if weight is None else weight, 0 if bias is None else bias, names


# Batch normalization: over the batch, for each channel


class _Channels(NamedTuple):
    """The sizes of an array viewed as (samples, channels, values), and its division among blocks.

    Attributes:
        samples, channels, values: see above.
        each: the number of a channel's elements (in all samples) that one block computes, at most.
    """

    samples: int
    channels: int
    values: int
    each: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> _Channels:
        samples, channels, values = shape[0], shape[1], prod(shape[2:])
        count = samples * values
        parts = min(-(-count // _LEAST_PART), max(_ENOUGH_BLOCKS // max(channels, 1), 1), _MOST_PARTS)
        return cls(samples, channels, values, max(-(-count // max(parts, 1)), 1))

    @property
    def numel(self) -> int:
        """The number of elements of each channel: `samples` times `values`."""
        return self.samples * self.values

    @property
    def parts(self) -> int:
        """The number of blocks of each channel."""
        return max(-(-self.numel // self.each), 1)

    def launch(self, launcher: Launcher, kernel: CudaKernel, arguments: Sequence[Argument]) -> None:
        """Run a kernel with a block for each part of each channel; sizes are passed behind `arguments`."""
        numbers = self.channels, self.values, self.numel, self.each, self.parts
        kernel.launch(launcher, self.channels * self.parts, (*arguments, *numbers), threads_for(self.each))


# A thread's iterator over its elements of a block's part of a channel.  Its steps are computed once, since divisions
# are slow.
_WALK: Final = """
struct Walk {
    int64 place, inside, left, step, rest, values, wrap;
    __device__ __forceinline__ Walk(int64 channels, int64 values_, int64 count, int64 each, int64 parts) {
        values = values_;
        const int64 channel = blockIdx.x / parts, first = blockIdx.x % parts * each + threadIdx.x;
        const int64 begin = first - threadIdx.x, end = begin + each < count ? begin + each : count;
        left = end - first;
        inside = values ? first % values : 0;
        place = values ? (first / values * channels + channel) * values + inside : 0;
        rest = values ? blockDim.x % values : 0;
        step = values ? blockDim.x / values * channels * values + rest : 0;
        wrap = (channels - 1) * values;
    }
    __device__ __forceinline__ bool more() const { return left > 0; }
    __device__ __forceinline__ void next() {
        left -= blockDim.x;
        place += step;
        inside += rest;
        if (inside >= values) {
            inside -= values;
            place += wrap;
        }
    }
};
"""

_WALKED: Final = "for (Walk at(channels, values, count, each, parts); at.more(); at.next())"


def _partial(array: str, name: str) -> str:
    """Return C++ statements that declare the variable `name`: the sum of the channel's partial sums in `array`.

    Each block of the channel computes the whole sum.
    """
    return f"""
    value {name} = 0;
    for (int64 part = threadIdx.x; part < parts; part += blockDim.x) {name} += {array}[channel * parts + part];
    {name} = {_ADDED(name)};"""


@builds("batch_norm", package=PACKAGE)
def _batch_norm(problem: Problem) -> Kernel:
    options: _Options = problem.attributes
    over = _Channels.of(problem.inputs[0].shape)
    # One launch for all steps, or, if channels are cut into parts, a launch for each step, since the next step needs
    # the sums of all parts.
    steps = ("all",) if over.parts == 1 else ("sums", "squares", "result")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, *given = [contiguous(launcher, operand) for operand in operands]
        weight, bias, names = _split(options, given)
        compute = outs[1].dtype
        sums, squares = [launcher.scratch((over.channels, over.parts), compute) for _ in range(2)]

        def run(out: DeviceArray, mean: DeviceArray, variance: DeviceArray) -> None:
            for step in steps:
                kernel = _batch_normalized(step, array.dtype.name, out.dtype.name, compute.name, names)
                over.launch(
                    launcher, kernel, (out, mean, variance, sums, squares, array, weight, bias, float(options[0]))
                )

        into_order(launcher, outs, run)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _batch_normalized(step: str, given: str, wanted: str, compute: str, parameters: _Parameters) -> CudaKernel:
    name = f"batch_norm_{step}_{given}_{wanted}_{'_'.join(parameters)}"
    weight, bias = parameters.read("channel")
    sums = f"""
    value sum = 0;
    {_WALKED} sum += converted<value>(in[at.place]);
    sum = {_ADDED("sum")};"""
    mean = "const value mean = sum / (value)count; if (first) means[channel] = mean;"
    squares = f"""
    value square = 0;
    {_WALKED} {{
        const value centred = converted<value>(in[at.place]) - mean;
        square += centred * centred;
    }}
    square = {_ADDED("square")};"""
    result = f"""
    const value variance = square / (value)count;
    if (first) variances[channel] = variance;
    const value scale = 1 / sqrt(variance + (value)eps){weight};
    {_WALKED} out[at.place] = converted<{STORED[wanted]}>((converted<value>(in[at.place]) - mean) * scale{bias});"""
    body = {
        "all": sums + mean + squares + result,
        "sums": f"{sums} if (threadIdx.x == 0) sums[blockIdx.x] = sum;",
        "squares": f"{_partial('sums', 'sum')} {mean} {squares} if (threadIdx.x == 0) squares[blockIdx.x] = square;",
        "result": f"const value mean = means[channel]; {_partial('squares', 'square')} {result}",
    }[step]
    value = STORED[compute]
    source = f"""{BLOCK}{_WALK}
extern "C" __global__ void {name}({STORED[wanted]}* out, {value}* means, {value}* variances, {value}* sums,
                                  {value}* squares, const {STORED[given]}* in,
                                  const {STORED[parameters.weight or compute]}* weight,
                                  const {STORED[parameters.bias or compute]}* bias, double eps, int64 channels,
                                  int64 values, int64 count, int64 each, int64 parts) {{
    typedef {value} value;
    __shared__ value shared[{THREADS}];
    const int64 channel = blockIdx.x / parts;
    const bool first = blockIdx.x % parts == 0 && threadIdx.x == 0;
    {body}
}}
"""
    return CudaKernel(name, source, range(5))


@builds("batch_norm_gradient", package=PACKAGE)
def _batch_norm_gradient(problem: Problem) -> Kernel:
    options: _Options = problem.attributes
    over = _Channels.of(problem.inputs[1].shape)
    steps = ("all",) if over.parts == 1 else ("sums", "result")

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, array, mean, variance, *given = [contiguous(launcher, operand) for operand in operands]
        weight: Argument = given[0] if given else 0
        compute = outs[1].dtype
        sums = [launcher.scratch((over.channels, over.parts), compute) for _ in range(2)]
        names = gradient.dtype.name, array.dtype.name, outs[0].dtype.name, given[0].dtype.name if given else ""

        def run(*targets: DeviceArray) -> None:
            for step in steps:
                arguments = (*targets, *sums, gradient, array, mean, variance, weight, float(options[0]))
                over.launch(launcher, _batch_slopes(step, *names, compute.name), arguments)

        into_order(launcher, outs, run)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _batch_slopes(step: str, gradient: str, given: str, wanted: str, weight: str, compute: str) -> CudaKernel:
    name = f"batch_norm_gradient_{step}_{gradient}_{given}_{wanted}_{weight}"
    values = """const value outer = converted<value>(gradient[at.place]);
        const value normal = (converted<value>(in[at.place]) - mean) * scale;"""
    sums = f"""
    value slope = 0, offset = 0;
    {_WALKED} {{
        {values}
        slope += outer * normal;
        offset += outer;
    }}
    slope = {_ADDED("slope")};
    offset = {_ADDED("offset")};"""
    result = f"""
    if (first) {{
        by_weight[channel] = slope;
        by_bias[channel] = offset;
    }}
    slope /= (value)count;
    offset /= (value)count;
    const value factor = scale{" * converted<value>(weight[channel])" if weight else ""};
    {_WALKED} {{
        {values}
        out[at.place] = converted<{STORED[wanted]}>((outer - offset - normal * slope) * factor);
    }}"""
    body = {
        "all": sums + result,
        "sums": f"""{sums}
    if (threadIdx.x == 0) {{
        slopes[blockIdx.x] = slope;
        offsets[blockIdx.x] = offset;
    }}""",
        "result": f"{_partial('slopes', 'slope')} {_partial('offsets', 'offset')} {result}",
    }[step]
    value = STORED[compute]
    source = f"""{BLOCK}{_WALK}
extern "C" __global__ void {name}({STORED[wanted]}* out, {value}* by_weight, {value}* by_bias, {value}* slopes,
                                  {value}* offsets, const {STORED[gradient]}* gradient, const {STORED[given]}* in,
                                  const {value}* means, const {value}* variances,
                                  const {STORED[weight or compute]}* weight, double eps, int64 channels,
                                  int64 values, int64 count, int64 each, int64 parts) {{
    typedef {value} value;
    __shared__ value shared[{THREADS}];
    const int64 channel = blockIdx.x / parts;
    const bool first = blockIdx.x % parts == 0 && threadIdx.x == 0;
    const value mean = means[channel], scale = 1 / sqrt(variances[channel] + (value)eps);
    {body}
}}
"""
    return CudaKernel(name, source, range(5))


@builds("batch_norm_inference", package=PACKAGE)
def _batch_norm_inference(problem: Problem) -> Kernel:
    eps, has_weight, has_bias = problem.attributes
    source, output = problem.inputs[0], problem.outputs[0]
    compute = computes_in(source.dtype).name
    kind = STORED[compute]
    weight, bias = "x3" if has_weight else "", f"x{3 + has_weight}" if has_bias else ""
    lines = (
        f"const {kind} scale = 1 / sqrt(({kind})x2 + s0){f' * ({kind}){weight}' if weight else ''};",
        f"const {kind} shift = -({kind})x1 * scale{f' + ({kind}){bias}' if bias else ''};",
        f"const {kind} result = ({kind})x0 * scale + shift;",
    )
    function = Pointwise(
        "batch_norm_inference",
        tuple([meta.dtype.name for meta in problem.inputs]),
        (compute,),
        lines,
        (("result", output.dtype.name),),
    )
    along = (source.shape[1], *[1] * (len(source.shape) - 2))

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        array, *vectors = operands
        strides = [(vector.strides[0], *[0] * (len(along) - 1)) for vector in vectors]
        spread = [vector.strided(along, vector.dtype, 0, steps) for vector, steps in zip(vectors, strides, strict=True)]
        launch_pointwise(launcher, function, (array, *spread), (float(eps),), outs)

    return Kernel(into_outs(launch, problem), casts=True)


# Layer normalization: over the last dimensions


@builds("layer_norm", package=PACKAGE)
def _layer_norm(problem: Problem) -> Kernel:
    normalized, options = problem.attributes
    rows, columns = problem.outputs[1].numel, prod(normalized)
    dims = _last(problem.inputs[0].shape, normalized)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        matrix = as_rows(launcher, operands[0], dims)
        weight, bias, names = _split(options, [contiguous(launcher, operand) for operand in operands[1:]])
        kernel = _row_normalized(matrix.dtype.name, outs[0].dtype.name, outs[1].dtype.name, names)

        def run(*targets: DeviceArray) -> None:
            arguments = (*targets, matrix, weight, bias, columns, float(options[0]))
            kernel.launch(launcher, rows, arguments, threads_for(columns))

        into_order(launcher, outs, run)

    return Kernel(into_outs(launch, problem), casts=True)


def _last(shape: Sequence[int], normalized: Sequence[int]) -> range:
    return range(len(shape) - len(normalized), len(shape))


@lru_cache(None)
def _row_normalized(given: str, wanted: str, compute: str, parameters: _Parameters) -> CudaKernel:
    name = f"layer_norm_{given}_{wanted}_{'_'.join(parameters)}"
    weight, bias = parameters.read("i")
    value = STORED[compute]
    source = f"""{BLOCK}
extern "C" __global__ void {name}({STORED[wanted]}* out, {value}* means, {value}* scales, const {STORED[given]}* in,
                                  const {STORED[parameters.weight or compute]}* weight,
                                  const {STORED[parameters.bias or compute]}* bias, int64 columns, double eps) {{
    typedef {value} value;
    __shared__ value shared[{THREADS}];
    in += blockIdx.x * columns;
    out += blockIdx.x * columns;
    const value count = columns ? columns : 1;
    value sum = 0;
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) sum += converted<value>(in[i]);
    const value mean = {_ADDED("sum")} / count;
    value square = 0;
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
        const value centred = converted<value>(in[i]) - mean;
        square += centred * centred;
    }}
    const value scale = 1 / sqrt({_ADDED("square")} / count + (value)eps);
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x)
        out[i] = converted<{STORED[wanted]}>((converted<value>(in[i]) - mean) * scale{weight}{bias});
    if (threadIdx.x == 0) {{
        means[blockIdx.x] = mean;
        scales[blockIdx.x] = scale;
    }}
}}
"""
    return CudaKernel(name, source, range(3))


@builds("layer_norm_gradient", package=PACKAGE)
def _layer_norm_gradient(problem: Problem) -> Kernel:
    normalized, _ = problem.attributes
    rows, columns = problem.inputs[2].numel, prod(normalized)
    dims = _last(problem.inputs[1].shape, normalized)

    def launch(launcher: Launcher, operands: tuple[Any, ...], outs: tuple[DeviceArray, ...]) -> None:
        gradient, matrix = [as_rows(launcher, operand, dims) for operand in operands[:2]]
        means, scales, *given = [contiguous(launcher, operand) for operand in operands[2:]]
        weight: Argument = given[0] if given else 0
        names = gradient.dtype.name, matrix.dtype.name, means.dtype.name
        kernel = _row_slopes(*names, outs[0].dtype.name, given[0].dtype.name if given else "")

        def run(out: DeviceArray, by_weight: DeviceArray, by_bias: DeviceArray) -> None:
            arguments = out, gradient, matrix, means, scales, weight, columns
            kernel.launch(launcher, rows, arguments, threads_for(columns))
            _column_slopes(launcher, (gradient, matrix, means, scales), (by_weight, by_bias))

        into_order(launcher, outs, run)

    return Kernel(into_outs(launch, problem), casts=True)


@lru_cache(None)
def _row_slopes(gradient: str, given: str, compute: str, wanted: str, weight: str) -> CudaKernel:
    """Build the kernel of layer normalization's gradient by the input: a block for each row."""
    name = f"layer_norm_gradient_{gradient}_{given}_{wanted}_{weight}"
    values = f"""const value normal = (converted<value>(in[i]) - mean) * scale;
        const value weighted = converted<value>(gradient[i]){" * converted<value>(weight[i])" if weight else ""};"""
    value = STORED[compute]
    source = f"""{BLOCK}
extern "C" __global__ void {name}({STORED[wanted]}* out, const {STORED[gradient]}* gradient, const {STORED[given]}* in,
                                  const {value}* means, const {value}* scales,
                                  const {STORED[weight or compute]}* weight, int64 columns) {{
    typedef {value} value;
    __shared__ value shared[{THREADS}];
    in += blockIdx.x * columns;
    gradient += blockIdx.x * columns;
    out += blockIdx.x * columns;
    const value mean = means[blockIdx.x], scale = scales[blockIdx.x];
    value slope = 0, offset = 0;
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
        {values}
        slope += weighted * normal;
        offset += weighted;
    }}
    slope = {_ADDED("slope")} / (value)columns;
    offset = {_ADDED("offset")} / (value)columns;
    for (int64 i = threadIdx.x; i < columns; i += blockDim.x) {{
        {values}
        out[i] = converted<{STORED[wanted]}>(((weighted - normal * slope) - offset) * scale);
    }}
}}
"""
    return CudaKernel(name, source)


def _column_slopes(launcher: Launcher, given: Sequence[DeviceArray], outs: Sequence[DeviceArray]) -> None:
    """Compute layer normalization's gradients by weight and bias, sums over rows; many rows are added up in parts."""
    gradient, matrix = given[:2]
    rows, columns = matrix.shape
    if not columns:
        return
    parts = min(-(-rows // _LEAST_ROWS), -(-_ENOUGH_THREADS // columns), _MOST_PARTS)
    each = max(-(-rows // max(parts, 1)), 1)
    parts = max(-(-rows // each), 1)
    compute = outs[0].dtype
    targets = outs if parts == 1 else [launcher.scratch((parts, columns), compute) for _ in range(2)]
    kernel = _column_sums(gradient.dtype.name, matrix.dtype.name, compute.name)
    kernel.launch_over(launcher, parts * columns, (*targets, *given, parts, rows, columns, each))
    if parts > 1:
        _sums_of_parts(compute.name).launch_over(launcher, columns, (*outs, *targets, parts, columns))


@lru_cache(None)
def _column_sums(gradient: str, given: str, compute: str) -> CudaKernel:
    """Build the kernel of gradients by weight and bias from parts of rows: one thread adds up a column of a part."""
    name = f"layer_norm_parameters_{gradient}_{given}"
    value = STORED[compute]
    source = f"""
extern "C" __global__ void {name}({value}* by_weight, {value}* by_bias, const {STORED[gradient]}* gradient,
                                  const {STORED[given]}* in, const {value}* means, const {value}* scales,
                                  int64 parts, int64 rows, int64 columns, int64 each) {{
    typedef {value} value;
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < parts * columns; i += threads) {{
        const int64 column = i % columns, begin = i / columns * each, end = begin + each < rows ? begin + each : rows;
        value slope = 0, offset = 0;
        for (int64 row = begin; row < end; row++) {{
            const value outer = converted<value>(gradient[row * columns + column]);
            slope += outer * ((converted<value>(in[row * columns + column]) - means[row]) * scales[row]);
            offset += outer;
        }}
        by_weight[i] = slope;
        by_bias[i] = offset;
    }}
}}
"""
    return CudaKernel(name, source, range(2))


@lru_cache(None)
def _sums_of_parts(compute: str) -> CudaKernel:
    name = f"sums_of_parts_{compute}"
    value = STORED[compute]
    source = f"""
extern "C" __global__ void {name}({value}* first, {value}* second, const {value}* firsts, const {value}* seconds,
                                  int64 parts, int64 columns) {{
    const int64 threads = (int64)gridDim.x * blockDim.x;
    for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < columns; i += threads) {{
        {value} one = 0, other = 0;
        for (int64 part = 0; part < parts; part++) {{
            one += firsts[part * columns + i];
            other += seconds[part * columns + i];
        }}
        first[i] = one;
        second[i] = other;
    }}
}}
"""
    return CudaKernel(name, source, range(2))
