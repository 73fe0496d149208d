"""OneFlow's layers for quantisation-aware training: observers compute scales, by which other layers round."""

from __future__ import annotations

from typing import Final

from vmflow import dtypes
from vmflow.autograd import no_grad
from vmflow.operands import check_tensors
from vmflow.ops.creation.creation import zeros
from vmflow.ops.elementwise.selection import where
from vmflow.ops.nn.quantization import Quantizing, extremes, quantized, scale_and_zero_point
from vmflow.tensors import Tensor

from .module import Module

# A step number that training never reaches: as `stop_update_after_iters`, it lets every call in training mode update.
_NEVER: Final = dtypes.iinfo(dtypes.int64).max


class _Quantization(Module):
    """The base of observers and rounding layers, with their settings: number of bits, scheme and formula.

    Raises:
        ValueError: if a setting is out of range, or the formula does not fit the scheme.
    """

    def __init__(self, bit: int, scheme: str, formula: str) -> None:
        super().__init__()
        Quantizing(bit, scheme, formula).checked(type(self).__name__)
        self.quantization_bit = bit
        self.quantization_scheme = scheme
        self.quantization_formula = formula

    def _how(self) -> Quantizing:
        return Quantizing(self.quantization_bit, self.quantization_scheme, self.quantization_formula)

    def extra_repr(self) -> str:
        return (
            f"quantization_bit={self.quantization_bit}, quantization_scheme={self.quantization_scheme!r}, "
            f"quantization_formula={self.quantization_formula!r}"
        )


class MinMaxObserver(_Quantization):
    """Computes the scale and the zero point that quantise a tensor's range, from its smallest to its largest number.

    With b bits, the symmetric scale is ``max(|x|) / (2**(b - 1) - 1)`` and its zero point 0; the affine scale is
    ``(max(x) - min(x)) / (2**b - 1)``, with the zero point ``-round(min(x) / scale)``; if all numbers are equal, the
    range is from them to 0.  The formula "cambricon" gives the exponent ``floor(log2(max(|x|))) - (b - 2)`` instead of
    a scale.

    Shape: input (*), outputs (1,) each, or (S,) for slices along a first dimension of size S.

    Args:
        quantization_bit: the number of bits, from 2 to 8.
        quantization_scheme: "symmetric" or "affine".
        quantization_formula: "google", or "cambricon" with the scheme "symmetric".
        per_layer_quantization: whether there is one scale for the whole tensor; else there is a scale for each slice
            along the first dimension, by "google" only.

    Raises:
        ValueError: for settings out of range.
        TypeError: when called with anything else than a tensor, or for dtypes that do not fit.
        IndexError, ValueError: when called with an empty tensor, or with a scalar unless `per_layer_quantization`.

    Example:
        >>> flow.nn.MinMaxObserver()(flow.tensor([-127.0, 2.0]))
        (tensor([1.]), tensor([0.]))
    """

    def __init__(
        self,
        quantization_formula: str = "google",
        quantization_bit: int = 8,
        quantization_scheme: str = "symmetric",
        per_layer_quantization: bool = True,
    ) -> None:
        super().__init__(quantization_bit, quantization_scheme, quantization_formula)
        if quantization_formula == "cambricon" and not per_layer_quantization:
            raise ValueError("MinMaxObserver: the formula cambricon has one scale; leave per_layer_quantization=True")
        self.per_layer_quantization = per_layer_quantization

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """Return scale and zero point of `input`, each (1,), or (S,) for the S slices along its first dimension."""
        how = self._how()
        return scale_and_zero_point(*extremes(input, how, self.per_layer_quantization), how)


class MovingAverageMinMaxObserver(_Quantization):
    """Computes scales as `MinMaxObserver`, from moving averages of the extremes of all tensors in training.

    The averages are ``average * momentum + new * (1 - momentum)`` of the extremes of tensors: maximum and minimum, or
    ``max(|x|)`` for both with the symmetric scheme.  They begin with the extremes of the first tensor that is not zero.

    Shape: input (*), outputs (1,) each.

    Args:
        training: whether calls update the averages; `train` and `eval` change it.
        quantization_formula, quantization_bit, quantization_scheme: as for `MinMaxObserver`.
        stop_update_after_iters: the number of the last step in which calls in training mode update the averages.
        momentum: the decay factor of the averages.

    Attributes:
        moving_max, moving_min: the moving averages, (1,); zero before the first update.

    Raises:
        ValueError: for settings out of range.
        TypeError: when called with anything else than a tensor.
        IndexError: when a call updates the averages with an empty tensor.

    Example:
        >>> observer = flow.nn.MovingAverageMinMaxObserver(training=True, momentum=0.5)
        >>> observer(flow.tensor([-127.0, 2.0]), 0)
        (tensor([1.]), tensor([0.]))
    """

    moving_max: Tensor
    moving_min: Tensor

    def __init__(
        self,
        training: bool = False,
        quantization_formula: str = "google",
        stop_update_after_iters: int = 0,
        quantization_bit: int = 8,
        quantization_scheme: str = "symmetric",
        momentum: float = 0.95,
    ) -> None:
        super().__init__(quantization_bit, quantization_scheme, quantization_formula)
        if not 0 <= momentum <= 1:
            raise ValueError(f"MovingAverageMinMaxObserver: momentum must be within [0, 1], got {momentum}")
        self.train(training)
        self.stop_update_after_iters = stop_update_after_iters
        self.momentum = momentum
        self.register_buffer("moving_max", zeros(1))
        self.register_buffer("moving_min", zeros(1))

    def reset_running_stats(self) -> None:
        """Reset the averages to zero; they begin anew with the next update."""
        self.moving_max.zero_()
        self.moving_min.zero_()

    def forward(self, input: Tensor, current_train_step: Tensor | int) -> tuple[Tensor, Tensor]:
        """Update the averages in training mode, and return the scale and the zero point, each (1,).

        Args:
            input: a floating-point tensor of any shape.
            current_train_step: the number of the training step, an int or an int64 tensor of one element.
        """
        check_tensors(type(self).__name__, input)
        how = self._how()
        if self.training:
            with no_grad():
                self._update(input, how, current_train_step)
        # The results are new tensors, so the next update, which changes the averages in place, leaves them alone.
        return scale_and_zero_point(self.moving_max.to(input.dtype), self.moving_min.to(input.dtype), how)

    def _update(self, input: Tensor, how: Quantizing, step: Tensor | int) -> None:
        counted = step <= self.stop_update_after_iters
        if not isinstance(counted, Tensor) and not counted:
            return
        averages = (self.moving_max, self.moving_min)
        begun = (self.moving_max != 0) | (self.moving_min != 0)
        for average, new in zip(averages, extremes(input, how, True), strict=True):
            new = new.to(average.dtype)
            updated = where(begun, average * self.momentum + new * (1 - self.momentum), new)
            average.copy_(where(counted, updated, average) if isinstance(counted, Tensor) else updated)


class FakeQuantization(_Quantization):
    """Rounds numbers to levels a scale apart, as quantisation does; gradients pass as if nothing was rounded.

    Symmetric: ``clamp(round(x / scale), -2**(b - 1), 2**(b - 1) - 1) * scale``; affine:
    ``(clamp(round(x / scale + zero_point), 0, 2**b - 1) - zero_point) * scale``.  With the formula "cambricon", the
    argument `scale` is an exponent, and ``2**scale`` the scale.  A scale of 0 counts as 1 in the division.

    Shape: input (*), scale and zero point (1,), or (S,) for an input (S, *); output the input's shape.

    Args:
        quantization_formula, quantization_bit, quantization_scheme: as for `MinMaxObserver`; the number of bits is b.

    Raises:
        ValueError: for settings out of range; when called with scales of another shape.
        TypeError: when called with anything else than tensors, or an input that is not floating-point.

    Example:
        >>> flow.nn.FakeQuantization()(flow.tensor([0.2, 1.8]), flow.tensor([0.5]), flow.tensor([0.0]))
        tensor([0., 2.])
    """

    def __init__(
        self, quantization_formula: str = "google", quantization_bit: int = 8, quantization_scheme: str = "symmetric"
    ) -> None:
        super().__init__(quantization_bit, quantization_scheme, quantization_formula)

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        """Round the input by an observer's scale and zero point; the result has the input's shape and dtype."""
        return quantized(input, scale, zero_point, self._how(), back=True)


class Quantization(_Quantization):
    """Rounds as `FakeQuantization`, but returns the integers (as floating-point numbers) instead of their multiples.

    Shape: input (*), scale and zero point (1,), or (S,) for an input (S, *); output the input's shape.

    Args:
        quantization_formula, quantization_bit, quantization_scheme: as for `MinMaxObserver`.

    Raises:
        ValueError: for settings out of range; when called with scales of another shape.
        TypeError: when called with anything else than tensors, or an input that is not floating-point.

    Example:
        >>> flow.nn.Quantization()(flow.tensor([0.2, 1.8]), flow.tensor([0.5]), flow.tensor([0.0]))
        tensor([0., 4.])
    """

    def __init__(
        self, quantization_formula: str = "google", quantization_bit: int = 8, quantization_scheme: str = "symmetric"
    ) -> None:
        super().__init__(quantization_bit, quantization_scheme, quantization_formula)

    def forward(self, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        """Quantise the input by an observer's scale and zero point; the result has the input's shape and dtype."""
        return quantized(input, scale, zero_point, self._how(), back=False)


class FakeQuantizedOperands(Module):
    """Rounds the input and the weight of a layer in quantisation-aware training.

    Args:
        how: the number of bits, the scheme and the formula.
        per_layer: whether the weight has one scale; else it has a scale for each output channel.
        momentum: the decay factor of the moving averages of the input's minimum and maximum.

    Attributes:
        moving_average_observer: the observer of the input; each call in training mode updates its averages.
    """

    def __init__(self, how: Quantizing, per_layer: bool, momentum: float) -> None:
        super().__init__()
        self.weight_observer = MinMaxObserver(how.formula, how.bit, how.scheme, per_layer)
        self.moving_average_observer = MovingAverageMinMaxObserver(
            True, how.formula, _NEVER, how.bit, how.scheme, momentum
        )
        self.fake_quantization = FakeQuantization(how.formula, how.bit, how.scheme)

    def forward(self, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rounded input and the rounded weight."""
        rounded = self.fake_quantization(input, *self.moving_average_observer(input, 0))
        return rounded, self.fake_quantization(weight, *self.weight_observer(weight))
