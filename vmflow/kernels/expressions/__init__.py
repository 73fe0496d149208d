"""Elementwise ops as source text: one set of rules, from which C and CUDA C++ are written."""
