"""What is done with many parameters together: clipping gradients, and seeing parameters as one vector."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any, TypeVar

from vmflow import dtypes
from vmflow.kernels.problems.updates import Clip, ScaleToNorm, TotalNorm
from vmflow.kernels.updates import choose_update
from vmflow.multi_tensor import Update, issue_update
from vmflow.nn import init
from vmflow.nn.module import Module
from vmflow.nn.weight_norms import (
    remove_spectral_norm as remove_spectral_norm,
    remove_weight_norm as remove_weight_norm,
    spectral_norm as spectral_norm,
    weight_norm as weight_norm,
)
from vmflow.ops.creation import creation
from vmflow.ops.shape.joining import cat
from vmflow.tensors import Tensor

from . import rnn as rnn, stateless as stateless

if _TYPE_CHECKING:
    from . import parametrizations as parametrizations, parametrize as parametrize, prune as prune
    from .fusion import (
        fuse_conv_bn_eval as fuse_conv_bn_eval,
        fuse_conv_bn_weights as fuse_conv_bn_weights,
        fuse_linear_bn_eval as fuse_linear_bn_eval,
        fuse_linear_bn_weights as fuse_linear_bn_weights,
    )

_LATE = ("fusion", "parameters_grouping", "parametrizations", "parametrize", "prune")


def __getattr__(name: str) -> object:
    # Few programs need them.
    if name in _LATE:
        return _import_module(f".{name}", __name__)
    if name.startswith("fuse_"):
        found: object = getattr(_import_module(".fusion", __name__), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Made = TypeVar("Made", bound=Module)


def skip_init(module_cls: type[Made], *args: Any, **kwargs: Any) -> Made:
    """A layer whose parameters hold whatever their memory held: for those that are loaded anyway.

    Only what `nn.init` fills is left out, for this task or thread.

    Args:
        module_cls: a class of modules.
        args, kwargs: for its constructor.

    Raises:
        TypeError: if it is no class of modules.
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise TypeError(f"skip_init: expected a subclass of nn.Module, got {module_cls!r}")
    with init.skipped():
        return module_cls(*args, **kwargs)


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [gradient for tensor in tensors if (gradient := tensor.grad) is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients down, all by one factor, so that the norm of all their elements is at most `max_norm`.

    All are scaled by one instruction.  Nothing is waited for unless `error_if_nonfinite` is True.

    Args:
        parameters: whose gradients to change.
        max_norm: the largest norm allowed.
        norm_type: the p of the p-norm; infinity for the largest magnitude.
        error_if_nonfinite: wait for the norm, and raise if it is infinite or NaN.
        foreach: changes nothing; there is one way.

    Returns:
        The norm before scaling, a scalar.

    Raises:
        ValueError: if `norm_type` is not positive.
        RuntimeError: if asked to, for a norm that is not finite; the gradients are as they were.
    """
    gradients = _gradients(parameters)
    norm = _total_norm(gradients, float(norm_type))
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of order {norm_type} of the gradients is {norm.item()}, and none was scaled; "
            "pass error_if_nonfinite=False to scale by it all the same"
        )
    _scale_to(gradients, float(max_norm), norm)
    return norm


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of these tensors, gradients usually, by one instruction.

    Args:
        tensors: a tensor or several.
        norm_type: the p of the p-norm; infinity for the largest magnitude.
        error_if_nonfinite: wait for the norm, and raise if it is infinite or NaN.
        foreach: changes nothing; there is one way.

    Raises:
        ValueError: if `norm_type` is not positive.
        RuntimeError: if asked to, for a norm that is not finite.
    """
    norm = _total_norm([tensors] if isinstance(tensors, Tensor) else list(tensors), float(norm_type))
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise RuntimeError(f"get_total_norm: the norm of order {norm_type} is {norm.item()}")
    return norm


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of `clip_grad_norm_`, with a FutureWarning."""
    warnings.warn(
        "nn.utils.clip_grad_norm is the old name of nn.utils.clip_grad_norm_; use the new one",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients down as `clip_grad_norm_` does, by a norm that is known, such as `get_total_norm`'s."""
    _scale_to(_gradients(parameters), float(max_norm), total_norm)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Bring every element of the gradients into [-clip_value, clip_value], by one instruction."""
    if not isinstance(clip_value, (int, float)):
        raise TypeError(f"clip_grad_value_: clip_value must be a number, not {clip_value!r}")
    gradients = _gradients(parameters)
    for gradient in gradients:
        if gradient.is_complex():
            raise TypeError("clip_grad_value_: complex gradients have no order to be clipped by; use clip_grad_norm_")
    if gradients:
        clip = choose_update("clip", gradients[0].device).kernel(Clip(float(clip_value)))
        issue_update(Update("clip_grad_value_", clip, [], gradients, _elements(gradients)))


def _total_norm(gradients: list[Tensor], order: float) -> Tensor:
    if not order > 0:
        raise ValueError(f"clip_grad_norm_: norm_type must be positive or infinity, got {order}")
    dtype = dtypes.get_default_dtype()
    if gradients:
        dtype = gradients[0].dtype.to_real()
        for gradient in gradients:
            dtype = dtypes.promote_types(dtype, gradient.dtype.to_real())
    norm = creation.zeros((), dtype=dtype, device=gradients[0].device if gradients else None)
    if gradients:
        measure = choose_update("total_norm", norm.device).kernel(TotalNorm(order))
        issue_update(Update("total_norm", measure, gradients, [norm], _elements(gradients)))
    return norm


def _scale_to(gradients: list[Tensor], limit: float, norm: Tensor) -> None:
    if gradients:
        scale = choose_update("scale_to_norm", gradients[0].device).kernel(ScaleToNorm(limit))
        there = norm.to(gradients[0].device)
        issue_update(Update("clip_grad_norm_", scale, [there], gradients, _elements(gradients)))


def _elements(tensors: list[Tensor]) -> int:
    return sum([tensor.numel() for tensor in tensors])


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of the parameters, one parameter after the other, as one vector; gradients flow through."""
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter a view of its stretch of the vector; the opposite of `parameters_to_vector`.

    Raises:
        TypeError: if `vec` is no tensor.
        ValueError: if it does not hold exactly as many elements as the parameters, or is no vector.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: expected a tensor, got {type(vec).__name__}")
    targets = list(parameters)
    wanted = _elements(targets)
    if vec.ndim != 1 or vec.numel() != wanted:
        raise ValueError(
            f"vector_to_parameters: the parameters have {wanted} elements together, which a tensor of shape "
            f"{list(vec.shape)} does not give"
        )
    start = 0
    for parameter in targets:
        count = parameter.numel()
        parameter.data = vec.detach().narrow(0, start, count).reshape(tuple(parameter.shape))
        start += count
