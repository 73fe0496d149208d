"""The `details` of problems, by family: facts that inference tells kernels beside metas and attributes.

The kernels of all devices read them, and nothing here computes.
"""
