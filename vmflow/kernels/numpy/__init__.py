"""Kernels that compute with numpy."""
