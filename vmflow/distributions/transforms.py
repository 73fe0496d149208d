"""Functions of random variables, and the distributions of their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Self

from vmflow.autograd.grad_mode import no_grad
from vmflow.dtypes import finfo
from vmflow.ops.elementwise.activation import sigmoid, softplus
from vmflow.ops.table import broadcast_shapes
from vmflow.tensors import Tensor

from . import constraints
from .constraints import Constraint
from .distribution import Distribution, summed


class Transform:
    """A function, mostly invertible, with the logarithm of its Jacobian determinant.

    Derived classes define `_call`, `_inverse` and `log_abs_det_jacobian`, `sign` if there is one, and `forward_shape`
    and `inverse_shape` if they may change the shape.

    Attributes:
        domain, codomain: the constraints of the function's arguments and results.
        bijective: whether the function is one-to-one, which is assumed if a parameter is a tensor.
        sign: 1 if the function increases, -1 if it decreases, as a tensor if a parameter is one; some classes lack it.
        event_dim: the number of last dimensions that form one argument: 0 for numbers, 1 for vectors.

    Example:
        >>> double = flow.distributions.AffineTransform(0.0, 2.0)
        >>> x = flow.tensor([0.0, 1.0])
        >>> double(x), double.undo(double(x)), double.log_abs_det_jacobian(x, double(x))
        (tensor([0., 2.]), tensor([0., 1.]), tensor([0.6931, 0.6931]))
    """

    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    bijective: bool = True
    event_dim: int = 0

    @property
    def sign(self) -> Tensor | int:
        raise NotImplementedError(f"{type(self).__name__} has no sign, 1 if it increases or -1 if it decreases")

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the transform to `x`."""
        return self._call(x)

    def undo(self, y: Tensor) -> Tensor:
        """Apply the inverse: return the x, or one of several, for which the transform of x is `y`."""
        return self._inverse(y)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no function")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the absolute Jacobian determinant at `x`; `y` is the transform of `x`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the transform of a tensor of this `shape`; the same shape by default."""
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that `undo` returns for a tensor of this `shape`; the same shape by default."""
        return tuple(shape)

    @property
    def inv(self) -> Transform:
        """The inverse transform."""
        return _Inverse(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    """The inverse of a transform."""

    def __init__(self, of: Transform) -> None:
        self._of = of
        self.domain, self.codomain = of.codomain, of.domain
        self.bijective, self.event_dim = of.bijective, of.event_dim

    @property
    def sign(self) -> Tensor | int:
        return self._of.sign

    def _call(self, x: Tensor) -> Tensor:
        return self._of.undo(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return self._of.forward_shape(shape)

    @property
    def inv(self) -> Transform:
        return self._of

    def __repr__(self) -> str:
        return f"{self._of!r}.inv"


class ExpTransform(Transform):
    """``exp(x)``.

    Example:
        >>> flow.distributions.ExpTransform()(flow.tensor([0.0, -flow.inf]))
        tensor([1., 0.])
    """

    codomain = constraints.positive
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """``x ** exponent``, of positive numbers.

    Args:
        exponent: a number, or a tensor whose shape broadcasts with the argument's.

    Raises:
        TypeError: if `exponent` is neither a real number nor a tensor.

    Example:
        >>> square = flow.distributions.PowerTransform(2)
        >>> square(flow.tensor([1.0, 3.0])), square.undo(flow.tensor([1.0, 9.0]))
        (tensor([1., 9.]), tensor([1., 3.]))
    """

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Tensor | float) -> None:
        self._sign = _sign_of("PowerTransform: exponent", exponent)
        self.bijective = isinstance(exponent, Tensor) or exponent != 0
        self.exponent = exponent

    @property
    def sign(self) -> Tensor | int:
        return self._sign

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast("PowerTransform", shape, self.exponent)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast("PowerTransform", shape, self.exponent)


class SigmoidTransform(Transform):
    """``1 / (1 + exp(-x))``, clamped so that no result is 0 or 1.

    Example:
        >>> flow.distributions.SigmoidTransform()(flow.tensor(0.0))
        tensor(0.5000)
    """

    codomain = constraints.unit_interval
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        limits = finfo(x.dtype)
        return sigmoid(x).clamp(limits.tiny, 1 - limits.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = finfo(y.dtype)
        y = y.clamp(limits.tiny, 1 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """``tanh(x)``.

    Example:
        >>> flow.distributions.TanhTransform()(flow.tensor([0.0, flow.inf]))
        tensor([0., 1.])
    """

    codomain = constraints.interval(-1.0, 1.0)
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (math.log(2) - x - softplus(x * -2)) * 2


class SoftplusTransform(Transform):
    """``log(1 + exp(x))``.

    Example:
        >>> flow.distributions.SoftplusTransform()(flow.tensor([-flow.inf, 100.0]))
        tensor([  0., 100.])
    """

    codomain = constraints.positive
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class AbsTransform(Transform):
    """``abs(x)``; of the two numbers with the same absolute value, the inverse returns the positive one.

    A `TransformedDistribution` with it has samples, but no `log_prob`, `cdf` or `icdf`.

    Example:
        >>> flow.distributions.AbsTransform()(flow.tensor([-2.0, 3.0]))
        tensor([2., 3.])
    """

    codomain = constraints.positive
    bijective = False

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """``loc + scale * x``.

    Args:
        loc, scale: numbers or tensors, whose shapes broadcast with the argument's.
        event_dim: the number of last dimensions that form one argument; the log-determinant sums over them.

    Raises:
        TypeError: if `scale` is neither a real number nor a tensor.

    Example:
        >>> celsius = flow.distributions.AffineTransform(-17.5, 0.5)
        >>> celsius(flow.tensor([35.0, 45.0])), celsius.undo(flow.tensor(0.0))
        (tensor([0., 5.]), tensor(35.))
    """

    def __init__(self, loc: Tensor | float, scale: Tensor | float, event_dim: int = 0) -> None:
        self._sign = _sign_of("AffineTransform: scale", scale)
        self.bijective = isinstance(scale, Tensor) or scale != 0
        self.loc = loc
        self.scale = scale
        self.event_dim = event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self) -> Tensor | int:
        return self._sign

    def _call(self, x: Tensor) -> Tensor:
        return x * self.scale + self.loc

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            each = self.scale.abs().log().expand(broadcast_shapes("AffineTransform", x.shape, self.scale.shape))
        else:
            each = x.new_full(tuple(x.shape), math.log(abs(self.scale)))
        return summed(each, self.event_dim)

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast("AffineTransform", shape, self.loc, self.scale)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return _broadcast("AffineTransform", shape, self.loc, self.scale)


class ComposeTransform(Transform):
    """Several transforms, one after another.

    Args:
        parts: the transforms; the first is applied first.

    Raises:
        TypeError: if `parts` is no sequence of transforms.

    Example:
        >>> half, exp = flow.distributions.AffineTransform(0.0, 0.5), flow.distributions.ExpTransform()
        >>> flow.distributions.ComposeTransform([half, exp])(flow.tensor([0.0, 0.0]))
        tensor([1., 1.])
    """

    def __init__(self, parts: Sequence[Transform]) -> None:
        self.parts = list(parts)
        for part in self.parts:
            if not isinstance(part, Transform):
                raise TypeError(f"ComposeTransform: expected transforms, got {type(part).__name__}")
        self.event_dim = max([part.event_dim for part in self.parts], default=0)
        self.bijective = all([part.bijective for part in self.parts])
        if self.parts:
            self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    @property
    def sign(self) -> Tensor | int:
        return math.prod([part.sign for part in self.parts])

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.undo(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total = summed(x.new_zeros(tuple(x.shape)), self.event_dim)
        for part in self.parts:
            y = part(x)
            total = total + summed(part.log_abs_det_jacobian(x, y), self.event_dim - part.event_dim)
            x = y
        return total

    def forward_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


class TransformedDistribution(Distribution):
    """The distribution of the transformed samples of a base distribution.

    The base distribution's batch is expanded to the shape to which the transforms' tensors, such as the `loc` of an
    `AffineTransform`, broadcast samples.

    `cdf` and `icdf` need samples that are single numbers, and one-to-one transforms with a `sign`; else they raise
    NotImplementedError.

    Args:
        base_distribution: any distribution.
        transforms: a transform, or a list of transforms that are applied one after another.
        validate_args: whether to check values; see `Distribution`.

    Raises:
        TypeError: if an element of `transforms` is no transform.
        ValueError: if the `event_dim` of a transform exceeds the number of dimensions of samples, or if a transform's
            tensors do not broadcast with samples.

    Example:
        >>> uniform = flow.distributions.Uniform(0.0, 1.0)
        >>> wide = flow.distributions.TransformedDistribution(uniform, flow.distributions.AffineTransform(1.0, 4.0))
        >>> wide.cdf(flow.tensor([1.0, 3.0])), wide.log_prob(flow.tensor(2.0)).exp()
        (tensor([0.0000, 0.5000]), tensor(0.2500))
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        parts = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for part in parts:
            if not isinstance(part, Transform):
                raise TypeError(f"TransformedDistribution: expected transforms, got {type(part).__name__}")
        self.transforms = parts
        own = (*base_distribution.batch_shape, *base_distribution.event_shape)
        events = max([len(base_distribution.event_shape), *[part.event_dim for part in parts]])
        if events > len(own):
            raise ValueError(
                f"TransformedDistribution: a transform takes {events} dimensions as a whole, and samples have the "
                f"shape {list(own)}"
            )
        together = ComposeTransform(parts)
        shape = together.forward_shape(own)
        before = together.inverse_shape(shape)
        if before != own:
            base_distribution = base_distribution.expand(before[: len(before) - len(base_distribution.event_shape)])
        self.base_dist = base_distribution
        kept = len(shape) - events
        super().__init__(shape[:kept], shape[kept:], validate_args)

    def _given(self) -> tuple[str, ...]:
        return ()

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base distribution has `rsample`."""
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        more = len(self._event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._check_sample(value)
        events = len(self._event_shape)
        stretched: Tensor | None = None
        for transform in reversed(self.transforms):
            before = transform.undo(value)
            part = summed(transform.log_abs_det_jacobian(before, value), events - transform.event_dim)
            stretched = part if stretched is None else stretched + part
            value = before
        of_base = summed(self.base_dist.log_prob(value), events - len(self.base_dist.event_shape))
        return of_base if stretched is None else of_base - stretched

    def _sign(self, name: str) -> Tensor | int:
        """1 if all transforms together increase, -1 if they decrease; `name` is the calling method, for errors.

        Raises:
            NotImplementedError: if samples are no single numbers, or a transform is not one-to-one or has no sign.
        """
        if self._event_shape:
            raise NotImplementedError(f"TransformedDistribution: {name} needs a distribution of single numbers")
        for transform in self.transforms:
            if not transform.bijective:
                raise NotImplementedError(
                    f"TransformedDistribution: {name} needs one-to-one transforms, and {transform!r} is not one-to-one"
                )
        return math.prod([transform.sign for transform in self.transforms])

    def cdf(self, value: Tensor) -> Tensor:
        sign = self._sign("cdf")
        value = self._check_sample(value)
        for transform in reversed(self.transforms):
            value = transform.undo(value)
        return _turned(self.base_dist.cdf(value), sign)

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(_turned(value, self._sign("icdf"))))

    def expand(self, batch_shape: Sequence[int]) -> Self:
        kept = tuple(self.base_dist.batch_shape)[len(self._batch_shape) :]
        return type(self)(self.base_dist.expand((*batch_shape, *kept)), self.transforms, self._validates)

    def __repr__(self) -> str:
        return f"TransformedDistribution({self.base_dist}, {self.transforms})"


def _broadcast(name: str, shape: Sequence[int], *factors: Tensor | float) -> tuple[int, ...]:
    """The shape to which a tensor of `shape` broadcasts with the tensors among `factors`."""
    given = [tuple(factor.shape) for factor in factors if isinstance(factor, Tensor)]
    return broadcast_shapes(name, tuple(shape), *given)


def _sign_of(name: str, factor: Tensor | float) -> Tensor | int:
    """The sign of a transform that increases for a positive `factor` and decreases for a negative one; 0 for 0.

    Raises:
        TypeError: if `factor`, the argument `name`, is neither a real number nor a tensor.
    """
    if isinstance(factor, Tensor):
        return factor.detach().sign()
    if not isinstance(factor, Real):
        raise TypeError(f"{name} must be a number or a tensor, not {type(factor).__name__}")
    return 1 if factor > 0 else -1 if factor < 0 else 0


def _turned(probability: Tensor, sign: Tensor | int) -> Tensor:
    """Return p where `sign` is 1, and 1 - p where it is -1: a decreasing transform swaps a distribution's tails."""
    if isinstance(sign, int) and sign == 1:
        return probability
    return (probability - 0.5) * sign + 0.5
