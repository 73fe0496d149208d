"""The types of `Problem.details`, by family of ops: facts that shape inference tells kernels; and settings of updates.

The kernels of all devices read them.
"""
