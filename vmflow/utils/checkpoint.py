"""Checkpointing: forget what a function saved for the backward pass, and compute it again when that comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vmflow import random
from vmflow.autograd.engine import run_backward
from vmflow.autograd.node import AutogradMeta, Edge, Node, Place, SavedTensor, next_sequence
from vmflow.context import MODE
from vmflow.instructions.blob import TensorMeta
from vmflow.tensors import Tensor


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, of which only the arguments are kept for the backward pass.

    There the function is called again.  Gradients reach the arguments and everything else that it uses, such as a
    module's parameters; `autograd.grad` and ``create_graph=True`` work as without.

    Args:
        function: returns a tensor or a tuple; must do the same when it is called again.
        args: its arguments; only tensors that stand directly among them may change in place later, with an error.
        use_reentrant: accepted for PyTorch's sake; both of PyTorch's kinds are this one.
        preserve_rng_state: whether random numbers, such as dropout's, are the same again.

    Raises:
        RuntimeError: in the backward pass, if the results of the second call differ in number, shape or dtype.
    """
    if not callable(function):
        raise TypeError(f"checkpoint: expected a function, got {type(function).__name__}")
    mode = MODE.get()
    if not mode.grad:
        return function(*args, **kwargs)
    state = random.get_rng_state() if preserve_rng_state else None
    since = next_sequence()
    returned = function(*args, **kwargs)
    single = not isinstance(returned, tuple)
    results: tuple[Any, ...] = (returned,) if single else returned
    recorded = [it for it in results if isinstance(it, Tensor) and it._autograd is not None]
    recorded = [it for it in recorded if it._autograd is not None and _is_since(it._autograd.edge(), since)]
    boundary = _boundary([it._autograd.edge() for it in recorded if it._autograd is not None], since)
    if not boundary:
        return returned
    node = _CheckpointNode(function, args, kwargs, state, boundary, recorded)
    replaced = {id(it): _made_by(node, index, it) for index, it in enumerate(recorded)}
    outputs = tuple([replaced.get(id(it), it) for it in results])
    return outputs[0] if single else outputs


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Call functions one after the other, checkpointed in so many segments; the last one is not, as in PyTorch.

    Args:
        functions: a sequence of functions, such as `nn.Sequential`.
        segments: at least 1, at most as many as functions.
        input: of the first.

    Raises:
        ValueError: for a number of segments that does not fit.
    """
    chain = list(functions)
    if not 1 <= segments <= len(chain):
        raise ValueError(f"checkpoint_sequential: {segments} segments do not fit {len(chain)} functions")
    length = len(chain) // segments
    for start in range(0, length * (segments - 1), length):
        part = _chained(chain[start : start + length])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve_rng_state)
    return _chained(chain[length * (segments - 1) :])(input)


def _chained(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return run


def _is_since(edge: Edge, since: int) -> bool:
    return edge is not None and edge.node is not None and edge.node.sequence >= since


def _boundary(edges: Sequence[Edge], since: int) -> list[AutogradMeta]:
    """What the nodes made since lead to: older nodes and leaves, each once."""
    found: dict[Place, AutogradMeta] = {}
    seen: set[Node] = set()
    waiting = [edge.node for edge in edges if edge is not None]
    while waiting:
        node = waiting.pop()
        assert node is not None
        if node in seen:
            continue
        seen.add(node)
        for edge in node.edges:
            if edge is not None:
                if _is_since(edge, since):
                    waiting.append(edge.node)
                else:
                    found.setdefault(edge.place(), edge)
    return list(found.values())


def _made_by(node: Node, index: int, tensor: Tensor) -> Tensor:
    output = tensor.detach()
    output._autograd = AutogradMeta(True, node, index, output._blob.storage.history)
    return output


class _CheckpointNode(Node):
    """Calls the function again when the gradients of its results are there."""

    __slots__ = ("arguments", "autocast", "function", "keywords", "metas", "state")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: Tensor | None,
        boundary: list[AutogradMeta],
        results: list[Tensor],
    ) -> None:
        super().__init__("CheckpointBackward", tuple(boundary), len(results))
        self.function: Callable[..., Any] | None = function
        self.arguments = [_kept(it) for it in args]
        self.keywords = {name: _kept(it) for name, it in kwargs.items()}
        self.state = state
        self.autocast = MODE.get().autocast
        self.metas: list[TensorMeta] = [it._blob.meta for it in results]

    def where(self) -> str:
        return "checkpoint"

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        if self.function is None:
            raise RuntimeError(
                "the backward pass went through a checkpoint a second time, and what it saved was freed the first "
                "time; pass retain_graph=True to the first backward()"
            )
        since = next_sequence()
        results = self._called_again(self.function, since)
        if [it._blob.meta for it in results] != self.metas:
            shown = [
                ", ".join([f"{it.dtype.name} {list(it.shape)}" for it in metas])
                for metas in (self.metas, [it._blob.meta for it in results])
            ]
            raise RuntimeError(
                f"checkpoint: the function returned {shown[0]} that require a gradient, and called again {shown[1]}"
            )
        roots: list[tuple[Edge, Tensor]] = []
        for result, gradient in zip(results, gradients, strict=True):
            if gradient is not None and result._autograd is not None:
                roots.append((result._autograd.edge(), gradient))
        wanted = [edge.place() for edge in self.edges if edge is not None]
        return run_backward(roots, retain_graph=create_graph, create_graph=create_graph, wanted=wanted, since=since)

    def _called_again(self, function: Callable[..., Any], since: int) -> list[Tensor]:
        args = [self._given(it) for it in self.arguments]
        kwargs = {name: self._given(it) for name, it in self.keywords.items()}
        before = MODE.get()
        MODE.set(before.replace(grad=True, autocast=self.autocast))
        try:
            if self.state is None:
                returned = function(*args, **kwargs)
            else:
                with random.fork_rng():
                    random.set_rng_state(self.state)
                    returned = function(*args, **kwargs)
        finally:
            MODE.set(MODE.get().replace(grad=before.grad, autocast=before.autocast))
        results = returned if isinstance(returned, tuple) else (returned,)
        tensors = [it for it in results if isinstance(it, Tensor) and it._autograd is not None]
        return [it for it in tensors if it._autograd is not None and _is_since(it._autograd.edge(), since)]

    def _given(self, kept: Any) -> Any:
        return kept.unpack(self) if isinstance(kept, SavedTensor) else kept

    def release(self) -> None:
        self.function = None
        self.arguments = []
        self.keywords = {}


def _kept(value: Any) -> Any:
    return SavedTensor(value, True) if isinstance(value, Tensor) else value
