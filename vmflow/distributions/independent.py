"""Several distributions side by side as one distribution of several values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from vmflow.tensors import Tensor

from . import constraints
from .constraints import Constraint
from .distribution import Distribution


class Independent(Distribution):
    """`base_distribution`, with the last dimensions of its batch as part of the event.

    Args:
        base_distribution: any distribution.
        reinterpreted_batch_ndims: how many dimensions.
        validate_args: whether to look at values; see `Distribution`.

    Raises:
        ValueError: if the batch has not so many.
    """

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = tuple(base_distribution.batch_shape)
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ValueError(
                f"Independent: reinterpreted_batch_ndims must be from 0 to {len(batch)}, the dimensions of the batch "
                f"{list(batch)}, not {reinterpreted_batch_ndims}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        kept = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:kept], batch[kept:] + tuple(base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether that of the base does."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def expand(self, batch_shape: Sequence[int]) -> Self:
        kept = tuple(self.base_dist.batch_shape)[len(self._batch_shape) :]
        base = self.base_dist.expand((*batch_shape, *kept))
        return type(self)(base, self.reinterpreted_batch_ndims, self._validates)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


def summed(value: Tensor, dims: int) -> Tensor:
    """The sum over the last `dims` dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value
