"""The layers that resize images, and layers that move elements between channels and pixels."""

from __future__ import annotations

from . import functional as F
from .function_layers import FunctionLayer

# The types of sizes and scale factors: one number for all spatial dimensions, or one for each.
Size = int | tuple[int, ...]
Factor = float | tuple[float, ...]


class Upsample(FunctionLayer, function=F.interpolate):
    """Resizes sequences, images or volumes by interpolation; see `F.interpolate`.

    Shape: input (N, C, L), (N, C, H, W) or (N, C, D, H, W), output the same with other sizes behind C.

    Args:
        size: the size of the result, one number for all dimensions or one for each.
        scale_factor: instead of `size`, the result's size divided by the input's.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
        align_corners: whether the centres of the corner elements of input and result coincide; not for "nearest",
            "nearest-exact" and "area".
        recompute_scale_factor: whether to interpolate by the ratio of the (rounded) sizes instead of `scale_factor`.

    Raises:
        TypeError: when called, for sizes that are no integers, or a dtype that is not for the mode.
        ValueError: when called, unless exactly one of `size` and `scale_factor` is given, and positive; for another
            mode, settings that do not fit together, or an input of another number of dimensions.

    Example:
        >>> flow.nn.Upsample(scale_factor=2)(flow.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
        >>> flow.nn.Upsample(3, mode="linear", align_corners=True)(flow.tensor([[[1.0, 2.0]]]))
        tensor([[[1.0000, 1.5000, 2.0000]]])
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
        name = "size" if self.scale_factor is None else "scale_factor"
        return f"{name}={getattr(self, name)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images by the nearest elements: `Upsample` with the mode "nearest".

    Shape: input (N, C, H, W), output (N, C, H_out, W_out); sequences and volumes as for `Upsample` are accepted, too.

    Args:
        size, scale_factor: as for `Upsample`.

    Raises:
        TypeError: when called, for sizes that are no integers.
        ValueError: when called, unless exactly one of `size` and `scale_factor` is given, or for another number of
            dimensions.

    Example:
        >>> flow.nn.UpsamplingNearest2d(scale_factor=2)(flow.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[1., 1., 2., 2.],
                  [1., 1., 2., 2.]]]])
    """

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images by bilinear interpolation with aligned corners: `Upsample` with the mode "bilinear".

    Shape: input (N, C, H, W), output (N, C, H_out, W_out).

    Args:
        size, scale_factor: as for `Upsample`.

    Raises:
        TypeError: when called, for sizes that are no integers.
        ValueError: when called, unless exactly one of `size` and `scale_factor` is given, or for another number of
            dimensions.

    Example:
        >>> flow.nn.UpsamplingBilinear2d((1, 3))(flow.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """

    def __init__(self, size: Size | None = None, scale_factor: Factor | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(FunctionLayer, function=F.pixel_shuffle):
    """Moves r * r channels of each pixel to a block of r * r pixels, with r = `upscale_factor` (Shi et al., 2016).

    Shape: input (*, C * r ** 2, H, W), output (*, C, H * r, W * r).

    Raises:
        TypeError: when called, for a factor that is no integer.
        ValueError: when called, for a factor below 1, channels that ``r ** 2`` does not divide, or fewer than 3
            dimensions.

    Example:
        >>> flow.nn.PixelShuffle(2)(flow.arange(4.0).reshape(4, 1, 1))
        tensor([[[0., 1.],
                 [2., 3.]]])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor=upscale_factor)


class PixelUnshuffle(FunctionLayer, function=F.pixel_unshuffle):
    """Moves each block of r * r pixels to r * r channels, with r = `downscale_factor`: the inverse of `PixelShuffle`.

    Shape: input (*, C, H * r, W * r), output (*, C * r ** 2, H, W).

    Raises:
        TypeError: when called, for a factor that is no integer.
        ValueError: when called, for a factor below 1, a height or width that the factor does not divide, or fewer than
            3 dimensions.

    Example:
        >>> flow.nn.PixelUnshuffle(2)(flow.ones(1, 6, 4)).shape
        vmflow.Size([4, 3, 2])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor=downscale_factor)


class ChannelShuffle(FunctionLayer, function=F.channel_shuffle):
    """Splits the channels into `groups` groups and interleaves the groups (Zhang et al., 2018).

    Shape: input (N, C, L, *), output the same shape.

    Raises:
        TypeError: when called, if `groups` is no integer.
        ValueError: when called, if `groups` is below 1 or does not divide the channels, or for fewer than 3 dimensions.

    Example:
        >>> flow.nn.ChannelShuffle(2)(flow.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 2., 1., 3.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__(groups=groups)
