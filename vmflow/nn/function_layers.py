"""The layers that are one function with settings: activations, dropout, reshaping and losses.

Each names its function and which of the layer's attributes the function takes; the call itself is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from vmflow.ops import view as views
from vmflow.tensors import Tensor

from . import functional as F
from .module import Module


class FunctionLayer(Module):
    """Calls `function` with the layer's arguments and, by keyword, with its attributes named in `settings`.

    Attributes:
        function: what to call.
        settings: the attributes handed over; they may be changed between calls.
        shown: those that the repr shows; `inplace` is shown where it is True.
        tensors: those that are tensors or None, and registered as buffers.
    """

    function: ClassVar[Callable[..., Any]]
    settings: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[tuple[str, ...]] = ()
    tensors: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        for name, value in settings.items():
            if name in self.tensors:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs: Any) -> Any:
        """What `function` returns."""
        return self.function(*inputs, **{name: getattr(self, name) for name in self.settings})

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self.shown]
        if "inplace" in self.settings and "inplace" not in self.shown and self.inplace:
            parts.append("inplace=True")
        return ", ".join(parts)


# Activations


class ReLU(FunctionLayer):
    """``max(x, 0)``."""

    function = staticmethod(F.relu)
    settings = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class GELU(FunctionLayer):
    """``x`` times the normal distribution's probability below ``x``; `approximate` is "none" or "tanh"."""

    function = staticmethod(F.gelu)
    settings = shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class SiLU(FunctionLayer):
    """``x * sigmoid(x)``."""

    function = staticmethod(F.silu)
    settings = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class Tanh(FunctionLayer):
    """The hyperbolic tangent."""

    function = staticmethod(F.tanh)


class Sigmoid(FunctionLayer):
    """``1 / (1 + exp(-x))``."""

    function = staticmethod(F.sigmoid)


class Softmax(FunctionLayer):
    """Exponentials along `dim`, divided by their sum."""

    function = staticmethod(F.softmax)
    settings = shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class LogSoftmax(FunctionLayer):
    """The logarithm of `Softmax`, computed without overflow."""

    function = staticmethod(F.log_softmax)
    settings = shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class LeakyReLU(FunctionLayer):
    """``x`` where positive, else ``negative_slope * x``."""

    function = staticmethod(F.leaky_relu)
    settings = ("negative_slope", "inplace")
    shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(FunctionLayer):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    function = staticmethod(F.elu)
    settings = ("alpha", "inplace")
    shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Softplus(FunctionLayer):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above `threshold`."""

    function = staticmethod(F.softplus)
    settings = shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(FunctionLayer):
    """``x`` kept within [min_val, max_val].

    Raises:
        ValueError: if the limits leave nothing between them.
    """

    function = staticmethod(F.hardtanh)
    settings = ("min_val", "max_val", "inplace")
    shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val {min_val} is not below max_val {max_val}")
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class Dropout(FunctionLayer):
    """In training mode, zero each element with probability `p` and divide the others by ``1 - p``.

    Raises:
        ValueError: if `p` is no probability.
    """

    function = staticmethod(F.dropout)
    settings = ("p", "training", "inplace")
    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: the probability must be within [0, 1], got {p}")
        super().__init__(p=p, inplace=inplace)


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
    settings = shown = ("start_dim", "end_dim")

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


class CrossEntropyLoss(FunctionLayer):
    """Cross entropy of logits (N, C, ...) and class indices (N, ...), or class probabilities (N, C, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: how much of each target is spread evenly over all classes.
    """

    function = staticmethod(F.cross_entropy)
    settings = ("weight", "ignore_index", "reduction", "label_smoothing")
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


class NLLLoss(FunctionLayer):
    """Negative log likelihood of log-probabilities (N, C, ...) and class indices (N, ...).

    Args:
        weight: of each class, (C,).
        ignore_index: the class index that counts for nothing.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.nll_loss)
    settings = ("weight", "ignore_index", "reduction")
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)


class MSELoss(FunctionLayer):
    """The squared difference."""

    function = staticmethod(F.mse_loss)
    settings = ("reduction",)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class L1Loss(FunctionLayer):
    """The absolute difference."""

    function = staticmethod(F.l1_loss)
    settings = ("reduction",)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class SmoothL1Loss(FunctionLayer):
    """The absolute difference, less ``beta / 2``; below `beta`, the squared one over ``2 * beta``."""

    function = staticmethod(F.smooth_l1_loss)
    settings = ("reduction", "beta")

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction, beta=beta)


class HuberLoss(FunctionLayer):
    """Half the squared difference; above `delta`, ``delta * (|difference| - delta / 2)``."""

    function = staticmethod(F.huber_loss)
    settings = ("reduction", "delta")

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class BCELoss(FunctionLayer):
    """Binary cross entropy of probabilities and targets of the same shape, both within [0, 1].

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
    """

    function = staticmethod(F.binary_cross_entropy)
    settings = ("weight", "reduction")
    tensors = ("weight",)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(FunctionLayer):
    """Binary cross entropy of logits and targets of the same shape, computed without overflow.

    Args:
        weight: of each element, broadcast to the shape.
        reduction: "mean", "sum" or "none".
        pos_weight: of the positive targets, broadcast to the shape.
    """

    function = staticmethod(F.binary_cross_entropy_with_logits)
    settings = ("weight", "reduction", "pos_weight")
    tensors = ("weight", "pos_weight")

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight=weight, reduction=reduction, pos_weight=pos_weight)


class KLDivLoss(FunctionLayer):
    """``target * (log(target) - input)`` for log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none" or "batchmean" (the sum over the batch size, the true divergence).
        log_target: whether the target holds log-probabilities too.
    """

    function = staticmethod(F.kl_div)
    settings = ("reduction", "log_target")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)
