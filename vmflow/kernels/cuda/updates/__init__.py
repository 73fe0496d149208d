"""The updates of CUDA devices, which change many arrays in place; see `vmflow.kernels.updates`."""

from . import adam as adam, adaptive as adaptive, arrays as arrays, sgd as sgd
