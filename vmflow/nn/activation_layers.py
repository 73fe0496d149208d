"""More activations as layers, and the dropouts of channels and of self-normalising networks.

The commonest are in `function_layers`.
"""

from __future__ import annotations

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.tensors import Tensor

from . import functional as F
from . import init
from .function_layers import AlongDimension, DropoutLayer, FunctionLayer, InPlaceLayer, PlainLayer
from .initial import new_parameter
from .module import Module


class ReLU6(InPlaceLayer):
    """``min(max(x, 0), 6)``."""

    function = staticmethod(F.relu6)


class Hardsigmoid(InPlaceLayer):
    """``x / 6 + 1 / 2`` limited to [0, 1]."""

    function = staticmethod(F.hardsigmoid)
    shown = ()  # as in PyTorch


class Hardswish(InPlaceLayer):
    """``x * hardsigmoid(x)``."""

    function = staticmethod(F.hardswish)
    shown = ()  # as in PyTorch


class Mish(InPlaceLayer):
    """``x * tanh(softplus(x))``."""

    function = staticmethod(F.mish)


class SELU(InPlaceLayer):
    """`ELU`, scaled so that a mean of 0 and a variance of 1 are kept from layer to layer."""

    function = staticmethod(F.selu)


class CELU(FunctionLayer):
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``."""

    function = staticmethod(F.celu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class GLU(FunctionLayer):
    """The first half along `dim`, times the sigmoid of the second."""

    function = staticmethod(F.glu)

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSigmoid(PlainLayer):
    """``log(sigmoid(x))``, accurate for inputs of any size."""

    function = staticmethod(F.logsigmoid)


class Softsign(PlainLayer):
    """``x / (1 + |x|)``."""

    function = staticmethod(F.softsign)


class Tanhshrink(PlainLayer):
    """``x - tanh(x)``."""

    function = staticmethod(F.tanhshrink)


class QuickGELU(PlainLayer):
    """``x * sigmoid(1.702 * x)``, under OneFlow's name."""

    function = staticmethod(F.quick_gelu)


class SquareReLU(PlainLayer):
    """``max(x, 0)**2``, under OneFlow's name."""

    function = staticmethod(F.square_relu)


class Softmin(AlongDimension):
    """`Softmax` of ``-x``."""

    function = staticmethod(F.softmin)


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


class Threshold(FunctionLayer):
    """``x`` where above `threshold`, else `value`."""

    function = staticmethod(F.threshold)

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class _Shrink(FunctionLayer):
    """An activation with a distance from 0 as its only setting."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """``x``, but 0 where within `lambd` of 0."""

    function = staticmethod(F.hardshrink)


class Softshrink(_Shrink):
    """``x`` brought closer to 0 by `lambd`; 0 where it is no further away."""

    function = staticmethod(F.softshrink)


class RReLU(FunctionLayer):
    """``x`` where positive, else times a slope: in training mode random from [lower, upper), else the middle."""

    function = staticmethod(F.rrelu)

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


class Dropout1d(DropoutLayer):
    """In training mode, zero each channel of (N, C, L) with probability `p` and divide the others by ``1 - p``."""

    function = staticmethod(F.dropout1d)


class Dropout2d(DropoutLayer):
    """In training mode, zero each channel of (N, C, H, W) with probability `p` and divide the others by ``1 - p``."""

    function = staticmethod(F.dropout2d)


class Dropout3d(DropoutLayer):
    """In training mode, zero each channel of (N, C, D, H, W) with probability `p`, divide the others by ``1 - p``."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(DropoutLayer):
    """Dropout that keeps the mean and variance of what `SELU` returns."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(DropoutLayer):
    """`AlphaDropout` of whole channels."""

    function = staticmethod(F.feature_alpha_dropout)
