"""`instance_norm`, which normalizes each channel over its image; `local_response_norm`, over neighbouring channels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from vmflow.arguments import flag, whole_number
from vmflow.operands import check_tensors
from vmflow.ops.shape.padding import pad

from .layer_operands import check_floating
from .normalization import batch_norm, batch_statistics, check_momentum, move_statistics
from .pooling import avg_pool2d

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample over its image (D. Ulyanov et al., Instance Normalization, 2016).

    Args:
        input: (samples, channels, length, ...), floating-point.
        running_mean, running_var: (channels,); with `use_input_stats` updated in place, or None; without it, used
            instead of the image's mean and variance.
        weight, bias: (channels,), factor and summand of the normalized values.
        use_input_stats: whether to use each image's own mean and variance.
        momentum: the weight of the batch's statistics, the images' means and unbiased variances averaged over the
            samples, in the updated running statistics.
        eps: added to the variance.

    Raises:
        TypeError: if `input` is not floating-point, the momentum no number, or `use_input_stats` no bool.
        ValueError: for shapes that do not fit; with `use_input_stats` for images of fewer than two elements, without
            it for missing running statistics.

    Example:
        >>> flow.nn.functional.instance_norm(flow.tensor([[[-1.0, 1.0], [3.0, 5.0]]]), eps=0.0)
        tensor([[[-1.,  1.],
                 [-1.,  1.]]])
    """
    use_input_stats = flag("instance_norm", "use_input_stats", use_input_stats)
    check_momentum("instance_norm", momentum)
    check_tensors("instance_norm", input, optional=(running_mean, running_var, weight, bias))
    if input.ndim < 3:
        raise ValueError(f"instance_norm: expected an input (samples, channels, length, ...), got {list(input.shape)}")
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("instance_norm: running_mean and running_var are needed where use_input_stats is False")
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    check_floating("instance_norm", input._blob.meta)
    samples, channels, *size = input.shape
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for word, vector in parameters.items():
        if vector is not None and vector.shape != (channels,):
            raise ValueError(
                f"instance_norm: for an input of shape {list(input.shape)}, {word} must have shape [{channels}], not "
                f"{list(vector.shape)}"
            )
    count = prod(size)
    if count < 2:
        raise ValueError(
            f"instance_norm: an image needs at least 2 elements, an input of shape {list(input.shape)} has {count}"
        )
    # Batch normalization of one sample whose channels are the channels of all samples.
    operands = [None if parameter is None else parameter.repeat(samples) for parameter in (weight, bias)]
    together = input.reshape(1, samples * channels, *size)
    result, mean, variance = batch_statistics(together, operands[0], operands[1], eps)
    moved = [
        (running, batch.detach().reshape(samples, channels).mean(0), factor)
        for running, batch, factor in ((running_mean, mean, 1.0), (running_var, variance, count / (count - 1)))
        if running is not None
    ]
    if moved and samples:
        move_statistics(moved, None, momentum)
    return result.reshape(input.shape)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """``input / (k + alpha * mean of the squares of the neighbours) ** beta`` (A. Krizhevsky et al., 2012).

    Args:
        input: (samples, channels, length, ...), floating-point.
        size: the number of neighbouring channels, the channel itself among them; beyond the first and the last channel
            there are zeros.
        alpha, beta, k: the parameters of the formula.

    Raises:
        TypeError: if `input` is not floating-point, or `size` is no integer.
        ValueError: for an input without spatial dimensions, or a size below 1.

    Example:
        >>> flow.nn.functional.local_response_norm(flow.tensor([[[2.0, 4.0]]]), 1, alpha=1.0, beta=1.0, k=0.0)
        tensor([[[0.5000, 0.2500]]])
    """
    check_tensors("local_response_norm", input)
    check_floating("local_response_norm", input._blob.meta)
    if input.ndim < 3:
        raise ValueError(
            f"local_response_norm: expected an input (samples, channels, length, ...), got {list(input.shape)}"
        )
    size = whole_number("local_response_norm", "size", size)
    if size < 1:
        raise ValueError(f"local_response_norm: size must be at least 1, got {size}")
    if not input.numel():
        return input.clone()
    squares = (input * input).reshape(input.shape[0], 1, input.shape[1], -1)
    around = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = avg_pool2d(around, (size, 1), 1).reshape(input.shape)
    return input / (mean * alpha + k).pow(beta)
