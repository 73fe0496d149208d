"""The layers of dropout, which zero random elements or channels in training."""

from __future__ import annotations

from vmflow.ops.nn.dropout import check_probability
from vmflow.random import Generator
from vmflow.tensors import Tensor

from . import functional as F
from .function_layers import FunctionLayer


class _Dropout(FunctionLayer):
    """The base of dropout layers, which call their function with `p`, `inplace` and the training mode.

    Args:
        p: the probability with which an element (or channel) is set to zero.
        inplace: whether to write the result into the input.

    Raises:
        TypeError: if `p` is no number; when called with anything else than a tensor; in training mode, with integers or
            bools, if `p` is neither 0 nor 1.
        ValueError: if `p` is no probability.
    """

    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        check_probability(type(self).__name__, p)
        super().__init__(p=p, training=True, inplace=inplace)


class Dropout(_Dropout, function=F.dropout):
    """In training mode, zero each element with probability `p` and divide the others by ``1 - p``.

    Shape: input (*), output (*), the same shape.

    Args:
        p: the probability with which an element (or channel) is set to zero.
        inplace: whether to write the result into the input.
        generator: the generator of random numbers, by default the default generator; an argument of OneFlow's.

    Example:
        >>> layer = flow.nn.Dropout(0.5)
        >>> set(layer(flow.ones(1000)).tolist()) == {0.0, 2.0}
        True
        >>> layer.eval()(flow.ones(3))
        tensor([1., 1., 1.])
    """

    shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: Generator | None = None) -> None:
        super().__init__(p, inplace)
        self.generator = generator

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        """Return the input after dropout, plus `addend` if given; `addend` is an argument of OneFlow's."""
        return F.dropout(input, self.p, self.training, self.inplace, addend=addend, generator=self.generator)


class Dropout1d(_Dropout, function=F.dropout1d):
    """In training mode, zero each channel with probability `p` and divide the others by ``1 - p``.

    Shape: input (N, C, L) or (C, L), output the same shape.

    Raises:
        TypeError: if `p` is no number; when called with anything else than a tensor; in training mode, with integers or
            bools, if `p` is neither 0 nor 1.
        ValueError: if `p` is no probability; when the input has another number of dimensions.

    Example:
        >>> flow.nn.Dropout1d(0.5).eval()(flow.ones(1, 2, 3))
        tensor([[[1., 1., 1.],
                 [1., 1., 1.]]])
    """


class Dropout2d(_Dropout, function=F.dropout2d):
    """In training mode, zero each channel with probability `p` and divide the others by ``1 - p``.

    Shape: input (N, C, H, W) or (N, C, L), output the same shape; (N, C, *) of any other number of dimensions, with a
    warning.

    Raises:
        TypeError: if `p` is no number; when called with anything else than a tensor; in training mode, with integers or
            bools, if `p` is neither 0 nor 1.
        ValueError: if `p` is no probability; when the input has fewer than two dimensions.

    Example:
        >>> flow.nn.Dropout2d(0.5).eval()(flow.ones(1, 1, 2))
        tensor([[[1., 1.]]])
    """


class Dropout3d(_Dropout, function=F.dropout3d):
    """In training mode, zero each channel with probability `p` and divide the others by ``1 - p``.

    Shape: input (N, C, D, H, W) or (C, D, H, W), output the same shape; (C, *) of any other number of dimensions, with
    a warning.

    Example:
        >>> flow.nn.Dropout3d(0.5).eval()(flow.ones(1, 1, 1, 2))
        tensor([[[[1., 1.]]]])
    """


class AlphaDropout(_Dropout, function=F.alpha_dropout):
    """Dropout for the results of `SELU` that keeps their mean and variance (Klambauer et al., 2017).

    Shape: input (*), output (*), the same shape.

    Raises:
        TypeError: if `p` is no number; when called with anything else than a floating-point tensor.
        ValueError: if `p` is no probability.

    Example:
        >>> flow.nn.AlphaDropout(0.5).eval()(flow.ones(3))
        tensor([1., 1., 1.])
    """


class FeatureAlphaDropout(_Dropout, function=F.feature_alpha_dropout):
    """`AlphaDropout` of whole channels instead of single elements.

    Shape: input (N, C, *), output the same shape.

    Raises:
        TypeError: if `p` is no number; when called with anything else than a floating-point tensor.
        ValueError: if `p` is no probability; when the input has fewer than two dimensions.

    Example:
        >>> flow.nn.FeatureAlphaDropout(0.5).eval()(flow.ones(2, 2))
        tensor([[1., 1.],
                [1., 1.]])
    """
