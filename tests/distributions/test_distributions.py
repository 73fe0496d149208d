"""Distributions: numbers and gradients against PyTorch, samples against their own moments, shapes and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributions as dist

RANDOM = np.random.default_rng(3)
LOC = RANDOM.normal(size=(3, 2))
SCALE = RANDOM.uniform(0.5, 2, (2,))
PROBS = RANDOM.uniform(0.1, 0.9, (3, 4))
ROOT = RANDOM.normal(size=(2, 2))
MATRIX = ROOT @ ROOT.T + np.eye(2)
REALS = RANDOM.normal(size=(5, 3, 2))
POSITIVE = RANDOM.uniform(0.1, 3, (5, 3, 2))
INSIDE = LOC + SCALE * RANDOM.uniform(0.1, 0.9, (5, 3, 2))

# By name: the class, its parameters, and values to ask it about.
Case = tuple[str, dict[str, Any], Any]
CASES: dict[str, Case] = {
    "normal": ("Normal", {"loc": LOC, "scale": SCALE}, REALS),
    "uniform": ("Uniform", {"low": LOC, "high": LOC + SCALE}, INSIDE),
    "exponential": ("Exponential", {"rate": SCALE}, POSITIVE),
    "gamma": ("Gamma", {"concentration": SCALE, "rate": np.exp(LOC)}, POSITIVE),
    "poisson": ("Poisson", {"rate": np.exp(LOC)}, RANDOM.integers(0, 9, (5, 3, 2)).astype(float)),
    "laplace": ("Laplace", {"loc": LOC, "scale": SCALE}, REALS),
    "bernoulli": ("Bernoulli", {"probs": PROBS}, (RANDOM.random((2, 3, 4)) < 0.5).astype(float)),
    "bernoulli of logits": ("Bernoulli", {"logits": LOC}, np.ones((3, 2))),
    "categorical": ("Categorical", {"probs": PROBS}, RANDOM.integers(0, 4, (2, 3))),
    "categorical of logits": ("Categorical", {"logits": PROBS}, RANDOM.integers(0, 4, (2, 3))),
    "covariance": ("MultivariateNormal", {"loc": LOC, "covariance_matrix": MATRIX}, REALS),
    "precision": ("MultivariateNormal", {"loc": LOC, "precision_matrix": MATRIX}, REALS),
    "factor": ("MultivariateNormal", {"loc": LOC, "scale_tril": np.linalg.cholesky(MATRIX)}, REALS),
    "cauchy": ("Cauchy", {"loc": LOC, "scale": SCALE}, REALS),
    "gumbel": ("Gumbel", {"loc": LOC, "scale": SCALE}, REALS),
    "half normal": ("HalfNormal", {"scale": SCALE}, POSITIVE),
    "half cauchy": ("HalfCauchy", {"scale": SCALE}, POSITIVE),
    "log normal": (
        "LogNormal",
        {"loc": LOC / 2, "scale": SCALE / 4},
        np.exp(LOC / 2 + SCALE * RANDOM.uniform(-0.3, 0.3, (5, 3, 2))),
    ),
    "pareto": ("Pareto", {"scale": SCALE, "alpha": np.exp(LOC / 4) + 8}, SCALE + POSITIVE),
    "weibull": ("Weibull", {"scale": SCALE, "concentration": np.exp(LOC / 2) + 1}, POSITIVE),
    "chi2": ("Chi2", {"df": SCALE * 3}, POSITIVE),
    "student": ("StudentT", {"df": SCALE + 6, "loc": LOC, "scale": SCALE}, REALS),
    "beta": ("Beta", {"concentration1": SCALE + 1, "concentration0": np.exp(LOC)}, RANDOM.uniform(0.1, 0.9, (5, 3, 2))),
    "dirichlet": ("Dirichlet", {"concentration": PROBS * 4}, RANDOM.dirichlet(np.ones(4), (2, 3))),
    "inverse gamma": ("InverseGamma", {"concentration": SCALE + 4, "rate": np.exp(LOC)}, POSITIVE),
    "fisher": ("FisherSnedecor", {"df1": SCALE + 2, "df2": np.exp(LOC) + 12}, POSITIVE),
    "geometric": ("Geometric", {"probs": PROBS}, RANDOM.integers(0, 5, (2, 3, 4)).astype(float)),
    "geometric of logits": ("Geometric", {"logits": LOC}, np.ones((3, 2))),
    "binomial": ("Binomial", {"total_count": np.full(4, 5.0), "probs": PROBS}, RANDOM.integers(0, 6, (3, 4)) * 1.0),
    "binomial of logits": ("Binomial", {"total_count": np.full(2, 3.0), "logits": LOC}, np.ones((3, 2))),
    "negative binomial": (
        "NegativeBinomial",
        {"total_count": SCALE * 3, "probs": PROBS[:, :2] / 2},
        RANDOM.integers(0, 6, (3, 2)) * 1.0,
    ),
    "negative binomial of logits": ("NegativeBinomial", {"total_count": SCALE, "logits": LOC}, np.ones((3, 2))),
    "one hot": ("OneHotCategorical", {"probs": PROBS}, np.eye(4)[RANDOM.integers(0, 4, (2, 3))]),
    "one hot of logits": ("OneHotCategorical", {"logits": PROBS}, np.eye(4)[RANDOM.integers(0, 4, (2, 3))]),
    "straight through": ("OneHotCategoricalStraightThrough", {"probs": PROBS}, np.eye(4)[[1, 0, 3]]),
    "relaxed": ("RelaxedBernoulli", {"temperature": SCALE, "probs": PROBS[:, :2]}, RANDOM.uniform(0.1, 0.9, (5, 3, 2))),
}
WITH_CDF = (
    *("normal", "uniform", "exponential", "laplace", "cauchy", "gumbel", "half normal", "half cauchy", "log normal"),
    *("pareto", "weibull"),
)
CONTINUOUS = tuple(name for name in WITH_CDF if "cauchy" not in name)
INFINITE = ("cauchy", "half cauchy")
WITH_MOMENTS = tuple(name for name in CASES if name != "relaxed")
# A shifted uniform one leaves no overlap, and a shifted count is none; below.
WITH_DIVERGENCE = tuple(
    name
    for name in WITH_MOMENTS
    if not name.startswith(
        ("uniform", "inverse", "fisher", "half cauchy", "weibull", "student", "binomial", "negative")
    )
)
WITH_ENTROPY = tuple(name for name in CASES if name not in ("poisson", "relaxed", "fisher") and "negative" not in name)
REPARAMETRIZED = (*CONTINUOUS, "covariance", "precision", "factor")


def _made(library: Any, name: str, requires_grad: bool = False, shift: float = 0.0) -> tuple[Any, list[Any]]:
    kind, parameters, _ = CASES[name]
    made = {key: library.tensor(value + shift, requires_grad=requires_grad) for key, value in parameters.items()}
    return getattr(library.distributions, kind)(**made), list(made.values())


def _agree(
    name: str, ask: Callable[[Any, Any], Any], value: Any, differentiable: bool = True, shift: float | None = None
) -> None:
    """Whether both libraries give the same result, and the same gradients of all parameters."""
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        distribution, parameters = _made(library, name, differentiable)
        given = library.tensor(value) if shift is None else _made(library, name, False, shift)[0]
        if library is torch and shift is not None:
            result = torch.distributions.kl_divergence(distribution, given)
        else:
            result = ask(distribution, given)
        numbers = [result.detach().numpy()]
        if differentiable and result.requires_grad:
            grads = library.autograd.grad((result * result).sum(), parameters, allow_unused=True)
            numbers += [np.zeros(1) if grad is None else grad.numpy() for grad in grads]
        found.append(numbers)
    assert len(found[0]) == len(found[1])
    for have, want in zip(*found, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_densities_and_entropies_as_in_pytorch(name: str) -> None:
    value = CASES[name][2]
    _agree(name, lambda d, v: d.log_prob(v), value)
    if name in WITH_ENTROPY:
        _agree(name, lambda d, v: d.entropy(), value)
        _agree(name, lambda d, v: d.perplexity(), value)


@pytest.mark.parametrize("moment", ["mean", "variance", "stddev", "mode"])
@pytest.mark.parametrize("name", WITH_MOMENTS)
def test_moments_as_in_pytorch(name: str, moment: str) -> None:
    _agree(name, lambda d, v: getattr(d, moment), 0.0, differentiable=moment != "mode")


@pytest.mark.parametrize("name", WITH_CDF)
def test_distribution_functions_as_in_pytorch(name: str) -> None:
    _agree(name, lambda d, v: d.cdf(v), CASES[name][2])
    _agree(name, lambda d, v: d.icdf(v), RANDOM.uniform(0.05, 0.95, (3, 2)))
    distribution, _ = _made(flow, name)
    value = flow.tensor(CASES[name][2])
    np.testing.assert_allclose(distribution.icdf(distribution.cdf(value)).numpy(), value.numpy(), rtol=1e-7)


def test_a_falling_weibull_density_is_highest_at_0() -> None:
    assert dist.Weibull(2.0, flow.tensor([0.5, 0.8, 1.0])).mode.tolist() == [0.0, 0.0, 0.0]


def test_a_uniform_density_ends_where_it_ends() -> None:
    uniform = dist.Uniform(0.0, 2.0)
    found = uniform.log_prob(flow.tensor([-0.1, 0.0, 1.0, 2.0])).exp().numpy()
    np.testing.assert_allclose(found, [0, 0.5, 0.5, 0])
    np.testing.assert_allclose(uniform.cdf(flow.tensor([-1.0, 1.0, 3.0])).numpy(), [0, 0.5, 1])


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_samples(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = _made(flow, name)[0], _made(torch, name)[0]
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.sample((0,)).shape[0] == 0
    for shape in ((), (4,), (2, 3)):
        sample, other = ours.sample(shape), theirs.sample(shape)
        assert tuple(sample.shape) == tuple(other.shape)
        assert str(sample.dtype).split(".")[-1] == str(other.dtype).split(".")[-1]
        assert not sample.requires_grad
    expanded, other = ours.expand((2, *ours.batch_shape)), theirs.expand((2, *theirs.batch_shape))
    assert tuple(expanded.sample((4,)).shape) == tuple(other.sample((4,)).shape)
    if name in WITH_MOMENTS:
        np.testing.assert_allclose(expanded.variance.numpy(), other.variance.numpy(), rtol=1e-6)
    assert repr(ours).startswith(f"{CASES[name][0]}(")


@pytest.mark.parametrize("name", [name for name in WITH_MOMENTS if name not in INFINITE])
def test_samples_have_the_moments(name: str) -> None:
    distribution, _ = _made(flow, name)
    with flow.fork_rng() as generator:
        generator.manual_seed(11)
        sample = distribution.sample((20000,)).numpy().astype(float)
    if "categorical" in name:
        shares = np.stack([(sample == index).mean(0) for index in range(4)], -1)
        np.testing.assert_allclose(shares, distribution.probs.numpy(), atol=0.02)
        return
    spread = distribution.stddev.numpy()
    shape = sample.shape[1:]
    np.testing.assert_allclose(
        sample.mean(0), np.broadcast_to(distribution.mean.numpy(), shape), atol=0.05 * spread.max()
    )
    np.testing.assert_allclose(sample.std(0), np.broadcast_to(spread, shape), rtol=0.05)


@pytest.mark.parametrize("name", REPARAMETRIZED)
def test_gradients_flow_through_samples(name: str) -> None:
    """The gradient of the mean of x is that of the distribution's mean, and of x squared that of its second moment."""
    distribution, parameters = _made(flow, name, requires_grad=True)
    assert distribution.has_rsample
    with flow.fork_rng() as generator:
        generator.manual_seed(5)
        sample = distribution.rsample((40000,))
    found = flow.autograd.grad(sample.square().mean(0).sum(), parameters, retain_graph=True)
    second = (distribution.variance + distribution.mean.square()).expand(sample.shape[1:])
    wanted = flow.autograd.grad(second.sum(), parameters)
    for have, want in zip(found, wanted, strict=True):
        assert have is not None
        assert want is not None
        # Which triangle a gradient falls into is of no interest.
        whole = name in ("covariance", "precision") and have.shape == (2, 2)
        one, other = [(value + value.mT if whole else value).numpy() for value in (have, want)]
        np.testing.assert_allclose(one, other, atol=0.06 * np.abs(other).max())


def test_discrete_distributions_have_no_such_samples() -> None:
    with pytest.raises(NotImplementedError, match="Bernoulli has no rsample; use sample"):
        dist.Bernoulli(0.5).rsample()
    with pytest.raises(NotImplementedError, match="Categorical has no cdf"):
        dist.Categorical(flow.ones(3)).cdf(flow.zeros(()))


@pytest.mark.parametrize("name", WITH_DIVERGENCE)
def test_divergences_as_in_pytorch(name: str) -> None:
    shift = 0.0 if "Multi" in CASES[name][0] else 0.05
    _agree(name, dist.kl_divergence, None, shift=shift)


def test_further_divergences_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def pairs(library: Any) -> list[tuple[Any, Any]]:
        d, t = library.distributions, library.tensor
        root = t(np.linalg.cholesky(MATRIX))
        return [
            (d.Uniform(t([0.0, 0.0]), t([1.0, 3.0])), d.Uniform(t([-1.0, 0.5]), t([2.0, 3.5]))),
            (d.Binomial(t(5), t([0.3, 0.6])), d.Binomial(t(5), t([0.5, 0.1]))),
            (d.Binomial(3, logits=t([0.3, -0.6])), d.Binomial(t([3, 2]), t([0.5, 0.1]))),
            (d.Pareto(t([1.0, 2.0]), t(3.0)), d.Pareto(t([2.0, 1.0]), t(2.0))),
            (d.Uniform(t(0.0), t(1.0)), d.Normal(t(0.3), t(2.0))),
            (d.Bernoulli(t([0.0, 1.0, 0.5, 0.5])), d.Bernoulli(t([0.5, 0.5, 0.0, 1.0]))),
            (d.Categorical(t([0.0, 0.5, 0.5])), d.Categorical(t([0.2, 0.3, 0.5]))),
            (d.Categorical(t([0.2, 0.3, 0.5])), d.Categorical(t([0.0, 0.5, 0.5]))),
            (d.MultivariateNormal(t(LOC), scale_tril=root), d.MultivariateNormal(t(LOC + 1), t(MATRIX + np.eye(2)))),
            (d.Independent(d.Normal(t(LOC), t(SCALE)), 1), d.Independent(d.Normal(t(LOC + 1), t(SCALE * 2)), 1)),
        ]

    for ours, theirs in zip(pairs(flow), pairs(torch), strict=True):
        found, wanted = dist.kl_divergence(*ours), torch.distributions.kl_divergence(*theirs)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5)


def _logs(kind: str, parameter: float, count: int, outcomes: int) -> Any:
    """The logarithms of the probabilities of 0, 1, ... of a distribution, in double precision."""
    numbers = np.arange(outcomes)
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind == "Poisson":
            factorials = np.array([math.lgamma(number + 1) for number in numbers])
            return np.where(numbers == 0, -parameter, numbers * np.log(parameter) - parameter - factorials)
        if kind == "Geometric":
            return np.where(numbers == 0, 0.0, numbers * np.log1p(-parameter)) + np.log(parameter)
        chosen = np.array([float(math.comb(count, number)) for number in numbers])
        return np.log(chosen * parameter**numbers * (1.0 - parameter) ** np.maximum(count - numbers, 0))


def _by_outcomes(kind: str, p: tuple[float, int], q: tuple[float, int]) -> float:
    """The divergence as a sum over outcomes, with 0 * log 0 = 0."""
    one, other = [_logs(kind, *given, outcomes=200 if kind != "Binomial" else p[1] + 1) for given in (p, q)]
    possible = one > -np.inf
    return float((np.exp(one[possible]) * (one[possible] - other[possible])).sum())


ENDS: list[tuple[str, tuple[float, int], tuple[float, int]]] = [
    *[("Bernoulli", (p, 1), (q, 1)) for p in (0.0, 0.25, 1.0) for q in (0.0, 0.5, 1.0)],
    *[
        ("Binomial", (p, n), (q, m))
        for p in (0.0, 0.25, 1.0)
        for q in (0.0, 0.5, 1.0)
        for n, m in ((2, 2), (3, 2), (1, 0), (0, 0))
    ],
    *[("Geometric", (p, 0), (q, 0)) for p in (0.25, 1.0) for q in (0.0, 0.5, 1.0)],
    *[("Poisson", (p, 0), (q, 0)) for p in (0.0, 2.0) for q in (0.0, 3.0)],
]


@pytest.mark.parametrize(("kind", "p", "q"), ENDS)
def test_divergences_of_impossible_outcomes_are_sums_over_the_possible_ones(
    kind: str, p: tuple[float, int], q: tuple[float, int]
) -> None:
    def made(given: tuple[float, int]) -> tuple[dist.Distribution, flow.Tensor]:
        parameter = flow.tensor(given[0], dtype=flow.float64, requires_grad=True)
        given_by: dict[str, Any] = {"total_count": given[1]} if kind == "Binomial" else {}
        given_by["rate" if kind == "Poisson" else "probs"] = parameter
        return getattr(dist, kind)(**given_by), parameter

    (one, by_one), (other, by_other) = made(p), made(q)
    found = dist.kl_divergence(one, other)
    np.testing.assert_allclose(found.item(), _by_outcomes(kind, p, q), rtol=1e-12, atol=1e-15)
    if found.isfinite():
        for gradient in flow.autograd.grad(found, [by_one, by_other]):
            assert gradient is not None
            assert gradient.isfinite()


@pytest.mark.parametrize("kind", ["Bernoulli", "Binomial", "Geometric"])
def test_divergences_of_logits_are_exact_where_probabilities_are_rounded(kind: str) -> None:
    counted = {"total_count": 3} if kind == "Binomial" else {}

    def between(p: float, q: float) -> float:
        one, other = [getattr(dist, kind)(**counted, logits=flow.tensor(x)) for x in (p, q)]
        return float(dist.kl_divergence(one, other).item())

    attempts = {"Bernoulli": 1.0, "Binomial": 3.0, "Geometric": 2.0}[kind]
    np.testing.assert_allclose(between(0.0, 100.0), attempts * (50 - math.log(2)), rtol=1e-6)
    if kind != "Geometric":
        np.testing.assert_allclose(between(100.0, -200.0), attempts * 200, rtol=1e-6)
    assert between(math.inf, math.inf) == 0


def test_divergences_of_rare_successes_are_those_of_their_numbers() -> None:
    p, q = [dist.Binomial(10**9, flow.tensor(rate * 1e-9)) for rate in (1.0, 2.0)]
    np.testing.assert_allclose(dist.kl_divergence(p, q).item(), 1 - math.log(2), rtol=1e-4)


def test_a_divergence_from_more_attempts_is_refused_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for library in (flow, torch):
        d, t = library.distributions, library.tensor
        with pytest.raises(NotImplementedError, match="total_count"):
            d.kl_divergence(d.Binomial(t([2, 2]), t(0.5)), d.Binomial(t([2, 3]), t(0.5)))


def test_divergences_can_be_declared() -> None:
    class Shifted(dist.Normal):
        pass

    one, other = Shifted(0.0, 1.0), dist.Normal(1.0, 1.0)
    assert dist.kl_divergence(one, other).item() == 0.5  # as of its base

    @dist.register_kl(Shifted, dist.Laplace)
    def formula(p: Shifted, q: dist.Laplace) -> flow.Tensor:
        return p.loc + 7

    assert dist.kl_divergence(one, dist.Laplace(0.0, 1.0)).item() == 7
    with pytest.raises(NotImplementedError, match="no formula for Normal and Laplace"):
        dist.kl_divergence(other, dist.Laplace(0.0, 1.0))
    with pytest.raises(TypeError, match="expected subclasses of Distribution"):
        dist.register_kl(int, dist.Normal)  # type: ignore[arg-type]


def test_independent_adds_up() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        d = library.distributions
        together = d.Independent(d.Normal(library.tensor(LOC), library.tensor(SCALE)), 1)
        assert tuple(together.batch_shape) == (3,)
        assert tuple(together.event_shape) == (2,)
        assert together.has_rsample
        assert tuple(together.rsample((4,)).shape) == (4, 3, 2)
        assert tuple(together.expand((5, 3)).sample().shape) == (5, 3, 2)
        assert tuple(together.support.check(library.tensor(REALS)).shape) == (5, 3)
        found.append([together.log_prob(library.tensor(REALS)), together.entropy(), together.mean, together.variance])
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6)
    assert repr(dist.Independent(dist.Normal(0.0, flow.ones(2)), 1)) == (
        "Independent(Normal(loc: vmflow.Size([2]), scale: vmflow.Size([2])), 1)"
    )


def test_values_are_listed() -> None:
    found = dist.Bernoulli(flow.full((2,), 0.3)).enumerate_support()
    np.testing.assert_array_equal(found.numpy(), [[0, 0], [1, 1]])
    found = dist.Categorical(flow.ones(2, 3)).enumerate_support(expand=False)
    np.testing.assert_array_equal(found.numpy(), [[0], [1], [2]])


def test_numbers_take_the_dtype_of_tensors() -> None:
    assert dist.Normal(0, flow.ones(2, dtype=flow.float64)).loc.dtype is flow.float64
    assert dist.Normal(0, 1).sample().dtype is flow.float32
    assert repr(dist.Normal(np.float32(2), np.int64(3))) == "Normal(loc: 2.0, scale: 3.0)"  # type: ignore[arg-type]
    assert repr(dist.Exponential(2)) == "Exponential(rate: 2.0)"


INVALID: list[tuple[Callable[[bool], Any], str]] = [
    (lambda v: dist.Normal(0.0, -1.0, validate_args=v), "the parameter scale of Normal must fulfil"),
    (lambda v: dist.Uniform(1.0, 0.0, validate_args=v), "low must be below high"),
    (lambda v: dist.Bernoulli(1.5, validate_args=v), r"must fulfil Interval\(0, 1\)"),
    (lambda v: dist.Exponential(1.0, validate_args=v).log_prob(flow.tensor(-1.0)), "the value given to Exponential"),
    (lambda v: dist.Bernoulli(0.5, validate_args=v).log_prob(flow.tensor(0.5)), "must fulfil Boolean"),
    (lambda v: dist.Categorical(flow.tensor([1.0, -0.5]), validate_args=v), "must fulfil Simplex"),
    (
        lambda v: dist.MultivariateNormal(flow.zeros(2), scale_tril=flow.ones(2, 2), validate_args=v),
        "must fulfil LowerCholesky",
    ),
]


@pytest.mark.parametrize(("make", "message"), INVALID)
def test_values_are_checked_where_that_is_asked_for(make: Callable[[bool], Any], message: str) -> None:
    make(False)
    with pytest.raises(ValueError, match=message):
        make(True)


def test_checks_can_be_the_default() -> None:
    dist.Normal(0.0, -1.0)
    dist.Distribution.set_default_validate_args(True)
    try:
        with pytest.raises(ValueError, match="the parameter scale of Normal"):
            dist.Normal(0.0, -1.0)
        assert dist.MultivariateNormal(flow.zeros(2), flow.eye(2)).sample().shape == (2,)
        assert dist.Independent(dist.Normal(flow.zeros(2), 1.0), 1).log_prob(flow.zeros(2)).shape == ()
    finally:
        dist.Distribution.set_default_validate_args(False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dist.Normal("0", 1.0), TypeError, "parameters are tensors or real numbers, not str"),  # type: ignore[arg-type]
        (lambda: dist.Normal(flow.zeros(2), flow.ones(3)), ValueError, "do not broadcast"),
        (lambda: dist.Normal(flow.zeros(2), 1.0).log_prob(flow.zeros(3)), ValueError, "do not broadcast"),
        (lambda: dist.Normal(0.0, 1.0).log_prob(0.5), TypeError, "expected a tensor, got float"),  # type: ignore[arg-type]
        (lambda: dist.Bernoulli(), ValueError, "exactly one of probs, logits, got 0"),
        (lambda: dist.Bernoulli(0.5, 0.5), ValueError, "exactly one of probs, logits, got 2"),
        (lambda: dist.Categorical(flow.tensor(1.0)), ValueError, "at least one class"),
        (lambda: dist.MultivariateNormal(flow.zeros(2)), ValueError, "exactly one of"),
        (lambda: dist.MultivariateNormal(flow.zeros(2), flow.eye(3)), ValueError, "expected loc of"),
        (lambda: dist.Independent(dist.Normal(0.0, 1.0), 1), ValueError, "must be from 0 to 0"),
        (lambda: dist.Distribution.set_default_validate_args(3), ValueError, "expected True or False"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# Samples without moments, and gradients through others


@pytest.mark.parametrize("name", [*INFINITE, "relaxed"])
def test_samples_are_distributed_as_in_pytorch(name: str) -> None:
    """By the quartiles of many, as there are no moments."""
    torch = pytest.importorskip("torch")
    with flow.fork_rng() as generator:
        generator.manual_seed(4)
        found = _made(flow, name)[0].sample((40000,)).numpy()
    torch.manual_seed(4)
    wanted = _made(torch, name)[0].sample((40000,)).numpy()
    shares = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(np.quantile(found, shares, 0), np.quantile(wanted, shares, 0), rtol=0.06, atol=0.06)


def test_gradients_flow_through_relaxed_choices() -> None:
    logits = flow.tensor([0.5, -1.0], requires_grad=True)
    relaxed = dist.RelaxedBernoulli(0.5, logits=logits)
    assert relaxed.has_rsample
    sample = relaxed.rsample((1000,))
    (gradient,) = flow.autograd.grad(sample.mean(0).sum(), [logits])
    assert gradient is not None
    np.testing.assert_allclose(gradient.numpy(), (sample * (1 - sample) / 0.5).mean(0).detach().numpy(), rtol=1e-4)
    chosen = dist.OneHotCategoricalStraightThrough(logits=logits)
    row = chosen.rsample((7,))
    assert set(row.round().detach().numpy().ravel()) == {0.0, 1.0}
    (gradient,) = flow.autograd.grad((row * flow.tensor([1.0, 2.0])).sum(), [logits])
    assert gradient is not None
    probs = chosen.probs.detach().numpy()
    np.testing.assert_allclose(gradient.numpy(), 7 * np.array([-1, 1]) * probs[0] * probs[1], rtol=1e-5)
    assert not chosen.sample().requires_grad


def test_counts_of_ends() -> None:
    nothing = dist.Binomial(flow.tensor([0, 4]), flow.tensor([0.5, 1.0]))
    assert nothing.sample((3,)).tolist() == [[0, 4]] * 3
    assert dist.Geometric(1.0).sample().item() == 0
    assert dist.Geometric(1.0).log_prob(flow.tensor(0.0)).item() == 0
    assert dist.NegativeBinomial(0, 0.5).sample().item() == 0
    assert dist.NegativeBinomial(0, 0.5).log_prob(flow.tensor(0.0)).item() == 0
    with pytest.raises(NotImplementedError, match="the same total_count everywhere"):
        dist.Binomial(flow.tensor([1, 2]), 0.5).enumerate_support()
    assert dist.Binomial(2, flow.tensor([0.5, 0.1])).enumerate_support().tolist() == [[0, 0], [1, 1], [2, 2]]
    assert dist.OneHotCategorical(flow.ones(2)).enumerate_support().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: dist.Beta(0.0, 1.0, validate_args=True), "concentration1 of Beta must fulfil"),
        (lambda: dist.Dirichlet(flow.tensor([1.0, 0.0]), validate_args=True), "concentration of Dirichlet must"),
        (lambda: dist.Chi2(-1.0, validate_args=True), "df of Chi2 must fulfil"),
        (lambda: dist.StudentT(1.0, 0.0, 0.0, validate_args=True), "scale of StudentT must"),
        (lambda: dist.Pareto(1.0, 2.0, validate_args=True).log_prob(flow.tensor(0.5)), "value given to Pareto"),
        (lambda: dist.Binomial(2, 0.5, validate_args=True).log_prob(flow.tensor(3.0)), "value given to Binomial"),
        (lambda: dist.NegativeBinomial(2, 1.0, validate_args=True), "probs of NegativeBinomial"),
        (lambda: dist.OneHotCategorical(flow.ones(2), validate_args=True).log_prob(flow.ones(2)), "OneHotCategorical"),
        (lambda: dist.Dirichlet(flow.tensor(1.0)), "must have at least one dimension"),
        (lambda: dist.Geometric(), "exactly one of probs, logits, got 0"),
        (lambda: dist.Binomial(1, 0.5, 0.5), "exactly one of probs, logits, got 2"),
    ],
)
def test_bad_parameters_of_further_ones(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# Transforms


TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "exp": (lambda d: d.ExpTransform(), LOC),
    "power": (lambda d: d.PowerTransform(2.5), np.exp(LOC)),
    "falling power": (lambda d: d.PowerTransform(-0.5), np.exp(LOC)),
    "sigmoid": (lambda d: d.SigmoidTransform(), LOC),
    "tanh": (lambda d: d.TanhTransform(), LOC),
    "softplus": (lambda d: d.SoftplusTransform(), LOC),
    "affine": (lambda d: d.AffineTransform(1.5, -2.0), LOC),
    "affine of rows": (lambda d: d.AffineTransform(1.5, -2.0, event_dim=1), LOC),
    "inverse": (lambda d: d.ExpTransform().inv, np.exp(LOC)),
    "several": (
        lambda d: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.SigmoidTransform(), d.PowerTransform(2.0)]),
        LOC,
    ),
    "several of rows": (
        lambda d: d.ComposeTransform([d.TanhTransform(), d.AffineTransform(0.5, 2.0, event_dim=1)]),
        LOC,
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, value = TRANSFORMS[name]
    found = []
    for library in (flow, torch):
        transform, x = make(library.distributions), library.tensor(value, requires_grad=True)
        y = transform(x)
        stretched = transform.log_abs_det_jacobian(x, y)
        (gradient,) = library.autograd.grad(stretched.sum() + y.sum(), [x])
        found.append([y, transform.inv(y), stretched, gradient])
        assert repr(transform.inv.inv) == repr(transform)
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transformed_distributions_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, value = TRANSFORMS[name]
    found = []
    for library in (flow, torch):
        d, t = library.distributions, library.tensor
        positive = "power" in name or name == "inverse"
        base = d.Gamma(t(SCALE), t(SCALE)) if positive else d.Normal(t(LOC), t(SCALE))
        base = base.expand((3, 2))
        made = d.TransformedDistribution(base, [make(d)])
        y = make(d)(t(value))
        found.append(
            [made.log_prob(y)]
            + ([] if positive or "rows" in name else [made.cdf(y), made.icdf(t(INSIDE[0] * 0 + 0.3))])
        )
        assert (tuple(made.batch_shape), tuple(made.event_shape)) == (((3,), (2,)) if "rows" in name else ((3, 2), ()))
        assert tuple(made.expand((4, *made.batch_shape)).sample((5,)).shape) == (5, 4, 3, 2)
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6, atol=1e-9)


def test_a_transformed_distribution_equals_the_named_one() -> None:
    loc, scale = flow.tensor([0.5, -1.0], requires_grad=True), flow.tensor([0.5, 1.5])
    made = dist.TransformedDistribution(dist.Normal(loc, scale), dist.ExpTransform())
    plain = dist.LogNormal(loc, scale)
    x = flow.tensor([0.5, 2.0])
    np.testing.assert_allclose(made.log_prob(x).detach().numpy(), plain.log_prob(x).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(made.cdf(x).detach().numpy(), plain.cdf(x).detach().numpy(), rtol=1e-5)
    assert made.has_rsample
    assert made.rsample().requires_grad
    assert not made.sample().requires_grad
    wide = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.AffineTransform(flow.zeros(3), 2.0))
    assert wide.sample((4,)).shape == (4, 3)
    assert len(set(wide.sample().tolist())) == 3, "each is drawn by itself"
    assert repr(wide.transforms[0].inv) == "AffineTransform().inv"


@pytest.mark.parametrize(
    "make",
    [
        lambda d, t: d.AffineTransform(t([1.0, 2.0, 3.0]), 2.0),
        lambda d, t: d.AffineTransform(1.0, t([1.0, 2.0, 3.0])).inv,
        lambda d, t: d.PowerTransform(t([1.0, 2.0, 3.0])),
        lambda d, t: d.PowerTransform(t([1.0, 2.0, 3.0])).inv,
        lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(t([1.0, 2.0, 3.0]), t([[1.0], [2.0]]))]),
        lambda d, t: (
            d.ComposeTransform([d.PowerTransform(t([[1.0], [2.0]])), d.AffineTransform(t([0.0] * 3), 1.0)]).inv
        ),
    ],
)
def test_tensors_of_transforms_give_each_sample_its_own_draw(make: Any) -> None:
    torch = pytest.importorskip("torch")
    found, shapes = [], []
    for lib in (flow, torch):
        d, transform = lib.distributions, make(lib.distributions, lib.tensor)
        forward, inverse = transform.forward_shape((2, 1)), transform.inverse_shape((3,))
        lib.manual_seed(0)
        made = d.TransformedDistribution(d.Uniform(lib.tensor(1.0), lib.tensor(2.0)), [transform])
        sample = made.sample((4,))
        shapes.append([tuple(shape) for shape in (made.batch_shape, sample.shape, forward, inverse)])
        drawn = transform.inv(made.sample()).numpy().ravel().round(5)
        assert len(set(drawn.tolist())) == drawn.size
        found.append(made.log_prob(transform(lib.tensor(1.25))).numpy())
    assert shapes[0] == shapes[1]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


NOT_ONE_TO_ONE: list[Callable[[], Any]] = [
    lambda: dist.AbsTransform(),
    lambda: dist.ComposeTransform([dist.AffineTransform(0.0, 2.0), dist.AbsTransform()]),
    lambda: dist.ComposeTransform([dist.AbsTransform(), dist.ExpTransform()]),
    lambda: dist.AffineTransform(1.0, 0.0),
    lambda: dist.PowerTransform(0),
]


@pytest.mark.parametrize("make", NOT_ONE_TO_ONE)
def test_a_transform_that_is_not_one_to_one_has_no_distribution_function(make: Callable[[], Any]) -> None:
    made = dist.TransformedDistribution(dist.Normal(0.0, 1.0), [dist.AffineTransform(0.0, 2.0), make()])
    assert made.sample((3,)).shape == (3,)
    for ask in (made.cdf, made.icdf):
        with pytest.raises(NotImplementedError, match=r"cdf needs one-to-one transforms, and .* is not one-to-one"):
            ask(flow.tensor(0.5))


def test_a_transform_without_a_sign_has_no_distribution_function_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        d, t = library.distributions, library.tensor

        class Falling(d.Transform):  # type: ignore[misc, name-defined]
            domain = codomain = d.constraints.real
            bijective = True

            def _call(self, x: Any) -> Any:
                return -x

            def _inverse(self, y: Any) -> Any:
                return -y

        class Signed(Falling):
            sign = -1

        for transforms in ([Falling()], [Falling().inv], [d.ComposeTransform([d.TanhTransform(), Falling()])]):
            made = d.TransformedDistribution(d.Laplace(t(0.0), t(1.0)), transforms)
            for ask in (made.cdf, made.icdf):
                with pytest.raises(NotImplementedError):
                    ask(t(0.5))
        found.append(
            [
                d.TransformedDistribution(d.Laplace(t(0.0), t(1.0)), transform).cdf(t([-2.0, -0.5])).numpy()
                for transform in (Signed(), Signed().inv, d.ComposeTransform([Signed(), d.AffineTransform(1.0, 1.0)]))
            ]
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="AbsTransform has no sign, 1 if it increases"):
        dist.AbsTransform().sign  # noqa: B018


def test_transforms_refuse_factors_that_are_no_numbers() -> None:
    for call, name in (
        (lambda: dist.PowerTransform("2"), "PowerTransform: exponent"),  # type: ignore[arg-type]
        (lambda: dist.AffineTransform(0.0, "2"), "AffineTransform: scale"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=f"{name} must be a number or a tensor, not str"):
            call()
    assert dist.PowerTransform(np.float64(-2)).sign == -1


def test_transforms_that_do_not_fit() -> None:
    rows = dist.TransformedDistribution(dist.Normal(flow.zeros(2), 1.0), dist.AffineTransform(0.0, 1.0, event_dim=1))
    for ask in (rows.cdf, rows.icdf):
        with pytest.raises(NotImplementedError, match="of single numbers"):
            ask(flow.zeros(2))
    with pytest.raises(TypeError, match="expected transforms, got int"):
        dist.TransformedDistribution(dist.Normal(0.0, 1.0), [3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="takes 1 dimensions as a whole, and samples have the shape"):
        dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.AffineTransform(0.0, 1.0, event_dim=1))
    with pytest.raises(NotImplementedError, match="AbsTransform has no log_abs_det_jacobian"):
        dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.AbsTransform()).log_prob(flow.tensor(1.0))
    made = dist.TransformedDistribution(dist.Normal(0.0, 1.0), dist.ExpTransform(), validate_args=True)
    with pytest.raises(ValueError, match="must fulfil GreaterThan"):
        made.log_prob(flow.tensor(-1.0))


# Mixtures, and several counts


def test_mixtures_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        d, t = library.distributions, library.tensor
        loc = t(LOC, requires_grad=True)
        logits = t(SCALE, requires_grad=True)
        single = d.MixtureSameFamily(d.Categorical(logits=logits.expand(3, 2)), d.Normal(loc, t(SCALE)))
        values = t(REALS[..., 0])
        rows = d.MixtureSameFamily(
            d.Categorical(t(SCALE)), d.Independent(d.Normal(t(np.stack([LOC, LOC + 1])), t(SCALE)), 2)
        )
        density = single.log_prob(values)
        results = [density, single.cdf(values), single.mean, single.variance, rows.log_prob(t(REALS)), rows.mean]
        results += [rows.variance, *library.autograd.grad(density.sum(), [loc, logits])]
        found.append([result.detach().numpy() for result in results])
        assert tuple(rows.sample((4,)).shape) == (4, 3, 2)
        assert tuple(single.expand((5, 3)).sample((4,)).shape) == (4, 5, 3)
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_samples_of_a_mixture_have_its_moments() -> None:
    made = dist.MixtureSameFamily(
        dist.Categorical(flow.tensor([0.3, 0.7])), dist.Normal(flow.tensor([[-3.0, 1.0], [0.0, 5.0]]), 0.5)
    )
    with flow.fork_rng() as generator:
        generator.manual_seed(2)
        sample = made.sample((20000,)).numpy()
    np.testing.assert_allclose(sample.mean(0), made.mean.numpy(), atol=0.05)
    np.testing.assert_allclose(sample.var(0), made.variance.numpy(), rtol=0.05)
    assert repr(made).startswith("MixtureSameFamily(Categorical(")


def test_a_mixture_checks_values_against_every_component_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    checked: list[list[Any]] = [[], []]
    known: list[list[Any]] = [[], []]
    for library, checks, numbers in zip((flow, torch), checked, known, strict=True):
        d, t = library.distributions, library.tensor
        weights = d.Categorical(t([0.5, 0.5]))
        apart = d.Uniform(t([0.0, 0.5]), t([1.0, 3.0]), validate_args=False)
        batch = d.Uniform(t([[0.0, 0.5]] * 3), t([[1.0, 3.0]] * 3), validate_args=False)
        counts = d.Binomial(t([2.0, 5.0]), t([0.5, 0.25]), validate_args=False)
        rows = d.Dirichlet(t([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), validate_args=False)
        of_rows = t([[0.5, 0.25, 0.25], [0.5, 0.25, 0.5]])
        for components, values in (
            (apart, t([0.25, 0.75, 1.0, 2.0])),
            (batch, t([0.25, 0.75, 2.0])),
            (batch, t([[0.25, 0.75, 2.0]] * 2)),
            (counts, t([0.0, 2.0, 3.0, 0.5])),
            (rows, of_rows),
        ):
            made = d.MixtureSameFamily(weights, components, validate_args=True)
            checks.append(made.support.check(values))
            assert (made.support.is_discrete, made.support.event_dim) == (components is counts, int(components is rows))
            inside = values[..., 1:2] if components is not rows else values[:1]
            numbers.append(made.log_prob(inside))
            with pytest.raises(ValueError, match="value"):
                made.log_prob(values)
        numbers.append(d.MixtureSameFamily(weights, apart, validate_args=True).cdf(t([-1.0, 0.25, 2.0, 4.0])))
    for have, want in zip(*checked, strict=True):
        np.testing.assert_array_equal(have.numpy(), want.numpy())
    for have, want in zip(*known, strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-5)


def test_samples_of_a_mixture_with_one_support_fulfil_it() -> None:
    weights, zeros = dist.Categorical(flow.tensor([0.5, 0.5])), flow.zeros(2)
    made = dist.MixtureSameFamily(weights, dist.Uniform(zeros, zeros + 1, validate_args=True), validate_args=True)
    assert made.log_prob(made.sample((7,))).tolist() == [0.0] * 7
    with pytest.raises(ValueError, match="given to MixtureSameFamily must fulfil Interval of every component"):
        made.log_prob(flow.tensor([0.5, 1.5, 0.5]))


def test_mixtures_that_do_not_fit() -> None:
    weights = dist.Categorical(flow.ones(3))
    for component in (dist.Normal(0.0, 1.0), dist.Normal(flow.zeros(2), 1.0)):
        with pytest.raises(ValueError, match="must end with the 3 classes"):
            dist.MixtureSameFamily(weights, component)
    with pytest.raises(TypeError, match="expected a Categorical and a distribution"):
        dist.MixtureSameFamily(dist.Normal(0.0, 1.0), weights)  # type: ignore[arg-type]


def test_numbers_of_draws_are_integers_also_numpys() -> None:
    count: Any = np.int64(4)
    draws = dist.Multinomial(count, flow.tensor([1.0, 3.0]))
    assert draws.sample().sum().item() == 4
    assert draws.mean.tolist() == [1.0, 3.0]


def test_several_counts_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        d, t = library.distributions, library.tensor
        for given in ({"probs": t(PROBS)}, {"logits": t(PROBS)}):
            made = d.Multinomial(4, **given)
            values = t(np.array([[1.0, 1, 1, 1], [4, 0, 0, 0], [0, 2, 2, 0]]))
            found.append([made.log_prob(values), made.entropy(), made.mean, made.variance])
            sample = made.expand((2, 3)).sample((50,))
            assert tuple(sample.shape) == (50, 2, 3, 4)
            assert bool((sample.sum(-1) == 4).all())
    for have, want in zip([*found[0], *found[1]], [*found[2], *found[3]], strict=True):
        np.testing.assert_allclose(have.numpy(), want.numpy(), rtol=1e-6)
    with flow.fork_rng() as generator:
        generator.manual_seed(2)
        counts = dist.Multinomial(4, flow.tensor(PROBS)).sample((20000,)).numpy()
    np.testing.assert_allclose(counts.mean(0), (4 * PROBS / PROBS.sum(-1, keepdims=True)), atol=0.05)
    assert dist.Multinomial(2, flow.tensor([0.0, 1.0])).log_prob(flow.tensor([0.0, 2.0])).abs().item() < 1e-6
    assert dist.Multinomial(0, flow.ones(2)).sample().tolist() == [0, 0]
    with pytest.raises(ValueError, match="value given to Multinomial must fulfil"):
        dist.Multinomial(2, flow.tensor([0.5, 0.5]), validate_args=True).log_prob(flow.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="total_count must be at least 0, not -1"):
        dist.Multinomial(-1, flow.ones(2))
    with pytest.raises(TypeError, match="must be an integer"):
        dist.Multinomial(1.5, flow.ones(2))  # type: ignore[arg-type]


def test_relaxed_rows_as_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (flow, torch):
        d, t = library.distributions, library.tensor
        temperature, logits = t(0.7, requires_grad=True), t(PROBS.astype(np.float32), requires_grad=True)
        relaxed = d.RelaxedOneHotCategorical(temperature, logits=logits)
        values = t(np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (5, 3, 1)))
        density = relaxed.log_prob(values)
        found.append([density, *library.autograd.grad(density.sum(), [temperature, logits])])
        assert tuple(relaxed.expand((2, 3)).rsample((4,)).shape) == (4, 2, 3, 4)
    for have, want in zip(*found, strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    with flow.fork_rng() as generator:
        generator.manual_seed(7)
        sample = dist.RelaxedOneHotCategorical(0.1, flow.tensor(PROBS)).rsample((20000,))
    np.testing.assert_allclose(sample.sum(-1).numpy(), np.ones((20000, 3)), rtol=1e-6)
    shares = np.eye(4)[sample.argmax(-1).numpy()].mean(0)
    np.testing.assert_allclose(shares, PROBS / PROBS.sum(-1, keepdims=True), atol=0.02)
    with pytest.raises(ValueError, match="without dimensions"):
        dist.RelaxedOneHotCategorical(flow.ones(2), flow.ones(2))
    assert dist.RelaxedOneHotCategorical(0.5, flow.ones(0, 3)).rsample((2,)).shape == (2, 0, 3)  # an empty batch
