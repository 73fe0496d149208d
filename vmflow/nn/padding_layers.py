"""The layers that pad lines, images and volumes."""

from __future__ import annotations

from typing import ClassVar

from vmflow.ops.layer_operands import SPATIAL
from vmflow.tensors import Tensor

from . import functional as F
from .module import DocumentedOnce

# One number for all borders, or (before, behind) of the last dimension, then of the one before it, and so on.
Borders = int | tuple[int, ...] | list[int]


class _Pad(DocumentedOnce):
    """Add elements at the borders of (N, C, ...), or without N; negative numbers take some away.

    Args:
        padding: one number for all borders, or (before, behind) of the last dimension, then of the one before it, and
            so on.

    Raises:
        ValueError: for other numbers of borders.
    """

    # How many spatial dimensions there are, and the mode as `F.pad` calls it.
    _rank: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: Borders) -> None:
        super().__init__()
        given = (padding,) * (2 * self._rank) if isinstance(padding, int) else tuple(padding)
        if len(given) != 2 * self._rank:
            raise ValueError(
                f"{type(self).__name__}: expected one number or {2 * self._rank}, two for each of "
                f"{SPATIAL[self._rank]} from the last on, got {padding!r}"
            )
        self.padding = given

    def forward(self, input: Tensor) -> Tensor:
        """The input with its borders."""
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Add a number at the borders of (N, C, ...), or without N; negative sizes take elements away.

    Args:
        padding: one number for all borders, or (before, behind) of the last dimension, then of the one before it, and
            so on.
        value: what to add.
    """

    _mode = "constant"

    def __init__(self, padding: Borders, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with its borders."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_Pad):
    _mode = "constant"


class _ReflectionPad(_Pad):
    _mode = "reflect"


class _ReplicationPad(_Pad):
    _mode = "replicate"


class _CircularPad(_Pad):
    _mode = "circular"


class ConstantPad1d(_ConstantPad):
    _rank = 1


class ConstantPad2d(_ConstantPad):
    _rank = 2


class ConstantPad3d(_ConstantPad):
    _rank = 3


class ZeroPad1d(_ZeroPad):
    _rank = 1


class ZeroPad2d(_ZeroPad):
    _rank = 2


class ZeroPad3d(_ZeroPad):
    _rank = 3


class ReflectionPad1d(_ReflectionPad):
    _rank = 1


class ReflectionPad2d(_ReflectionPad):
    _rank = 2


class ReflectionPad3d(_ReflectionPad):
    _rank = 3


class ReplicationPad1d(_ReplicationPad):
    _rank = 1


class ReplicationPad2d(_ReplicationPad):
    _rank = 2


class ReplicationPad3d(_ReplicationPad):
    _rank = 3


class CircularPad1d(_CircularPad):
    _rank = 1


class CircularPad2d(_CircularPad):
    _rank = 2


class CircularPad3d(_CircularPad):
    _rank = 3
