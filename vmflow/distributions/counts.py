"""Distributions of counts and of one-hot vectors, and relaxations of one-hot vectors and of `Bernoulli`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

from vmflow.arguments import whole_number
from vmflow.autograd.grad_mode import no_grad
from vmflow.dtypes import finfo
from vmflow.ops.creation.creation import arange, eye, zeros_like
from vmflow.ops.elementwise.activation import sigmoid, softmax, softplus
from vmflow.ops.elementwise.gamma_function import lgamma
from vmflow.ops.elementwise.selection import where
from vmflow.ops.indexing.gathering import one_hot
from vmflow.ops.reduction.composed_reduction import logsumexp
from vmflow.random import poisson, rand, standard_gamma
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint
from .discrete import ByProbability, Categorical, cross_entropy
from .distribution import Distribution, Number, one_of, parameters

# How many uniform numbers `Binomial.sample` draws at a time, at most, unless its result has more elements.
_CHUNK: Final = 1 << 20


class Geometric(ByProbability):
    """The geometric distribution: the number of failures before the first success.

    The parameter's shape is the batch shape.

    Args:
        probs: the probability of a success.
        logits: instead of `probs`, the logarithm of the odds of a success.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given; with `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.Geometric(0.25).mean
        tensor(3.)
        >>> flow.distributions.Geometric(0.5).log_prob(flow.tensor([0.0, 1.0, 2.0])).exp()
        tensor([0.5000, 0.2500, 0.1250])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    @property
    def mean(self) -> Tensor:
        return self.probs.reciprocal() - 1

    @property
    def mode(self) -> Tensor:
        return zeros_like(self._parameter)

    @property
    def variance(self) -> Tensor:
        inverse = self.probs.reciprocal()
        return (inverse - 1) * inverse

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            probs = self.probs
            drawn = self._drawn(rand, sample_shape, probs)
            return (drawn.clamp(min=finfo(probs.dtype).tiny).log() / (-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        probs = self.probs
        # If success is certain (probs == 1), the log-probability of 0 failures is 0, not the NaN of 0 * -inf.
        failing = where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-failing).log1p() + probs.log()

    def entropy(self) -> Tensor:
        return cross_entropy(self.logits, self.probs) / self.probs


class Binomial(ByProbability):
    """The binomial distribution: the number of successes in `total_count` attempts.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        total_count: the number of attempts.  `sample`, `entropy`, `enumerate_support` and `kl_divergence` block until
            it is computed; `entropy` and `enumerate_support` raise NotImplementedError if it differs within the batch.
        probs: the probability of a success.
        logits: instead of `probs`, the logarithm of the odds of a success.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given, for shapes that do not broadcast, and, with
            `validate_args`, for values out of range.

    Example:
        >>> two = flow.distributions.Binomial(2, flow.tensor(0.5))
        >>> two.mean, two.variance
        (tensor(1.), tensor(0.5000))
        >>> two.enumerate_support()
        tensor([0., 1., 2.])
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support: ClassVar[bool] = True
    _others: ClassVar[tuple[str, ...]] = ("total_count",)

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | Number | None = None,
        logits: Tensor | Number | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameters(probs, logits, total_count)
        self.total_count = count.to(self._parameter.dtype)
        Distribution.__init__(self, self._parameter.shape, validate_args=validate_args)

    @property
    def support(self) -> Constraint:
        return constraints.nonnegative_integers_up_to(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.probs)

    def _attempts(self) -> int:
        return int(self.total_count.detach().max().item()) if self.total_count.numel() else 0

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        attempts = self._attempts()
        with no_grad():
            probs, count = self.probs.expand(shape), self.total_count.expand(shape)
            successes = probs.new_zeros(shape)
            step = max(_CHUNK // max(successes.numel(), 1), 1)
            for first in range(0, attempts, step):
                numbers = arange(first, min(first + step, attempts), dtype=probs.dtype, device=probs.device)
                drawn = beside(rand((numbers.shape[0], *shape), dtype=probs.dtype, device=probs.device), probs) < probs
                counted = beside(numbers, probs).reshape(-1, *[1] * len(shape)) < count
                successes = successes + (drawn & counted).sum(0)
            return successes

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        count, logits = self.total_count, self.logits
        chosen = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        return chosen + value * logits - count * softplus(logits)

    def entropy(self) -> Tensor:
        self._check_one_count("entropy")
        each = self.log_prob(self.enumerate_support(False))
        return -(each.exp() * each).sum(0)

    def _check_one_count(self, method: str) -> int:
        attempts = self._attempts()
        if not (self.total_count == attempts).all().item():
            raise NotImplementedError(f"Binomial: {method} needs the same total_count everywhere")
        return attempts

    def enumerate_support(self, expand: bool = True) -> Tensor:
        attempts = self._check_one_count("enumerate_support")
        numbers = arange(attempts + 1, dtype=self._parameter.dtype, device=self._parameter.device)
        return self._enumerated(beside(numbers, self._parameter), expand)


class NegativeBinomial(ByProbability):
    """The negative binomial distribution: the number of successes before `total_count` failures.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        total_count: the number of failures that end the attempts; may be a fraction.
        probs: the probability of a success, below 1.
        logits: instead of `probs`, the logarithm of the odds of a success.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given, for shapes that do not broadcast, and, with
            `validate_args`, for values out of range.

    Example:
        >>> flow.distributions.NegativeBinomial(2, logits=0.0).mean
        tensor(2.)
        >>> flow.distributions.NegativeBinomial(2, logits=0.0).variance
        tensor(4.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_unit_interval,
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _others: ClassVar[tuple[str, ...]] = ("total_count",)

    def __init__(
        self,
        total_count: Tensor | Number,
        probs: Tensor | Number | None = None,
        logits: Tensor | Number | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameters(probs, logits, total_count)
        self.total_count = count.to(self._parameter.dtype)
        Distribution.__init__(self, self._parameter.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / sigmoid(-self.logits)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            # Gamma samples need a positive total_count: a tiny number replaces 0, for which the rate is set to 0 below.
            count = self.total_count.clamp(min=finfo(self.total_count.dtype).tiny)
            rate = standard_gamma(count.expand(shape)) * self.logits.exp()
            return poisson(where(self.total_count > 0, rate, 0.0))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        count, logits = self.total_count, self.logits
        by_odds = -count * softplus(logits) - value * softplus(-logits)
        chosen = lgamma(count + value) - lgamma(value + 1) - lgamma(count)
        return by_odds + where(count + value == 0, 0.0, chosen)


class _OfClasses(Distribution):
    """The base of distributions given by the probabilities of classes, `probs`, or by their logarithms, `logits`."""

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._name, _ = one_of(type(self).__name__, probs=probs, logits=logits)
        self.categorical = Categorical(probs, logits, validate_args=False)
        shape = self.categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    def _given(self) -> tuple[str, ...]:
        return (self._name,)

    def _first_arguments(self) -> tuple[object, ...]:
        """The arguments that the subclass's constructor takes before `probs`, for `expand` to pass on."""
        return ()

    @property
    def probs(self) -> Tensor:
        """The probability of each class."""
        return self.categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithm of the probability of each class; see `Categorical.logits`."""
        return self.categorical.logits

    @property
    def param_shape(self) -> tuple[int, ...]:
        """The shape of the parameter."""
        return self.categorical.param_shape

    def expand(self, batch_shape: Sequence[int]) -> Self:
        make: Any = type(self)
        parameter = getattr(self, self._name).expand((*batch_shape, *self._event_shape))
        expanded: Self = make(*self._first_arguments(), **{self._name: parameter}, validate_args=self._validates)
        return expanded


class OneHotCategorical(_OfClasses):
    """The distribution of one of several classes as a one-hot vector: 1 at the class that was drawn, 0 elsewhere.

    Args:
        probs: (..., classes), in proportion to the probabilities.
        logits: instead of `probs`, their logarithms.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if the parameter is no tensor.
        ValueError: unless exactly one of `probs` and `logits` is given, with at least one class; with `validate_args`,
            for values out of range.

    Example:
        >>> chosen = flow.distributions.OneHotCategorical(flow.tensor([1.0, 3.0]))
        >>> chosen.mean, chosen.mode
        (tensor([0.2500, 0.7500]), tensor([0., 1.]))
        >>> chosen.sample((4,)).shape
        vmflow.Size([4, 2])
    """

    has_enumerate_support: ClassVar[bool] = True
    support = constraints.one_hot

    def _row(self, indices: Tensor) -> Tensor:
        probs = self.probs
        return one_hot(indices, probs.shape[-1]).to(probs.dtype)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._row(self.categorical.mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._row(self.categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self.categorical.log_prob(self._check_sample(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self.categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        probs = self.probs
        return self._enumerated(beside(eye(probs.shape[-1], dtype=probs.dtype, device=probs.device), probs), expand)


class Multinomial(_OfClasses):
    """The multinomial distribution: how often each class occurs in `total_count` draws.

    Args:
        total_count: the number of draws, the same for the whole batch.
        probs: (..., classes), in proportion to the probabilities.
        logits: instead of `probs`, their logarithms.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if `total_count` is no integer, or the parameter no tensor.
        ValueError: if `total_count` is negative, and for all that `Categorical` rejects.

    Example:
        >>> draws = flow.distributions.Multinomial(4, flow.tensor([1.0, 3.0]))
        >>> draws.mean, draws.variance
        (tensor([1., 3.]), tensor([0.7500, 0.7500]))
        >>> draws.sample().sum()
        tensor(4.)
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.total_count = whole_number("Multinomial", "total_count", total_count, 0)
        super().__init__(probs, logits, validate_args)

    def _first_arguments(self) -> tuple[object, ...]:
        return (self.total_count,)

    @property
    def support(self) -> Constraint:
        return constraints.counts_of(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self.probs.detach()
        drawn = self.categorical.sample((self.total_count, *sample_shape))
        return one_hot(drawn, probs.shape[-1]).sum(0).to(probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        logits = where((value == 0) & (self.logits == -math.inf), 0.0, self.logits)
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        # The entropy contains, for each class, the mean of log(count!), where count has a binomial distribution.
        each = Binomial(self.total_count, self.probs)
        counts = each.enumerate_support(False)
        logarithms = (each.log_prob(counts).exp() * lgamma(counts + 1)).sum((0, -1))
        return self.categorical.entropy() * self.total_count - math.lgamma(self.total_count + 1) + logarithms


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` with straight-through gradients: `rsample` has the gradients of `probs`.

    Y. Bengio and others, Estimating or Propagating Gradients Through Stochastic Neurons for Conditional Computation,
    2013.

    Args:
        probs: (..., classes), in proportion to the probabilities.
        logits: instead of `probs`, their logarithms.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError, ValueError: as `OneHotCategorical`.

    Example:
        >>> probs = flow.tensor([0.25, 0.75], requires_grad=True)
        >>> row = flow.distributions.OneHotCategoricalStraightThrough(probs).rsample()
        >>> row.requires_grad, row.sum().item()
        (True, 1.0)
    """

    has_rsample: ClassVar[bool] = True

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return super().sample(sample_shape).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class RelaxedBernoulli(ByProbability):
    """Numbers between 0 and 1 that approach samples of `Bernoulli` as the temperature falls; has `rsample`.

    C. Maddison and others, The Concrete Distribution, 2017.

    The shapes of the parameters broadcast to the batch shape.

    Args:
        temperature: small for samples near 0 and 1.
        probs: the probability of 1 in the limit of low temperatures.
        logits: instead of `probs`, the logarithm of the odds of 1.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if a parameter is neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given, for shapes that do not broadcast, and, with
            `validate_args`, for values out of range.

    Example:
        >>> soft = flow.distributions.RelaxedBernoulli(0.5, flow.tensor([0.5, 0.9]))
        >>> soft.rsample((3,)).shape, soft.has_rsample
        (vmflow.Size([3, 2]), True)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {
        "temperature": constraints.positive,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_rsample: ClassVar[bool] = True
    support = constraints.unit_interval
    _others: ClassVar[tuple[str, ...]] = ("temperature",)

    def __init__(
        self,
        temperature: Tensor | Number,
        probs: Tensor | Number | None = None,
        logits: Tensor | Number | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (self.temperature,) = self._set_parameters(probs, logits, temperature)
        Distribution.__init__(self, self._parameter.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        logits = self.logits
        limits = finfo(logits.dtype)
        drawn = self._drawn(rand, sample_shape, logits)
        drawn = drawn.clamp(limits.tiny, 1 - limits.eps)
        return sigmoid((drawn.log() - (-drawn).log1p() + logits) / self.temperature)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        limits = finfo(value.dtype)
        value = value.clamp(limits.tiny, 1 - limits.eps)
        one, other = value.log(), (-value).log1p()
        distance = self.logits - (one - other) * self.temperature
        return self.temperature.log() + distance - softplus(distance) * 2 - one - other


class RelaxedOneHotCategorical(_OfClasses):
    """Vectors of sum 1 that approach samples of `OneHotCategorical` as the temperature falls; has `rsample`.

    C. Maddison and others, The Concrete Distribution, 2017; E. Jang and others, Categorical Reparameterization with
    Gumbel-Softmax, 2017.

    Args:
        temperature: small for samples near 0 and 1; a number or a tensor without dimensions.
        probs: (..., classes), in proportion to the probabilities in the limit of low temperatures.
        logits: instead of `probs`, their logarithms.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if `probs` or `logits` is no tensor, or `temperature` neither a tensor nor a real number.
        ValueError: unless exactly one of `probs` and `logits` is given, with at least one class; if `temperature` has
            dimensions; with `validate_args`, for `probs` or `logits` out of range.

    Example:
        >>> soft = flow.distributions.RelaxedOneHotCategorical(0.5, flow.tensor([1.0, 3.0]))
        >>> soft.rsample((3,)).shape, soft.batch_shape, soft.event_shape
        (vmflow.Size([3, 2]), vmflow.Size([]), vmflow.Size([2]))
    """

    has_rsample: ClassVar[bool] = True
    support = constraints.simplex

    def __init__(
        self,
        temperature: Tensor | Number,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(probs, logits, validate_args)
        _, self.temperature = parameters("RelaxedOneHotCategorical", self.probs.new_zeros(()), temperature)
        if self.temperature.ndim:
            raise ValueError(
                "RelaxedOneHotCategorical: the temperature must be a number or a tensor without dimensions, not of the "
                f"shape {list(self.temperature.shape)}"
            )

    def _first_arguments(self) -> tuple[object, ...]:
        return (self.temperature,)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        logits = self.logits
        limits = finfo(logits.dtype)
        drawn = self._drawn(rand, sample_shape, logits)
        highest = -(-drawn.clamp(limits.tiny, 1 - limits.eps).log()).log()
        return softmax((logits + highest) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        logarithm = self._check_sample(value).log()
        classes = self._event_shape[0]
        score = self.logits - logarithm * self.temperature
        each = score - logsumexp(score, -1, True)
        return each.sum(-1) + math.lgamma(classes) + self.temperature.log() * (classes - 1) - logarithm.sum(-1)
