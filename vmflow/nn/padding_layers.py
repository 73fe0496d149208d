"""The layers that pad lines, images and volumes."""

from __future__ import annotations

from typing import Any, ClassVar

from vmflow.ops.nn.layer_operands import SPATIAL
from vmflow.tensors import Tensor

from . import functional as F
from .module import RankedLayer

# One number for all borders, or (before, behind) of the last dimension, then of the one before it, and so on.
Borders = int | tuple[int, ...] | list[int]


class _Pad(RankedLayer):
    """Add elements at the borders of (N, C, ...), or without N; negative numbers take some away.

    Args:
        padding: one number for all borders, or (before, behind) of the last dimension, then of the one before it, and
            so on.

    Raises:
        ValueError: for other numbers of borders.
    """

    _mode: ClassVar[str] = "constant"

    def __init_subclass__(cls, mode: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if mode is not None:
            cls._mode = mode

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

    def __init__(self, padding: Borders, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with its borders."""
        return F.pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad, rank=1):
    """A constant around sequences."""


class ConstantPad2d(_ConstantPad, rank=2):
    """A constant around images."""


class ConstantPad3d(_ConstantPad, rank=3):
    """A constant around volumes."""


class ZeroPad1d(_Pad, rank=1):
    """Zeros around sequences."""


class ZeroPad2d(_Pad, rank=2):
    """Zeros around images."""


class ZeroPad3d(_Pad, rank=3):
    """Zeros around volumes."""


class ReflectionPad1d(_Pad, mode="reflect", rank=1):
    """Elements of sequences mirrored at the borders."""


class ReflectionPad2d(_Pad, mode="reflect", rank=2):
    """Elements of images mirrored at the borders."""


class ReflectionPad3d(_Pad, mode="reflect", rank=3):
    """Elements of volumes mirrored at the borders."""


class ReplicationPad1d(_Pad, mode="replicate", rank=1):
    """The outermost elements of sequences repeated."""


class ReplicationPad2d(_Pad, mode="replicate", rank=2):
    """The outermost elements of images repeated."""


class ReplicationPad3d(_Pad, mode="replicate", rank=3):
    """The outermost elements of volumes repeated."""


class CircularPad1d(_Pad, mode="circular", rank=1):
    """Sequences continued from the other side."""


class CircularPad2d(_Pad, mode="circular", rank=2):
    """Images continued from the other side."""


class CircularPad3d(_Pad, mode="circular", rank=3):
    """Volumes continued from the other side."""
