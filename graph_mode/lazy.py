"""The lazy interpreter records ops into a `Job` instead of running them.

A lazy tensor is a `Tensor` whose storage is a `LazyStorage`: a buffer of the job, without memory.  Other tensors that
are used while a graph is built become variables of its job, which share their memory; tensors that `build` makes from
data become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, final

from vmflow import dtypes
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.instructions import origin
from vmflow.instructions.blob import Array, Blob, Storage, TensorMeta, meta
from vmflow.interpreter import eagerly, operand_blobs, plan_of
from vmflow.operands import check_fits
from vmflow.ops.table import Attributes, OpExpr, ViewExpr
from vmflow.tensor_fields import autograd_of, blob_of, meta_of, metas_of, new_tensor, view_of
from vmflow.tensors import settle

from . import accumulation, args_tree, naming
from .feeds import Feed, Outlet, RecordedBatches
from .job import Buffer, Draw, Drawn, Gathering, Job, JobOp, Operand, Role, between_feeds_and_fetches

if TYPE_CHECKING:
    from vmflow.autograd.node import AutogradMeta, Node
    from vmflow.context import Mode
    from vmflow.multi_tensor import Update
    from vmflow.nn.module_path import ModulePath
    from vmflow.random import Generator
    from vmflow.tensors import Tensor


@final
class LazyStorage(Storage):
    """A buffer of a job that is being built, in place of memory.

    Attributes:
        builder: the builder of the job.
        buffer: the buffer's id.
    """

    __slots__ = ("buffer", "builder")

    lazy = True

    def __init__(self, builder: JobBuilder, buffer: int) -> None:
        super().__init__()
        self.builder = builder
        self.buffer = buffer

    def settled(self) -> bool:
        raise RuntimeError(
            f"the value of a tensor in graph {self.builder.name!r} was needed while the graph is being built, before "
            "there are values.  Ops that need values (.item(), .numpy(), bool(), shapes that depend on data) belong "
            "outside of build(): return the tensor and read it there, or use ops on tensors, such as where()"
        )

    def admit(self) -> None:
        raise RuntimeError(
            f"a tensor of graph {self.builder.name!r} was used outside of the graph's build(); return it from build(), "
            "and use the results of calls"
        )


def require_no_build(caller: str, advice: str) -> None:
    """Raise RuntimeError if a graph is being built in this context.

    A graph that ran then would do so once, and not at each launch of the graph that is being built.

    Args:
        caller: the first words of the error, which name the graph that was called.
        advice: the last words.
    """
    recorder = MODE.get().interpreter
    if recorder is not None:
        building = recorder.name if isinstance(recorder, JobBuilder) else "another graph"
        raise RuntimeError(f"{caller} cannot be called while {building!r} is being built; {advice}")


@final
class JobBuilder:
    """A job being built, and the interpreter that builds it; see `vmflow.interpreter.Interpreter`.

    Args:
        name: the name of the graph.
        names: by storage of a tensor outside, the name in the job, and the tensor.
        paths: by module, its path in the graph.
        stages: by the path of a module, its pipeline stage.
        feeds: by the id of a data loader, the `Feed` of its batches; new loaders are added.
        stack: the depth of the call stack to note for each op, and whether only the user's calls count; None for none.

    Attributes:
        bindings: by buffer, the tensor outside that shares the memory of a variable.
        outlets: the batches that `build` takes; their tensors are the last inputs of the job, in order.
        generators: the random generators other than the caller's default one; `Draw.generator` counts them from 1.
        gradients_read: the leaves outside whose `grad` was read before `build` has changed it, and what it was.
        cleared: the leaves outside whose `grad` was assigned or set to None (True), or else zeroed (False).
        node: the autograd node whose backward ops are being recorded, or None.
        paths: as given.
        stages: as given.
        phase: the phase of the ops that are being recorded; see `JobOp`.
        micro_batches: the number of micro-batches of the job.
    """

    def __init__(
        self,
        name: str,
        names: dict[Storage, tuple[str, Tensor]],
        paths: dict[Any, str],
        stages: Mapping[str, int] | None = None,
        feeds: dict[int, Feed] | None = None,
        stack: tuple[int, bool] | None = None,
    ) -> None:
        self.name = name
        # The argument `stack`; and the noted calls of each op, by the op's id.
        self._stack = stack
        self._stacks: dict[int, tuple[JobOp, tuple[str, ...]]] = {}
        self.paths = paths
        self.stages = dict(stages or {})
        # For each buffer, the pipeline stage of the op that wrote it last.
        self._made_in: dict[int, int] = {}
        self.bindings: dict[int, Tensor] = {}
        self.outlets: list[Outlet] = []
        self._feeds = {} if feeds is None else feeds
        self.generators: list[Generator] = []
        # The generator of the `fork_rng` block around the build, if any.
        self._caller: Generator | None = None
        self.node: Node | None = None
        self.phase: Literal["micro", "step"] = "step"
        self.micro_batches = 1
        self._prepare_loss: Callable[[Tensor], Tensor] | None = None
        self._names = names
        self._open = True
        self._constants: dict[int, Array] = {}
        self._buffers: dict[int, Buffer] = {}
        self._ops: list[JobOp] = []
        self._inputs: list[int] = []
        self._numbers: list[int] = []
        self._draws: list[Draw] = []
        # The buffers of variables and constants, by storage; and the storages made from data while building.
        self._captured: dict[Storage, LazyStorage] = {}
        self._made: set[Storage] = set()
        # Results of ops, each with its module's path, until `_module_of` sorts them by node into `_modules`.
        self._results: list[tuple[Tensor, str]] = []
        # The earlier gradient of each tensor whose `grad` has been added to, replaced or cleared while building.
        self._gradients: dict[AutogradMeta, Tensor | None] = {}
        self.cleared: dict[AutogradMeta, bool] = {}
        self.gradients_read: dict[AutogradMeta, Tensor | None] = {}
        self._modules: dict[Node, str] = {}

    # For graphs

    @contextmanager
    def recording(self, prepare_loss: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """A block whose ops are recorded into the job.

        Args:
            prepare_loss: applied to each loss before its backward pass.
        """
        mode = MODE.get()
        self._caller = mode.generator
        token = MODE.set(mode.replace(interpreter=self, scope=None, anomaly=False, module=None))
        self._prepare_loss = prepare_loss
        try:
            yield
        finally:
            MODE.reset(token)
            self._prepare_loss = None  # breaks a cycle: `prepare_loss` refers to the graph, lazy tensors to the builder

    def begin_micro_batches(self, count: int) -> None:
        """Let each launch run the ops recorded from now on `count` times, once for each micro-batch."""
        self.micro_batches, self.phase = count, "micro"

    def end_micro_batches(self) -> None:
        """Let each launch run the ops recorded from now on once, after all micro-batches."""
        self.phase = "step"

    def input(self, layout: TensorMeta, name: str) -> Tensor:
        """Add an input to the job, and return the lazy tensor that stands for its value."""
        storage = self._storage(layout, "input", name)
        self._inputs.append(storage.buffer)
        return new_tensor(Blob(storage, layout), None)

    def number(self, name: str, device: Device) -> Tensor:
        """A 0-d tensor, in float64, whose value is given at each launch, such as a learning rate."""
        layout = meta((), dtypes.float64, device)
        storage = self._storage(layout, "number", name)
        self._numbers.append(storage.buffer)
        return new_tensor(Blob(storage, layout), None)

    def finish(self, outputs: list[Tensor]) -> Job:
        """Return the job; afterwards the builder records nothing more."""
        results = [self._operand(blob_of(tensor)) for tensor in outputs]
        self._open = False
        job = Job(
            self.name,
            dict(self._buffers),
            between_feeds_and_fetches(self._ops, self._buffers, self._inputs, results),
            tuple(self._numbers),
            tuple(self._draws),
            dict(self._constants),
            self.micro_batches,
        )
        job.check()
        # Lazy tensors refer to the builder: with these fields cleared, both are freed without a garbage collection.
        self.paths, self._names = {}, {}
        for kept in (self._results, self._modules, self._captured, self._gradients):
            kept.clear()
        return job

    def gather(self, kind: Gathering, tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Unpack, accumulate or pack tensors, by one op for each device; returns tensors of the given shapes."""
        results: list[Tensor] = []
        for tensor, shape in zip(tensors, shapes, strict=True):
            layout = meta_of(tensor)
            made = meta(shape, layout.dtype, layout.device)
            results.append(new_tensor(Blob(self._storage(made), made), None))
        for device in dict.fromkeys([tensor.device for tensor in tensors]):
            here = [position for position, tensor in enumerate(tensors) if tensor.device is device]
            read = tuple([self._operand(blob_of(tensors[index])) for index in here])
            written = tuple([self._operand(blob_of(results[index])) for index in here])
            self._ops.append(JobOp(kind, read, written, kind=kind, phase="micro"))
        return results

    def whole(self, tensor: Tensor) -> Tensor:
        """Return the tensor if it is a whole temporary buffer that no "unpack" writes, else a copy; for `gather`."""
        blob = blob_of(tensor)
        operand = self._operand(blob)
        buffer = self._buffers[operand.buffer]
        alone = operand.strides is None and operand.meta is buffer.meta and buffer.role == "temporary"
        if alone and not any([op.kind == "unpack" and operand.buffer in op.writes() for op in self._ops]):
            return tensor
        copy = Blob(self._storage(blob.meta), blob.meta)
        self._ops.append(
            JobOp("cast", (operand,), (self._operand(copy),), (blob.meta.dtype,), phase=self.phase),
        )
        return new_tensor(copy, None)

    def final(self, losses: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The tensors with which backward passes begin: the losses in `build`, changed by `prepare_loss`."""
        if self._prepare_loss is None:
            return losses
        return tuple([self._prepare_loss(loss) for loss in losses])

    # The interface of an interpreter

    def call(
        self, op: OpExpr, inputs: tuple[Tensor, ...], attributes: Attributes, scalars: tuple[Any, ...], mode: Mode
    ) -> tuple[Tensor, ...]:
        blobs = operand_blobs(op, inputs)
        operands = tuple([self._operand(blob) for blob in blobs])
        inferred = plan_of(op, blobs, attributes, scalars, mode.dtype)
        outputs = tuple([Blob(self._storage(output), output) for output in inferred.outputs])
        self._add(op.name, operands, tuple([self._operand(blob) for blob in outputs]), attributes, scalars, mode)
        results = tuple([new_tensor(blob, None) for blob in outputs])
        self._results += [(result, self._ops[-1].module) for result in results]
        return results

    def call_into(
        self,
        op: OpExpr,
        target: Tensor,
        inputs: tuple[Tensor, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        mode: Mode,
    ) -> None:
        blobs = operand_blobs(op, inputs)
        inferred = plan_of(op, blobs, attributes, scalars, mode.dtype)
        check_fits(op.name, inferred.outputs[0], target)
        self._copy_if_given(blob_of(target))
        operands = tuple([self._operand(blob) for blob in blobs])
        self._add(op.name, operands, (self._operand(blob_of(target)),), attributes, scalars, mode, kind="into")

    def view(self, op: ViewExpr, source: Tensor, attributes: Attributes, mode: Mode) -> Tensor:
        return new_tensor(view_of(op, blob_of(source), attributes, self._capture(blob_of(source))), None)

    def transfer(self, op: OpExpr, source: Tensor, device: Device, mode: Mode) -> Tensor:
        """Record a copy of a tensor to another device."""
        layout = meta_of(source)
        copied = meta(layout.shape, layout.dtype, device)
        blob = Blob(self._storage(copied), copied)
        self._add(
            op.name,
            (self._operand(blob_of(source)),),
            (self._operand(blob),),
            (layout.dtype,),
            (),
            mode,
            kind="transfer",
        )
        return new_tensor(blob, None)

    def update(self, update: Update, mode: Mode) -> None:
        """Record one op that changes many tensors together."""
        for tensor in update.outputs:
            self._copy_if_given(blob_of(tensor))
        self._add(
            update.name,
            tuple([self._operand(blob_of(tensor)) for tensor in update.inputs]),
            tuple([self._operand(blob_of(tensor)) for tensor in update.outputs]),
            (),
            (),
            mode,
            kind="update",
            cost=update.cost,
            overwrites=update.overwrites,
            update=update.kernel,
        )

    def draw(self, generator: Generator, default: bool, elements: int) -> tuple[Any, Any]:
        """Record a draw, and return placeholders for its seed and position."""
        number = 0
        if not default or MODE.get().generator is not self._caller:
            if generator not in self.generators:
                self.generators.append(generator)
            number = self.generators.index(generator) + 1
        self._draws.append(Draw(elements, number, self.phase))
        return Drawn(len(self._draws) - 1, 0), Drawn(len(self._draws) - 1, 1)

    def batches(self, source: Iterable[Any]) -> Iterator[Any]:
        """A data loader's batches, as inputs of the job: each launch gets the loader's next batches."""
        feed = self._feeds.setdefault(id(source), Feed(source))
        return RecordedBatches(lambda taken: self._batch(feed, taken))

    def _batch(self, feed: Feed, taken: int) -> Any:
        self._require_open()
        place = len([outlet for outlet in self.outlets if outlet.feed is feed])
        with eagerly():
            tree, tensors = args_tree.flatten(feed.peek(place, taken))
        names = args_tree.paths(tree, f"batch_{len(self.outlets)}")
        self.outlets.append(Outlet(feed, place, tree, metas_of(tensors)))
        inputs = [self.input(meta_of(tensor), name) for tensor, name in zip(tensors, names, strict=True)]
        if self.micro_batches > 1:
            inputs = accumulation.parts(self, inputs, names)
        return args_tree.unflatten(tree, inputs)

    def made(self, storage: Storage) -> None:
        """Note that this storage was made from data while building, so that it can be a constant of the job."""
        self._made.add(storage)

    def accumulates(self, autograd: AutogradMeta) -> None:
        """Before the first gradient is added to a tensor's `grad`, set its earlier gradient aside."""
        if autograd not in self._gradients:
            before = autograd.grad
            if before is None or not before.is_lazy:
                self._gradients[autograd] = before
                autograd.replace(None)

    def reads_gradient(self, tensor: Tensor) -> None:
        """Before the `grad` of a leaf outside is read, note its earlier gradient, unless `build` has changed `grad`."""
        autograd = autograd_of(tensor)
        if autograd is not None and autograd.node is None and not tensor.is_lazy and autograd not in self._gradients:
            self.gradients_read.setdefault(autograd, autograd.grad)

    def clears(self, tensor: Tensor, to_none: bool) -> None:
        """Before `grad` of a leaf outside is replaced or zeroed, set `grad` aside; note that each call clears it."""
        autograd = autograd_of(tensor)
        if autograd is not None and autograd.node is None and not tensor.is_lazy:
            self.accumulates(autograd)
            self.cleared[autograd] = to_none or self.cleared.get(autograd, False)

    def gradients(self) -> list[AutogradMeta]:
        """The leaves, such as parameters, that have a gradient from `build` in their `grad`."""
        return [leaf for leaf in self._gradients if leaf.node is None and leaf.grad is not None]

    def restore_gradients(self) -> None:
        """Restore the gradients that `accumulates` and `clears` have set aside."""
        for autograd, gradient in self._gradients.items():
            autograd.replace(gradient)

    def is_used(self, tensor: Tensor) -> bool:
        """Whether the job has a buffer for a tensor from outside; to be called before `finish`."""
        return blob_of(tensor).storage in self._captured

    # Buffers and ops

    def _storage(self, layout: TensorMeta, role: Role = "temporary", name: str = "") -> LazyStorage:
        self._require_open()
        self._refuse_global(layout)
        number = len(self._buffers)
        self._buffers[number] = Buffer(number, layout, role, name)
        return LazyStorage(self, number)

    def _operand(self, blob: Blob) -> Operand:
        return Operand(self._capture(blob).buffer, blob.meta, blob.strides, blob.offset)

    def _refuse_global(self, layout: TensorMeta) -> None:
        if layout.spread is not None:
            raise RuntimeError(
                f"graph {self.name!r} has a global tensor of shape {list(layout.shape)}: graphs compute local tensors "
                "only; call the module itself, or make the graph of local parts, see Tensor.to_local"
            )

    def _capture(self, blob: Blob) -> LazyStorage:
        """Return the lazy storage for a blob; any other storage becomes a constant or variable of the job."""
        storage = blob.storage
        if isinstance(storage, LazyStorage):
            if storage.builder is not self:
                raise RuntimeError(
                    f"a tensor of graph {storage.builder.name!r} was used while building graph {self.name!r}; pass the "
                    "results of other graphs as arguments of the call"
                )
            return storage
        self._refuse_global(blob.meta)
        captured = self._captured.get(storage)
        if captured is not None:
            return captured
        whole = _whole(blob)
        if storage in self._made:
            lazy = self._storage(whole, "constant", f"constant_{len(self._constants)}")
            self._constants[lazy.buffer] = storage.array
        else:
            if storage not in self._names:
                naming.name_running_module(MODE.get().module, self._names, self.paths)
            name, tensor = self._names.get(storage, ("", None))
            if tensor is None:
                name, tensor = f"free_{len(self.bindings)}", new_tensor(Blob(storage, whole), None)
            lazy = self._storage(whole, "variable", name)
            self.bindings[lazy.buffer] = tensor
        self._captured[storage] = lazy
        return lazy

    def _copy_if_given(self, blob: Blob) -> None:
        """Before a constant or an input of the job is written, record an op that copies it.

        All tensors that share the original's storage refer to the copy from now on.
        """
        storage = self._capture(blob)
        original = self._buffers[storage.buffer]
        if original.role not in ("constant", "input"):
            return
        copy = self._storage(original.meta)
        whole = (Operand(original.id, original.meta),)
        copied = (Operand(copy.buffer, original.meta),)
        module = "" if self.node is not None else self._path_of(MODE.get().module)
        self._ops.append(JobOp("cast", whole, copied, (original.meta.dtype,), module=module, phase=self.phase))
        storage.buffer = copy.buffer

    def _add(
        self,
        op: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[Operand, ...],
        attributes: Attributes,
        scalars: tuple[Any, ...],
        mode: Mode,
        **rest: Any,
    ) -> None:
        self._require_open()
        node = self.node
        if node is None:
            module, line = self._path_of(mode.module), origin.describe(*origin.capture())
        else:
            module, line = self._module_of(node), node.where()
        stage = self._stage_of(module, inputs) if self.stages else 0
        for operand in outputs:
            self._made_in[operand.buffer] = stage
        made = JobOp(
            op,
            inputs,
            outputs,
            attributes,
            scalars,
            module=module,
            line=line,
            backward=node is not None,
            stage=stage,
            phase=self.phase,
            default_dtype=mode.dtype,
            **rest,
        )
        self._ops.append(made)
        if self._stack is not None:
            self._stacks[id(made)] = made, origin.stack(*self._stack)

    def stack_of(self, op: JobOp) -> tuple[str, ...]:
        """The calls that led to an op, the innermost first; empty if they were not noted."""
        noted = self._stacks.get(id(op))
        return () if noted is None else noted[1]

    def _stage_of(self, module: str, inputs: tuple[Operand, ...]) -> int:
        """The stage of the innermost module that has one; else the latest stage of the operands."""
        path = module
        while path:
            stage = self.stages.get(path)
            if stage is not None:
                return stage
            path = path.rpartition(".")[0]
        return max([self._made_in.get(operand.buffer, 0) for operand in inputs], default=0)

    def _path_of(self, path: ModulePath | None) -> str:
        naming.name_running_module(path, self._names, self.paths)
        return self.paths.get(path.module(), "") if path is not None else ""

    def _module_of(self, node: Node) -> str:
        """The path of the module whose forward pass made the results of an autograd node; "" if there is none."""
        while self._results:
            tensor, module = self._results.pop()
            autograd = autograd_of(tensor)
            if autograd is not None and autograd.node is not None:
                self._modules[autograd.node] = module
        return self._modules.get(node, "")

    def _require_open(self) -> None:
        if not self._open:
            raise RuntimeError(
                f"graph {self.name!r} has been built, and one of its tensors was kept; use the results of calls"
            )


def _whole(blob: Blob) -> TensorMeta:
    """The meta of the whole storage of the blob."""
    if blob.strides is None:
        return blob.meta
    settled = new_tensor(blob, None)
    with eagerly():
        settle(settled)  # until the blob has been computed, the size of the storage is unknown
    array = blob.storage.array
    return meta(tuple(array.shape), dtypes.from_numpy(array.dtype), blob.meta.device)
