"""The updates of CUDA devices, which change many arrays in place; see `vmflow.kernels.updates`."""

from . import (
    adam as adam,
    adaptive as adaptive,
    averages as averages,
    gradients as gradients,
    lamb as lamb,
    scaling as scaling,
    sgd as sgd,
)
