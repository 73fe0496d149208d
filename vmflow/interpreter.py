"""From an op and its operands to results: choose an interpreter, run the op, let autograd record it.

The eager interpreter infers shapes and dtypes, makes blobs for the outputs and issues an `OpCall`.  While a graph is
built, the mode has a lazy interpreter, with the same methods and further ones for actions that are not op calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .anomaly import checked
from .autograd import views as _views
from .autograd.history import check_history, record
from .autograd.node import OpNode
from .context import MODE, Mode
from .devices import device as Device
from .dtypes import dtype as DType
from .instructions.blob import Array, Blob, Storage, TensorMeta
from .instructions.chain import Step
from .instructions.op_call import CallPlan, OpCall
from .instructions.policy import InstructionPolicy
from .instructions.release_tensor import Lease
from .kernels.choosing import Kernel
from .kernels.generation import GENERATION
from .native import caused_by
from .operands import check_fits, not_tensors
from .ops.table import LEASED_FROM, Attributes, OpExpr, OpPlan, Recent, ViewExpr
from .tensor_fields import TensorFields, new_tensor, view_of
from .vm import inline
from .vm.machine_fields import DEFAULT, MachineFields
from .vm.virtual_machine import VirtualMachine, default_machine

if TYPE_CHECKING:
    from .tensors import Tensor

_HOST: Final = Device("cpu")

_current_mode: Final[Callable[[], Mode]] = MODE.get


class EagerLocalInterpreter:
    """The interpreter that submits ops as they are called, to the mode's virtual machine or else the default one."""

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]:
        """Issue `op` and return its results, whose values may still be uncomputed."""
        blobs = operand_blobs(op, inputs)
        plan = plan_of(op, blobs, attributes, scalars, mode.dtype)
        if plan.spread is not None:
            spread: tuple[Tensor, ...] = plan.spread.call(blobs, attributes, scalars)
            return spread
        machine: VirtualMachine = mode.machine or default_machine()
        parts: MachineFields = machine
        stream = parts.devices.stream_of(plan.outputs[0].device, mode)
        outputs = tuple([Blob(Storage(machine, None, stream), output) for output in plan.outputs])
        call = OpCall(_plan_in(mode, plan), blobs, outputs[0], scalars, outputs=outputs if plan.several else None)
        inline.submit(machine, stream, call, mode, plan.leased)
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
        """Issue `op` so that it writes its one result into the memory of `target`."""
        blobs = operand_blobs(op, inputs)
        fields: TensorFields = target
        blob = fields._blob
        plan = plan_of(op, blobs, attributes, scalars, mode.dtype)
        output = plan.outputs[0]
        if output is not blob.meta or blob.strides is not None:
            check_fits(op.name, output, target)
        if plan.spread is not None:
            plan.spread.call_into(target, blobs, attributes, scalars)
            return
        if blob.meta.spread is not None:
            from .distributed.global_interpreter import mixed  # imported here, as few programs need it

            raise mixed(op.name, (blob.meta, *[source.meta for source in blobs]))
        machine: VirtualMachine = mode.machine or default_machine()
        parts: MachineFields = machine
        stream = parts.devices.stream_of(output.device, mode)
        call_plan = _plan_in(mode, plan if output.dtype is blob.meta.dtype else plan.apart())
        inline.submit(machine, stream, OpCall(call_plan, blobs, blob, scalars), mode, plan.leased)

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor:
        """Return the view of `source` that `op` and `attributes` describe: a tensor on the same memory.

        A view of a global `source` may be a copy.
        """
        if source._blob.meta.spread is not None:
            from .distributed.global_interpreter import global_view  # imported here, as few programs need it

            return global_view(op, source, attributes)
        return new_tensor(view_of(op, source._blob, attributes, source._blob.storage), source._lease)


_EAGER_LOCAL: Final = EagerLocalInterpreter()


@contextmanager
def eagerly() -> Iterator[None]:
    """A context manager in which ops run eagerly, even while a graph is built."""
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
    """Run an op of one result by the mode's interpreter.

    Autograd records the op if grad mode is on, the op has a gradient, and an input requires one.
    """
    mode = _current_mode()
    if mode.autocast is not None:
        inputs = mode.autocast.operands(op.name, inputs, mode)
    if mode.interpreter is None:
        result = computed(op, operand_blobs(op, inputs), attributes, scalars, mode)
    else:
        result = mode.interpreter.call(op, inputs, attributes, scalars, mode)[0]
    if mode.grad and op.rule is not None and any_requires_grad(inputs):
        record(op, inputs, attributes, scalars, (result,))
    return result


def computed(
    op: OpExpr, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
) -> Tensor:
    """Issue an op of one result eagerly, without autograd."""
    plan = plan_of(op, blobs, attributes, scalars, mode.dtype)
    if plan.spread is not None:
        return _computed_by_ranks(plan, blobs, attributes, scalars)
    output = plan.outputs[0]
    machine: VirtualMachine | None = mode.machine
    if machine is None:
        machine = DEFAULT[0] if DEFAULT else default_machine()
    parts: MachineFields = machine
    stream = parts.devices.stream_of(output.device, mode)
    storage = Storage(machine, None, stream)
    blob = Blob(storage, output)
    step = None if plan.step is False or mode.anomaly else _step(plan, blobs, attributes)
    call = OpCall(plan if not mode.anomaly else _plan_in(mode, plan), blobs, blob, scalars, step)
    inline.submit(machine, stream, call, mode, plan.leased)
    return new_tensor(blob, Lease(storage) if plan.leased else None)


def _computed_by_ranks(
    plan: OpPlan, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...]
) -> Tensor:
    found: Tensor = plan.spread.call(blobs, attributes, scalars)[0]
    return found


def _plan_in(mode: Mode, plan: CallPlan) -> CallPlan:
    """The plan, with a check of the op's results for nan and inf if the mode asks for it."""
    return plan.replaced(checked(plan.name, plan.function)) if mode.anomaly else plan


def _step(plan: OpPlan, blobs: tuple[Blob, ...], attributes: Attributes) -> Step | None:
    """The call of an op as a step of a fused elementwise chain; None if the call cannot be fused."""
    for blob in blobs:
        if blob.storage.shared:
            return None
    if plan.step is None:
        from .ops.chains import step_of  # imported here, as it is slow to import and small programs do not need it

        plan.step = step_of(plan, attributes, tuple([blob.meta for blob in blobs])) or False
    return plan.step or None


def operand_blobs(op: OpExpr, tensors: tuple[Tensor, ...]) -> tuple[Blob, ...]:
    """Return the blobs of an op's operands; raise TypeError if one is no tensor."""
    try:
        if len(tensors) == 2:  # most ops have two operands, and need no list in between
            one: TensorFields = tensors[0]
            other: TensorFields = tensors[1]
            return one._blob, other._blob
        found: list[Blob] = []
        for tensor in tensors:
            fields: TensorFields = tensor
            found.append(fields._blob)
        return tuple(found)
    except (AttributeError, TypeError):
        raise caused_by(not_tensors(op.name.removesuffix("_scalar"), tensors), None)  # noqa: B904


def any_requires_grad(tensors: tuple[Tensor, ...]) -> bool:
    """Whether one of the tensors requires a gradient."""
    for tensor in tensors:
        fields: TensorFields = tensor
        autograd = fields._autograd
        if autograd.requires_grad if autograd is not None else fields._base is not None and _views.renewed(tensor):
            return True
    return False


def dispatch_several(
    op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes = (), scalars: tuple[Any, ...] = ()
) -> tuple[Tensor, ...]:
    """Run an op of several results by the mode's interpreter; autograd records it as in `dispatch`."""
    mode = _current_mode()
    if mode.autocast is not None:
        inputs = mode.autocast.operands(op.name, inputs, mode)
    results: tuple[Tensor, ...] = (mode.interpreter or _EAGER_LOCAL).call(op, inputs, attributes, scalars, mode)
    if mode.grad and op.rule is not None and any_requires_grad(inputs):
        record(op, inputs, attributes, scalars, results)
    return results


def dispatch_into(
    op: OpExpr,
    target: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Run an op of one result, write the result into `target`, and return `target`.

    Raises:
        RuntimeError: if autograd would have to record the op and cannot (see `OpNode.check_target`), or if the result
            does not fit the target's shape and dtype.

    Example:
        >>> from vmflow.interpreter import dispatch_into
        >>> from vmflow.ops.table import OPS
        >>> dispatch_into(OPS["exp"], flow.ones(2), (flow.zeros(2),))
        tensor([1., 1.])
    """
    mode = _current_mode()
    recorded = mode.grad and (any_requires_grad(inputs) or any_requires_grad((target,)))
    before = inputs
    if recorded:
        OpNode.check_target(op.name.removesuffix("_scalar"), target)
        check_history(op.name, inputs if target._base is None else (target._base, *inputs))
        before = tuple([_views.unchanged(tensor) if tensor is target else tensor for tensor in inputs])
    fields: TensorFields = target
    storage = fields._blob.storage
    try:
        if mode.interpreter is None:
            _EAGER_LOCAL.call_into(op, target, inputs, attributes, scalars, mode)
        else:
            mode.interpreter.call_into(op, target, inputs, attributes, scalars, mode)
    except (KeyboardInterrupt, SystemExit):
        # A write is counted, since the machine may have accepted the instruction before the interrupt.
        storage.version += 1
        raise
    if recorded:
        # Recorded before the version goes up: then the backward pass sees that the target's old values, which the op
        # has read, are overwritten.
        storage.history += 1
        record(op, before, attributes, scalars, (target,), in_place=True)
        if target._base is not None:
            _views.rebase(target._base, target)
    storage.version += 1
    return target


def dispatch_view(op: ViewExpr, source: Tensor, attributes: Attributes = ()) -> Tensor:
    """Return a view of `source`, a tensor on the same memory (maybe a copy of a global one); let autograd record it."""
    mode = _current_mode()
    result: Tensor = (mode.interpreter or _EAGER_LOCAL).view(op, source, attributes, mode)
    if mode.grad:
        if source.requires_grad:
            record(op, (source,), attributes, (), (result,))
        if source._blob.meta.spread is None:
            result._base = _views.base_for(source)
    return result


def settled_array(tensor: Tensor) -> Array:
    """The array of a computed CPU tensor whose elements fill its storage in order; else, or with a race check, None."""
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


def _leased(output: TensorMeta) -> bool:
    return output.nbytes >= LEASED_FROM


def plan_of(
    op: OpExpr, blobs: tuple[Blob, ...], attributes: Attributes, scalars: tuple[Any, ...], default: DType | None
) -> OpPlan:
    """The plan of a call of `op`: output shapes and dtypes, and the kernel.  `default` is the mode's default dtype.

    The op caches its plans by operands' metas, attributes, scalars' types and `default`.
    """
    count = len(blobs)
    recent = op.recent
    if (
        recent is not None
        and recent.default is default
        and (recent.attributes is attributes or recent.attributes == attributes)
    ):
        if count == 2:
            if blobs[0].meta is recent.first and blobs[1].meta is recent.second and not scalars and recent.kind is None:
                return recent.plan
        elif (
            count == 1
            and blobs[0].meta is recent.first
            and recent.second is None
            and len(scalars) <= 1
            and recent.kind is (type(scalars[0]) if scalars else None)
        ):
            return recent.plan
    metas = tuple([blob.meta for blob in blobs])
    kinds = tuple([type(scalar) for scalar in scalars]) if scalars else ()
    key = (metas, attributes, kinds, default)
    generation = GENERATION.number
    found = op.known.get(key)
    if found is None:
        found = op.plan(key, attributes, metas, kinds)
    if 1 <= count <= 2 and len(kinds) <= 1:
        op.recent = Recent(metas, attributes, kinds, default, found)
        if generation != GENERATION.number:
            op.recent = None  # all plans were dropped meanwhile, so that `found` may be outdated
    return found


def kernel_of(op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes) -> Kernel:
    """The kernel that a call of `op` with these inputs and attributes, and without scalars, would run."""
    return plan_of(op, operand_blobs(op, inputs), attributes, (), _current_mode().dtype).kernel


def issue_policy(
    policy: InstructionPolicy, inputs: tuple[Blob, ...], outputs: tuple[Blob, ...], cost: int, mode: Mode
) -> None:
    """Issue an instruction that reads `inputs` and writes `outputs`, on the stream of the first output's device."""
    machine: VirtualMachine = mode.machine or default_machine()
    parts: MachineFields = machine
    stream = parts.devices.stream_of(outputs[0].meta.device, mode)
    inline.issue_call(machine, stream, policy, inputs, outputs, cost, mode, 0)
