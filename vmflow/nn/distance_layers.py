"""The layers of distances and similarities between vectors."""

from __future__ import annotations

from . import functional as F
from .function_layers import FunctionLayer


class CosineSimilarity(FunctionLayer, function=F.cosine_similarity):
    """The cosine of the angle between vectors along `dim`; lengths below `eps` count as `eps`.

    Shape: inputs (*, D, *), broadcast together, where `dim` is the dimension of D; output without it.

    Raises:
        TypeError: when called with anything else than floating-point tensors.
        ValueError: when called, for shapes that do not broadcast, or a negative `eps`.
        IndexError: when the inputs have no dimension `dim`.

    Example:
        >>> flow.nn.CosineSimilarity(dim=0)(flow.tensor([2.0, 0.0]), flow.tensor([0.0, 1.0]))
        tensor(0.)
    """

    shown = ()  # as in PyTorch

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(FunctionLayer, function=F.pairwise_distance):
    """The p-norm of ``x1 - x2 + eps`` along the last dimension.

    Shape: inputs (N, D) or (D,), broadcast together; output (N,) or a scalar, with `keepdim` (N, 1) or (1,).

    Raises:
        TypeError: when called with anything else than tensors of numbers.
        ValueError: when called, for shapes that do not broadcast.

    Example:
        >>> flow.nn.PairwiseDistance(eps=0.0)(flow.tensor([[3.0, 0.0]]), flow.tensor([[0.0, 4.0]]))
        tensor([5.])
    """

    shown = ()  # as in PyTorch

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
