"""The settings of each rule of updates, which change many arrays in place.

A rule's kernel is called with the arrays that are read, and those that are read and written.

Rules of optimizers read the gradients, and behind them the learning rate where it is an array: `lr` is None then.  They
write the parameters, behind them the arrays kept for each parameter in its shape, one kind after the other, and at last
the counts of each.  Each rule says which kinds it keeps, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

# Nanoseconds per element, estimated, of the optimizers that are not quicker than their memory.
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
    """The rule "sgd".  Kept: the running sums, if there is momentum.

    Attributes:
        lr, momentum, dampening, weight_decay, nesterov, maximize: as of `vmflow.optim.SGD`.
        filled: of each running sum, whether a step has been added to it, for the kernel to read and set: this may be
            found out only when it runs, for the steps before may have been dropped.
    """

    lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool
    filled: tuple[list[bool], ...]


class Adam(NamedTuple):
    """The rule "adam".  Kept: both averages, the largest of the second with `amsgrad`; counted: steps.

    Attributes:
        lr, eps, weight_decay, amsgrad, maximize: as of `vmflow.optim.Adam`.
        beta1, beta2: of its betas.
        decoupled: whether the decay does not pass through the averages.
        corrected: whether the averages' beginning at 0 is made up for.
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
    """The rule "nadam".  Kept: both averages; counted: steps, and the product of the momenta so far.

    Attributes:
        lr, eps, weight_decay, momentum_decay, maximize: as of `vmflow.optim.NAdam`.
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
    """The rule "radam".  Kept: both averages; counted: steps.

    Attributes:
        lr, eps, weight_decay, maximize: as of `vmflow.optim.RAdam`.
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
    """The rule "adamax".  Kept: the average of the gradient, and the largest gradient; counted: steps.

    Attributes:
        lr, eps, weight_decay, maximize: as of `vmflow.optim.Adamax`.
        beta1, beta2: of its betas.
    """

    lr: float | None
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    maximize: bool


class LAMB(NamedTuple):
    """The rule "lamb".  Kept: both averages; counted: steps.

    Attributes:
        lr, eps, weight_decay, maximize: as of `vmflow.optim.LAMB`.
        beta1, beta2, decoupled: see `Adam`.
        corrected: whether the averages' beginning at 0 is made up for.
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
    """The rule "asgd".  Kept: the averages of the parameters; counted: steps, and for the next one the rate and weight.

    Attributes:
        lr, lambd, alpha, t0, weight_decay, maximize: as of `vmflow.optim.ASGD`.
    """

    lr: float | None
    lambd: float
    alpha: float
    t0: float
    weight_decay: float
    maximize: bool


class Adagrad(NamedTuple):
    """The rule "adagrad".  Kept: the sum of the squares; counted: steps.

    Attributes:
        lr, lr_decay, eps, weight_decay, maximize: as of `vmflow.optim.Adagrad`.
    """

    lr: float | None
    lr_decay: float
    eps: float
    weight_decay: float
    maximize: bool


class Adadelta(NamedTuple):
    """The rule "adadelta".  Kept: the averages of the gradient's square and of the step's; counted: steps.

    Attributes:
        lr, rho, eps, weight_decay, maximize: as of `vmflow.optim.Adadelta`.
    """

    lr: float | None
    rho: float
    eps: float
    weight_decay: float
    maximize: bool


class RMSprop(NamedTuple):
    """The rule "rmsprop".  Counted: steps.

    Kept: the average of the square, what is taken again if there is momentum, the average of the gradient if it is
    centered.

    Attributes:
        lr, alpha, eps, weight_decay, momentum, centered, maximize: as of `vmflow.optim.RMSprop`.
    """

    lr: float | None
    alpha: float
    eps: float
    weight_decay: float
    momentum: float
    centered: bool
    maximize: bool


class Rprop(NamedTuple):
    """The rule "rprop".  Kept: the gradient of the step before, and the step sizes; counted: steps.

    Attributes:
        lr, maximize: as of `vmflow.optim.Rprop`; the rate is looked at in a parameter's first step only.
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
        distance: how far.
        from_origin: whether they begin at a vector that is read behind the direction, and not where they are.
    """

    distance: float
    from_origin: bool


class Clip(NamedTuple):
    """The rule "clip", which brings elements of what is written into [-limit, limit].

    Attributes:
        limit: not below 0.
    """

    limit: float


class TotalNorm(NamedTuple):
    """The rule "total_norm", which writes the norm of all elements that are read.

    Attributes:
        order: the p of the p-norm, above 0.
    """

    order: float


class ScaleToNorm(NamedTuple):
    """The rule "scale_to_norm", which reads the norm of what is written, and scales that down where it is larger.

    Attributes:
        limit: the largest norm.
    """

    limit: float


class AdaptScale(NamedTuple):
    """The rule "adapt_scale", which writes the scale of a loss and how many steps in a row were good.

    It reads numbers: a step was good if all of them are 0.

    Attributes:
        growth, backoff: what the scale is multiplied by.
        interval: after how many good steps it grows.
    """

    growth: float
    backoff: float
    interval: int


class RunningStatistics(NamedTuple):
    """The rule "running_statistics", which reads statistics of a batch, and moves the running ones towards them.

    Attributes:
        factors: what each of those read is multiplied by first.
        counts: whether a count of batches is written behind them.
        momentum: how far they move; None for one through the count, which is after it has been counted up.
    """

    factors: tuple[float, ...]
    counts: bool
    momentum: float | None


class Averages(NamedTuple):
    """The rule "average", which moves averages towards what is read, and copies what else is read.

    It writes the averages, the copies, and how many are in the averages.

    Attributes:
        averaged: how many arrays are averages.
        weight: how far to move; None for the weight that makes it the plain average of all.  The first one is taken as
            it is.
    """

    averaged: int
    weight: float | None


class Unless(NamedTuple):
    """The rule "unless", which makes another update unless a number is not zero.

    It reads that number, and behind it what the other one reads.  A device that learns the number only later hands it
    to the other kernel as `skip`, which has to see to it then.

    Attributes:
        kernel: of the other update, for the same device.
    """

    kernel: Callable[..., object]
