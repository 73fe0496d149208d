"""Distributions whose samples are computed from gamma samples, and therefore have no gradients: `Beta` and others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from vmflow.autograd.grad_mode import no_grad
from vmflow.dtypes import finfo
from vmflow.ops.elementwise.gamma_function import digamma, lgamma
from vmflow.ops.elementwise.selection import where
from vmflow.ops.elementwise.transcendental import xlogy
from vmflow.ops.indexing.gathering import one_hot
from vmflow.ops.shape.joining import stack
from vmflow.random import randn, standard_gamma
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint
from .continuous import Gamma
from .distribution import Distribution, Number, parameters


class Chi2(Gamma):
    """The chi-squared distribution: the sum of the squares of `df` standard normal variables.

    Samples have no gradients.

    The parameter's shape is the batch shape.

    Args:
        df: the degrees of freedom; may be a fraction.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.Chi2(flow.tensor([2.0, 6.0])).mean
        tensor([2., 6.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df": constraints.positive}

    def __init__(self, df: Tensor | Number, validate_args: bool | None = None) -> None:
        (df,) = parameters("Chi2", df)
        super().__init__(df * 0.5, 0.5, validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class StudentT(Distribution):
    """Student's t: a standard normal variable divided by the root of the mean of `df` squares of such variables.

    Samples have no gradients.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        df: the degrees of freedom.
        loc: the median.
        scale: the factor by which that quotient is multiplied before `loc` is added.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> student = flow.distributions.StudentT(flow.tensor([1.0, 2.0, 4.0]))
        >>> student.mean, student.variance
        (tensor([nan, 0., 0.]), tensor([nan, inf, 2.]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real

    def __init__(
        self,
        df: Tensor | Number,
        loc: Tensor | Number = 0.0,
        scale: Tensor | Number = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = parameters("StudentT", df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.df > 2
        # Where the variance is not finite, 3 replaces df, so that the gradient of the unused branch is not NaN.
        df = where(finite, self.df, 3.0)
        return where(finite, self.scale.square() * df / (df - 2), where(self.df > 1, math.inf, math.nan))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            drawn = beside(randn(shape, dtype=self.df.dtype, device=self.df.device), self.df)
            squares = standard_gamma((self.df * 0.5).expand(shape)) * 2
            return self.loc + self.scale * drawn * (squares / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (self._check_sample(value) - self.loc) / self.scale
        half = self.df * 0.5
        normalizer = self.scale.log() + (self.df * math.pi).log() * 0.5 + lgamma(half) - lgamma(half + 0.5)
        return -(half + 0.5) * (distance.square() / self.df).log1p() - normalizer

    def entropy(self) -> Tensor:
        half = self.df * 0.5
        log_beta = lgamma(half) + math.lgamma(0.5) - lgamma(half + 0.5)
        return self.scale.log() + (half + 0.5) * (digamma(half + 0.5) - digamma(half)) + self.df.log() * 0.5 + log_beta


class InverseGamma(Distribution):
    """The inverse gamma distribution: the reciprocal of a gamma variable; samples have no gradients.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        concentration, rate: the parameters of the gamma variable.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.InverseGamma(flow.tensor([1.0, 3.0]), 4.0).mean
        tensor([inf, 2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.positive

    def __init__(
        self, concentration: Tensor | Number, rate: Tensor | Number, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = parameters("InverseGamma", concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        # Where the mean is infinite, 2 replaces the concentration, so that the unused branch's gradient is not NaN.
        finite = self.concentration > 1
        return where(finite, self.rate / (where(finite, self.concentration, 2.0) - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        finite = self.concentration > 2
        shape = where(finite, self.concentration, 3.0)
        return where(finite, self.rate.square() / ((shape - 1).square() * (shape - 2)), math.inf)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
            return self.rate / drawn.clamp(min=finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        shape = self.concentration
        return shape * self.rate.log() - (shape + 1) * value.log() - self.rate / value - lgamma(shape)

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape + self.rate.log() + lgamma(shape) - (shape + 1) * digamma(shape)


class FisherSnedecor(Distribution):
    """The F-distribution: the mean of `df1` squares of standard normal variables, divided by that of `df2` squares.

    Samples have no gradients.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        df1, df2: the degrees of freedom of the numerator and the denominator.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.FisherSnedecor(2.0, flow.tensor([2.0, 4.0])).mean
        tensor([nan, 2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive

    def __init__(self, df1: Tensor | Number, df2: Tensor | Number, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = parameters("FisherSnedecor", df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        finite = self.df2 > 2
        df2 = where(finite, self.df2, 3.0)
        return where(finite, df2 / (df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        finite = self.df2 > 4
        df1, df2 = self.df1, where(finite, self.df2, 5.0)
        found = df2.square() * (df1 + df2 - 2) * 2 / (df1 * (df2 - 2).square() * (df2 - 4))
        return where(finite, found, math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            one = standard_gamma((self.df1 * 0.5).expand(shape)) / self.df1
            other = standard_gamma((self.df2 * 0.5).expand(shape)) / self.df2
            return one / other.clamp(min=finfo(other.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        one, other, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        normalizer = lgamma(one) + lgamma(other) - lgamma(one + other)
        return one * ratio.log() + (one - 1) * value.log() - (one + other) * (ratio * value).log1p() - normalizer


class Beta(Distribution):
    """The beta distribution: ``x / (x + y)`` for independent gamma variables x and y of the same rate.

    Samples have no gradients.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        concentration1: the concentration of x.
        concentration0: the concentration of y.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> beta = flow.distributions.Beta(1.0, flow.tensor([1.0, 3.0]))
        >>> beta.mean
        tensor([0.5000, 0.2500])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(
        self, concentration1: Tensor | Number, concentration0: Tensor | Number, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = parameters("Beta", concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def shares(self) -> Dirichlet:
        """The Dirichlet distribution of (x, 1 - x), where x is a sample of this beta distribution."""
        return Dirichlet(stack((self.concentration1, self.concentration0), -1))

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self.shares().mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.shares().sample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        one, other = self.concentration1, self.concentration0
        log_beta = lgamma(one) + lgamma(other) - lgamma(one + other)
        return xlogy(one - 1, value) + xlogy(other - 1, 1 - value) - log_beta

    def entropy(self) -> Tensor:
        return self.shares().entropy()


class Dirichlet(Distribution):
    """The Dirichlet distribution of vectors of sum 1; samples have no gradients.

    A sample consists of independent gamma variables of the same rate, divided by their sum.

    Args:
        concentration: (..., n), the concentration of each gamma variable.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if `concentration` is no tensor.
        ValueError: if `concentration` has no dimension; with `validate_args`, for values out of range.

    Example:
        >>> shares = flow.distributions.Dirichlet(flow.tensor([1.0, 3.0]))
        >>> shares.mean, shares.batch_shape, shares.event_shape
        (tensor([0.2500, 0.7500]), vmflow.Size([]), vmflow.Size([2]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"concentration": constraints.positive_vector}
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if not isinstance(concentration, Tensor):
            raise TypeError(f"Dirichlet: concentration must be a tensor, not {type(concentration).__name__}")
        if concentration.ndim < 1:
            raise ValueError("Dirichlet: concentration must have at least one dimension, that of the shares")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        shares = above / above.sum(-1, keepdim=True)
        # If all concentrations are below 1, every one-hot vector is a mode: return the first, as `argmax` finds it.
        corner = one_hot(shares.nan_to_num().argmax(-1), self.concentration.shape[-1]).to(shares.dtype)
        return where((self.concentration < 1).all(-1, keepdim=True), corner, shares)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            drawn = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
            # With small concentrations all gamma samples may be 0: keep their sum, the divisor, above 0.
            drawn = drawn.clamp(min=finfo(drawn.dtype).tiny)
            return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        shape = self.concentration
        return xlogy(shape - 1, value).sum(-1) + lgamma(shape.sum(-1)) - lgamma(shape).sum(-1)

    def entropy(self) -> Tensor:
        shape = self.concentration
        total = shape.sum(-1)
        by_total = lgamma(total) + (shape.shape[-1] - total) * digamma(total)
        return lgamma(shape).sum(-1) - by_total - ((shape - 1) * digamma(shape)).sum(-1)
