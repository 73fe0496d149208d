"""The host's updates, which change many arrays in place; see `vmflow.kernels.updates`."""

from . import adam as adam
from . import adaptive as adaptive
from . import averages as averages
from . import gradients as gradients
from . import lamb as lamb
from . import lbfgs as lbfgs
from . import scaling as scaling
from . import sgd as sgd
