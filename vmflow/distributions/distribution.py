"""The base of all distributions: shapes, sampling without gradients, and the checks of arguments.

A sample has the shape ``sample_shape + batch_shape + event_shape``: the shapes of the draws of one call, of the batch
of distributions, and of a single draw.  With `validate_args`, the constraints of parameters and values are checked;
without, few of them are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, Self

from vmflow import dtypes
from vmflow.autograd.grad_mode import no_grad
from vmflow.instructions.blob import Size
from vmflow.ops.creation.creation import tensor
from vmflow.ops.table import broadcast_shapes
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import constraints
from .constraints import Constraint

Number = float | int | bool


class Distribution:
    """The base of all distributions.

    Args:
        batch_shape: the shape of the batch of distributions.
        event_shape: the shape of a single draw.
        validate_args: whether to check the parameters, and the values given to methods such as `log_prob`, which blocks
            until they are computed; by default the value given to `set_default_validate_args`, False at first.

    Attributes:
        arg_constraints: the constraints of the parameters, by name.
        has_rsample: whether there is `rsample`, whose samples have gradients by the parameters.
        has_enumerate_support: whether there is `enumerate_support`, which lists all values.

    Raises:
        ValueError: with `validate_args`, if a parameter violates its constraint.

    Example:
        >>> normal = flow.distributions.Normal(flow.zeros(3), flow.ones(3))
        >>> normal.batch_shape, normal.event_shape, normal.sample((2,)).shape
        (vmflow.Size([3]), vmflow.Size([]), vmflow.Size([2, 3]))
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    _validates_by_default: ClassVar[bool] = False

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        self._validates = self._validates_by_default if validate_args is None else bool(validate_args)
        if self._validates:
            for name in self._given():
                _check(
                    self.arg_constraints[name], getattr(self, name), f"the parameter {name} of {type(self).__name__}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set the default of `validate_args` for new distributions.

        Raises:
            ValueError: if `value` equals neither True nor False.
        """
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, not {value!r}")
        Distribution._validates_by_default = bool(value)

    def _given(self) -> tuple[str, ...]:
        """The names in `arg_constraints` of the parameters that this distribution was made with."""
        return tuple(self.arg_constraints)

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of a single draw."""
        return self._event_shape

    @property
    def support(self) -> Constraint:
        """The constraint of samples."""
        raise NotImplementedError(f"{type(self).__name__} has no support")

    @property
    def mean(self) -> Tensor:
        """The mean of each distribution: NaN or inf if not finite, NaN for `Categorical`; some classes lack it."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value of each distribution; some classes give NaN, at least in some cases, some lack it."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of `variance`."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw values as a differentiable function of the parameters; NotImplementedError unless `has_rsample`."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; use sample()")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a `value` in the support."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of samples up to a `value` in the support; some classes lack it."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Tensor:
        """The entropy of each distribution, in nats; some classes lack it."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """List all values that a sample can have, along a new first dimension; some classes lack it.

        With `expand`, the shape is (values, *batch_shape, *event_shape); else the batch dimensions have size 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    def expand(self, batch_shape: Sequence[int]) -> Self:
        """Return the same distributions with their batch expanded to `batch_shape`."""
        wanted = tuple(batch_shape)
        parameters = {
            name: getattr(self, name).expand(
                wanted
                + tuple(getattr(self, name).shape[getattr(self, name).ndim - self.arg_constraints[name].event_dim :])
            )
            for name in self._given()
        }
        return type(self)(**parameters, validate_args=self._validates)

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Reshape `values`, (count, *event_shape), for `enumerate_support`; with `expand`, expand them, too."""
        batch, (count, *event) = tuple(self._batch_shape), values.shape
        listed = values.reshape(count, *[1] * len(batch), *event)
        return listed.expand((count, *batch, *event)) if expand else listed

    def _extended_shape(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        return (*tuple(sample_shape), *self._batch_shape, *self._event_shape)

    def _drawn(self, draw: Callable[..., Tensor], sample_shape: Sequence[int], like: Tensor) -> Tensor:
        """Draw random numbers of the shape of samples by `draw`, with the dtype of `like`, on its device and ranks."""
        return beside(draw(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device), like)

    def _check_sample(self, value: Any) -> Tensor:
        """Check that `value` is a tensor that can be a sample of this distribution, and return it.

        Raises:
            TypeError: if `value` is no tensor.
            ValueError: if its shape does not broadcast with that of samples; with `validate_args`, for values outside
                of `support`.
        """
        sample = self._check_shape(value)
        if self._validates:
            _check(self.support, sample, f"the value given to {type(self).__name__}")
        return sample

    def _check_shape(self, value: Any) -> Tensor:
        """Return `value`; TypeError if it is no tensor, ValueError if samples do not broadcast with its shape."""
        name = type(self).__name__
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
        broadcast_shapes(name, tuple(value.shape), self._extended_shape(()))
        return value

    def __repr__(self) -> str:
        shown = [
            f"{name}: {value if value.numel() == 1 else value.shape}"
            for name in self._given()
            for value in [getattr(self, name)]
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _check(constraint: Constraint, value: Tensor, name: str) -> None:
    if not constraint.check(value.detach()).all().item():
        raise ValueError(f"{name} must fulfil {constraint}, but some elements do not:\n{value.detach()}")


def parameters(name: str, *given: Tensor | Number) -> tuple[Tensor, ...]:
    """Convert the parameters of a distribution to tensors, and broadcast them to one shape.

    Numbers take the device of the first tensor, and its dtype if that is floating-point, else the default dtype.

    Args:
        name: the name of the distribution, for error messages.
        given: the parameters, tensors or real numbers.

    Raises:
        TypeError: for a value of another type.
        ValueError: if the shapes do not broadcast.
    """
    for value in given:
        if not isinstance(value, (Tensor, Real)):
            raise TypeError(f"{name}: parameters are tensors or real numbers, not {type(value).__name__}")
    first = next((value for value in given if isinstance(value, Tensor)), None)
    dtype = first.dtype if first is not None and first.dtype.is_floating_point else dtypes.get_default_dtype()
    device = None if first is None else first.device
    tensors = []
    for value in given:
        made = value if isinstance(value, Tensor) else tensor(float(value), dtype=dtype, device=device)
        tensors.append(made if first is None else beside(made, first))
    shape = broadcast_shapes(name, *[tuple(value.shape) for value in tensors])
    return tuple([value if tuple(value.shape) == shape else value.expand(shape) for value in tensors])


def one_of(name: str, **given: Tensor | Number | None) -> tuple[str, Any]:
    """Return the name and the value of the only keyword argument that is not None.

    Raises:
        ValueError: unless exactly one argument is not None.
    """
    present = [(key, value) for key, value in given.items() if value is not None]
    if len(present) != 1:
        raise ValueError(f"{name}: expected exactly one of {', '.join(given)}, got {len(present)} of them")
    return present[0]


class Independent(Distribution):
    """A distribution that counts the last batch dimensions of `base_distribution` as dimensions of the event.

    `log_prob` and `entropy` are sums over these dimensions.

    Args:
        base_distribution: any distribution.
        reinterpreted_batch_ndims: the number of batch dimensions that become event dimensions.
        validate_args: has no effect: `base_distribution` checks values if it was made so.

    Raises:
        ValueError: if `reinterpreted_batch_ndims` is negative or exceeds the number of batch dimensions.

    Example:
        >>> normal = flow.distributions.Normal(flow.zeros(2, 3), 1.0)
        >>> vectors = flow.distributions.Independent(normal, 1)
        >>> vectors.batch_shape, vectors.event_shape, vectors.log_prob(flow.zeros(2, 3)).shape
        (vmflow.Size([2]), vmflow.Size([3]), vmflow.Size([2]))
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
        """Whether the base distribution has `rsample`."""
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
