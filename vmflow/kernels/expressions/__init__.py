"""Writes elementwise ops as source text, by rules that C and CUDA C++ share."""
