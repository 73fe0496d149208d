"""`Cauchy`, `Gumbel`, `HalfNormal`, `HalfCauchy`, `LogNormal`, `Pareto` and `Weibull`; all have `rsample`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

from vmflow.dtypes import finfo
from vmflow.ops.creation.creation import full_like, zeros_like
from vmflow.ops.elementwise.gamma_function import lgamma
from vmflow.ops.elementwise.selection import where
from vmflow.random import rand
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint
from .continuous import Normal, Symmetric
from .distribution import Distribution, Number, parameters

EULER: Final = 0.5772156649015329


def _open_unit(distribution: Distribution, sample_shape: Sequence[int], like: Tensor) -> Tensor:
    """Draw uniform numbers, never 0 or 1, of ``sample_shape + batch_shape + event_shape`` and the dtype of `like`."""
    shape = (*sample_shape, *distribution.batch_shape, *distribution.event_shape)
    limits = finfo(like.dtype)
    return beside(rand(shape, dtype=like.dtype, device=like.device), like).clamp(limits.tiny, 1 - limits.eps)


class Cauchy(Symmetric):
    """The Cauchy distribution: the ratio of two normal variables; it has no mean.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        loc: the median.
        scale: half the distance between the quartiles.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> cauchy = flow.distributions.Cauchy(1.0, 2.0)
        >>> cauchy.mean, cauchy.cdf(flow.tensor([1.0, 3.0]))
        (tensor(nan), tensor([0.5000, 0.7500]))
    """

    @property
    def mean(self) -> Tensor:
        return full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return full_like(self.loc, math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(_open_unit(self, sample_shape, self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (self._check_sample(value) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - distance.square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._check_sample(value) - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return ((value - 0.5) * math.pi).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(4 * math.pi)


class Gumbel(Symmetric):
    """The Gumbel distribution, the limit of maxima of many variables: ``loc - scale * log(-log(u))`` with uniform u.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        loc: the mode.
        scale: the factor of the width.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> gumbel = flow.distributions.Gumbel(flow.tensor([0.0, 1.0]), 2.0)
        >>> gumbel.mode, gumbel.batch_shape
        (tensor([0., 1.]), vmflow.Size([2]))
    """

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return self.scale * (math.pi / math.sqrt(6))

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(_open_unit(self, sample_shape, self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (self.loc - self._check_sample(value)) / self.scale
        return distance - distance.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - self._check_sample(value)) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class _Half(Distribution):
    """The base of distributions of ``abs(x)``, where x is a variable of the class `_whole` with `loc` 0."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive}
    has_rsample: ClassVar[bool] = True
    support = constraints.nonnegative
    _whole: ClassVar[type[Symmetric]]

    def __init__(self, scale: Tensor | Number, validate_args: bool | None = None) -> None:
        (self.scale,) = parameters(type(self).__name__, scale)
        self._base = self._whole(zeros_like(self.scale), self.scale, validate_args=False)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._base.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        return where(value >= 0, self._base.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return self._base.cdf(self._check_sample(value)) * 2 - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self._base.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self._base.entropy() - math.log(2)


class HalfNormal(_Half):
    """The absolute value of a normal variable with the mean 0.

    The parameter's shape is the batch shape.

    Args:
        scale: the standard deviation of the normal variable.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: with `validate_args`, for values out of range.

    Example:
        >>> half = flow.distributions.HalfNormal(1.0)
        >>> half.log_prob(flow.tensor(-1.0)), half.cdf(flow.tensor(0.0))
        (tensor(-inf), tensor(0.))
    """

    _whole = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable with the median 0.

    The parameter's shape is the batch shape.

    Args:
        scale: the scale of the Cauchy variable; it is also the median of the absolute value.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: with `validate_args`, for values out of range.

    Example:
        >>> half = flow.distributions.HalfCauchy(flow.tensor([1.0, 2.0]))
        >>> half.mean, half.cdf(flow.tensor([1.0, 2.0]))
        (tensor([inf, inf]), tensor([0.5000, 0.5000]))
    """

    _whole = Cauchy

    @property
    def mean(self) -> Tensor:
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return full_like(self.scale, math.inf)


class LogNormal(Distribution):
    """The log-normal distribution: the exponential of a normal variable.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        loc: the mean of the normal variable.
        scale: the standard deviation of the normal variable.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> prices = flow.distributions.LogNormal(0.0, flow.tensor([1.0, 2.0]))
        >>> prices.cdf(flow.tensor(1.0))
        tensor([0.5000, 0.5000])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"loc": constraints.real, "scale": constraints.positive}
    has_rsample: ClassVar[bool] = True
    support = constraints.positive

    def __init__(self, loc: Tensor | Number, scale: Tensor | Number, validate_args: bool | None = None) -> None:
        self.base_dist = Normal(loc, scale, validate_args=False)
        super().__init__(self.base_dist.batch_shape, validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm of the samples."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm of the samples."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (self.loc * 2 + square).exp()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        logarithm = self._check_sample(value).log()
        return self.base_dist.log_prob(logarithm) - logarithm

    def cdf(self, value: Tensor) -> Tensor:
        return self.base_dist.cdf(self._check_sample(value).log())

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf(value).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class Pareto(Distribution):
    """The Pareto distribution: numbers from `scale` up; the probability to exceed x is ``(scale / x) ** alpha``.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        scale: the smallest possible sample.
        alpha: the exponent.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> incomes = flow.distributions.Pareto(1.0, flow.tensor([1.0, 2.0]))
        >>> incomes.mean, incomes.cdf(flow.tensor(2.0))
        (tensor([inf, 2.]), tensor([0.5000, 0.7500]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"scale": constraints.positive, "alpha": constraints.positive}
    has_rsample: ClassVar[bool] = True

    def __init__(self, scale: Tensor | Number, alpha: Tensor | Number, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = parameters("Pareto", scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        alpha = self.alpha.clamp(min=1)
        return alpha * self.scale / (alpha - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        alpha = self.alpha.clamp(min=2)
        return self.scale.square() * alpha / ((alpha - 1).square() * (alpha - 2))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.scale * (-_open_unit(self, sample_shape, self.scale).log() / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (self.scale / self._check_sample(value)) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Weibull(Distribution):
    """The Weibull distribution: the time until a failure, if the rate of failures is a power of the time.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        scale: the time by which a failure has occurred with probability ``1 - 1 / e``.
        concentration: one more than the exponent of that power.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.Weibull(2.0, 1.0).cdf(flow.tensor(2.0))
        tensor(0.6321)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "scale": constraints.positive,
        "concentration": constraints.positive,
    }
    has_rsample: ClassVar[bool] = True
    support = constraints.positive

    def __init__(
        self, scale: Tensor | Number, concentration: Tensor | Number, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = parameters("Weibull", scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * lgamma(1 + self.concentration.reciprocal()).exp()

    @property
    def mode(self) -> Tensor:
        shape = self.concentration
        return self.scale * ((shape - 1) / shape).clamp(min=0) ** shape.reciprocal()

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return self.scale.square() * (lgamma(1 + inverse * 2).exp() - (lgamma(1 + inverse) * 2).exp())

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(_open_unit(self, sample_shape, self.scale))

    def log_prob(self, value: Tensor) -> Tensor:
        relative = self._check_sample(value) / self.scale
        shape = self.concentration
        return (shape / self.scale).log() + (shape - 1) * relative.log() - relative**shape

    def cdf(self, value: Tensor) -> Tensor:
        return -(-((self._check_sample(value) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return EULER * (1 - inverse) + (self.scale * inverse).log() + 1
