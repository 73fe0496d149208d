"""Writes elementwise ops as source text, from one set of rules for both C and CUDA C++."""
