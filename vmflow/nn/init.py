"""Filling tensors with the values that training begins with.

Every function changes its tensor in place without recording, and returns it.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec

import numpy as np

from vmflow import random
from vmflow.autograd import no_grad
from vmflow.interpreter import dispatch_into
from vmflow.ops.creation import creation
from vmflow.random import Generator
from vmflow.tensors import Tensor
from vmflow.transfers import beside

Arguments = ParamSpec("Arguments")

# By how much to make up for what a nonlinearity takes from the standard deviation, as PyTorch has it.  leaky_relu
# depends on its slope; for selu the value is one that works in practice.
_GAINS: dict[str, float] = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), 1.0),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1.0),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much to scale weights so that values keep their spread through `nonlinearity`.

    Args:
        nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", or the name of a convolution.
        param: the slope of leaky_relu, by default 0.01.

    Raises:
        ValueError: for another name, or a slope that is no number.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"calculate_gain: the slope of leaky_relu must be a number, not {slope!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}; known are {known}")
    return _GAINS[nonlinearity]


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs one output of this weight sees, and how many outputs one input reaches.

    A weight has shape (outputs, inputs, *kernel).

    Raises:
        ValueError: if it has fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise ValueError(f"a weight needs at least 2 dimensions to have a fan, got shape {list(tensor.shape)}")
    kernel = math.prod(tensor.shape[2:])
    return tensor.shape[1] * kernel, tensor.shape[0] * kernel


_skipping: ContextVar[bool] = ContextVar("skipping", default=False)


@contextmanager
def skipped() -> Iterator[None]:
    """Within, the functions here leave tensors as they are; for this task or thread only."""
    token = _skipping.set(True)
    try:
        yield
    finally:
        _skipping.reset(token)


def _filling(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Declare that `function` changes its first argument in place, which is not recorded, and returns it."""

    @functools.wraps(function)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        if _skipping.get():
            target = kwargs["tensor"] if "tensor" in kwargs else args[0]
            assert isinstance(target, Tensor)
            return target
        with no_grad():
            return function(*args, **kwargs)

    return wrapped


@_filling
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Evenly distributed over [a, b)."""
    return random.uniform_(tensor, a, b, generator=generator)


@_filling
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normally distributed."""
    return random.normal_(tensor, mean, std, generator=generator)


@_filling
def constant_(tensor: Tensor, val: float) -> Tensor:
    """All the same."""
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """All one."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """All zero."""
    return constant_(tensor, 0.0)


@_filling
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix.

    Raises:
        ValueError: if it is no matrix.
    """
    if tensor.ndim != 2:
        raise ValueError(f"eye_: expected 2 dimensions, got shape {list(tensor.shape)}")
    return tensor.copy_(beside(creation.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device), tensor))


@_filling
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The weight of a convolution that passes on as many of its input channels as it can.

    Args:
        tensor: (outputs, inputs of a group, *kernel), of three to five dimensions.
        groups: of the convolution, each of which passes on its own.

    Raises:
        ValueError: for another number of dimensions, or outputs that the groups do not divide.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: expected 3, 4 or 5 dimensions, got shape {list(tensor.shape)}")
    if groups <= 0 or tensor.shape[0] % groups:
        raise ValueError(f"dirac_: {tensor.shape[0]} outputs cannot be split into {groups} groups")
    values = np.zeros(tuple(tensor.shape), np.float32)
    outputs = tensor.shape[0] // groups
    middle = tuple([size // 2 for size in tensor.shape[2:]])
    for group in range(groups):
        for channel in range(min(outputs, tensor.shape[1])):
            values[(group * outputs + channel, channel, *middle)] = 1
    return tensor.copy_(beside(creation.from_numpy(values).to(device=tensor.device), tensor))


@_filling
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normally distributed, but for as many zeros in each column (J. Martens, 2010).

    Args:
        tensor: a matrix.
        sparsity: which part of each column is zero, within [0, 1]; rounded up to whole elements.
        std: standard deviation of the rest.
        generator: the source of the numbers.

    Raises:
        ValueError: if it is no matrix, or `sparsity` no part.
    """
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: expected 2 dimensions, got shape {list(tensor.shape)}")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparse_: the sparsity must be within [0, 1], got {sparsity}")
    normal_(tensor, 0.0, std, generator)
    order = random.rand(tuple(tensor.shape), generator=generator, device=tensor.device).argsort(0)
    # The place of each in a random order of its column.
    return tensor.masked_fill_(order.argsort(0) < math.ceil(sparsity * tensor.shape[0]), 0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Evenly distributed, with variance ``gain**2 * 2 / (fan_in + fan_out)`` (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fan_in_and_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normally distributed, with variance ``gain**2 * 2 / (fan_in + fan_out)`` (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fan_in_and_out(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Evenly distributed, with variance ``gain**2 / fan`` (He and others, 2015).

    Args:
        tensor: a weight of shape (outputs, inputs, *kernel).
        a: the slope of leaky_relu.
        mode: "fan_in" keeps the spread of values forward, "fan_out" that of gradients backward.
        nonlinearity: what follows, see `calculate_gain`.
        generator: the source of the numbers.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normally distributed, with variance ``gain**2 / fan``; see `kaiming_uniform_`."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not {mode!r}")
    fan = fan_in_and_out(tensor)[mode == "fan_out"]
    # A weight without elements has nothing to fill and possibly no fan.
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


_TRUNCATED = random.random_op("trunc_normal_", (float, float, float, float))
_ORTHOGONAL = random.random_op("orthogonal_", (float,))


@_filling
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normally distributed within [a, b], as if values outside were drawn again.

    Raises:
        ValueError: if `std` is not positive, or the interval is empty.
    """
    if not std > 0:
        raise ValueError(f"trunc_normal_: the standard deviation must be positive, got {std}")
    if not a < b:
        raise ValueError(f"trunc_normal_: the lower limit {a} is not below the upper limit {b}")
    return _draw_with(_TRUNCATED, tensor, generator, float(mean), float(std), float(a), float(b))


@_filling
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Rows (or columns, if there are fewer) orthogonal to each other and of length `gain` (Saxe and others, 2013).

    Dimensions behind the first count as one.

    Raises:
        ValueError: if there are fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got shape {list(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    return _draw_with(_ORTHOGONAL, tensor, generator, float(gain))


def _draw_with(op: Any, tensor: Tensor, generator: Generator | None, *parameters: float) -> Tensor:
    if not tensor.is_floating_point():
        raise TypeError(f"{op.name}: expected a floating-point tensor, got {tensor.dtype.name}")
    return dispatch_into(op, tensor, (), (tensor._blob.meta, *parameters), random.take(tensor.numel(), generator))


# PyTorch's name, which is private there and used by many programs all the same.
_calculate_fan_in_and_fan_out = fan_in_and_out


def _old(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """The function under the name that it had before PyTorch gave names with an underscore to what changes tensors."""
    new = function.__name__

    @functools.wraps(function)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        warnings.warn(
            f"nn.init.{new[:-1]} is the old name of nn.init.{new}; use the new one", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    called.__name__ = called.__qualname__ = new[:-1]
    return called


uniform = _old(uniform_)
normal = _old(normal_)
constant = _old(constant_)
eye = _old(eye_)
dirac = _old(dirac_)
xavier_uniform = _old(xavier_uniform_)
xavier_normal = _old(xavier_normal_)
kaiming_uniform = _old(kaiming_uniform_)
kaiming_normal = _old(kaiming_normal_)
orthogonal = _old(orthogonal_)
sparse = _old(sparse_)
