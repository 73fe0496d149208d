"""How ops are computed.

`choosing` is the door: `choose` finds the `Kernel` for a `Problem`; `updates` is that of what changes arrays in place.
`problems` has what inference tells kernels beside shapes and dtypes, `numpy` the host's kernels, and `native` those of
them that are C.  Nothing outside of this folder knows which of them computes.
"""

# It registers functions that run before and after forks.  A thread that infers its first op must not do that while
# another forks.
from .native import loading as _loading  # noqa: F401
