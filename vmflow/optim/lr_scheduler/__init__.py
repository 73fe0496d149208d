"""Learning rates that change from step to step.

The base class is in `scheduler`; schedules whose rate is a function of the step's number are in `closed`, those made of
others in `combined`, and the one that depends on a measure in `measured`.
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
