"""The layers of activations and dropouts."""

from __future__ import annotations

import warnings

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.nn.dropout import check_probability
from vmflow.random import Generator
from vmflow.tensors import Tensor

from . import functional as F, init
from .function_layers import FunctionLayer
from .module import Module
from .parameter import new_parameter


class _Plain(FunctionLayer):
    """An activation without settings."""

    def __init__(self) -> None:
        super().__init__()


class _InPlace(FunctionLayer):
    """An activation whose only setting is whether to write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class _AlongDimension(FunctionLayer):
    """A function whose only setting is the dimension."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class ReLU(_InPlace, function=F.relu):
    """``max(x, 0)``."""


class GELU(FunctionLayer, function=F.gelu):
    """``x`` times the normal distribution's probability below ``x``; `approximate` is "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class SiLU(_InPlace, function=F.silu):
    """``x * sigmoid(x)``."""


class Tanh(_Plain, function=F.tanh):
    """The hyperbolic tangent."""


class Sigmoid(_Plain, function=F.sigmoid):
    """``1 / (1 + exp(-x))``."""


class Softmax(_AlongDimension, function=F.softmax):
    """Exponentials along `dim`, divided by their sum."""


class LogSoftmax(_AlongDimension, function=F.log_softmax):
    """The logarithm of `Softmax`, computed without overflow."""


class LeakyReLU(FunctionLayer, function=F.leaky_relu):
    """``x`` where positive, else ``negative_slope * x``."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(FunctionLayer, function=F.elu):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Softplus(FunctionLayer, function=F.softplus):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(FunctionLayer, function=F.hardtanh):
    """``x`` kept within [min_val, max_val].  OneFlow calls them min_value and max_value, as PyTorch once did.

    Raises:
        ValueError: if the limits leave nothing between them.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        if min_value is not None:
            warnings.warn("Hardtanh: min_value is the old name of min_val", FutureWarning, stacklevel=2)
            min_val = min_value
        if max_value is not None:
            warnings.warn("Hardtanh: max_value is the old name of max_val", FutureWarning, stacklevel=2)
            max_val = max_value
        if not min_val < max_val:
            raise ValueError(f"Hardtanh: min_val {min_val} is not below max_val {max_val}")
        super().__init__(min_val=min_val, max_val=max_val, inplace=inplace)


class ReLU6(_InPlace, function=F.relu6):
    """``min(max(x, 0), 6)``."""


class Hardsigmoid(_InPlace, function=F.hardsigmoid):
    """``x / 6 + 1 / 2`` limited to [0, 1]."""

    shown = ()  # as in PyTorch


class Hardswish(_InPlace, function=F.hardswish):
    """``x * hardsigmoid(x)``."""

    shown = ()  # as in PyTorch


class Mish(_InPlace, function=F.mish):
    """``x * tanh(softplus(x))``."""


class SELU(_InPlace, function=F.selu):
    """`ELU`, scaled so that a mean of 0 and a variance of 1 are kept from layer to layer."""


class CELU(FunctionLayer, function=F.celu):
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class GLU(FunctionLayer, function=F.glu):
    """The first half along `dim`, times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSigmoid(_Plain, function=F.logsigmoid):
    """``log(sigmoid(x))``, accurate for inputs of any size."""


class Softsign(_Plain, function=F.softsign):
    """``x / (1 + |x|)``."""


class Tanhshrink(_Plain, function=F.tanhshrink):
    """``x - tanh(x)``."""


class QuickGELU(_Plain, function=F.quick_gelu):
    """``x * sigmoid(1.702 * x)``, under OneFlow's name."""


class SquareReLU(_Plain, function=F.square_relu):
    """``max(x, 0)**2``, under OneFlow's name."""


class Softmin(_AlongDimension, function=F.softmin):
    """`Softmax` of ``-x``."""


class Softmax2d(Module):
    """`Softmax` over the channels of (N, C, H, W), or (C, H, W).

    Raises:
        ValueError: when called with another number of dimensions.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The same shape, where the channels at each place add up to 1."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected (N, C, H, W) or (C, H, W), got shape {list(input.shape)}")
        return F.softmax(input, -3)


class Threshold(FunctionLayer, function=F.threshold):
    """``x`` where above `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class _Shrink(FunctionLayer):
    """An activation with a distance from 0 as its only setting."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink, function=F.hardshrink):
    """``x``, but 0 where within `lambd` of 0."""


class Softshrink(_Shrink, function=F.softshrink):
    """``x`` brought closer to 0 by `lambd`; 0 where it is no further away."""


class RReLU(FunctionLayer, function=F.rrelu):
    """``x`` where positive, else times a slope: in training mode random from [lower, upper), else the middle."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, training=True, inplace=inplace)


class PReLU(Module):
    """``x`` where positive, else times a slope that is trained.

    Args:
        num_parameters: 1, or the number of channels, the size of the input's dimension 1.
        init: the first slope.
        device, dtype: of the slopes.

    Attributes:
        weight: (num_parameters,).
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Go back to the first slope."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class _Dropout(FunctionLayer):
    """A dropout with a probability.

    Raises:
        ValueError: if `p` is no probability.
    """

    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p, training=True, inplace=inplace)


class Dropout(_Dropout, function=F.dropout):
    """In training mode, zero each element with probability `p` and divide the others by ``1 - p``.

    Args:
        p: the probability.
        inplace: whether to write into the input.
        generator: the source of random numbers, by default the default one; OneFlow's.

    Raises:
        ValueError: if `p` is no probability.
    """

    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = generator

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        """The input after dropout, plus `addend`, which is OneFlow's."""
        return F.dropout(input, self.p, self.training, self.inplace, addend=addend, generator=self.generator)


class Dropout1d(_Dropout, function=F.dropout1d):
    """In training mode, zero each channel of (N, C, L) with probability `p` and divide the others by ``1 - p``."""


class Dropout2d(_Dropout, function=F.dropout2d):
    """In training mode, zero each channel of (N, C, H, W) with probability `p` and divide the others by ``1 - p``."""


class Dropout3d(_Dropout, function=F.dropout3d):
    """In training mode, zero each channel of (N, C, D, H, W) with probability `p`, divide the others by ``1 - p``."""


class AlphaDropout(_Dropout, function=F.alpha_dropout):
    """Dropout that keeps the mean and variance of what `SELU` returns."""


class FeatureAlphaDropout(_Dropout, function=F.feature_alpha_dropout):
    """`AlphaDropout` of whole channels."""
