"""What inference tells kernels beside metas and attributes, by family: the `details` of problems.

Every device's kernels read the same, and so nothing here computes.
"""
