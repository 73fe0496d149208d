"""The kernels of CUDA devices: our own, compiled by NVRTC, and CuPy's functions for the rest."""
