"""Learning rates that change from step to step.

What they share is in `scheduler`; `closed` holds those whose rate is a function of the step's number, `combined` those
made of others, and `measured` the one that looks at a measure.
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
