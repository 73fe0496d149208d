"""The layers of normalisation: batch, instance, group, layer, RMS and local response normalisation."""

from __future__ import annotations

from typing import TypeGuard

from vmflow import dtypes
from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.creation import creation
from vmflow.ops.nn.normalization import batch_norm_counted
from vmflow.ops.table import as_tuple
from vmflow.tensors import Tensor

from . import functional as F, init
from .function_layers import FunctionLayer
from .module import Module
from .parameter import is_lazy, new_parameter
from .ranked_layer import RankedLayer


class _AffineNorm(RankedLayer):
    """The base of normalisation layers that may scale the results by `weight` and shift them by `bias`."""

    def _add_parameters(
        self, shape: tuple[int, ...], scales: bool, shifts: bool, device: Device | str | None, dtype: DType | None
    ) -> None:
        self.register_parameter("weight", new_parameter(shape, device, dtype) if scales else None)
        self.register_parameter("bias", new_parameter(shape, device, dtype) if shifts else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all weights to 1 and all biases to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _ChannelNorm(_AffineNorm):
    """The base of batch and instance norms, with their parameters and running statistics; subclasses define `forward`.

    The arguments and attributes are as for `_BatchNorm`; subclasses define the meaning of a `momentum` of None.
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
        tracked: list[Tensor | None] = [None] * 3
        if track_running_stats:
            tracked = [
                creation.zeros(shape, device=device, dtype=dtype),
                creation.ones(shape, device=device, dtype=dtype),
                creation.zeros((), device=device, dtype=dtypes.int64),
            ]
        for name, buffer in zip(("running_mean", "running_var", "num_batches_tracked"), tracked, strict=True):
            self.register_buffer(name, buffer)
        self._add_parameters(shape, affine, affine and bias, device, dtype)

    def reset_running_stats(self) -> None:
        """Reset the running statistics, if any: mean 0, variance 1, and no batches counted."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Set all weights to 1 and biases to 0, and reset the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ChannelNorm):
    """The base of batch norms, which normalise each channel over the batch (Ioffe and Szegedy, 2015).

    In training mode batch norms use the batch's own mean and variance, and update the running mean and variance; in
    evaluation mode they use the running mean and variance.

    Args:
        num_features: the number of channels, the size of dimension 1.
        eps: added to the variance.
        momentum: the weight of a batch in the running statistics; None for the average over all batches so far.
        affine: whether to scale and shift afterwards.
        track_running_stats: whether there are running statistics; without them, those of the batch are always used.
        device, dtype: the device and dtype of parameters and buffers.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var: (num_features,), or None.
        num_batches_tracked: the number of batches in the running statistics, an int64 scalar, or None.

    Raises:
        TypeError: for a size that is no integer; when called with anything else than a floating-point tensor.
        ValueError: for a negative size; when called with another number of dimensions or channels, or with at most one
            value for each channel where the batch's mean is used.  Without parameters and running statistics
            `num_features` is not checked.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise an input of (N, num_features, ...), and return the result in the same shape."""
        self._check_rank(input)
        return batch_norm_counted(
            input,
            self.running_mean,
            self.running_var,
            self.num_batches_tracked,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum,
            self.eps,
        )

    def _check_rank(self, input: Tensor) -> None:
        check_tensors(type(self).__name__, input)
        ranks = (2, 3) if self._rank == 1 else (self._rank + 2,)
        if input.ndim not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise ValueError(
                f"{type(self).__name__}: expected {wanted} dimensions, (N, {self.num_features}, ...), "
                f"got shape {list(input.shape)}"
            )


class BatchNorm1d(_BatchNorm, rank=1):
    """Normalises each channel of sequences, or each feature, over the batch (Ioffe and Szegedy, 2015).

    Shape: input (N, C) or (N, C, L), output the same shape.

    Example:
        >>> flow.nn.BatchNorm1d(2)(flow.tensor([[1.0, 10.0], [3.0, 30.0]])).detach()
        tensor([[-1.0000, -1.0000],
                [ 1.0000,  1.0000]])
    """


class BatchNorm2d(_BatchNorm, rank=2):
    """Normalises each channel of images over the batch (Ioffe and Szegedy, 2015).

    Shape: input (N, C, H, W), output the same shape.

    Example:
        >>> layer = flow.nn.BatchNorm2d(3)
        >>> layer(flow.ones(2, 3, 4, 4)).shape, layer.running_mean
        (vmflow.Size([2, 3, 4, 4]), tensor([0.1000, 0.1000, 0.1000]))
    """


class BatchNorm3d(_BatchNorm, rank=3):
    """Normalises each channel of volumes over the batch (Ioffe and Szegedy, 2015).

    Shape: input (N, C, D, H, W), output the same shape.

    Example:
        >>> flow.nn.BatchNorm3d(3)(flow.ones(2, 3, 4, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4, 4])
    """


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all ranks, with any number of spatial dimensions.

    Within one process, and for global tensors, the results are those of `BatchNorm1d`, `BatchNorm2d` and `BatchNorm3d`:
    a global batch that is split over ranks is one batch.  Local tensors of several ranks cannot be normalised together
    in training.

    Shape: input (N, C, *), output the same shape.

    Args:
        process_group: must be None.
        num_features, eps, momentum, affine, track_running_stats, device, dtype, bias: as for `BatchNorm2d`.

    Raises:
        TypeError: for a size that is no integer; when called with anything else than a floating-point tensor.
        ValueError: for a process group or a negative size; when called with inputs that `BatchNorm2d` rejects, but for
            the number of dimensions, or in training with a local tensor where there are several ranks.

    Example:
        >>> model = flow.nn.Sequential(flow.nn.Linear(2, 3), flow.nn.BatchNorm1d(3))
        >>> flow.nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]
        SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        _check_process_group(process_group)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_rank(self, input: Tensor) -> None:
        check_tensors(type(self).__name__, input)
        if input.ndim < 2:
            raise ValueError(
                f"SyncBatchNorm: expected at least 2 dimensions, (N, {self.num_features}, ...), got shape "
                f"{list(input.shape)}"
            )
        if self.training and not input.is_global:
            from vmflow.distributed.process import get_world_size  # imported here, because few programs need it

            if get_world_size() > 1:
                raise ValueError(
                    "SyncBatchNorm: batches of several ranks are normalised together as a global tensor only; make one "
                    "of the input and of the module with to_global, or use BatchNorm"
                )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Module:
        """Replace each batch norm of a module by a `SyncBatchNorm` with its parameters and buffers; return the module.

        Args:
            module: the module to change; if it is a batch norm itself, its replacement is returned.
            process_group: must be None.

        Raises:
            ValueError: for a process group, or a lazy batch norm with members without a shape; the module is unchanged.
        """
        _check_process_group(process_group)
        for path, norm in module.named_modules():
            if _is_replaced(norm) and any([is_lazy(member) for member in (*norm.parameters(), *norm.buffers())]):
                where = f" {path!r}" if path else ""
                raise ValueError(
                    f"SyncBatchNorm: the {type(norm).__name__}{where} has no number of channels before it has seen an "
                    "input; call the module once, and convert it then"
                )
        replacements: dict[Module, Module] = {}
        # A batch norm with several owners, or several names, keeps all of them.
        for owner in list(module.modules()):
            for name, child in list(owner._modules.items()):
                if _is_replaced(child):
                    setattr(owner, name, replacements.get(child) or replacements.setdefault(child, cls._from(child)))
        return cls._from(module) if _is_replaced(module) else module

    @classmethod
    def _from(cls, norm: _BatchNorm) -> SyncBatchNorm:
        """Make a synchronized batch norm with the settings, parameters and buffers of another batch norm."""
        replacement = cls(
            norm.num_features,
            norm.eps,
            norm.momentum,
            norm.affine,
            norm.track_running_stats,
            bias=norm.bias is not None,
        )
        for name, parameter in norm.named_parameters(recurse=False):
            replacement.register_parameter(name, parameter)
        for name, buffer in norm.named_buffers(recurse=False):
            replacement.register_buffer(name, buffer)
        return replacement.train(norm.training)


def _check_process_group(process_group: object) -> None:
    if process_group is not None:
        raise ValueError("SyncBatchNorm: process_group must be None; global tensors say which ranks share a batch")


def _is_replaced(module: Module | None) -> TypeGuard[_BatchNorm]:
    return isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm)


class _InstanceNorm(_ChannelNorm):
    """The base of instance norms, which normalise each channel of each sample (Ulyanov, Vedaldi and Lempitsky, 2016).

    Instance norms use the mean and variance over the channel's image, and with `track_running_stats` update the running
    mean and variance by them; in evaluation mode with `track_running_stats` they use the running ones.

    Args:
        num_features: the number of channels.
        eps: added to the variance.
        momentum: the weight of a batch in the running statistics; None for no change.
        affine: whether to scale and shift afterwards.
        track_running_stats: whether there are running statistics.
        device, dtype: the device and dtype of parameters and buffers.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var: (num_features,), or None.
        num_batches_tracked: an int64 scalar that stays 0, as in PyTorch, or None.

    Raises:
        TypeError: for a size of parameters or buffers that is no integer; when called with anything else than a
            floating-point tensor.
        ValueError: for a negative size of parameters or buffers; when called with another number of dimensions or
            channels, or with images of at most one element where their own mean and variance are used.
    """

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
        """Normalise an input of (N, num_features, ...), or without N, and return the result in the same shape."""
        check_tensors(type(self).__name__, input)
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


class InstanceNorm1d(_InstanceNorm, rank=1):
    """Normalises each channel of each sequence (Ulyanov, Vedaldi and Lempitsky, 2016).

    Shape: input (N, C, L) or (C, L), output the same shape.

    Example:
        >>> flow.nn.InstanceNorm1d(2, eps=0.0)(flow.tensor([[1.0, 3.0], [10.0, 30.0]]))
        tensor([[-1.,  1.],
                [-1.,  1.]])
    """


class InstanceNorm2d(_InstanceNorm, rank=2):
    """Normalises each channel of each image (Ulyanov, Vedaldi and Lempitsky, 2016).

    Shape: input (N, C, H, W) or (C, H, W), output the same shape.

    Example:
        >>> flow.nn.InstanceNorm2d(3)(flow.ones(2, 3, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4])
    """


class InstanceNorm3d(_InstanceNorm, rank=3):
    """Normalises each channel of each volume (Ulyanov, Vedaldi and Lempitsky, 2016).

    Shape: input (N, C, D, H, W) or (C, D, H, W), output the same shape.

    Example:
        >>> flow.nn.InstanceNorm3d(3)(flow.ones(2, 3, 4, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4, 4])
    """


class GroupNorm(_AffineNorm):
    """Splits each sample's channels into `num_groups` groups, and normalises each group (Wu and He, 2018).

    Shape: input (N, C, *), output the same shape.

    Args:
        num_groups: the number of groups, which divides the channels.
        num_channels: the number of channels.
        eps: added to the variance.
        affine: whether to scale and shift each channel afterwards.
        device, dtype: the device and dtype of the parameters.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_channels,), or None.

    Raises:
        TypeError: for a `num_groups` that is no integer; when called with anything else than a floating-point tensor.
        ValueError: if the groups do not divide the channels, also when called; if affine, for negative `num_channels`,
            and when called with another number of channels.

    Example:
        >>> flow.nn.GroupNorm(1, 2, eps=0.0)(flow.tensor([[1.0, 3.0]])).detach()
        tensor([[-1.,  1.]])
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
        num_groups = whole_number("GroupNorm", "num_groups", num_groups)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels cannot be split into {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._add_parameters((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise an input of (N, num_channels, ...), and return the result in the same shape."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        shown = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{shown}, bias={self.bias is not None}"


class LayerNorm(_AffineNorm):
    """Normalises over the last dimensions, for each index of the other dimensions (Ba, Kiros and Hinton, 2016).

    Shape: input (*, *normalized_shape), output the same shape.

    Args:
        normalized_shape: the sizes of the last dimensions, which are normalised; an int for the last dimension alone.
        eps: added to the variance.
        elementwise_affine: whether to scale and shift afterwards.
        bias: whether to shift, if `elementwise_affine`.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight, bias: of shape `normalized_shape`, or None.

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than a floating-point tensor.
        ValueError: for negative sizes of parameters; when called with another shape.

    Example:
        >>> flow.nn.LayerNorm(2, eps=0.0)(flow.tensor([[1.0, 3.0], [20.0, 10.0]])).detach()
        tensor([[-1.,  1.],
                [ 1., -1.]])
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = tuple([whole_number("LayerNorm", "a size", size) for size in as_tuple(normalized_shape)])
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._add_parameters(shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise an input of (*, *normalized_shape), and return the result in the same shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root of the mean square over the last dimensions (Zhang and Sennrich, 2019).

    Shape: input (*, *normalized_shape), output the same shape.

    Args:
        normalized_shape: the sizes of the last dimensions, which are normalised; an int for the last dimension alone.
        eps: added to the mean square; None for the machine epsilon of float32 (of float64 for float64 inputs).
        elementwise_affine: whether to scale afterwards.
        device, dtype: the device and dtype of the parameter.

    Attributes:
        weight: of shape `normalized_shape`, or None.

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than a floating-point tensor.
        ValueError: for negative sizes of parameters; when called with another shape.

    Example:
        >>> flow.nn.RMSNorm(4)(flow.tensor([2.0, -2.0, 2.0, 2.0])).detach()
        tensor([ 1., -1.,  1.,  1.])
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
        shape = tuple([whole_number("RMSNorm", "a size", size) for size in as_tuple(normalized_shape)])
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", new_parameter(shape, device, dtype) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all weights to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise an input of (*, *normalized_shape), and return the result in the same shape."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LocalResponseNorm(FunctionLayer, function=F.local_response_norm):
    """Divides by ``(k + alpha * mean_square)**beta`` of the neighbouring channels (Krizhevsky and others, 2012).

    Shape: input (N, C, *), output the same shape.

    Args:
        size: the number of channels in the mean, the channel itself among them; missing channels count as zeros.
        alpha, beta, k: the constants of the divisor.

    Raises:
        TypeError: when called with anything else than a floating-point tensor, or for a `size` that is no integer.
        ValueError: when called, for a `size` below 1, or an input of fewer than 3 dimensions.

    Example:
        >>> flow.nn.LocalResponseNorm(1, alpha=1.0, beta=0.5, k=0.0)(flow.tensor([[[2.0, -4.0]]]))
        tensor([[[ 1., -1.]]])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(size=size, alpha=alpha, beta=beta, k=k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
