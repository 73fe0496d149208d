"""The backward pass: walk the graph from the outputs and run each node when all its consumers have run.

The pass runs on the calling thread; its ops are issued, and may be computed after it has returned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from vmflow import interpreter as _interpreter
from vmflow.context import MODE
from vmflow.errors import InternalError
from vmflow.ops.copying import conform
from vmflow.ops.indexing.gathering import DisjointSlices
from vmflow.tensor_fields import TensorFields

from .node import AutogradMeta, Edge, Node, OpNode, Place, check_replacement

if TYPE_CHECKING:
    from vmflow.interpreters import Recorder
    from vmflow.ops.table import ViewExpr
    from vmflow.tensors import Tensor


# Callbacks for the end of the backward pass that runs here, by their owners; None outside a backward pass.
_AT_END: Final[ContextVar[dict[Any, Callable[[], None]] | None]] = ContextVar("vmflow.at_end", default=None)


def at_end() -> dict[Any, Callable[[], None]] | None:
    """The callbacks that the running backward pass calls if it ends without error, by owner; callers may add to them.

    Returns:
        None outside a backward pass.

    Example:
        >>> print(flow.autograd.graph.at_end())
        None
    """
    return _AT_END.get()


def run_backward(
    roots: Sequence[tuple[Edge, Tensor]],
    *,
    retain_graph: bool,
    create_graph: bool,
    wanted: Sequence[Place] | None = None,
    accumulate: bool = False,
    since: int = 0,
    keep_before: int = 0,
) -> list[Tensor | None]:
    """Run a backward pass from the roots.

    Args:
        roots: where to begin, each with its gradient.
        retain_graph: whether nodes keep their saved tensors.
        create_graph: whether the pass itself is recorded.
        wanted: if given, return the gradients of these places, and leave leaves alone; else accumulate into the leaves.
        accumulate: accumulate into the wanted leaves, instead of returning their gradients.
        since: with `wanted`, run no node of a lower sequence number than this.  Hooks of leaves and of such nodes'
            outputs are left to an outer pass.
        keep_before: nodes of a lower sequence number always keep their saved tensors: other passes may need them.

    Returns:
        The gradient of each of `wanted`, None where none arrived or it was accumulated; empty without `wanted`.

    Raises:
        RuntimeError: if a node's saved tensors were freed, or changed in place; if a gradient from a hook or `Function`
            does not fit.
        TypeError: if a hook or `Function` returns something that is neither None nor a tensor.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> edge = flow.autograd.edge_of(x * x)
        >>> flow.autograd.run_backward([(edge, flow.tensor(1.0))], retain_graph=False, create_graph=False)
        []
        >>> x.grad
        tensor(6.)
    """
    before = MODE.get()
    around = _AT_END.get()
    last: dict[Any, Callable[[], None]] = {}
    _AT_END.set(last)
    try:
        # Without autocast: the forward pass has chosen the dtypes already.
        MODE.set(before.replace(grad=create_graph, autocast=None))
        found = _Pass(retain_graph, create_graph, wanted, accumulate, since, keep_before).run(roots)
        for call in list(last.values()):
            call()
        return found
    finally:
        _AT_END.set(around)
        # Only grad mode and autocast are restored: a hook may have changed other settings on purpose.
        MODE.set(MODE.get().replace(grad=before.grad, autocast=before.autocast))


class _Pass:
    """One backward pass.

    Attributes:
        latest: the node to run next, if known; it is not in `heap` or `gradients`, and no node in `heap` is later.
        arrived: the gradients of the outputs of `latest` so far, one item per output.
        spare: None, or a list of one None, for the next node of one output.
        gradients: for each node in `heap`, the gradients of its outputs so far.
        heap: nodes to run, latest first: a producer is always older than its consumers, so that taking the latest one
            next is a topological order.
        leaves: the gradient of each leaf so far, and whether anything else may hold that gradient's memory.
        useful: the nodes to run for `wanted`; None for all nodes.
        parts: gradients of slices, for places where no other gradient has arrived.
        own: outputs of nodes; only this pass holds their gradients: sums, and slices that were put together.
        captured: the gradients to return, by place.
        accumulate, since, keep_before: see `run_backward`.
        recorder: the interpreter that records ops, which is told the node that runs; else None.
    """

    def __init__(
        self,
        retain_graph: bool,
        create_graph: bool,
        wanted: Sequence[Place] | None,
        accumulate: bool,
        since: int,
        keep_before: int,
    ) -> None:
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.wanted = wanted
        self.accumulate = accumulate
        self.since = since
        self.keep_before = keep_before
        self.captured: dict[Place, Tensor] = {}
        self.latest: Node | None = None
        self.arrived: list[Tensor | None] = []
        self.spare: list[Tensor | None] | None = None
        self.gradients: dict[Node, list[Tensor | None]] = {}
        self.heap: list[tuple[int, int, Node]] = []
        self.parts: dict[Place, DisjointSlices] = {}
        self.own: set[tuple[Node, int]] = set()
        self.leaves: dict[AutogradMeta, tuple[Tensor, bool]] = {}
        self.useful: set[Node] | None = None
        self.recorder: Recorder | None = MODE.get().interpreter

    def run(self, roots: Sequence[tuple[Edge, Tensor]]) -> list[Tensor | None]:
        if self.wanted is not None:
            self.useful = _leading_to(self.wanted, [edge for edge, _ in roots], self.since)
        try:
            self._walk(roots)
        finally:
            if self.recorder is not None:
                self.recorder.node = None
        if self.wanted is None:
            return []
        return [self.captured.get(key) for key in self.wanted]

    def _walk(self, roots: Sequence[tuple[Edge, Tensor]]) -> None:
        for edge, gradient in roots:
            if edge is not None:
                if edge.node is not None:
                    self._arrive_at(edge.node, edge, gradient)
                else:
                    self._arrive_at_leaf(edge, gradient, shared=True)
        heap = self.heap
        while True:
            node = self.latest
            if node is not None:
                self.latest = None
                self._step(node, self.arrived)
            elif heap:
                node = heapq.heappop(heap)[2]
                self._step(node, self.gradients.pop(node))
            else:
                break
        self._put_together()  # hooks are to see each leaf's gradient once and whole
        for leaf, (gradient, shared) in self.leaves.items():
            self._finish(leaf, gradient, shared)

    def _step(self, node: Node, arrived: list[Tensor | None]) -> None:
        if self.recorder is not None:
            self.recorder.node = node
        if self.own:
            self.own -= {(node, index) for index in range(node.outputs_count)}
        if self.parts:
            for index in range(node.outputs_count):
                if (node, index) in self.parts:
                    arrived[index] = self.parts.pop((node, index)).whole()
            if node.outputs is not None or node.hooks is not None or not isinstance(node, OpNode):
                # Before hooks and `Function`s run: they may change in place a gradient that is also one of the slices.
                self._put_together()
        if node.outputs is not None and node.sequence >= self.since:
            self._show(node.outputs, arrived)
        if self.wanted is not None:
            for index, gradient in enumerate(arrived):
                if gradient is not None and (node, index) in self.wanted:
                    self.captured[node, index] = gradient
            if self.useful is not None and node not in self.useful:
                return
        hooks = node.hooks
        if hooks is not None:
            arrived = hooks.prepared(arrived)
        elif isinstance(node, OpNode) and node.op.is_slice and self._takes_part(node, arrived[0]):
            return
        if not isinstance(node, OpNode):
            given = node.backward(arrived, self.create_graph)
        elif hooks is not None and all([gradient is None for gradient in arrived]):
            given = [None] * len(node.edges)  # the hooks have taken the gradients away
        else:
            given = _conforming(node, node.backward(arrived, self.create_graph))
        edges = node.edges  # read after `backward`, since that of a checkpoint changes them
        results = given if isinstance(given, tuple) else tuple(given)
        if hooks is not None:
            results = hooks.finished(results, arrived)
        if len(results) != len(edges):
            raise InternalError(f"{node.title} gave {len(results)} gradients for {len(edges)} inputs")
        for place in range(len(edges)):
            edge, result = edges[place], results[place]
            if edge is not None and result is not None:
                if edge.node is not None:
                    self._arrive_at(edge.node, edge, result)
                else:
                    shared = (
                        hooks is not None
                        or node.may_share(result, arrived)
                        or sum([other is result for other in results]) > 1
                    )
                    self._arrive_at_leaf(edge, result, shared)
        if not self.retain_graph and node.sequence >= self.keep_before:
            node.release()
        if isinstance(node, OpNode) and node.outputs_count == 1:
            arrived[0] = None
            self.spare = arrived

    def _takes_part(self, node: OpNode, gradient: Tensor | None) -> bool:
        """Try to add a slice's gradient to that of the sliced tensor without padding; return whether `node` is done.

        Gradients of slices that do not overlap are collected, for one op to put them together.
        """
        edge = node.edges[0]
        if edge is None or gradient is None:
            return False
        if not self._wants(edge):
            return True
        place = edge.place()
        if place in self.parts or self._whole(edge) is None:
            parts = self.parts.get(place)
            if parts is None:
                parts = DisjointSlices(node.meta(0), cast("int", node.attributes[0]))
            if parts.add(gradient, node.attributes):
                self.parts[place] = parts
                if edge.node is not None and self._waiting(edge.node) is None:
                    self._enter(edge.node, [None] * edge.node.outputs_count)
                return True
        total = self._whole(edge)
        if total is not None and total._blob.meta.spread is not None:
            return False  # a slice of a global tensor may be a copy
        if total is None or not self._owns(edge) or self.create_graph or self.recorder is not None:
            return False
        _interpreter.dispatch_view(cast("ViewExpr", node.op), total, node.attributes).add_(gradient)
        return True

    def _whole(self, edge: AutogradMeta) -> Tensor | None:
        """The gradient that has arrived at an edge so far, as one tensor; None if none has."""
        if self.parts:
            place = edge.place()
            parts = self.parts.pop(place, None)
            if parts is not None:
                self._put(place, parts.whole())
        node = edge.node
        if node is None:
            so_far = self.leaves.get(edge)
            return None if so_far is None else so_far[0]
        waiting = self._waiting(node)
        return None if waiting is None else waiting[edge.index]

    def _put_together(self) -> None:
        """Put the gradients of slices together, at every place."""
        for place, parts in self.parts.items():
            self._put(place, parts.whole())
        self.parts.clear()

    def _put(self, place: Place, whole: Tensor) -> None:
        """Set the gradient that has arrived at `place` to `whole`, a tensor that nothing else holds."""
        if isinstance(place, AutogradMeta):
            self.leaves[place] = (whole, False)
        else:
            node, index = place
            waiting = self._waiting(node)
            assert waiting is not None
            waiting[index] = whole
            self.own.add((node, index))

    def _owns(self, edge: AutogradMeta) -> bool:
        """Whether this pass alone holds the gradient that has arrived at an edge, and may change it in place."""
        if edge.node is None:
            return not self.leaves[edge][1]
        return (edge.node, edge.index) in self.own

    def _show(self, outputs: dict[int, AutogradMeta], arrived: list[Tensor | None]) -> None:
        """Let hooks see, and perhaps replace, a node's outputs' gradients; add those of `retain_grad` to `grad`."""
        for index, autograd in outputs.items():
            gradient = arrived[index]
            if gradient is not None:
                arrived[index] = gradient = _with_hooks(autograd, gradient)
                if autograd.retains:
                    self._accumulate(autograd, gradient, shared=True)

    def _arrive_at_leaf(self, leaf: AutogradMeta, gradient: Tensor, shared: bool) -> None:
        so_far = self._whole(leaf)
        self.leaves[leaf] = (gradient, shared) if so_far is None else (so_far + gradient, False)

    def _waiting(self, node: Node) -> list[Tensor | None] | None:
        """The gradients of a node's outputs so far; None unless the node waits to run."""
        return self.arrived if node is self.latest else self.gradients.get(node)

    def _arrive_at(self, node: Node, edge: AutogradMeta, gradient: Tensor) -> None:
        if not self._wants(edge):
            return
        index = edge.index
        waiting = self._waiting(node)
        if waiting is None:
            spare = self.spare
            if spare is not None and node.outputs_count == 1:
                waiting, self.spare = spare, None
            else:
                waiting = [None] * node.outputs_count
            self._enter(node, waiting)
        earlier = self._whole(edge) if self.parts else waiting[index]
        if earlier is None:
            waiting[index] = gradient
        else:
            waiting[index] = earlier + gradient
            self.own.add((node, index))

    def _wants(self, edge: AutogradMeta) -> bool:
        """Whether a gradient that arrives at this edge is used."""
        node, wanted = edge.node, self.wanted
        if node is None:
            return wanted is None or edge in wanted
        return self.useful is None or node in self.useful or (wanted is not None and (node, edge.index) in wanted)

    def _enter(self, node: Node, waiting: list[Tensor | None]) -> None:
        """Put a node among those to run, with the list of its outputs' gradients."""
        latest = self.latest
        if latest is None:
            if not self.heap or node.sequence > -self.heap[0][0]:
                self.latest, self.arrived = node, waiting
                return
        elif node.sequence > latest.sequence:
            self.latest, self.arrived, node, waiting = node, waiting, latest, self.arrived
        self.gradients[node] = waiting
        # Of two nodes of one number, which renewed views may have, none leads to the other: their ids decide.
        heapq.heappush(self.heap, (-node.sequence, id(node), node))

    def _finish(self, leaf: AutogradMeta, gradient: Tensor, shared: bool) -> None:
        if self.wanted is not None and leaf not in self.wanted:
            return
        if leaf.hooks and not self.since:
            gradient, shared = _with_hooks(leaf, gradient), True
        if self.wanted is not None and not self.accumulate:
            self.captured[leaf] = gradient
            return
        if not leaf.requires_grad:
            # requires_grad was turned off after the op was recorded.
            return
        self._accumulate(leaf, gradient, shared)
        for hook in list((leaf.after or {}).values()):
            hook()

    def _accumulate(self, autograd: AutogradMeta, gradient: Tensor, shared: bool) -> None:
        """Add a gradient to the `grad` of a leaf, or of an output that retains it.

        The first gradient is copied if `shared`: something else may hold its memory, and `grad` may change in place.
        """
        if self.recorder is not None:
            self.recorder.accumulates(autograd)
        if autograd.grad is None:
            autograd.grad = gradient.clone() if shared else gradient
        elif self.create_graph:
            autograd.grad = autograd.grad + gradient
        else:
            autograd.grad.add_(gradient)


def _conforming(node: OpNode, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """Sum and cast an op's gradients to the shapes and dtypes of its inputs."""
    for index, gradient in enumerate(gradients):
        if gradient is not None:
            fields: TensorFields = gradient
            if fields._blob.meta is not node.metas[index]:
                return [
                    gradient if gradient is None or edge is None else conform(gradient, meta)
                    for gradient, edge, meta in zip(gradients, node.edges, node.metas, strict=True)
                ]
    return gradients


def _with_hooks(autograd: AutogradMeta, gradient: Tensor) -> Tensor:
    for hook in list((autograd.hooks or {}).values()):
        changed = hook(gradient)
        if changed is not None:
            check_replacement("register_hook", changed, gradient)
            gradient = changed
    return gradient


def _leading_to(wanted: Iterable[Place], roots: Iterable[Edge], since: int) -> set[Node]:
    """The nodes numbered `since` or higher that must run for gradients to get from the roots to `wanted`."""
    targets: set[Node | AutogradMeta] = {place if isinstance(place, AutogradMeta) else place[0] for place in wanted}
    seen: set[Node] = set()
    stack = [edge.node for edge in roots if edge is not None and edge.node is not None]
    while stack:
        node = stack.pop()
        if node not in seen and node.sequence >= since:
            seen.add(node)
            stack += [edge.node for edge in node.edges if edge is not None and edge.node is not None]
    useful: set[Node] = set()
    for node in sorted(seen, key=lambda node: node.sequence):
        for edge in node.edges:
            if edge is not None and (edge in targets or edge.node in targets or edge.node in useful):
                useful.add(node)
                break
    return useful
