"""The kernels of CUDA devices: our own, compiled by NVRTC, and libraries' for matrix products and the rest."""
