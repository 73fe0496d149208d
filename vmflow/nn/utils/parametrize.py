"""Parametrizations: tensors of modules that are computed from other tensors whenever they are read.

class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).mT

layer = nn.Linear(3, 3)
parametrize.register_parametrization(layer, "weight", Symmetric())
layer.weight                                    # symmetric, computed at each reading
layer.parametrizations.weight.original          # the parameter, which is trained
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, TypeVar

from vmflow.autograd import no_grad
from vmflow.context import MODE
from vmflow.nn.containers import ModuleDict, ModuleList
from vmflow.nn.module import Module
from vmflow.nn.parameter import Parameter
from vmflow.tensors import Tensor

Changed = TypeVar("Changed", bound=Module)


class _Block:
    """A block of `cached`.

    Attributes:
        kept: the tensors computed within the block, by parametrization, interpreter, grad mode and autocast; None
            outside of blocks, and after the block's end, because tasks that began within the block may go on with a
            copy of its context.
    """

    def __init__(self, kept: dict[tuple[Any, ...], Tensor] | None) -> None:
        self.kept = kept


_block: ContextVar[_Block] = ContextVar("block", default=_Block(None))  # noqa: B039 (the default never changes)


@contextmanager
def cached() -> Iterator[None]:
    """Make a block in which parametrized tensors are computed once, not at each reading, in this task or thread.

    A tensor is computed once for each grad mode and autocast in which it is read.  Tasks that begin within the block
    share its tensors until its end.  The original tensors, other parameters and buffers of the parametrizations, and
    the training mode must not change within the block.

    Example:
        >>> layer = flow.nn.utils.parametrizations.orthogonal(flow.nn.Linear(2, 2))
        >>> with flow.nn.utils.parametrize.cached():
        ...     layer.weight is layer.weight
        True
    """
    before = _block.get()
    block = _Block({} if before.kept is None else before.kept)
    _block.set(block)
    try:
        yield
    finally:
        block.kept = None
        _block.set(before)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor of a module, with the original tensors that it is computed from.

    Args:
        modules: the parametrizations, called one after another; the first may take several tensors, if its
            `right_inverse` returns several.
        original: the parameter or buffer to parametrize, of any shape.
        unsafe: whether the result may have another dtype or shape than `original`; else the result is checked once.

    Attributes:
        original: the original parameter or buffer; several originals are ``original0``, ``original1`` and so on.
        is_tensor: whether the original is named ``original``, without a number.
        ntensors: the number of originals.
        unsafe: the argument `unsafe`.

    Raises:
        ValueError: without modules; if a `right_inverse` returns anything else than tensors; if the only original has
            another dtype; unless `unsafe`, for a result of another dtype or shape.

    Example:
        >>> chain = flow.nn.utils.parametrize.ParametrizationList([flow.nn.ReLU()], flow.tensor([-1.0, 2.0]))
        >>> chain()
        tensor([0., 2.])
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList: expected at least one module")
        super().__init__(modules)
        self.unsafe = unsafe
        # The first of the `right_inverse` methods runs last, and makes the originals.
        inverting = [module for module in modules if hasattr(module, "right_inverse")]
        name = type((inverting or modules)[0]).__name__
        with no_grad():
            new = _inverted(modules, original)
            self.is_tensor = isinstance(new, Tensor)
            originals = [new] if isinstance(new, Tensor) else list(new)
            self.ntensors = len(originals)
            for value in originals:
                if not isinstance(value, Tensor):
                    raise ValueError(
                        f"{name}.right_inverse: expected a tensor or several, got one that is a {type(value).__name__}"
                    )
            if self.is_tensor and originals[0].dtype != original.dtype:
                raise ValueError(
                    f"{name}.right_inverse: expected a tensor of {original.dtype.name}, as the original is, got "
                    f"{originals[0].dtype.name}"
                )
            if not unsafe:
                self._check(original, originals)
        if self.is_tensor:
            # Keep the parameter object, because an optimizer may refer to it.  A new value gets memory that it shares
            # with no other tensor, because variables of graphs need that.
            if originals[0] is not original:
                original.data = originals[0].detach().clone()
            _registered(self, "original", original)
        else:
            for number, value in enumerate(originals):
                own = value.detach().clone()
                copied = Parameter(own, original.requires_grad) if isinstance(original, Parameter) else own
                _registered(self, f"original{number}", copied)

    def _part(self, members: list[tuple[str, Any]]) -> ModuleList:  # type: ignore[override]
        return ModuleList([module for _, module in members])

    def _check(self, original: Tensor, values: list[Tensor]) -> None:
        for module in self:
            values = [module(*values)]
        _check_result("the parametrization", values[0], original)

    def right_inverse(self, value: Tensor) -> None:
        """Assign `value` to the parametrized tensor: set the originals by each module's `right_inverse`, last to first.

        Raises:
            RuntimeError: if a module defines no `right_inverse`.
            ValueError: if the last result is another number of tensors than there are originals, or of another dtype;
                the originals are then unchanged.
        """
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"assigning to a parametrized tensor needs a right_inverse of each module, and "
                    f"{type(module).__name__} defines none"
                )
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                new = module.right_inverse(new)
            values = [new] if isinstance(new, Tensor) else list(new)
            originals = self._originals()
            if len(values) != len(originals) or not all([isinstance(entry, Tensor) for entry in values]):
                raise ValueError(f"right_inverse: expected {len(originals)} tensors, got {len(values)}: {new!r}")
            for entry, old in zip(values, originals, strict=True):
                if entry.dtype != old.dtype:
                    raise ValueError(f"right_inverse: expected a tensor of {old.dtype.name}, got {entry.dtype.name}")
            for entry, old in zip(values, originals, strict=True):
                old.data = entry.detach().clone()

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{number}" for number in range(self.ntensors)]

    def _originals(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._names()]

    def _sharing(self) -> ParametrizationList:
        """Return another list of the same parametrizations and originals, without a call of `right_inverse`."""
        other = ParametrizationList.__new__(ParametrizationList)
        ModuleList.__init__(other, list(self))
        other.unsafe, other.is_tensor, other.ntensors = self.unsafe, self.is_tensor, self.ntensors
        for name in self._names():
            _registered(other, name, getattr(self, name))
        return other

    def forward(self) -> Tensor:
        """Return the parametrized tensor, computed from the originals."""
        modules = iter(self)
        result: Tensor = next(modules)(*self._originals())
        for module in modules:
            result = module(result)
        return result


def _inverted(modules: Sequence[Module], original: Tensor) -> Any:
    """Apply the `right_inverse` of each module that defines one to `original`, from the last module to the first."""
    new: Any = original
    for module in reversed(modules):
        if hasattr(module, "right_inverse"):
            try:
                new = module.right_inverse(new)
            except NotImplementedError:
                continue  # as without `right_inverse`: the module's original is the value itself
            if not isinstance(new, (Tensor, Sequence)):
                raise ValueError(
                    f"{type(module).__name__}.right_inverse: expected a tensor or several, got {type(new).__name__}"
                )
    return new


def _check_result(name: str, result: Any, original: Tensor) -> None:
    """Raise ValueError, with `name` first, unless `result` is a tensor with the dtype and shape of `original`."""
    if not isinstance(result, Tensor):
        raise ValueError(f"{name} must return a tensor, not {type(result).__name__}")
    if result.dtype != original.dtype or result.shape != original.shape:
        raise ValueError(
            f"{name} makes a tensor of {original.dtype.name} and shape {list(original.shape)} one of "
            f"{result.dtype.name} and shape {list(result.shape)}; pass unsafe=True if that is meant"
        )


def _registered(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


class _Parametrized(Module):
    """The base of classes of modules with parametrized tensors; see `_class_with`.

    Attributes:
        parametrizations: for the name of each parametrized tensor, a `ParametrizationList`.
        _plain: the module's class before the first parametrization.
        _names: the names of the parametrized tensors.
    """

    parametrizations: ModuleDict
    _plain: type[Module]
    _names: tuple[str, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._names:
            if not isinstance(value, Tensor):
                raise TypeError(f"cannot assign {type(value).__name__} to the parametrized tensor {name!r}")
            self.parametrizations[name].right_inverse(value)
        else:
            super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        if isinstance(reduced, tuple) and reduced[0] is copyreg.__newobj__:  # type: ignore[attr-defined]
            return _new, (type(self)._plain, type(self)._names), *reduced[2:]
        return reduced


def _new(plain: Any, names: tuple[str, ...]) -> Module:
    """Make a module of a parametrized class without calling `__init__`, for `copy` and `pickle` to fill."""
    kind = _class_with(plain, names)
    module: Module = kind.__new__(kind)
    return module


@cache
def _class_with(plain: Any, names: tuple[str, ...]) -> Any:
    """Make a subclass of the module class `plain` with a property for each parametrized tensor in `names`.

    Modules with the same class, and the same names in the same order, share the subclass.
    """
    space: dict[str, Any] = {name: property(partial(_computed, name)) for name in names}
    space.update(_plain=plain, _names=names, __module__=plain.__module__, __doc__=plain.__doc__)
    return type(f"Parametrized{plain.__name__}", (_Parametrized, plain), space)


def _computed(name: str, module: Any) -> Tensor:
    parametrization: ParametrizationList = module.parametrizations[name]
    kept = _block.get().kept
    if kept is None:
        result: Tensor = parametrization()
        return result
    mode = MODE.get()
    # The key has the mode: tensors of a graph have no values outside the graph, and a tensor computed under no_grad
    # must not be used where gradients are needed.
    key = (parametrization, mode.interpreter, mode.grad, mode.autocast)
    if key not in kept:
        kept[key] = parametrization()
    return kept[key]


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module's tensor `tensor_name` is parametrized, or any tensor if None.  Raises no errors.

    Example:
        >>> flow.nn.utils.parametrize.is_parametrized(flow.nn.Linear(2, 2))
        False
    """
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def register_parametrization(
    module: Changed, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Changed:
    """Let a parametrization compute a module's parameter or buffer from an original tensor at each reading.

    The module gets a submodule ``parametrizations``, which has a `ParametrizationList` under the name of the tensor.  A
    second parametrization takes the result of the first.  If the first has a method `right_inverse`, the original is
    `right_inverse` of the present value; if all have it, values can be assigned to the tensor.

    Args:
        module: the module, which is changed and returned.
        tensor_name: the name of the parameter or buffer.
        parametrization: a module that is called with the original tensor, or with several if its `right_inverse`
            returns several.
        unsafe: whether the result may have another dtype or shape than the tensor; else the result is checked once.

    Raises:
        ValueError: if there is no such tensor; else as `ParametrizationList`.

    Example:
        >>> layer = flow.nn.Linear(2, 2)
        >>> layer = flow.nn.utils.parametrize.register_parametrization(layer, "weight", flow.nn.ReLU())
        >>> bool((layer.weight >= 0).all())
        True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        chain: ParametrizationList = module.parametrizations[tensor_name]
        if not unsafe:
            _check_behind(getattr(module, tensor_name), parametrization)
        chain.append(parametrization)
        chain.unsafe = chain.unsafe or unsafe
        return module
    original = module._parameters.get(tensor_name)
    original_tensor: Tensor | None = module._buffers.get(tensor_name) if original is None else original
    if original_tensor is None:
        raise ValueError(
            f"register_parametrization: {type(module).__name__} has no parameter, buffer or parametrized tensor "
            f"{tensor_name!r}"
        )
    chain = ParametrizationList([parametrization], original_tensor, unsafe)
    _give_chain(module, tensor_name, chain)
    return module


def _give_chain(module: Module, tensor_name: str, chain: ParametrizationList) -> None:
    """Compute the tensor of this name by `chain`, in place of what the module has under the name."""
    if not is_parametrized(module, tensor_name) and hasattr(module, tensor_name):
        delattr(module, tensor_name)
    if not is_parametrized(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = chain
    _give_class(module)


def _check_behind(value: Tensor, parametrization: Module) -> None:
    """Raise ValueError unless a further parametrization and its inverse, if any, keep dtype and shape of `value`."""
    with no_grad():
        result = parametrization(value)
        _check_result("the parametrization", result, value)
        if hasattr(parametrization, "right_inverse"):
            try:
                back = parametrization.right_inverse(result)
            except NotImplementedError:
                return
            _check_result("right_inverse of a parametrization behind others", back, value)


def _give_class(module: Module) -> None:
    """Set the module's class to a subclass that computes parametrized tensors; to the plain class if there are none."""
    plain: Any = type_before_parametrizations(module)
    names = tuple(module.parametrizations) if is_parametrized(module) else ()
    module.__class__ = _class_with(plain, names) if names else plain


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class that the module had before its first parametrization.  Raises no errors.

    Example:
        >>> layer = flow.nn.utils.parametrizations.weight_norm(flow.nn.Linear(2, 2))
        >>> flow.nn.utils.parametrize.type_before_parametrizations(layer).__name__, type(layer).__name__
        ('Linear', 'ParametrizedLinear')
    """
    return type(module)._plain if isinstance(module, _Parametrized) else type(module)


def remove_parametrizations(module: Changed, tensor_name: str, leave_parametrized: bool = True) -> Changed:
    """Undo `register_parametrization`: make the tensor an ordinary parameter or buffer again.

    Args:
        module: the module, which is changed and returned.
        tensor_name: the name of the tensor.
        leave_parametrized: whether to keep the present, computed value; else the tensor gets the original's value.

    Raises:
        ValueError: if the tensor is not parametrized, or without `leave_parametrized` if it has several originals.

    Example:
        >>> layer = flow.nn.utils.parametrizations.weight_norm(flow.nn.Linear(2, 2))
        >>> type(flow.nn.utils.parametrize.remove_parametrizations(layer, "weight")).__name__
        'Linear'
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: {tensor_name!r} of {type(module).__name__} is not parametrized")
    chain: ParametrizationList = module.parametrizations[tensor_name]
    if not leave_parametrized and not chain.is_tensor:
        raise ValueError(
            f"remove_parametrizations: {tensor_name!r} is computed of {chain.ntensors} tensors, none of which can take "
            "its place; pass leave_parametrized=True"
        )
    originals = chain._originals()
    restored = originals[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name).detach()
        if chain.is_tensor:
            restored.data = value
        else:
            trained = any([original.requires_grad for original in originals])
            restored = Parameter(value, trained) if isinstance(restored, Parameter) else value
    del module.parametrizations[tensor_name]
    _give_class(module)
    if not is_parametrized(module):
        del module.parametrizations
    _registered(module, tensor_name, restored)
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Changed, tensor_name: str | None = None
) -> Changed:
    """Let tensors of `to_module` be computed by the parametrizations of `from_module`, from the same original tensors.

    Args:
        from_module: the module with the parametrizations; without any, nothing is done.
        to_module: the module to change and return; tensors and parametrizations that it has under the same names are
            replaced.
        tensor_name: the name of the only tensor to transfer; None for all.

    Raises:
        KeyError: if `from_module` has other parametrized tensors, but none named `tensor_name`.

    Example:
        >>> first = flow.nn.utils.parametrizations.weight_norm(flow.nn.Linear(2, 2))
        >>> second = flow.nn.utils.parametrize.transfer_parametrizations_and_params(first, flow.nn.Linear(2, 2))
        >>> second.parametrizations.weight.original0 is first.parametrizations.weight.original0
        True
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        source: ParametrizationList = from_module.parametrizations[name]
        _give_chain(to_module, name, source._sharing())
    return to_module
