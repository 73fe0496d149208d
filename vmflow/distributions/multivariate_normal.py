"""The normal distribution of vectors, by its covariance, its inverse, or a triangular factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from vmflow.ops.creation import eye
from vmflow.ops.decompositions import cholesky, solve_triangular
from vmflow.ops.joining import flip
from vmflow.ops.linear_algebra import matmul
from vmflow.ops.table import broadcast_shapes
from vmflow.random import randn
from vmflow.tensors import Tensor

from . import constraints
from .constraints import Constraint
from .distribution import Distribution, one_of


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower triangular L with ``L @ L.mT`` the inverse of `precision`."""
    turned = flip(cholesky(flip(precision, (-2, -1))), (-2, -1)).mT
    identity = eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return solve_triangular(turned, identity, upper=False)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors.

    Args:
        loc: (..., n), the mean.
        covariance_matrix: (..., n, n), positive definite.
        precision_matrix: instead of it, its inverse.
        scale_tril: instead of both, the lower triangular L with ``L @ L.mT`` the covariance.
        validate_args: whether to look at values; see `Distribution`.

    Raises:
        ValueError: unless exactly one of the three is given, of a shape that fits.
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
        # Once, and after the check, whose message says more than that of a factor that does not exist.
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
        """The lower triangular factor of the covariance."""
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
        identity = eye(self.loc.shape[-1], dtype=self.loc.dtype, device=self.loc.device)
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
        drawn = randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + matmul(self._factor, drawn.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = squared_distance(self._factor, self._check_sample(value) - self.loc)
        return (distance + self.loc.shape[-1] * math.log(2 * math.pi)) * -0.5 - half_logdet(self._factor)

    def entropy(self) -> Tensor:
        return half_logdet(self._factor) + 0.5 * self.loc.shape[-1] * (1 + math.log(2 * math.pi))


def squared_distance(factor: Tensor, difference: Tensor) -> Tensor:
    """The squared Mahalanobis length of vectors, given the factor of the covariance."""
    return solve_triangular(factor, difference.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)


def half_logdet(factor: Tensor) -> Tensor:
    """Half the logarithm of the determinant of the matrix that has this triangular factor."""
    return factor.diagonal(0, -2, -1).log().sum(-1)
