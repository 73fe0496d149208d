"""The `details` of a `Problem`, by family of ops: facts that inference tells kernels beside metas and attributes.

The kernels of all devices read them, and nothing here computes.
"""
