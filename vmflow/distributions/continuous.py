"""Distributions of real numbers and vectors; all have `rsample` except `Gamma`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from vmflow.autograd.grad_mode import no_grad
from vmflow.dtypes import finfo
from vmflow.ops.creation.creation import eye, full_like, zeros_like
from vmflow.ops.elementwise.error_function import erf, erfinv
from vmflow.ops.elementwise.gamma_function import digamma, lgamma
from vmflow.ops.elementwise.transcendental import xlogy
from vmflow.ops.linalg.decompositions import cholesky, solve_triangular
from vmflow.ops.linalg.linear_algebra import matmul
from vmflow.ops.shape.joining import flip
from vmflow.ops.table import broadcast_shapes
from vmflow.random import rand, randn, standard_gamma
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint
from .distribution import Distribution, Number, one_of, parameters


class Symmetric(Distribution):
    """The base of distributions of real numbers whose mode is `loc` and whose width is in proportion to `scale`."""

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


class Normal(Symmetric):
    """The normal distribution.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        loc: the mean.
        scale: the standard deviation.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> normal = flow.distributions.Normal(flow.tensor([0.0, 1.0]), 2.0)
        >>> normal.mean, normal.variance
        (tensor([0., 1.]), tensor([4., 4.]))
        >>> normal.cdf(flow.tensor([0.0, 1.0]))
        tensor([0.5000, 0.5000])
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._drawn(randn, sample_shape, self.loc)
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
    """The uniform distribution: a constant density between two numbers.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        low: the lower end.
        high: the upper end, at which the density is 0.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, if `low` is not below `high`.

    Example:
        >>> flow.distributions.Uniform(1.0, 5.0).mean
        tensor(3.)
        >>> flow.distributions.Uniform(1.0, 5.0).cdf(flow.tensor([0.0, 2.0, 9.0]))
        tensor([0.0000, 0.2500, 1.0000])
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
        drawn = self._drawn(rand, sample_shape, self.low)
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
    """The exponential distribution: the time between events that occur at a constant rate.

    The parameter's shape is the batch shape.

    Args:
        rate: events per unit of time.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.Exponential(4.0).mean, flow.distributions.Exponential(4.0).variance
        (tensor(0.2500), tensor(0.0625))
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
        drawn = self._drawn(rand, sample_shape, self.rate)
        return -(-drawn).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self._check_sample(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * self._check_sample(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Gamma(Distribution):
    """The gamma distribution: the time until `concentration` events have occurred; samples have no gradients.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        concentration: the number of events; may be a fraction.
        rate: events per unit of time.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> gamma = flow.distributions.Gamma(flow.tensor([1.0, 4.0]), 2.0)
        >>> gamma.mean, gamma.variance
        (tensor([0.5000, 2.0000]), tensor([0.2500, 1.0000]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support = constraints.nonnegative

    def __init__(
        self, concentration: Tensor | Number, rate: Tensor | Number, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = parameters("Gamma", concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return standard_gamma(self.concentration.expand(shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        shape, rate = self.concentration, self.rate
        return xlogy(shape, rate) + xlogy(shape - 1, value) - rate * value - lgamma(shape)

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape - self.rate.log() + lgamma(shape) + (1 - shape) * digamma(shape)


class Laplace(Symmetric):
    """The Laplace distribution: a density that falls exponentially on both sides of its mean.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        loc: the mean.
        scale: the mean distance of samples from `loc`.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: if the shapes do not broadcast; with `validate_args`, for values out of range.

    Example:
        >>> laplace = flow.distributions.Laplace(1.0, 2.0)
        >>> laplace.mean, laplace.variance, laplace.cdf(flow.tensor(1.0))
        (tensor(1.), tensor(8.), tensor(0.5000))
    """

    @property
    def stddev(self) -> Tensor:
        return self.scale * math.sqrt(2)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * 2

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        dtype = self.loc.dtype
        drawn = self._drawn(rand, sample_shape, self.loc) * 2 - 1
        # A drawn -1 would make the sample infinite.
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


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower triangular L with ``L @ L.mT`` the inverse of `precision`."""
    turned = flip(cholesky(flip(precision, (-2, -1))), (-2, -1)).mT
    identity = beside(eye(precision.shape[-1], dtype=precision.dtype, device=precision.device), precision)
    return solve_triangular(turned, identity, upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors.

    Args:
        loc: (..., n), the mean.
        covariance_matrix: (..., n, n), positive definite.
        precision_matrix: (..., n, n), the inverse of the covariance, instead of `covariance_matrix`.
        scale_tril: (..., n, n), instead of both, the lower triangular L with ``L @ L.mT`` the covariance.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if `loc` or the matrix is no tensor.
        ValueError: unless exactly one of the three matrices is given, of a shape that fits `loc`; with
            `validate_args`, for values out of range.
        LinAlgError: when a sample, for instance, is read, if a covariance or precision matrix is not positive definite.

    Example:
        >>> plane = flow.distributions.MultivariateNormal(flow.zeros(2), flow.eye(2) * 4)
        >>> plane.scale_tril, plane.variance
        (tensor([[2., 0.],
                [0., 2.]]), tensor([4., 4.]))
        >>> plane.sample((3,)).shape
        vmflow.Size([3, 2])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    has_rsample: ClassVar[bool] = True
    support = constraints.real_vector

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._name, matrix = one_of(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix,
            precision_matrix=precision_matrix,
            scale_tril=scale_tril,
        )
        if not isinstance(loc, Tensor) or not isinstance(matrix, Tensor):
            raise TypeError(f"MultivariateNormal: loc and {self._name} must be tensors")
        if loc.ndim < 1 or matrix.ndim < 2 or tuple(matrix.shape[-2:]) != (loc.shape[-1], loc.shape[-1]):
            raise ValueError(
                f"MultivariateNormal: expected loc of (..., n) and {self._name} of (..., n, n), got "
                f"{list(loc.shape)} and {list(matrix.shape)}"
            )
        batch = broadcast_shapes("MultivariateNormal", tuple(loc.shape[:-1]), tuple(matrix.shape[:-2]))
        size = loc.shape[-1]
        self.loc = loc.expand((*batch, size))
        self._matrix = matrix.expand((*batch, size, size))
        super().__init__(batch, (size,), validate_args)
        # Factorised after `validate_args` has checked the matrix: the check's error message is clearer than Cholesky's.
        if self._name == "scale_tril":
            self._factor = self._matrix
        else:
            self._factor = (
                cholesky(self._matrix) if self._name == "covariance_matrix" else _factor_of_inverse(self._matrix)
            )

    def _given(self) -> tuple[str, ...]:
        return "loc", self._name

    @property
    def scale_tril(self) -> Tensor:
        """The lower triangular L with ``L @ L.mT`` the covariance; the one given, if `scale_tril` was given."""
        return self._matrix if self._name == "scale_tril" else self._factor

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        return self._matrix if self._name == "covariance_matrix" else matmul(self._factor, self._factor.mT)

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        if self._name == "precision_matrix":
            return self._matrix
        identity = beside(eye(self.loc.shape[-1], dtype=self.loc.dtype, device=self.loc.device), self.loc)
        inverse = solve_triangular(self._factor, identity, upper=False)
        return matmul(inverse.mT, inverse)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._factor.square().sum(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._drawn(randn, sample_shape, self.loc)
        return self.loc + matmul(self._factor, drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = squared_distance(self._factor, self._check_sample(value) - self.loc)
        return (distance + self.loc.shape[-1] * math.log(2 * math.pi)) * -0.5 - half_logdet(self._factor)

    def entropy(self) -> Tensor:
        return half_logdet(self._factor) + 0.5 * self.loc.shape[-1] * (1 + math.log(2 * math.pi))


def squared_distance(factor: Tensor, difference: Tensor) -> Tensor:
    """Squared Mahalanobis lengths: the squared norms of ``inverse(factor) @ difference``.

    `factor`, (..., n, n), is the lower Cholesky factor of the covariance; `difference` is (..., n).
    """
    return solve_triangular(factor, difference.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def half_logdet(factor: Tensor) -> Tensor:
    """Half the log-determinant of ``factor @ factor.mT``, for a lower Cholesky `factor` of (..., n, n)."""
    return factor.diagonal(0, -2, -1).log().sum(-1)
