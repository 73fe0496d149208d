"""Initialization: functions that fill tensors with the values that training begins with.

A function whose name ends in "_" changes its tensor in place, without recording for autograd, and returns it.
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
from vmflow.interpreter import dispatch_into as _dispatch_into
from vmflow.operands import check_tensors as _check_tensors
from vmflow.ops.creation import creation
from vmflow.random import Generator
from vmflow.tensors import Tensor
from vmflow.transfers import beside as _beside

Arguments = ParamSpec("Arguments")

# PyTorch's gains, except that of leaky_relu, which `calculate_gain` computes from the slope.
_GAINS: dict[str, float] = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), 1.0),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1.0),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor of a weight's standard deviation that compensates the `nonlinearity` behind the weight's layer.

    Args:
        nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", or a convolution such as "conv2d".
        param: the slope of leaky_relu, by default 0.01.

    Raises:
        ValueError: for another name, or a slope of leaky_relu that is no real number.

    Example:
        >>> flow.nn.init.calculate_gain("leaky_relu", 1.0)
        1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float, np.number)):
            raise ValueError(f"calculate_gain: the slope of leaky_relu must be a number, not {slope!r}")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise ValueError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}; known are {known}")
    return _GAINS[nonlinearity]


def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """Return fan_in and fan_out of a weight of shape (outputs, inputs, *kernel).

    Fan_in is ``inputs * prod(kernel)``; fan_out is ``outputs * prod(kernel)``.

    Raises:
        TypeError: if `tensor` is no tensor.
        ValueError: if the weight has fewer than two dimensions.

    Example:
        >>> flow.nn.init.fan_in_and_out(flow.empty(4, 3, 5, 5))
        (75, 100)
    """
    _check_tensors("fan_in_and_out", tensor)
    if tensor.ndim < 2:
        raise ValueError(f"a weight needs at least 2 dimensions to have a fan, got shape {list(tensor.shape)}")
    kernel = math.prod(tensor.shape[2:])
    return tensor.shape[1] * kernel, tensor.shape[0] * kernel


class _Block:
    """A block of `skipped`.

    Attributes:
        is_open: whether the block has not ended; tasks that began within it may go on with a copy of its context.
        outer: the block around this block, or None.
    """

    def __init__(self, outer: _Block | None) -> None:
        self.is_open = True
        self.outer = outer


_block: ContextVar[_Block | None] = ContextVar("block", default=None)


@contextmanager
def skipped() -> Iterator[None]:
    """Make a block in which the functions of `nn.init` leave tensors as they are, in this task or thread.

    They do so, too, in tasks that begin within the block, until its end.

    Example:
        >>> with flow.nn.init.skipped():
        ...     flow.nn.init.ones_(flow.zeros(2))
        tensor([0., 0.])
    """
    block = _Block(_block.get())
    _block.set(block)
    try:
        yield
    finally:
        block.is_open = False
        _block.set(block.outer)


def _filling(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Decorate an initializer: run it under `no_grad`; within `skipped`, return its tensor unchanged."""

    @functools.wraps(function)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        target: Any = kwargs["tensor"] if "tensor" in kwargs else args[0] if args else None
        _check_tensors(function.__name__, target)
        block = _block.get()
        while block is not None:
            if block.is_open:
                return target  # type: ignore[no-any-return]
            block = block.outer
        with no_grad():
            return function(*args, **kwargs)

    return wrapped


@_filling
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a tensor of any shape from the uniform distribution over [a, b), both parts of complex elements alike.

    Raises:
        TypeError: for anything else than a floating-point or complex tensor, or limits that are no real numbers.
        ValueError: if `a` is above `b`, one is nan, or the dtype does not hold the limits or their difference.

    Example:
        >>> weight = flow.nn.init.uniform_(flow.empty(3, 5), 1.0, 2.0)
        >>> bool(((weight >= 1) & (weight < 2)).all())
        True
    """
    return random.uniform_(tensor, a, b, generator=generator)


@_filling
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a tensor of any shape from the normal distribution; ``std**2`` is the variance of a whole complex element.

    Raises:
        TypeError: for anything else than a floating-point or complex tensor, or a mean or std that is no real number.
        ValueError: if `std` is negative or nan.

    Example:
        >>> flow.nn.init.normal_(flow.empty(2), mean=3.0, std=0.0)
        tensor([3., 3.])
    """
    return random.normal_(tensor, mean, std, generator=generator)


@_filling
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor of any shape with one number, which may be a 0-d tensor.

    Raises:
        TypeError: if `tensor` is no tensor, `val` neither tensor nor number, or a complex number for a real `tensor`.
        ValueError, OverflowError: for a number, not a tensor, out of the dtype's range, or a `val` with dimensions.

    Example:
        >>> flow.nn.init.constant_(flow.empty(2), 3.0)
        tensor([3., 3.])
    """
    return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor of any shape and dtype with ones.

    Raises:
        TypeError: for anything else than a tensor.

    Example:
        >>> flow.nn.init.ones_(flow.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor of any shape and dtype with zeros.

    Raises:
        TypeError: for anything else than a tensor.

    Example:
        >>> flow.nn.init.zeros_(flow.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


@_filling
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity.

    Raises:
        TypeError: for anything else than a tensor.
        ValueError: if the tensor is no matrix.

    Example:
        >>> flow.nn.init.eye_(flow.empty(2, 3))
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    if tensor.ndim != 2:
        raise ValueError(f"eye_: expected 2 dimensions, got shape {list(tensor.shape)}")
    return tensor.copy_(_beside(creation.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device), tensor))


@_filling
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that output channel i copies input channel i; surplus output channels are 0.

    Args:
        tensor: (outputs, inputs of a group, *kernel), of three to five dimensions.
        groups: the convolution's number of groups; each group copies its own channels.

    Raises:
        TypeError: for anything else than a tensor.
        ValueError: for another number of dimensions, or if `groups` is not positive or does not divide the outputs.

    Example:
        >>> flow.nn.init.dirac_(flow.empty(1, 2, 3))
        tensor([[[0., 1., 0.],
                 [0., 0., 0.]]])
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
    return tensor.copy_(_beside(creation.from_numpy(values).to(device=tensor.device), tensor))


@_filling
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix from the normal distribution, and set the same number of elements in each column to 0.

    J. Martens, 2010.

    Args:
        tensor: a matrix.
        sparsity: the fraction of each column that is zero, within [0, 1]; rounded up to whole elements.
        std: the standard deviation of the other elements.
        generator: the generator of random numbers.

    Raises:
        ValueError: if the tensor is no matrix, `sparsity` is outside [0, 1], or `std` is negative.
        TypeError: for anything else than a floating-point or complex tensor.

    Example:
        >>> (flow.nn.init.sparse_(flow.empty(4, 2), sparsity=0.5) == 0).sum(0)
        tensor([2, 2])
    """
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: expected 2 dimensions, got shape {list(tensor.shape)}")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparse_: the sparsity must be within [0, 1], got {sparsity}")
    normal_(tensor, 0.0, std, generator)
    order = _beside(random.rand(tuple(tensor.shape), generator=generator, device=tensor.device), tensor).argsort(0)
    # The second argsort gives each element's rank in a random order of its column; elements of low rank become 0.
    return tensor.masked_fill_(order.argsort(0) < math.ceil(sparsity * tensor.shape[0]), 0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight uniformly, with variance ``gain**2 * 2 / (fan_in + fan_out)`` (Glorot and Bengio, 2010).

    Each part of a complex element has this variance.

    Raises:
        ValueError: if the tensor has fewer than two dimensions, or `gain` is negative, nan or too large for the dtype.
        TypeError: for anything else than a floating-point or complex tensor.

    Example:
        >>> weight = flow.nn.init.xavier_uniform_(flow.empty(3, 3))
        >>> bool((weight.abs() <= 1).all())
        True
    """
    bound = gain * math.sqrt(6.0 / max(sum(fan_in_and_out(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight normally, with variance ``gain**2 * 2 / (fan_in + fan_out)`` (Glorot and Bengio, 2010).

    A complex element as a whole has this variance.

    Raises:
        ValueError: if the tensor has fewer than two dimensions, or `gain` is negative or nan.
        TypeError: for anything else than a floating-point or complex tensor.

    Example:
        >>> flow.nn.init.xavier_normal_(flow.empty(2, 3), gain=0.0).abs()
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(sum(fan_in_and_out(tensor)), 1)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight uniformly, with variance ``gain**2 / fan`` (He and others, 2015).

    Each part of a complex element has this variance.

    Args:
        tensor: a weight of shape (outputs, inputs, *kernel).
        a: the slope of leaky_relu.
        mode: the fan in the formula: "fan_in" keeps the variance of values in the forward pass, "fan_out" that of
            gradients in the backward pass.
        nonlinearity: the function behind the layer; `calculate_gain` gives its ``gain``.
        generator: the generator of random numbers.

    Raises:
        ValueError: for fewer than two dimensions, another mode or nonlinearity, or no number as leaky_relu's slope.
        TypeError: for anything else than a floating-point or complex tensor.

    Example:
        >>> weight = flow.nn.init.kaiming_uniform_(flow.empty(4, 6))
        >>> bool((weight.abs() <= 1).all())
        True
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
    """Fill a weight normally, with variance ``gain**2 / fan``, of whole complex elements; else as `kaiming_uniform_`.

    Raises:
        ValueError: for fewer than two dimensions, another mode or nonlinearity, or no number as leaky_relu's slope.
        TypeError: for anything else than a floating-point or complex tensor.

    Example:
        >>> flow.nn.init.kaiming_normal_(flow.empty(4, 6), nonlinearity="relu").shape
        vmflow.Size([4, 6])
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', not {mode!r}")
    fan = fan_in_and_out(tensor)[mode == "fan_out"]
    # With a fan of 0 there is no element to fill, so any number will do.
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
    """Fill a tensor of any shape from the normal distribution truncated to [a, b].

    Raises:
        TypeError: for anything else than a floating-point tensor.
        ValueError: if `std` is not positive, or `a` is not below `b`.

    Example:
        >>> weight = flow.nn.init.trunc_normal_(flow.empty(3, 5), a=-1.0, b=1.0)
        >>> bool((weight.abs() <= 1).all())
        True
    """
    if not std > 0:
        raise ValueError(f"trunc_normal_: the standard deviation must be positive, got {std}")
    if not a < b:
        raise ValueError(f"trunc_normal_: the lower limit {a} is not below the upper limit {b}")
    return _draw_with(_TRUNCATED, tensor, generator, float(mean), float(std), float(a), float(b))


@_filling
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill a weight with orthogonal rows (or columns, if there are fewer) of length ``abs(gain)`` (Saxe et al., 2013).

    The dimensions behind the first are treated as one.

    Raises:
        TypeError: for anything else than a floating-point tensor.
        ValueError: if there are fewer than two dimensions.

    Example:
        >>> weight = flow.nn.init.orthogonal_(flow.empty(2, 5))
        >>> flow.allclose(weight @ weight.T, flow.eye(2), atol=1e-5)
        True
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got shape {list(tensor.shape)}")
    return _draw_with(_ORTHOGONAL, tensor, generator, float(gain))


def _draw_with(op: Any, tensor: Tensor, generator: Generator | None, *parameters: float) -> Tensor:
    if not tensor.is_floating_point():
        raise TypeError(f"{op.name}: expected a floating-point tensor, got {tensor.dtype.name}")
    if tensor.numel() == 0:
        return tensor
    return _dispatch_into(op, tensor, (), (tensor._blob.meta, *parameters), random.take(tensor.numel(), generator))


# PyTorch's private name of `fan_in_and_out`, used by many programs.
_calculate_fan_in_and_fan_out = fan_in_and_out


def _old(function: Callable[Arguments, Tensor]) -> Callable[Arguments, Tensor]:
    """Return `function` under PyTorch's old name, without the last underscore, with a FutureWarning at each call."""
    new = function.__name__

    @functools.wraps(function)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        warnings.warn(
            f"nn.init.{new[:-1]} is the old name of nn.init.{new}; use the new one", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    called.__name__ = called.__qualname__ = new[:-1]
    called.__doc__ = f"The old name of `{new}`, which warns with FutureWarning.\n\n    {function.__doc__}"
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
