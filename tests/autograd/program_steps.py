"""Programs as data, for two libraries to run: steps over tensors with names, and the functions that run them.

A step that misses an operand is passed over, so that a program stays one when steps are dropped.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import attrs
import numpy as np

import vmflow

from .program_functions import functions, plain_functions


@attrs.frozen
class Step:
    """One step.

    Attributes:
        op: a name in `STEPS`.
        inputs: names of tensors, modules.
        params: its other arguments; bodies are tuples of steps.
        outputs: names for the results.
    """

    op: str
    inputs: tuple[str, ...] = ()
    params: tuple[Any, ...] = ()
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line for each step, those of a body indented."""
        bodies = [part for part in self.params if _is_body(part)]
        params = [repr(part) for part in self.params if not _is_body(part)]
        line = f"{', '.join(self.outputs) or '_'} = {self.op}({', '.join([*self.inputs, *params])})"
        inner = [f"    {each}" for body in bodies for step in body for each in str(step).splitlines()]
        return "\n".join([line, *inner])


Program: TypeAlias = "tuple[Step, ...]"


def _is_body(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) > 0 and isinstance(part[0], Step)


@attrs.define
class Library:
    """A library that runs programs.

    Attributes:
        name: for messages.
        module: `vmflow` or `torch`.
        functions: with gradients of their own, or plain ones, by name.
        checkpoint: calls a function.
        plain: whether checkpoints and functions are done without.
        lasting: whether saved values are copied and graphs kept, so that no change in place and no second backward
            pass is refused.
    """

    name: str
    module: Any
    functions: dict[str, Callable[..., Any]]
    checkpoint: Callable[..., Any]
    plain: bool = False
    lasting: bool = False

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Around a whole program."""
        self.module.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.lasting:
                with self.module.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda x: x):
                    yield
            else:
                yield


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@functools.cache
def our_library(plain: bool = False) -> Library:
    """vmflow; `plain` without checkpoints and functions."""
    autograd = vmflow.autograd
    if plain:
        return Library("vmflow without", vmflow, plain_functions(), _called, True)
    found = functions(autograd, autograd.once_differentiable)
    return Library("vmflow", vmflow, found, vmflow.utils.checkpoint.checkpoint)


@functools.cache
def torch_library(plain: bool = False) -> Library:
    """PyTorch; `plain` without checkpoints and functions, and with copies of all that is saved."""
    torch = import_module("torch")
    if plain:
        return Library("torch without", torch, plain_functions(), _called, True, True)
    checkpoint = import_module("torch.utils.checkpoint").checkpoint
    found = functions(torch.autograd, torch.autograd.function.once_differentiable)
    return Library("torch", torch, found, lambda *given: checkpoint(*given, use_reentrant=False))


@attrs.define
class Run:
    """A program being run.

    Attributes:
        library: that runs it.
        tensors: by name, and modules.
        heard: the arguments of the calls of each hook.
        handles: of hooks.
    """

    library: Library
    tensors: dict[str, Any] = attrs.field(factory=dict)
    heard: dict[str, list[Any]] = attrs.field(factory=dict)
    handles: dict[str, Any] = attrs.field(factory=dict)

    def inner(self, tensors: Mapping[str, Any]) -> Run:
        """For the body of a function: it sees the outer tensors and these."""
        return Run(self.library, {**self.tensors, **tensors}, self.heard, self.handles)

    def step(self, step: Step) -> None:
        """Do one step."""
        if any([name not in self.tensors for name in step.inputs]):
            return
        results = STEPS[step.op](self, [self.tensors[name] for name in step.inputs], *step.params)
        if results is None:
            return
        given = results if isinstance(results, (tuple, list)) else (results,)
        self.tensors.update(
            [(name, value) for name, value in zip(step.outputs, given, strict=False) if value is not None]
        )

    def hear(self, name: str, gradient: Any) -> None:
        """Note the gradient that a hook was called with; PyTorch calls some with None."""
        if gradient is not None:
            self.heard.setdefault(name, []).append(as_array(gradient))


def as_array(tensor: Any) -> Any:
    """The values, as numpy has them."""
    tensor = tensor.detach()
    if str(tensor.dtype).rpartition(".")[2] == "bfloat16":
        tensor = tensor.float()
    # PyTorch has zeros without memory, which it gives to numpy only so.
    return np.array(tensor.numpy(force=True) if hasattr(tensor, "_is_zerotensor") else tensor.numpy())


Action: TypeAlias = Callable[..., Any]
STEPS: dict[str, Action] = {}


def _defined(name: str) -> Callable[[Action], Action]:
    def keep(action: Action) -> Action:
        STEPS[name] = action
        return action

    return keep


def numbers(shape: Sequence[int], seed: int) -> Any:
    """Values between -1.5 and 1.5."""
    return 1.5 * np.sin(np.arange(1, 1 + int(np.prod(shape, dtype=int))) * (1.7 + seed % 13) + seed).reshape(shape)


def _dtype(run: Run, name: str) -> Any:
    return getattr(run.library.module, name)


# Where tensors come from


@_defined("leaf")
def _leaf(run: Run, given: list[Any], shape: tuple[int, ...], dtype: str, seed: int, wanted: bool) -> Any:
    made = run.library.module.tensor(numbers(shape, seed).astype(dtype))
    return made.requires_grad_() if wanted else made


@_defined("new_leaf")
def _new_leaf(run: Run, given: list[Any]) -> Any:
    return given[0].detach().clone().requires_grad_()


@_defined("require")
def _require(run: Run, given: list[Any]) -> None:
    given[0].requires_grad_()


@_defined("module")
def _module(run: Run, given: list[Any], inside: int, outside: int, dtype: str, seed: int, hook: str | None) -> Any:
    nn = run.library.module.nn
    made = nn.Linear(inside, outside)
    for name, shape in (("weight", (outside, inside)), ("bias", (outside,))):
        setattr(made, name, nn.Parameter(run.library.module.tensor(numbers(shape, seed).astype(dtype))))
    if hook is not None:

        def heard(module: Any, of_inputs: Any, of_outputs: Any) -> None:
            for gradient in (*of_inputs, *of_outputs):
                run.hear(hook, gradient)

        run.handles[hook] = made.register_full_backward_hook(heard)
    return made


@_defined("call")
def _call(run: Run, given: list[Any]) -> Any:
    return given[0](given[1])


@_defined("gradient_of")
def _gradient_of(run: Run, given: list[Any]) -> Any:
    return given[0].grad


# Views and ops

PARTS: Mapping[str, Callable[..., Any]] = {
    "unbind": lambda x, dim: [x.select(dim, at) for at in range(x.shape[dim])],
    "split": lambda x, size, dim: [
        x.narrow(dim, at, min(size, x.shape[dim] - at)) for at in range(0, x.shape[dim], size)
    ],
}


@_defined("method")
def _method(run: Run, given: list[Any], name: str, *params: Any) -> Any:
    if run.library.plain and name in PARTS:
        return PARTS[name](given[0], *params)
    return getattr(given[0], name)(*given[1:], *params)


@_defined("copied")
def _copied(run: Run, given: list[Any], name: str, *params: Any) -> Any:
    return getattr(given[0], name)(*params).clone()


@_defined("get")
def _get(run: Run, given: list[Any], index: Any) -> Any:
    return given[0][_index(run, index)]


@_defined("set")
def _set(run: Run, given: list[Any], index: Any, number: float | None) -> None:
    given[0][_index(run, index)] = number if number is not None else given[1]


def _index(run: Run, index: tuple[Any, ...]) -> Any:
    """("slice", a, b, c), ("at", n), ("many", ...), ("mask", shape, every) or "..." for each dimension."""
    module = run.library.module
    made: list[Any] = []
    for part in index:
        if part == "...":
            made.append(...)
        elif part[0] == "slice":
            made.append(slice(*part[1:]))
        elif part[0] == "at":
            made.append(part[1])
        elif part[0] == "many":
            made.append(module.tensor(np.array(part[1:], np.int64)))
        else:
            made.append(_mask(run, *part[1:]))
    return tuple(made) if len(made) > 1 else made[0]


def _mask(run: Run, shape: tuple[int, ...], every: int) -> Any:
    return run.library.module.tensor((np.arange(int(np.prod(shape, dtype=int))) % every == 0).reshape(shape))


@_defined("function_of_module")
def _of_module(run: Run, given: list[Any], name: str, *params: Any) -> Any:
    return getattr(run.library.module, name)(*given, *params)


@_defined("cat")
def _cat(run: Run, given: list[Any], name: str, dim: int) -> Any:
    return getattr(run.library.module, name)(given, dim)


@_defined("softmax")
def _softmax(run: Run, given: list[Any], dim: int) -> Any:
    return given[0].softmax(dim)


@_defined("add_scaled")
def _add_scaled(run: Run, given: list[Any], alpha: float) -> Any:
    return given[0].add_(given[1], alpha=alpha)


@_defined("by_index")
def _by_index(run: Run, given: list[Any], name: str, dim: int, index: tuple[int, ...], *params: Any) -> Any:
    places = run.library.module.tensor(np.array(index, np.int64))
    return getattr(given[0], name)(dim, places, *given[1:], *params)


@_defined("masked")
def _masked(run: Run, given: list[Any], name: str, every: int, number: float) -> Any:
    return getattr(given[0], name)(_mask(run, tuple(given[0].shape), every), number)


@_defined("out")
def _out(run: Run, given: list[Any], name: str) -> Any:
    if run.library.plain:
        return given[0].copy_(getattr(run.library.module, name)(*given[1:]))
    return getattr(run.library.module, name)(*given[1:], out=given[0])


# Functions and blocks


@_defined("function")
def _function(run: Run, given: list[Any], name: str) -> Any:
    return run.library.functions[name](*given)


@_defined("checkpoint")
def _checkpoint(run: Run, given: list[Any], names: tuple[str, ...], body: Program, results: tuple[str, ...]) -> Any:
    def function(*arguments: Any) -> Any:
        inner = run.inner(dict(zip(names, arguments, strict=True)))
        for step in body:
            inner.step(step)
        found = [inner.tensors[name] for name in results if name in inner.tensors]
        return found[0] if len(found) == 1 else tuple(found)

    return run.library.checkpoint(function, *given)


@_defined("no_grad")
def _no_grad(run: Run, given: list[Any], body: Program) -> None:
    with run.library.module.no_grad():
        for step in body:
            run.step(step)


@_defined("autocast")
def _autocast(run: Run, given: list[Any], dtype: str, cached: bool, body: Program) -> None:
    with run.library.module.autocast("cpu", dtype=_dtype(run, dtype), cache_enabled=cached):
        for step in body:
            run.step(step)


@_defined("layer_norm")
def _layer_norm(run: Run, given: list[Any]) -> Any:
    return run.library.module.nn.functional.layer_norm(given[0], tuple(given[0].shape[-1:]))


@_defined("chosen")
def _chosen(run: Run, given: list[Any]) -> Any:
    return run.library.module.where(given[0] > 0, given[0], given[1])


@_defined("dropout")
def _dropout(run: Run, given: list[Any], rate: float) -> Any:
    return run.library.module.nn.functional.dropout(given[0], rate, True)


# Gradients and hooks


@_defined("hook")
def _hook(run: Run, given: list[Any], name: str, factor: float | None) -> None:
    def heard(gradient: Any) -> Any:
        run.hear(name, gradient)
        return None if factor is None or gradient is None else gradient * factor

    _update_history(given[0])
    run.handles[name] = given[0].register_hook(heard)


@_defined("unhook")
def _unhook(run: Run, given: list[Any], name: str) -> None:
    if name in run.handles:
        run.handles[name].remove()


@_defined("retain")
def _retain(run: Run, given: list[Any]) -> None:
    _update_history(given[0])
    given[0].retain_grad()


def _update_history(view: Any) -> None:
    """Make PyTorch update the history of a view: else it crashes with some hooks, or takes the view for a leaf."""
    if view.requires_grad and view.grad_fn is None and not view.is_leaf:
        raise RuntimeError("a tensor that is no leaf and has no history")


def _weights(run: Run, tensor: Any, seed: int) -> Any:
    values = numbers(tuple(tensor.shape), seed)
    return run.library.module.tensor(values).to(tensor.dtype)


def _loss(run: Run, given: list[Any], seed: int) -> Any:
    total = 0
    for at, tensor in enumerate(given):
        real = run.library.module.view_as_real(tensor) if "complex" in str(tensor.dtype) else tensor
        total = total + (real * _weights(run, real, seed + at)).sum()
    return total


@_defined("backward")
def _backward(run: Run, given: list[Any], seed: int, retain: bool, create: bool) -> None:
    _loss(run, given, seed).backward(retain_graph=retain or create or run.library.lasting, create_graph=create)


@_defined("backward_from")
def _backward_from(run: Run, given: list[Any], seed: int, retain: bool) -> None:
    gradients = [_weights(run, tensor, seed + at) for at, tensor in enumerate(given)]
    run.library.module.autograd.backward(given, gradients, retain_graph=retain or run.library.lasting)


@_defined("grad")
def _grad(run: Run, given: list[Any], count: int, seed: int, retain: bool, create: bool) -> Any:
    outputs, inputs = given[:count], given[count:]
    found = run.library.module.autograd.grad(
        _loss(run, outputs, seed),
        inputs,
        retain_graph=retain or create or run.library.lasting,
        create_graph=create,
        allow_unused=True,
    )
    # Where a whole tensor was overwritten, one library has zeros and the other nothing.
    # Gradients may share memory, each library's others.
    return [
        run.library.module.zeros_like(x) if tensor is None else tensor.clone()
        for tensor, x in zip(found, inputs, strict=True)
    ]


@_defined("change_gradient")
def _change_gradient(run: Run, given: list[Any], name: str, *params: Any) -> None:
    gradient = given[0].grad
    if gradient is not None:
        with run.library.module.no_grad():
            getattr(gradient, name)(*params)


@_defined("drop_gradient")
def _drop_gradient(run: Run, given: list[Any]) -> None:
    given[0].grad = None
