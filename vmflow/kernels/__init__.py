"""How ops are computed.

`choosing` is the door: `choose` finds the `Kernel` for a `Problem`; `updates` is that of what changes arrays in place.
`problems` has what inference tells kernels beside shapes and dtypes, `numpy` the host's kernels, and `native` those of
them that are C.  Nothing outside of this folder knows which of them computes.
"""

# What it has forks do must not be registered in the middle of a fork, by a thread that infers its first op.
from .native import loading as _loading  # noqa: F401
