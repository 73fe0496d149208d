"""`Mode`: the settings under which an op is issued, kept in one context variable and read once per op."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from .devices import device as Device
    from .dtypes import dtype as DType
    from .instructions.scope import Scope


_AS_IS: Final = object()


class Mode:
    """The settings under which an op is issued.  Never changed: `replace` makes a changed copy.  Raises no errors.

    Attributes:
        grad: whether autograd records.
        machine: the virtual machine to issue to, None for the default one.
        interpreter: turns an op's call into its outputs (it runs or records the op), None for the eager one.
        device: of new tensors by default, None for the CPU.
        dtype: of new floating-point tensors by default, None for float32.
        generator: of random numbers, None for the process-wide default.
        scope: the scope of instructions issued in this mode, None without any.
        module: the path of modules whose forward issues in this mode, None outside of modules.
        anomaly: whether results are checked for nan and inf.
        autocast: casts the operands of ops, None for no casts.
        streams: by CUDA device, the kind of its stream that ops run on; the compute stream for others.

    Example:
        >>> from vmflow.context import Mode
        >>> Mode().replace(grad=False).grad
        False
    """

    __slots__: ClassVar[tuple[str, ...]] = (
        "anomaly",
        "autocast",
        "device",
        "dtype",
        "generator",
        "grad",
        "interpreter",
        "machine",
        "module",
        "scope",
        "streams",
    )

    def __init__(
        self,
        grad: bool = True,
        machine: Any = None,
        interpreter: Any = None,
        device: Device | None = None,
        dtype: DType | None = None,
        generator: Any = None,
        scope: Scope | None = None,
        module: Any = None,
        anomaly: bool = False,
        autocast: Any = None,
        streams: dict[Device, str] | None = None,
    ) -> None:
        self.grad = grad
        self.machine = machine
        self.interpreter = interpreter
        self.device = device
        self.dtype = dtype
        self.generator = generator
        self.scope = scope
        self.module = module
        self.anomaly = anomaly
        self.autocast = autocast
        self.streams = streams

    def within(self, module: Any) -> Mode:
        """Copy this mode with another `module`, as for each call of a module; faster than `replace`."""
        return Mode(
            self.grad,
            self.machine,
            self.interpreter,
            self.device,
            self.dtype,
            self.generator,
            self.scope,
            module,
            self.anomaly,
            self.autocast,
            self.streams,
        )

    def inferring(self, scope: Scope) -> Mode:
        """Copy this mode with `scope` and without gradients, for a served batch; faster than `replace`."""
        return Mode(
            False,
            self.machine,
            self.interpreter,
            self.device,
            self.dtype,
            self.generator,
            scope,
            self.module,
            self.anomaly,
            self.autocast,
            self.streams,
        )

    def replace(
        self,
        *,
        grad: Any = _AS_IS,
        machine: Any = _AS_IS,
        interpreter: Any = _AS_IS,
        device: Any = _AS_IS,
        dtype: Any = _AS_IS,
        generator: Any = _AS_IS,
        scope: Any = _AS_IS,
        module: Any = _AS_IS,
        anomaly: Any = _AS_IS,
        autocast: Any = _AS_IS,
        streams: Any = _AS_IS,
    ) -> Mode:
        """Copy this mode with the given settings changed."""
        return Mode(
            self.grad if grad is _AS_IS else grad,
            self.machine if machine is _AS_IS else machine,
            self.interpreter if interpreter is _AS_IS else interpreter,
            self.device if device is _AS_IS else device,
            self.dtype if dtype is _AS_IS else dtype,
            self.generator if generator is _AS_IS else generator,
            self.scope if scope is _AS_IS else scope,
            self.module if module is _AS_IS else module,
            self.anomaly if anomaly is _AS_IS else anomaly,
            self.autocast if autocast is _AS_IS else autocast,
            self.streams if streams is _AS_IS else streams,
        )


MODE: Final[ContextVar[Mode]] = ContextVar("vmflow.mode", default=Mode())  # noqa: B039 (a Mode never changes)
