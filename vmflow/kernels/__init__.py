"""How ops are computed.

`choosing` is the entry point: `choose` finds the `Kernel` for a `Problem`.  `updates` is the entry point to kernels
that change arrays in place, such as the steps of optimizers.  `problems` has the details that inference tells kernels
beside shapes and dtypes, `numpy` has the host's kernels, and `native` the parts of them that are written in C.  No
module outside of this folder knows which of them computes.

Another device has a package like `numpy` with modules of the same names, and a line in `choosing.PACKAGES`.
"""

# This module registers functions that run before and after forks.  A thread that infers its first op must not register
# them while another thread forks.
from .native import loading as _loading  # noqa: F401
