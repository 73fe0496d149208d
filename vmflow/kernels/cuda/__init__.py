"""Kernels in CUDA C++, and the compiler that turns them into code of a GPU."""
