"""The protocols of interpreters, which turn ops into results or record them.

The eager interpreter is in `interpreter`; recording ones are in `vmflow.graph_mode.lazy` and `vmflow.ops.recording`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .autograd.node import AutogradMeta, Node
    from .context import Mode
    from .devices import device as Device
    from .instructions.blob import Storage
    from .multi_tensor import Update
    from .ops.table import Attributes, OpExpr, ViewExpr
    from .random import Generator
    from .tensors import Tensor


class Interpreter(Protocol):
    """The methods by which calls of ops, in-place ops and views become results."""

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]: ...

    def call_into(
        self,
        op: OpExpr,
        target: Tensor,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        mode: Mode,
    ) -> None: ...

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor: ...


class Recorder(Interpreter, Protocol):
    """An interpreter that records ops instead of running them, for instance to build a graph.

    Attributes:
        node: the autograd node whose backward was recorded last, set by the backward pass; None outside of one.
    """

    node: Node | None

    def transfer(self, op: OpExpr, source: Tensor, device: Device, mode: Mode) -> Tensor: ...

    def update(self, update: Update, mode: Mode) -> None: ...

    def draw(self, generator: Generator, default: bool, elements: int) -> tuple[Any, Any]: ...

    def made(self, storage: Storage) -> None: ...

    def batches(self, source: Iterable[Any]) -> Iterator[Any]: ...

    def final(self, losses: tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...

    def accumulates(self, autograd: AutogradMeta) -> None: ...

    def reads_gradient(self, tensor: Tensor) -> None: ...

    def clears(self, tensor: Tensor, to_none: bool) -> None: ...
