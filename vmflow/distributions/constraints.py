"""Named conditions on the parameters and samples of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from vmflow.ops.linalg.decompositions import eigvalsh
from vmflow.tensors import Tensor


@attrs.frozen(eq=False, repr=False)
class Constraint:
    """A condition on tensors: real, positive or one-hot values, for instance.

    Attributes:
        name: the condition's name in error messages.
        is_discrete: whether only integers fulfil the condition.
        event_dim: the number of last dimensions that are checked as a whole: 0 for numbers, 1 for vectors.
    """

    name: str
    _holds: Callable[[Tensor], Tensor]
    is_discrete: bool = False
    event_dim: int = 0

    def check(self, value: Tensor) -> Tensor:
        """Return a bool tensor without the last `event_dim` dimensions: whether each event fulfils the condition."""
        return self._holds(value)

    def __repr__(self) -> str:
        return self.name


def interval(lower_bound: Tensor | float, upper_bound: Tensor | float) -> Constraint:
    """The constraint of numbers between two bounds, both included."""
    return Constraint("Interval", lambda value: (value >= lower_bound) & (value <= upper_bound))


def greater_than_eq(lower_bound: Tensor | float) -> Constraint:
    """The constraint of numbers that are at least `lower_bound`."""
    return Constraint("GreaterThanEq", lambda value: value >= lower_bound)


def nonnegative_integers_up_to(upper_bound: Tensor) -> Constraint:
    """The constraint of integers from 0 to `upper_bound`, included; the bound may differ between elements."""
    return Constraint(
        "IntegerInterval(0, total_count)",
        lambda value: (value % 1 == 0) & (value >= 0) & (value <= upper_bound),
        is_discrete=True,
    )


def counts_of(total: int) -> Constraint:
    """The constraint of vectors, along the last dimension, of integers that are not negative and sum to `total`."""
    return Constraint(
        f"Multinomial({total})",
        lambda value: ((value >= 0) & (value % 1 == 0)).all(-1) & (value.sum(-1) == total),
        is_discrete=True,
        event_dim=1,
    )


def integer_interval(lower_bound: int, upper_bound: int) -> Constraint:
    """The constraint of integers from `lower_bound` to `upper_bound`, both included."""
    return Constraint(
        f"IntegerInterval({lower_bound}, {upper_bound})",
        lambda value: (value % 1 == 0) & (value >= lower_bound) & (value <= upper_bound),
        is_discrete=True,
    )


def independent(base: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """The constraint that all events along `reinterpreted_batch_ndims` more dimensions fulfil `base`."""

    def holds(value: Tensor) -> Tensor:
        each = base.check(value)
        return each.flatten(each.ndim - reinterpreted_batch_ndims).all(-1) if reinterpreted_batch_ndims else each

    return Constraint(f"{base} of each", holds, base.is_discrete, base.event_dim + reinterpreted_batch_ndims)


def of_every_component(base: Constraint) -> Constraint:
    """The constraint of values that every component of a mixture can have.

    `base` is the support of the batch of components, whose last dimension numbers them; the values lack that dimension.
    """
    return Constraint(
        f"{base} of every component",
        lambda value: base.check(value.unsqueeze(-1 - base.event_dim)).all(-1),
        base.is_discrete,
        base.event_dim,
    )


def _is_positive_definite(value: Tensor) -> Tensor:
    symmetric: Tensor = ((value - value.mT).abs() <= 1e-6).flatten(-2).all(-1)
    return symmetric & (eigvalsh(value) > 0).all(-1)


def _is_lower_cholesky(value: Tensor) -> Tensor:
    triangular: Tensor = (value.tril() == value).flatten(-2).all(-1)
    return triangular & (value.diagonal(0, -2, -1) > 0).all(-1)


real: Final = Constraint("Real", lambda value: value == value)
real_vector: Final = Constraint("RealVector", lambda value: (value == value).all(-1), event_dim=1)
positive: Final = Constraint("GreaterThan(0)", lambda value: value > 0)
positive_vector: Final = Constraint("GreaterThan(0) of each", lambda value: (value > 0).all(-1), event_dim=1)
nonnegative: Final = Constraint("GreaterThanEq(0)", lambda value: value >= 0)
nonnegative_integer: Final = Constraint(
    "IntegerGreaterThan(0)", lambda value: (value >= 0) & (value == value.floor()), is_discrete=True
)
half_open_unit_interval: Final = Constraint("HalfOpenInterval(0, 1)", lambda value: (value >= 0) & (value < 1))
unit_interval: Final = Constraint("Interval(0, 1)", lambda value: (value >= 0) & (value <= 1))
boolean: Final = Constraint("Boolean", lambda value: (value == 0) | (value == 1), is_discrete=True)
one_hot: Final = Constraint(
    "OneHot",
    lambda value: ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1),
    is_discrete=True,
    event_dim=1,
)
simplex: Final = Constraint(
    "Simplex", lambda value: (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6), event_dim=1
)
positive_definite: Final = Constraint("PositiveDefinite", _is_positive_definite, event_dim=2)
lower_cholesky: Final = Constraint("LowerCholesky", _is_lower_cholesky, event_dim=2)
