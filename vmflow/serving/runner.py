"""`Runner`: calls the model once for the arrays of several requests, and splits the results."""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

import vmflow as flow
from vmflow.context import MODE
from vmflow.graph_mode import args_tree
from vmflow.graph_mode.args_tree import Branch, Leaf, Tree
from vmflow.graph_mode.compiled import CompiledGraph
from vmflow.graph_mode.loading import LoadedGraph
from vmflow.instructions.blob import Array
from vmflow.instructions.scope import Scope
from vmflow.interpreter import settled_array
from vmflow.nn import Graph, Module
from vmflow.ops.creation.creation import from_array

from .batcher import Batch
from .pace import TRIED_BELOW, Pace
from .specs import Dim, Signature, Specs, TensorSpec
from .statistics import Statistics

# How often at most a batch is timed while warming up, since other work may disturb a trial; the seconds after which no
# more trials begin.
_TRIALS: Final = 5
_TRIALS_TAKE: Final = 2 * TRIED_BELOW

# Up to this many bytes numpy joins the arrays of one input; an op joins more.
_JOINED_HERE: Final = 1 << 18

_HOST: Final = flow.device("cpu")

# The arrays of a request, padded, and the size of each `Dim` before padding, by its name.
Payload: TypeAlias = tuple[tuple[Array, ...], dict[str, int]]
# For each output its shape, without the batch; a `Dim` stands for a dimension that is cut back to the request's size.
Cuts: TypeAlias = Sequence[Sequence[int | Dim]]


class _Served(Graph):
    """A graph that calls a model, or a function; ``compiled[when]`` counts the forms that it compiles."""

    def __init__(self, model: Any, compiled: dict[str, int]) -> None:
        super().__init__()
        self.model = model
        self.compiled = compiled
        self.when = "warming"

    def build(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def _keep(self, key: Any, form: CompiledGraph) -> None:
        super()._keep(key, form)
        self.compiled[self.when] += 1


class Runner:
    """A model, called with batches of a few sizes.

    Args:
        model, inputs, outputs, graph, batch_sizes: see `InferenceSession`.
        invariant: whether the bits of a sample's result must not depend on the other samples of the batch.
        statistics: where compilations and places are counted.

    Attributes:
        model: the model; of a folder, the graph in it.
        signature: the declaration of the model's inputs.
        batch_sizes: the sizes of batches, ascending.
    """

    def __init__(
        self,
        model: Any,
        inputs: Specs | None,
        outputs: Cuts | None,
        *,
        graph: bool,
        batch_sizes: Sequence[int],
        invariant: bool,
        statistics: Statistics,
    ) -> None:
        sizes = tuple(batch_sizes)
        if (
            not sizes
            or not all([type(size) is int and size > 0 for size in sizes])
            or list(sizes) != sorted(set(sizes))
        ):
            raise ValueError(f"batch_sizes must be different positive integers, ascending, not {sizes}")
        if isinstance(model, (str, os.PathLike)):
            model = flow.load_graph(model)
        if isinstance(model, LoadedGraph):
            sizes = _saved_batch_sizes(model)
            inputs = inputs if inputs is not None else _saved_inputs(model)
        elif not callable(model):
            raise TypeError(f"expected a module, a function, a graph or a folder, got {type(model).__name__}")
        if inputs is None:
            raise TypeError("inputs must be given as a TensorSpec; only a saved graph declares its own")
        if isinstance(model, Module) and any([module.training for module in model.modules()]):
            raise ValueError("the model is in training mode, in which layers such as dropout differ; call model.eval()")
        self.model = model
        self.signature = Signature(inputs)
        self.batch_sizes = sizes
        self._invariant = invariant
        self._statistics = statistics
        self._cuts = None if outputs is None else [tuple(output) for output in outputs]
        self._device = _device_of(model)
        self._called: Any = model
        self._served: _Served | None = None
        # A `Pace` for each size of a batch and key of its requests.
        self._paces: dict[tuple[int, Hashable], Pace] = {}
        if graph and not isinstance(model, (LoadedGraph, Graph)):
            forms = len(sizes) * len(list(self._paddings()))
            self._served = self._called = _Served(model, statistics.compiled)
            self._served.with_dynamic_input_shape(size=forms)

    def prepared(self, arrays: tuple[Array, ...], sizes: dict[str, int]) -> tuple[Payload, Hashable]:
        """The payload of one request, with its arrays padded, and the key that all requests of a batch share."""
        if not self.signature.dims:
            return (arrays, sizes), ()
        to = self.signature.padded_sizes(sizes)
        padded = [spec.padded(array, to) for spec, array in zip(self.signature.specs, arrays, strict=True)]
        return (tuple(padded), sizes), _key(to)

    async def compute(self, payloads: Sequence[Payload], key: Hashable, priority: int, batch: Batch) -> list[Any]:
        """The results of requests of one key, in order.

        Args:
            payloads, key: of `prepared`.
            priority: of the instructions.
            batch: gets its `abandon`, `size` and `scope`; also its `pace`, if the loop's thread was to compute all
                results, and did.
        """
        size = self._size_of(len(payloads))
        self._statistics.places += size
        pace = self._paces[size, key]
        here = pace.next_is_here()
        batch.size = size
        around = MODE.get()
        scope = Scope(around.scope, "batch", priority, here=here)
        batch.abandon, batch.scope = scope.cancel, scope
        # `flow.scope` and `flow.no_grad` in one step, for speed.
        MODE.set(around.inferring(scope))
        try:
            tree, leaves = args_tree.flatten(self._call(self._inputs(payloads, size)))
            arrays = [settled_array(leaf) for leaf in leaves]
            if any([array is None for array in arrays]):
                # Issue all copies before awaiting any, so that nothing changes the later results in between.
                leaves = [leaf.to(_HOST) for leaf in leaves]
                for leaf in leaves:
                    await leaf
                arrays = [leaf.numpy() for leaf in leaves]
            elif here:
                batch.pace = pace
        except BaseException as error:
            if not isinstance(error, Exception):
                scope.cancel()
            raise
        finally:
            MODE.set(around)
        return self._parted(tree, arrays, payloads)

    def computes_here(self, count: int, key: Hashable) -> bool:
        """Whether a batch of so many requests of a key is computed on the loop's thread, trials of a `Pace` apart."""
        return self._paces[self._size_of(count), key].here

    def _size_of(self, count: int) -> int:
        return self.batch_sizes[bisect_left(self.batch_sizes, count)]

    def _inputs(self, payloads: Sequence[Payload], size: int) -> list[flow.Tensor]:
        """For each input of the model, the batch of all requests' arrays, filled up with zeros to `size`."""
        return [self._batch(arrays, size) for arrays in zip(*[arrays for arrays, _ in payloads], strict=True)]

    def _batch(self, arrays: Sequence[Array], size: int) -> flow.Tensor:
        first = arrays[0]
        if size == 1 or first.nbytes * size <= _JOINED_HERE:
            return self._on_device(from_array(_stacked(arrays, size), _HOST))
        rest = [flow.from_numpy(np.zeros_like(first))] * (size - len(arrays))
        return self._on_device(flow.stack([*[flow.from_numpy(array) for array in arrays], *rest]))

    def _on_device(self, tensor: flow.Tensor) -> flow.Tensor:
        """The tensor on the model's device."""
        return tensor if tensor.device is self._device else tensor.to(self._device)

    def _call(self, inputs: Sequence[flow.Tensor]) -> Any:
        """Call the model; the caller has switched gradients off."""
        if self.signature.named:
            return self._called(**dict(zip(self.signature.names, inputs, strict=True)))
        return self._called(*inputs)

    def _parted(self, tree: Tree, leaves: Sequence[Array], payloads: Sequence[Payload]) -> list[Any]:
        """For each request, its part of all results, in memory of its own.

        The ellipses keep a single number a 0-d array; without them numpy would return a scalar.
        """
        if type(tree) is Leaf and self._cuts is None:  # as for most models
            (rows,) = leaves
            return [rows[place, ...].copy() for place in range(len(payloads))]
        results = []
        for place, (_, sizes) in enumerate(payloads):
            parts = [self._cut(number, leaf[place, ...], sizes) for number, leaf in enumerate(leaves)]
            results.append(args_tree.unflatten(tree, parts))
        return results

    def _cut(self, number: int, array: Array, sizes: Mapping[str, int]) -> Array:
        if self._cuts is not None:
            cuts = [slice(sizes[cut.name] if isinstance(cut, Dim) else cut) for cut in self._cuts[number]]
            array = array[*cuts, ...]
        return array.copy()

    # Warming up

    def warm_up(self) -> None:
        """Choose the invariant size, if that is wanted; then call the model for all sizes, and time a graph.

        Raises:
            ValueError: if a result has not as many rows as the batch, or the results are not as `outputs` declares.
            RuntimeError: if `batch_invariant` holds for no size.
        """
        with flow.no_grad():
            if self._invariant:
                self.batch_sizes = (self._invariant_size(),)
            for sizes, size in product(self._paddings(), self.batch_sizes):
                inputs = [
                    flow.zeros(size, *spec.padded_shape(sizes), dtype=spec.dtype, device=self._device)
                    for spec in self.signature.specs
                ]
                self._check(args_tree.flatten(self._call(inputs))[1], size, sizes)
                self._paces[size, _key(sizes)] = Pace(self._seconds(inputs))
        if self._served is not None:
            self._served.when = "ready"

    def _seconds(self, inputs: Sequence[flow.Tensor]) -> float:
        """The quickest time of a few runs of a graph; infinity for a model that is no graph; see `Pace`."""
        if not isinstance(self._called, (Graph, LoadedGraph)):
            return math.inf  # without a graph, each op decides for itself on which thread it runs
        quickest, left = math.inf, _TRIALS_TAKE
        for _ in range(_TRIALS):
            begin = time.perf_counter()
            for leaf in args_tree.flatten(self._call(inputs))[1]:
                leaf.numpy()
            seconds = time.perf_counter() - begin
            quickest = min(quickest, seconds)
            left -= seconds
            if left <= 0:
                break
        return quickest

    def _paddings(self) -> Iterator[dict[str, int]]:
        """All combinations of sizes to which the dimensions are padded."""
        dims = self.signature.dims
        for sizes in product(*[dim.sizes for dim in dims.values()]):
            yield dict(zip(dims, sizes, strict=True))

    def _check(self, leaves: Sequence[flow.Tensor], size: int, sizes: Mapping[str, int]) -> None:
        if self._cuts is not None and len(self._cuts) != len(leaves):
            raise ValueError(f"outputs has {len(self._cuts)} shapes, and the model returns {len(leaves)} tensors")
        for number, leaf in enumerate(leaves):
            shape = tuple(leaf.numpy().shape)  # `numpy` waits for the result
            if not shape or shape[0] != size:
                raise ValueError(
                    f"result {number} of a batch of {size} has shape {list(shape)}; its first dimension must be {size}"
                )
            if self._cuts is None:
                continue
            wanted = [sizes.get(cut.name) if isinstance(cut, Dim) else cut for cut in self._cuts[number]]
            if list(shape[1:]) != wanted:
                raise ValueError(f"result {number} has shape {list(shape)}; outputs declares {[size, *wanted]}")

    def _invariant_size(self) -> int:
        for size in reversed(self.batch_sizes):
            if all([self._is_invariant(size, padding) for padding in self._paddings()]):
                return size
        raise RuntimeError(
            "batch_invariant: the result of a sample depends on the others in its batch, for every size of batch"
        )

    def _is_invariant(self, size: int, sizes: Mapping[str, int]) -> bool:
        """Whether the result for one sample has the same bits in each place of a batch, among random samples."""
        random = np.random.default_rng(size)
        shapes = [(spec.padded_shape(sizes), spec.dtype.numpy) for spec in self.signature.specs]
        sample = [_drawn(random, shape, dtype) for shape, dtype in shapes]
        known: list[bytes] | None = None
        for place in range(size):
            inputs = []
            for (shape, dtype), own in zip(shapes, sample, strict=True):
                batch = _drawn(random, (size, *shape), dtype)
                batch[place] = own
                inputs.append(flow.from_numpy(batch).to(self._device))
            result = [leaf.numpy()[place].tobytes() for leaf in args_tree.flatten(self._call(inputs))[1]]
            if known is None:
                known = result
            elif known != result:
                return False
        return True

    # Weights

    def load(self, state: Mapping[str, Any]) -> None:
        """Issue the change to other weights; see `InferenceSession.swap`."""
        owner = self.model
        if not hasattr(owner, "load_state_dict"):
            raise TypeError(f"swap: a {type(owner).__name__} has no load_state_dict, and so no weights to change")
        with flow.no_grad():
            owner.load_state_dict(_tensors(state))

    def close(self) -> None:
        """Give back the memory that runs of the graph need, if the graph was made here of a module or function."""
        if self._served is not None:
            self._served.close()


def _key(padded: Mapping[str, int]) -> Hashable:
    """The key of requests whose dimensions are padded to these sizes."""
    return tuple(padded.values())


def _stacked(arrays: Sequence[Array], size: int) -> Array:
    """Arrays of one shape along a new first dimension of this size, filled up with zeros; a view for size 1."""
    first = arrays[0]
    if size == 1:
        return first[np.newaxis]
    stacked = np.empty((size, *first.shape), first.dtype)
    for place, array in enumerate(arrays):
        stacked[place] = array
    stacked[len(arrays) :] = 0
    return stacked


def _device_of(model: Any) -> flow.device:
    """The device of a saved graph's first input, or of the first tensor in a model's state; else the default device."""
    if isinstance(model, LoadedGraph):
        return model.forms()[0].metas[0].device
    tensors = args_tree.flatten(model.state_dict())[1] if isinstance(model, (Module, Graph)) else []
    return tensors[0].device if tensors else MODE.get().device or _HOST


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    # Integers may be indices of a table whose size is unknown, so they are 0.
    return random.standard_normal(shape).astype(dtype) if dtype.kind not in "iub" else np.zeros(shape, dtype)


def _tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, Mapping):
            tensors[name] = _tensors(value)
        else:
            tensors[name] = flow.from_numpy(value) if isinstance(value, np.ndarray) else value
    return tensors


def _saved_batch_sizes(graph: LoadedGraph) -> tuple[int, ...]:
    """The sizes of batches that a graph was saved for, ascending.

    Raises:
        ValueError: if the inputs have no common first dimension.
    """
    sizes: set[int] = set()
    for form in graph.forms():
        if not all([meta.shape for meta in form.metas]) or len({meta.shape[0] for meta in form.metas}) != 1:
            raise ValueError(f"{graph.name}: its inputs have no batch as their first dimension, which a session needs")
        sizes.add(form.metas[0].shape[0])
    return tuple(sorted(sizes))


def _saved_inputs(graph: LoadedGraph) -> Specs:
    """The inputs of a saved graph without their first dimension, the batch.

    Raises:
        ValueError: if the graph was saved for inputs that differ in more than the size of the batch, or if inputs are
            nested, or some passed by name and some not.
    """
    samples: set[tuple[tuple[tuple[int, ...], Any], ...]] = set()
    tree: Tree | None = None
    for form in graph.forms():
        tree = form.tree
        samples.add(tuple([(tuple(meta.shape[1:]), meta.dtype) for meta in form.metas]))
    if len(samples) != 1:
        raise ValueError(f"{graph.name} was saved for inputs that differ in more than the batch; give inputs=")
    specs = [TensorSpec(shape, dtype) for shape, dtype in samples.pop()]
    assert isinstance(tree, Branch)
    args, kwargs = tree.children
    assert isinstance(args, Branch)
    assert isinstance(kwargs, Branch)
    if not all([isinstance(child, Leaf) for child in (*args.children, *kwargs.children)]) or (
        args.keys and kwargs.keys
    ):
        raise ValueError(
            f"{graph.name}: a session takes tensors by place or by name, and its inputs are nested or both"
        )
    if kwargs.keys:
        return dict(zip(kwargs.keys, specs, strict=True))
    return specs[0] if len(specs) == 1 else specs
