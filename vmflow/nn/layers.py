"""The layers `Linear`, `Bilinear`, `Embedding` and `EmbeddingBag`."""

from __future__ import annotations

import math
from typing import Any, Self

from vmflow.autograd import no_grad
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.creation import creation
from vmflow.ops.nn.embedding_bag import MODES
from vmflow.ops.shape.view import lengths
from vmflow.tensors import Tensor

from . import functional as F, init
from .module import Module, unusual_settings
from .parameter import Parameter, new_parameter


def draw_by_fan_in(weight: Tensor, bias: Tensor | None) -> None:
    """Fill weight and bias uniformly within +-1 / sqrt(fan_in), or with 0 if fan_in is 0."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None and bias.numel():
        fan_in, _ = init.fan_in_and_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(bias, -bound, bound)


def draw_evenly(module: Module, size: int) -> None:
    """Fill all parameters of a module uniformly within +-1 / sqrt(size), or with 0 if `size` is 0."""
    bound = 1 / math.sqrt(size) if size else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


def _draw_table(table: Tensor, padding_idx: int | None) -> None:
    """Fill an embedding table from the standard normal distribution, but its row `padding_idx` with zeros."""
    init.normal_(table)
    if padding_idx is not None:
        with no_grad():
            table[padding_idx].zero_()


class Linear(Module):
    """``x @ weight.T + bias`` over the last dimension.

    Shape: input (*, in_features), output (*, out_features).

    Args:
        in_features, out_features: the sizes of the last dimension of input and output.
        bias: whether to add a bias.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight: (out_features, in_features).
        bias: (out_features,), or None.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weight's.
        ValueError: for negative sizes; when called with another number of features.

    Example:
        >>> layer = flow.nn.Linear(2, 3)
        >>> layer(flow.ones(5, 2)).shape
        vmflow.Size([5, 3])
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
        self.weight = new_parameter(lengths(type(self).__name__, (out_features, in_features)), device, dtype)
        self.register_parameter("bias", new_parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values of the weight and the bias."""
        draw_by_fan_in(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``x1 @ weight[k] @ x2 + bias[k]`` for every output feature k.

    Shape: inputs (*, in1_features) and (*, in2_features), output (*, out_features).

    Args:
        in1_features, in2_features, out_features: the sizes of the last dimensions of the two inputs and the output.
        bias: whether to add a bias.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,), or None.

    Raises:
        TypeError: for sizes that are no integers; when called with another dtype than the weight's.
        ValueError: for negative sizes, or an `in1_features` of 0; when called with shapes that do not fit.

    Example:
        >>> layer = flow.nn.Bilinear(2, 3, 4)
        >>> layer(flow.ones(5, 2), flow.ones(5, 3)).shape
        vmflow.Size([5, 4])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = lengths("Bilinear", (out_features, in1_features, in2_features))
        if in1_features <= 0:
            raise ValueError(f"Bilinear: in1_features must be positive, got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = new_parameter(shape, device, dtype)
        self.register_parameter("bias", new_parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values of weight and bias, uniformly within ``+-1 / sqrt(in1_features)``."""
        draw_evenly(self, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Map (..., in1_features) and (..., in2_features) to (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Embedding(Module):
    """Looks up rows of a table of vectors by their integer indices.

    Shape: input (*), output (*, embedding_dim).

    Args:
        num_embeddings: the number of rows of the table.
        embedding_dim: the length of one vector.
        padding_idx: a row (if negative, counted from the end) that gets no gradient, and is zero at first in a table
            that the layer makes.
        max_norm, norm_type: the largest norm, and its order; rows with larger norms are scaled down in place when used.
        scale_grad_by_freq: whether to divide a row's gradient by the number of its indices in the input.
        sparse: must be False; gradients are dense.
        _weight: a table whose memory the layer shares; by default the layer makes a table with random values.
        _freeze: whether the table is not trained.
        device, dtype: the device and dtype of a table that the layer makes.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Raises:
        TypeError: for sizes that are no integers, or a table that is no tensor; when called with anything else than a
            tensor of integers.
        ValueError: for negative sizes, a missing row `padding_idx`, a table of another shape, or sparse gradients.
        IndexError: when the result is read, if an index is negative or out of range.

    Example:
        >>> table = flow.nn.Embedding.from_pretrained(flow.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> table(flow.tensor([1, 1, 0]))
        tensor([[3., 4.],
                [3., 4.],
                [1., 2.]])
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
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if sparse:
            raise ValueError("Embedding: sparse gradients are not supported; leave sparse=False")
        num_embeddings, embedding_dim = lengths(type(self).__name__, (num_embeddings, embedding_dim))
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = Parameter(
                creation.empty((num_embeddings, embedding_dim), device=device, dtype=dtype), not _freeze
            )
            self.reset_parameters()
        else:
            _check_table("Embedding", _weight, num_embeddings, embedding_dim)
            self.weight = Parameter(_weight, not _freeze)

    def reset_parameters(self) -> None:
        """Draw new values of the table from the standard normal distribution, zeros for row `padding_idx`."""
        _draw_table(self.weight, self.padding_idx)

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
        """Make an embedding layer with a given table, whose memory it shares.

        Args:
            embeddings: the table, (rows, length).
            freeze: whether the table is not trained.
            padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse: as for the class.

        Raises:
            TypeError: if the table is no tensor.
            ValueError: if the table is no matrix, or has no row `padding_idx`; for sparse gradients.
        """
        check_tensors("from_pretrained", embeddings)
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a matrix of vectors, got shape {list(embeddings.shape)}")
        rows, length = embeddings.shape
        return cls(
            rows,
            length,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def forward(self, input: Tensor) -> Tensor:
        """Look up the rows for integers of any shape (*), as a tensor (*, embedding_dim)."""
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        usual = {"padding_idx": None, "max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}
        return shown + unusual_settings(self, usual)


def _check_table(name: str, table: Tensor, rows: int, length: int) -> None:
    check_tensors(name, table)
    if tuple(table.shape) != (rows, length):
        raise ValueError(
            f"{name}: a table of shape {list(table.shape)} is not one of {rows} vectors of length {length}"
        )


def _row(padding_idx: int | None, rows: int) -> int | None:
    """Return `padding_idx` as a row number counted from the front, or None; raise ValueError if out of range."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(f"Embedding: padding_idx {padding_idx} is out of range for {rows} rows")
    return padding_idx % rows


class EmbeddingBag(Module):
    """Looks up the vectors of each bag of integers in a table, and returns their sum, mean or maximum for each bag.

    Shape: input (N, L), or (L,) with offsets (N,); output (N, embedding_dim), zeros for an empty bag.

    Args:
        num_embeddings, embedding_dim, max_norm, norm_type, sparse, _weight, device, dtype: as for `Embedding`.
        scale_grad_by_freq: as for `Embedding`; must be False for "max".
        mode: "sum", "mean" or "max".
        include_last_offset: whether the last offset is the end of the last bag, so that there are N + 1 offsets.
        padding_idx: as for `Embedding`; the bags leave this row out.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Raises:
        TypeError: for sizes that are no integers; when called with anything else than integers.
        ValueError: for negative sizes, another mode, a missing row `padding_idx`, a table of another shape, or sparse
            gradients; when called with arguments that `functional.embedding_bag` refuses.
        IndexError: when the result is read, if an index is negative or out of range, or the offsets do not begin at 0,
            decrease, or exceed L.

    Example:
        >>> bags = flow.nn.EmbeddingBag.from_pretrained(flow.tensor([[1.0, 2.0], [3.0, 4.0]]), mode="sum")
        >>> bags(flow.tensor([0, 1, 1]), flow.tensor([0, 2]))
        tensor([[4., 6.],
                [3., 4.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if sparse:
            raise ValueError("EmbeddingBag: sparse gradients are not supported; leave sparse=False")
        if mode not in MODES:
            raise ValueError(f"EmbeddingBag: mode must be one of {', '.join(MODES)}, not {mode!r}")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"EmbeddingBag: padding_idx {padding_idx} names no row of a table of {num_embeddings}")
        num_embeddings, embedding_dim = lengths(type(self).__name__, (num_embeddings, embedding_dim))
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
            self.reset_parameters()
        else:
            _check_table("EmbeddingBag", _weight, num_embeddings, embedding_dim)
            self.weight = Parameter(_weight)

    def reset_parameters(self) -> None:
        """Draw new values of the table from the standard normal distribution, zeros for row `padding_idx`."""
        _draw_table(self.weight, self.padding_idx)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> Self:
        """Make an embedding bag layer with a given table, whose memory it shares.

        Args:
            embeddings: the table, (rows, length).
            freeze: whether the table is not trained.
            settings: the other arguments of the class, by name.

        Raises:
            TypeError: if the table is no tensor, and as for the class.
            ValueError: if the table is no matrix, and as for the class.
        """
        check_tensors("from_pretrained", embeddings)
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a matrix of vectors, got shape {list(embeddings.shape)}")
        rows, length = embeddings.shape
        layer = cls(rows, length, _weight=embeddings, **settings)
        layer.weight.requires_grad_(not freeze)
        return layer

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return the result of each bag, (bags, embedding_dim); for the arguments see `functional.embedding_bag`."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        shown += unusual_settings(self, {"max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False})
        shown += f", mode={self.mode!r}"
        return shown if self.padding_idx is None else f"{shown}, padding_idx={self.padding_idx}"
