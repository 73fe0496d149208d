"""`AdaptiveLogSoftmaxWithLoss`: a softmax over many classes that computes rare classes from fewer features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vmflow.arguments import is_integer, whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.operands import check_tensors
from vmflow.ops.elementwise.selection import where
from vmflow.ops.nn.layer_operands import check_class_indices
from vmflow.ops.shape.joining import cat
from vmflow.tensors import Tensor

from . import functional as F
from .containers import ModuleList, Sequential
from .layers import Linear
from .module import Module


class ASMoutput(NamedTuple):
    """The result of `AdaptiveLogSoftmaxWithLoss`.

    Attributes:
        output: the log-probability of each target, (N,) or a scalar.
        loss: the mean of the negative log-probabilities, a scalar.
    """

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax: log-probabilities of classes that are clustered by frequency (E. Grave et al., 2017).

    The head has an entry for each of the most frequent classes and for each cluster of rarer classes.  The probability
    of a class in a cluster is that of the cluster times that of the class within the cluster.  Two narrow `Linear`
    layers compute each cluster.

    Every cluster is computed for every row, so that no call waits for the targets' values, and graphs can contain the
    layer; PyTorch selects the rows of each cluster instead.

    Shape: input (N, in_features), target (N,), or (in_features,) and a scalar; output the target's shape, and a scalar.

    Args:
        in_features: the number of features of the input.
        n_classes: the number of classes; lower numbers are more frequent.
        cutoffs: the first class of each cluster, in rising order, each between 1 and ``n_classes - 1``.
        div_value: above 0; cluster i, from 0, has ``in_features // div_value ** (i + 1)`` features between its two
            layers.
        head_bias: whether the head has a bias.
        device, dtype: the device and dtype of the parameters.

    Attributes:
        head: the `Linear` layer with outputs for the first ``cutoffs[0]`` classes and for the clusters.
        tail: for each cluster a `Sequential` of two `Linear`.

    Raises:
        TypeError: for sizes that are no integers, and cutoffs that are no sequence; when called with targets that are
            no integers, or an input of another dtype than the weights.
        ValueError: for other cutoffs or another `div_value`; when called with shapes that do not fit.
        IndexError: when a result is read, for a target out of range.

    Example:
        >>> layer = flow.nn.AdaptiveLogSoftmaxWithLoss(8, 1000, cutoffs=[10, 100])
        >>> layer(flow.ones(3, 8), flow.tensor([5, 50, 500])).output.shape
        vmflow.Size([3])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        in_features = whole_number("AdaptiveLogSoftmaxWithLoss", "in_features", in_features)
        n_classes = whole_number("AdaptiveLogSoftmaxWithLoss", "n_classes", n_classes)
        if not isinstance(cutoffs, (Sequence, np.ndarray)):
            raise TypeError(f"AdaptiveLogSoftmaxWithLoss: cutoffs must be a list of integers, got {cutoffs!r}")
        starts = list(cutoffs)
        whole = all([is_integer(start) for start in starts])
        if not starts or not whole or starts != sorted(set(starts)) or starts[0] <= 0 or starts[-1] > n_classes - 1:
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs must be integers from 1 to n_classes - 1, rising, got "
                f"{starts} for {n_classes} classes"
            )
        if not div_value > 0:
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: div_value must be above 0, got {div_value!r}")
        starts = [int(start) for start in starts]
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*starts, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = starts[0]
        self.n_clusters = len(starts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for number in range(self.n_clusters):
            inside = int(in_features // div_value ** (number + 1))
            classes = self.cutoffs[number + 1] - self.cutoffs[number]
            both = [Linear(in_features, inside, False, device, dtype), Linear(inside, classes, False, device, dtype)]
            self.tail.append(Sequential(*both))

    def reset_parameters(self) -> None:
        """Draw new initial values of all parameters."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMoutput:
        """The log-probability of each target, and the loss.

        Args:
            input_: (N, in_features), or (in_features,).
            target_: class numbers, (N,), or a scalar.
        """
        check_tensors("AdaptiveLogSoftmaxWithLoss", input_, target_)
        check_class_indices("AdaptiveLogSoftmaxWithLoss", target_._blob.meta)
        if target_.ndim not in (0, 1) or input_.ndim != target_.ndim + 1 or input_.shape[:-1] != target_.shape:
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: expected an input (N, features) and targets (N,), or (features,) and a "
                f"scalar, got shapes {list(input_.shape)} and {list(target_.shape)}"
            )
        target_ = target_.long()  # since smaller and unsigned dtypes may lack the differences below
        head = F.log_softmax(self.head(input_), -1)
        # Each row looks up its target in the head and in every cluster; a target in another cluster is clamped to this
        # cluster's nearer end, and `where` drops the result.  The head does not clamp negative targets, nor the last
        # cluster targets of n_classes or more, so that these lookups raise errors.
        first = target_.clamp(max=self.shortlist_size - 1)
        output = _looked_up(head, first)
        for number in range(self.n_clusters):
            low, high = self.cutoffs[number], self.cutoffs[number + 1]
            place = (target_ - low).clamp(min=0)
            if number < self.n_clusters - 1:
                place = place.clamp(max=high - low - 1)
            within = _looked_up(F.log_softmax(self.tail[number](input_), -1), place)
            output = where(target_ < low, output, within + head[..., self.shortlist_size + number])
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: maps (N, in_features) to (N, n_classes), or both without N."""
        head = F.log_softmax(self.head(input), -1)
        parts = [head[..., : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            place = self.shortlist_size + number
            parts.append(F.log_softmax(cluster(input), -1) + head[..., place : place + 1])
        return cat(parts, -1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row: maps (N, in_features) to (N,), or both without N."""
        return self.log_prob(input).argmax(-1)


def _looked_up(log_probabilities: Tensor, places: Tensor) -> Tensor:
    return log_probabilities.gather(-1, places.unsqueeze(-1)).squeeze(-1)
