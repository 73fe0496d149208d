"""The pruning methods of `nn.utils.prune`: hooks of modules that keep elements of a parameter at zero."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from vmflow import random
from vmflow.autograd import no_grad
from vmflow.nn.module import Module
from vmflow.ops.creation.creation import ones_like, zeros_like
from vmflow.tensors import Tensor
from vmflow.transfers import beside


class BasePruningMethod(ABC):
    """The base of pruning methods; derived classes define `compute_mask`.

    A method is a hook of the pruned module: before `forward` it sets the pruned attribute to `apply_mask`'s result.

    Attributes:
        PRUNING_TYPE: the part of a tensor that `compute_mask` gets when the tensor is pruned again: "unstructured" for
            the elements not yet pruned, as a vector; "structured" for the channels, along the method's `dim`, with such
            elements; "global" for the whole tensor.

    Raises:
        TypeError: unless the class defines `compute_mask`.

    Example:
        >>> class EveryOther(flow.nn.utils.prune.BasePruningMethod):
        ...     PRUNING_TYPE = "unstructured"
        ...     def compute_mask(self, t, default_mask):
        ...         mask = default_mask.clone()
        ...         mask.view(-1)[::2] = 0
        ...         return mask
        >>> EveryOther().prune(flow.tensor([1.0, 2.0, 3.0, 4.0]))
        tensor([0., 2., 0., 4.])
    """

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the new mask, with zeros where elements are pruned.

        Args:
            t: the importance of each element, by default its value; when the tensor is pruned again, of the part that
                `PRUNING_TYPE` chooses.
            default_mask: the mask of earlier prunings, of the same shape.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """Return the product of the module's original tensor and its mask."""
        mask: Tensor = getattr(module, f"{self._tensor_name}_mask")
        original: Tensor = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a parameter of a module.

        Args:
            module: the module, which is changed.
            name: the name of the parameter.
            args, kwargs: the arguments of the class's constructor.
            importance_scores: a tensor of the parameter's shape, used instead of its values to compute the mask.

        Returns:
            The new method; if the parameter was pruned before, a `PruningContainer` of all methods.

        Raises:
            ValueError: if there is no such parameter, or for scores of another shape.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        pruned = method_of(module, name)
        original = module._parameters.get(name if pruned is None else f"{name}_orig")
        if original is None:
            raise ValueError(f"prune: {type(module).__name__} has no parameter {name!r}")
        with no_grad():
            tensor = original if pruned is None else pruned[1].apply_mask(module)
            scores = importance_of(importance_scores, tensor)
            if pruned is None:
                mask = method.compute_mask(scores, ones_like(original))
            else:
                mask = combined_mask(method, scores, getattr(module, f"{name}_mask").detach().clone())
        if pruned is None:
            applied: BasePruningMethod = method
            module.register_buffer(f"{name}_mask", mask)
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
        else:
            number, before = pruned
            applied = before if isinstance(before, PruningContainer) else PruningContainer(before)
            applied.add_pruning_method(method)
            del module._forward_pre_hooks[number]
            setattr(module, f"{name}_mask", mask)
        setattr(module, name, applied.apply_mask(module))
        module.register_forward_pre_hook(applied)
        return applied

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Compute a mask for a tensor, and return their product; the tensor itself is not changed.

        Args:
            t: the tensor.
            default_mask: the mask of earlier prunings; by default all ones.
            importance_scores: a tensor of the same shape, used instead of `t` to compute the mask.
        """
        with no_grad():
            mask = self.compute_mask(
                importance_of(importance_scores, t), ones_like(t) if default_mask is None else default_mask
            )
        return t * mask

    def remove(self, module: Module) -> None:
        """Make the pruned tensor a parameter again, with zeros where pruned; `prune.remove` also removes the hook."""
        name = self._tensor_name
        with no_grad():
            left = self.apply_mask(module)
        original = module._parameters[f"{name}_orig"]
        assert original is not None
        delattr(module, name)
        original.data = left
        del module._parameters[f"{name}_orig"]
        del module._buffers[f"{name}_mask"]
        module.register_parameter(name, original)


def importance_of(importance_scores: Tensor | None, tensor: Tensor) -> Tensor:
    """Return the importance scores, by default the tensor itself, detached.

    Raises:
        ValueError: for scores of another shape.
    """
    if importance_scores is None:
        return tensor.detach()
    if importance_scores.shape != tensor.shape:
        raise ValueError(
            f"prune: importance_scores of shape {list(importance_scores.shape)} are not those of a tensor of shape "
            f"{list(tensor.shape)}"
        )
    return importance_scores.detach()


def method_of(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    """Return the number of the hook that prunes a parameter, and the hook, a pruning method; None if there is none."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return number, hook
    return None


def combined_mask(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Tensor:
    """Return `mask`, that of earlier prunings, with further zeros where `method` prunes elements that are left.

    `t` has each element's importance.  Unless the method's `PRUNING_TYPE` is "global", the call waits for the values of
    `mask`, to count the elements that are left.
    """
    kind = method.PRUNING_TYPE
    place: Any
    if kind == "unstructured":
        place = mask == 1
    elif kind == "structured":
        dim = _dimension(t, getattr(method, "dim", None))
        others = [axis for axis in range(t.ndim) if axis != dim]
        left = mask.sum(others) != 0 if others else mask != 0
        place = (*[slice(None)] * dim, left)
    elif kind == "global":
        place = (slice(None),) * t.ndim
    else:
        raise ValueError(
            f"{type(method).__name__}: PRUNING_TYPE must be 'unstructured', 'structured' or 'global', not {kind!r}"
        )
    result = mask.to(dtype=t.dtype) if mask.dtype != t.dtype else mask.clone()
    result[place] = method.compute_mask(t[place], mask[place]).to(dtype=result.dtype)
    return result


class PruningContainer(BasePruningMethod):
    """Several methods that have pruned the same tensor one after another.

    Args:
        args: the methods, in the order in which they have pruned.

    Raises:
        TypeError, ValueError: as `add_pruning_method`.

    Example:
        >>> layer = flow.nn.utils.prune.l1_unstructured(flow.nn.Linear(2, 2), "weight", 1)
        >>> method = flow.nn.utils.prune.L1Unstructured.apply(layer, "weight", 1)
        >>> type(method).__name__, len(method)
        ('PruningContainer', 2)
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method behind the others.

        Raises:
            TypeError: if `method` is no pruning method.
            ValueError: if `method` prunes a tensor of another name, or has pruned no tensor yet.
        """
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"add_pruning_method: expected a BasePruningMethod, got {type(method).__name__}")
        name = getattr(method, "_tensor_name", None)
        if name is None:
            kind = type(method).__name__
            raise ValueError(
                f"add_pruning_method: this {kind} has pruned no tensor yet; get the method from "
                f"{kind}.apply(module, name, ...)"
            )
        # The first method gives an empty container its name.
        if name != getattr(self, "_tensor_name", name):
            raise ValueError(f"add_pruning_method: the container prunes {self._tensor_name!r}, the method {name!r}")
        self._tensor_name = name
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return `default_mask` with further zeros where the last method prunes elements that are left."""
        return combined_mask(self._pruning_methods[-1], t, default_mask)


class Identity(BasePruningMethod):
    """Prunes nothing, but gives the module a mask.

    Example:
        >>> flow.nn.utils.prune.Identity().prune(flow.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask of earlier prunings unchanged."""
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> BasePruningMethod:  # type: ignore[override]
        """Give a parameter a mask that prunes nothing; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name)


def _checked_amount(amount: float) -> float:
    """Check an amount to prune, and return it: an int for a number of elements or channels, a float for a fraction.

    Raises:
        TypeError: if `amount` is no real number, or a bool.
        ValueError: if `amount` is negative, or a fraction above 1.
    """
    if not isinstance(amount, numbers.Real) or isinstance(amount, bool):
        raise TypeError(f"prune: the amount must be an int or a float, not {amount!r}")
    if amount < 0 or (not isinstance(amount, numbers.Integral) and amount > 1):
        raise ValueError(f"prune: the amount must be a number of elements, or a part from 0.0 to 1.0, got {amount}")
    return float(amount) if not isinstance(amount, numbers.Integral) else int(amount)


def _count(amount: float, size: int) -> int:
    """Return the number of elements or channels, of `size`, that `amount` prunes; raise ValueError if above `size`."""
    count = amount if isinstance(amount, int) else round(amount * size)
    if count > size:
        raise ValueError(f"prune: cannot prune {count} of {size}; give a smaller amount")
    return count


def _dimension(t: Tensor, dim: Any) -> int:
    if not isinstance(dim, int):
        raise AttributeError("prune: a structured method needs an attribute dim, along which its channels lie")
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"prune: dim {dim} is out of range for a tensor of shape {list(t.shape)}")
    return dim % t.ndim


class RandomUnstructured(BasePruningMethod):
    """Prunes elements of a tensor of any shape at random.

    Args:
        amount: the number (an int) or the fraction (a float) of the elements to prune.

    Raises:
        TypeError: if the amount is no number.
        ValueError: if the amount is negative, or a fraction above 1; when a tensor has fewer elements.

    Example:
        >>> (flow.nn.utils.prune.RandomUnstructured(2).prune(flow.ones(3)) == 0).sum()
        tensor(2)
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        self.amount = _checked_amount(amount)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return `default_mask` with zeros also for `amount` random elements, whether pruned already or not."""
        return _without_least(_drawn(t.numel(), t), _count(self.amount, t.numel()), default_mask)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> BasePruningMethod:  # type: ignore[override]
        """Prune a parameter as `prune.random_unstructured` does; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of least magnitude of a tensor of any shape.

    Args:
        amount: the number (an int) or the fraction (a float) of the elements to prune.

    Raises:
        TypeError, ValueError: as `RandomUnstructured`.

    Example:
        >>> flow.nn.utils.prune.L1Unstructured(1).prune(flow.tensor([3.0, 1.0, -2.0]))
        tensor([ 3.,  0., -2.])
    """

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        self.amount = _checked_amount(amount)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return `default_mask` with zeros also for the `amount` elements of `t` of least magnitude."""
        return _without_least(t.abs().reshape(-1), _count(self.amount, t.numel()), default_mask)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune a parameter as `prune.l1_unstructured` does; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def _drawn(count: int, t: Tensor) -> Tensor:
    return beside(random.rand(count, device=t.device), t)


def _without_least(values: Tensor, count: int, mask: Tensor) -> Tensor:
    """Return a copy of the mask that is also zero at the indices of the `count` smallest of `values`."""
    if count == 0:
        return mask.clone()
    places = values.topk(count, largest=False).indices
    return mask.reshape(-1).clone().index_fill_(0, places, 0).reshape(tuple(mask.shape))


class _Structured(BasePruningMethod):
    """The base of methods that prune whole channels; subclasses define the channels' importance."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        self.amount = _checked_amount(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return `default_mask` with zeros also for the `amount` channels of `t` of least importance."""
        if t.ndim < 2:
            raise ValueError(f"prune: channels are those of 2 or more dimensions, got shape {list(t.shape)}")
        dim = _dimension(t, self.dim)
        size = t.shape[dim]
        count = _count(self.amount, size)
        if count == 0:
            return default_mask
        places = self._importance(t, dim).topk(size - count).indices
        kept = zeros_like(t).index_fill_(dim, places, 1)
        return kept * default_mask.to(dtype=kept.dtype)

    @abstractmethod
    def _importance(self, t: Tensor, dim: int) -> Tensor:
        """The importance of each channel of `t`, a vector as long as dimension `dim`."""


class RandomStructured(_Structured):
    """Prunes channels of a tensor of two or more dimensions at random.

    Args:
        amount: the number (an int) or the fraction (a float) of the channels to prune.
        dim: the dimension of the channels.

    Raises:
        TypeError: if the amount is no number.
        ValueError: if the amount is negative, or a fraction above 1; when it exceeds the number of channels, or
            the tensor has fewer than two dimensions.
        IndexError: when the tensor has no dimension `dim`.

    Example:
        >>> flow.nn.utils.prune.RandomStructured(1, dim=0).prune(flow.ones(2, 3)).sum()
        tensor(3.)
    """

    def _importance(self, t: Tensor, dim: int) -> Tensor:
        return _drawn(t.shape[dim], t)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float, dim: int = -1) -> BasePruningMethod:  # type: ignore[override]
        """Prune a parameter as `prune.random_structured` does; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prunes the channels of least norm of a tensor of two or more dimensions.

    Args:
        amount: the number (an int) or the fraction (a float) of the channels to prune.
        n: the order of the norm, as for `Tensor.norm`.
        dim: the dimension of the channels.

    Raises:
        TypeError, ValueError, IndexError: as `RandomStructured`.

    Example:
        >>> flow.nn.utils.prune.LnStructured(1, n=2, dim=0).prune(flow.tensor([[3.0, 1.0], [1.0, 2.0]]))
        tensor([[3., 1.],
                [0., 0.]])
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _importance(self, t: Tensor, dim: int) -> Tensor:
        return t.norm(self.n, tuple([axis for axis in range(t.ndim) if axis != dim]))

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune a parameter as `prune.ln_structured` does; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes the elements of a parameter where a given mask is zero.

    Args:
        mask: a mask of the parameter's shape.

    Raises:
        ValueError: when the parameter has another shape.

    Example:
        >>> flow.nn.utils.prune.CustomFromMask(flow.tensor([1, 0])).prune(flow.tensor([3.0, 4.0]))
        tensor([3., 0.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the product of the given mask and `default_mask`, the mask of earlier prunings."""
        if self.mask.shape != default_mask.shape:
            raise ValueError(
                f"prune: a mask of shape {list(self.mask.shape)} is not one of a tensor of shape "
                f"{list(default_mask.shape)}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> BasePruningMethod:  # type: ignore[override]
        """Prune a parameter as `prune.custom_from_mask` does; see `BasePruningMethod.apply` for the result."""
        return super().apply(module, name, mask=mask)
