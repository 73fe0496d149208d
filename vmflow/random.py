"""Random numbers: `Generator`, and the ops that draw from one.

A generator is a seed and an offset into the sequence of that seed.  The sequence is a function: block number n has the
four 32-bit words that Philox 4x32-10 computes from seed and n (J. Salmon and others, Parallel random numbers: as easy
as 1, 2, 3, 2011).  When an op is issued, it reserves at least one block for each element that it draws; most ops
compute each element from words whose places in these blocks follow from the element's index.  So the words of an op
depend only on the seed and on the ops issued before: not on the device, the number of threads or ranks that share an
op, the order in which ops run, nor draws from other generators.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vmflow.arguments import is_integer as _is_integer, real_number as _real_number, whole_number as _whole_number
from vmflow.operands import check_tensors as _check_tensors
from vmflow.transfers import beside

from . import dtypes, interpreter as _interpreter, tensors as _tensors
from .context import MODE
from .devices import device as Device
from .dtypes import dtype as DType
from .forking import lock_held_while_forking
from .instructions.blob import TensorMeta, meta as _meta
from .memory_formats import contiguous_format, memory_format
from .ops.copying import chosen_order, copy_
from .ops.creation.creation import laid_out, meta_like, sized_meta, tensor, tracked
from .ops.declaration import function, method, public
from .ops.destination import out_as_made, out_by_copy
from .ops.elementwise.complex_parts import view_as_real
from .ops.elementwise.inference import fitting
from .ops.shape.view import expand
from .ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, broadcast_shapes

if TYPE_CHECKING:
    from .autograd.node import OpNode
    from .tensors import Tensor

_MASK: Final = (1 << 64) - 1

# The first bytes of a generator's saved state.  A state of an earlier version begins instead with a seed of 16 bytes,
# of which the last 8 are 0.
_TAG: Final = b"Philox4x32-10\0\0\0"
_STATE_BYTES: Final = len(_TAG) + 16
FROM_BEFORE: Final = (
    "this state of a generator is from an earlier version of vmflow, which drew other numbers, and cannot be "
    "continued; seed the generator with manual_seed instead"
)


class Generator:
    """A source of random numbers, which serves all devices.

    Args:
        device: as in PyTorch; makes no difference to the numbers.

    Attributes:
        device: as given.

    Raises:
        ValueError: for an unknown device.

    Example:
        >>> flow.Generator().manual_seed(17)
        <Generator seed=17 offset=0>
    """

    def __init__(self, device: Device | str = "cpu") -> None:
        self.device = Device(device)
        self._lock = lock_held_while_forking()
        self._seed = 0
        self._offset = 0
        self.seed()

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence of `seed` at offset 0; a negative seed s means ``2**64 + s``.  Return the generator.

        Raises:
            TypeError: if the seed is no integer.
            ValueError: if the seed does not fit into 64 bits.
        """
        seed = _whole_number("manual_seed", "the seed", seed)
        if not -(1 << 63) <= seed <= _MASK:
            raise ValueError(f"manual_seed: the seed must fit into 64 bits, got {seed}")
        with self._lock:
            self._seed = seed & _MASK
            self._offset = 0
        return self

    def seed(self) -> int:
        """Begin the sequence of a random seed from the operating system, and return the seed."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of the generator's present sequence."""
        return self._seed

    def get_state(self) -> Tensor:
        """The generator's seed and offset, as 32 bytes in a uint8 tensor on the CPU."""
        with self._lock:
            state = _TAG + self._seed.to_bytes(8, "little") + self._offset.to_bytes(8, "little")
        return tensor(np.frombuffer(state, np.uint8), device="cpu")

    def set_state(self, new_state: Tensor) -> Generator:
        """Set the seed and offset from a result of `get_state`, so that the numbers after that call are drawn again.

        Raises:
            TypeError: if `new_state` is no tensor.
            ValueError: if it is no state, or one of an earlier version of vmflow.
        """
        _check_tensors("set_state", new_state)
        if new_state.dtype is not dtypes.uint8 or new_state.shape != (_STATE_BYTES,):
            raise ValueError(f"set_state: expected the 32 bytes that get_state returned, got {new_state._blob.meta!r}")
        try:
            seed, offset = seed_and_offset(bytes(new_state.numpy()))
        except ValueError as error:
            raise ValueError(f"set_state: {error}") from None
        with self._lock:
            self._seed, self._offset = seed, offset
        return self

    def take(self, elements: int) -> tuple[int, int]:
        """Reserve `elements` blocks of the sequence for an op; return the seed and the offset of the first block."""
        with self._lock:
            # No call may come between the next two lines: a signal handler of this thread could run there and draw.
            offset = self._offset
            self._offset = (offset + elements) & _MASK
            return self._seed, offset

    def __reduce__(self) -> tuple[Any, ...]:
        with self._lock:
            return _generator_at, (self.device, self._seed, self._offset)

    def __repr__(self) -> str:
        return f"<Generator seed={self._seed} offset={self._offset}>"


def _generator_at(device: Device, seed: int, offset: int) -> Generator:
    """Undo `Generator.__reduce__`."""
    generator = Generator(device)
    generator._seed, generator._offset = seed, offset
    return generator


def _rebuild_generator(device: Device, seed: int, position: int) -> Generator:
    """Refuse pickles of generators from earlier versions, which name this function: raise ValueError."""
    raise ValueError(FROM_BEFORE)


def seed_and_offset(state: bytes) -> tuple[int, int]:
    """The seed and the offset in a generator's saved state.

    Raises:
        ValueError: if the bytes are no state, or a state of an earlier version.

    Example:
        >>> from vmflow.random import seed_and_offset
        >>> seed_and_offset(bytes(flow.Generator().manual_seed(17).get_state().numpy()))
        (17, 0)
    """
    if len(state) == _STATE_BYTES and state.startswith(_TAG):
        return int.from_bytes(state[16:24], "little"), int.from_bytes(state[24:], "little")
    if len(state) == _STATE_BYTES and not any(state[8:16]):
        raise ValueError(FROM_BEFORE)
    raise ValueError("these bytes are no state of a generator")


default_generator: Final = Generator()


@function()
def manual_seed(seed: int) -> Generator:
    """Seed the default generator of this context: the process's, or inside `fork_rng` the block's own.

    Raises:
        TypeError: if the seed is no integer.
        ValueError: if the seed does not fit into 64 bits.

    Example:
        >>> flow.manual_seed(17)
        <Generator seed=17 offset=0>
    """
    return chosen_generator(None).manual_seed(seed)


@function()
def initial_seed() -> int:
    """The seed of the default generator of this context.

    Example:
        >>> with flow.fork_rng() as generator:
        ...     _ = generator.manual_seed(17)
        ...     flow.initial_seed()
        17
    """
    return chosen_generator(None).initial_seed()


@function()
def seed() -> int:
    """Seed the default generator of this context from the operating system, and return the seed.

    Example:
        >>> flow.seed() == flow.initial_seed()
        True
    """
    return chosen_generator(None).seed()


@function()
def get_rng_state() -> Tensor:
    """The state of the default generator of this context, a vector of 32 bytes.

    Example:
        >>> state = flow.get_rng_state()
        >>> first = flow.rand(3)
        >>> flow.set_rng_state(state)
        >>> (flow.rand(3) == first).all()
        tensor(True)
    """
    return chosen_generator(None).get_state()


@function()
def set_rng_state(new_state: Tensor) -> None:
    """Set the default generator of this context to a state that `get_rng_state` has returned.

    Args:
        new_state: a vector of 32 bytes.

    Raises:
        TypeError: if `new_state` is no tensor.
        ValueError: if it is no state, or one of an earlier version of vmflow.

    Example:
        >>> flow.set_rng_state(flow.Generator().manual_seed(17).get_state())
        >>> flow.initial_seed()
        17
    """
    _check_tensors("set_rng_state", new_state)
    chosen_generator(None).set_state(new_state)


@function()
@contextmanager
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True) -> Iterator[Generator]:
    """A context manager in which the default generator is a copy, for this task or thread and its new child tasks.

    The copy begins with the seed and offset of the outer generator, which its draws do not advance.  Raises no errors.

    Args:
        devices: makes no difference, since one generator serves all devices.
        enabled: False to change nothing.

    Example:
        >>> with flow.fork_rng():
        ...     inner = flow.rand(3)
        >>> (flow.rand(3) == inner).all()
        tensor(True)
    """
    mode = MODE.get()
    if not enabled:
        yield chosen_generator(None)
        return
    outer = chosen_generator(None)
    inner = Generator()
    with outer._lock:
        inner._seed, inner._offset = outer._seed, outer._offset
    MODE.set(mode.replace(generator=inner))
    try:
        yield inner
    finally:
        MODE.set(MODE.get().replace(generator=mode.generator))


def chosen_generator(given: Generator | None) -> Generator:
    """The generator `given`, or, if None, the default generator: that of `fork_rng`'s block or the process.

    Raises:
        TypeError: if `given` is neither a generator nor None.

    Example:
        >>> from vmflow.random import chosen_generator
        >>> chosen_generator(flow.Generator().manual_seed(17))
        <Generator seed=17 offset=0>
    """
    if given is not None and not isinstance(given, Generator):
        raise TypeError(f"expected a vmflow.Generator, got {type(given).__name__}")
    return given or MODE.get().generator or default_generator


def take(elements: int, generator: Generator | None = None) -> tuple[Any, Any]:
    """Reserve `elements` blocks of a generator, by default of the default one, for an op that draws numbers.

    Returns:
        The seed and the first block's offset, which are the op's scalars; inside a graph that is built, symbols for
        them.

    Raises:
        TypeError: if `generator` is neither a generator nor None.

    Example:
        >>> from vmflow.random import take
        >>> take(3, flow.Generator().manual_seed(17))
        (17, 0)
    """
    mode = MODE.get()
    chosen = chosen_generator(generator)
    if mode.interpreter is not None:
        # A graph reserves another range of blocks at each launch.
        taken: tuple[Any, Any] = mode.interpreter.draw(chosen, generator is None, elements)
        return taken
    return chosen.take(elements)


def _output_and(parameters: tuple[Any, ...]) -> Any:
    """The type of a random op's attributes: a tuple of a `TensorMeta` and the parameters, whose types are given."""
    together: Any = tuple
    return together.__class_getitem__((TensorMeta, *parameters))


def random_op(name: str, parameters: tuple[Any, ...] = (), inputs: int = 0, family: str = "random") -> OpExpr:
    """Declare an op that draws numbers, with attributes ``(output, *parameters)`` and scalars ``(seed, offset)``.

    Args:
        name: the op's name.
        parameters: the types of the parameters.
        inputs: how many tensors the op takes.
        family: the module of the op's kernels.

    Raises:
        ValueError: if there is an op of this name.

    Example:
        >>> from vmflow.ops.table import OPS
        >>> OPS["rand"].name  # declared by random_op("rand")
        'rand'
    """

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        output = attributes[0]
        assert isinstance(output, TensorMeta)
        return Inferred(output, output.numel * 10 + 5000)

    op = OpExpr(name, infer, Form(inputs, _output_and(parameters), 2, draws=True), family)
    op.gradient()(_no_gradients)
    return op


def _no_gradients(node: OpNode, gradient: Tensor) -> tuple[None, ...]:
    return (None,) * len(node.metas)


_NORMAL = random_op("randn")
_UNIFORM = random_op("rand")
_RANDINT = random_op("randint", (int, int))
_RANDPERM = random_op("randperm")
_BERNOULLI = random_op("bernoulli", inputs=1)
_MULTINOMIAL = random_op("multinomial", (bool,), 1)
_EXPONENTIAL = random_op("exponential")
_POISSON = random_op("poisson", inputs=1, family="rejection")
_GAMMA = random_op("standard_gamma", inputs=1, family="rejection")


def draw(op: OpExpr, output: TensorMeta, generator: Generator | None, *parameters: Any) -> Tensor:
    """Issue a random op without inputs, and return its result, of the shape, dtype and device of `output`.

    Raises:
        TypeError: if `generator` is neither a generator nor None.

    Example:
        >>> from vmflow.random import draw
        >>> from vmflow.instructions.blob import meta
        >>> from vmflow.ops.table import OPS
        >>> draw(OPS["randperm"], meta((1,), flow.int64, flow.device("cpu")), None)
        tensor([0])
    """
    return _interpreter.dispatch(op, (), (output, *parameters), take(output.numel, generator))


def draw_into(op: OpExpr, target: Tensor, generator: Generator | None, *parameters: Any) -> Tensor:
    """Issue a random op without inputs that writes into `target`, of any shape, and return `target`.

    Raises:
        TypeError: if `target` is no tensor, or `generator` neither a generator nor None.

    Example:
        >>> from vmflow.random import draw_into
        >>> from vmflow.ops.table import OPS
        >>> draw_into(OPS["randint"], flow.zeros(2), None, 3, 4)
        tensor([3., 3.])
    """
    _check_tensors("draw_into", target)
    output = target._blob.meta
    return _interpreter.dispatch_into(op, target, (), (output, *parameters), take(output.numel, generator))


def _fractional(name: str, output: TensorMeta) -> TensorMeta:
    if output.dtype.category < dtypes.FLOATING:
        raise TypeError(f"{name}: expected a floating-point or complex dtype, got {output.dtype.name}")
    return output


@function()
@out_as_made()
def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
    **named: Any,
) -> Tensor:
    """A tensor of the shape `size` with elements from the standard normal distribution; complex ones have variance 1.

    Raises:
        TypeError: for an integer dtype or bool.

    Example:
        >>> flow.randn(2, 3).shape
        vmflow.Size([2, 3])
    """
    output = _fractional("randn", sized_meta("randn", size, dtype, device, named))
    return tracked(draw(_NORMAL, output, generator), requires_grad)


@function()
@out_as_made()
def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    out: Tensor | None = None,
    **named: Any,
) -> Tensor:
    """A tensor of the shape `size` with elements (both parts of complex ones) evenly distributed over [0, 1).

    Raises:
        TypeError: for an integer dtype or bool.

    Example:
        >>> flow.rand(2, 3).shape
        vmflow.Size([2, 3])
    """
    output = _fractional("rand", sized_meta("rand", size, dtype, device, named))
    return tracked(draw(_UNIFORM, output, generator), requires_grad)


@function()
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """A tensor of the shape, dtype and device of `input` with elements from the standard normal distribution.

    Raises:
        TypeError: for an integer dtype or bool.

    Example:
        >>> flow.randn_like(flow.zeros(2, 3)).shape
        vmflow.Size([2, 3])
    """
    output = _fractional("randn_like", meta_like("randn_like", input, dtype, device))
    order = chosen_order("randn_like", input, memory_format)
    return tracked(laid_out(lambda laid: draw(_NORMAL, laid, generator), output, order), requires_grad)


@function()
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: memory_format = contiguous_format,
) -> Tensor:
    """A tensor of the shape, dtype and device of `input` with elements evenly distributed over [0, 1).

    Raises:
        TypeError: for an integer dtype or bool.

    Example:
        >>> flow.rand_like(flow.zeros(2, 3)).shape
        vmflow.Size([2, 3])
    """
    output = _fractional("rand_like", meta_like("rand_like", input, dtype, device))
    order = chosen_order("rand_like", input, memory_format)
    return tracked(laid_out(lambda laid: draw(_UNIFORM, laid, generator), output, order), requires_grad)


@function()
@out_as_made()
def randint(
    low: Any = 0,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """A tensor of the shape `size` with integers evenly distributed from `low` up to but without `high`.

    ``randint(low, high, size)``, or ``randint(high, size)`` from 0 up; int64 unless `dtype` says otherwise.

    Raises:
        TypeError: if a limit is no integer, or the dtype is complex.
        ValueError: if no integer is between the limits, or an integer between them is out of the dtype's range.

    Example:
        >>> flow.randint(3, 4, (2,))
        tensor([3, 3])
    """
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None:
        raise _no_limits("randint")
    output = sized_meta("randint", (size,), dtype or dtypes.int64, device, None, placement, sbp)
    limits = _checked_range("randint", output, low, high)
    return tracked(draw(_RANDINT, output, generator, *limits), requires_grad)


@function()
def randint_like(
    input: Tensor,
    low: Tensor | int,
    high: Tensor | int | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`randint` with the shape, dtype and device of `input`, and the limits `low` and `high`, or 0 and `low`.

    Limits may be tensors of one integer, whose values are waited for.

    Raises:
        TypeError, ValueError: as `randint`.

    Example:
        >>> flow.randint_like(flow.zeros(2), 3, 4)
        tensor([3., 3.])
    """
    output = meta_like("randint_like", input, dtype, device)
    limits = _checked_range("randint_like", output, *((0, low) if high is None else (low, high)))
    return tracked(draw(_RANDINT, output, generator, *limits), requires_grad)


def _no_limits(name: str) -> TypeError:
    return TypeError(f"{name}: expected integers, as in {name}(low, high, size) or {name}(high, size)")


def _checked_range(name: str, output: TensorMeta, low: Any, high: Any) -> tuple[int, int]:
    """Return the limits as ints, after checking that the integers between them are in the range of the output's dtype.

    Tensors and arrays of one integer may be limits, too.
    """
    if not (_is_integer(low) and _is_integer(high)):
        raise _no_limits(name)
    low, high = operator.index(low), operator.index(high)
    if output.dtype.is_complex:
        raise TypeError(f"{name} is not defined for {output.dtype.name} tensors")
    if low >= high:
        raise ValueError(f"{name}: there is no integer from {low} up to, without, {high}")
    for limit in (low, high - 1):
        if output.dtype is dtypes.bool_ and limit not in (0, 1):
            raise ValueError(f"{name}: {limit} does not fit into bool")
        fitting(name, limit, output.dtype)
    return low, high


@function()
@out_as_made()
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """A vector of the integers from 0 up to but without `n`, in random order.

    Raises:
        TypeError: for the dtype bool and complex dtypes.
        ValueError: if `n` is negative, or the dtype does not hold all the integers, as float16 beyond 2048.

    Example:
        >>> flow.randperm(4).sort()[0]
        tensor([0, 1, 2, 3])
    """
    output = sized_meta("randperm", (n,), dtype or dtypes.int64, device, None, placement, sbp)
    if output.dtype is dtypes.bool_:
        raise TypeError("randperm is not defined for bool tensors, which cannot tell three numbers apart")
    if output.dtype.is_complex:
        raise TypeError(f"randperm is not defined for {output.dtype.name} tensors; give a real dtype")
    fitting("randperm", max(n - 1, 0), output.dtype)
    if output.dtype.category == dtypes.FLOATING and n - 1 > 2 / dtypes.finfo(output.dtype).eps:
        raise ValueError(f"randperm: {output.dtype.name} does not hold all integers below {n}; give an integer dtype")
    return tracked(draw(_RANDPERM, output, generator), requires_grad)


@function()
@out_as_made()
def normal(
    mean: float | Tensor,
    std: float | Tensor = 1.0,
    size: tuple[int, ...] | list[int] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """A tensor whose elements are drawn from normal distributions.

    Args:
        mean: the mean of all elements, or a tensor with the mean of each.
        std: the standard deviation of all elements, or a tensor with that of each; the two shapes broadcast.
        size: the shape of the result, if `mean` and `std` are numbers.
        generator: the source of random numbers.
        dtype, device: of the result, if `mean` and `std` are numbers.

    Raises:
        TypeError: if `size` is missing or superfluous; if all tensors are integers, or `dtype` is; if `std` is complex;
            if `requires_grad` is True for tensors.
        ValueError: if `std` is a negative number.

    Example:
        >>> flow.normal(flow.tensor([1.0, 2.0]), 0.0)
        tensor([1., 2.])
    """
    tensors = [parameter for parameter in (mean, std) if not isinstance(parameter, (int, float, np.number))]
    _check_tensors("normal", *tensors)
    if isinstance(std, (int, float, np.number)) and not std >= 0:
        raise ValueError(f"normal: the standard deviation cannot be negative, got {std}")
    if any([tensor.dtype.is_complex for tensor in tensors[-1:] if tensor is std]):
        raise TypeError("normal: a standard deviation cannot be complex")
    if bool(tensors) != (size is None):
        raise TypeError("normal: give a size if mean and std are numbers, and none if one is a tensor")
    if size is not None:
        return tracked(randn(tuple(size), generator=generator, dtype=dtype, device=device) * std + mean, requires_grad)
    if requires_grad:
        raise TypeError("normal: requires_grad is for numbers as mean and std")
    shape = broadcast_shapes("normal", *[tuple(tensor.shape) for tensor in tensors])
    wanted = tensors[0].dtype if len(tensors) == 1 else dtypes.promote_types(tensors[0].dtype, tensors[1].dtype)
    drawn = randn(shape, generator=generator, dtype=wanted, device=tensors[0].device)
    return beside(drawn, tensors[0]) * std + mean


@public()
@out_by_copy()
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Draw 1 with probability `p`, by default that in each element of `input`, else 0; shape and dtype of `input`.

    Raises:
        TypeError: if `input` is not floating-point and `p` is None, or if `p` is no number.
        ValueError: for a probability that is not within [0, 1]; if it is in `input`, when the result is read.

    Example:
        >>> flow.bernoulli(flow.tensor([0.0, 1.0]))
        tensor([0., 1.])
    """
    _check_tensors("bernoulli", input)
    output = input._blob.meta
    if p is not None:
        probability = _probability("bernoulli", p)
        return _hits(input, probability, generator).to(input.dtype)
    if not input.dtype.is_floating_point:
        raise TypeError(f"bernoulli: probabilities must be floating-point, not {input.dtype.name}")
    return _interpreter.dispatch(_BERNOULLI, (input,), (output,), take(output.numel, generator))


@public()
@out_by_copy()
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Draw int64 indices from each row of `input`, with probabilities proportional to the weights in the row.

    Args:
        input: (n,) or (rows, n), floating-point, not negative; rows need not add up to one.
        num_samples: how many indices to draw from each row.
        replacement: whether an index may be drawn again; if not, indices of weight 0 come last.
        generator: the source of random numbers.

    Returns:
        A tensor of shape (num_samples,) or (rows, num_samples).

    Raises:
        TypeError: unless `input` is floating-point, and `num_samples` an integer.
        ValueError: for another number of dimensions, or n = 0; if `num_samples` is not positive or, without
            replacement, above n; for weights that are negative, not finite or all zero, when the result is read.

    Example:
        >>> flow.multinomial(flow.tensor([0.0, 1.0, 0.0]), 2, replacement=True)
        tensor([1, 1])
    """
    _check_tensors("multinomial", input)
    if not input.dtype.is_floating_point:
        raise TypeError(f"multinomial: the weights must be floating-point, not {input.dtype.name}")
    if input.ndim not in (1, 2) or not input.shape[-1]:
        raise ValueError(f"multinomial: expected weights of shape (n,) or (rows, n), got {list(input.shape)}")
    num_samples = _whole_number("multinomial", "the number of samples", num_samples)
    if num_samples <= 0 or (num_samples > input.shape[-1] and not replacement):
        raise ValueError(
            f"multinomial: cannot draw {num_samples} of {input.shape[-1]}"
            f"{'' if replacement else '; pass replacement=True to draw one several times'}"
        )
    output = _meta((*input.shape[:-1], num_samples), dtypes.int64, input.device)
    taken = take(max(input.numel(), output.numel), generator)
    return _interpreter.dispatch(_MULTINOMIAL, (input,), (output, bool(replacement)), taken)


@function()
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw from Poisson distributions, in the shape and dtype of `input`, which holds the rate of each element.

    Raises:
        TypeError: unless `input` is floating-point.
        ValueError: for a rate that is negative or not finite, when the result is read.

    Example:
        >>> flow.poisson(flow.zeros(2))
        tensor([0., 0.])
    """
    _check_tensors("poisson", input)
    return _drawn_like("poisson", _POISSON, input, generator)


def standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw from gamma distributions of rate 1, in the shape and dtype of `input`, which holds the concentrations.

    Raises:
        TypeError: unless `input` is floating-point.
        ValueError: for a concentration that is not positive or not finite, when the result is read.

    Example:
        >>> from vmflow.random import standard_gamma
        >>> standard_gamma(flow.ones(2, 3)).shape
        vmflow.Size([2, 3])
    """
    _check_tensors("standard_gamma", input)
    return _drawn_like("standard_gamma", _GAMMA, input, generator)


def _drawn_like(name: str, op: OpExpr, input: Tensor, generator: Generator | None) -> Tensor:
    output = input._blob.meta
    if not input.dtype.is_floating_point:
        raise TypeError(f"{name}: expected a floating-point tensor, got {input.dtype.name}")
    return _interpreter.dispatch(op, (input,), (output,), take(output.numel, generator))


@method()
def exponential_(input: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with numbers from the exponential distribution of the rate `lambd`.

    Raises:
        TypeError: unless `input` is floating-point and the rate a number.
        ValueError: if the rate is not positive.

    Example:
        >>> (flow.zeros(2).exponential_() >= 0).all()
        tensor(True)
    """
    _check_tensors("exponential_", input)
    lambd = _real_number("exponential_", "lambd", lambd)
    if not lambd > 0:
        raise ValueError(f"exponential_: the rate must be positive, got {lambd}")
    if not input.dtype.is_floating_point:
        raise TypeError(f"exponential_: expected a floating-point tensor, got {input.dtype.name}")
    draw_into(_EXPONENTIAL, input, generator)
    return input if lambd == 1 else input.div_(lambd)


@method()
def normal_(input: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with numbers from the normal distribution of this mean and standard deviation.

    Raises:
        TypeError: for integers or bool, or if the mean or the standard deviation is no number.
        ValueError: if the standard deviation is negative.

    Example:
        >>> flow.zeros(2).normal_(3, 0)
        tensor([3., 3.])
    """
    _check_tensors("normal_", input)
    mean, std = _real_number("normal_", "mean", mean), _real_number("normal_", "std", std)
    if not std >= 0:
        raise ValueError(f"normal_: the standard deviation cannot be negative, got {std}")
    _fractional("normal_", input._blob.meta)
    draw_into(_NORMAL, input, generator)
    if std != 1:
        input.mul_(std)
    return input.add_(mean) if mean else input


@method()
def uniform_(input: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with numbers (both parts of complex ones) evenly distributed over [from_, to).

    Raises:
        TypeError: for integers or bool, or if a limit is no number.
        ValueError: if the lower limit is above the upper one, or if one of them or their difference is not finite in
            the dtype.

    Example:
        >>> flow.zeros(2).uniform_(3, 3)
        tensor([3., 3.])
    """
    _check_tensors("uniform_", input)
    from_, to = _real_number("uniform_", "from_", from_), _real_number("uniform_", "to", to)
    if not from_ <= to:
        raise ValueError(f"uniform_: the lower limit {from_} is above the upper limit {to}, or one is nan")
    _fractional("uniform_", input._blob.meta)
    numbers = view_as_real(input) if input.dtype.is_complex else input
    if not max(abs(from_), abs(to), to - from_) <= dtypes.finfo(numbers.dtype).max:
        raise ValueError(f"uniform_: {numbers.dtype.name} does not hold {from_}, {to} or their difference")
    draw_into(_UNIFORM, input, generator)
    if to - from_ != 1:
        numbers.mul_(to - from_)
    if from_:
        # The sum may be rounded up to `to`, which is excluded, unless it equals `from_` in this dtype.
        number = numbers.dtype.numpy.type
        numbers.add_(from_).clamp_max_(float(np.nextafter(number(to), number(from_))))
    return input


@method()
def random_(
    input: Tensor, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fill `input`, of any shape, with integers evenly distributed from `from_` up to but without `to`.

    A single limit, by either name, is `to`; the integers begin at 0.  Without limits, from 0 up to the largest value of
    an integer dtype; for a floating-point dtype, to the largest n such that the dtype holds all integers from 0 to n.

    Raises:
        TypeError: for complex tensors, or if a limit is no integer.
        ValueError: if no integer is between the limits, or an integer between them is out of the dtype's range.

    Example:
        >>> flow.zeros(3).random_(2, 3)
        tensor([2., 2., 2.])
    """
    _check_tensors("random_", input)
    kind = input.dtype
    if kind.is_complex:
        raise TypeError(f"random_ is not defined for {kind.name} tensors")
    if to is None and from_ is not None:
        from_, to = None, from_
    if to is None and kind.is_floating_point:
        to = round(2 / dtypes.finfo(kind).eps) + 1
    if to is None:
        to = 2 if kind is dtypes.bool_ else dtypes.iinfo(kind).max + 1
    limits = _checked_range("random_", input._blob.meta, 0 if from_ is None else from_, to)
    return draw_into(_RANDINT, input, generator, *limits)


@method()
def cauchy_(input: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with numbers from the Cauchy distribution of this median and scale `sigma`.

    Raises:
        TypeError: unless `input` is floating-point and the others numbers.
        ValueError: if `sigma` is not positive.

    Example:
        >>> flow.zeros(2, 3).cauchy_().shape
        vmflow.Size([2, 3])
    """
    _check_tensors("cauchy_", input)
    median, sigma = _real_number("cauchy_", "median", median), _real_number("cauchy_", "sigma", sigma)
    if not sigma > 0:
        raise ValueError(f"cauchy_: sigma must be positive, got {sigma}")
    draws = _uniform_like("cauchy_", input, generator)
    return copy_(input, ((draws - 0.5) * math.pi).tan() * sigma + median)


@method()
def log_normal_(input: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """Fill `input` with numbers whose logarithms have the normal distribution of this mean and standard deviation.

    Raises:
        TypeError: unless `input` is floating-point and the others numbers.
        ValueError: if `std` is not positive.

    Example:
        >>> (flow.zeros(2).log_normal_() > 0).all()
        tensor(True)
    """
    _check_tensors("log_normal_", input)
    mean, std = _real_number("log_normal_", "mean", mean), _real_number("log_normal_", "std", std)
    if not std > 0:
        raise ValueError(f"log_normal_: std must be positive, got {std}")
    if not input.dtype.is_floating_point:
        raise TypeError(f"log_normal_: expected a floating-point tensor, got {input.dtype.name}")
    return normal_(input, mean, std, generator=generator).exp_()


@method()
def geometric_(input: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with numbers of trials up to the first success, whose probability is `p` each time.

    Raises:
        TypeError: if `input` is bool or complex, or `p` is no number.
        ValueError: unless 0 < `p` < 1.

    Example:
        >>> (flow.zeros(2).geometric_(0.5) >= 1).all()
        tensor(True)
    """
    if input.dtype is dtypes.bool_ or input.dtype.is_complex:
        raise TypeError(f"geometric_ is not defined for {input.dtype.name} tensors")
    p = _real_number("geometric_", "p", p)
    if not 0 < p < 1:
        raise ValueError(f"geometric_: the probability must be between 0 and 1, got {p}")
    draws = _uniform(input, dtypes.float64, generator)
    return copy_(input, ((1 - draws).log() / math.log1p(-p)).floor() + 1)


def _uniform_like(name: str, input: Tensor, generator: Generator | None) -> Tensor:
    """Draw numbers in [0, 1) in the shape of `input`, of at least single precision; errors name the op `name`."""
    if not input.dtype.is_floating_point:
        raise TypeError(f"{name}: expected a floating-point tensor, got {input.dtype.name}")
    wide = dtypes.promote_types(input.dtype, dtypes.float32)
    return _uniform(input, wide, generator)


def _uniform(input: Tensor, kind: DType, generator: Generator | None) -> Tensor:
    """Draw numbers in [0, 1) of the dtype `kind` in the shape of `input`, on its device and ranks."""
    return beside(rand(tuple(input.shape), generator=generator, dtype=kind, device=input.device), input)


@method()
def bernoulli_(input: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill `input`, of any shape, with ones with probability `p`, and zeros elsewhere.

    Args:
        p: the probability; or a floating-point tensor of them that broadcasts to the shape of `input`.
        generator: the source of random numbers.

    Raises:
        TypeError: if `input` is complex, or `p` is no number and no floating-point tensor.
        ValueError: for a probability that is not within [0, 1]; if it is in a tensor, when `input` is read.

    Example:
        >>> flow.zeros(2).bernoulli_(1.0)
        tensor([1., 1.])
    """
    _check_tensors("bernoulli_", input)
    if input.dtype.is_complex:
        raise TypeError(f"bernoulli_ is not defined for {input.dtype.name} tensors")
    if isinstance(p, _tensors.Tensor):
        return copy_(input, bernoulli(expand(p, input.shape), generator=generator))
    probability = _probability("bernoulli_", p)
    return copy_(input, _hits(input, probability, generator))


def _hits(input: Tensor, p: float, generator: Generator | None) -> Tensor:
    """Draw True with probability `p`, else False, in the shape of `input`."""
    # Numbers of float32 are multiples of 2**-24, which are too coarse for small probabilities.
    kind = dtypes.float64 if p < 1e-3 else dtypes.float32
    return _uniform(input, kind, generator) < p


def _probability(name: str, p: float) -> float:
    p = _real_number(name, "p", p)
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: the probability must be within [0, 1], got {p}")
    return p
