"""The layers that are one function with settings: activations, dropout, reshaping and losses.

Each names its function and which of the layer's attributes the function takes; the call itself is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from vmflow.ops import view as views
from vmflow.tensors import Tensor

from . import functional as F
from .module import DocumentedOnce, Module


class FunctionLayer(DocumentedOnce):
    """Calls `function` with the layer's arguments and, by keyword, with its settings.

    Args:
        settings: kept as attributes, which may be changed between calls.

    Attributes:
        function: what to call.
        shown: the settings in the repr; by default all but `training`, and `inplace` where it is True.
        tensors: the settings that are tensors or None, and are registered as buffers.
    """

    function: ClassVar[Callable[..., Any]]
    shown: ClassVar[tuple[str, ...] | None] = None
    tensors: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = tuple(settings)
        for name, value in settings.items():
            if name in self.tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        """The result of `function`."""
        return self.function(*inputs, **{name: getattr(self, name) for name in self._settings})

    def extra_repr(self) -> str:
        shown = self.shown
        if shown is None:
            hidden = ("training",) if getattr(self, "inplace", True) else ("training", "inplace")
            shown = tuple([name for name in self._settings if name not in hidden])
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])


# Activations


class PlainLayer(FunctionLayer):
    """An activation without settings."""

    def __init__(self) -> None:
        super().__init__()


class InPlaceLayer(FunctionLayer):
    """An activation whose only setting is whether to write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class AlongDimension(FunctionLayer):
    """A function whose only setting is the dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class ReLU(InPlaceLayer):
    """``max(x, 0)``."""

    function = staticmethod(F.relu)


class GELU(FunctionLayer):
    """``x`` times the normal distribution's probability below ``x``; `approximate` is "none" or "tanh"."""

    function = staticmethod(F.gelu)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class SiLU(InPlaceLayer):
    """``x * sigmoid(x)``."""

    function = staticmethod(F.silu)


class Tanh(PlainLayer):
    """The hyperbolic tangent."""

    function = staticmethod(F.tanh)


class Sigmoid(PlainLayer):
    """``1 / (1 + exp(-x))``."""

    function = staticmethod(F.sigmoid)


class Softmax(AlongDimension):
    """Exponentials along `dim`, divided by their sum."""

    function = staticmethod(F.softmax)


class LogSoftmax(AlongDimension):
    """The logarithm of `Softmax`, computed without overflow."""

    function = staticmethod(F.log_softmax)


class LeakyReLU(FunctionLayer):
    """``x`` where positive, else ``negative_slope * x``."""

    function = staticmethod(F.leaky_relu)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(FunctionLayer):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    function = staticmethod(F.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Softplus(FunctionLayer):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above `threshold`."""

    function = staticmethod(F.softplus)

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(FunctionLayer):
    """``x`` kept within [min_val, max_val].

    Raises:
        ValueError: if the limits leave nothing between them.
    """

    function = staticmethod(F.hardtanh)

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val {min_val} is not below max_val {max_val}")
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class DropoutLayer(FunctionLayer):
    """A dropout with a probability.

    Raises:
        ValueError: if `p` is no probability.
    """

    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: the probability must be within [0, 1], got {p}")
        super().__init__(p=p, training=True, inplace=inplace)


class Dropout(DropoutLayer):
    """In training mode, zero each element with probability `p` and divide the others by ``1 - p``.

    Raises:
        ValueError: if `p` is no probability.
    """

    function = staticmethod(F.dropout)


# Shapes


class Identity(Module):
    """The input itself; arguments to the constructor are ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input itself."""
        return input


class Flatten(FunctionLayer):
    """Make one dimension of those from `start_dim` to `end_dim`."""

    function = staticmethod(views.flatten)

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__(start_dim=start_dim, end_dim=end_dim)


class Unflatten(Module):
    """Make several dimensions of one.

    Args:
        dim: the dimension.
        unflattened_size: the new sizes, one of which may be -1.
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...] | list[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """The input seen with more dimensions."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


# Losses.  Each takes the prediction and the target; `reduction` is "mean", "sum" or "none".


class LossLayer(FunctionLayer):
    """A loss; its repr has no settings, as in PyTorch."""

    shown = ()


class PlainLoss(LossLayer):
    """A loss whose only setting is the reduction."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class CrossEntropyLoss(LossLayer):
    """Cross entropy of logits (N, C, ...) and class indices (N, ...), or class probabilities (N, C, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of each target is spread evenly over all classes.
    """

    function = staticmethod(F.cross_entropy)
    tensors = ("weight",)

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)


class NLLLoss(LossLayer):
    """Negative log likelihood of log-probabilities (N, C, ...) and class indices (N, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.nll_loss)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class MSELoss(PlainLoss):
    """The squared difference."""

    function = staticmethod(F.mse_loss)


class L1Loss(PlainLoss):
    """The absolute difference."""

    function = staticmethod(F.l1_loss)


class SmoothL1Loss(LossLayer):
    """The absolute difference, less ``beta / 2``; below `beta`, the squared one over ``2 * beta``."""

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction, beta=beta)


class HuberLoss(LossLayer):
    """Half the squared difference; above `delta`, ``delta * (|difference| - delta / 2)``."""

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(LossLayer):
    """Binary cross entropy of probabilities and targets of the same shape, both within [0, 1].

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.binary_cross_entropy)
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(LossLayer):
    """Binary cross entropy of logits and targets of the same shape, computed without overflow.

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast to the shape.
    """

    function = staticmethod(F.binary_cross_entropy_with_logits)
    tensors = ("weight", "pos_weight")

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)


class KLDivLoss(LossLayer):
    """``target * (log(target) - input)`` for log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none" or "batchmean" (the sum over the batch size, the true divergence).
        log_target: whether the target holds log-probabilities too.
    """

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)
