"""The layers of instance, group and root-mean-square normalisation, and of normalisation by neighbouring channels."""

from __future__ import annotations

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.tensors import Tensor

from . import functional as F
from . import init
from .channel_norm import ChannelNorm
from .function_layers import FunctionLayer
from .initial import make_neutral, new_parameter
from .module import Module


class _InstanceNorm(ChannelNorm):
    """Normalise each channel of each sample over its image (Ulyanov, Vedaldi and Lempitsky, 2016).

    By the image's own mean and variance, or, in evaluation and with `track_running_stats`, by running ones.

    Args:
        num_features: how many channels there are.
        eps: added to the variance.
        momentum: how far one batch moves the running statistics; None for not at all.
        affine: whether to scale and shift afterwards.
        track_running_stats: whether there are running statistics.
        device, dtype: of parameters and buffers.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var: (num_features,), or None.
        num_batches_tracked: an int64 scalar that stays 0, as in PyTorch, or None.
    """

    # How many spatial dimensions there are.
    _rank: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_features, ...), or without N, to the same shape."""
        channel = input.ndim - self._rank - 1
        if channel not in (0, 1) or input.shape[channel] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: expected {self._rank + 1} or {self._rank + 2} dimensions, (N, "
                f"{self.num_features}, ...) or without N, got shape {list(input.shape)}"
            )
        if channel == 0:
            return self._normalised(input.unsqueeze(0)).squeeze(0)
        return self._normalised(input)

    def _normalised(self, input: Tensor) -> Tensor:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    _rank = 1


class InstanceNorm2d(_InstanceNorm):
    _rank = 2


class InstanceNorm3d(_InstanceNorm):
    _rank = 3


class GroupNorm(Module):
    """Normalise each of `num_groups` parts of each sample's channels (Wu and He, 2018).

    Args:
        num_groups: divides the channels.
        num_channels: how many channels there are.
        eps: added to the variance.
        affine: whether to scale and shift each channel afterwards.
        device, dtype: of the parameters.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_channels,), or None.

    Raises:
        ValueError: if the groups do not divide the channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels cannot be split into {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", new_parameter((num_channels,), device, dtype) if affine else None)
        self.register_parameter("bias", new_parameter((num_channels,), device, dtype) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale by one, shift by zero."""
        make_neutral(self)

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_channels, ...) to the same shape."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        shown = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{shown}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dimensions (Zhang and Sennrich, 2019).

    Args:
        normalized_shape: the sizes of those dimensions; an int for the last one alone.
        eps: added to the mean square; None for the smallest difference from 1 in float32 (in float64
            for inputs of that).
        elementwise_affine: whether to scale afterwards.
        device, dtype: of the parameter.

    Attributes:
        weight: of shape `normalized_shape`, or None.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", new_parameter(shape, device, dtype) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale by one."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(FunctionLayer):
    """Divide by a power of the mean square of neighbouring channels; see `F.local_response_norm`."""

    function = staticmethod(F.local_response_norm)

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(size=size, alpha=alpha, beta=beta, k=k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
