"""`interpolate`: resizing of lines, images and volumes.

Along each dimension, an element of the result is a weighted sum of elements of the input.  The op of the gradient is
the same op, with the matrix of these weights transposed.  The mode "area" is adaptive pooling instead.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from vmflow import interpreter as _interpreter
from vmflow.arguments import flag
from vmflow.dtypes import COMPLEX
from vmflow.instructions import origin
from vmflow.instructions.blob import meta
from vmflow.kernels.problems.resampling import Along
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.inference import CHEAP
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, as_tuple

from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .layer_operands import Sizes, check_floating, sizes

if TYPE_CHECKING:
    from vmflow.autograd.node import OpNode
    from vmflow.tensors import Tensor


# The op.  Its attributes: (the resampling along each spatial dimension, whether its map is transposed)

_How = tuple[tuple[Along, ...], bool]


def _infer_resample(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    alongs, transposed = cast("_How", attributes)
    (source,) = metas
    size = [along.source if transposed else along.target for along in alongs]
    output = meta((*source.shape[:2], *size), source.dtype, source.device)
    taps = sum([along.taps(transposed) for along in alongs])
    cost = (source.numel + output.numel) * taps * CHEAP * 4 + 10000
    return Inferred(output, cost)


_RESAMPLE = OpExpr("resample", _infer_resample, Form(1, _How), "resampling")


@_RESAMPLE.gradient()
def _resample_gradient(node: OpNode, gradient: Tensor) -> tuple[Tensor]:
    alongs, transposed = cast("_How", node.attributes)
    return (_interpreter.dispatch(_RESAMPLE, (gradient,), (alongs, not transposed)),)


# Functions

# For each mode: the name of the kernels' filter, and the numbers of spatial dimensions for which the mode is defined.
_MODES: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "nearest": ("nearest", (1, 2, 3)),
    "nearest-exact": ("nearest-exact", (1, 2, 3)),
    "linear": ("linear", (1,)),
    "bilinear": ("linear", (2,)),
    "bicubic": ("cubic", (2,)),
    "trilinear": ("linear", (3,)),
    "area": ("area", (1, 2, 3)),
}
_AREA: Final[dict[int, Any]] = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


def _factors(rank: int, scale_factor: Any) -> tuple[float, ...]:
    factors = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
    numbers = [isinstance(factor, (int, float, np.number)) and type(factor) is not bool for factor in factors]
    if len(factors) != rank or not all(numbers):
        raise TypeError(f"interpolate: scale_factor must be a number or {rank} of them, not {scale_factor!r}")
    if any(not math.isfinite(factor) or factor <= 0 for factor in factors):
        raise ValueError(f"interpolate: scale_factor must be above 0, got {scale_factor!r}")
    return tuple([float(factor) for factor in factors])


def _check_mode(mode: str, rank: int, align_corners: bool | None, antialias: bool) -> None:
    if mode not in _MODES:
        raise ValueError(f"interpolate: mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if rank not in _MODES[mode][1]:
        dimensions = " or ".join([f"{spatial + 2}" for spatial in _MODES[mode][1]])
        raise ValueError(
            f"interpolate: mode {mode!r} is for inputs (samples, channels, ...) of {dimensions} dimensions, got "
            f"{rank + 2}"
        )
    if align_corners is not None and _MODES[mode][0] not in ("linear", "cubic"):
        raise ValueError(f"interpolate: align_corners has no meaning for mode {mode!r}; leave it out")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(f"interpolate: antialias is for modes bilinear and bicubic, not {mode!r}")


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize lines, images or volumes.

    Args:
        input: (samples, channels, ...) with one, two or three spatial dimensions.
        size: of the result, one number for all dimensions or one for each.
        scale_factor: instead of `size`, one number or one for each: the result has the input's size times this
            number, rounded down.
        mode: "nearest", "nearest-exact" (by elements' centres), "linear" (three dimensions), "bilinear" or "bicubic"
            (four), "trilinear" (five) or "area" (the mean of the input elements that a result element touches).
        align_corners: whether the centres of the corner elements stay in place; else their outer edges do (the first
            element's alone, if the size was rounded).  Only for linear, bilinear, bicubic and trilinear; not exact with
            `antialias`, as in PyTorch.
        recompute_scale_factor: whether elements are placed by the ratio of the sizes instead of `scale_factor`.
        antialias: whether each input element counts when shrinking (modes bilinear and bicubic).  The bicubic kernel
            then has a = -0.5 in place of -0.75, as in PyTorch.

    Raises:
        TypeError: for dtypes that are not floating-point (the nearest modes also take bools and integers), or arguments
            of another type.
        ValueError: for an unknown mode or one for other numbers of dimensions, arguments that do not go together, if
            not exactly one of `size` and `scale_factor` is given, if that is not positive or is infinite, or if a size
            of the input or the result is 0.

    Example:
        >>> flow.nn.functional.interpolate(flow.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    check_tensors("interpolate", input)
    rank = input.ndim - 2
    if rank not in (1, 2, 3):
        raise ValueError(
            f"interpolate: expected an input (samples, channels, ...) of 3, 4 or 5 dimensions, got {list(input.shape)}"
        )
    _check_mode(mode, rank, align_corners, antialias)
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give either size or scale_factor")
    if recompute_scale_factor and size is not None:
        raise ValueError("interpolate: recompute_scale_factor has no meaning with size; leave it out")
    lengths = tuple(input.shape[2:])
    steps = (0.0,) * rank
    if size is not None:
        target = sizes("interpolate", "size", as_tuple(size), 1, rank)
    else:
        factors = _factors(rank, scale_factor)
        target = tuple([math.floor(have * factor) for have, factor in zip(lengths, factors, strict=True)])
        steps = steps if recompute_scale_factor else tuple([1 / factor for factor in factors])
    if not (all(lengths) and all(target)):
        raise ValueError(f"interpolate: cannot make {list(lengths)} elements into {list(target)}")
    if mode == "area":
        area: Tensor = _AREA[rank](input, target)
        return area
    return _resampled(
        input,
        _MODES[mode][0],
        target,
        align_corners is not None and flag("interpolate", "align_corners", align_corners),
        steps,
        antialias,
    )


# PyTorch's older names


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Call `interpolate`, by an older name that warns; the shapes are those of `interpolate`.

    Raises:
        TypeError, ValueError: as `interpolate`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     flow.nn.functional.upsample(flow.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    _warn_of_old_name("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """Call `interpolate` in the mode "nearest", by an older name that warns; the shapes are those of `interpolate`.

    Raises:
        TypeError, ValueError: as `interpolate`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     flow.nn.functional.upsample_nearest(flow.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    _warn_of_old_name("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
) -> Tensor:
    """Warn, and call `interpolate` in the mode "bilinear" with aligned corners; the shapes are those of `interpolate`.

    Raises:
        TypeError, ValueError: as `interpolate`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     flow.nn.functional.upsample_bilinear(flow.tensor([[[[1.0, 2.0]]]]), (1, 3))
        tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """
    _warn_of_old_name("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


def _warn_of_old_name(name: str) -> None:
    warnings.warn(f"{name} is a deprecated name; use interpolate instead", stacklevel=origin.depth())


def _resampled(
    input: Tensor, filter: str, target: Sizes, align_corners: bool, steps: tuple[float, ...], antialias: bool
) -> Tensor:
    if not filter.startswith("nearest"):
        check_floating("interpolate", input._blob.meta)
    elif input.dtype.category >= COMPLEX:
        raise TypeError(f"interpolate is not defined for {input.dtype.name} tensors")
    along = [
        Along(filter, source, wanted, align_corners, step, antialias)
        for source, wanted, step in zip(input.shape[2:], target, steps, strict=True)
    ]
    return _interpreter.dispatch(_RESAMPLE, (input,), (tuple(along), False))
