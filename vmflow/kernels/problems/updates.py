"""The settings of updates, functions that change many arrays in place, such as an optimizer's step.

An update's kernel takes the arrays that it reads, and the arrays that it writes and may read.

Updates of optimizers read the gradients, followed by the learning rate if that is an array: the setting `lr` is None
then, else the learning rate.  They write the parameters, followed by the state arrays of each parameter in its shape,
one kind after the other, and each parameter's numbers, such as its count of steps.  An optimizer's class lists its
kinds of state, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# Estimated nanoseconds per element of a step of the optimizers that memory does not limit.
COSTS: Final = {
    "adadelta": 6,
    "adagrad": 3,
    "adam": 4,
    "adamax": 4,
    "asgd": 3,
    "lamb": 8,
    "nadam": 6,
    "radam": 4,
    "rmsprop": 4,
    "rprop": 8,
}


class SGD(NamedTuple):
    """Settings of the update "sgd".  State: the momentum buffers, if there is momentum.

    Attributes:
        lr: see the module.
        momentum, dampening, weight_decay, nesterov, maximize: those of `vmflow.optim.SGD`.
        filled: for each momentum buffer, a list of one bool: whether it holds a sum, of earlier steps or loaded.  The
            kernel reads and sets the bool, since only then is it known whether earlier steps were dropped.
    """

    lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool
    filled: tuple[list[bool], ...]


class Adam(NamedTuple):
    """Settings of the update "adam".

    State: both moment averages, with `amsgrad` the largest second moment so far, and the count of steps.

    Attributes:
        lr: see the module.
        eps, weight_decay, amsgrad, maximize: those of `vmflow.optim.Adam`.
        beta1, beta2: the `betas` of `vmflow.optim.Adam`.
        decoupled: whether the weight decay is applied to the parameters and not to the gradients, as in AdamW.
        corrected: whether the averages are corrected for their beginning at 0.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    amsgrad: bool
    maximize: bool
    corrected: bool


class NAdam(NamedTuple):
    """Settings of the update "nadam".  State: both moment averages, the count of steps, and the product of the momenta.

    Attributes:
        lr: see the module.
        eps, weight_decay, momentum_decay, maximize: those of `vmflow.optim.NAdam`.
        beta1, beta2, decoupled: see `Adam`.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    momentum_decay: float
    maximize: bool


class RAdam(NamedTuple):
    """Settings of the update "radam".  State: both moment averages, and the count of steps.

    Attributes:
        lr: see the module.
        eps, weight_decay, maximize: those of `vmflow.optim.RAdam`.
        beta1, beta2, decoupled: see `Adam`.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    maximize: bool


class Adamax(NamedTuple):
    """Settings of the update "adamax".  State: the gradient's average and infinity norm, and the count of steps.

    Attributes:
        lr: see the module.
        eps, weight_decay, maximize: those of `vmflow.optim.Adamax`.
        beta1, beta2: the `betas` of `vmflow.optim.Adamax`.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    maximize: bool


class LAMB(NamedTuple):
    """Settings of the update "lamb".  State: both moment averages, and the count of steps.

    Attributes:
        lr: see the module.
        eps, weight_decay, maximize: those of `vmflow.optim.LAMB`.
        beta1, beta2, decoupled, corrected: see `Adam`.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    corrected: bool
    maximize: bool


class ASGD(NamedTuple):
    """Settings of the update "asgd".

    State: averages of the parameters, the count of steps, and the next step's learning rate and weight in the average.

    Attributes:
        lr: see the module.
        lambd, alpha, t0, weight_decay, maximize: those of `vmflow.optim.ASGD`.
    """

    lr: float | None
    lambd: float
    alpha: float
    t0: float
    weight_decay: float
    maximize: bool


class Adagrad(NamedTuple):
    """Settings of the update "adagrad".  State: the sum of the gradients' squares, and the count of steps.

    Attributes:
        lr: see the module.
        lr_decay, eps, weight_decay, maximize: those of `vmflow.optim.Adagrad`.
    """

    lr: float | None
    lr_decay: float
    eps: float
    weight_decay: float
    maximize: bool


class Adadelta(NamedTuple):
    """Settings of the update "adadelta".  State: averages of the squared gradient and squared step, the count of steps.

    Attributes:
        lr: see the module.
        rho, eps, weight_decay, maximize: those of `vmflow.optim.Adadelta`.
    """

    lr: float | None
    rho: float
    eps: float
    weight_decay: float
    maximize: bool


class RMSprop(NamedTuple):
    """Settings of the update "rmsprop".

    State: the average of the gradient's square, the momentum buffer if there is momentum, the average of the gradient
    if `centered`, and the count of steps.

    Attributes:
        lr: see the module.
        alpha, eps, weight_decay, momentum, centered, maximize: those of `vmflow.optim.RMSprop`.
    """

    lr: float | None
    alpha: float
    eps: float
    weight_decay: float
    momentum: float
    centered: bool
    maximize: bool


class Rprop(NamedTuple):
    """Settings of the update "rprop".

    State: the previous gradient, with 0 where its sign had changed; the step sizes; and the count of steps.

    Attributes:
        lr: see the module; read in a parameter's first step only.
        maximize: that of `vmflow.optim.Rprop`.
        shrink, grow: the factors of a step size where the gradient's sign has changed, and where it is the same.
        least, most: the smallest step size and the largest.
    """

    lr: float | None
    shrink: float
    grow: float
    least: float
    most: float
    maximize: bool


class Along(NamedTuple):
    """Settings of the update "move_along": parameters = start + distance * direction.

    Attributes:
        distance: a number.  The direction is the first array that is read, one vector for all parameters.
        from_origin: whether the start is the second vector that is read; otherwise, the parameters' values.
    """

    distance: float
    from_origin: bool


class Clip(NamedTuple):
    """Settings of the update "clip", which limits the elements of the written arrays to [-limit, limit].

    Attributes:
        limit: the largest absolute value of an element, not below 0.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import Clip
        >>> Clip(1.0)
        Clip(limit=1.0)
    """

    limit: float


class TotalNorm(NamedTuple):
    """Settings of the update "total_norm", which writes the p-norm of the elements of all arrays that it reads.

    Attributes:
        order: the p of the p-norm, above 0.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import TotalNorm
        >>> TotalNorm(2.0)
        TotalNorm(order=2.0)
    """

    order: float


class ScaleToNorm(NamedTuple):
    """Settings of the update "scale_to_norm", which reads the norm of arrays and scales them down if it is too large.

    Attributes:
        limit: the largest norm: the arrays are multiplied by ``limit / (norm + 1e-6)`` unless that is 1 or more.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import ScaleToNorm
        >>> ScaleToNorm(1.0)
        ScaleToNorm(limit=1.0)
    """

    limit: float


class AdaptScale(NamedTuple):
    """Settings of the update "adapt_scale", which writes a loss scale and a count of good steps in a row.

    The update reads numbers that are not 0 if gradients have overflowed: a step is good if all of them are 0.

    Attributes:
        growth, backoff: the factors by which the scale grows, and by which it shrinks.
        interval: the count at which the scale grows, unless it would overflow, and the count restarts from 0.
    """

    growth: float
    backoff: float
    interval: int


class RunningStatistics(NamedTuple):
    """Settings of the update "running_statistics": moves running means and variances towards a batch's statistics.

    Attributes:
        factors: the factor by which each statistic of the batch is multiplied first.
        counts: whether a count of batches is written behind the statistics.
        momentum: the weight of the new statistics; None for 1 / count, with the count after this batch.
    """

    factors: tuple[float, ...]
    counts: bool
    momentum: float | None


class Averages(NamedTuple):
    """Settings of the update "average", which averages models: moves averages towards the arrays that it reads.

    The update writes the averages, copies of the further arrays that it reads, and the number of averaged models.

    Attributes:
        averaged: the number of arrays that are averaged; the rest are copied.
        weight: the weight of the new arrays; None for 1 / the number of models, this one included.  The first
            model's arrays are copied.

    Raises no errors: settings are not checked.
    Example:
        >>> flow.optim.swa_utils.Averages(2, None)
        Averages(averaged=2, weight=None)
    """

    averaged: int
    weight: float | None


class Unless(NamedTuple):
    """Settings of the update "unless", which makes another update only if a number is zero.

    This update reads the number, and behind it the other update's inputs.  A CUDA device, where the host does not know
    the number, passes it to the other kernel as `skip`, which must then change nothing if the number is not zero.

    Attributes:
        kernel: the other update's kernel, for the same device.
    """

    kernel: Callable[..., object]
