"""CUDA devices emulated on the CPU, with the order of their work, their memory and their kernels."""
