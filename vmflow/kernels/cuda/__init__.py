"""The kernels of CUDA devices: our own, compiled by NVRTC, and libraries' for factorizations, Fourier
transforms and most products of matrices.
"""
