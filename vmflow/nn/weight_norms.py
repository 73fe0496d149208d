"""`weight_norm` and `spectral_norm` by hooks, which compute the normalised weight before every call of the module."""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from vmflow import random
from vmflow.autograd import no_grad
from vmflow.ops.linalg.linear_algebra import dot, mv
from vmflow.tensors import Tensor
from vmflow.transfers import beside

from . import functional as F
from .module import Module
from .parameter import Parameter

Changed = TypeVar("Changed", bound=Module)
Hook = TypeVar("Hook")


@attrs.define(eq=False)
class WeightNorm:
    """The hook of `weight_norm`, which computes the weight before `forward`.

    Attributes:
        name: the name of the weight.
        dim: the dimension along which each slice has a length of its own; None for one length of the whole weight.
    """

    name: str
    dim: int | None

    def compute_weight(self, module: Module) -> Tensor:
        """Compute the weight from the module's parameters for its length and direction."""
        length: Tensor = getattr(module, f"{self.name}_g")
        direction: Tensor = getattr(module, f"{self.name}_v")
        return direction * (length / length_of_slices(direction, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def length_of_slices(weight: Tensor, dim: int | None) -> Tensor:
    """Return the norm of each slice along `dim`, 0 or more, with other dimensions of size 1; for None, the norm of the
    whole weight, a scalar.
    """
    if dim is None:
        return weight.norm()
    others = tuple([axis for axis in range(weight.ndim) if axis != dim])
    return weight.norm(2, others, keepdim=True) if others else weight.abs()


def _parameter_of(function: str, module: Module, name: str, dim: int | None) -> Parameter:
    """Return the parameter `name` of a module; raise an error that names `function` if there is none, or
    the parameter has no `dim`.
    """
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"{function}: {type(module).__name__} has no parameter {name!r}")
    if dim is not None and not -weight.ndim <= dim < weight.ndim:
        raise IndexError(f"{function}: dim {dim} is out of range for a weight of shape {list(weight.shape)}")
    return weight


def _hook(module: Module, kind: type, name: str) -> int | None:
    for number, hook in module._forward_pre_hooks.items():
        if type(hook) is kind and getattr(hook, "name", None) == name:
            return number
    return None


def _popped(kind: type[Hook], module: Module, name: str, normalization: str) -> Hook:
    """Remove a module's hook of class `kind` for the weight `name`, and return it; ValueError if there is none."""
    number = _hook(module, kind, name)
    if number is None:
        raise ValueError(
            f"remove_{normalization.replace(' ', '_')}: {name!r} of {type(module).__name__} has no {normalization}"
        )
    hook = module._forward_pre_hooks.pop(number)
    assert isinstance(hook, kind)
    return hook


def _restored(module: Changed, name: str, weight: Tensor, suffixes: str) -> Changed:
    """Make `weight` the parameter `name`, remove the tensors ``name_suffix`` for all `suffixes`, return the module."""
    for attribute in (name, *[f"{name}_{suffix}" for suffix in suffixes.split()]):
        delattr(module, attribute)
    module.register_parameter(name, Parameter(weight))
    return module


def _check_single(function: str, module: Module, kind: type, name: str) -> None:
    if _hook(module, kind, name) is not None:
        raise RuntimeError(f"{function}: {name!r} of {type(module).__name__} is normalised already; remove that first")


def _check_free(function: str, module: Module, name: str, suffixes: str) -> None:
    """Raise KeyError if the module has an attribute with a name of the tensors from which the weight is computed."""
    for suffix in suffixes.split():
        if hasattr(module, f"{name}_{suffix}"):
            raise KeyError(f"{function}: {type(module).__name__} has an attribute {f'{name}_{suffix}'!r} already")


def weight_norm(module: Changed, name: str = "weight", dim: int | None = 0) -> Changed:
    """Compute a weight from its length and its direction, which are trained (T. Salimans and D. Kingma, 2016).

    The parameters ``weight_g`` and ``weight_v`` replace the parameter ``weight``, which is computed before every call.

    Args:
        module: the module, which is changed and returned.
        name: the name of the weight.
        dim: the dimension along which each slice has a length of its own; None for one length of the whole weight.

    Raises:
        ValueError: if there is no such parameter.
        IndexError: if the weight has no such dimension.
        RuntimeError: if the weight has a weight norm already.
        KeyError: if the module has an attribute with the name of a new parameter.

    Example:
        >>> layer = flow.nn.utils.weight_norm(flow.nn.Linear(4, 3))
        >>> layer.weight_g.shape, layer.weight_v.shape
        (vmflow.Size([3, 1]), vmflow.Size([3, 4]))
    """
    _check_single("weight_norm", module, WeightNorm, name)
    weight = _parameter_of("weight_norm", module, name, dim)
    _check_free("weight_norm", module, name, "g v")
    hook = WeightNorm(name, None if dim is None else dim % weight.ndim)
    length, direction = Parameter(length_of_slices(weight.detach(), hook.dim)), Parameter(weight.detach())
    del module._parameters[name]
    module.register_parameter(f"{name}_g", length)
    module.register_parameter(f"{name}_v", direction)
    with no_grad():  # the hook computes the weight with gradients before each call
        setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Changed, name: str = "weight") -> Changed:
    """Undo `weight_norm`: make the weight a parameter again, computed from its present length and direction.

    Raises:
        ValueError: if `weight_norm` was not applied to the weight.

    Example:
        >>> layer = flow.nn.utils.weight_norm(flow.nn.Linear(4, 3))
        >>> [name for name, _ in flow.nn.utils.remove_weight_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    hook = _popped(WeightNorm, module, name, "weight norm")
    with no_grad():
        weight = hook.compute_weight(module)
    return _restored(module, name, weight, "g v")


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Reshape a weight to a matrix (outputs, all other dimensions); `dim` is the dimension of the outputs."""
    return weight.movedim(dim, 0).reshape((weight.shape[dim], -1))


@attrs.define(eq=False)
class SpectralNorm:
    """The hook of `spectral_norm`, which computes the normalised weight before `forward`.

    Attributes:
        name: the name of the weight.
        n_power_iterations: the number of power iterations for each call in training mode.
        eps: the lower bound of the norms by which vectors are divided.
        dim: the dimension of the outputs.
    """

    name: str
    n_power_iterations: int
    eps: float
    dim: int

    def compute_weight(self, module: Module, iterate: bool) -> Tensor:
        """Return the weight over its estimated largest singular value; with `iterate`, improve the estimate first."""
        weight: Tensor = getattr(module, f"{self.name}_orig")
        left: Tensor = getattr(module, f"{self.name}_u")
        right: Tensor = getattr(module, f"{self.name}_v")
        matrix = as_matrix(weight, self.dim)
        if iterate:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    right.copy_(F.normalize(mv(matrix.mT, left), dim=0, eps=self.eps))
                    left.copy_(F.normalize(mv(matrix, right), dim=0, eps=self.eps))
        # Copies, because the next call of the module may change both vectors in place before the backward pass.
        left, right = left.clone(), right.clone()
        return weight / dot(left, mv(matrix, right))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Changed, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Changed:
    """Divide a weight by its largest singular value, found by power iteration (T. Miyato et al., 2018).

    The parameter ``weight_orig`` replaces the parameter ``weight``, which is computed before every call; the buffers
    ``weight_u`` and ``weight_v`` are estimates of the singular vectors, which each call in training mode improves.

    Args:
        module: the module, which is changed and returned.
        name: the name of the weight.
        n_power_iterations: the number of power iterations for each call in training mode.
        eps: the lower bound of the norms by which vectors are divided.
        dim: the dimension of the outputs; by default 1 for transposed convolutions, else 0.

    Raises:
        ValueError: if there is no such parameter, or for fewer than one iteration.
        IndexError: if the weight has no such dimension.
        RuntimeError: if the weight has a spectral norm already.
        KeyError: if the module has an attribute with the name of a new parameter or buffer.

    Example:
        >>> layer = flow.nn.utils.spectral_norm(flow.nn.Linear(4, 3))
        >>> layer.weight_orig.shape, layer.weight_u.shape
        (vmflow.Size([3, 4]), vmflow.Size([3]))
    """
    _check_single("spectral_norm", module, SpectralNorm, name)
    if n_power_iterations <= 0:
        raise ValueError(f"spectral_norm: n_power_iterations must be positive, got {n_power_iterations}")
    if dim is None:
        dim = 1 if any([kind.__name__.startswith("ConvTranspose") for kind in type(module).__mro__]) else 0
    weight = _parameter_of("spectral_norm", module, name, dim)
    _check_free("spectral_norm", module, name, "u v orig")
    hook = SpectralNorm(name, n_power_iterations, eps, dim)
    with no_grad():
        starts = [
            beside(random.randn(size, dtype=weight.dtype, device=weight.device), weight)
            for size in as_matrix(weight, dim).shape
        ]
        left, right = [F.normalize(start, dim=0, eps=eps) for start in starts]
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", left)
    module.register_buffer(f"{name}_v", right)
    setattr(module, name, weight.detach())
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Changed, name: str = "weight") -> Changed:
    """Undo `spectral_norm`: make the weight a parameter again, with its present normalised value.

    Raises:
        ValueError: if `spectral_norm` was not applied to the weight.

    Example:
        >>> layer = flow.nn.utils.spectral_norm(flow.nn.Linear(4, 3))
        >>> [name for name, _ in flow.nn.utils.remove_spectral_norm(layer).named_parameters()]
        ['bias', 'weight']
    """
    hook = _popped(SpectralNorm, module, name, "spectral norm")
    with no_grad():
        weight = hook.compute_weight(module, False)
    return _restored(module, name, weight, "u v orig")
