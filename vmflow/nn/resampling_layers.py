"""The layers that make images larger, and that move elements between channels and pixels."""

from __future__ import annotations

from . import functional as F
from .function_layers import FunctionLayer

# One number for all dimensions, or one for each.
Size = int | tuple[int, ...]
Factor = float | tuple[float, ...]


class Upsample(FunctionLayer, function=F.interpolate):
    """Lines, images or volumes made larger or smaller; see `F.interpolate`.

    Args:
        size: of the result, one number for all dimensions or one for each.
        scale_factor: instead of `size`, how many times as large the result is.
        mode: "nearest", "linear", "bilinear", "bicubic", "trilinear", ...
        align_corners: whether the centres of the corner elements stay in place.
        recompute_scale_factor: whether elements are placed by the ratio of the sizes instead of `scale_factor`.
    """

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: Factor | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        if isinstance(scale_factor, tuple):
            scale_factor = tuple([float(value) for value in scale_factor])
        elif scale_factor is not None:
            scale_factor = float(scale_factor)
        super().__init__(
            size=size,
            scale_factor=scale_factor,
            mode=mode,
            align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        given = "size" if self.scale_factor is None else "scale_factor"
        return f"{given}={getattr(self, given)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` of images, by the nearest element."""

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` of images, linear in both directions, the corner elements staying in place."""

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(FunctionLayer, function=F.pixel_shuffle):
    """Channels spread over pixels: (..., C * r ** 2, H, W) to (..., C, H * r, W * r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(FunctionLayer, function=F.pixel_unshuffle):
    """Pixels gathered in channels: (..., C, H * r, W * r) to (..., C * r ** 2, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(FunctionLayer, function=F.channel_shuffle):
    """The channels dealt out so that each of `groups` gets some of every group."""

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)
