"""The host's updates, which change many arrays in place; see `vmflow.kernels.updates`."""

from . import adam as adam
from . import adaptive as adaptive
from . import arrays as arrays
from . import sgd as sgd
