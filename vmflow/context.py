"""`Mode`: what surrounds an op when it is issued, kept in one context variable and read once per op.

Threads and tasks must not see each other's modes; context variables give exactly that.  An immutable object in a
single variable makes reading it one call.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .devices import device as Device
    from .dtypes import dtype as DType


class Mode:
    """The surroundings of an op.  Never changed: `replace` makes another.

    Attributes:
        grad: whether autograd records.
        machine: the virtual machine to issue to, None for the default one.
        interpreter: what turns an op into its outputs, None for the eager one.
        device, dtype: of new tensors, None for the process-wide defaults.
        generator: of random numbers, None for the process-wide default.
        scope: what the instructions issued here belong to (reserved).
    """

    __slots__ = ("device", "dtype", "generator", "grad", "interpreter", "machine", "scope")

    def __init__(
        self,
        grad: bool = True,
        machine: Any = None,
        interpreter: Any = None,
        device: Device | None = None,
        dtype: DType | None = None,
        generator: Any = None,
        scope: Any = None,
    ) -> None:
        self.grad = grad
        self.machine = machine
        self.interpreter = interpreter
        self.device = device
        self.dtype = dtype
        self.generator = generator
        self.scope = scope

    def replace(self, **changes: Any) -> Mode:
        """A mode that differs in these."""
        for name in Mode.__slots__:
            changes.setdefault(name, getattr(self, name))
        return Mode(**changes)


MODE: ContextVar[Mode] = ContextVar("vmflow.mode", default=Mode())  # noqa: B039 (a Mode never changes)
