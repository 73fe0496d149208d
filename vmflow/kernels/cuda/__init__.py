"""The kernels of CUDA devices: our own, compiled by NVRTC, and libraries' for Fourier transforms and most of linear
algebra.
"""
