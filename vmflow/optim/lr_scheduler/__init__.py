"""Schedulers, which change the learning rates of an optimizer from step to step.

The base class is in `scheduler`; schedules whose rate is a function of the step's number are in `closed` and `cyclic`,
schedulers made of other schedulers in `combined`, and `ReduceLROnPlateau`, which depends on a metric, in `measured`.
"""

from .closed import (
    ConstantLR as ConstantLR,
    CosineAnnealingLR as CosineAnnealingLR,
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
    CosineDecayLR as CosineDecayLR,
    ExponentialLR as ExponentialLR,
    LambdaLR as LambdaLR,
    LinearLR as LinearLR,
    MultiplicativeLR as MultiplicativeLR,
    MultiStepLR as MultiStepLR,
    PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)
from .combined import ChainedScheduler as ChainedScheduler, SequentialLR as SequentialLR, WarmUpLR as WarmUpLR
from .cyclic import CyclicLR as CyclicLR, OneCycleLR as OneCycleLR
from .measured import ReduceLROnPlateau as ReduceLROnPlateau
from .scheduler import LRScheduler as LRScheduler

WarmupLR = WarmUpLR
_LRScheduler = LRScheduler
