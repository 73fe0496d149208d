"""The settings of each rule of updates, which change many arrays in place.

A rule's kernel takes the arrays that it reads, and the arrays that it writes and may read.

Rules of optimizers read the gradients, followed by the learning rate if that is an array: `lr` is None then.  They
write the parameters, followed by their state: arrays of a parameter's shape, one kind after the other, and then numbers
for each parameter, such as the number of steps.  Each rule lists the kinds of its state, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# Estimated nanoseconds per element of the optimizers whose arithmetic takes longer than reading and writing.
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
    """The rule "sgd".  State of a parameter: the momentum buffer, if there is momentum.

    Attributes:
        lr, momentum, dampening, weight_decay, nesterov, maximize: those of `vmflow.optim.SGD`.
        filled: for each momentum buffer, whether a step has been added to it.  The kernel reads and sets this, which
            may be known only when it runs, since earlier steps may have been dropped.
    """

    lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool
    filled: tuple[list[bool], ...]


class Adam(NamedTuple):
    """The rule "adam".  State: averages of the gradient and its square, with `amsgrad` also the largest; steps.

    Attributes:
        lr, eps, weight_decay, amsgrad, maximize: those of `vmflow.optim.Adam`.
        beta1, beta2: its betas.
        decoupled: whether the weight decay bypasses the averages.
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
    """The rule "nadam".  State: averages of the gradient and its square; steps, and the product of the momenta.

    Attributes:
        lr, eps, weight_decay, momentum_decay, maximize: those of `vmflow.optim.NAdam`.
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
    """The rule "radam".  State of a parameter: averages of the gradient and of its square; the number of steps.

    Attributes:
        lr, eps, weight_decay, maximize: those of `vmflow.optim.RAdam`.
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
    """The rule "adamax".  State of a parameter: the gradient's average and its largest norm; the number of steps.

    Attributes:
        lr, eps, weight_decay, maximize: those of `vmflow.optim.Adamax`.
        beta1, beta2: its betas.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    maximize: bool


class LAMB(NamedTuple):
    """The rule "lamb".  State of a parameter: averages of the gradient and of its square; the number of steps.

    Attributes:
        lr, eps, weight_decay, maximize: those of `vmflow.optim.LAMB`.
        beta1, beta2, decoupled: see `Adam`.
        corrected: whether the averages are corrected for their beginning at 0.
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
    """The rule "asgd".  State: the parameter's average; steps, and the rate and weight of the next step.

    Attributes:
        lr, lambd, alpha, t0, weight_decay, maximize: those of `vmflow.optim.ASGD`.
    """

    lr: float | None
    lambd: float
    alpha: float
    t0: float
    weight_decay: float
    maximize: bool


class Adagrad(NamedTuple):
    """The rule "adagrad".  State of a parameter: the sum of the gradient's squares; the number of steps.

    Attributes:
        lr, lr_decay, eps, weight_decay, maximize: those of `vmflow.optim.Adagrad`.
    """

    lr: float | None
    lr_decay: float
    eps: float
    weight_decay: float
    maximize: bool


class Adadelta(NamedTuple):
    """The rule "adadelta".  State: averages of the squares of the gradient and of the change; the number of steps.

    Attributes:
        lr, rho, eps, weight_decay, maximize: those of `vmflow.optim.Adadelta`.
    """

    lr: float | None
    rho: float
    eps: float
    weight_decay: float
    maximize: bool


class RMSprop(NamedTuple):
    """The rule "rmsprop".  It counts steps.

    State of a parameter: the average of the gradient's square, the momentum buffer if there is momentum, and the
    gradient's average if the rule is centered.

    Attributes:
        lr, alpha, eps, weight_decay, momentum, centered, maximize: those of `vmflow.optim.RMSprop`.
    """

    lr: float | None
    alpha: float
    eps: float
    weight_decay: float
    momentum: float
    centered: bool
    maximize: bool


class Rprop(NamedTuple):
    """The rule "rprop".  State of a parameter: the gradient of the step before, and step sizes; the number of steps.

    Attributes:
        lr, maximize: those of `vmflow.optim.Rprop`; the rate is read in a parameter's first step only.
        shrink, grow: the factors of a step size.
        least, most: the smallest step size and the largest.
    """

    lr: float | None
    shrink: float
    grow: float
    least: float
    most: float
    maximize: bool


class Along(NamedTuple):
    """The rule "move_along", which reads a direction as one vector, and writes the parameters.

    Attributes:
        distance: the factor of the direction.
        from_origin: whether the parameters start from a vector that is read behind the direction, or from their values.
    """

    distance: float
    from_origin: bool


class Clip(NamedTuple):
    """The rule "clip", which limits the elements of the written arrays to [-limit, limit].

    Attributes:
        limit: not below 0.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import Clip
        >>> Clip(1.0)
        Clip(limit=1.0)
    """

    limit: float


class TotalNorm(NamedTuple):
    """The rule "total_norm", which writes the p-norm of all elements that are read.

    Attributes:
        order: the p, above 0.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import TotalNorm
        >>> TotalNorm(2.0)
        TotalNorm(order=2.0)
    """

    order: float


class ScaleToNorm(NamedTuple):
    """The rule "scale_to_norm", which reads the norm of the written arrays, and scales them down if it is too large.

    Attributes:
        limit: the largest norm.

    Raises no errors: settings are not checked.
    Example:
        >>> from vmflow.kernels.problems.updates import ScaleToNorm
        >>> ScaleToNorm(1.0)
        ScaleToNorm(limit=1.0)
    """

    limit: float


class AdaptScale(NamedTuple):
    """The rule "adapt_scale", which writes the scale of a loss and the number of good steps in a row.

    It reads numbers: a step is good if all of them are 0.

    Attributes:
        growth, backoff: the factors of the scale.
        interval: the number of good steps after which it grows.
    """

    growth: float
    backoff: float
    interval: int


class RunningStatistics(NamedTuple):
    """The rule "running_statistics", which reads statistics of a batch, and moves the running ones towards them.

    Attributes:
        factors: of each statistic, applied before it is used.
        counts: whether a count of batches is written behind the statistics.
        momentum: the weight of the new statistics; None for 1 / count, with the count after this batch.
    """

    factors: tuple[float, ...]
    counts: bool
    momentum: float | None


class Averages(NamedTuple):
    """The rule "average", which moves averages towards the arrays that are read, and copies further arrays.

    It writes the averages, the copies, and the number of averaged sets.

    Attributes:
        averaged: the number of arrays that are averages.
        weight: the weight of the new arrays; None for that of the plain average of all.  The first arrays are copied.

    Raises no errors: settings are not checked.
    Example:
        >>> flow.optim.swa_utils.Averages(2, None)
        Averages(averaged=2, weight=None)
    """

    averaged: int
    weight: float | None


class Unless(NamedTuple):
    """The rule "unless", which makes another update if a number is zero, such as a count of infinite gradients.

    It reads that number, and behind it the other update's inputs.  A device that learns the number only later hands it
    to the other kernel as `skip`, which then has to honour it.

    Attributes:
        kernel: of the other update, for the same device.
    """

    kernel: Callable[..., object]
