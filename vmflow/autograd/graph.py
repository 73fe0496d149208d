"""``autograd.graph``: places in autograd's graph, hooks for saved tensors, and hooks for several gradients together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, NamedTuple

from vmflow.handles import Handle
from vmflow.operands import listed_tensors as _listed_tensors
from vmflow.tensors import Tensor

from .engine import at_end
from .history import edge_of
from .node import PACKING, PACKING_BLOCKS, AutogradMeta, Node as Node, Packing

# The message of `disable_saved_tensors_hooks` if this thread or task is within one of its blocks, else None.
_FORBIDDEN: Final[ContextVar[str | None]] = ContextVar("vmflow.packing_forbidden", default=None)


class GradientEdge(NamedTuple):
    """A place in the graph, which `autograd.grad` takes instead of a tensor; raises no errors.

    `autograd.backward` takes a place, too, except that of an op's result among its `inputs`.

    Attributes:
        node: the node of the op that made the tensor; for a leaf, the place where its gradient is accumulated.
        output_nr: the number of the node's output.
        ownership_token: ignored.

    Example:
        >>> x = flow.ones(2, requires_grad=True)
        >>> flow.autograd.graph.get_gradient_edge(x.sort()[0]).output_nr
        0
    """

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of a tensor of any shape in the graph now: the gradient there is the tensor's.

    The edge keeps the tensor's memory only if the graph has saved it.

    Raises:
        TypeError: if it is no tensor.
        RuntimeError: if it requires no gradient.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> edge = flow.autograd.graph.get_gradient_edge(x)
        >>> flow.autograd.grad(x * x, edge)
        (tensor(6.),)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"get_gradient_edge: expected a tensor, got {type(tensor).__name__}")
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("get_gradient_edge: the tensor does not require a gradient, so it has no place in the graph")
    return GradientEdge(edge.node or edge, edge.index)


def edge_at(given: GradientEdge) -> AutogradMeta:
    """The engine's edge for a `GradientEdge`: a leaf's own, else a new one; raises no errors.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> flow.autograd.graph.edge_at(flow.autograd.graph.get_gradient_edge(x)).requires_grad
        True
    """
    node = given.node
    return node if isinstance(node, AutogradMeta) else AutogradMeta(True, node, given.output_nr)


class saved_tensors_hooks:
    """Within the block, tensors saved for the backward pass go through `pack_hook`, and its results are kept instead.

    This goes for `Function.save_for_backward` and the arguments of `utils.checkpoint.checkpoint` as well.  In the
    backward pass `unpack_hook` makes the tensor again.  If blocks are nested, the inner one counts.

    Args:
        pack_hook: given a tensor, which it must not change in place, returns anything.  It runs under `no_grad`.  If
            it returns the tensor itself, a later change of the tensor in place is an error, as without hooks.
        unpack_hook: given the result of `pack_hook`, returns a tensor of the packed tensor's shape and values.

    Raises:
        TypeError: if a hook cannot be called.
        RuntimeError: on entering the block within `disable_saved_tensors_hooks`.

    Example:
        >>> def pack(tensor):
        ...     return tensor.half()
        >>> def unpack(kept):
        ...     return kept.float()
        >>> x = vmflow.ones(3, requires_grad=True)
        >>> with vmflow.autograd.graph.saved_tensors_hooks(pack, unpack):
        ...     y = (x * x).sum()
        >>> y.backward()
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise TypeError(f"saved_tensors_hooks: {name} must be a function, got {type(hook).__name__}")
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook
        self._before: list[Packing | None] = []

    def __enter__(self) -> None:
        forbidden = _FORBIDDEN.get()
        if forbidden is not None:
            raise RuntimeError(forbidden)
        self._before.append(PACKING.get())
        PACKING.set((self.pack_hook, self.unpack_hook))
        PACKING_BLOCKS.append(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        PACKING_BLOCKS.pop()
        PACKING.set(self._before.pop())


class save_on_cpu(saved_tensors_hooks):
    """Within the block, tensors saved for the backward pass are kept on the CPU, and copied back when needed.

    Args:
        pin_memory: keep the copies in pinned memory, to copy back faster; needs a CUDA device.
        device_type: PyTorch's; ignored.

    Raises:
        RuntimeError: on entering the block within `disable_saved_tensors_hooks`.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> with flow.autograd.graph.save_on_cpu():
        ...     y = x * x
        >>> y.backward()
        >>> x.grad
        tensor(6.)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Tensor | tuple[Any, Tensor]:
            copied = tensor.cpu()
            if copied is tensor:
                # Not a copy: the tensor itself is returned, so that a later change in place is noticed.
                return tensor
            return tensor.device, copied.pin_memory() if pin_memory else copied

        def unpack(kept: Tensor | tuple[Any, Tensor]) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            device, tensor = kept
            return tensor.to(device)

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, entering `saved_tensors_hooks` or `save_on_cpu` raises RuntimeError with `error_message`.

    Raises:
        RuntimeError: with this message, too, if a block of one of them is open already.

    Example:
        >>> with flow.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        ...     with flow.autograd.graph.save_on_cpu():
        ...         pass
        Traceback (most recent call last):
        RuntimeError: no hooks here
    """
    if PACKING.get() is not None:
        raise RuntimeError(error_message)
    before = _FORBIDDEN.get()
    _FORBIDDEN.set(error_message)
    try:
        yield
    finally:
        _FORBIDDEN.set(before)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a change in place by other code, so that a backward pass that needs the old values raises.

    Args:
        tensor: one or several, of any shape.

    Raises:
        TypeError: if it is something else.

    Example:
        >>> x = flow.ones(2, requires_grad=True)
        >>> y = (x * x).sum()
        >>> flow.autograd.graph.increment_version(x)
        >>> y.backward()
        Traceback (most recent call last):
        RuntimeError: the gradient of mul needs a tensor of shape [2] that was changed in place ...
    """
    tensors = (tensor,) if isinstance(tensor, Tensor) else _listed_tensors("increment_version", tensor)
    for changed in tensors:
        changed._blob.storage.version += 1


class _Handles:
    """Removes several hooks."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self._handles = tuple(handles)

    def remove(self) -> None:
        """Remove the hooks; a second call does nothing."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all") -> _Handles:
    """Call `fn` once in each backward pass that computes gradients of any of these tensors.

    Args:
        tensors: which require gradients, of any shapes.
        fn: the hook; its result is ignored.
        mode: "all" to call ``fn(gradients)`` with a list as soon as all gradients are there, or at the end of a pass in
            which some do not arrive, with None for those; "any" to call ``fn(gradient)`` with the first gradient.

    Returns:
        A handle whose `remove()` takes the hook away.

    Raises:
        ValueError: for another mode.
        TypeError: if `tensors` is no sequence of tensors.
        RuntimeError: if one of the tensors requires no gradient.

    Example:
        >>> x, y = flow.tensor(2.0, requires_grad=True), flow.tensor(3.0, requires_grad=True)
        >>> handle = flow.autograd.graph.register_multi_grad_hook([x, y], print)
        >>> (x * y).backward()
        [tensor(3.), tensor(2.)]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: mode must be 'all' or 'any', got {mode!r}")
    given = list(_listed_tensors("register_multi_grad_hook", tensors))
    for position, tensor in enumerate(given):
        if not tensor.requires_grad:
            raise RuntimeError(f"register_multi_grad_hook: tensor {position} does not require a gradient")
    owner = object()

    def hook_of(position: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            passing = at_end()
            assert passing is not None
            waiting = passing.get(owner)
            if mode == "any":
                if waiting is None:
                    passing[owner] = _Waiting(fn, [])
                    fn(gradient)
                return
            if waiting is None:
                passing[owner] = waiting = _Waiting(fn, [None] * len(given))
            assert isinstance(waiting, _Waiting)
            waiting.take(position, gradient)

        return hook

    return _Handles([tensor.register_hook(hook_of(position)) for position, tensor in enumerate(given)])


class _Waiting:
    """The gradients that have arrived in one backward pass, until `fn` is called with them."""

    def __init__(self, fn: Callable[[Any], None], gradients: list[Tensor | None]) -> None:
        self._fn = fn
        self._gradients = gradients
        self._missing = len(gradients)

    def take(self, position: int, gradient: Tensor) -> None:
        if self._missing and self._gradients[position] is None:
            self._gradients[position] = gradient
            self._missing -= 1
            if not self._missing:
                self._fn(self._gradients)

    def __call__(self) -> None:
        """Call `fn` at the end of the pass, if gradients have not arrived, with None for those."""
        if self._missing:
            self._missing = 0
            self._fn(self._gradients)
