"""Pruning: masks, which keep elements of parameters at zero.

        prune.l1_unstructured(layer, "weight", amount=0.3)
        layer.weight           # weight_orig * weight_mask, computed before every call
        prune.remove(layer, "weight")

The parameter ``weight_orig`` replaces ``weight``, and the buffer ``weight_mask`` has a zero for each element that is
pruned.  Pruning a parameter again prunes some of the elements that are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from vmflow.autograd import no_grad
from vmflow.nn.module import Module
from vmflow.ops.creation.creation import ones_like
from vmflow.ops.shape.joining import cat
from vmflow.tensors import Tensor

from .pruning_methods import (
    BasePruningMethod as BasePruningMethod,
    CustomFromMask as CustomFromMask,
    Identity as Identity,
    L1Unstructured as L1Unstructured,
    LnStructured as LnStructured,
    PruningContainer as PruningContainer,
    RandomStructured as RandomStructured,
    RandomUnstructured as RandomUnstructured,
    combined_mask as _combined_mask,
    importance_of as _importance_of,
    method_of as _method_of,
)

Changed = TypeVar("Changed", bound=Module)


def identity(module: Changed, name: str) -> Changed:
    """Give a parameter a mask of ones, which prunes none of its elements; the mask of an earlier pruning stays.

    Raises:
        ValueError: if there is no such parameter.

    Example:
        >>> flow.nn.utils.prune.identity(flow.nn.Linear(2, 1), "weight").weight_mask
        tensor([[1., 1.]])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Changed, name: str, amount: float) -> Changed:
    """Prune random elements of a parameter.

    Args:
        module: the module, which is changed and returned.
        name: the name of the parameter.
        amount: the number (an int) or the fraction (a float) to prune of the elements that are left.

    Raises:
        TypeError: if the amount is no number.
        ValueError: for an amount out of range, or if there is no such parameter.

    Example:
        >>> flow.nn.utils.prune.random_unstructured(flow.nn.Linear(2, 2), "weight", amount=0.25).weight_mask.sum()
        tensor(3.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Changed, name: str, amount: float, importance_scores: Tensor | None = None) -> Changed:
    """Prune the elements of least magnitude of a parameter.

    Args:
        module: the module, which is changed and returned.
        name: the name of the parameter.
        amount: the number (an int) or the fraction (a float) to prune of the elements that are left.
        importance_scores: a tensor of the parameter's shape, whose magnitudes decide instead of the parameter's.

    Raises:
        TypeError: if the amount is no number.
        ValueError: for an amount out of range, scores of another shape, or if there is no such parameter.

    Example:
        >>> layer = flow.nn.utils.skip_init(flow.nn.Linear, 2, 1)
        >>> scores = flow.tensor([[1.0, 3.0]])
        >>> flow.nn.utils.prune.l1_unstructured(layer, "weight", 1, importance_scores=scores).weight_mask
        tensor([[0., 1.]])
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Changed, name: str, amount: float, dim: int) -> Changed:
    """Prune random channels of a parameter.

    Args:
        module: the module, which is changed and returned.
        name: the name of the parameter, which has two or more dimensions.
        amount: the number (an int) or the fraction (a float) to prune of the channels that are left.
        dim: the dimension of the channels.

    Raises:
        TypeError: if the amount is no number.
        ValueError: for an amount out of range, if there is no such parameter, or it has fewer than two dimensions.
        IndexError: if there is no such dimension.

    Example:
        >>> flow.nn.utils.prune.random_structured(flow.nn.Linear(3, 2), "weight", amount=1, dim=0).weight_mask.sum()
        tensor(3.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Changed, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Changed:
    """Prune the channels of least norm of a parameter.

    Args:
        module: the module, which is changed and returned.
        name: the name of the parameter, which has two or more dimensions.
        amount: the number (an int) or the fraction (a float) to prune of the channels that are left.
        n: the order of the norm, as for `Tensor.norm`.
        dim: the dimension of the channels.
        importance_scores: a tensor of the parameter's shape, whose norms decide instead of the parameter's.

    Raises:
        TypeError: if the amount is no number.
        ValueError: for an amount out of range, scores of another shape, if there is no such parameter, or it has
            fewer than two dimensions.
        IndexError: if there is no such dimension.

    Example:
        >>> scores = flow.tensor([[3.0, 1.0], [1.0, 2.0]])
        >>> layer = flow.nn.Linear(2, 2)
        >>> flow.nn.utils.prune.ln_structured(layer, "weight", 1, n=2, dim=0, importance_scores=scores).weight_mask
        tensor([[1., 1.],
                [0., 0.]])
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Changed, name: str, mask: Tensor) -> Changed:
    """Prune a parameter where a mask of its shape is zero.

    Raises:
        ValueError: if there is no such parameter, or for a mask of another shape.

    Example:
        >>> layer = flow.nn.utils.prune.custom_from_mask(flow.nn.Linear(2, 1), "weight", flow.tensor([[1, 0]]))
        >>> layer.weight_mask
        tensor([[1., 0.]])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters, of any shapes, as if they were one vector: ``amount`` is of all elements that are left.

    Args:
        parameters: pairs of a module and the name of its parameter.
        pruning_method: an unstructured subclass of `BasePruningMethod`, such as `L1Unstructured`.
        importance_scores: tensors by (module, name), to use instead of the values of these parameters.
        kwargs: the arguments of the constructor of `pruning_method`.

    Raises:
        TypeError: if `importance_scores` is no mapping, `parameters` no iterable, or the amount no number; for a method
            that is not unstructured.
        ValueError: for no parameters, an amount out of range or scores of another shape; if there is no such
            parameter.

    Example:
        >>> prune, a, b = flow.nn.utils.prune, flow.nn.Linear(2, 2), flow.nn.Linear(2, 3)
        >>> prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=0.5)
        >>> a.weight_mask.sum() + b.weight_mask.sum()
        tensor(5.)
    """
    if not isinstance(parameters, Iterable):
        raise TypeError(f"global_unstructured: expected pairs of module and name, got {type(parameters).__name__}")
    if importance_scores is not None and not isinstance(importance_scores, Mapping):
        raise TypeError(
            f"global_unstructured: importance_scores must be a dict by module and name, not "
            f"{type(importance_scores).__name__}"
        )
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured: expected an unstructured method, {pruning_method.__name__} is {method.PRUNING_TYPE}"
        )
    pairs = list(parameters)
    tensors: list[Tensor] = []
    masks: list[Tensor] = []
    scores: list[Tensor] = []
    with no_grad():
        for module, name in pairs:
            pruned = _method_of(module, name)
            tensor = module._parameters.get(name) if pruned is None else pruned[1].apply_mask(module)
            if tensor is None:
                raise ValueError(f"prune: {type(module).__name__} has no parameter {name!r}")
            tensors.append(tensor)
            masks.append(ones_like(tensor) if pruned is None else getattr(module, f"{name}_mask"))
            scores.append(_importance_of((importance_scores or {}).get((module, name)), tensor))
        whole = _combined_mask(method, _joined(scores), _joined(masks))
    start = 0
    for (module, name), tensor in zip(pairs, tensors, strict=True):
        part = whole.narrow(0, start, tensor.numel()).reshape(tuple(tensor.shape))
        custom_from_mask(module, name, part)
        start += tensor.numel()


def _joined(tensors: list[Tensor]) -> Tensor:
    return cat([tensor.reshape(-1) for tensor in tensors])


def remove(module: Changed, name: str) -> Changed:
    """Make a pruned parameter an ordinary parameter again, with zeros where it was pruned.

    Raises:
        ValueError: if the parameter is not pruned.

    Example:
        >>> prune, layer = flow.nn.utils.prune, flow.nn.Linear(2, 2)
        >>> prune.remove(prune.l1_unstructured(layer, "weight", 3), "weight").weight.count_nonzero()
        tensor(1)
    """
    pruned = _method_of(module, name)
    if pruned is None:
        raise ValueError(f"prune.remove: {name!r} of {type(module).__name__} is not pruned")
    number, method = pruned
    method.remove(module)
    del module._forward_pre_hooks[number]
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of this module, or of a module below it, is pruned.

    Raises:
        TypeError: if `module` is no module.

    Example:
        >>> flow.nn.utils.prune.is_pruned(flow.nn.Linear(2, 2))
        False
    """
    if not isinstance(module, Module):
        raise TypeError(f"is_pruned: expected a module, got {type(module).__name__}")
    hooks = [hook for part in module.modules() for hook in part._forward_pre_hooks.values()]
    return any([isinstance(hook, BasePruningMethod) for hook in hooks])
