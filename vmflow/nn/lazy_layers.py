"""Lazy layers, such as `LazyLinear`: their first input, or loaded values, determine the shapes of their parameters.

layer = nn.LazyLinear(4)
layer(flow.ones(2, 7))     # now an nn.Linear(7, 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from vmflow import dtypes
from vmflow.autograd.grad_mode import no_grad
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.interpreter import eagerly
from vmflow.operands import check_tensors
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor

from .convolution_layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    Convolution,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Size,
    _Convolution,
    _Transposed,
)
from .layers import Linear
from .module import Module
from .normalization_layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _ChannelNorm,
)
from .parameter import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin, is_lazy


class LazyModuleMixin(Module):
    """The base of lazy modules: a call passes its arguments to `initialize_parameters`, and then to `forward`.

    A derived class makes parameters as `UninitializedParameter`, and gives them shapes in `initialize_parameters`:

        class LazyScale(LazyModuleMixin, nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.UninitializedParameter()

            def initialize_parameters(self, x):
                if self.has_uninitialized_params():
                    self.weight.materialize(x.shape[-1:])
                    nn.init.ones_(self.weight)

            def forward(self, x):
                return x * self.weight

    A first call while a graph is being built makes the parameters immediately; they become variables of the graph.

    Attributes:
        cls_to_become: the class of the module from its first `forward` on; None to keep the class, so that later calls
            call `initialize_parameters`, too.

    Raises:
        NotImplementedError: when called, if the class defines no `initialize_parameters`.
        RuntimeError: when called, if `initialize_parameters` leaves an own parameter or buffer without a shape.
    """

    cls_to_become: ClassVar[type[Module] | None] = None

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give shapes and values to parameters and buffers that have none; derived classes override this method.

        The arguments are those of `forward`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters()")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module, submodules not included, has no shape yet."""
        members = [*self._parameters.values(), *self._buffers.values()]
        return any([isinstance(member, UninitializedTensorMixin) for member in members])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with eagerly():
            self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(
                f"{type(self).__name__}: initialize_parameters() has left parameters or buffers without a shape; call "
                "their materialize(shape)"
            )
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
        return Module.__call__(self, *args, **kwargs)


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` whose `in_features` is the last size of its first input, unless a weight has been loaded.

    Shape: input (*, in_features), output (*, out_features).

    Args:
        out_features, bias, device, dtype: as for `Linear`.

    Raises:
        TypeError: if `out_features` is no integer; when called with anything else than a tensor of the weight's dtype.
        ValueError: if `out_features` is negative; when called with another number of features than the weight has, or
            with a tensor without dimensions.

    Example:
        >>> layer = flow.nn.LazyLinear(4)
        >>> layer(flow.ones(2, 7)).shape, layer
        (vmflow.Size([2, 4]), Linear(in_features=7, out_features=4, bias=True))
    """

    cls_to_become = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, out_features, False, device, dtype)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values of the parameters, if all have shapes, else do nothing."""
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `in_features` by a loaded weight, or the input's last dimension; draw the parameters without shapes."""
        check_tensors(type(self).__name__, input)
        if input.ndim == 0:
            raise ValueError(f"{type(self).__name__}: expected an input of at least 1 dimension, got shape []")
        self.in_features = (input if is_lazy(self.weight) else self.weight).shape[-1]
        _initialize(self, {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)})


def _initialize(module: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    """Give shapes and initial values to the parameters and buffers of a lazy layer that have none.

    Args:
        module: a lazy layer.
        shapes: the shapes of the parameters and buffers that may have none, by name.
    """
    if not module.has_uninitialized_params():
        return
    # `reset_parameters` sets all parameters and buffers, but those that have shapes already may have been loaded.
    members = [*module._parameters.values(), *module._buffers.values()]
    loaded = [(member, member.detach().clone()) for member in members if member is not None and not is_lazy(member)]
    for name, shape in shapes.items():
        member = getattr(module, name)
        if is_lazy(member):
            member.materialize(shape)
    module.reset_parameters()
    with no_grad():
        for member, values in loaded:
            member.copy_(values)


class _LazyConvXdMixin(LazyModuleMixin, _Convolution):
    """The base of lazy convolutions; `in_channels` is that of the first input, unless a weight has been loaded."""

    def _forget_shapes(self, bias: bool, device: Device | str | None, dtype: DType | None) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values of the parameters, if all have shapes and `in_channels` is known, else do nothing."""
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Set `in_channels` by a loaded weight, or the input's channels; draw the parameters without shapes."""
        check_tensors(type(self).__name__, input)
        self.in_channels = self._channels_of(input) if is_lazy(self.weight) else self._loaded_channels()
        _initialize(self, {"weight": (*self._channels(), *self.kernel_size), "bias": (self.out_channels,)})

    def _channels_of(self, input: Tensor) -> int:
        name, rank = type(self).__name__, self._rank
        if input.ndim not in (rank + 1, rank + 2):
            raise ValueError(f"{name}: expected {rank + 1} or {rank + 2} dimensions, got shape {list(input.shape)}")
        channels = input.shape[-rank - 1]
        if channels == 0 or channels % self.groups:
            raise ValueError(
                f"{name}: {channels} channels, of an input of shape {list(input.shape)}, cannot be split into "
                f"{self.groups} groups"
            )
        return channels

    def _channels(self) -> tuple[int, int]:
        """The sizes of the first two dimensions of the weight."""
        raise NotImplementedError

    def _loaded_channels(self) -> int:
        """The number of input channels, computed from the shape of the weight, which has been loaded."""
        raise NotImplementedError


class _LazyForward(_LazyConvXdMixin, Convolution):
    """The base of `LazyConv1d`, `LazyConv2d` and `LazyConv3d`.

    Args:
        out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype: as for
            `Conv2d`.

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than a tensor of the weight's dtype.
        ValueError: for sizes out of range, output channels that `groups` does not divide, another padding mode, or the
            padding "same" with a stride above 1; when called with an input of a shape that does not fit.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            *(0, out_channels, kernel_size, stride, padding, dilation, groups, False, padding_mode),
            device=device,
            dtype=dtype,
        )
        self._forget_shapes(bias, device, dtype)

    def _channels(self) -> tuple[int, int]:
        return self.out_channels, self.in_channels // self.groups

    def _loaded_channels(self) -> int:
        return self.weight.shape[1] * self.groups


class LazyConv1d(_LazyForward, Conv1d, rank=1):
    """`Conv1d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, L) or (C_in, L), output (N, C_out, L_out) or (C_out, L_out).

    Example:
        >>> flow.nn.LazyConv1d(4, kernel_size=2)(flow.ones(1, 3, 10)).shape
        vmflow.Size([1, 4, 9])
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d, rank=2):
    """`Conv2d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, H, W) or (C_in, H, W), output (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> flow.nn.LazyConv2d(4, kernel_size=3, padding=1)(flow.ones(1, 3, 8, 10)).shape
        vmflow.Size([1, 4, 8, 10])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d, rank=3):
    """`Conv3d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, D, H, W) or (C_in, D, H, W), output (N, C_out, D_out, H_out, W_out) or without N.

    Example:
        >>> flow.nn.LazyConv3d(4, kernel_size=2)(flow.ones(1, 3, 4, 6, 8)).shape
        vmflow.Size([1, 4, 3, 5, 7])
    """

    cls_to_become = Conv3d


class _LazyTransposed(_LazyConvXdMixin, _Transposed):
    """The base of `LazyConvTranspose1d`, `LazyConvTranspose2d` and `LazyConvTranspose3d`.

    Args:
        out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype:
            as for `ConvTranspose2d`.

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than a tensor of the weight's dtype.
        ValueError: for sizes out of range, output channels that `groups` does not divide, or another padding mode; when
            called with an input or an output size that does not fit, or if `output_padding` is too large.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            *(0, out_channels, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode),
            device=device,
            dtype=dtype,
        )
        self._forget_shapes(bias, device, dtype)

    def initialize_parameters(self, input: Tensor, output_size: Sequence[int] | None = None) -> None:
        """Set `in_channels` by a loaded weight, or the input's channels; draw the parameters without shapes."""
        super().initialize_parameters(input)

    def _channels(self) -> tuple[int, int]:
        return self.in_channels, self.out_channels // self.groups

    def _loaded_channels(self) -> int:
        return self.weight.shape[0]


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d, rank=1):
    """`ConvTranspose1d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, L) or (C_in, L), output (N, C_out, L_out) or (C_out, L_out).

    Example:
        >>> flow.nn.LazyConvTranspose1d(4, kernel_size=2, stride=2)(flow.ones(1, 3, 5)).shape
        vmflow.Size([1, 4, 10])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d, rank=2):
    """`ConvTranspose2d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, H, W) or (C_in, H, W), output (N, C_out, H_out, W_out) or (C_out, H_out, W_out).

    Example:
        >>> flow.nn.LazyConvTranspose2d(4, kernel_size=3, stride=2)(flow.ones(1, 3, 4, 4)).shape
        vmflow.Size([1, 4, 9, 9])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d, rank=3):
    """`ConvTranspose3d` whose `in_channels` is the number of channels of its first input.

    Shape: input (N, C_in, D, H, W) or (C_in, D, H, W), output (N, C_out, D_out, H_out, W_out) or without N.

    Example:
        >>> flow.nn.LazyConvTranspose3d(4, kernel_size=2, stride=2)(flow.ones(1, 3, 2, 3, 4)).shape
        vmflow.Size([1, 4, 4, 6, 8])
    """

    cls_to_become = ConvTranspose3d


class _LazyNormBase(LazyModuleMixin, _ChannelNorm):
    """The base of lazy normalisation layers; `num_features` comes from loaded tensors or the first input's channels."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = creation.zeros((), device=device, dtype=dtypes.int64)

    def reset_parameters(self) -> None:
        """Reset parameters and running statistics to initial values, if all have shapes and `num_features` is set."""
        if not self.has_uninitialized_params() and self.num_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `num_features` by loaded tensors, or the input's channels; initialize the tensors without shapes."""
        check_tensors(type(self).__name__, input)
        names = ("weight", "bias", "running_mean", "running_var")
        members = [getattr(self, name) for name in names]
        known = [member for member in members if member is not None and not is_lazy(member)]
        self.num_features = known[0].shape[0] if known else self._features(input)
        _initialize(self, dict.fromkeys(names, (self.num_features,)))

    def _features(self, input: Tensor) -> int:
        if input.ndim < 2:
            raise ValueError(
                f"{type(self).__name__}: expected an input with a dimension of channels, got shape {list(input.shape)}"
            )
        return input.shape[1]


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """`BatchNorm1d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C) or (N, C, L), output the same shape.

    Args:
        eps, momentum, affine, track_running_stats, device, dtype, bias: as for `BatchNorm1d`.

    Raises:
        TypeError, ValueError: when called, as for `BatchNorm1d`.

    Example:
        >>> flow.nn.LazyBatchNorm1d()(flow.ones(2, 3)).shape
        vmflow.Size([2, 3])
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """`BatchNorm2d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C, H, W), output the same shape.

    Args:
        eps, momentum, affine, track_running_stats, device, dtype, bias: as for `BatchNorm2d`.

    Raises:
        TypeError, ValueError: when called, as for `BatchNorm2d`.

    Example:
        >>> flow.nn.LazyBatchNorm2d()(flow.ones(2, 3, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4])
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """`BatchNorm3d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C, D, H, W), output the same shape.

    Args:
        eps, momentum, affine, track_running_stats, device, dtype, bias: as for `BatchNorm3d`.

    Raises:
        TypeError, ValueError: when called, as for `BatchNorm3d`.

    Example:
        >>> flow.nn.LazyBatchNorm3d()(flow.ones(2, 3, 4, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4, 4])
    """

    cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNormBase):
    """The base of lazy instance norms, whose inputs may be without a batch dimension."""

    def _features(self, input: Tensor) -> int:
        channel = input.ndim - self._rank - 1
        if channel not in (0, 1):
            raise ValueError(
                f"{type(self).__name__}: expected {self._rank + 1} or {self._rank + 2} dimensions, got shape "
                f"{list(input.shape)}"
            )
        return input.shape[channel]


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """`InstanceNorm1d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C, L) or (C, L), output the same shape.

    Args:
        eps, momentum, device, dtype, bias: as for `InstanceNorm1d`.
        affine, track_running_stats: likewise, but by default True.

    Raises:
        TypeError, ValueError: when called, as for `InstanceNorm1d`.

    Example:
        >>> flow.nn.LazyInstanceNorm1d()(flow.ones(2, 3, 4)).shape
        vmflow.Size([2, 3, 4])
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """`InstanceNorm2d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C, H, W) or (C, H, W), output the same shape.

    Args:
        eps, momentum, device, dtype, bias: as for `InstanceNorm2d`.
        affine, track_running_stats: likewise, but by default True.

    Raises:
        TypeError, ValueError: when called, as for `InstanceNorm2d`.

    Example:
        >>> flow.nn.LazyInstanceNorm2d()(flow.ones(2, 3, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """`InstanceNorm3d` whose `num_features` is the number of channels of its first input.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output the same shape.

    Args:
        eps, momentum, device, dtype, bias: as for `InstanceNorm3d`.
        affine, track_running_stats: likewise, but by default True.

    Raises:
        TypeError, ValueError: when called, as for `InstanceNorm3d`.

    Example:
        >>> flow.nn.LazyInstanceNorm3d()(flow.ones(2, 3, 4, 4, 4)).shape
        vmflow.Size([2, 3, 4, 4, 4])
    """

    cls_to_become = InstanceNorm3d
