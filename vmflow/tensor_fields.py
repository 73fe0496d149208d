"""`TensorFields`: what a tensor consists of, apart from its class so that compiled code reaches it without a lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .instructions.blob import Blob
from .instructions.release_tensor import Lease
from .native import mypyc_attr

if TYPE_CHECKING:
    from .autograd.node import AutogradMeta


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorFields:
    """The base of `Tensor`, which alone derives from it.

    Attributes:
        _blob: where the values are.
        _lease: what gives the memory back when the last tensor that has it goes; None if nothing does.
        _autograd: the place in the graph of autograd; None without one.
        _base: the tensor that it is a view of, for autograd; see `vmflow.autograd.views`.
    """

    __slots__ = ("_autograd", "_base", "_blob", "_lease")

    _blob: Blob
    _lease: Lease | None
    _autograd: AutogradMeta | None
    _base: Any
