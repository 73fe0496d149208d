"""Layers that have parameters or buffers: linear, embedding and batch and layer normalisation.

They hold the tensors; what is computed is in `functional`.
"""

from __future__ import annotations

from typing import Self

from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.ops.normalization import batch_norm_counted
from vmflow.tensors import Tensor

from . import functional as F
from .channel_norm import ChannelNorm
from .initial import draw_by_fan_in, draw_table, make_neutral, new_parameter
from .module import Module, unusual_settings
from .parameter import Parameter


class Linear(Module):
    """``x @ weight.T + bias`` over the last dimension.

    Args:
        in_features, out_features: the sizes of the last dimension before and after.
        bias: whether to add one.
        device, dtype: of the parameters.

    Attributes:
        weight: (out_features, in_features).
        bias: (out_features,), or None.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = new_parameter((out_features, in_features), device, dtype)
        self.register_parameter("bias", new_parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        draw_by_fan_in(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of vectors, looked up by integer.

    Args:
        num_embeddings: rows of the table.
        embedding_dim: the length of one vector.
        padding_idx: a row that stays as it is, zero at first: it gets no gradient.
        max_norm, norm_type: scale the rows that are looked up down to this norm, in place.
        scale_grad_by_freq: divide a row's gradient by how often the input names it.
        sparse: must be False; gradients are dense.
        device, dtype: of the table.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Raises:
        ValueError: if there is no row `padding_idx`, or for sparse gradients.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if sparse:
            raise ValueError("Embedding: sparse gradients are not supported; leave sparse=False")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, from the standard normal distribution."""
        draw_table(self.weight, self.padding_idx)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:
        """A layer with this table, a tensor of shape (rows, length), whose memory it shares.

        Args:
            embeddings: the table.
            freeze: whether it stays as it is.
            padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as for the class.

        Raises:
            ValueError: if the table is no matrix, or has no row `padding_idx`.
        """
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a matrix of vectors, got shape {list(embeddings.shape)}")
        rows, length = embeddings.shape
        # Made with an empty table, so as not to draw initial values that nobody will see.
        layer = cls(0, length, None, max_norm, norm_type, scale_grad_by_freq, sparse)
        layer.num_embeddings = rows
        layer.padding_idx = _row(padding_idx, rows)
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape (*) to vectors of shape (*, embedding_dim)."""
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}
        return shown + unusual_settings(self, usual)


def _row(padding_idx: int | None, rows: int) -> int | None:
    """The row counted from the front."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"Embedding: padding_idx {padding_idx} is out of range for {rows} rows")
    return padding_idx % rows


class LayerNorm(Module):
    """Normalise over the last dimensions of each element of the batch (Ba, Kiros and Hinton, 2016).

    Args:
        normalized_shape: the sizes of those dimensions; an int for the last one alone.
        eps: added to the variance.
        elementwise_affine: whether to scale and shift afterwards.
        bias: whether to shift, if affine.
        device, dtype: of the parameters.

    Attributes:
        weight, bias: of shape `normalized_shape`, or None.
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
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", new_parameter(shape, device, dtype) if elementwise_affine else None)
        self.register_parameter("bias", new_parameter(shape, device, dtype) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale by one, shift by zero."""
        make_neutral(self)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same shape."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class _BatchNorm(ChannelNorm):
    """Normalise each channel over the batch (Ioffe and Szegedy, 2015).

    In training mode by the batch's own mean and variance, which also move the running ones; in evaluation by the
    running ones.

    Args:
        num_features: the size of dimension 1, the channels.
        eps: added to the variance.
        momentum: how far one batch moves the running statistics; None for the average over all batches so far.
        affine: whether to scale and shift afterwards.
        track_running_stats: whether there are running statistics; without, the batch's are always used.
        device, dtype: of parameters and buffers.
        bias: whether to shift, if affine.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var: (num_features,), or None.
        num_batches_tracked: how many batches moved them, an int64 scalar, or None.
    """

    # The numbers of dimensions an input may have.
    _ranks: tuple[int, ...]

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_features, ...) to the same shape."""
        if input.ndim not in self._ranks:
            wanted = " or ".join(map(str, self._ranks))
            raise ValueError(
                f"{type(self).__name__}: expected {wanted} dimensions, (N, {self.num_features}, ...), "
                f"got shape {list(input.shape)}"
            )
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


class BatchNorm1d(_BatchNorm):
    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    _ranks = (5,)
