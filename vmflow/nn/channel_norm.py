"""`ChannelNorm`: what batch and instance normalisation share, a scale and a shift for each channel and statistics."""

from __future__ import annotations

from vmflow import dtypes
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops import creation
from vmflow.tensors import Tensor

from . import init
from .initial import make_neutral, new_parameter
from .module import DocumentedOnce


class ChannelNorm(DocumentedOnce):
    """Keeps the parameters and running statistics of channels that are normalised; subclasses define `forward`.

    Args:
        num_features: how many channels there are.
        eps: added to the variance.
        momentum: how far one batch moves the running statistics, or None.
        affine: whether to scale and shift afterwards.
        track_running_stats: whether there are running statistics.
        device, dtype: of parameters and buffers.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var: (num_features,), or None.
        num_batches_tracked: an int64 scalar, or None.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        self.register_parameter("weight", new_parameter(shape, device, dtype) if affine else None)
        self.register_parameter("bias", new_parameter(shape, device, dtype) if affine and bias else None)
        tracked: list[Tensor | None] = [None] * 3
        if track_running_stats:
            tracked = [
                creation.zeros(shape, device=device, dtype=dtype),
                creation.ones(shape, device=device, dtype=dtype),
                creation.zeros((), device=device, dtype=dtypes.int64),
            ]
        for name, buffer in zip(("running_mean", "running_var", "num_batches_tracked"), tracked, strict=True):
            self.register_buffer(name, buffer)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was tracked: mean zero, variance one."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Scale by one, shift by zero, and forget what was tracked."""
        self.reset_running_stats()
        make_neutral(self)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )
