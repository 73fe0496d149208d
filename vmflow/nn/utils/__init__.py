"""PyTorch's `nn.utils`: clipping gradients, concatenating parameters, parametrizations, pruning and others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any, TypeVar

import numpy as np

from vmflow import dtypes
from vmflow.kernels.problems.updates import Clip as _Clip, ScaleToNorm as _ScaleToNorm, TotalNorm as _TotalNorm
from vmflow.kernels.updates import choose_update as _choose_update
from vmflow.multi_tensor import Update as _Update, by_device as _by_device, issue_update as _issue_update
from vmflow.nn import init
from vmflow.nn.module import Module
from vmflow.nn.weight_norms import (
    remove_spectral_norm as remove_spectral_norm,
    remove_weight_norm as remove_weight_norm,
    spectral_norm as spectral_norm,
    weight_norm as weight_norm,
)
from vmflow.operands import check_tensors as _check_tensors, listed_tensors as _listed_tensors
from vmflow.ops.creation import creation
from vmflow.ops.shape.joining import cat as _cat
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
    # The modules in `_LATE` are imported at their first use, because few programs need them.
    if name in _LATE:
        return _import_module(f".{name}", __name__)
    if name.startswith("fuse_"):
        function: object = getattr(_import_module(".fusion", __name__), name, None)
        if function is not None:
            return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Made = TypeVar("Made", bound=Module)


def skip_init(module_cls: type[Made], *args: Any, **kwargs: Any) -> Made:
    """Construct a module without initialising its parameters, for parameters that are loaded afterwards.

    During the construction the functions of `nn.init` leave tensors as they are, in this task or thread.

    Args:
        module_cls: a subclass of `Module`.
        args, kwargs: the arguments of the class's constructor.

    Raises:
        TypeError: if `module_cls` is no subclass of `Module`.

    Example:
        >>> flow.nn.utils.skip_init(flow.nn.Linear, 2, 3).weight.shape
        vmflow.Size([3, 2])
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise TypeError(f"skip_init: expected a subclass of nn.Module, got {module_cls!r}")
    with init.skipped():
        return module_cls(*args, **kwargs)


def _gradients(name: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    tensors = (parameters,) if isinstance(parameters, Tensor) else _listed_tensors(name, parameters)
    return [gradient for tensor in tensors if (gradient := tensor.grad) is not None]


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients down, all by one factor, so that the norm of all their elements is at most `max_norm`.

    The call does not wait, unless `error_if_nonfinite` is True.  The result is on the device of the first gradient.
    The norm of global gradients is that of the whole ones, so all ranks of their placements must call this.

    Args:
        parameters: the parameters whose gradients to change.
        max_norm: the largest norm allowed of all gradients together.
        norm_type: the p of the p-norm; infinity for the largest magnitude.
        error_if_nonfinite: wait for the norm, and raise if it is infinite or NaN; if False, such a norm makes gradients
            NaN or 0.
        foreach: PyTorch's argument, without effect.

    Returns:
        The norm before scaling, a scalar; a local tensor also for global gradients.

    Raises:
        TypeError: for parameters that are no tensors.
        ValueError: if `norm_type` is not positive.
        RuntimeError: with `error_if_nonfinite`, for a norm that is not finite; the gradients are as they were.

    Example:
        >>> weight = flow.nn.Parameter(flow.ones(2))
        >>> weight.grad = flow.tensor([3.0, 4.0])
        >>> flow.nn.utils.clip_grad_norm_([weight], max_norm=10.0)
        tensor(5.)
    """
    gradients = _gradients("clip_grad_norm_", parameters)
    norm = _total_norm("clip_grad_norm_", gradients, float(norm_type))
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
    """Compute the norm of all elements of several tensors, usually gradients, and return it as a scalar.

    The result is on the device of the first tensor.  For global tensors it is a local scalar, the norm of the whole
    ones; all ranks of the placements must call this.

    Args:
        tensors: a tensor, or an iterable of tensors.
        norm_type: the p of the p-norm; infinity for the largest magnitude.
        error_if_nonfinite: wait for the norm, and raise if it is infinite or NaN.
        foreach: PyTorch's argument, without effect.

    Raises:
        TypeError: if there is something else than tensors, or if all tensors are of integers or booleans.
        ValueError: if `norm_type` is not positive.
        RuntimeError: with `error_if_nonfinite`, for a norm that is not finite.

    Example:
        >>> flow.nn.utils.get_total_norm([flow.tensor([3.0]), flow.tensor([4.0])])
        tensor(5.)
    """
    several = [tensors] if isinstance(tensors, Tensor) else list(_listed_tensors("get_total_norm", tensors))
    norm = _total_norm("get_total_norm", several, float(norm_type))
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
    """The old name of `clip_grad_norm_`, with a FutureWarning; the same arguments and result, a scalar.

    Raises:
        TypeError, ValueError, RuntimeError: as `clip_grad_norm_`.

    Example:
        >>> flow.nn.utils.clip_grad_norm_(flow.nn.Parameter(flow.ones(2)), max_norm=1.0)
        tensor(0.)
    """
    warnings.warn(
        "nn.utils.clip_grad_norm is the old name of nn.utils.clip_grad_norm_; use the new one",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients down as `clip_grad_norm_` does, but by a given norm, such as the result of `get_total_norm`.

    Args:
        parameters: the parameters whose gradients to change.
        max_norm: the largest norm allowed of all gradients together.
        total_norm: the present norm of all gradients, a tensor of one element.
        foreach: PyTorch's argument, without effect.

    Raises:
        TypeError: for parameters, or a norm, that are no tensors.
        ValueError: if `total_norm` does not have one element.

    Example:
        >>> weight = flow.nn.Parameter(flow.ones(2))
        >>> weight.grad = flow.tensor([30.0, 40.0])
        >>> flow.nn.utils.clip_grads_with_norm_([weight], 1.0, flow.tensor(50.0))
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    _check_tensors("clip_grads_with_norm_", total_norm)
    if total_norm.numel() != 1:
        raise ValueError(f"clip_grads_with_norm_: total_norm must be a scalar, got shape {list(total_norm.shape)}")
    _scale_to(_gradients("clip_grads_with_norm_", parameters), float(max_norm), total_norm.reshape(()))


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Limit every element of the parameters' gradients to [-clip_value, clip_value].

    Raises:
        TypeError: for a limit that is no number, parameters that are no tensors, or complex gradients.

    Example:
        >>> weight = flow.nn.Parameter(flow.ones(2))
        >>> weight.grad = flow.tensor([3.0, -0.5])
        >>> flow.nn.utils.clip_grad_value_([weight], 1.0)
        >>> weight.grad
        tensor([ 1.0000, -0.5000])
    """
    if not isinstance(clip_value, (int, float, np.number)):
        raise TypeError(f"clip_grad_value_: clip_value must be a number, not {clip_value!r}")
    gradients = _gradients("clip_grad_value_", parameters)
    for gradient in gradients:
        if gradient.is_complex():
            raise TypeError("clip_grad_value_: complex gradients have no order to be clipped by; use clip_grad_norm_")
    for device, there in _by_device(gradients).items():
        clip = _choose_update("clip", device).kernel(_Clip(float(clip_value)))
        _issue_update(_Update("clip_grad_value_", clip, [], there, _elements(there)))


def _total_norm(function: str, tensors: list[Tensor], order: float) -> Tensor:
    if not order > 0:
        raise ValueError(f"{function}: norm_type must be positive or infinity, got {order}")
    dtype = dtypes.get_default_dtype()
    if tensors:
        dtype = tensors[0].dtype.to_real()
        for tensor in tensors:
            dtype = dtypes.promote_types(dtype, tensor.dtype.to_real())
        if not dtype.is_floating_point:
            raise TypeError(f"{function}: {dtype.name} cannot hold a norm; convert the tensors with .float() first")

    def norm_of(several: Sequence[Tensor]) -> Tensor:
        norms: list[Tensor] = []
        for device, there in _by_device(several).items():
            norms.append(creation.zeros((), dtype=dtype, device=device))
            measure = _choose_update("total_norm", device).kernel(_TotalNorm(order))
            _issue_update(_Update("total_norm", measure, there, [norms[-1]], _elements(there)))
        if len(norms) > 1:
            return norm_of([norm.to(norms[0].device) for norm in norms])
        return norms[0] if norms else creation.zeros((), dtype=dtype, device=tensors[0].device if tensors else None)

    if any([tensor.is_global for tensor in tensors]):
        from vmflow.distributed.totals import norms_of_ranks  # imported here, as few programs need it

        return norm_of(norms_of_ranks(function, tensors, norm_of))
    return norm_of(tensors)


def _scale_to(gradients: list[Tensor], limit: float, norm: Tensor) -> None:
    for device, there in _by_device(gradients).items():
        scale = _choose_update("scale_to_norm", device).kernel(_ScaleToNorm(limit))
        _issue_update(_Update("clip_grad_norm_", scale, [norm.to(device)], there, _elements(there)))


def _elements(tensors: Sequence[Tensor]) -> int:
    return sum([tensor.numel() for tensor in tensors])


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all elements of the parameters into one vector; gradients flow back to the parameters.

    Raises:
        TypeError: if a parameter is no tensor.
        ValueError: if there are no parameters.

    Example:
        >>> flow.nn.utils.parameters_to_vector([flow.ones(2), flow.zeros(1, 2)])
        tensor([1., 1., 0., 0.])
    """
    tensors = list(parameters)
    _check_tensors("parameters_to_vector", *tensors)
    return _cat([parameter.reshape(-1) for parameter in tensors])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter a view of a part of the vector `vec`: the inverse of `parameters_to_vector`.

    Raises:
        TypeError: if `vec` or a parameter is no tensor.
        ValueError: if `vec` is no vector, or does not have exactly as many elements as the parameters.

    Example:
        >>> layer = flow.nn.Linear(2, 1)
        >>> flow.nn.utils.vector_to_parameters(flow.tensor([1.0, 2.0, 3.0]), layer.parameters())
        >>> layer.bias.data
        tensor([3.])
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: expected a tensor, got {type(vec).__name__}")
    targets = list(parameters)
    _check_tensors("vector_to_parameters", *targets)
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
