"""Learning rates that change from step to step.

What they share is in `scheduler`; `closed` holds those whose rate is a function of the step's number, `combined` those
made of others, and `measured` the one that looks at a measure.
"""

from .closed import ConstantLR as ConstantLR
from .closed import CosineAnnealingLR as CosineAnnealingLR
from .closed import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .closed import CosineDecayLR as CosineDecayLR
from .closed import ExponentialLR as ExponentialLR
from .closed import LambdaLR as LambdaLR
from .closed import LinearLR as LinearLR
from .closed import MultiplicativeLR as MultiplicativeLR
from .closed import MultiStepLR as MultiStepLR
from .closed import PolynomialLR as PolynomialLR
from .closed import StepLR as StepLR
from .combined import ChainedScheduler as ChainedScheduler
from .combined import SequentialLR as SequentialLR
from .combined import WarmUpLR as WarmUpLR
from .cyclic import CyclicLR as CyclicLR
from .cyclic import OneCycleLR as OneCycleLR
from .measured import ReduceLROnPlateau as ReduceLROnPlateau
from .scheduler import LRScheduler as LRScheduler

WarmupLR = WarmUpLR
_LRScheduler = LRScheduler
