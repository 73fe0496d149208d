"""`Recording`: runs a function on placeholders for tensors, and records the ops it calls as the steps of a fused op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

from vmflow import interpreter as _interpreter
from vmflow.context import MODE, Mode
from vmflow.instructions.blob import Blob, Storage, TensorMeta
from vmflow.tensor_fields import new_tensor

from .fused import Step, can_fuse, infer_fused
from .table import Attributes, Inferred, Metas, OpExpr, encoded

if TYPE_CHECKING:
    from vmflow.autograd.node import AutogradMeta, Node
    from vmflow.devices import device as Device
    from vmflow.multi_tensor import Update
    from vmflow.random import Generator
    from vmflow.tensors import Tensor

    from .table import ViewExpr


@final
class _Unknown(Storage):
    """The storage of a tensor that has no value, while the ops of a formula are recorded.

    Attributes:
        number: the tensor's number among the operands of the fused op's steps, see `Step`.
        recording: the `Recording` to which the tensor belongs.
    """

    __slots__ = ("number", "recording")

    lazy = True

    def __init__(self, recording: Recording, number: int) -> None:
        super().__init__()
        self.recording = recording
        self.number = number

    def settled(self) -> bool:
        raise self.recording.refused("a value")

    def admit(self) -> None:
        raise self.recording.refused("a value")


@final
class Recording:
    """An interpreter that records ops that can be fused as the steps of a fused op, and refuses all other ops.

    It implements `vmflow.interpreters.Recorder`.

    Args:
        name: the name of the resulting op, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: list[Step] = []
        self._known: dict[Step, Tensor] = {}
        self._inputs = 0
        self.node: Node | None = None

    def inferred(self, function: Callable[..., tuple[Tensor, ...]], metas: Metas) -> Inferred:
        """Record the ops that `function` calls for tensors of these metas, and infer the fused op that they form."""
        self._inputs = len(metas)
        tensors = [self._unknown(number, meta) for number, meta in enumerate(metas)]
        before = MODE.get()
        MODE.set(Mode(interpreter=self, machine=before.machine, dtype=before.dtype))
        try:
            results = function(*[tensor.requires_grad_() for tensor in tensors])
        finally:
            MODE.set(before)
        wanted = [self._operand(result) - len(metas) for result in results]
        if min(wanted) < 0 or len(set(wanted)) < len(wanted):
            raise self.refused("a result of its own for each")
        steps, outputs = _without_unused(self._steps, wanted, len(metas))
        return infer_fused(steps, outputs, metas)

    def refused(self, what: str) -> TypeError:
        """Return the error for a recorded function that asks for `what`, which is more than elementwise ops."""
        return TypeError(f"{self._name}: a formula is made of elementwise ops; this one asks for {what}")

    def _unknown(self, number: int, of: TensorMeta) -> Tensor:
        return new_tensor(Blob(_Unknown(self, number), of), None)

    def _operand(self, tensor: Tensor) -> int:
        storage = tensor._blob.storage
        if not isinstance(storage, _Unknown):
            raise self.refused("a tensor from elsewhere")
        return storage.number

    # As an interpreter

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]:
        metas = tuple([operand._blob.meta for operand in inputs])
        if not can_fuse(op.name, metas):
            raise self.refused(op.name)
        operands = tuple([self._operand(operand) for operand in inputs])
        step: Step = (
            op.name,
            cast("tuple[Any, ...]", attributes),
            tuple([encoded(scalar) for scalar in scalars]),
            operands,
        )
        if step not in self._known:
            (output,) = _interpreter.plan_of(
                op, tuple([operand._blob for operand in inputs]), attributes, scalars, mode.dtype
            ).outputs
            self._known[step] = self._unknown(self._inputs + len(self._steps), output)
            self._steps.append(step)
        # A repeated op gives the recorded result in a new tensor, since autograd attaches a history to each tensor.
        known = self._known[step]._blob
        return (new_tensor(known, None),)

    def call_into(
        self,
        op: OpExpr,
        target: Tensor,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        mode: Mode,
    ) -> None:
        raise self.refused(f"{op.name} in place")

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor:
        raise self.refused(op.name)

    def transfer(self, op: OpExpr, source: Tensor, device: Device, mode: Mode) -> Tensor:
        raise self.refused("another device")

    def update(self, update: Update, mode: Mode) -> None:
        raise self.refused("a tensor that is changed in place")

    def draw(self, generator: Generator, default: bool, elements: int) -> tuple[Any, Any]:
        raise self.refused("random numbers")

    def made(self, storage: Storage) -> None:
        raise self.refused("a tensor from elsewhere")

    def accumulates(self, autograd: AutogradMeta) -> None:
        """Do nothing: a gradient that is stored in ``.grad`` needs no step of its own."""

    def reads_gradient(self, tensor: Tensor) -> None:
        """Do nothing: see `accumulates`."""

    def clears(self, tensor: Tensor, to_none: bool) -> None:
        raise self.refused("another gradient of a tensor")

    def final(self, losses: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return losses


def _without_unused(
    steps: Sequence[Step], wanted: Sequence[int], inputs: int
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Keep the steps numbered in `wanted` and those that they need; return them, and the new numbers of `wanted`.

    `inputs` is the number of inputs; operands of steps are numbered with the inputs first."""
    needed = set(wanted)
    for at in reversed(range(len(steps))):
        if at in needed:
            needed.update([step - inputs for step in steps[at][3] if step >= inputs])
    places = {at: place for place, at in enumerate(sorted(needed))}
    kept = [
        (
            name,
            attributes,
            scalars,
            tuple([operand if operand < inputs else inputs + places[operand - inputs] for operand in operands]),
        )
        for name, attributes, scalars, operands in [steps[at] for at in places]
    ]
    return tuple(kept), tuple([places[result] for result in wanted])
