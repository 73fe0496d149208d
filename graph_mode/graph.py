"""`nn.Graph`: a program over modules that is recorded, compiled, and then run as a whole by calls."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Literal

from vmflow.amp import GradScaler, autocast
from vmflow.arguments import is_integer, whole_number
from vmflow.autograd import enable_grad
from vmflow.changes import changed
from vmflow.context import MODE
from vmflow.instructions import origin
from vmflow.instructions.blob import Storage
from vmflow.markup import line, preformatted, stacked
from vmflow.nn.module import Module
from vmflow.optim.lr_scheduler import ReduceLROnPlateau
from vmflow.optim.optimizer import Optimizer
from vmflow.tensor_fields import autograd_of, blobs_of, meta_of, metas_of
from vmflow.tensors import Tensor

from . import accumulation, args_tree, naming
from .args_tree import Tree
from .blocks import Block, BlockConfig
from .compiled import CompiledGraph, Outside
from .config import GraphConfig
from .describing import OPS, BuildReport, described
from .feeds import Feed, take_batches
from .guards import Watch, forwards
from .lazy import JobBuilder, require_no_build
from .passes import Settings
from .saving import save_graph
from .session import PutBack, building_alone, default_session
from .surroundings import Gradient

if TYPE_CHECKING:
    from vmflow.autograd.node import AutogradMeta

    from .functions import CompiledFunction
    from .job import Job
    from .plan import Plan

_counts: defaultdict[str, int] = defaultdict(int)

# The most forms (results of builds) kept for arguments of one structure, shapes and dtypes, each for another state of
# modules, settings and variables.
_STATES: Final = 8

# The attributes of Graph and FunctionGraph themselves; changes of other attributes can cause another build.
_OWN: Final = frozenset(
    {
        "_block_configs",
        "_blocks",
        "_built_for",
        "_compiled",
        "_debug",
        "_debug_ranks",
        "_debug_stack",
        "_dynamic",
        "_feeds",
        "_forms",
        "_kind",
        "_last",
        "_optimizers",
        "_scaler",
        "_warned",
        "config",
        "name",
    }
)

# The entries of an optimizer's parameter group whose values `_training` does not compare: no op depends on them, each
# launch sets them, or `_training` compares identities instead.
_SET_AT_EACH_LAUNCH: Final = frozenset({"params", "lr", "initial_lr", "min_lr", "max_lr"})


class Graph:
    """A program over modules: assign modules in `__init__`, and compute with them in `build`.

    The first call runs `build` once with tensors that stand for values, and records its ops.  The recorded ops are
    optimized, planned and then run.  Later calls with arguments of the same shapes and dtypes only run them, unless
    `build` has to run again.  They return immediately, as an op does: ``await`` their results, or read them.

    Modules are shared, not copied: eager code and other graphs see the parameters that a graph has trained.

    With optimizers (see `add_optimizer`), `build` calls ``loss.backward()``, and each call of the graph takes a step,
    under `no_grad`, too.  `grad` stays as it is.  Without optimizers, each call adds gradients to the `grad` of
    parameters and other leaves, as eager code does, but not to that of arguments; and if `build` calls `zero_grad`, or
    sets or changes `grad`, each call does so.  After ``backward()``, `build` sees only the gradients of its own call.

    Attributes:
        name: the name of the graph's class or function, and a number.
        config: the graph's settings; see `GraphConfig`.

    Example:
        >>> class Predict(flow.nn.Graph):
        ...     def __init__(self, model):
        ...         super().__init__()
        ...         self.model = model
        ...     def build(self, x):
        ...         return self.model(x) + 1
        >>> predict = Predict(flow.nn.ReLU())
        >>> predict(flow.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """

    def __init__(self) -> None:
        kind = type(self).__name__
        self.name = f"{kind}_{_counts[kind]}"
        _counts[kind] += 1
        self.config = GraphConfig()
        self._blocks: dict[str, Block] = {}
        self._block_configs: dict[str, BlockConfig] = {}
        self._optimizers: list[tuple[Optimizer, Any]] = []
        self._scaler: GradScaler | None = None
        # By structure and metas of arguments (by None if these are fixed), the forms built for different states of
        # modules and settings, the most recently used first.
        self._compiled: OrderedDict[Any, list[CompiledGraph]] = OrderedDict()
        self._built_for: list[Any] = []
        self._last: CompiledGraph | None = None
        # All forms in `_compiled`, as a tuple: a loop over it is safe while other threads change that dict.
        self._forms: tuple[CompiledGraph, ...] = ()
        self._feeds: dict[int, Feed] = {}
        self._dynamic = 0
        self._debug = -1
        self._debug_ranks: tuple[int, ...] = (0,)
        self._debug_stack: tuple[int, bool] | None = None
        self._warned = False

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the results of one call from its arguments; subclasses define this method.

        Arguments and results may be nested in tuples, lists and dicts.  Values other than tensors are part of the
        graph.

        `build` may iterate over a `DataLoader`.  Each call of the graph then takes as many of the loader's next batches
        as `build` took; when the loader ends, it begins again.  A call waits for the batches, also in a coroutine.

        A call runs `build` again if something that `build` has read was changed since: attributes of modules and of the
        graph, such as `training` or ``Dropout.p``; parameters, buffers and submodules that were replaced; whether
        parameters require gradients, and whether they have gradients, if `build` asks; hooks; `config`; variables of
        closures and globals that `build`, `forward`, hooks, methods that these call, and plain functions of their
        Python modules use; attributes, also methods, of the classes of modules and of the graph, and of classes among
        these variables; items of lists, dicts and sets of at most 64 items among all these; and autocast, default
        dtype and device around the call.  Changes that `build` itself makes do not count.  Eight builds are kept for
        such changes.  A build whose state comes back is used again.

        A graph cannot see anything else that Python computes while it is built, and repeats the values of that time:
        random numbers of `random` and numpy, the time, files, attributes of most other objects, changes inside of
        arrays, and replaced items of large or deeply nested containers.  Random numbers of this package are drawn anew
        in each call.

        Raises:
            NotImplementedError: if the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no build()")

    @staticmethod
    def trace(func: Callable[..., Any]) -> CompiledFunction:
        """Make a graph of a plain function of tensors; see `graph_mode.functions.trace`."""
        from .functions import trace

        return trace(func)

    # Assigning modules, optimizers and settings

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
            if name == "config":
                changed()
            return
        if isinstance(value, Module):
            if "_blocks" not in self.__dict__:
                raise AttributeError(
                    f"call super().__init__() in {type(self).__name__}.__init__ before assigning modules"
                )
            self._blocks[name] = Block(value, name, self._block_configs)
            self.__dict__.pop(name, None)
            changed()
            return
        if isinstance(value, Tensor):
            raise TypeError(
                f"{type(self).__name__}.{name}: a tensor cannot be assigned to a graph, which has no state of its own; "
                "make it a parameter or buffer of a module, or an argument of build()"
            )
        if isinstance(value, Optimizer):
            raise TypeError(f"{type(self).__name__}.{name}: give optimizers to the graph with add_optimizer()")
        self.__dict__.get("_blocks", {}).pop(name, None)
        super().__setattr__(name, value)
        changed()

    def __getattr__(self, name: str) -> Any:
        blocks = self.__dict__.get("_blocks", {})
        if name in blocks:
            return blocks[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if name in self._blocks:
            del self._blocks[name]
        else:
            super().__delattr__(name)
        changed()

    def add_optimizer(self, optim: Optimizer, *, lr_sch: Any = None) -> None:
        """Take a step of an optimizer in each call, after all that `build` computes.

        Gradients are clipped before the step if the optimizer's groups ask for it ("clip_grad_max_norm").  Learning
        rates that are numbers may change at any time; if other settings of steps change, the next call builds the graph
        again.

        Args:
            optim: an optimizer of parameters of the graph's modules.
            lr_sch: a learning rate scheduler of that optimizer; each call of the graph steps the scheduler.

        Raises:
            TypeError: if `optim` is no optimizer, or its class has a `step` or `take_step` of its own, as `LBFGS` has;
                if the scheduler is a `ReduceLROnPlateau`, whose step needs a metric.
            ValueError: if `lr_sch` is not a scheduler of this optimizer.
            RuntimeError: if the graph `is_compiled`.
        """
        self._require_not_built("add_optimizer")
        if not isinstance(optim, Optimizer):
            raise TypeError(f"add_optimizer: expected an optimizer, got {type(optim).__name__}")
        if type(optim).step is not Optimizer.step or type(optim).take_step is not Optimizer.take_step:
            raise TypeError(
                f"add_optimizer: a step of {type(optim).__name__} evaluates the model several times, which a graph "
                "cannot; use it eagerly"
            )
        if lr_sch is not None and getattr(lr_sch, "optimizer", None) is not optim:
            raise ValueError("add_optimizer: lr_sch must be a scheduler of this optimizer")
        if isinstance(lr_sch, ReduceLROnPlateau):
            raise TypeError(
                "add_optimizer: a step of ReduceLROnPlateau needs a metric, which a call of a graph does not wait for; "
                "leave lr_sch out, and call its step(metric) yourself: the graph uses the current learning rate"
            )
        self._optimizers.append((optim, lr_sch))

    def set_grad_scaler(self, grad_scaler: GradScaler) -> None:
        """Scale losses before their backward pass, and skip steps whose gradients are not finite.

        A graph without optimizers does not use the scaler.

        Raises:
            TypeError: if `grad_scaler` is no `GradScaler`.
            RuntimeError: if the graph `is_compiled`.
        """
        self._require_not_built("set_grad_scaler")
        if not isinstance(grad_scaler, GradScaler):
            raise TypeError(f"set_grad_scaler: expected a GradScaler, got {type(grad_scaler).__name__}")
        self._scaler = grad_scaler

    def with_dynamic_input_shape(self, *, size: int = 10) -> Graph:
        """Allow arguments of other shapes, dtypes, devices, structure or non-tensor values: build for each such kind.

        The forms built for the `size` kinds used last are kept.  Returns this graph.

        Raises:
            TypeError: if `size` is no integer.
            ValueError: if `size` is less than 1.
        """
        self._dynamic = whole_number("with_dynamic_input_shape", "size", size, 1)
        return self

    def share_from(self, shared_graph: Graph) -> None:
        """Use the modules, optimizers, grad scaler and `config` of another graph of this class, without copying them.

        Raises:
            TypeError: if `shared_graph` is a graph of another class.
            RuntimeError: if this graph `is_compiled`.
        """
        self._require_not_built("share_from")
        if type(shared_graph) is not type(self):
            raise TypeError(f"share_from: expected a {type(self).__name__}, got {type(shared_graph).__name__}")
        for name in ("_blocks", "_block_configs", "_optimizers", "_scaler", "config"):
            self.__dict__[name] = shared_graph.__dict__[name]

    def debug(
        self,
        v_level: int = 0,
        *,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """Let each later build of the graph print its progress.

        Args:
            v_level: the level of detail.  -1: nothing; 0: the times of building, passes and compiling, and how a CUDA
                device runs the ops; 1: also the ops and the use of memory; 2: also the changes of each pass; 3: the
                same as 2, for programs of OneFlow.
            ranks: the rank or ranks of a distributed job that print; None for rank 0, and -1 for all.
            max_py_stack_depth: the most Python calls that `op_repr_with_py_stack` prints with each op.
            only_user_py_stack: whether calls within the framework are left out.
            op_repr_with_py_stack: whether to print, from level 1 on, the Python calls that led to each op, besides the
                line that called it.

        Raises:
            ValueError: for any other level, and for an invalid depth or rank.
        """
        if v_level not in (-1, 0, 1, 2, 3):
            raise ValueError(f"debug: the level must be -1, 0, 1, 2 or 3, not {v_level!r}")
        try:
            chosen = (0,) if ranks is None else tuple(ranks)  # type: ignore[arg-type]
        except TypeError:  # it cannot be iterated over
            chosen = (ranks,)  # type: ignore[assignment]
        if not all([is_integer(rank) and rank >= -1 for rank in chosen]):
            raise ValueError(f"debug: ranks must be numbers of ranks, or -1 for all, got {ranks!r}")
        if not is_integer(max_py_stack_depth) or max_py_stack_depth < 0:
            raise ValueError(f"debug: max_py_stack_depth must be an integer of at least 0, got {max_py_stack_depth!r}")
        self._debug = v_level
        self._debug_ranks = tuple([int(rank) for rank in chosen])
        self._debug_stack = (max_py_stack_depth, only_user_py_stack) if op_repr_with_py_stack else None

    def _debug_level(self) -> int:
        """Return the level of detail at which builds print on this rank; -1 if they print nothing."""
        if self._debug >= 0 and -1 not in self._debug_ranks:
            from vmflow.distributed.process import get_rank  # imported here, since few programs need the module

            return self._debug if get_rank() in self._debug_ranks else -1
        return self._debug

    # Calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph once; the first call builds it, and later ones only if need be, see `build`.

        Returns:
            The result of `build`, with tensors that may still be being computed in place of its tensors.

        Raises:
            ValueError: if structure, shapes, dtypes, devices or values other than tensors differ from the build's
                arguments or batches, and `with_dynamic_input_shape` has not been called; if the `data` of a tensor that
                `build` uses now has another shape, dtype, device or layout.
            StopIteration: if `build` takes batches of an iterator that has ended, or of an empty loader.
            VirtualMachineClosed: if the virtual machine is closed.
            SessionClosed: if the session of the build that the call uses has been closed.
            RuntimeError: while a graph is being built in this context; call `build` instead, which records ops there.
        """
        mode = MODE.get()
        last = self._last
        sources = None if last is None or kwargs else last.sources_of(args, mode)
        if last is not None and sources is not None:
            return last.call(sources, (), mode)
        compiled, tensors, rates = self._prepared(args, kwargs)
        # None with optimizers or a scaler: the fast path above passes no learning rates and does not compare
        # `_training`.
        self._last = None if self._optimizers or self._scaler is not None else compiled
        return compiled.call(blobs_of(tensors), rates, mode)

    def run_by_vm(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph once, op by op as instructions of the virtual machine: slower, with bitwise equal results.

        Raises:
            ValueError, StopIteration, SessionClosed, RuntimeError, VirtualMachineClosed: as for a call.
        """
        compiled, tensors, rates = self._prepared(args, kwargs)
        return compiled.run_by_vm(tensors, rates)

    def _prepared(self, args: Any, kwargs: Any) -> tuple[CompiledGraph, list[Tensor], list[float]]:
        """Get the form, take batches and step schedulers; return form, inputs, and the rates before these steps."""
        tree, tensors = args_tree.flatten_call(args, kwargs)
        compiled = self._compile_for(tree, tensors)
        if compiled.outside.outlets:
            compiled.require_open()
            tensors = [*tensors, *take_batches(compiled.outside.outlets)]
        if not self._optimizers:
            compiled.require_open()
            return compiled, tensors, []
        with compiled.calling:
            compiled.require_open()
            rates = self.learning_rates()
            self.advance_schedules()
        return compiled, tensors, rates

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        """Build and compile the graph for arguments of these shapes, unless it is built for them, without running it.

        Raises:
            ValueError, SessionClosed, RuntimeError: as for a call.
        """
        tree, tensors = args_tree.flatten_call(args, kwargs)
        self._compile_for(tree, tensors)

    def _compile_for(self, tree: Tree, tensors: list[Tensor]) -> CompiledGraph:
        require_no_build(self.name, "call its build(), which records its ops there, or one after the other")
        metas = metas_of(tensors)
        if self._compiled and self._built_for != self._training():
            self.close()
        key = (tree, metas) if self._dynamic else None
        form = self._form(key)
        if form is None:
            with building_alone():
                form = self._form(key)  # another thread may have built the form meanwhile
                if form is None:
                    form = self._built(tree, tensors)
                    self._keep(key, form)
        if not self._dynamic and (form.metas != metas or (form.tree is not tree and form.tree != tree)):
            misfit = args_tree.misfit(form.tree, form.metas, tree, metas)
            if misfit is not None:
                ask = "make another graph, or call with_dynamic_input_shape() before the first call"
                raise ValueError(f"{self.name}: {misfit}; {ask}")
        if self._dynamic > 1:
            with suppress(KeyError):  # another thread may have removed the compiled form
                self._compiled.move_to_end(key)
        return form

    def _form(self, key: Any) -> CompiledGraph | None:
        """Return the kept form for this key of arguments that `_fits`, or None."""
        forms = self._compiled.get(key)
        if not forms:
            return None
        first = forms[0]
        if self._fits(first):
            return first
        for form in list(forms):
            if self._fits(form):
                self._compiled[key] = [form, *[other for other in forms if other is not form]]
                return form
        return None

    def _fits(self, form: CompiledGraph) -> bool:
        """Return whether a form fits the present state and, if arguments may vary in shape, loaders' next batches."""
        if not form.holds():
            return False
        return not self._dynamic or all([outlet.misfit() is None for outlet in form.outside.outlets])

    def _keep(self, key: Any, form: CompiledGraph) -> None:
        """Keep a form, and close the least recently used forms beyond the limits; warn once of too many states."""
        others = self._compiled.get(key, [])
        self._compiled[key] = [form, *others[: _STATES - 1]]
        self._forms = (*self._forms, form)
        for old in others[_STATES - 1 :]:
            self._forget(old)
        while len(self._compiled) > max(self._dynamic, 1):
            for old in self._compiled.popitem(last=False)[1]:
                self._forget(old)
        if len(others) == _STATES and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.name} has been built for {_STATES + 1} states, and keeps {_STATES}, because the values that "
                f"build() reads change again and again: {others[0].difference()}.  Building takes far longer than a "
                "call: make these values tensors, and arguments of build()",
                stacklevel=origin.depth(),
            )

    # Building

    def _training(self) -> list[Any]:
        """Return the optimizers' settings, for comparison with those at the build, except learning rates as numbers.

        The optimizers' `state`, lists of parameters, learning rates as tensors and the scale are compared by identity.
        """
        settings: list[Any] = [] if self._scaler is None else [_Itself(self._scaler.scale_tensor)]
        for optimizer, _ in self._optimizers:
            settings.append(_Itself(optimizer.state))
            for group in optimizer.param_groups:
                rate = group["lr"]
                settings += [_Itself(group["params"]), len(group["params"])]
                settings.append(_Itself(rate if isinstance(rate, Tensor) else None))
                settings.append({key: value for key, value in group.items() if key not in _SET_AT_EACH_LAUNCH})
        return settings

    def _built(self, tree: Tree, tensors: list[Tensor]) -> CompiledGraph:
        """Record `build`, put gradients, learning rates and scaler back, compile the job, and return the form."""
        default_session().require_open(self.name)
        report = BuildReport(self.name, self._debug_level())
        stages = {path: config.stage_id for path, config in self._block_configs.items() if config.stage_id is not None}
        stack = self._debug_stack if report.level >= OPS else None
        builder = JobBuilder(self.name, self._names(), self._paths(), stages, self._feeds, stack)
        watch = Watch(Graph, _OWN, self._functions())
        names = args_tree.call_paths(tree)
        inputs = [builder.input(meta_of(tensor), name) for name, tensor in zip(names, tensors, strict=True)]
        count, parameters = self.config.gradient_accumulation_steps, self._parameters()
        if count > 1:
            inputs = accumulation.cut(builder, inputs, names, count)
        args, kwargs = args_tree.unflatten(tree, inputs)
        scaler = nullcontext() if self._scaler is None else self._scaler.between_updates()
        apart = _gradients_apart(parameters if self._optimizers else [])
        restored = apart, _rates_apart(self._optimizers), scaler
        with PutBack(*restored, _gradients_given_back(builder), watch.building()):
            self._rate_tensors(builder)
            with builder.recording(self._prepare_loss):
                # With optimizers, the form serves calls in any grad mode.
                gradients_on = enable_grad() if self._optimizers else nullcontext()
                with gradients_on, self._precision(tensors), PutBack(_steps_refused(self.name, self._optimizers)):
                    result = self.build(*args, **kwargs)
                out_tree, outputs = args_tree.flatten(result)
                leaves = [] if self._optimizers else builder.gradients()
                if count > 1:
                    accumulation.require_parts(builder, inputs)
                    owners = _places(parameters) if self._optimizers else leaves
                    outputs = accumulation.put_together(builder, outputs, owners)
                self._take_steps()
                gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        self._built_for = self._training()
        paths = builder.paths
        # With optimizers, each call begins without gradients.
        read = {} if self._optimizers else builder.gradients_read
        earlier = [Gradient(leaf, value is not None and builder.is_used(value)) for leaf, value in read.items()]
        job = builder.finish([*outputs, *gradients])
        report.recorded(job, builder.stack_of)
        outside = Outside(
            builder.bindings,
            tuple(builder.generators),
            tuple(leaves),
            tuple(builder.outlets),
            () if self._optimizers else tuple(builder.cleared.items()),
        )
        # The config is copied before the guard is made, since copying sets attributes, which counts as a change.
        settings = Settings(copy(self.config), self._block_configs)
        guard = watch.guard(self._settings, paths, earlier)
        return CompiledGraph(job, outside, settings, tree, metas_of(tensors), out_tree, report, guard)

    def _functions(self) -> list[Callable[..., Any]]:
        """Return the functions that building may run, as far as known before: `build`, those of `guards.forwards`."""
        modules = [module for block in self._blocks.values() for module in block.origin.modules()]
        return [MethodType(type(self).build, type(self)), *forwards(modules)]

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the graph and of its blocks, by name, for comparison with later ones."""
        settings = {f"{self.name}.config.{name}": getattr(self.config, name) for name in self.config.__slots__}
        for path, config in self._block_configs.items():
            settings.update({f"{path}.config.{name}": getattr(config, name) for name in config.__slots__})
        return settings

    def _precision(self, tensors: list[Tensor]) -> AbstractContextManager[object]:
        """Return a context of automatic mixed precision if the config enables it, else a context that does nothing."""
        if self.config.amp is None:
            return nullcontext()
        every = [*tensors, *self._parameters()]
        return autocast(every[0].device.type if every else "cpu", self.config.amp)

    def _names(self) -> dict[Storage, tuple[str, Tensor]]:
        names: dict[Storage, tuple[str, Tensor]] = {}
        for path, block in self._blocks.items():
            module = block.origin
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                naming.add_tensor(tensor, f"{path}.{name}", names)
        for number, (optimizer, _) in enumerate(self._optimizers):
            for position, state in enumerate(optimizer.state.values()):
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        naming.add_tensor(value, f"optimizer{number}.{position}.{name}", names)
        return names

    def _paths(self) -> dict[Any, str]:
        paths: dict[Any, str] = {}
        for path, block in self._blocks.items():
            for name, module in block.origin.named_modules():
                paths.setdefault(module, f"{path}.{name}" if name else path)
        return paths

    def _parameters(self) -> list[Tensor]:
        parameters = [parameter for block in self._blocks.values() for parameter in block.origin.parameters()]
        return parameters + [
            parameter
            for optimizer, _ in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def _rate_tensors(self, builder: JobBuilder) -> None:
        """Replace the rates that `_has_rate` names by lazy tensors, which each launch sets to the current rates."""
        for number, (optimizer, _) in enumerate(self._optimizers):
            for position, group in enumerate(optimizer.param_groups):
                if _has_rate(group):
                    device = group["params"][0].device
                    group["lr"] = builder.number(f"optimizer{number}.{position}.lr", device)

    def _prepare_loss(self, loss: Tensor) -> Tensor:
        """Return the loss divided by the number of micro-batches and, with optimizers and a grad scaler, scaled."""
        mode = MODE.get()
        count = self.config.gradient_accumulation_steps
        MODE.set(mode.replace(autocast=None, grad=True))
        try:
            mean = loss / count if count > 1 else loss
            return mean if self._scaler is None or not self._optimizers else self._scaler.scale(mean)
        finally:
            MODE.set(mode)

    def _take_steps(self) -> None:
        if not self._optimizers:
            return
        for optimizer, _ in self._optimizers:
            if self._scaler is not None:
                self._scaler.unscale_(optimizer)
            if any([group.get("clip_grad_max_norm") is not None for group in optimizer.param_groups]):
                optimizer.clip_grad()
            if self._scaler is not None:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if self._scaler is not None:
            self._scaler.update()

    def learning_rates(self) -> list[float]:
        """Return the current learning rates that each launch sets, in the order of the job's numbers."""
        return [
            group["lr"] for optimizer, _ in self._optimizers for group in optimizer.param_groups if _has_rate(group)
        ]

    def advance_schedules(self) -> None:
        """Step all learning rate schedulers once; each call of the graph does this."""
        for _, schedule in self._optimizers:
            if schedule is not None:
                schedule.step()

    # Inspecting the graph

    @property
    def is_compiled(self) -> bool:
        """Whether the graph has been built and not closed since; `load_state_dict` can close it, too."""
        return bool(self._compiled)

    @property
    def job(self) -> Job:
        """The job of the build used last: the ops of `build` and of optimizers' steps, as recorded.

        Raises:
            RuntimeError: unless the graph `is_compiled`.
        """
        return self._latest("job").job

    @property
    def full_job(self) -> Job:
        """The job of the build used last, after all passes; see `job` for errors."""
        return self._latest("full_job").full_job

    @property
    def plan(self) -> Plan:
        """The plan by which `full_job` runs; see `job` for errors."""
        return self._latest("plan").plan

    def _latest(self, attribute: str) -> CompiledGraph:
        if not self._compiled:
            raise RuntimeError(f"{self.name} has no {attribute} yet: it is built by its first call")
        return next(reversed(self._compiled.values()))[0]

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Return by name the states of modules, optimizers ("optimizer0"), schedulers ("lr_sch0") and "grad_scaler"."""
        state: dict[str, dict[str, Any]] = {name: block.origin.state_dict() for name, block in self._blocks.items()}
        for number, (optimizer, schedule) in enumerate(self._optimizers):
            state[f"optimizer{number}"] = optimizer.state_dict()
            if schedule is not None:
                state[f"lr_sch{number}"] = schedule.state_dict()
        if self._scaler is not None:
            state["grad_scaler"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, Any]], strict: bool = True) -> None:
        """Restore the state of modules, optimizers, schedulers and grad scaler from a `state_dict`.

        Modules come first, and stay loaded if the `load_state_dict` of an optimizer, scheduler or scaler raises.  A
        graph with optimizers is closed at the end if a state of these three has been loaded.

        Args:
            state_dict: the states by name; the given state of a module has to be complete in any case.
            strict: whether each name has to be there, and no other.

        Raises:
            KeyError: if `strict`, and a name is missing or unknown.
            TypeError, RuntimeError: if the states of the modules do not fit; then nothing is loaded.
        """
        modules = {name: block.origin for name, block in self._blocks.items()}
        have: dict[str, Any] = dict(modules)
        for number, (optimizer, schedule) in enumerate(self._optimizers):
            have[f"optimizer{number}"] = optimizer
            if schedule is not None:
                have[f"lr_sch{number}"] = schedule
        if self._scaler is not None:
            have["grad_scaler"] = self._scaler
        different = sorted(have.keys() ^ state_dict.keys())
        if strict and different:
            name = different[0]
            raise KeyError(f"{self.name}: {name!r} is {'missing' if name in have else 'not part of the graph'}")
        _load_modules({name: module for name, module in modules.items() if name in state_dict}, state_dict)
        others = {name: owner for name, owner in have.items() if name in state_dict and name not in modules}
        for name, owner in others.items():
            owner.load_state_dict(state_dict[name])
        if self._optimizers and others:
            # The forms refer to state tensors of optimizers, which loading may have replaced.
            self.close()

    def save_to_folder(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph's jobs, settings and tensors to a folder, for `vmflow.save`; see `graph_mode.saving`."""
        save_graph(self.name, self.config, self._block_configs, self._forms_to_save(), folder)

    def _forms_to_save(self) -> list[CompiledGraph]:
        """Return the forms to save: for each structure and metas of arguments, the first for the present state, if any.

        Raises:
            RuntimeError: if the graph has forms, but none for the present state.
        """
        fitting: list[CompiledGraph] = []
        for forms in self._compiled.values():
            fitting += [form for form in forms if form.difference(around=False) is None][:1]
        if self._compiled and not fitting:
            raise RuntimeError(
                f"save: {self.name} has changed since it was built: {self._latest('form').difference(around=False)}; "
                "call it once before saving it"
            )
        return fitting

    def close(self) -> None:
        """Drop all that was built; running launches end normally.  The next call builds the graph again."""
        self._last = None
        while self._compiled:
            for form in self._compiled.popitem()[1]:
                self._forget(form)

    def _forget(self, form: CompiledGraph) -> None:
        self._forms = tuple([other for other in self._forms if other is not form])
        form.close()

    def _require_not_built(self, method: str) -> None:
        if self._compiled:
            raise RuntimeError(f"{self.name}: {method} must be called before the graph is built by its first call")

    def __del__(self) -> None:
        for compiled in self.__dict__.get("_forms", ()):
            compiled.close()

    def __repr__(self) -> str:
        return described(self, self._blocks)

    def draw(self, path: str | os.PathLike[str] | None = None, part: Literal["job", "full_job", "plan"] = "job") -> str:
        """Draw the graph as an SVG image.

        Args:
            path: a file to write the image to.
            part: "job" for the ops as recorded, "full_job" for the ops after all passes, "plan" for the tasks.

        Returns:
            The image as text.

        Raises:
            RuntimeError: unless the graph `is_compiled`.
            ValueError: for any other `part`.
            OSError: if the file cannot be written.

        Example:
            >>> double = flow.nn.Graph.trace(lambda x: x * 2)
            >>> double(flow.ones(2))
            tensor([2., 2.])
            >>> double.graph.draw().startswith("<svg")
            True
        """
        if part not in ("job", "full_job", "plan"):
            raise ValueError(f"draw: part must be 'job', 'full_job' or 'plan', got {part!r}")
        drawn: Job | Plan = getattr(self, part)
        image = drawn.to_svg()
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(image)
        return image

    def _repr_html_(self) -> str:
        if not self._compiled:
            return stacked(line(self.name, "not built yet: its first call builds it"), preformatted(repr(self)))
        return self.job._repr_html_()


class _Itself:
    """Wraps an object; two wrappers are equal only if they wrap the same object."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def _gradients_apart(parameters: list[Tensor]) -> Iterator[None]:
    """A block that parameters enter without gradients; at its end they get their earlier gradients back."""
    kept = {autograd: autograd.grad for autograd in _places(parameters)}
    try:
        for autograd in kept:
            autograd.replace(None)
        yield
    finally:
        for autograd, gradient in kept.items():
            autograd.replace(gradient)


def _places(tensors: Iterable[Tensor]) -> list[AutogradMeta]:
    """Return the autograd data, which holds `grad`, of each tensor that has any."""
    return [autograd for autograd in map(autograd_of, tensors) if autograd is not None]


@contextmanager
def _gradients_given_back(builder: JobBuilder) -> Iterator[None]:
    """A block at whose end tensors get back the gradients that `JobBuilder.accumulates` has set aside."""
    try:
        yield
    finally:
        builder.restore_gradients()


class _Modules(Module):
    """The modules of a graph."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        super().__init__()
        self._modules.update(modules)


def _load_modules(modules: Mapping[str, Module], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Load a state into each module, after checking that all fit."""
    for name in modules:
        if not isinstance(states[name], Mapping):
            raise TypeError(
                f"load_state_dict: expected a dict of tensors for {name!r}, got {type(states[name]).__name__}"
            )
    _Modules(modules).load_state_dict(
        {f"{name}.{key}": value for name in modules for key, value in states[name].items()}
    )


def _has_rate(group: dict[str, Any]) -> bool:
    """Return whether each launch sets a group's learning rate: the group has parameters, and its rate is no tensor."""
    return bool(group["params"]) and not isinstance(group["lr"], Tensor)


@contextmanager
def _steps_refused(name: str, optimizers: Sequence[tuple[Optimizer, Any]]) -> Iterator[None]:
    """A block in which steps of these optimizers raise within `build`: the graph `name` steps them afterwards."""

    def refuse(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if MODE.get().interpreter is None:
            return  # another thread's eager step
        raise RuntimeError(
            f"{name}: add_optimizer has been told of this {type(optimizer).__name__}, which the graph steps after "
            "`build`; call no step() in `build`"
        )

    handles = [optimizer.register_step_pre_hook(refuse) for optimizer, _ in optimizers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _rates_apart(optimizers: Sequence[tuple[Optimizer, Any]]) -> Iterator[None]:
    """A block at whose end groups get earlier learning rates back; if it raises, new optimizer state is removed."""
    groups = [group for optimizer, _ in optimizers for group in optimizer.param_groups]
    rates = [group["lr"] for group in groups]
    known = [
        (optimizer, {parameter: set(state) for parameter, state in optimizer.state.items()})
        for optimizer, _ in optimizers
    ]
    try:
        yield
    except BaseException:
        for optimizer, before in known:
            for parameter in list(optimizer.state):
                keys = before.get(parameter)
                if keys is None:
                    del optimizer.state[parameter]
                    continue
                for name in set(optimizer.state[parameter]) - keys:
                    del optimizer.state[parameter][name]
        raise
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
