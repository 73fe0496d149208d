"""Quantization-aware training: numbers rounded to a few levels, with gradients that ignore the rounding.

The formulas are OneFlow's, "google" (B. Jacob et al., 2018) and "cambricon" (scales that are powers of two), and
PyTorch's `fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine`.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

from vmflow import dtypes, tensors as _tensors
from vmflow.dtypes import FLOATING
from vmflow.operands import check_tensors
from vmflow.ops.declaration import function
from vmflow.ops.elementwise.selection import where
from vmflow.ops.table import normalize_dim

from .layer_operands import check_floating

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

_SCHEMES = ("symmetric", "affine")
_FORMULAS = ("google", "cambricon")

_SINGLE = dtypes.float32.numpy.type


class Quantizing(NamedTuple):
    """The settings of a quantization: how numbers are converted to integers.

    Attributes:
        bit: the number of bits, from 2 to 8.
        scheme: "symmetric", to signed integers, or "affine", to unsigned integers with a zero point.
        formula: "google"; or "cambricon", which stores a scale as the exponent of a power of two, for "symmetric" only.
    """

    bit: int
    scheme: str
    formula: str

    def checked(self, name: str) -> Quantizing:
        """Return these settings; raise ValueError if one of them is out of range."""
        if isinstance(self.bit, bool) or not isinstance(self.bit, int) or not 2 <= self.bit <= 8:
            raise ValueError(f"{name}: quantization_bit must be an integer from 2 to 8, got {self.bit!r}")
        if self.scheme not in _SCHEMES:
            raise ValueError(f"{name}: quantization_scheme must be one of {', '.join(_SCHEMES)}, not {self.scheme!r}")
        if self.formula not in _FORMULAS:
            raise ValueError(
                f"{name}: quantization_formula must be one of {', '.join(_FORMULAS)}, not {self.formula!r}"
            )
        if self.formula == "cambricon" and self.scheme != "symmetric":
            raise ValueError(f"{name}: the formula cambricon is for the scheme symmetric, not {self.scheme!r}")
        return self


def extremes(input: Tensor, how: Quantizing, per_layer: bool) -> tuple[Tensor, Tensor]:
    """Return the largest and the smallest number of `input`, (1,), or, unless `per_layer`, of each channel.

    Channels are the slices along the first dimension; the results are (channels,) then.  For the symmetric scheme,
    both are the largest absolute value."""
    check_tensors("quantization", input)
    rows = input.detach().reshape((1 if per_layer else input.shape[0], -1))
    if how.scheme == "symmetric":
        largest = rows.abs().amax(1)
        return largest, largest
    return rows.amax(1), rows.amin(1)


def scale_and_zero_point(largest: Tensor, smallest: Tensor, how: Quantizing) -> tuple[Tensor, Tensor]:
    """Compute the scale and the zero point by which numbers from `smallest` to `largest` are quantized.

    The scale is the divisor of numbers (for "cambricon", its binary logarithm); the zero point, the integer for 0.  If
    both numbers are equal, 0 is the other end of an affine range."""
    if how.formula == "cambricon":
        return largest.log2().floor() - (how.bit - 2), largest * 0
    if how.scheme == "symmetric":
        return largest / (2 ** (how.bit - 1) - 1), largest * 0
    # Numbers that are all equal have no distance to divide: their levels go from 0 to them, or from them to 0.
    equal = smallest == largest
    smallest, largest = where(equal, smallest.clamp(max=0), smallest), where(equal, largest.clamp(min=0), largest)
    scale = (largest - smallest) / (2**how.bit - 1)
    return scale, -(smallest / _divisor(scale)).round()


def _divisor(scale: Tensor) -> Tensor:
    """Return a divisor: the scale, but 1 where the scale is zero, as for zeros."""
    return where(scale == 0, 1.0, scale)


def quantized(input: Tensor, scale: Tensor, zero_point: Tensor, how: Quantizing, back: bool) -> Tensor:
    """Quantize numbers to integers, in the floating-point dtype of `input`; with `back`, convert these back to numbers.

    Args:
        input: floating-point, of any shape.
        scale, zero_point: of one element, or one for each slice along the first dimension.

    Raises:
        TypeError: if `input` is not floating-point.
        ValueError: for scales or zero points of another shape.
    """
    name = "fake_quantization" if back else "quantization"
    check_tensors(name, input, scale, zero_point)
    check_floating(name, input._blob.meta)
    for what, given in (("scale", scale), ("zero_point", zero_point)):
        if given.numel() != 1 and not (input.ndim and given.shape == (input.shape[0],)):
            raise ValueError(
                f"{name}: {what} must have one element, or one for each slice of an input of shape "
                f"{list(input.shape)} along the first dimension, got shape {list(given.shape)}"
            )
    scale, zero = _by_first(scale.detach(), input), _by_first(zero_point.detach(), input)
    if how.formula == "cambricon":
        scale = scale.exp2()
    affine = how.scheme == "affine"
    high = 2**how.bit - 1 if affine else 2 ** (how.bit - 1) - 1
    low = 0 if affine else -high - 1
    levels = input.detach() / _divisor(scale)
    levels = ((levels + zero) if affine else levels).round().clamp(low, high)
    if back:
        levels = ((levels - zero) if affine else levels) * scale
    return _straight_through(levels.to(input.dtype), input)


def _by_first(vector: Tensor, input: Tensor) -> Tensor:
    """Reshape a vector so that it broadcasts along the first dimension of `input`."""
    return vector.reshape((-1,) + (1,) * (input.ndim - 1)) if input.ndim else vector.reshape(())


def _straight_through(rounded: Tensor, input: Tensor, inside: Tensor | None = None) -> Tensor:
    """Return the value of `rounded` with the gradient of `input`; with a zero gradient where `inside` is False."""
    if not input.requires_grad:
        return rounded
    # For finite numbers this difference is zero: adding it adds only the gradient of `input`.
    nothing = input - input.detach()
    return rounded + (nothing if inside is None else where(inside, nothing, 0.0))


# PyTorch's


@function()
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor | float, zero_point: Tensor | int, quant_min: int, quant_max: int
) -> Tensor:
    """`input` rounded to levels `scale` apart: ``(clamp(round(x / scale) + zero_point, ...) - zero_point) * scale``.

    Args:
        input: floating-point.
        scale: a number, or a tensor of one element.
        zero_point: the integer that zero becomes: a number, which is cut to an integer, or a tensor of one element.
        quant_min, quant_max: the limits of integers.

    Returns:
        The shape and dtype of `input`.  The gradient passes unchanged where the integer is within the limits,
        and is zero elsewhere.

    Raises:
        TypeError: if `input` is not floating-point, or `scale` or `zero_point` neither a real number nor a tensor.
        ValueError: if `quant_min` is above `quant_max`, a `zero_point` that is a number is not between them, or a
            tensor has not one element.

    Example:
        >>> flow.fake_quantize_per_tensor_affine(flow.tensor([0.26, 9.0]), 0.5, 0, -4, 3)
        tensor([0.5000, 1.5000])
    """
    name = "fake_quantize_per_tensor_affine"
    _check_limits(name, input, quant_min, quant_max)
    for what, given in (("scale", scale), ("zero_point", zero_point)):
        if not isinstance(given, (_tensors.Tensor, Real)):
            raise TypeError(f"{name}: {what} must be a tensor or a number, not {type(given).__name__}")
    if not isinstance(zero_point, _tensors.Tensor) and not quant_min <= zero_point <= quant_max:
        raise ValueError(f"{name}: zero_point must be between {quant_min} and {quant_max}, got {zero_point!r}")
    for what, given in (("scale", scale), ("zero_point", zero_point)):
        if isinstance(given, _tensors.Tensor) and given.numel() != 1:
            raise ValueError(f"{name}: {what} must have one element, got shape {list(given.shape)}")
    step = scale.detach().reshape(()).float() if isinstance(scale, _tensors.Tensor) else float(_SINGLE(scale))
    zero = zero_point.detach().reshape(()).float() if isinstance(zero_point, _tensors.Tensor) else int(zero_point)
    return _rounded(input, step, zero, quant_min, quant_max)


@function()
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """Apply `fake_quantize_per_tensor_affine` with a scale and a zero point for each index along a dimension.

    Args:
        input: floating-point.
        scale: a vector, with one element for each index along `axis`.
        zero_point: a vector of the same size, int32 or floating-point; a floating-point one is added before rounding.
            The values are not checked.
        axis: the dimension.
        quant_min, quant_max: the limits of integers.

    Raises:
        TypeError: for dtypes that do not fit.
        ValueError: if `quant_min` is above `quant_max`, or for shapes that do not fit.
        IndexError: if there is no such dimension.

    Example:
        >>> scale, zero_point = flow.tensor([1.0, 0.5]), flow.zeros(2)
        >>> flow.fake_quantize_per_channel_affine(flow.tensor([1.2, 1.3]), scale, zero_point, 0, -8, 7)
        tensor([1.0000, 1.5000])
    """
    name = "fake_quantize_per_channel_affine"
    check_tensors(name, scale, zero_point)
    _check_limits(name, input, quant_min, quant_max)
    axis = normalize_dim(name, axis, input.ndim)
    for what, given in (("scale", scale), ("zero_point", zero_point)):
        if given.shape != input.shape[axis : axis + 1]:
            raise ValueError(
                f"{name}: {what} must be a vector of {input.shape[axis]} elements, one for each place along dimension "
                f"{axis} of an input of shape {list(input.shape)}, got shape {list(given.shape)}"
            )
    if zero_point.dtype is not dtypes.int32 and zero_point.dtype.category != FLOATING:
        raise TypeError(f"{name}: zero_point must be int32 or floating-point, not {zero_point.dtype.name}")
    shape = tuple([-1 if place == axis else 1 for place in range(input.ndim)])
    step, zero = [vector.detach().float().reshape(shape) for vector in (scale, zero_point)]
    # As in PyTorch, a floating-point zero point is added before rounding, an integer one after: numbers halfway between
    # levels round differently.
    together = zero_point.dtype.category == FLOATING
    return _rounded(input, step, zero, quant_min, quant_max, together)


def _check_limits(name: str, input: Tensor, low: int, high: int) -> None:
    check_tensors(name, input)
    check_floating(name, input._blob.meta)
    if low > high:
        raise ValueError(f"{name}: quant_min {low} is above quant_max {high}")


def _rounded(
    input: Tensor, step: Tensor | float, zero: Tensor | int, low: int, high: int, together: bool = False
) -> Tensor:
    """Round `input` to ``(level - zero) * step`` of a level in [`low`, `high`]; gradient 0 where clipped, else 1.

    `together`: whether the zero point is added before rounding instead of after."""
    # As in PyTorch, multiply by the inverse of the step in single precision: the rounding of the inverse decides how
    # numbers halfway between two levels round.
    inverse = float(_SINGLE(1) / _SINGLE(step)) if isinstance(step, float) else 1 / step
    source = input.detach()
    if source.dtype is not dtypes.float64:
        source = source.float()
    levels = (source * inverse + zero).round() if together else (source * inverse).round() + zero
    result = ((levels.clamp(low, high) - zero).float() * step).to(input.dtype)
    return _straight_through(result, input, (levels >= low) & (levels <= high))
