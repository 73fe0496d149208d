"""The layers that pad sequences, images and volumes with constants or with their own elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from vmflow.ops.nn.layer_operands import SPATIAL
from vmflow.ops.table import as_tuple
from vmflow.tensors import Tensor

from . import functional as F
from .ranked_layer import RankedLayer

# The type of paddings: one number for all borders, or one for each: before, behind, from the last dimension on.
Borders = int | tuple[int, ...] | list[int]


class _Pad(RankedLayer):
    """The base of padding layers, which add elements at the borders; a negative padding removes elements.

    Args:
        padding: one number for all borders, or (before, behind) of the last dimension, then of the dimension before
            it, and so on.

    Raises:
        ValueError: for another count of numbers; when called, if the numbers do not fit the input's shape.
        TypeError: when called, for anything else than a tensor, or a padding that is no integer.
    """

    _mode: ClassVar[str] = "constant"

    def __init_subclass__(cls, mode: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if mode is not None:
            cls._mode = mode

    def __init__(self, padding: Borders) -> None:
        super().__init__()
        borders = as_tuple(padding)
        if not isinstance(padding, Iterable):
            borders *= 2 * self._rank
        if len(borders) != 2 * self._rank:
            raise ValueError(
                f"{type(self).__name__}: expected one number or {2 * self._rank}, two for each of "
                f"{SPATIAL[self._rank]} from the last on, got {padding!r}"
            )
        self.padding = borders

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with padded borders."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """The base of layers that pad with a constant number; a negative padding removes elements.

    Args:
        padding: one number for all borders, or (before, behind) of the last dimension, then of the dimension before
            it, and so on.
        value: the number to pad with; None for 0.

    Raises:
        ValueError: for another count of numbers; when called, if the numbers do not fit the input's shape.
        TypeError: when called, for a padding that is no integer, another `value`, or anything else than a tensor.
    """

    def __init__(self, padding: Borders, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with borders of `value`."""
        return F.pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, rank=1):
    """Pads sequences at both ends with a constant number.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.ConstantPad1d((1, 2), 9.0)(flow.tensor([[1.0, 2.0]]))
        tensor([[9., 1., 2., 9., 9.]])
    """


class ConstantPad2d(_ConstantPad, rank=2):
    """Pads images at all borders with a constant number.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.ConstantPad2d((1, 0, 0, 1), 9.0)(flow.tensor([[[1.0, 2.0]]]))
        tensor([[[9., 1., 2.],
                 [9., 9., 9.]]])
    """


class ConstantPad3d(_ConstantPad, rank=3):
    """Pads volumes at all borders with a constant number.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.ConstantPad3d((1, 0, 0, 1, 0, 0), 9.0)(flow.ones(1, 1, 1, 2))
        tensor([[[[9., 1., 1.],
                  [9., 9., 9.]]]])
    """


class ZeroPad1d(_Pad, rank=1):
    """Pads sequences at both ends with zeros.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.ZeroPad1d((1, 2))(flow.tensor([[1.0, 2.0]]))
        tensor([[0., 1., 2., 0., 0.]])
    """


class ZeroPad2d(_Pad, rank=2):
    """Pads images at all borders with zeros.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.ZeroPad2d((1, 0, 0, 1))(flow.tensor([[[1.0, 2.0]]]))
        tensor([[[0., 1., 2.],
                 [0., 0., 0.]]])
    """


class ZeroPad3d(_Pad, rank=3):
    """Pads volumes at all borders with zeros.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.ZeroPad3d(1)(flow.ones(1, 2, 3, 4)).shape
        vmflow.Size([1, 4, 5, 6])
    """


class ReflectionPad1d(_Pad, mode="reflect", rank=1):
    """Pads sequences with their own elements, mirrored at both ends.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.ReflectionPad1d(2)(flow.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """


class ReflectionPad2d(_Pad, mode="reflect", rank=2):
    """Pads images with their own elements, mirrored at the borders.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.ReflectionPad2d((1, 1, 0, 1))(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 1., 2., 1.],
                 [4., 3., 4., 3.],
                 [2., 1., 2., 1.]]])
    """


class ReflectionPad3d(_Pad, mode="reflect", rank=3):
    """Pads volumes with their own elements, mirrored at the borders.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.ReflectionPad3d(1)(flow.ones(1, 2, 3, 4)).shape
        vmflow.Size([1, 4, 5, 6])
    """


class ReplicationPad1d(_Pad, mode="replicate", rank=1):
    """Pads sequences by repeating their first and last elements.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.ReplicationPad1d(2)(flow.tensor([[1.0, 2.0]]))
        tensor([[1., 1., 1., 2., 2., 2.]])
    """


class ReplicationPad2d(_Pad, mode="replicate", rank=2):
    """Pads images by repeating their outermost elements.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.ReplicationPad2d((1, 1, 0, 1))(flow.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.],
                 [1., 1., 2., 2.]]])
    """


class ReplicationPad3d(_Pad, mode="replicate", rank=3):
    """Pads volumes by repeating their outermost elements.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.ReplicationPad3d(1)(flow.ones(1, 2, 3, 4)).shape
        vmflow.Size([1, 4, 5, 6])
    """


class CircularPad1d(_Pad, mode="circular", rank=1):
    """Pads each end of sequences with the elements of the opposite end.

    Shape: input (N, C, L) or (C, L), output (N, C, L_out) or (C, L_out).

    Example:
        >>> flow.nn.CircularPad1d((1, 2))(flow.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 1., 2., 3., 1., 2.]])
    """


class CircularPad2d(_Pad, mode="circular", rank=2):
    """Pads each side of images with the elements of the opposite side.

    Shape: input (N, C, H, W) or (C, H, W), output (N, C, H_out, W_out) or (C, H_out, W_out).

    Example:
        >>> flow.nn.CircularPad2d((1, 1, 0, 1))(flow.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 1., 2., 1.],
                 [4., 3., 4., 3.],
                 [2., 1., 2., 1.]]])
    """


class CircularPad3d(_Pad, mode="circular", rank=3):
    """Pads each side of volumes with the elements of the opposite side.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output (N, C, D_out, H_out, W_out) or (C, D_out, H_out, W_out).

    Example:
        >>> flow.nn.CircularPad3d(1)(flow.ones(1, 2, 3, 4)).shape
        vmflow.Size([1, 4, 5, 6])
    """
