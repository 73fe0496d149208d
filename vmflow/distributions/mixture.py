"""`MixtureSameFamily`: each sample comes from one component, drawn at random from several of the same family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from vmflow.autograd.grad_mode import no_grad
from vmflow.ops.indexing.gathering import gather
from vmflow.ops.reduction.composed_reduction import logsumexp
from vmflow.tensors import Tensor

from . import constraints
from .constraints import Constraint
from .discrete import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """A mixture of distributions: each sample comes from a component that `mixture_distribution` draws.

    Args:
        mixture_distribution: the distribution of the component's index, with a class for each component.
        component_distribution: the components, along the last dimension of its batch.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if the arguments are not a `Categorical` and a distribution.
        ValueError: unless the components' batch shape is ``(*batch, classes)``, where the batch shape of
            `mixture_distribution` is `batch` or ().

    Example:
        >>> weights = flow.distributions.Categorical(flow.tensor([0.25, 0.75]))
        >>> parts = flow.distributions.Normal(flow.tensor([-1.0, 1.0]), 0.5)
        >>> mixture = flow.distributions.MixtureSameFamily(weights, parts)
        >>> mixture.mean, mixture.variance, mixture.sample((4,)).shape
        (tensor(0.5000), tensor(1.), vmflow.Size([4]))
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical) or not isinstance(component_distribution, Distribution):
            raise TypeError(
                "MixtureSameFamily: expected a Categorical and a distribution, got "
                f"{type(mixture_distribution).__name__} and {type(component_distribution).__name__}"
            )
        batch = tuple(component_distribution.batch_shape)
        classes = mixture_distribution.param_shape[-1]
        own = tuple(mixture_distribution.batch_shape)
        if not batch or batch[-1] != classes or own not in ((), batch[:-1]):
            raise ValueError(
                f"MixtureSameFamily: the batch {list(batch)} of the components must end with the {classes} classes, "
                f"behind the batch {list(own)} of the mixture"
            )
        self._mixture = mixture_distribution if own == batch[:-1] else mixture_distribution.expand(batch[:-1])
        self._components = component_distribution
        super().__init__(batch[:-1], tuple(component_distribution.event_shape), validate_args)

    def _given(self) -> tuple[str, ...]:
        return ()

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component's index."""
        return self._mixture

    @property
    def component_distribution(self) -> Distribution:
        """The distribution of the components, which lie along the last dimension of its batch."""
        return self._components

    @property
    def support(self) -> Constraint:
        """The constraint of values that every component can have."""
        return constraints.of_every_component(self._components.support)

    def _weighted(self, values: Tensor) -> Tensor:
        """The mean of the components' `values`, weighted by the components' probabilities."""
        probs = self._mixture.probs
        events = len(self._event_shape)
        return (probs.reshape((*probs.shape, *[1] * events)) * values).sum(-1 - events)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._components.mean)

    @property
    def variance(self) -> Tensor:
        means = self._components.mean
        distance = means - self._weighted(means).unsqueeze(-1 - len(self._event_shape))
        return self._weighted(self._components.variance) + self._weighted(distance.square())

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        events = len(self._event_shape)
        with no_grad():
            chosen = self._mixture.sample(sample_shape)
            drawn = self._components.sample(sample_shape)
            places = chosen.reshape((*chosen.shape, *[1] * (events + 1)))
            places = places.expand((*chosen.shape, 1, *self._event_shape))
            return gather(drawn, drawn.ndim - 1 - events, places).squeeze(-1 - events)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value).unsqueeze(-1 - len(self._event_shape))
        return logsumexp(self._components.log_prob(value) + self._mixture.logits, -1)

    def cdf(self, value: Tensor) -> Tensor:
        # Only the shape is checked, because other values than samples have a cdf, too.
        return (self._components.cdf(self._check_shape(value).unsqueeze(-1)) * self._mixture.probs).sum(-1)

    def expand(self, batch_shape: Sequence[int]) -> Self:
        classes = self._components.batch_shape[-1]
        components = self._components.expand((*batch_shape, classes))
        return type(self)(self._mixture.expand(batch_shape), components, self._validates)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture}, {self._components})"
