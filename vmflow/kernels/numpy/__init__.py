"""The host's kernels, which compute with numpy, or in C where `vmflow.kernels.native` has the same.

A module is a family of ops, of which it declares the builders; see `vmflow.kernels.choosing`.
"""
