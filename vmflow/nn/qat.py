"""``vmflow.nn.qat``: OneFlow's layers for quantisation-aware training.

Inputs and weights are rounded as quantisation of the model will round them, and gradients flow as if nothing was
rounded (B. Jacob et al., 2018).  The scale of a layer's input comes from moving averages of its minimum and maximum,
which training updates.
"""

from __future__ import annotations

from typing import Any

from vmflow.operands import check_tensors
from vmflow.ops.nn.quantization import Quantizing
from vmflow.tensors import Tensor

from . import functional as F
from .convolution_layers import Conv1d, Conv2d, Conv3d, Convolution
from .layers import Linear
from .quantization_layers import FakeQuantizedOperands


class _QatConvolution(Convolution):
    """The base of convolution layers that round inputs and weights as quantisation will; the bias is not rounded.

    Args:
        arguments, settings: the arguments of `Conv1d`, `Conv2d` or `Conv3d`.
        quantization_bit: the number of bits of the rounded numbers, from 2 to 8.
        quantization_scheme: "symmetric" or "affine".
        quantization_formula: "google", or "cambricon" with the scheme "symmetric" and one scale.
        per_layer_quantization: whether the weight has one scale; else it has a scale for each output channel.
        momentum: the decay factor of the moving averages of the input's minimum and maximum.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weight's.
        ValueError: for settings out of range; when called with another number of dimensions or channels.
        IndexError: when called with an empty input in training mode.
    """

    def __init__(
        self,
        *arguments: Any,
        quantization_bit: int = 8,
        quantization_scheme: str = "symmetric",
        quantization_formula: str = "google",
        per_layer_quantization: bool = True,
        momentum: float = 0.95,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        how = Quantizing(quantization_bit, quantization_scheme, quantization_formula)
        self.quantizer = FakeQuantizedOperands(how, per_layer_quantization, momentum).to(self.weight.device)

    def forward(self, input: Tensor) -> Tensor:
        """Convolve (N, in_channels, ...) to (N, out_channels, ...), also without N; for the sizes, see `Conv2d`."""
        check_tensors(type(self).__name__, input)
        return self.convolved(*self.quantizer(input, self.weight))


class QatConv1d(_QatConvolution, Conv1d, rank=1):
    """`Conv1d` of rounded inputs with rounded weights.

    Shape: input (N, C_in, L) or (C_in, L), output (N, C_out, L_out) or (C_out, L_out).

    Example:
        >>> flow.nn.QatConv1d(3, 4, 2, quantization_bit=4)(flow.ones(1, 3, 10)).shape
        vmflow.Size([1, 4, 9])
    """


class QatConv2d(_QatConvolution, Conv2d, rank=2):
    """`Conv2d` of rounded inputs with rounded weights.

    Shape: input (N, C_in, H, W) or (C_in, H, W), output (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> flow.nn.QatConv2d(3, 4, 3, padding=1)(flow.ones(1, 3, 8, 10)).shape
        vmflow.Size([1, 4, 8, 10])
    """


class QatConv3d(_QatConvolution, Conv3d, rank=3):
    """`Conv3d` of rounded inputs with rounded weights.

    Shape: input (N, C_in, D, H, W) or (C_in, D, H, W), output (N, C_out, D_out, H_out, W_out) or without N.

    Example:
        >>> flow.nn.QatConv3d(3, 4, 2)(flow.ones(1, 3, 4, 6, 8)).shape
        vmflow.Size([1, 4, 3, 5, 7])
    """


class QatLinear(Linear):
    """`Linear` of rounded inputs with a rounded weight; the bias is not rounded.

    Shape: input (*, in_features), output (*, out_features).

    Args:
        in_features, out_features, bias, device, dtype: as for `Linear`.
        quantization_bit, quantization_scheme, quantization_formula, momentum: as for `QatConv2d`.
        per_layer_quantization: whether the weight has one scale; else it has a scale for each output feature.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weight's.
        ValueError: for settings out of range; when called with another number of features.
        IndexError: when called with an empty input in training mode.

    Example:
        >>> layer = flow.nn.qat.QatLinear(3, 2, quantization_bit=4)
        >>> layer(flow.ones(5, 3)).shape
        vmflow.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        quantization_bit: int = 8,
        quantization_scheme: str = "symmetric",
        quantization_formula: str = "google",
        per_layer_quantization: bool = True,
        momentum: float = 0.95,
        **settings: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias, **settings)
        how = Quantizing(quantization_bit, quantization_scheme, quantization_formula)
        self.quantizer = FakeQuantizedOperands(how, per_layer_quantization, momentum).to(self.weight.device)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features), with input and weight rounded."""
        check_tensors(type(self).__name__, input)
        rounded, weight = self.quantizer(input, self.weight)
        return F.linear(rounded, weight, self.bias)
