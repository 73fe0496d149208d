"""Checkpointing: free the tensors that a function saved for the backward pass, and then compute them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vmflow import random
from vmflow.autograd.engine import run_backward
from vmflow.autograd.history import edge_of
from vmflow.autograd.node import PACKING, AutogradMeta, Edge, Node, Place, SavedTensor, next_sequence, packing_here
from vmflow.context import MODE, Mode
from vmflow.instructions.blob import TensorMeta
from vmflow.tensors import Tensor


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function(*args, **kwargs)``, and keep only the arguments for the backward pass, if there can be one.

    The backward pass calls the function again.  Gradients reach the arguments and everything else that the function
    uses, such as a module's parameters; `autograd.grad` and ``create_graph=True`` work as without a checkpoint.

    Args:
        function: returns a tensor or a tuple, also a named one (there is no checkpoint for anything else); must do the
            same when it is called again.
        args, kwargs: its arguments; a later change in place raises an error only for tensors directly among them.
        use_reentrant: accepted for PyTorch's sake, and without effect.
        preserve_rng_state: whether random numbers of the default generator, such as dropout's, are the same in the
            second call.

    Raises:
        TypeError: if `function` cannot be called.
        RuntimeError: in the backward pass, if the results of the second call differ in number, shape, dtype or device.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> flow.utils.checkpoint.checkpoint(lambda x: x * x, x).backward()
        >>> x.grad
        tensor(6.)
    """
    if not callable(function):
        raise TypeError(f"checkpoint: expected a function, got {type(function).__name__}")
    mode = MODE.get()
    if not mode.grad:
        return function(*args, **kwargs)
    state = random.get_rng_state() if preserve_rng_state else None
    since = next_sequence()
    returned = _called(function, args, kwargs)
    single = not isinstance(returned, tuple)
    results: tuple[Any, ...] = (returned,) if single else returned
    tensors = _tensors(results)
    places = {id(tensor): at for at, tensor in reversed(list(enumerate(tensors))) if _made_since(tensor, since)}
    positions = sorted(places.values())
    recorded = [tensor for at in positions if (tensor := tensors[at]) is not None]
    boundary = _boundary(recorded, since)
    if not boundary:
        return returned
    node = _CheckpointNode(function, args, kwargs, state, mode, since, boundary, tensors, positions)
    replaced = {id(result): _made_by(node, index, result) for index, result in enumerate(recorded)}
    for result in recorded:
        if result._base is not None:
            replaced[id(result)]._base = replaced.get(id(result._base), result._base)
    outputs = tuple([replaced.get(id(result), result) for result in results])
    if single:
        return outputs[0]
    return type(returned)._make(outputs) if hasattr(returned, "_fields") else outputs


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Call functions one after the other, in segments, which are checkpointed except for the last one, as in PyTorch.

    Args:
        functions: a sequence of functions, such as `nn.Sequential`.
        segments: at least 1, at most as many as functions.
        input: the argument of the first function.

    Raises:
        ValueError: for a number of segments that does not fit.

    Example:
        >>> x = flow.tensor(1.0, requires_grad=True)
        >>> double = lambda x: x * 2
        >>> flow.utils.checkpoint.checkpoint_sequential([double, double], 2, x).backward()
        >>> x.grad
        tensor(4.)
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


def _called(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function without the hooks of an outer `saved_tensors_hooks`, as its saved tensors are short-lived."""
    before = PACKING.get()
    PACKING.set(None)
    try:
        return function(*args, **kwargs)
    finally:
        PACKING.set(before)


def _tensors(results: Sequence[Any]) -> list[Tensor | None]:
    """Return the tensors among the results, followed by the base of each tensor, None where it has none."""
    tensors = [result for result in results if isinstance(result, Tensor)]
    return [*tensors, *[tensor._base for tensor in tensors]]


def _made_since(tensor: Tensor | None, since: int) -> bool:
    return tensor is not None and _is_since(edge_of(tensor), since)


def _is_since(edge: Edge, since: int) -> bool:
    return edge is not None and edge.node is not None and edge.node.sequence >= since


def _boundary(results: Sequence[Tensor], since: int) -> list[AutogradMeta]:
    """The older nodes and the leaves to which results' nodes of sequence numbers from `since` on lead, each once."""
    found: dict[Place, AutogradMeta] = {}
    seen: set[Node] = set()
    edges = [edge_of(result) for result in results]
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
    """Calls the function again when the gradients of its results are there.

    The second call may use nodes that the first one made and that something else has kept: a cast in autocast's cache,
    the renewed history of a view, a value that a module remembers.  They belong to the function, so the inner backward
    pass goes through all nodes since the *first* call began.  Nodes older than the second call keep their saved
    tensors, because the outer pass may need them.  If the second call uses something that the first did not, the node
    gets further edges.

    Attributes:
        mode: the context's mode around the first call.
        since: the lowest sequence number of a node that belongs to the function.
        first_boundary: the older nodes and leaves to which the first call's nodes led.
        positions: which of the tensors that the function returns, and their bases, are the node's outputs.
        metas: of all returned tensors, and of the node's outputs among their bases; None for other bases.
    """

    __slots__ = ("arguments", "first_boundary", "function", "keywords", "metas", "mode", "positions", "since", "state")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: Tensor | None,
        mode: Mode,
        since: int,
        boundary: list[AutogradMeta],
        tensors: list[Tensor | None],
        positions: list[int],
    ) -> None:
        super().__init__("CheckpointBackward", tuple(boundary), len(positions))
        self.function: Callable[..., Any] | None = function
        self.arguments = [_kept(arg) for arg in args]
        self.keywords = {name: _kept(value) for name, value in kwargs.items()}
        self.state = state
        self.mode = mode
        self.since = since
        self.first_boundary = boundary
        self.positions = positions
        self.metas = self._metas(tensors)

    def where(self) -> str:
        return "checkpoint"

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        if self.function is None:
            raise RuntimeError(
                "the backward pass went through a checkpoint a second time, but its saved tensors were freed the first "
                "time; pass retain_graph=True to the first backward()"
            )
        second_call = next_sequence()
        returned = _tensors(self._called_again(self.function))
        self._check(returned)
        results = [returned[at] for at in self.positions]
        pairs = [(result, gradient) for result, gradient in zip(results, gradients, strict=True) if result is not None]
        pairs = [(result, gradient) for result, gradient in pairs if _made_since(result, self.since)]
        made = [result for result, _ in pairs]
        boundary = {edge.place(): edge for edge in (*self.first_boundary, *_boundary(made, self.since))}
        self.edges = tuple(boundary.values())
        return run_backward(
            [(edge_of(result), gradient) for result, gradient in pairs if gradient is not None],
            retain_graph=create_graph,
            create_graph=create_graph,
            wanted=list(boundary),
            since=self.since,
            keep_before=second_call,
        )

    def _called_again(self, function: Callable[..., Any]) -> tuple[Any, ...]:
        """Call the function again, and return its results as a tuple.

        The arguments, autocast, default device and dtype are those of the first call, and the random state if it was
        kept.
        """
        args = [self._given(kept) for kept in self.arguments]
        kwargs = {name: self._given(value) for name, value in self.keywords.items()}
        before, first = MODE.get(), self.mode
        MODE.set(before.replace(grad=True, autocast=first.autocast, device=first.device, dtype=first.dtype))
        try:
            if self.state is None:
                returned = _called(function, args, kwargs)
            else:
                with random.fork_rng():
                    random.set_rng_state(self.state)
                    returned = _called(function, args, kwargs)
        finally:
            MODE.set(
                MODE.get().replace(grad=before.grad, autocast=before.autocast, device=before.device, dtype=before.dtype)
            )
        return returned if isinstance(returned, tuple) else (returned,)

    def _metas(self, tensors: list[Tensor | None]) -> list[TensorMeta | None]:
        returned = len(tensors) // 2
        return [
            tensor._blob.meta if tensor is not None and (at < returned or at in self.positions) else None
            for at, tensor in enumerate(tensors)
        ]

    def _check(self, tensors: list[Tensor | None]) -> None:
        """Raise RuntimeError unless both calls have returned tensors of the same shapes, dtypes and devices."""
        metas = self._metas(tensors)
        if metas != self.metas:
            first, again = [
                ", ".join(
                    [f"{meta.dtype.name} {list(meta.shape)} on {meta.device}" for meta in shown if meta is not None]
                )
                for shown in (self.metas, metas)
            ]
            raise RuntimeError(f"checkpoint: the function returned {first}, and called again {again}")

    def _given(self, kept: Any) -> Any:
        return kept.unpack(self) if isinstance(kept, SavedTensor) else kept

    def release(self) -> None:
        self.function = None
        self.arguments = []
        self.keywords = {}


def _kept(value: Any) -> Any:
    return SavedTensor(value, True, packing=packing_here()) if isinstance(value, Tensor) else value
