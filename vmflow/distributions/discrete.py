"""Distributions of integers: `Bernoulli`, `Categorical` and `Poisson`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from vmflow import dtypes
from vmflow.dtypes import finfo
from vmflow.ops.creation.creation import arange
from vmflow.ops.elementwise.activation import sigmoid, softmax, softplus
from vmflow.ops.elementwise.gamma_function import lgamma
from vmflow.ops.elementwise.selection import where
from vmflow.ops.elementwise.transcendental import xlogy
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.loss.loss import binary_cross_entropy_with_logits
from vmflow.ops.reduction.composed_reduction import logsumexp
from vmflow.ops.table import broadcast_shapes
from vmflow.random import bernoulli, multinomial, poisson
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint
from .distribution import Distribution, Number, one_of, parameters


def inside(probs: Tensor) -> Tensor:
    """Clamp probabilities to [eps, 1 - eps] of their dtype, so that their logits are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class ByProbability(Distribution):
    """The base of distributions given by the probability of a success, `probs`, or its log-odds, `logits`.

    Attributes:
        _name: "probs" or "logits": the parameter that the caller gave.
        _parameter: the value of that parameter.
    """

    _others: ClassVar[tuple[str, ...]] = ()
    _name: str
    _parameter: Tensor

    def __init__(
        self,
        probs: Tensor | Number | None = None,
        logits: Tensor | Number | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_parameters(probs, logits)
        super().__init__(self._parameter.shape, validate_args=validate_args)

    def _set_parameters(
        self, probs: Tensor | Number | None, logits: Tensor | Number | None, *others: Tensor | Number
    ) -> tuple[Tensor, ...]:
        """Store `probs` or `logits`, and return the tensors of `others`; all are broadcast to one shape."""
        name = type(self).__name__
        self._name, parameter = one_of(name, probs=probs, logits=logits)
        self._parameter, *expanded = parameters(name, parameter, *others)
        return tuple(expanded)

    def _given(self) -> tuple[str, ...]:
        return (*self._others, self._name)

    @property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return self._parameter if self._name == "probs" else sigmoid(self._parameter)

    @property
    def logits(self) -> Tensor:
        """The logarithm of the odds of a success; given `probs` are first clamped by `inside`."""
        if self._name == "logits":
            return self._parameter
        within = inside(self._parameter)
        return within.log() - (-within).log1p()

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return self._parameter.shape

    def chance(self, success: bool) -> Tensor:
        """The probability of a success, or of a failure, computed from the parameter that was given."""
        parameter = self._parameter
        if self._name == "logits":
            return sigmoid(parameter if success else -parameter)
        return parameter if success else 1 - parameter

    def log_chance(self, success: bool, unused: Tensor) -> Tensor:
        """The logarithm of `chance`, computed from the parameter that was given.

        Where `unused` is true, the result is an arbitrary finite number, and the parameter gets the gradient 0.
        """
        parameter = where(unused, 0.5, self._parameter)
        if self._name == "logits":
            return -softplus(-parameter if success else parameter)
        return parameter.log() if success else (-parameter).log1p()


class Bernoulli(ByProbability):
    """The Bernoulli distribution: 1 with the probability `probs`, else 0.

    The parameter's shape is the batch shape.

    Args:
        probs: the probability of 1.
        logits: instead of `probs`, the logarithm of the odds of 1.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given; with `validate_args`, for values out of range.

    Example:
        >>> coin = flow.distributions.Bernoulli(flow.tensor([0.25, 0.5]))
        >>> coin.mean, coin.variance
        (tensor([0.2500, 0.5000]), tensor([0.1875, 0.2500]))
        >>> coin.log_prob(flow.tensor([1.0, 0.0])).exp()
        tensor([0.2500, 0.5000])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    has_enumerate_support: ClassVar[bool] = True
    support = constraints.boolean

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        probs = self.probs
        return where(probs == 0.5, math.nan, (probs >= 0.5).to(probs.dtype))

    @property
    def variance(self) -> Tensor:
        probs = self.probs
        return probs * (1 - probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return bernoulli(self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        return -cross_entropy(self.logits, self._check_sample(value))

    def entropy(self) -> Tensor:
        return cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        numbers = arange(2, dtype=self._parameter.dtype, device=self._parameter.device)
        return self._enumerated(beside(numbers, self._parameter), expand)


def cross_entropy(logits: Tensor, value: Tensor) -> Tensor:
    shape = broadcast_shapes("Bernoulli", tuple(logits.shape), tuple(value.shape))
    expanded = value.to(logits.dtype).expand(shape)
    return binary_cross_entropy_with_logits(logits.expand(shape), expanded, reduction="none")


class Categorical(Distribution):
    """The distribution of a class's index, given the probabilities of the classes.

    Args:
        probs: of shape (..., classes), in proportion to the probabilities.
        logits: instead of `probs`, their logarithms.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if the parameter is no tensor.
        ValueError: unless exactly one of `probs` and `logits` is given, with at least one class; with `validate_args`,
            for values out of range.

    Example:
        >>> weights = flow.tensor([1.0, 1.0, 2.0])
        >>> flow.distributions.Categorical(weights).probs
        tensor([0.2500, 0.2500, 0.5000])
        >>> flow.distributions.Categorical(weights).log_prob(flow.tensor(2)).exp()
        tensor(0.5000)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    has_enumerate_support: ClassVar[bool] = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._name, given = one_of("Categorical", probs=probs, logits=logits)
        if not isinstance(given, Tensor):
            raise TypeError(f"Categorical: {self._name} must be a tensor, not {type(given).__name__}")
        if given.ndim < 1 or not given.shape[-1]:
            raise ValueError(f"Categorical: {self._name} need at least one class, got shape {list(given.shape)}")
        by_probs = self._name == "probs"
        self._parameter = given / given.sum(-1, keepdim=True) if by_probs else given - logsumexp(given, -1, True)
        self._num_events: int = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def _given(self) -> tuple[str, ...]:
        return (self._name,)

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return self._parameter.shape

    @property
    def probs(self) -> Tensor:
        """The probability of each class."""
        return self._parameter if self._name == "probs" else softmax(self._parameter, -1)

    @property
    def logits(self) -> Tensor:
        """The logarithm of the probability of each class; given `probs` are first clamped by `inside`."""
        return inside(self._parameter).log() if self._name == "probs" else self._parameter

    @property
    def support(self) -> Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return self._nan()

    @property
    def mode(self) -> Tensor:
        return self._parameter.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self._nan()

    def _nan(self) -> Tensor:
        return self._parameter.new_full(tuple(self._batch_shape), math.nan)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        if 0 in shape:
            return self._parameter.new_zeros(shape, dtype=dtypes.int64)
        rows = self.probs.detach().reshape(-1, self._num_events)
        return multinomial(rows, math.prod(sample_shape), True).t().reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        indices = self._check_sample(value).long()
        shape = broadcast_shapes("Categorical", tuple(indices.shape), tuple(self._batch_shape))
        chosen = gather(self.logits.expand((*shape, self._num_events)), -1, indices.expand(shape).unsqueeze(-1))
        return chosen.squeeze(-1)

    def entropy(self) -> Tensor:
        finite = self.logits.clamp(min=finfo(self._parameter.dtype).min)
        return -(finite * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        numbers = arange(self._num_events, device=self._parameter.device)
        return self._enumerated(beside(numbers, self._parameter), expand)


class Poisson(Distribution):
    """The Poisson distribution: the number of events in a unit of time; samples have no gradients.

    The parameter's shape is the batch shape.

    Args:
        rate: events per unit of time.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: with `validate_args`, for values out of range.

    Example:
        >>> calls = flow.distributions.Poisson(4.0)
        >>> calls.mean, calls.variance, calls.sample((2, 3)).shape
        (tensor(4.), tensor(4.), vmflow.Size([2, 3]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Tensor | Number, validate_args: bool | None = None) -> None:
        (self.rate,) = parameters("Poisson", rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return poisson(self.rate.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)
