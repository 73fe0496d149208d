"""``vmflow.einops``: functions of the package einops, made to take vmflow's tensors.

    from vmflow.einops import rearrange

    y = rearrange(x, "batch (height h) -> (batch height) h", h=4)

einops itself does not know vmflow.  Importing such a function from this module, or calling `register`, imports
einops, which must be installed, and makes vmflow known to it; then ``einops.rearrange`` and so on take vmflow's
tensors, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import vmflow as _vmflow
from vmflow.ops.linalg.einsum import einsum as _einsum
from vmflow.tensors import Tensor as _Tensor

_NAMES = ("EinopsError", "asnumpy", "einsum", "pack", "parse_shape", "rearrange", "reduce", "repeat", "unpack")

# einops finds backends among the subclasses of its AbstractBackend; this reference keeps vmflow's subclass alive.
_backend: type | None = None


def register() -> None:
    """Register vmflow as a backend of einops, so that its functions take vmflow's tensors; a second call does nothing.

    Raises:
        ImportError: if the package einops is not installed.
    """
    global _backend
    if _backend is None:
        _library()
        from einops._backends import AbstractBackend

        _backend = type("VmflowBackend", (_Methods, AbstractBackend), {"framework_name": "vmflow"})


def _library() -> Any:
    try:
        import einops
    except ImportError as error:
        raise ImportError("vmflow.einops needs the package einops; install it with: pip install einops") from error
    return einops


class _Methods:
    """The methods that einops calls on a framework's backend, for vmflow's tensors."""

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, _Tensor)

    from_numpy = staticmethod(_vmflow.tensor)
    arange = staticmethod(_vmflow.arange)
    stack_on_zeroth_dimension = staticmethod(_vmflow.stack)
    einsum = staticmethod(_einsum)

    def to_numpy(self, x: _Tensor) -> Any:
        return x.detach().numpy()

    def reshape(self, x: _Tensor, shape: Sequence[int]) -> _Tensor:
        return _vmflow.reshape(x, tuple(shape))

    def transpose(self, x: _Tensor, axes: Sequence[int]) -> _Tensor:
        return _vmflow.permute(x, tuple(axes))

    def reduce(self, x: _Tensor, operation: str, axes: Sequence[int]) -> _Tensor:
        functions: dict[str, Callable[..., _Tensor]] = {
            "all": _vmflow.all,
            "any": _vmflow.any,
            "max": _vmflow.amax,
            "mean": _vmflow.mean,
            "min": _vmflow.amin,
            "prod": _vmflow.prod,
            "sum": _vmflow.sum,
        }
        return functions[operation](x, tuple(axes))

    def add_axes(self, x: _Tensor, n_axes: int, pos2len: dict[int, int]) -> _Tensor:
        """Insert dimensions of size ``pos2len[i]`` at positions i of the result, a view of `n_axes` dimensions."""
        for position in sorted(pos2len):
            x = _vmflow.unsqueeze(x, position)
        return _vmflow.broadcast_to(x, tuple([pos2len.get(axis, x.shape[axis]) for axis in range(n_axes)]))

    def concat(self, tensors: Sequence[_Tensor], axis: int) -> _Tensor:
        return _vmflow.cat(tensors, axis)

    def is_float_type(self, x: _Tensor) -> bool:
        return x.dtype.is_floating_point


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()
    return getattr(_library(), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
