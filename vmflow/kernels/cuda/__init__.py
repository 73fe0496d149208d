"""How ops are computed on CUDA devices: kernels of our own, compiled by NVRTC, and CuPy's functions for the rest."""
