"""Optimizers and schedulers.  A step, but `LBFGS`'s, changes all parameters of a device by one instruction."""

from . import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from .adam import LAMB as LAMB, Adam as Adam, Adamax as Adamax, AdamW as AdamW, NAdam as NAdam, RAdam as RAdam
from .adaptive import ASGD as ASGD, Adadelta as Adadelta, Adagrad as Adagrad, RMSprop as RMSprop, Rprop as Rprop
from .lbfgs import LBFGS as LBFGS
from .matrices import Adafactor as Adafactor, Muon as Muon
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
