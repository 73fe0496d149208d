"""Automatic differentiation: `backward`, `grad`, the grad modes and `Function`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from vmflow.anomaly import detect_anomaly as detect_anomaly, set_detect_anomaly as set_detect_anomaly
from vmflow.context import MODE
from vmflow.ops.creation.creation import ones_like
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
from .node import Edge, Place

if TYPE_CHECKING:
    from vmflow.interpreters import Recorder

    from . import functional as functional
    from .function import (
        Function as Function,
        FunctionContext as FunctionContext,
        once_differentiable as once_differentiable,
    )
    from .gradient_check import GradcheckError as GradcheckError, gradcheck as gradcheck, gradgradcheck as gradgradcheck


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Accumulate the gradients of `tensors` into the leaves they were made from.

    Args:
        tensors: to differentiate.
        grad_tensors: the gradient of the final value by each; None is one, for single elements.
        retain_graph: whether to allow another pass; by default as `create_graph`.
        create_graph: whether the pass itself is recorded.

    Raises:
        RuntimeError: if a tensor has nothing to differentiate, or a gradient is needed or does not fit.
    """
    outputs = _as_tuple(tensors)
    recorder: Recorder | None = MODE.get().interpreter
    if recorder is not None:
        outputs = recorder.final(outputs)
    run_backward(
        _roots(outputs, grad_tensors),
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
    )


def Variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """PyTorch's older way to make a leaf: a tensor of the same memory, without history."""
    return data.detach().requires_grad_(requires_grad)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` by each of `inputs`; nothing is accumulated.

    Args:
        outputs: to differentiate.
        inputs: to differentiate by; leaves or not.
        grad_outputs: the gradient of the final value by each output; None is one, for single elements.
        retain_graph: whether to allow another pass; by default as `create_graph`.
        create_graph: whether the result can be differentiated in turn.
        only_inputs: as PyTorch's, True.
        allow_unused: give None for an input that the outputs do not depend on, instead of raising.

    Raises:
        ValueError: for ``only_inputs=False``.
        RuntimeError: as `backward`; for an input that does not require a gradient or was not used.
    """
    if not only_inputs:
        raise ValueError("grad: only_inputs=False was taken out of PyTorch; use backward() to accumulate")
    wanted: list[Place] = []
    for position, tensor in enumerate(_as_tuple(inputs)):
        edge = edge_of(tensor)
        if edge is None:
            raise RuntimeError(f"grad: input {position} does not require a gradient")
        wanted.append(edge.place())
    results = run_backward(
        _roots(_as_tuple(outputs), grad_outputs),
        retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph,
        wanted=wanted,
    )
    for position, result in enumerate(results):
        if result is None and not allow_unused:
            raise RuntimeError(
                f"grad: the outputs do not depend on input {position}; pass allow_unused=True to get None for it"
            )
    return tuple(results)


def _as_tuple(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def _roots(
    outputs: tuple[Tensor, ...], gradients: Tensor | Sequence[Tensor | None] | None
) -> list[tuple[Edge, Tensor]]:
    given: Sequence[Tensor | None]
    if gradients is None:
        given = [None] * len(outputs)
    else:
        given = (gradients,) if isinstance(gradients, Tensor) else tuple(gradients)
    if len(given) != len(outputs):
        raise RuntimeError(f"{len(outputs)} outputs were given and {len(given)} gradients")
    check_history("backward", outputs)
    roots: list[tuple[Edge, Tensor]] = []
    for output, gradient in zip(outputs, given, strict=True):
        edge = edge_of(output)
        if edge is None:
            raise RuntimeError(
                "the tensor to differentiate does not require a gradient: none of the tensors it was made from does, "
                "or it was made under no_grad()"
            )
        if gradient is None:
            if output.numel() != 1:
                raise RuntimeError(
                    f"the gradient can be left out for a single element only, not for shape {list(output.shape)}; "
                    "reduce to a scalar, or pass the gradient"
                )
            gradient = ones_like(output)
        elif gradient.shape != output.shape:
            raise RuntimeError(
                f"the gradient of a tensor of shape {list(output.shape)} cannot have shape {list(gradient.shape)}"
            )
        roots.append((edge, gradient))
    return roots


# What few programs need is loaded on first use.
_LAZY_NAMES: Final = {
    "Function": ".function",
    "FunctionContext": ".function",
    "GradcheckError": ".gradient_check",
    "gradcheck": ".gradient_check",
    "gradgradcheck": ".gradient_check",
    "once_differentiable": ".function",
}


def __getattr__(name: str) -> object:
    if name == "functional":
        return import_module(".functional", __name__)
    if name in _LAZY_NAMES:
        found = globals()[name] = getattr(import_module(_LAZY_NAMES[name], __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "functional", *_LAZY_NAMES])
