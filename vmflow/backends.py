"""``vmflow.backends``: PyTorch's switches of libraries that are not used here.

They can be asked and set, since many programs do so before anything else, and change nothing.
"""

from __future__ import annotations


class _Backend:
    """One library: never there."""

    def __init__(self) -> None:
        self.enabled = False
        self.benchmark = False
        self.deterministic = False
        self.allow_tf32 = False

    def is_available(self) -> bool:
        """Whether it is used: False."""
        return False

    def is_built(self) -> bool:
        """Whether vmflow was built with it: False."""
        return False


class _Cuda(_Backend):
    """CUDA, and its matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = _Backend()


cuda = _Cuda()
cudnn = _Backend()
mps = _Backend()
