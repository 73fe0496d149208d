"""From an op and its operands to results: choose an interpreter, run the op, let autograd record it.

The eager interpreter infers, makes output blobs and issues an `OpCall`.  A lazy one (building a graph) is chosen by the
mode, and has the same four methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from . import tensors as _tensors
from .autograd import node as _node
from .context import MODE, Mode
from .dtypes import dtype as DType
from .instructions import origin
from .instructions.blob import Blob, Storage, TensorMeta, meta
from .instructions.builder import access, issue
from .instructions.instruction import Dependence, Instruction
from .instructions.op_call import OpCall
from .instructions.release_tensor import Lease
from .ops.table import Attributes, Inferred, OpExpr, ViewExpr
from .vm.virtual_machine import VirtualMachine, default_machine

if TYPE_CHECKING:
    from .tensors import Tensor

# Memory of this many bytes and more goes back to its device in order, by an instruction; for less, Python's reference
# counting does as well and costs nothing.
_LEASED_FROM: Final = 1 << 16


class Interpreter(Protocol):
    """What turns ops into results."""

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


class EagerLocalInterpreter:
    """Issues each op to the mode's machine at once."""

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]:
        """The results, whose values are being computed."""
        blobs = tuple([tensor._blob for tensor in inputs])
        inferred = _infer(op, blobs, attributes, scalars, mode.dtype)
        machine: VirtualMachine = mode.machine or default_machine()
        outputs = tuple([Blob(Storage(Dependence(machine)), output) for output in inferred.outputs])
        _issue(machine, op, inferred, blobs, outputs, scalars)
        return tuple([new_tensor(blob, Lease(blob.storage) if _leased(blob.meta) else None) for blob in outputs])

    def call_into(
        self,
        op: OpExpr,
        target: Tensor,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        mode: Mode,
    ) -> None:
        """Write the result into `target`'s memory."""
        blobs = tuple([tensor._blob for tensor in inputs])
        inferred = _infer(op, blobs, attributes, scalars, mode.dtype)
        check_fits(op.name, inferred.outputs[0], target)
        if inferred.outputs[0].dtype is not target._blob.meta.dtype:
            inferred = _apart(inferred)
        _issue(mode.machine or default_machine(), op, inferred, blobs, (target._blob,), scalars)

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor:
        """Another way of seeing `source`'s memory."""
        blob = source._blob
        old = blob.meta
        strides = old.strides if blob.strides is None else blob.strides
        shape, strides, offset = op.view(attributes, old.shape, strides, blob.offset)
        return new_tensor(Blob(blob.storage, meta(shape, old.dtype, old.device), strides, offset), source._lease)


_EAGER_LOCAL: Final[Interpreter] = EagerLocalInterpreter()


def dispatch(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes = (), scalars: tuple[Any, ...] = ()
) -> Tensor:
    """Run an op of one result."""
    mode = MODE.get()
    if mode.interpreter is None:
        result = _call_one(op, inputs, attributes, scalars, mode)
    else:
        result = mode.interpreter.call(op, inputs, attributes, scalars, mode)[0]
    if mode.grad and op.rule is not None:
        for tensor in inputs:
            if tensor._autograd is not None and tensor._autograd.requires_grad:
                _node.record(op, inputs, attributes, scalars, (result,))
                break
    return result


def _call_one(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
) -> Tensor:
    """`EagerLocalInterpreter.call` for one result, written out: every eager op passes here."""
    try:
        blobs = tuple([tensor._blob for tensor in inputs])
    except AttributeError:
        raise _not_tensors(op, inputs) from None
    inferred = _infer(op, blobs, attributes, scalars, mode.dtype)
    output = inferred.outputs[0]
    machine: VirtualMachine = mode.machine or default_machine()
    written = Dependence(machine)
    storage = Storage(written)
    blob = Blob(storage, output)
    reads: list[Dependence] = []
    for source in blobs:
        dependence = source.storage.dependence
        reads.append(dependence if dependence.machine is machine else machine.take_over(source.storage))
    code, last = origin.capture()
    instruction = Instruction(
        machine.stream(output.device),
        OpCall(op.name, inferred.kernel, blobs, (blob,), scalars),
        tuple(reads),
        (written,),
        inferred.cost,
        code,
        last,
    )
    machine.issue(instruction, storage)
    tensor: Tensor = _new(_tensors.Tensor)
    tensor._blob = blob
    tensor._lease = Lease(storage) if output.nbytes >= _LEASED_FROM else None
    tensor._autograd = None
    return tensor


def dispatch_several(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes = (), scalars: tuple[Any, ...] = ()
) -> tuple[Tensor, ...]:
    """Run an op of several results."""
    mode = MODE.get()
    results: tuple[Tensor, ...] = (mode.interpreter or _EAGER_LOCAL).call(op, inputs, attributes, scalars, mode)
    if mode.grad and op.rule is not None and any([tensor.requires_grad for tensor in inputs]):
        _node.record(op, inputs, attributes, scalars, results)
    return results


def dispatch_into(
    op: OpExpr,
    target: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Run an op of one result and write that into `target`, which is returned.

    Raises:
        RuntimeError: if autograd would have to record it and cannot (see `OpNode.check_target`), or if the result does
            not fit the target.
    """
    mode = MODE.get()
    recorded = mode.grad and (target.requires_grad or any([tensor.requires_grad for tensor in inputs]))
    if recorded:
        _node.OpNode.check_target(op, target)
        _node.check_history(op.name, inputs)
    before = tuple([new_alias(tensor) if tensor is target else tensor for tensor in inputs]) if recorded else inputs
    storage = target._blob.storage
    try:
        (mode.interpreter or _EAGER_LOCAL).call_into(op, target, inputs, attributes, scalars, mode)
    except (KeyboardInterrupt, SystemExit):
        # The instruction may have been accepted before the interrupt was raised.
        storage.version += 1
        raise
    if recorded:
        # Before the version goes up: what the op read of the target is no longer there for the backward pass.
        storage.history += 1
        _node.record(op, before, attributes, scalars, (target,), in_place=True)
    storage.version += 1
    return target


def dispatch_view(op: ViewExpr, source: Tensor, attributes: Attributes = ()) -> Tensor:
    """Another way of seeing `source`'s memory."""
    mode = MODE.get()
    result: Tensor = (mode.interpreter or _EAGER_LOCAL).view(op, source, attributes, mode)
    if source._autograd is not None and mode.grad and source._autograd.requires_grad:
        _node.record(op, (source,), attributes, (), (result,))
    return result


def new_tensor(blob: Blob, lease: Lease | None) -> Tensor:
    """A tensor of this blob, without autograd history."""
    tensor: Tensor = _new(_tensors.Tensor)
    tensor._blob = blob
    tensor._lease = lease
    tensor._autograd = None
    return tensor


def new_alias(tensor: Tensor) -> Tensor:
    """Another tensor object with the same memory and the same history."""
    alias = new_tensor(tensor._blob, tensor._lease)
    alias._autograd = tensor._autograd
    return alias


_new: Any = object.__new__


def _leased(output: TensorMeta) -> bool:
    return output.nbytes >= _LEASED_FROM


def _infer(
    op: OpExpr, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...], default: DType | None
) -> Inferred:
    metas = tuple([blob.meta for blob in blobs])
    kinds = tuple([type(scalar) for scalar in scalars]) if scalars else ()
    key = (metas, attributes, kinds, default)
    found = op.known.get(key)
    return found if found is not None else op.inferred(key, attributes, metas, kinds)


def _issue(
    machine: VirtualMachine,
    op: OpExpr,
    inferred: Inferred,
    blobs: tuple[Blob, ...],
    outputs: tuple[Blob, ...],
    scalars: tuple[Any, ...],
) -> None:
    code, last = origin.capture()
    instruction = Instruction(
        machine.stream(inferred.outputs[0].device),
        OpCall(op.name, inferred.kernel, blobs, outputs, scalars, inferred.several),
        tuple([access(blob.storage, machine) for blob in blobs]),
        tuple([access(blob.storage, machine) for blob in outputs]),
        inferred.cost,
        code,
        last,
    )
    issue(machine, [instruction], [(blob.storage, instruction) for blob in outputs])


def _apart(inferred: Inferred) -> Inferred:
    """As `inferred`, but the kernel is not shown the destination, whose dtype numpy might refuse; `OpCall` casts."""

    def kernel(*arguments: Any) -> Any:
        return inferred.kernel(*arguments[:-1], None)

    return Inferred(inferred.outputs[0], kernel, inferred.cost)


def _not_tensors(op: OpExpr, inputs: tuple[Any, ...]) -> TypeError:
    given = ", ".join([type(it).__name__ for it in inputs])
    return TypeError(f"{op.name.removesuffix('_scalar')}: expected tensors, got {given}")


def check_fits(name: str, result: TensorMeta, target: Tensor) -> None:
    """Raise RuntimeError unless such a result can be written into `target`."""
    strides = target._blob.strides
    if strides is not None and any(
        [stride == 0 and size > 1 for stride, size in zip(strides, target._blob.meta.shape, strict=True)]
    ):
        raise RuntimeError(
            f"{name}: several elements of an expanded tensor of shape {list(target.shape)} share one place in memory; "
            "clone() it before changing it in place"
        )
    meta = target._blob.meta
    if result is meta:
        return
    if result.shape != meta.shape:
        raise RuntimeError(
            f"{name}: the result has shape {list(result.shape)}, which does not fit the tensor of shape "
            f"{list(meta.shape)} that is to be written in place"
        )
    if result.dtype.category > meta.dtype.category:
        raise RuntimeError(
            f"{name}: the result is {result.dtype.name}, which cannot be written in place into a "
            f"{meta.dtype.name} tensor; use the form that returns a new tensor"
        )
