"""`bilinear`, the function of the layer `Bilinear`: weighted sums of the products of two inputs' features."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmflow.operands import check_tensors
from vmflow.ops.autocasting import autocast_as_op

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@autocast_as_op
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2 + bias[k]`` for every k.

    Args:
        input1: (..., in1).
        input2: (..., in2), with the same leading dimensions.
        weight: (out, in1, in2).
        bias: (out,), or None.

    Returns:
        (..., out).

    Raises:
        TypeError: for operands that are no tensors, or bool, or of dtypes that differ.
        ValueError: for shapes that do not fit.

    Example:
        >>> flow.bilinear(flow.ones(1, 2), flow.ones(1, 2), flow.ones(1, 2, 2))
        tensor([[4.]])
    """
    check_tensors("bilinear", input1, input2, weight, optional=(bias,))
    operands = [input1, input2, weight, *([] if bias is None else [bias])]
    if len({operand.dtype for operand in operands}) != 1:
        names = ", ".join([operand.dtype.name for operand in operands])
        raise TypeError(f"bilinear: inputs, weight and bias must have one dtype, not {names}")
    if (
        weight.ndim != 3
        or min(input1.ndim, input2.ndim) < 1
        or input1.shape[:-1] != input2.shape[:-1]
        or (input1.shape[-1], input2.shape[-1]) != tuple(weight.shape[1:])
        or (bias is not None and bias.shape != weight.shape[:1])
    ):
        raise ValueError(
            "bilinear: expected inputs (..., in1) and (..., in2), a weight (out, in1, in2) and a bias (out,), got "
            + ", ".join([str(list(operand.shape)) for operand in operands])
        )
    out, first, second = weight.shape
    pairs = input1 @ weight.permute((1, 0, 2)).reshape((first, out * second))
    pairs = pairs.reshape((*input1.shape[:-1], out, second))
    result = (pairs @ input2.unsqueeze(-1)).squeeze(-1)
    return result if bias is None else result + bias
