"""Optimizers, each step one instruction per group, and schedules of learning rates in `lr_scheduler`."""

from . import lr_scheduler as lr_scheduler
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
