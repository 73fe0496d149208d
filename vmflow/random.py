"""Random numbers: `Generator`, and the ops that draw from one.

A generator is a seed and a counter (Philox).  Issuing an op takes the next stretch of the counter, so that the numbers
depend on the order in which ops were issued and on nothing else: not on the order in which they run, nor on who else
draws from another generator.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from . import dtypes
from . import interpreter as _interpreter
from .context import MODE
from .devices import device as Device
from .dtypes import dtype as DType
from .instructions.blob import Array, TensorMeta
from .ops.creation import _like, _meta, _track
from .ops.table import Attributes, Inferred, Kinds, Metas, OpExpr

if TYPE_CHECKING:
    from .tensor import Tensor

# Counter steps that one draw may use per element; Philox makes four 64-bit numbers a step, and numpy's rejection methods
# use little more than one number per element.
_STEPS_PER_ELEMENT: Final = 2
_MASK: Final = (1 << 64) - 1


class Generator:
    """A source of random numbers.

    Args:
        device: where its numbers are used.

    Attributes:
        device: as given.
    """

    def __init__(self, device: Device | str = "cpu") -> None:
        self.device = Device(device)
        self._lock = threading.Lock()
        self._seed = 0
        self._position = 0
        self.seed()

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence that belongs to `seed`; negative seeds count down from 2**64."""
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"manual_seed: the seed must be an integer, not {seed!r}")
        if not -(1 << 63) <= seed <= _MASK:
            raise ValueError(f"manual_seed: the seed must fit into 64 bits, got {seed}")
        with self._lock:
            self._seed = seed & _MASK
            self._position = 0
        return self

    def seed(self) -> int:
        """Take a seed from the operating system, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed of the present sequence."""
        return self._seed

    def get_state(self) -> Tensor:
        """Seed and position, as 32 bytes in a uint8 tensor."""
        with self._lock:
            state = self._seed.to_bytes(16, "little") + self._position.to_bytes(16, "little")
        from .ops.creation import tensor

        return tensor(np.frombuffer(state, np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from where `get_state` was called."""
        state = bytes(new_state.numpy())
        if len(state) != 32:
            raise ValueError(f"set_state: expected the 32 bytes that get_state returned, got {len(state)}")
        with self._lock:
            self._seed = int.from_bytes(state[:16], "little")
            self._position = int.from_bytes(state[16:], "little")
        return self

    def take(self, elements: int) -> tuple[int, int]:
        """The seed, and the position of a stretch for this many elements that nobody else will get."""
        with self._lock:
            position = self._position
            self._position += elements * _STEPS_PER_ELEMENT + 1
            return self._seed, position

    def __repr__(self) -> str:
        return f"<Generator seed={self._seed} position={self._position}>"


default_generator: Final = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator of this context: the process's, or inside `fork_rng` its own."""
    return _generator(None).manual_seed(seed)


@contextmanager
def fork_rng() -> Iterator[Generator]:
    """Within the block, the default generator is one of this task's or thread's own.

    It begins where the outer one stands; the outer one stays there.
    """
    mode = MODE.get()
    outer = _generator(None)
    inner = Generator()
    with outer._lock:
        inner._seed, inner._position = outer._seed, outer._position
    MODE.set(mode.replace(generator=inner))
    try:
        yield inner
    finally:
        MODE.set(MODE.get().replace(generator=mode.generator))


def _generator(given: Generator | None) -> Generator:
    if given is not None and not isinstance(given, Generator):
        raise TypeError(f"expected a vmflow.Generator, got {type(given).__name__}")
    return given or MODE.get().generator or default_generator


_local = threading.local()


def _numpy_generator(seed: int, position: int) -> np.random.Generator:
    """numpy's generator of this thread, set to a place in a sequence; making a new one takes ten times as long."""
    found: tuple[np.random.Philox, np.random.Generator, dict[str, Any]] | None = getattr(_local, "found", None)
    if found is None:
        bits = np.random.Philox(key=0)
        found = _local.found = (bits, np.random.Generator(bits), cast("dict[str, Any]", bits.state))
    bits, generator, state = found
    state["state"]["key"][0] = seed
    counter = state["state"]["counter"]
    counter[0] = position & _MASK
    counter[1] = position >> 64
    state["buffer_pos"] = 4  # nothing buffered
    state["has_uint32"] = 0
    bits.state = state
    return generator


Draw = Callable[[np.random.Generator, TensorMeta, tuple[Any, ...]], Array]


def _random_op(name: str, draw: Draw) -> OpExpr:
    """Declare an op with attributes ``(output, *parameters)`` and scalars ``(seed, position)``."""

    def infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
        output, *parameters = attributes
        assert isinstance(output, TensorMeta)
        fixed = tuple(parameters)

        def kernel(seed: int, position: int, out: Array | None) -> Array:
            return draw(_numpy_generator(seed, position), output, fixed)

        return Inferred(output, kernel, output.numel * 10 + 5000)

    return OpExpr(name, infer)


def _draw_float(output: TensorMeta, method: Callable[..., Array]) -> Array:
    if output.dtype.is_complex:
        half = dtypes.float32 if output.dtype is dtypes.complex64 else dtypes.float64
        parts = method(output.shape + (2,), half.numpy) * np.sqrt(0.5, dtype=half.numpy)
        return np.ascontiguousarray(parts).view(output.dtype.numpy).reshape(output.shape)
    native = output.dtype if output.dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    return np.asarray(method(output.shape, native.numpy)).astype(output.dtype.numpy, copy=False)


_NORMAL = _random_op("randn", lambda generator, output, _: _draw_float(output, generator.standard_normal))
_UNIFORM = _random_op("rand", lambda generator, output, _: _draw_float(output, generator.random))
_RANDINT = _random_op(
    "randint",
    lambda generator, output, limits: generator.integers(limits[0], limits[1], output.shape).astype(output.dtype.numpy),
)
_RANDPERM = _random_op(
    "randperm", lambda generator, output, _: generator.permutation(output.numel).astype(output.dtype.numpy)
)


def draw(op: OpExpr, output: TensorMeta, generator: Generator | None, *parameters: Any) -> Tensor:
    """Issue a random op."""
    return _interpreter.dispatch(op, (), (output, *parameters), _generator(generator).take(output.numel))


def draw_into(op: OpExpr, target: Tensor, generator: Generator | None) -> Tensor:
    """Issue a random op that writes into `target`."""
    output = target._blob.meta
    return _interpreter.dispatch_into(op, target, (), (output,), _generator(generator).take(output.numel))


def _float_meta(name: str, size: tuple[Any, ...], dtype: DType | None, device: Device | str | None) -> TensorMeta:
    output = _meta(name, size, dtype, device)
    if output.dtype.category < dtypes.FLOATING:
        raise TypeError(f"{name}: expected a floating-point or complex dtype, got {output.dtype.name}")
    return output


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from the standard normal distribution."""
    return _track(draw(_NORMAL, _float_meta("randn", size, dtype, device), generator), requires_grad)


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers evenly distributed over [0, 1)."""
    return _track(draw(_UNIFORM, _float_meta("rand", size, dtype, device), generator), requires_grad)


def randn_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DType | None = None, device: Device | str | None = None
) -> Tensor:
    """As `randn`, of the shape, dtype and device of `input`."""
    return draw(_NORMAL, _like(input, dtype, device), generator)


def rand_like(
    input: Tensor, *, generator: Generator | None = None, dtype: DType | None = None, device: Device | str | None = None
) -> Tensor:
    """As `rand`, of the shape, dtype and device of `input`."""
    return draw(_UNIFORM, _like(input, dtype, device), generator)


def randint(
    low: int,
    high: Any = None,
    size: tuple[int, ...] | None = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Integers from `low` up to but without `high`: ``randint(low, high, size)`` or ``randint(high, size)``.

    Raises:
        ValueError: if there is no integer between.
    """
    if size is None:
        low, high, size = 0, low, high
    if size is None or not isinstance(high, int):
        raise TypeError("randint: expected randint(low, high, size) or randint(high, size)")
    if low >= high:
        raise ValueError(f"randint: there is no integer from {low} up to, without, {high}")
    return draw(_RANDINT, _meta("randint", (size,), dtype or dtypes.int64, device), generator, low, high)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """The integers below `n` in random order."""
    return draw(_RANDPERM, _meta("randperm", (n,), dtype or dtypes.int64, device), generator)


def normal(
    mean: float,
    std: float,
    size: tuple[int, ...],
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: Device | str | None = None,
) -> Tensor:
    """Numbers from the normal distribution with this mean and standard deviation."""
    if std < 0:
        raise ValueError(f"normal: the standard deviation cannot be negative, got {std}")
    return randn(size, generator=generator, dtype=dtype, device=device) * std + mean


def bernoulli(input: Tensor, *, generator: Generator | None = None) -> Tensor:
    """One with the probability that `input` holds, else zero, in its dtype."""
    return (rand_like(input, generator=generator) < input).to(input.dtype)


def normal_(input: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers from the normal distribution."""
    if std < 0:
        raise ValueError(f"normal_: the standard deviation cannot be negative, got {std}")
    draw_into(_NORMAL, input, generator)
    if std != 1:
        input.mul_(std)
    return input.add_(mean) if mean else input


def uniform_(input: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers evenly distributed over [from_, to)."""
    if from_ > to:
        raise ValueError(f"uniform_: the lower limit {from_} is above the upper limit {to}")
    draw_into(_UNIFORM, input, generator)
    if to - from_ != 1:
        input.mul_(to - from_)
    return input.add_(from_) if from_ else input


def bernoulli_(input: Tensor, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with one, with probability `p`, or zero."""
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli_: the probability must be within [0, 1], got {p}")
    from .ops.elementwise import copy_

    return copy_(input, rand(tuple(input.shape), generator=generator, device=input.device) < p)
