"""Automatic differentiation: `backward`, `grad`, the grad modes and `Function`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast, overload

from vmflow.anomaly import detect_anomaly as detect_anomaly, set_detect_anomaly as set_detect_anomaly
from vmflow.context import MODE
from vmflow.operands import check_tensors as _check_tensors
from vmflow.ops.copying import conform as _conform
from vmflow.ops.creation.creation import ones_like, zeros_like
from vmflow.ops.shape.joining import stack
from vmflow.tensors import Tensor

from .engine import run_backward
from .grad_mode import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
    set_multithreading_enabled as set_multithreading_enabled,
)
from .history import check_history, edge_of
from .node import AutogradMeta, Edge, Place

if TYPE_CHECKING:
    from vmflow.interpreters import Recorder

    from . import functional as functional, graph as graph
    from .function import (
        Function as Function,
        FunctionContext as FunctionContext,
        once_differentiable as once_differentiable,
    )
    from .gradient_check import GradcheckError as GradcheckError, gradcheck as gradcheck, gradgradcheck as gradgradcheck
    from .graph import GradientEdge

    # A place whose gradient can be asked for, and from which a backward pass can begin.
    Root: TypeAlias = Tensor | GradientEdge
    Inputs: TypeAlias = Root | Sequence[Root] | dict[str, Tensor]


def backward(
    tensors: Root | Sequence[Root],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Inputs | None = None,
) -> None:
    """Accumulate the gradients of `tensors` into the leaves they were made from.

    Args:
        tensors: to differentiate; `graph.GradientEdge`s as well.
        grad_tensors: the gradient of the final value by each tensor, of its shape and device, cast to its dtype; None
            stands for 1, for a tensor of one element only.
        retain_graph: whether to allow another pass; by default as `create_graph`.
        create_graph: whether the pass itself is recorded.
        inputs: accumulate into these, and no other leaves: leaves, their edges, or results of ops, which then have a
            gradient as after `retain_grad`.

    Raises:
        TypeError: for arguments, or results of hooks, that are no tensors.
        RuntimeError: if a tensor does not require a gradient, or a gradient is missing or does not fit; if `inputs` is
            empty, or an input does not require a gradient or is the edge of an op's result; if saved tensors were
            freed by an earlier pass, or changed in place; for a `GradientEdge` while an `nn.Graph` is built.

    Example:
        >>> x = flow.tensor([1.0, 2.0], requires_grad=True)
        >>> flow.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    outputs = _as_tuple("backward", tensors)
    targets: tuple[Root, ...] = ()
    wanted: list[Place] | None = None
    if inputs is not None:
        targets = _targets("backward", inputs)
        if not targets:
            raise RuntimeError("backward: inputs is empty; leave it out to accumulate into all leaves")
        edges = _edges("backward", targets)
        for position, (target, edge) in enumerate(zip(targets, edges, strict=True)):
            if edge.node is not None and not isinstance(target, Tensor):
                raise RuntimeError(
                    f"backward: input {position} is the edge of an op's result, whose gradient has no tensor to go to; "
                    "pass the tensor itself, or call autograd.grad"
                )
        wanted = [edge.place() for edge in edges]
    roots = _roots(_final(outputs), grad_tensors)
    for target in targets:
        if isinstance(target, Tensor):
            target.retain_grad()
    run_backward(
        roots,
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        wanted=wanted,
        accumulate=True,
    )


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """PyTorch's older way to make a leaf: a tensor of the shape and memory of `data`, without history.

    Raises:
        TypeError: if `data` is no tensor, or `requires_grad` no bool.
        RuntimeError: if `requires_grad` is True for a tensor of integers or bools.

    Example:
        >>> flow.autograd.Variable(flow.ones(2), requires_grad=True)
        tensor([1., 1.], requires_grad=True)
    """
    _check_tensors("Variable", data)
    return data.detach().requires_grad_(requires_grad)


@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: dict[str, Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> dict[str, Tensor | None]: ...


@overload
def grad(
    outputs: Root | Sequence[Root],
    inputs: Root | Sequence[Root],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...


def grad(
    outputs: Root | Sequence[Root],
    inputs: Inputs,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of `outputs` by each of `inputs`; leaves accumulate nothing.

    Args:
        outputs: to differentiate; `graph.GradientEdge`s as well.
        inputs: to differentiate by; leaves or not, and `graph.GradientEdge`s as well.
        grad_outputs: the gradient of the final value by each output, of its shape and device, cast to its dtype; None
            stands for 1, for a tensor of one element only.
        retain_graph: whether to allow another pass; by default as `create_graph`.
        create_graph: whether the result can be differentiated in turn.
        only_inputs: PyTorch's; must be True.
        allow_unused: give None for an input that the outputs do not depend on, instead of raising; by default as
            `materialize_grads`.
        is_grads_batched: each of `grad_outputs` is a batch along a further first dimension, and so are the gradients,
            but not zeros of unused inputs.  Each row takes a backward pass.
        materialize_grads: give zeros of an input's shape if the outputs do not depend on it.

    Returns:
        A tuple of the gradients, None for unused inputs if allowed; a dict of the gradients, if `inputs` is a dict.

    Raises:
        ValueError: for ``only_inputs=False``, and for ``allow_unused=False`` with `materialize_grads`.
        TypeError: as `backward`.
        RuntimeError: for outputs, gradients and saved tensors as `backward`; for an input that does not require a
            gradient or, unless allowed, was not used; for batches of gradients that do not fit; for `materialize_grads`
            with a `GradientEdge` in `inputs`.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> flow.autograd.grad(x * x, x)
        (tensor(6.),)
    """
    if not only_inputs:
        raise ValueError("grad: only_inputs=False was taken out of PyTorch; use backward() to accumulate")
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: allow_unused=False contradicts materialize_grads=True, which gives zeros; leave it out")
    targets = _targets("grad", inputs)
    if materialize_grads and not all([isinstance(target, Tensor) for target in targets]):
        raise RuntimeError("grad: materialize_grads=True needs tensors as inputs; a GradientEdge has no shape")
    wanted = [edge.place() for edge in _edges("grad", targets)]
    retain_graph = create_graph if retain_graph is None else retain_graph
    roots = _as_tuple("grad", outputs)
    results: list[Tensor | None]
    if is_grads_batched:
        results = _batched(roots, grad_outputs, wanted, retain_graph, create_graph)
    else:
        results = run_backward(
            _roots(roots, grad_outputs), retain_graph=retain_graph, create_graph=create_graph, wanted=wanted
        )
    for position, result in enumerate(results):
        if result is not None:
            continue
        if materialize_grads:
            target = targets[position]
            assert isinstance(target, Tensor)
            results[position] = zeros_like(target, requires_grad=False)
        elif not allow_unused:
            raise RuntimeError(
                f"grad: the outputs do not depend on input {position}; pass allow_unused=True to get None for it"
            )
    return dict(zip(inputs, results, strict=True)) if isinstance(inputs, dict) else tuple(results)


def _batched(
    outputs: tuple[Root, ...], gradients: Any, wanted: list[Place], retain_graph: bool, create_graph: bool
) -> list[Tensor | None]:
    """The gradients for all rows of `gradients`, stacked, by one pass per row."""
    given: tuple[Any, ...] = () if gradients is None else _listed(gradients)
    if len(given) != len(outputs):
        raise RuntimeError(f"grad: is_grads_batched=True needs a gradient for each of {len(outputs)} outputs")
    for position, (output, gradient) in enumerate(zip(outputs, given, strict=True)):
        if not isinstance(gradient, Tensor) or gradient.ndim == 0:
            raise RuntimeError(f"grad: is_grads_batched=True needs a batch of gradients for output {position}")
        if isinstance(output, Tensor) and gradient.shape[1:] != output.shape:
            raise RuntimeError(
                f"grad: with is_grads_batched=True, the gradients of output {position} of shape {list(output.shape)} "
                f"must have one more dimension before it, not shape {list(gradient.shape)}"
            )
    sizes = {gradient.shape[0] for gradient in given}
    if len(sizes) != 1 or 0 in sizes:
        raise RuntimeError(f"grad: batches of gradients must be of one size, at least 1, got {sorted(sizes)}")
    size = sizes.pop()
    rows = [
        run_backward(
            _roots(outputs, [gradient[row] for gradient in given]),
            retain_graph=retain_graph or row < size - 1,
            create_graph=create_graph,
            wanted=wanted,
        )
        for row in range(size)
    ]
    columns = [[gradient for gradient in column if gradient is not None] for column in zip(*rows, strict=True)]
    return [stack(column) if len(column) == size else None for column in columns]


def _as_tuple(name: str, tensors: Root | Sequence[Root]) -> tuple[Root, ...]:
    """Return the tensors and edges that the function `name` was given, one or several, as a tuple.

    Raises:
        TypeError: for anything else.
    """
    # A `GradientEdge` is a tuple itself, and must not be taken for a tuple of tensors.
    single = isinstance(tensors, Tensor) or hasattr(tensors, "output_nr") or not hasattr(tensors, "__iter__")
    given = (cast("Root", tensors),) if single else tuple(cast("Sequence[Root]", tensors))
    _check_tensors(name, *[tensor for tensor in given if not hasattr(tensor, "output_nr")])
    return given


def _targets(name: str, inputs: Inputs) -> tuple[Root, ...]:
    return _as_tuple(name, tuple(inputs.values()) if isinstance(inputs, dict) else inputs)


def _edge_of(target: Root) -> Edge:
    if isinstance(target, Tensor):
        return edge_of(target)
    from .graph import edge_at  # which few programs need

    return edge_at(target)


def _edges(name: str, targets: tuple[Root, ...]) -> list[AutogradMeta]:
    """Return the edges of the graph at which the gradients of `targets` arrive.

    Raises:
        RuntimeError: if a tensor requires no gradient.
    """
    found: list[AutogradMeta] = []
    for position, target in enumerate(targets):
        edge = _edge_of(target)
        if edge is None:
            raise RuntimeError(f"{name}: input {position} does not require a gradient")
        found.append(edge)
    return found


def _final(outputs: tuple[Root, ...]) -> tuple[Root, ...]:
    """Return the outputs to differentiate; an interpreter that records ops may replace them, and takes no edges."""
    recorder: Recorder | None = MODE.get().interpreter
    if recorder is None:
        return outputs
    if not all([isinstance(output, Tensor) for output in outputs]):
        raise RuntimeError("backward: within a graph, give tensors to differentiate instead of a GradientEdge")
    return recorder.final(cast("tuple[Tensor, ...]", outputs))


def _listed(gradients: Any) -> tuple[Tensor | None, ...]:
    """Return gradients, one or a sequence, as a tuple; anything else becomes an element, for a check to refuse it."""
    single = isinstance(gradients, Tensor) or not hasattr(gradients, "__iter__")
    return (gradients,) if single else tuple(gradients)


def _roots(outputs: tuple[Root, ...], gradients: Tensor | Sequence[Tensor | None] | None) -> list[tuple[Edge, Tensor]]:
    given: Sequence[Tensor | None]
    if gradients is None:
        given = [None] * len(outputs)
    else:
        given = _listed(gradients)
    _check_tensors("backward", optional=given)
    if len(given) != len(outputs):
        raise RuntimeError(f"{len(outputs)} outputs were given and {len(given)} gradients")
    check_history("backward", tuple([output for output in outputs if isinstance(output, Tensor)]))
    return [(_root(output), _gradient_of(output, gradient)) for output, gradient in zip(outputs, given, strict=True)]


def _root(output: Root) -> Edge:
    edge = _edge_of(output)
    if edge is None:
        raise RuntimeError(
            "the tensor to differentiate does not require a gradient: none of the tensors it was made from does, "
            "or it was made under no_grad()"
        )
    return edge


def _gradient_of(output: Root, gradient: Tensor | None) -> Tensor:
    """Check a tensor's `gradient`, and cast it to the tensor's dtype; None stands for 1, for a tensor of one element.

    The gradient of a `GradientEdge` must not be None; nothing else is checked.
    """
    if not isinstance(output, Tensor):
        if gradient is None:
            raise RuntimeError("the gradient cannot be left out for a GradientEdge, whose shape is not known; pass it")
        return gradient
    if gradient is None:
        if output.numel() != 1:
            raise RuntimeError(
                f"the gradient can be left out for a single element only, not for shape {list(output.shape)}; "
                "reduce to a scalar, or pass the gradient"
            )
        return ones_like(output)
    if gradient.shape != output.shape:
        raise RuntimeError(
            f"the gradient of a tensor of shape {list(output.shape)} cannot have shape {list(gradient.shape)}"
        )
    if gradient.device is not output.device:
        raise RuntimeError(f"the gradient of a tensor on {output.device} cannot be on {gradient.device}")
    if gradient.dtype.is_complex is not output.dtype.is_complex:
        raise RuntimeError(
            f"the gradient of a tensor of {output.dtype.name} cannot be of {gradient.dtype.name}: "
            "both must be complex, or neither"
        )
    return _conform(gradient, output._blob.meta)


# Loaded on first use, since few programs need them.
_LAZY_MODULES: Final = ("functional", "graph")
_LAZY_NAMES: Final = {
    "Function": ".function",
    "FunctionContext": ".function",
    "GradcheckError": ".gradient_check",
    "gradcheck": ".gradient_check",
    "gradgradcheck": ".gradient_check",
    "once_differentiable": ".function",
}


def __getattr__(name: str) -> object:
    if name in _LAZY_MODULES:
        return import_module(f".{name}", __name__)
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(import_module(_LAZY_NAMES[name], __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY_MODULES, *_LAZY_NAMES])
