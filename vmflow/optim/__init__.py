"""Optimizers, each step one instruction for all groups, and schedules of learning rates in `lr_scheduler`."""

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from .adam import Adam as Adam
from .adam import Adamax as Adamax
from .adam import AdamW as AdamW
from .adam import NAdam as NAdam
from .adam import RAdam as RAdam
from .adaptive import Adadelta as Adadelta
from .adaptive import Adagrad as Adagrad
from .adaptive import RMSprop as RMSprop
from .adaptive import Rprop as Rprop
from .lamb import LAMB as LAMB
from .lbfgs import LBFGS as LBFGS
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
