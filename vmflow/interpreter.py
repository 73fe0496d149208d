"""From an op and its operands to results: choose an interpreter, run the op, let autograd record it.

The eager interpreter infers, makes output blobs and issues an `OpCall`.  A lazy one (building a graph) is chosen by the
mode, and has the same methods and some more, for what is eager elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from . import tensors as _tensors  # noqa: F401 (here tensors and ops begin, whose modules need each other)
from .anomaly import checked
from .autograd import node as _node
from .autograd import views as _views
from .context import MODE, Mode
from .devices import device as Device
from .dtypes import dtype as DType
from .instructions.blob import Array, Blob, Storage, TensorMeta, brought, meta, places_memory
from .instructions.builder import issue, physical_run
from .instructions.instruction import Dependence, Instruction
from .instructions.op_call import Kernel, OpCall, Step
from .instructions.policy import InstructionPolicy
from .instructions.release_tensor import Lease
from .kernels.generation import GENERATION
from .native import caused_by
from .operands import not_tensors
from .ops.table import Attributes, Inferred, OpExpr, Recent, ViewExpr
from .streams.allocator import BinAllocator
from .tensor_fields import CLASS, TensorFields
from .vm import at_once
from .vm.machine_fields import DEFAULT, MachineFields
from .vm.virtual_machine import VirtualMachine, default_machine

if TYPE_CHECKING:
    from .multi_tensor import Update
    from .random import Generator
    from .streams.stream import Stream
    from .tensors import Tensor

# Memory of this many bytes and more goes back to its device in order, by an instruction; for less, Python's reference
# counting does as well and costs nothing.
LEASED_FROM: Final = 1 << 16

# Ops of so many nanoseconds wait for others that go on with what they make, see `vmflow.instructions.chain`: below, the
# arrays stay in the cache in between.
CHAINED_FROM: Final = 250_000

_HOST: Final = Device("cpu")

_current_mode: Final[Callable[[], Mode]] = MODE.get

# Ctrl-C must not leave the allocator half-way through a change.  Compiled, it is never interrupted between its own
# steps, only in what it calls to get a new block; and putting the shield up takes as long as a small op.
_CALL: Final = at_once.call_shielded if isinstance(BinAllocator.allocate, FunctionType) else at_once.call


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


class Recorder(Interpreter, Protocol):
    """An interpreter that runs nothing.

    Attributes:
        node: the step of the backward pass at hand, set by whoever walks through the graph of autograd.
    """

    node: _node.Node | None

    def transfer(self, op: OpExpr, source: Tensor, device: Device, mode: Mode) -> Tensor: ...

    def update(self, update: Update, mode: Mode) -> None: ...

    def draw(self, generator: Generator, default: bool, elements: int) -> tuple[Any, Any]: ...

    def made(self, storage: Storage) -> None: ...

    def batches(self, source: Iterable[Any]) -> Iterator[Any]: ...

    def final(self, losses: tuple[Tensor, ...]) -> tuple[Tensor, ...]: ...

    def accumulates(self, autograd: _node.AutogradMeta) -> None: ...


class EagerLocalInterpreter:
    """Issues each op to the mode's machine at once."""

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]:
        """The results, whose values are being computed."""
        blobs = _blobs(inputs)
        inferred = infer(op, blobs, attributes, scalars, mode.dtype)
        machine: VirtualMachine = mode.machine or default_machine()
        stream = at_once.compute_stream(machine, inferred.outputs[0].device)
        outputs = tuple([Blob(Storage(machine, None, stream), output) for output in inferred.outputs])
        policy = _op_call(op, inferred, blobs, outputs, scalars, mode)
        if not (
            (mode.scope is None or mode.scope.dropped() is None)
            and not mode.anomaly
            and at_once.possible(machine, stream, inferred.cost)
            and _there(machine, stream, blobs)
            and _run_at_once(machine, stream, policy)
        ):
            _issue(machine, stream, policy, blobs, outputs, inferred.cost, mode, _leased_bytes(inferred))
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
        blobs = _blobs(inputs)
        inferred = infer(op, blobs, attributes, scalars, mode.dtype)
        check_fits(op.name, inferred.outputs[0], target)
        machine = mode.machine or default_machine()
        policy = _op_call(op, inferred, blobs, (target._blob,), scalars, mode)
        if inferred.outputs[0].dtype is not target._blob.meta.dtype:
            policy.kernel = _apart(policy.kernel)
        stream = at_once.compute_stream(machine, inferred.outputs[0].device)
        _issue(machine, stream, policy, blobs, (target._blob,), inferred.cost, mode, _leased_bytes(inferred))

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor:
        """Another way of seeing `source`'s memory."""
        return new_tensor(view_of(op, source._blob, attributes, source._blob.storage), source._lease)


_EAGER_LOCAL: Final[Interpreter] = EagerLocalInterpreter()


@contextmanager
def eagerly() -> Iterator[None]:
    """Run ops at once, also while a graph is built."""
    mode = _current_mode()
    if mode.interpreter is None:
        yield
        return
    MODE.set(mode.replace(interpreter=None))
    try:
        yield
    finally:
        MODE.set(MODE.get().replace(interpreter=mode.interpreter))


def dispatch(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes = (), scalars: tuple[Any, ...] = ()
) -> Tensor:
    """Run an op of one result."""
    mode = _current_mode()
    if mode.autocast is not None:
        inputs = mode.autocast.operands(op.name, inputs, mode)
    if mode.interpreter is None:
        result = _call_one(op, inputs, attributes, scalars, mode)
    else:
        result = mode.interpreter.call(op, inputs, attributes, scalars, mode)[0]
    if mode.grad and op.rule is not None:
        for tensor in inputs:
            fields: TensorFields = tensor
            autograd = fields._autograd
            if autograd.requires_grad if autograd is not None else fields._base is not None and _views.renewed(tensor):
                _node.record(op, inputs, attributes, scalars, (result,))
                break
    return result


def _call_one(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
) -> Tensor:
    """`EagerLocalInterpreter.call` for one result, written out: every eager op passes here."""
    if len(inputs) == 2 and not scalars:
        first: Any = inputs[0]
        second: Any = inputs[1]
        if isinstance(first, TensorFields) and isinstance(second, TensorFields):
            result = _again(op, first._blob, second._blob, attributes, mode)
            if result is not None:
                return result
    try:
        blobs = _blobs(inputs)
    except (AttributeError, TypeError):
        raise caused_by(_not_tensors(op, inputs), None)  # noqa: B904
    inferred = infer(op, blobs, attributes, scalars, mode.dtype)
    output = inferred.outputs[0]
    machine: VirtualMachine = mode.machine or (DEFAULT[0] if DEFAULT else default_machine())
    stream = at_once.compute_stream(machine, output.device)
    wanted = mode.scope is None or mode.scope.dropped() is None
    step = _step(op, inferred, blobs, attributes) if inferred.cost >= CHAINED_FROM and not mode.anomaly else None
    if (
        wanted
        and not mode.anomaly
        and at_once.possible(machine, stream, inferred.cost)
        and (step is None or not step.waits())
    ):
        storage = _compute_at_once(machine, stream, op, inferred, blobs, scalars)
        if storage is not None:
            return new_tensor(Blob(storage, output), Lease(storage) if output.nbytes >= LEASED_FROM else None)
    storage = Storage(machine, None, stream)
    blob = Blob(storage, output)
    reads: list[Dependence] = []
    for source in blobs:
        reads.append(brought(machine, source.storage, stream))
    kernel = inferred.kernel.function if not mode.anomaly else checked(op.name, inferred.kernel.function)
    instruction = Instruction(
        stream,
        OpCall(op.name, kernel, blobs, (blob,), scalars, False, inferred.allocates, step),
        tuple(reads),
        (storage.dependence,),
        inferred.cost,
        None,
        0,
        mode,
        output.nbytes if output.nbytes >= LEASED_FROM else 0,
    )
    machine.issue(instruction, storage)
    return new_tensor(blob, Lease(storage) if output.nbytes >= LEASED_FROM else None)


def unrecorded(op: OpExpr, one: Blob, other: Blob) -> Tensor | None:
    """An op on the values of two tensors, where the mode says that it is not recorded and runs at once; else None."""
    mode = _current_mode()
    if mode.grad or mode.autocast is not None or mode.interpreter is not None:
        return None
    return _again(op, one, other, (), mode)


def _again(op: OpExpr, one: Blob, other: Blob, attributes: Attributes, mode: Mode) -> Tensor | None:
    """The result of an op on two small tensors that is like its last one; None if it is not, or cannot run at once.

    What `_call_one` and `_compute_at_once` do, of the commonest case alone, for which they need a tuple at each step.
    """
    left, right = one.storage, other.storage
    if left.array is None or right.array is None:  # first, for then all this is in vain
        return None
    recent = op.recent
    if recent is None or one.meta is not recent.first or other.meta is not recent.second:
        return None
    if recent.default is not mode.dtype:
        return None
    inferred = recent.inferred
    if recent.kind is not None or (recent.attributes is not attributes and recent.attributes != attributes):
        return None
    if inferred.allocates or mode.anomaly or mode.scope is not None:
        return None
    if one.strides is not None or other.strides is not None:
        return None
    machine: VirtualMachine | None = mode.machine or (DEFAULT[0] if DEFAULT else None)
    if machine is None:
        return None
    stream = at_once.compute_stream(machine, inferred.outputs[0].device)
    if left.stream is not stream or right.stream is not stream:
        return None
    if left.machine is not machine or right.machine is not machine:
        return None
    if left.failure is not None or right.failure is not None:
        return None
    if not at_once.possible(machine, stream, inferred.cost):
        return None
    try:
        array = at_once.call(machine, inferred.kernel.function, None, left.array, right.array)
    except Exception:
        return None
    storage = _made(machine, stream, array)
    return None if storage is None else new_tensor(Blob(storage, inferred.outputs[0]), None)


def _step(op: OpExpr, inferred: Inferred, blobs: tuple[Blob, ...], attributes: Attributes) -> Step | None:
    """A large op as a member of a chain; None if it may not be."""
    for blob in blobs:
        if blob.storage.shared:
            return None
    if inferred.step is None:
        from .ops.chains import step_of

        inferred.step = step_of(op.name, attributes, tuple([blob.meta for blob in blobs]), inferred) or False
    return inferred.step or None


def _blobs(tensors: tuple[Tensor, ...]) -> tuple[Blob, ...]:
    if len(tensors) == 2:  # as most ops have it, without a list in between
        one: TensorFields = tensors[0]
        other: TensorFields = tensors[1]
        return one._blob, other._blob
    found: list[Blob] = []
    for tensor in tensors:
        fields: TensorFields = tensor
        found.append(fields._blob)
    return tuple(found)


def _there(machine: VirtualMachine, stream: Stream, blobs: tuple[Blob, ...]) -> bool:
    """Whether the operands have values that may be used on this stream with nothing to wait for."""
    for blob in blobs:
        storage = blob.storage
        if storage.failure is not None or storage.array is None:
            return False
        if storage.stream is not stream or storage.machine is not machine:
            if storage.machine is not None:
                return False
            machine.bring(storage, stream)  # made of a caller's array: nothing has used it yet
    return True


def _compute_at_once(
    machine: VirtualMachine,
    stream: Stream,
    op: OpExpr,
    inferred: Inferred,
    blobs: tuple[Blob, ...],
    scalars: tuple[Any, ...],
) -> Storage | None:
    """The result of a kernel whose operands are there, without the instruction that would have called it.

    None if the instruction is to be issued: also where the kernel raises, for it to fail as others do.
    """
    strided = False
    for blob in blobs:
        # As in `_there`, written out for every eager op passes here.
        storage = blob.storage
        if storage.failure is not None or storage.array is None:
            return None
        if storage.stream is not stream or storage.machine is not machine:
            if storage.machine is not None:
                return None
            machine.bring(storage, stream)
        if blob.strides is not None:
            strided = True
    if inferred.allocates:
        storage = Storage(machine, None, stream)
        try:
            done = _CALL(machine, _allocate_and_compute, (op, inferred, storage, _arrays(blobs), scalars))
        except Exception:
            return None
        return None if done is at_once.NOT_NOW else storage
    try:
        if strided:
            # The kernel might choose a layout of its own.
            output = inferred.outputs[0]
            out = np.empty(output.sizes, output.dtype.numpy)
            array = at_once.call(machine, _compute_into, (inferred.kernel.function, _arrays(blobs), scalars, out))
        else:
            array = at_once.call(machine, inferred.kernel.function, (*_arrays(blobs), *scalars, None))
    except Exception:
        return None
    return _made(machine, stream, array)


def _made(machine: VirtualMachine, stream: Stream, array: Any) -> Storage | None:
    """What a kernel has made, if it was called."""
    if array is at_once.NOT_NOW:
        return None
    if type(array) is not _ndarray:
        array = np.asarray(array)  # numpy gives scalars for arrays without dimensions
    return Storage(machine, array, stream)


def _arrays(blobs: tuple[Blob, ...]) -> list[Array]:
    return [blob.array() for blob in blobs]


def _allocate_and_compute(
    op: OpExpr, inferred: Inferred, storage: Storage, arrays: list[Array], scalars: tuple[Any, ...]
) -> None:
    stream = storage.stream
    assert stream is not None
    out = _allocated(stream, op.name, storage, inferred.outputs[0])
    storage.array = _compute_into(inferred.kernel.function, arrays, scalars, out)


def _allocated(stream: Stream, name: str, storage: Storage, meta: TensorMeta) -> Array:
    """Memory of the device's, which the storage keeps, as an array."""
    allocator: BinAllocator = stream.allocator
    allocation = allocator.allocate(meta.nbytes, (name, None, 0, None))
    storage.allocation = allocation
    # `Allocation.array`, without a look whether a piece that was asked for by its size has that size.
    return _ndarray(meta.sizes, meta.dtype.numpy, allocation.block, allocation.offset)


def _run_at_once(machine: VirtualMachine, stream: Stream, policy: OpCall) -> bool:
    """Whether a call whose operands are there was made, without an instruction.

    If not, the instruction is to be issued: also where the kernel raises, for it to fail as others do.
    """
    try:
        return _CALL(machine, _allocate_and_run, (stream, policy)) is not at_once.NOT_NOW
    except Exception:
        return False


def _allocate_and_run(stream: Stream, policy: OpCall) -> None:
    if policy.prepares:
        for output in policy.outputs:
            if places_memory(output.meta):
                output.storage.array = _allocated(stream, policy.name, output.storage, output.meta)
    policy.compute()


def _compute_into(kernel: Kernel, arrays: list[Array], scalars: tuple[Any, ...], out: Array) -> Array:
    """`out`, with the kernel's result in it."""
    # As most are called, without a list of all in between.
    two = len(arrays) == 2 and not scalars
    result = kernel(arrays[0], arrays[1], out) if two else kernel(*arrays, *scalars, out)
    if result is not out:
        # Whether the dtype fits was decided before: int64 into uint8 does, and numpy says no.
        np.copyto(out, result, casting="unsafe")
    return out


def dispatch_several(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes = (), scalars: tuple[Any, ...] = ()
) -> tuple[Tensor, ...]:
    """Run an op of several results."""
    mode = _current_mode()
    if mode.autocast is not None:
        inputs = mode.autocast.operands(op.name, inputs, mode)
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
    mode = _current_mode()
    recorded = mode.grad and (target.requires_grad or any([tensor.requires_grad for tensor in inputs]))
    if recorded:
        _node.OpNode.check_target(op.name.removesuffix("_scalar"), target)
        _node.check_history(op.name, inputs if target._base is None else (target._base, *inputs))
    before = (
        tuple([_views.unchanged(tensor) if tensor is target else tensor for tensor in inputs]) if recorded else inputs
    )
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
        if target._base is not None:
            _views.rebase(target._base, target)
    storage.version += 1
    return target


def dispatch_view(op: ViewExpr, source: Tensor, attributes: Attributes = ()) -> Tensor:
    """Another way of seeing `source`'s memory."""
    mode = _current_mode()
    result: Tensor = (mode.interpreter or _EAGER_LOCAL).view(op, source, attributes, mode)
    if mode.grad:
        if source.requires_grad:
            _node.record(op, (source,), attributes, (), (result,))
        result._base = _views.base_for(source)
    return result


def dispatch_transfer(op: OpExpr, source: Tensor, device: Device) -> Tensor:
    """Copy between the host and another device, on the accelerator's own stream for that direction."""
    mode = _current_mode()
    if mode.interpreter is None:
        result = _transfer(op, source, device, mode.machine or default_machine())
    else:
        result = mode.interpreter.transfer(op, source, device, mode)
    if mode.grad and source.requires_grad:
        _node.record(op, (source,), (), (), (result,))
    return result


def _transfer(op: OpExpr, source: Tensor, device: Device, machine: VirtualMachine) -> Tensor:
    blob = source._blob
    upwards = blob.meta.device.type == "cpu"
    stream = machine.stream(device, "host_to_device") if upwards else machine.stream(blob.meta.device, "device_to_host")
    home = machine.stream(device)
    copy = Blob(Storage(machine, None, home), meta(blob.meta.shape, blob.meta.dtype, device))
    if upwards:
        physical_run(machine, lambda builder: builder.allocate_tensor(copy))
    # If there was no memory for the copy, it holds that failure, which is to be handed on: hence it is an operand.
    operands = (blob, copy) if upwards else (blob,)
    physical_run(
        machine,
        lambda builder: builder.op_call(op.name, _copy, operands, (copy,), cost=copy.meta.nbytes, stream=stream),
    )
    return new_tensor(copy, Lease(copy.storage) if _leased(copy.meta) else None)


def _copy(array: Array, *more: Array | None) -> Array:
    out = more[-1]
    if out is None:
        return array.copy(order="C")
    out[...] = array
    return out


def new_tensor(blob: Blob, lease: Lease | None) -> Tensor:
    """A tensor of this blob, without autograd history."""
    tensor: Tensor = _new(CLASS[0])
    fields: TensorFields = tensor
    fields._blob = blob
    fields._lease = lease
    fields._autograd = None
    fields._base = None
    return tensor


def settled_array(tensor: Tensor) -> Array:
    """The memory of a tensor on the host that is computed, and the whole of its storage; None for any other."""
    fields: TensorFields = tensor
    blob = fields._blob
    storage = blob.storage
    array = storage.array
    if array is None or blob.strides is not None or storage.failure is not None or blob.meta.device is not _HOST:
        return None
    machine: MachineFields | None = storage.machine
    if not storage.settled() or (machine is not None and machine.races is not None):
        return None
    return array


def view_of(op: ViewExpr, blob: Blob, attributes: Attributes, storage: Storage) -> Blob:
    """The blob of a view of `blob`, seen in `storage`."""
    old = blob.meta
    strides = old.strides if blob.strides is None else blob.strides
    dtype = old.dtype if op.dtype is None else op.dtype(old.dtype)
    shape, strides, offset = op.view(attributes, old.shape, strides, blob.offset)
    return Blob(storage, meta(shape, dtype, old.device), strides, offset)


def new_alias(tensor: Tensor) -> Tensor:
    """Another tensor object with the same memory and the same history."""
    alias = new_tensor(tensor._blob, tensor._lease)
    alias._autograd = tensor._autograd
    alias._base = tensor._base
    return alias


_new: Final[Any] = TensorFields.__new__
_ndarray: Final = np.ndarray


def _leased(output: TensorMeta) -> bool:
    return output.nbytes >= LEASED_FROM


def _leased_bytes(inferred: Inferred) -> int:
    return sum([output.nbytes for output in inferred.outputs if _leased(output)])


def infer(
    op: OpExpr, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...], default: DType | None
) -> Inferred:
    """What is known of a call before it runs; `default` is the mode's dtype."""
    recent = _recently(op, blobs, attributes, scalars, default)
    if recent is not None:
        return recent
    metas = tuple([blob.meta for blob in blobs])
    kinds = tuple([type(scalar) for scalar in scalars]) if scalars else ()
    key = (metas, attributes, kinds, default)
    generation = GENERATION.number
    found = op.known.get(key)
    if found is None:
        found = op.inferred(key, attributes, metas, kinds)
    if 1 <= len(metas) <= 2 and len(kinds) <= 1:
        op.recent = Recent(metas, attributes, kinds, default, found)
        if generation != GENERATION.number:
            op.recent = None  # whoever has forgotten everything meanwhile has not seen this
    return found


def _recently(
    op: OpExpr, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...], default: DType | None
) -> Inferred | None:
    """What was inferred just before, if that was the very same: quicker than looking it up.  Else None."""
    recent = op.recent
    if recent is None or not blobs or len(scalars) > 1 or recent.default is not default:
        return None
    if blobs[0].meta is not recent.first:
        return None
    if len(blobs) == 2:
        if blobs[1].meta is not recent.second:
            return None
    elif recent.second is not None or len(blobs) != 1:
        return None
    if recent.kind is not (type(scalars[0]) if scalars else None):
        return None
    if recent.attributes is not attributes and recent.attributes != attributes:
        return None
    return recent.inferred


def _op_call(
    op: OpExpr,
    inferred: Inferred,
    blobs: tuple[Blob, ...],
    outputs: tuple[Blob, ...],
    scalars: tuple[Any, ...],
    mode: Mode,
) -> OpCall:
    kernel = inferred.kernel.function if not mode.anomaly else checked(op.name, inferred.kernel.function)
    return OpCall(op.name, kernel, blobs, outputs, scalars, inferred.several, inferred.allocates)


def issue_policy(
    policy: InstructionPolicy, inputs: tuple[Blob, ...], outputs: tuple[Blob, ...], cost: int, mode: Mode
) -> None:
    """Issue what reads and writes these blobs, at least one of the latter, on their device's stream."""
    machine: VirtualMachine = mode.machine or default_machine()
    stream = at_once.compute_stream(machine, outputs[0].meta.device)
    _issue(machine, stream, policy, inputs, outputs, cost, mode, 0)


def _issue(
    machine: VirtualMachine,
    stream: Stream,
    policy: InstructionPolicy,
    inputs: tuple[Blob, ...],
    outputs: tuple[Blob, ...],
    cost: int,
    mode: Mode,
    nbytes: int,
) -> None:
    writes = tuple([brought(machine, blob.storage, stream) for blob in outputs])
    reads = tuple([brought(machine, blob.storage, stream) for blob in inputs])
    instruction = Instruction(stream, policy, reads, writes, cost, None, 0, mode, nbytes)
    issue(machine, [instruction], [(blob.storage, instruction) for blob in outputs])


def _apart(kernel: Kernel) -> Kernel:
    """As `kernel`, but it is not shown the destination, whose dtype numpy might refuse; `OpCall` casts."""
    return lambda *arguments: kernel(*arguments[:-1], None)


def _not_tensors(op: OpExpr, inputs: tuple[Any, ...]) -> TypeError:
    return not_tensors(op.name.removesuffix("_scalar"), inputs)


def check_fits(name: str, result: TensorMeta, target: Tensor) -> None:
    """Raise RuntimeError unless such a result can be written into `target`."""
    strides = target._blob.strides
    if (
        strides is not None
        and any([stride == 0 and size > 1 for stride, size in zip(strides, target._blob.meta.shape, strict=True)])
        and target._blob.meta.numel
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
            f"{list(meta.shape)} that is to be written in place; no tensor is resized"
        )
    if result.dtype.category > meta.dtype.category:
        raise RuntimeError(
            f"{name}: the result is {result.dtype.name}, which cannot be written in place into a "
            f"{meta.dtype.name} tensor; use the form that returns a new tensor"
        )
