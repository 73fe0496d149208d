"""The types of `Problem.details`, by family of ops: facts that shape inference tells kernels beside shapes and dtypes.

The kernels of all devices read them; nothing in this package computes.
"""
