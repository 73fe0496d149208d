"""The kernels of all ops and devices, and the functions that choose among them.

`choosing` is the entry point: `choose` finds the `Kernel` for a `Problem`.  `updates` is the entry point to kernels
that change arrays in place, such as the steps of optimizers.  `problems` has the details that shape inference tells
kernels beside shapes and dtypes, `numpy` has the host's kernels, and `native` their parts that are written in C.
"""

# `native.loading` registers functions that run before and after forks.  It is imported with this package, so that no
# thread registers them while another thread forks.
from .native import loading as _loading  # noqa: F401
