"""`kl_divergence`, the Kullback-Leibler divergence, by a table of formulas for pairs of classes of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from vmflow.ops.elementwise.gamma_function import digamma, lgamma
from vmflow.ops.elementwise.selection import where
from vmflow.ops.linalg.decompositions import solve_triangular
from vmflow.tensors import Tensor

from .continuous import Exponential, Gamma, Laplace, MultivariateNormal, Normal, Uniform, half_logdet, squared_distance
from .counts import Binomial, Geometric, OneHotCategorical
from .discrete import Bernoulli, ByProbability, Categorical, Poisson
from .distribution import Distribution, Independent, summed
from .gamma_family import Beta, Dirichlet
from .half_and_heavy import EULER, Cauchy, Gumbel, HalfNormal, LogNormal, Pareto

Formula: TypeAlias = Callable[..., Tensor]
_F = TypeVar("_F", bound=Formula)

_FORMULAS: dict[tuple[type[Distribution], type[Distribution]], Formula] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[_F], _F]:
    """Register the decorated function ``f(p, q)`` as the divergence for p of `type_p` and q of `type_q`, or subclasses.

    Raises:
        TypeError: if an argument is no class of distributions.

    Example:
        >>> class Point(flow.distributions.Distribution): ...
        >>> @flow.distributions.register_kl(Point, Point)
        ... def between_points(p, q):
        ...     return flow.tensor(0.0)
        >>> flow.distributions.kl_divergence(Point(), Point())
        tensor(0.)
    """
    for argument in (type_p, type_q):
        if not (isinstance(argument, type) and issubclass(argument, Distribution)):
            raise TypeError(f"register_kl: expected subclasses of Distribution, got {argument!r}")

    def declare(formula: _F) -> _F:
        _FORMULAS[type_p, type_q] = formula
        return formula

    return declare


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of ``p.log_prob(x) - q.log_prob(x)`` over samples x of `p`, in nats; the batches broadcast.

    The method resolution orders of both classes are searched for a registered formula, the nearest class of `p` first.

    Raises:
        NotImplementedError: if there is no formula for the two classes, or for the base distributions of two
            `Independent`; if both are `Binomial` and `p` has a smaller `total_count` than `q` anywhere; or if both are
            `Independent` over different numbers of dimensions.
        ValueError: if the shapes of `p` and `q` do not broadcast.

    Example:
        >>> p, q = flow.distributions.Normal(flow.tensor([0.0, 2.0]), 1.0), flow.distributions.Normal(0.0, 1.0)
        >>> flow.distributions.kl_divergence(p, q)
        tensor([0., 2.])
    """
    for left in type(p).__mro__:
        for right in type(q).__mro__:
            formula = _FORMULAS.get((left, right))
            if formula is not None:
                return formula(p, q)
    raise NotImplementedError(
        f"kl_divergence: no formula for {type(p).__name__} and {type(q).__name__}; declare one with register_kl"
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log()) * 0.5


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    outside = (q.low > p.low) | (q.high < p.high)
    return where(outside, math.inf, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    by_rate = q.concentration * (p.rate / q.rate).log() + (q.rate - p.rate) * (p.concentration / p.rate)
    by_concentration = (p.concentration - q.concentration) * digamma(p.concentration)
    return by_rate + by_concentration + lgamma(q.concentration) - lgamma(p.concentration)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    # 0 * log 0 is 0: where `p` has the rate 0, the logarithms are those of 1, also for the gradients.
    never = p.rate == 0
    by_ratio = p.rate * (where(never, 1.0, p.rate).log() - where(never, 1.0, q.rate).log())
    return by_ratio - (p.rate - q.rate)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return distance / q.scale - ratio.log() + ratio * (-distance / p.scale).exp() - 1


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> Tensor:
    width = p.high - p.low
    squares = (width / q.scale).square() / 24 + ((p.mean - q.loc) / q.scale).square() * 0.5
    return squares + (q.scale * math.sqrt(2 * math.pi) / width).log()


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    return _of_attempts(1.0, p, q)


def _of_attempts(count: Tensor | float, p: ByProbability, q: ByProbability) -> Tensor:
    """The divergence between `count` attempts with the chances of `p` and as many with those of `q`; 0 * log 0 is 0."""

    def part(success: bool) -> Tensor:
        mean = p.chance(success) * count
        never = mean == 0
        return mean * (p.log_chance(success, never) - q.log_chance(success, never))

    return part(True) + part(False)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    each = p.probs * (p.logits - q.logits)
    return where(p.probs == 0, 0.0, where(q.probs == 0, math.inf, each)).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"kl_divergence: vectors of {p.event_shape[0]} and {q.event_shape[0]} elements cannot be compared"
        )
    volume = half_logdet(q.scale_tril) - half_logdet(p.scale_tril)
    spread = solve_triangular(q.scale_tril, p.scale_tril, upper=False).square().sum((-2, -1))
    distance = squared_distance(q.scale_tril, q.loc - p.loc)
    return volume + (spread + distance - p.event_shape[0]) * 0.5


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: both must be independent over as many dimensions")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    together = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return together.log() - (p.scale * q.scale * 4).log()


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return (ratio - 1 - ratio.log()) * 0.5


@register_kl(LogNormal, LogNormal)
def _log_normal(p: LogNormal, q: LogNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - distance + ratio * EULER + (distance + lgamma(1 + ratio)).exp() - (1 + EULER)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, found)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    # The number of attempts has the mean 1 / probs.
    return _of_attempts(1.0, p, q) / p.probs


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any().item():
        raise NotImplementedError(
            "kl_divergence: there is no formula for a Binomial p with a smaller total_count than that of q"
        )
    # Where `p` has more attempts than `q`, it may have more successes than `q` can have: the divergence is infinite,
    # unless `p` has no successes, when only the number of attempts of `q` matters.
    more = (p.total_count > q.total_count) & (p.probs > 0)
    return where(more, math.inf, _of_attempts(q.total_count, p, q))


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p.categorical, q.categorical)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p.shares(), q.shares())


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    one, other = p.concentration, q.concentration
    total = one.sum(-1)
    by_total = lgamma(total) - lgamma(other.sum(-1))
    each = lgamma(other) - lgamma(one) + (one - other) * (digamma(one) - digamma(total).unsqueeze(-1))
    return by_total + each.sum(-1)
