"""The host's kernels, which compute with numpy, or in C where `vmflow.kernels.native` has the same function.

Most modules declare the builders of one family of ops; see `vmflow.kernels.choosing`.
"""
