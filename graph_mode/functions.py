"""`global_function` and `trace`: plain functions of tensors that become graphs when they are first called.

OneFlow's job functions declare the shapes of their arguments, make their parameters by name while running, and end in
``optimizer.minimize(loss)``.  Here a call's arguments give the shapes; the modules and tensors that the function uses
hold the parameters; and a function of the type "train" gets its optimizers in the decorator, and returns the loss.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final, overload

import attrs
import numpy as np

from vmflow.autograd import enable_grad
from vmflow.context import MODE
from vmflow.instructions.size import Size
from vmflow.ops.creation.creation import tensor
from vmflow.optim.optimizer import Optimizer
from vmflow.tensors import Tensor

from . import naming
from .config import GraphConfig
from .graph import Graph
from .lazy import require_no_build

if TYPE_CHECKING:
    from vmflow.instructions.blob import Storage

Kind: TypeAlias = Literal["predict", "train"]

# The argument `size` of `with_dynamic_input_shape` for a function's graph.
KEPT: Final = 10

_counts: Counter[str] = Counter()

# The function whose graph is being called: `FunctionGraph.build` calls it if the graph has to be built.
_FUNCTION: ContextVar[Callable[..., Any] | None] = ContextVar("vmflow.graph_mode.function", default=None)


@attrs.frozen
class Options:
    """The arguments of the decorator `global_function`.

    Attributes:
        kind: "predict" or "train".
        config: the settings of the function's graphs.
        optimizers: pairs of an optimizer and its learning rate scheduler, which may be None.
    """

    kind: Kind = "predict"
    config: GraphConfig = attrs.field(factory=GraphConfig)
    optimizers: tuple[tuple[Optimizer, Any], ...] = ()


@final
class FunctionGraph(Graph):
    """The graph of a plain function.

    The graph does not refer to the function, which may be a method of an object that refers to the graph.
    """

    def __init__(self, name: str, options: Options) -> None:
        super().__init__()
        self.name = f"{name}_{_counts[name]}"
        _counts[name] += 1
        self.config = options.config
        for optimizer, schedule in options.optimizers:
            self.add_optimizer(optimizer, lr_sch=schedule)
        self.with_dynamic_input_shape(size=KEPT)
        self._kind = options.kind

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call this graph, which calls `function` in its `build` if it has to be built."""
        token = _FUNCTION.set(function)
        try:
            return self(*args, **kwargs)
        finally:
            _FUNCTION.reset(token)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        function = _FUNCTION.get()
        if function is None:
            raise RuntimeError(f"{self.name} has not been built for such arguments; call the function itself")
        if self._kind == "predict":
            return function(*args, **kwargs)
        with enable_grad():
            result = function(*args, **kwargs)
            self._loss_of(result).backward()
        return result

    def _loss_of(self, result: Any) -> Tensor:
        first = result[0] if isinstance(result, (tuple, list)) and result else result
        if not isinstance(first, Tensor):
            raise TypeError(
                f'{self.name}: a function of the type "train" returns the loss, or a tuple that begins with it; this '
                f"one returned {_kind_of(result)}"
            )
        if first.numel() != 1:
            raise ValueError(
                f"{self.name}: the loss must be one number, not a tensor of the shape {tuple(first.shape)}; take its "
                "mean() or sum()"
            )
        if not first.requires_grad:
            raise ValueError(f"{self.name}: the loss does not depend on anything that requires a gradient")
        return first

    def _functions(self) -> list[Callable[..., Any]]:
        function = _FUNCTION.get()
        return [*super()._functions(), *([] if function is None else [function])]

    def _names(self) -> dict[Storage, tuple[str, Tensor]]:
        names = super()._names()
        paths: naming.Paths = {}
        self._learn(names, paths)
        return names

    def _paths(self) -> dict[Any, str]:
        paths = super()._paths()
        self._learn({}, paths)
        return paths

    def _learn(self, names: naming.Names, paths: naming.Paths) -> None:
        """Add to `names` and `paths` the tensors and modules among `naming.surroundings` of the function."""
        function = _FUNCTION.get()
        for name, value in naming.surroundings(function) if function is not None else ():
            if isinstance(value, Tensor):
                naming.add_tensor(value, name, names)
            else:
                naming.add_module(value, name, names, paths)


@final
class CompiledFunction:
    """A function that runs as a graph, made by `global_function` or `trace`.

    As an attribute of a class, a function is a method, with a graph for each object; a module is not.

    The function's Python code runs once for each build of its graph; later calls repeat the recorded computations with
    tensors only.  Values of arguments that are no tensors, and all that `Graph.build` lists, such as autocast, are part
    of a build: other values need another one.

    Args:
        function: the function to compile.
        options: see `Options`.

    Attributes:
        graph: the function's graph; for a method, the graph of calls through the class, with the object as argument.

    Raises:
        TypeError: by the method, if its object cannot be referred to weakly.

    Example:
        >>> double = flow.nn.Graph.trace(lambda x: x * 2)
        >>> double
        <compiled function function, type='predict'>
        >>> double(flow.tensor([1, 2]))
        tensor([2, 4])
    """

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._options = options
        self.graph = FunctionGraph(_name_of(function), options)
        # The graph of each object's method, by the object's id, since the object may not be hashable.
        self._bound: dict[int, tuple[weakref.ref[Any], FunctionGraph]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function as a graph, which is built at the first call, and again for arguments of other shapes.

        While another graph is being built in this context, the function itself is called, as a part of that graph.

        Args:
            args: the function's arguments, also nested in tuples, lists and dicts.  numpy arrays become tensors.
                Values other than tensors are part of the graph: another value needs another build.
            kwargs: the function's keyword arguments, treated in the same way.

        Raises:
            ValueError, StopIteration, SessionClosed, VirtualMachineClosed: as for a call of a `Graph`.
            RuntimeError: by a function of the type "train", if another graph is being built.
            TypeError, ValueError: by a function of the type "train", if it returns no loss of one element that requires
                a gradient.
        """
        return _call(self._options, self._function, self.graph, args, kwargs)

    def call_for(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function as a method of `instance`, as `__call__` does, with the graph of that object."""
        method = self._function.__get__(instance)
        return _call(self._options, method, self.graph_of(instance), args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or not hasattr(self._function, "__get__"):
            return self
        return BoundFunction(self, instance)

    def graph_of(self, instance: Any) -> FunctionGraph:
        """Return the graph of the function as a method of `instance`; the first call makes it."""
        known = self._bound.get(id(instance))
        if known is not None and known[0]() is instance:
            return known[1]
        number = id(instance)
        bound = self._bound
        graph = FunctionGraph(_name_of(self._function), self._options)

        def forget(reference: weakref.ref[Any]) -> None:
            if number in bound and bound[number][0] is reference:
                del bound[number]

        try:
            entry = (weakref.ref(instance, forget), graph)
        except TypeError:
            raise TypeError(
                f"{_name_of(self._function)}: a compiled method needs objects that can be weakly referenced; add "
                f"'__weakref__' to the __slots__ of {type(instance).__name__}"
            ) from None
        if known is not None:
            bound.pop(number, None)  # the entry is of a dead object that had the same id
        return bound.setdefault(number, entry)[1]

    def __repr__(self) -> str:
        return f"<compiled function {_name_of(self._function)}, type={self._options.kind!r}>"


@final
class BoundFunction:
    """A compiled function bound to an object, as a method of the object."""

    def __init__(self, compiled: CompiledFunction, instance: Any) -> None:
        self.__func__ = compiled
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the method; see `CompiledFunction.__call__`."""
        return self.__func__.call_for(self.__self__, args, kwargs)

    @property
    def graph(self) -> FunctionGraph:
        """The graph that runs this method of this object."""
        return self.__func__.graph_of(self.__self__)

    def __repr__(self) -> str:
        return f"<{self.__func__!r} of {self.__self__!r}>"


def _call(
    options: Options, function: Callable[..., Any], graph: FunctionGraph, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if MODE.get().interpreter is None:
        return graph.run(function, _with_tensors(args), _with_tensors(kwargs))
    if options.kind == "train":
        require_no_build(f"{graph.name} takes steps of its optimizer, and", "call one after the other")
    return function(*_with_tensors(args), **_with_tensors(kwargs))


def _with_tensors(value: Any) -> Any:
    """Return nested arguments with tensors in place of numpy arrays, in new tuples, lists and dicts."""
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, dict):
        return {key: _with_tensors(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and not isinstance(value, Size):
        items = [_with_tensors(item) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


# The decorators


def trace(func: Callable[..., Any]) -> CompiledFunction:
    """Return a function that runs `func` as a graph, built by the first call: ``nn.Graph.trace(func)``.

    Args:
        func: a function, a method or a module.

    Raises:
        TypeError: if `func` is a class, a graph, a classmethod or staticmethod, a coroutine function or a generator, or
            cannot be called.

    Example:
        >>> flow.nn.Graph.trace(flow.nn.ReLU())(flow.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    _check_function(func, "nn.Graph.trace")
    return CompiledFunction(func, Options())


@overload
def global_function(type: Callable[..., Any]) -> CompiledFunction: ...


@overload
def global_function(
    type: Kind = "predict",
    function_config: GraphConfig | None = None,
    *,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    lr_scheduler: Any = None,
) -> Callable[[Callable[..., Any]], CompiledFunction]: ...


def global_function(
    type: Kind | Callable[..., Any] = "predict",
    function_config: GraphConfig | None = None,
    *,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    lr_scheduler: Any = None,
) -> Any:
    """Decorate a function so that it runs as a graph.

    As ``@flow.global_function``, without arguments, the type is "predict".

    Args:
        type: "predict" computes the function's results.  "train" also takes a step: the function returns the loss, a
            tensor of one element, or a tuple or list that begins with it.
        function_config: settings of the graph, such as mixed precision.
        optimizer: one or several optimizers, for "train".  Gradients begin at zero in every call, and do not appear in
            the parameters' `grad`.
        lr_scheduler: the optimizer's scheduler, or a list with a scheduler or None for each optimizer; each call steps
            the schedulers.

    Raises:
        TypeError: if the function is a class, a graph, a classmethod or staticmethod, a coroutine function or a
            generator, or cannot be called; if `function_config` is no `GraphConfig`, or `type` is one; if
            `Graph.add_optimizer` refuses the class of an optimizer or scheduler.
        ValueError: for any other `type`; if "train" has no optimizer, "predict" has an optimizer or scheduler, or
            schedulers do not fit.

    Example:
        >>> weight = flow.nn.Parameter(flow.ones(2))
        >>> @flow.global_function(type="train", optimizer=flow.optim.SGD([weight], lr=0.5))
        ... def train(x):
        ...     return (weight * x).sum()
        >>> train(flow.tensor([1.0, 2.0])), weight.detach()
        (tensor(3.), tensor([0.5000, 0.0000]))
    """
    if callable(type):
        decorate: Any = global_function("predict", function_config, optimizer=optimizer, lr_scheduler=lr_scheduler)
        return decorate(type)
    if isinstance(type, GraphConfig):
        raise TypeError('global_function: the type comes first: global_function("predict", config)')
    if type not in ("predict", "train"):
        raise ValueError(f'global_function: the type is "predict" or "train", not {type!r}')
    if function_config is not None and not isinstance(function_config, GraphConfig):
        raise TypeError(
            f"global_function: function_config must be a vmflow.nn.graph.GraphConfig, not {_kind_of(function_config)}"
        )
    options = Options(type, function_config or GraphConfig(), _optimizers(type, optimizer, lr_scheduler))

    def decorator(func: Callable[..., Any]) -> CompiledFunction:
        _check_function(func, "global_function")
        return CompiledFunction(func, options)

    return decorator


def _optimizers(kind: Kind, optimizer: Any, schedule: Any) -> tuple[tuple[Optimizer, Any], ...]:
    if kind == "predict":
        if optimizer is not None or schedule is not None:
            raise ValueError('global_function: only the type "train" takes an optimizer and a scheduler')
        return ()
    several = isinstance(optimizer, (tuple, list))
    optimizers = list(optimizer) if several else [] if optimizer is None else [optimizer]
    if not optimizers:
        raise ValueError(
            'global_function: the type "train" needs an optimizer: global_function("train", optimizer=...)'
        )
    schedules = list(schedule) if isinstance(schedule, (tuple, list)) else [schedule] if schedule is not None else []
    if several and not schedules:
        schedules = [None] * len(optimizers)
    schedules += [None] * (not several and not schedules)
    if len(schedules) != len(optimizers):
        raise ValueError(
            f"global_function: {len(optimizers)} optimizers and {len(schedules)} schedulers; give one scheduler or "
            "None for each optimizer"
        )
    pairs = tuple(zip(optimizers, schedules, strict=True))
    for fitting, scheduler in pairs:
        # The pairs are checked now, so that errors are raised before a function is decorated.
        Graph().add_optimizer(fitting, lr_sch=scheduler)
    return pairs


def _check_function(function: Any, caller: str) -> None:
    if isinstance(function, (classmethod, staticmethod)):
        kind = function.__class__.__name__
        raise TypeError(f"{caller}: put @{kind} above the decorator that compiles, not below it")
    if isinstance(function, (CompiledFunction, BoundFunction, Graph)):
        raise TypeError(f"{caller}: {function!r} is a graph already")
    if inspect.isclass(function) or not callable(function):
        raise TypeError(f"{caller}: expected a function of tensors, got {_kind_of(function)}")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for candidate in (function, called):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(
                f"{caller}: {_name_of(function)} is a coroutine function, and a graph cannot wait while it is built; "
                "make it a plain function, and await its results"
            )
        if inspect.isgeneratorfunction(candidate):
            raise TypeError(f"{caller}: {_name_of(function)} is a generator; return a list of tensors instead")


def _kind_of(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    return "function" if name == "<lambda>" else str(name)
