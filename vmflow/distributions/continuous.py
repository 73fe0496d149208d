"""Distributions of real numbers; all of them let gradients through their samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from vmflow.dtypes import finfo
from vmflow.ops.creation import full_like, zeros_like
from vmflow.ops.error_function import erf, erfinv
from vmflow.random import rand, randn
from vmflow.tensors import Tensor

from . import constraints
from .constraints import Constraint
from .distribution import Distribution, Number, parameters


class _Symmetric(Distribution):
    """A distribution that is symmetric about `loc`, and as wide as `scale` says."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample: ClassVar[bool] = True
    support = constraints.real

    def __init__(self, loc: Tensor | Number, scale: Tensor | Number, validate_args: bool | None = None) -> None:
        self.loc, self.scale = parameters(type(self).__name__, loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(_Symmetric):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation.
        validate_args: whether to look at values; see `Distribution`.
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + drawn * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (self._check_sample(value) - self.loc) / self.scale
        return distance.square() * -0.5 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        distance = (self._check_sample(value) - self.loc) / self.scale
        return (erf(distance * math.sqrt(0.5)) + 1) * 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(value * 2 - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 * (1 + math.log(2 * math.pi))


class Uniform(Distribution):
    """The same density everywhere between two numbers.

    Args:
        low: the lower end, included.
        high: the upper end, excluded.
        validate_args: whether to look at values; see `Distribution`.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"low": constraints.real, "high": constraints.real}
    has_rsample: ClassVar[bool] = True

    def __init__(self, low: Tensor | Number, high: Tensor | Number, validate_args: bool | None = None) -> None:
        self.low, self.high = parameters("Uniform", low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validates and not (self.low < self.high).all().item():
            raise ValueError("Uniform: low must be below high everywhere")

    @property
    def support(self) -> Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return full_like(self.high, math.nan)

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        inside = (self.low <= value) & (value < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._check_sample(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(Distribution):
    """Waiting times of events that come at a rate.

    Args:
        rate: how many come in a unit of time.
        validate_args: whether to look at values; see `Distribution`.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.positive}
    has_rsample: ClassVar[bool] = True
    support = constraints.nonnegative

    def __init__(self, rate: Tensor | Number, validate_args: bool | None = None) -> None:
        (self.rate,) = parameters("Exponential", rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = rand(self._extended_shape(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return -(-drawn).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self._check_sample(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * self._check_sample(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Laplace(_Symmetric):
    """Exponential on both sides of its mean.

    Args:
        loc: the mean.
        scale: the mean distance from it.
        validate_args: whether to look at values; see `Distribution`.
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale * math.sqrt(2)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * 2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        dtype = self.loc.dtype
        drawn = rand(self._extended_shape(sample_shape), dtype=dtype, device=self.loc.device) * 2 - 1
        # Where -1 is drawn the sample would be infinite.
        drawn = drawn.clamp(min=finfo(dtype).eps - 1)
        return self.loc - self.scale * drawn.sign() * (-drawn.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(self.scale * 2).log() - (self._check_sample(value) - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        distance = self._check_sample(value) - self.loc
        return 0.5 - distance.sign() * (-distance.abs() / self.scale).expm1() * 0.5

    def icdf(self, value: Tensor) -> Tensor:
        middle = value - 0.5
        return self.loc - self.scale * middle.sign() * (middle.abs() * -2).log1p()

    def entropy(self) -> Tensor:
        return (self.scale * 2).log() + 1
