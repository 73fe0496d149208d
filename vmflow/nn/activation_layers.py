"""The layers of activation functions: `ReLU`, `GELU`, `Softmax`, `PReLU` and others."""

from __future__ import annotations

import warnings

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.tensors import Tensor

from . import functional as F, init
from .function_layers import FunctionLayer
from .module import Module
from .parameter import new_parameter


class _Activation(FunctionLayer):
    """The base of layers of activation functions.

    Shape: input (*), output (*), the same shape.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
    """


class _Plain(_Activation):
    """The base of layers with an activation function without settings.

    Shape: input (*), output (*), the same shape.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
    """

    def __init__(self) -> None:
        super().__init__()


class _InPlace(_Activation):
    """The base of layers with an activation function whose only setting is `inplace`.

    Shape: input (*), output (*), the same shape.

    Args:
        inplace: whether to write the result into the input.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class _AlongDimension(FunctionLayer):
    """The base of softmax layers, whose only setting is the dimension `dim`.

    Shape: input (*), output (*), the same shape.

    Args:
        dim: the dimension to sum over.  None is PyTorch's old choice: 0 for an input of 0, 1 or 3 dimensions, else 1.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        IndexError: when the input has no dimension `dim`.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__(dim=dim)


class ReLU(_InPlace, function=F.relu):
    """``max(x, 0)``.

    Raises:
        TypeError: when called with anything else than a tensor of integers or floating-point numbers.

    Example:
        >>> flow.nn.ReLU()(flow.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """


class GELU(_Activation, function=F.gelu):
    """``x`` times the standard normal distribution's probability below ``x``; ``approximate="tanh"`` approximates it.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when called, for an `approximate` other than "none" and "tanh".

    Example:
        >>> flow.nn.GELU()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


class SiLU(_InPlace, function=F.silu):
    """``x * sigmoid(x)``.

    Example:
        >>> flow.nn.SiLU()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.2689,  0.0000,  0.7311])
    """


class Tanh(_Plain, function=F.tanh):
    """``tanh(x)``, the hyperbolic tangent of each element.

    Raises:
        TypeError: when called with anything else than a tensor.

    Example:
        >>> flow.nn.Tanh()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.7616,  0.0000,  0.7616])
    """


class Sigmoid(_Plain, function=F.sigmoid):
    """``1 / (1 + exp(-x))``.

    Raises:
        TypeError: when called with anything else than a tensor, or with a complex one.

    Example:
        >>> flow.nn.Sigmoid()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([0.2689, 0.5000, 0.7311])
    """


class Softmax(_AlongDimension, function=F.softmax):
    """``exp(x)`` divided by its sum along `dim`.

    Example:
        >>> flow.nn.Softmax(dim=1)(flow.tensor([[1.0, 1.0], [0.0, 1.0]]))
        tensor([[0.5000, 0.5000],
                [0.2689, 0.7311]])
    """


class LogSoftmax(_AlongDimension, function=F.log_softmax):
    """The logarithm of `Softmax`, computed without overflow.

    Example:
        >>> flow.nn.LogSoftmax(dim=0)(flow.tensor([0.0, 1.0, 1000.0]))
        tensor([-1000.,  -999.,     0.])
    """


class LeakyReLU(_Activation, function=F.leaky_relu):
    """``x`` where positive, else ``negative_slope * x``.

    Example:
        >>> flow.nn.LeakyReLU(0.5)(flow.tensor([-1.0, 2.0]))
        tensor([-0.5000,  2.0000])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


class ELU(_Activation, function=F.elu):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``.

    Example:
        >>> flow.nn.ELU()(flow.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Softplus(_Activation, function=F.softplus):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above `threshold`.

    Example:
        >>> flow.nn.Softplus()(flow.tensor([-1.0, 0.0, 30.0]))
        tensor([ 0.3133,  0.6931, 30.0000])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


class Hardtanh(_Activation, function=F.hardtanh):
    """``x`` limited to [min_val, max_val].  OneFlow's names min_value and max_value are accepted with a FutureWarning.

    Raises:
        TypeError: when called with anything else than a tensor of integers or floating-point numbers.
        ValueError: if `min_val` is not below `max_val`.

    Example:
        >>> flow.nn.Hardtanh(-1, 2)(flow.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  2.0000])
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
    """``min(max(x, 0), 6)``.

    Example:
        >>> flow.nn.ReLU6()(flow.tensor([-1.0, 2.0, 7.0]))
        tensor([0., 2., 6.])
    """


class Hardsigmoid(_InPlace, function=F.hardsigmoid):
    """``x / 6 + 1 / 2`` limited to [0, 1].

    Example:
        >>> flow.nn.Hardsigmoid()(flow.tensor([-4.0, 0.0, 1.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """

    shown = ()  # as in PyTorch


class Hardswish(_InPlace, function=F.hardswish):
    """``x * hardsigmoid(x)``.

    Example:
        >>> flow.nn.Hardswish()(flow.tensor([-4.0, 1.5, 4.0]))
        tensor([-0.0000, 1.1250, 4.0000])
    """

    shown = ()  # as in PyTorch


class Mish(_InPlace, function=F.mish):
    """``x * tanh(softplus(x))``.

    Example:
        >>> flow.nn.Mish()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.3034,  0.0000,  0.8651])
    """


class SELU(_InPlace, function=F.selu):
    """``scale * ELU(alpha)(x)`` with constants that keep mean 0 and variance 1 over layers (Klambauer et al., 2017).

    Example:
        >>> flow.nn.SELU()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-1.1113,  0.0000,  1.0507])
    """


class CELU(_Activation, function=F.celu):
    """``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when called, if `alpha` is 0.

    Example:
        >>> flow.nn.CELU(2.0)(flow.tensor([-2.0, 3.0]))
        tensor([-1.2642,  3.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class GLU(_Activation, function=F.glu):
    """The first half of the input along `dim`, times the sigmoid of the second half.

    Shape: input (*, 2 * N, *), output (*, N, *), where `dim` is the dimension of N.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when the size of dimension `dim` is odd.
        IndexError: when the input has no dimension `dim`.

    Example:
        >>> flow.nn.GLU()(flow.tensor([1.0, 2.0, 0.0, 100.0]))
        tensor([0.5000, 2.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSigmoid(_Plain, function=F.logsigmoid):
    """``log(sigmoid(x))``, accurate for inputs of any size.

    Example:
        >>> flow.nn.LogSigmoid()(flow.tensor([-1000.0, 0.0, 1.0]))
        tensor([-1.0000e+03, -6.9315e-01, -3.1326e-01])
    """


class Softsign(_Plain, function=F.softsign):
    """``x / (1 + |x|)``.

    Example:
        >>> flow.nn.Softsign()(flow.tensor([-1.0, 0.0, 3.0]))
        tensor([-0.5000,  0.0000,  0.7500])
    """


class Tanhshrink(_Plain, function=F.tanhshrink):
    """``x - tanh(x)``.

    Example:
        >>> flow.nn.Tanhshrink()(flow.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """


class QuickGELU(_Plain, function=F.quick_gelu):
    """``x * sigmoid(1.702 * x)``, under OneFlow's name.

    Example:
        >>> flow.nn.QuickGELU()(flow.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1542,  0.0000,  0.8458])
    """


class SquareReLU(_Plain, function=F.square_relu):
    """``max(x, 0)**2``, under OneFlow's name.

    Example:
        >>> flow.nn.SquareReLU()(flow.tensor([-1.0, 3.0]))
        tensor([0., 9.])
    """


class Softmin(_AlongDimension, function=F.softmin):
    """`Softmax` of ``-x``.

    Example:
        >>> flow.nn.Softmin(dim=0)(flow.tensor([0.0, 1.0]))
        tensor([0.7311, 0.2689])
    """


class Softmax2d(Module):
    """`Softmax` over the channels at each pixel of images.

    Shape: input (N, C, H, W) or (C, H, W), output the same shape.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when called with another number of dimensions.

    Example:
        >>> flow.nn.Softmax2d()(flow.zeros(1, 4, 2, 2)).sum(1)
        tensor([[[1., 1.],
                 [1., 1.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax over dimension -3, in the input's shape."""
        check_tensors("Softmax2d", input)
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected (N, C, H, W) or (C, H, W), got shape {list(input.shape)}")
        return F.softmax(input, -3)


class Threshold(_Activation, function=F.threshold):
    """``x`` where above `threshold`, else `value`.

    Example:
        >>> flow.nn.Threshold(1.0, 20.0)(flow.tensor([0.0, 1.0, 2.0]))
        tensor([20., 20.,  2.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(threshold=threshold, value=value, inplace=inplace)


class _Shrink(_Activation):
    """The base of `Hardshrink` and `Softshrink`, whose only setting `lambd` is a distance from 0.

    Shape: input (*), output (*), the same shape.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink, function=F.hardshrink):
    """``x`` where ``abs(x) > lambd``, else 0.

    Example:
        >>> flow.nn.Hardshrink()(flow.tensor([-1.0, 0.5, 2.0]))
        tensor([-1.,  0.,  2.])
    """


class Softshrink(_Shrink, function=F.softshrink):
    """``x`` moved towards 0 by `lambd`; 0 where ``abs(x) <= lambd``.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when called, if `lambd` is negative.

    Example:
        >>> flow.nn.Softshrink()(flow.tensor([-1.0, 0.25, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """


class RReLU(_Activation, function=F.rrelu):
    """``x`` where positive, else ``slope * x``; slopes are random in [lower, upper) in training mode, else the middle.

    Raises:
        TypeError: when called with anything else than a floating-point tensor.
        ValueError: when called, if `lower` is above `upper`.

    Example:
        >>> flow.nn.RReLU(0.25, 0.75).eval()(flow.tensor([-1.0, 2.0]))
        tensor([-0.5000,  2.0000])
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(lower=lower, upper=upper, training=True, inplace=inplace)


class PReLU(Module):
    """``x`` where positive, else ``weight * x`` with a learned weight, the slope.

    Shape: input (N, C, *), or any shape if `num_parameters` is 1; output the same shape.

    Args:
        num_parameters: 1, or the number of channels, the size of the input's dimension 1.
        init: the initial slope.
        device, dtype: the device and dtype of the slopes.

    Attributes:
        weight: (num_parameters,), the slopes.

    Raises:
        TypeError: when the input has another dtype than the slopes.
        ValueError: when the input does not have `num_parameters` channels, unless `num_parameters` is 1.

    Example:
        >>> flow.nn.PReLU()(flow.tensor([-1.0, 2.0]))
        tensor([-0.2500,  2.0000], grad_fn=<where>)
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
        """Set all slopes to the initial slope `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return the activations, in the input's shape."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
