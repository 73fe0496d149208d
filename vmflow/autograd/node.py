"""The graph that autograd records: `Node`s joined by edges, and `AutogradMeta`, a tensor's place in it.

An edge leads from a node to the node that made an input of its op.  The edge is the input's `AutogradMeta`, which names
the node that made it and the number of the output; a leaf's gradients are accumulated in its `AutogradMeta`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from vmflow.context import MODE
from vmflow.errors import InternalError
from vmflow.handles import Handle
from vmflow.instructions import origin
from vmflow.instructions.blob import Blob, TensorMeta
from vmflow.instructions.release_tensor import Lease
from vmflow.native import mypyc_attr
from vmflow.operands import changed_leaf
from vmflow.tensor_fields import TensorFields, new_alias, new_tensor

if TYPE_CHECKING:
    from vmflow.ops.table import Attributes, OpExpr
    from vmflow.tensors import Tensor

Hook: TypeAlias = "Callable[[Tensor], Tensor | None]"
Edge: TypeAlias = "AutogradMeta | None"

# A place whose gradient can be asked for: a leaf, or an output of a node.
Place: TypeAlias = "AutogradMeta | tuple[Node, int]"

# The values of `Node.sequence`: above 0, which is before every node, and in steps of 4, so that views whose
# history is renewed later on get numbers right after their base's node.
_numbers: Final = count(4, 4)


def next_sequence() -> int:
    """A number above those of all nodes so far, and below those of all later nodes but the nodes of renewed views.

    Example:
        >>> from vmflow.autograd.node import next_sequence
        >>> next_sequence() < next_sequence()
        True
    """
    return next(_numbers)


class AutogradMeta:
    """A tensor's place in autograd's graph.

    Raises no errors.

    Attributes:
        requires_grad: whether gradients flow into it.
        node, index: which output of which node the tensor is; node is None for a leaf.
        grad: the accumulated gradient; None without one.
        retains: whether a non-leaf keeps its gradient in `grad`.
        hooks: functions, by `Handle.number`, called with the gradient before it is used; each may replace it.
        after: functions, by `Handle.number`, called without arguments after a leaf's gradient was accumulated.
        history: of a non-leaf, the version of its storage's `history` that it covers; see `check_history`.

    Example:
        >>> flow.autograd.AutogradMeta(True).requires_grad
        True
    """

    __slots__ = ("after", "grad", "history", "hooks", "index", "node", "requires_grad", "retains")

    def __init__(self, requires_grad: bool, node: Node | None = None, index: int = 0, history: int = 0) -> None:
        self.requires_grad = requires_grad
        self.node = node
        self.index = index
        self.history = history
        self.grad: Tensor | None = None
        self.retains = False
        self.hooks: dict[int, Hook] | None = None
        self.after: dict[int, Callable[[], None]] | None = None

    def follow(self, earlier: AutogradMeta | None) -> AutogradMeta:
        """Replace `earlier`, the meta, if any, from before the tensor or its base was changed in place; return self.

        The gradient stays with the tensor, and a retained one is from now on that of the new value.  Hooks stay with
        the value for which they were registered.
        """
        if earlier is not None:
            self.grad = earlier.grad
            if earlier.retains:
                earlier.retains = False
                self.retain()
        return self

    def replace(self, gradient: Tensor | None) -> None:
        """Replace the accumulated gradient by `gradient`."""
        self.grad = gradient

    def add(self, gradient: Tensor) -> None:
        """Add `gradient` to the accumulated one in place; the first is kept, not copied."""
        self.grad = gradient if self.grad is None else self.grad.add_(gradient)

    def retain(self) -> None:
        """Let backward passes keep the gradient of a tensor that is no leaf."""
        self.retains = True
        self.watch()

    def watch(self) -> None:
        """Tell the node, if any, that this output has hooks or keeps its gradient, so that the pass looks at it."""
        node = self.node
        if node is not None:
            if node.outputs is None:
                node.outputs = {}
            node.outputs[self.index] = self

    def edge(self) -> Edge:
        """This object as an edge; None for a leaf that requires no gradient."""
        return self if self.node is not None or self.requires_grad else None

    def place(self) -> Place:
        """A key for this output of its node, equal for all tensors that are that output; for a leaf: itself."""
        return self if self.node is None else (self.node, self.index)


class NodeHooks:
    """The users' hooks on a step of the backward pass.

    Attributes:
        before: by `Handle.number`; called with the gradients of the outputs; each may replace them.
        after: by `Handle.number`; called with the gradients of inputs and outputs; each may replace those of inputs.
    """

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: dict[int, Callable[[Any], Any]] = {}
        self.after: dict[int, Callable[[Any, Any], Any]] = {}

    def prepared(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Call the hooks `before`; return the gradients of the outputs, perhaps replaced."""
        for hook in list(self.before.values()):
            replaced = hook(tuple(gradients))
            if replaced is not None:
                gradients = list(_of_hook("register_prehook", replaced, gradients))
        return gradients

    def finished(
        self, results: tuple[Tensor | None, ...], gradients: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, ...]:
        """Call the hooks `after`; return the gradients of the inputs, perhaps replaced."""
        for hook in list(self.after.values()):
            replaced = hook(results, tuple(gradients))
            if replaced is not None:
                results = _of_hook("register_hook", replaced, results)
        return results


def _of_hook(name: str, returned: Any, before: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return as a tuple the gradients that a hook gave in place of `before`; raise if they cannot replace them."""
    given: tuple[Any, ...] = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    if len(given) != len(before):
        raise RuntimeError(f"{name}: the hook of a node returned {len(given)} gradients, where there are {len(before)}")
    for new, old in zip(given, before, strict=True):
        if new is not None:
            check_replacement(name, new, old)
    return given


def check_replacement(name: str, returned: Any, gradient: Tensor | None) -> None:
    """Raise if the result of a hook cannot replace a gradient: a tensor of the same shape, dtype and device can.

    Args:
        name: of the method that registered the hook.
        returned: the result of the hook, not None.
        gradient: the gradient that the hook was given; None where there was none.

    Raises:
        TypeError: if `returned` is no tensor.
        RuntimeError: if its shape, dtype or device differs, or there is no gradient to replace.
    """
    if not isinstance(returned, TensorFields):
        raise TypeError(f"{name}: a hook returned {type(returned).__name__} in place of a gradient, not a tensor")
    if gradient is None:
        raise RuntimeError(f"{name}: a hook returned a gradient where there is none to replace")
    fields: TensorFields = gradient
    new, old = returned._blob.meta, fields._blob.meta
    if new.shape != old.shape or new.dtype is not old.dtype or new.device is not old.device:
        raise RuntimeError(
            f"{name}: a hook returned {new!r} on {new.device} in place of a gradient of {old!r} on {old.device}"
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class Node:
    """One step of the backward pass; `Tensor.grad_fn` is one.  Raises no errors.

    Attributes:
        title: as shown by `Tensor.grad_fn`.
        edges: one per input, None where no gradient is wanted.
        sequence: a number, see `next_sequence`: from high to low, every consumer comes before its producer.
        outputs_count: the number of outputs.
        outputs: the autograd metas of the outputs that have hooks or keep their gradient, by index; None without any.
        hooks: the hooks of the node itself; None without any.

    Example:
        >>> flow.ones(2, requires_grad=True).exp().grad_fn.name()
        'exp'
    """

    __slots__ = ("__weakref__", "edges", "hooks", "outputs", "outputs_count", "sequence", "title")

    def __init__(self, name: str, edges: tuple[Edge, ...], outputs_count: int = 1) -> None:
        self.title = name
        self.edges = edges
        self.outputs_count = outputs_count
        self.sequence = next(_numbers)
        self.outputs: dict[int, AutogradMeta] | None = None
        self.hooks: NodeHooks | None = None

    def register_prehook(self, hook: Callable[[Any], Any]) -> Handle:
        """Call ``hook(grad_outputs)`` before this step of a backward pass; it may return other grad_outputs.

        Args:
            hook: given a tuple of the gradients of the outputs, None where there is none.  It returns None, or a tuple
                of the same length to replace them, each by None or one of the same shape, dtype and device.

        Returns:
            A handle whose `remove()` takes the hook away.
        """
        return Handle(self._own_hooks().before, hook)

    def register_hook(self, hook: Callable[[Any, Any], Any]) -> Handle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this step of a backward pass; it may return other grad_inputs.

        Args:
            hook: given the gradients of the inputs and those of the outputs, as tuples, None where there is none.  It
                returns None, or a tuple to replace those of the inputs, each by None or one of its shape, dtype and
                device.

        Returns:
            A handle whose `remove()` takes the hook away.
        """
        return Handle(self._own_hooks().after, hook)

    def _own_hooks(self) -> NodeHooks:
        if self.hooks is None:
            self.hooks = NodeHooks()
        return self.hooks

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        """The gradient of each input, None where none is needed, from those of the outputs, None where none arrived."""
        raise NotImplementedError

    def may_share(self, gradient: Tensor, gradients: Sequence[Tensor | None]) -> bool:
        """Whether `gradient`, a result of `backward`, may share its memory with something that lives on; here True."""
        return True

    def release(self) -> None:
        """Release the saved tensors; another backward pass that needs some of them is an error."""

    def where(self) -> str:
        """What the node comes from, for messages: the user's line, or a name."""
        raise NotImplementedError

    def name(self) -> str:
        """The op's name; for a user's `Function`, the name of the class and "Backward"."""
        return self.title

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The edges, as (node or leaf, number of the output); (None, 0) for None."""
        return tuple([(None, 0) if edge is None else (edge.node or edge, edge.index) for edge in self.edges])

    def __repr__(self) -> str:
        return f"<{self.title}>"


# A tensor kept for the backward pass: its blob, its lease, its place in the graph, and the version and history that its
# storage had.
Saved: TypeAlias = "tuple[Blob | None, Lease | None, AutogradMeta | None, int, int]"

NOTHING: Final[Saved] = (None, None, None, 0, 0)


def saved(tensor: Tensor, with_history: bool, in_place: bool = False) -> Saved:
    """A tensor's memory and history, to be kept without the tensor object.

    A node's own output is kept without its history, since the node would hold itself; `unpacked` puts it back.
    With `in_place`, the tensor is the result of an in-place op that its version does not count yet.
    """
    fields: TensorFields = tensor
    blob = fields._blob
    storage = blob.storage
    version = storage.version + 1 if in_place else storage.version
    return blob, fields._lease, fields._autograd if with_history else None, version, storage.history


def saved_blob(kept: Saved, owner: Node) -> Blob:
    """The blob of a kept tensor.

    Raises:
        RuntimeError: if the tensor was changed in place since.
    """
    blob, version = kept[0], kept[3]
    assert blob is not None
    if blob.storage.version != version:
        raise RuntimeError(
            f"the gradient of {owner.title} needs a tensor of shape {list(blob.meta.shape)} that was changed in place "
            f"after it was used (it is at version {blob.storage.version}, expected {version}); used at {owner.where()}"
        )
    return blob


def unpacked(kept: Saved, owner: Node, output: int | None = None) -> Tensor:
    """Make the saved tensor again.

    Args:
        kept: its memory and history.
        owner: the node that keeps it.
        output: the number of the node's output, if the tensor is one; else None.

    Raises:
        RuntimeError: if the tensor was changed in place since.
    """
    tensor = new_tensor(saved_blob(kept, owner), kept[1])
    fields: TensorFields = tensor
    fields._autograd = kept[2] if output is None else AutogradMeta(True, owner, output, kept[4])
    return tensor


# A user's functions: `pack_hook` and `unpack_hook` of `graph.saved_tensors_hooks`.
Packing: TypeAlias = "tuple[Callable[[Any], Any], Callable[[Any], Any]]"

# The hooks in use here, and a list with one item for each open block of `graph.saved_tensors_hooks` anywhere: most
# programs have none, and then the context variable is not read.
PACKING: Final[ContextVar[Packing | None]] = ContextVar("vmflow.packing", default=None)
PACKING_BLOCKS: Final[list[None]] = []


def packing_here() -> Packing | None:
    """The hooks of the innermost `saved_tensors_hooks` block around the caller; None without one.

    Example:
        >>> from vmflow.autograd.node import packing_here
        >>> print(packing_here())
        None
    """
    return PACKING.get() if PACKING_BLOCKS else None


class Packed:
    """A saved tensor in the form that the user's `pack_hook` gives it; RuntimeError if the hook changes it in place.

    Attributes:
        value: the hook's result; None if that was the tensor itself.
        kept: the tensor itself, if the hook returned it, else its history without memory.
        meta: of the tensor.
        unpack: the hook that makes the tensor again.
    """

    __slots__ = ("kept", "meta", "unpack", "value")

    def __init__(self, kept: Saved, tensor: Tensor, packing: Packing) -> None:
        fields: TensorFields = tensor
        storage = fields._blob.storage
        version = storage.version
        mode = MODE.get()
        MODE.set(mode.replace(grad=False))
        try:
            value = packing[0](tensor)
        finally:
            MODE.set(MODE.get().replace(grad=mode.grad))
        if storage.version != version:
            raise RuntimeError(
                "saved_tensors_hooks: the pack hook has changed its tensor in place; it must return a new one instead"
            )
        self.unpack = packing[1]
        self.meta = fields._blob.meta
        self.value: Any = None if value is tensor else value
        self.kept: Saved = kept if value is tensor else (None, None, kept[2], kept[3], kept[4])

    def unpacked(self, owner: Node, output: int | None) -> Tensor:
        """Make the saved tensor again, by the user's `unpack_hook`; see the module's function `unpacked`.

        Raises:
            TypeError, RuntimeError: if the hook returns no tensor, or one of another shape.
        """
        kept = self.kept
        given = unpacked(kept, owner, output) if kept[0] is not None else self.value
        found = self.unpack(given)
        if not isinstance(found, TensorFields):
            raise TypeError(f"saved_tensors_hooks: the unpack hook must return a tensor, not {type(found).__name__}")
        blob = found._blob
        if blob.meta.shape != self.meta.shape:
            raise RuntimeError(
                f"saved_tensors_hooks: the unpack hook returned a tensor of shape {list(blob.meta.shape)} for one of "
                f"shape {list(self.meta.shape)}, saved by {owner.title}"
            )
        tensor = new_tensor(blob, found._lease)
        fields: TensorFields = tensor
        # The tensor takes the saved tensor's place in the graph, with the history number of its own memory.
        autograd = kept[2]
        history = blob.storage.history
        if output is not None:
            autograd = AutogradMeta(True, owner, output, history)
        elif autograd is not None and autograd.node is not None:
            autograd = AutogradMeta(True, autograd.node, autograd.index, history)
        fields._autograd = autograd
        return tensor


class SavedTensor:
    """A tensor of any shape, kept for the backward pass: its memory and history, or the result of a pack hook.

    Raises:
        RuntimeError: if a pack hook changes the tensor in place.

    Example:
        >>> from vmflow.autograd.node import SavedTensor
        >>> kept = SavedTensor(flow.ones(2), with_history=False)
    """

    __slots__ = ("kept", "packed")

    def __init__(
        self, tensor: Tensor, with_history: bool, in_place: bool = False, packing: Packing | None = None
    ) -> None:
        self.kept: Saved = saved(tensor, with_history, in_place)
        self.packed: Packed | None = None
        if packing is not None:
            self.pack(tensor, packing, with_history)

    def pack(self, tensor: Tensor, packing: Packing, with_history: bool) -> None:
        """Keep the result of the user's `pack_hook` in place of the tensor."""
        self.packed = _packed(self.kept, tensor, packing, with_history)
        self.kept = NOTHING

    def unpack(self, owner: Node, output: int | None = None) -> Tensor:
        """See `unpacked`."""
        packed = self.packed
        return unpacked(self.kept, owner, output) if packed is None else packed.unpacked(owner, output)


def _packed(kept: Saved, tensor: Tensor, packing: Packing, with_history: bool) -> Packed:
    """Call the user's `pack_hook` with a leaf or constant itself, and with a new tensor of the memory of any other.

    The node's own output is passed without its history: a hook that keeps it would keep the node, which keeps the
    hook's result: neither would be freed.
    """
    fields: TensorFields = tensor
    autograd = fields._autograd
    if not with_history:
        tensor = new_tensor(fields._blob, fields._lease)
    elif autograd is not None and autograd.node is not None:
        tensor = new_alias(fields)
    return Packed(kept, tensor, packing)


class OpNode(Node):
    """The backward step of one op."""

    __slots__ = (
        "_first",
        "_others",
        "_outputs",
        "_second",
        "attributes",
        "code",
        "last",
        "metas",
        "op",
        "released",
        "scalars",
    )

    def __init__(
        self,
        op: OpExpr,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        results: tuple[Tensor, ...],
        in_place: bool,
    ) -> None:
        # Runs for every recorded op; hence it makes no call and no object that can be avoided.
        self.metas: tuple[TensorMeta, ...]
        if len(inputs) == 1:
            only: TensorFields = inputs[0]
            self.edges = (_edge(only),)
            self.metas = (only._blob.meta,)
        elif len(inputs) == 2:
            one: TensorFields = inputs[0]
            other: TensorFields = inputs[1]
            first, second = one._blob.meta, other._blob.meta
            recent = op.recent
            self.edges = (_edge(one), _edge(other))
            if recent is not None and recent.first is first and recent.second is second:
                self.metas = recent.metas
            else:
                self.metas = (first, second)
        else:
            self.edges = tuple([_edge(tensor) for tensor in inputs])
            self.metas = tuple([_blob_of(tensor).meta for tensor in inputs])
        self.title = op.name
        self.outputs_count = len(results)
        self.sequence = next(_numbers)
        self.outputs = None
        self.hooks = None
        self.op = op
        self.attributes = attributes
        self.scalars = scalars
        count = len(op.saves_inputs)
        self._first: Saved = saved(inputs[op.saves_inputs[0]], True) if count and self._looks_at(0) else NOTHING
        self._second: Saved = saved(inputs[op.saves_inputs[1]], True) if count > 1 and self._looks_at(1) else NOTHING
        self._others: tuple[SavedTensor | None, ...] = ()
        if count > 2:
            others = [(op.saves_inputs[index], self._looks_at(index)) for index in range(2, count)]
            self._others = tuple([SavedTensor(inputs[index], True) if wanted else None for index, wanted in others])
        self._outputs: tuple[SavedTensor, ...] = ()
        if op.saves_outputs:
            self._outputs = tuple([SavedTensor(results[output], False, in_place) for output in op.saves_outputs])
        self.released = False
        self.code, self.last = origin.capture()

    def _looks_at(self, place: int) -> bool:
        """Whether the input at this index of `OpExpr.saves_inputs` exists, and a wanted gradient may read it."""
        op = self.op
        if op.saves_inputs[place] >= len(self.edges):
            return False
        reader = op.readers[place] if op.readers else None
        return reader is None or self.edges[reader] is not None

    @property
    def needs(self) -> tuple[bool, ...]:
        """Which inputs want a gradient."""
        return tuple([edge is not None for edge in self.edges])

    def input(self, index: int) -> Tensor:
        """Input number `index` of the op, with its history.

        Raises:
            InternalError: if the op did not declare that a wanted gradient reads it, see `OpExpr.gradient`.
            RuntimeError: if it was changed in place since.
        """
        return unpacked(self._kept(index), self)

    def input_blob(self, index: int) -> Blob:
        """The values of input number `index` of the op, without history, for a backward pass without `create_graph`."""
        return saved_blob(self._kept(index), self)

    def _kept(self, index: int) -> Saved:
        saves = self.op.saves_inputs
        for place in range(len(saves)):
            if saves[place] == index:
                if place < 2:
                    kept = self._first if place == 0 else self._second
                    if kept[0] is not None:
                        return kept
                elif (other := self._others[place - 2]) is not None:
                    return other.kept
        raise InternalError(f"the gradient rule of {self.title} reads input {index}, which it did not declare")

    def output(self, index: int) -> Tensor:
        """Output number `index` of the op, with its history."""
        return self._outputs[self.op.saves_outputs.index(index)].unpack(self, index)

    def meta(self, index: int) -> TensorMeta:
        """The meta of input number `index` of the op."""
        return self.metas[index]

    def where(self) -> str:
        """The user's line that ran the op."""
        return origin.describe(self.code, self.last)

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> tuple[Tensor | None, ...]:
        if self.released:
            raise RuntimeError(
                f"the backward pass went through {self.title} (from {self.where()}) a second time, but its saved "
                "tensors were freed the first time; pass retain_graph=True to the first backward()"
            )
        rule = self.op.rule
        assert rule is not None
        try:
            results = rule(self, gradients[0]) if len(gradients) == 1 else rule(self, *gradients)
        except Exception as error:
            error.add_note(f"in the backward pass of {self.title}, run forward at {self.where()}")
            raise
        if len(results) != len(self.edges):
            raise InternalError(
                f"the gradient rule of {self.title} gave {len(results)} gradients for {len(self.edges)} inputs"
            )
        return results

    def may_share(self, gradient: Tensor, gradients: Sequence[Tensor | None]) -> bool:
        blob = _blob_of(gradient)
        if blob.strides is not None:
            return True
        shared = [_blob_of(tensor).storage for tensor in gradients if tensor is not None]
        kept = [
            self._first,
            self._second,
            *[other.kept for other in (*self._others, *self._outputs) if other is not None],
        ]
        shared += [tensor[0].storage for tensor in kept if tensor[0] is not None]
        return blob.storage in shared

    def release(self) -> None:
        if self.op.saves_inputs or self.op.saves_outputs:
            self.released = True
            self._first = self._second = NOTHING
            self._others = self._outputs = ()

    @staticmethod
    def check_target(name: str, target: Tensor) -> None:
        """Raise if autograd could not record that `target` is changed in place by the op of this name.

        Raises:
            RuntimeError: for a leaf that requires a gradient, a view made under `no_grad`, and views of either.
        """
        base = target._base
        if (target.is_leaf and target.requires_grad) or (base is not None and base.is_leaf and base.requires_grad):
            raise changed_leaf(name, target.shape)
        if (target if base is None else base)._blob.strides is not None:
            raise RuntimeError(
                f"{name}: autograd cannot record a change in place of a view that was made under no_grad(); make "
                "the view anew, change the whole tensor, or do it under vmflow.no_grad()"
            )


def _edge(fields: TensorFields) -> Edge:
    autograd = fields._autograd
    return None if autograd is None else autograd.edge()


def _blob_of(tensor: Tensor) -> Blob:
    fields: TensorFields = tensor
    return fields._blob


class PackingOpNode(OpNode):
    """An `OpNode` whose saved tensors went through the user's `saved_tensors_hooks`.

    Attributes:
        inputs_packed: the packed inputs, by the number of the input.
        shown: unpacked tensors, kept while the step is computed.
    """

    __slots__ = ("inputs_packed", "shown")

    def __init__(
        self,
        op: OpExpr,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        results: tuple[Tensor, ...],
        in_place: bool,
        packing: Packing,
    ) -> None:
        super().__init__(op, inputs, attributes, scalars, results, in_place)
        self.inputs_packed: dict[int, Packed] = {}
        self.shown: list[Tensor] = []
        for place, index in enumerate(op.saves_inputs):
            kept = self._at(place)
            blob = kept[0]
            # Not packed: inputs that are not saved, and one that the op overwrote, for which the pass raises.
            if blob is None or (in_place and blob.storage is _blob_of(results[0]).storage):
                continue
            self.inputs_packed[index] = _packed(kept, inputs[index], packing, True)
            if place == 0:
                self._first = NOTHING
            elif place == 1:
                self._second = NOTHING
            else:
                self._others = tuple(
                    [None if number == place - 2 else other for number, other in enumerate(self._others)]
                )
        for place, saved_output in enumerate(self._outputs):
            saved_output.pack(results[op.saves_outputs[place]], packing, False)

    def _at(self, place: int) -> Saved:
        """Return the saved input at this index of `OpExpr.saves_inputs`."""
        if place < 2:
            return self._first if place == 0 else self._second
        other = self._others[place - 2]
        return NOTHING if other is None else other.kept

    def input(self, index: int) -> Tensor:
        packed = self.inputs_packed.get(index)
        return super().input(index) if packed is None else packed.unpacked(self, None)

    def input_blob(self, index: int) -> Blob:
        packed = self.inputs_packed.get(index)
        if packed is None:
            return super().input_blob(index)
        tensor = packed.unpacked(self, None)
        self.shown.append(tensor)
        return _blob_of(tensor)

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> tuple[Tensor | None, ...]:
        try:
            return super().backward(gradients, create_graph)
        finally:
            self.shown = []

    def may_share(self, gradient: Tensor, gradients: Sequence[Tensor | None]) -> bool:
        return True

    def release(self) -> None:
        super().release()
        self.inputs_packed = {}
