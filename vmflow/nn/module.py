"""`Module`: parameters, buffers and submodules under names, and operations on all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self, TypeVar

from vmflow import dtypes
from vmflow.autograd import no_grad
from vmflow.changes import Registry, changed
from vmflow.context import MODE
from vmflow.devices import cuda_device, device as Device
from vmflow.dtypes import dtype as DType
from vmflow.memory_formats import fits_rank, preserve_format
from vmflow.multi_tensor import zero_gradients
from vmflow.ops.conversion import parse_to
from vmflow.ops.creation.creation import empty_like
from vmflow.tensors import Handle, Tensor, replace_data

from . import hooks, state
from .module_path import ModulePath
from .parameter import Buffer, Parameter, UninitializedTensorMixin, is_lazy

Member = TypeVar("Member")

# The name of an attribute that is True for modules of which a graph was built: assigning or deleting their attributes
# makes graphs check whether they must be built again.
WATCHED: Final = "_watched"

# The attributes of a module with the dicts of its members, and the noun for one member in errors.
_REGISTRIES = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}


class Module:
    """The base of models and layers: subclasses define ``forward``, and assign parameters and submodules as attributes.

    Attributes:
        training: whether the module is in training mode; see `train`.

    Raises:
        NotImplementedError: when called, if the class defines no ``forward``.

    Example:
        >>> class Net(flow.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden = flow.nn.Linear(8, 16)
        ...     def forward(self, x):
        ...         return self.hidden(x).relu()
        >>> Net()(flow.ones(2, 8)).shape
        vmflow.Size([2, 16])
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _forward_hooks: dict[int, Callable[..., Any]]
    _forward_pre_hooks: dict[int, Callable[..., Any]]
    _backward_hooks: dict[int, Callable[..., Any]]
    _backward_pre_hooks: dict[int, Callable[..., Any]]
    _hooks_with_kwargs: set[int]
    _hooks_always_called: set[int]
    _state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: dict[int, Callable[..., Any]]

    def __init__(self) -> None:
        # Written to __dict__ directly, because `Module.__setattr__` is slow.
        self.__dict__.update(
            training=True,
            _parameters=Registry(),
            _buffers=Registry(),
            _modules=Registry(),
            _non_persistent_buffers_set=set(),
            _forward_hooks=Registry(),
            _forward_pre_hooks=Registry(),
            _backward_hooks=Registry(),
            _backward_pre_hooks=Registry(),
            _hooks_with_kwargs=set(),
            _hooks_always_called=set(),
            _state_dict_pre_hooks={},
            _state_dict_hooks={},
            _load_state_dict_pre_hooks={},
            _load_state_dict_post_hooks={},
        )

    # Calling

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's results; raises NotImplementedError unless a subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outside = MODE.get()
        inside = outside.within(ModulePath(self, outside.module))
        MODE.set(inside)
        try:
            if (
                self._forward_hooks
                or self._forward_pre_hooks
                or self._backward_hooks
                or self._backward_pre_hooks
                or hooks.OF_ALL
            ):
                return hooks.called(self, args, kwargs)
            return self.forward(*args, **kwargs)
        finally:
            mode = MODE.get()
            # If `forward` has changed the mode for later ops, keep the changes, and restore the calling module only.
            MODE.set(outside if mode is inside else mode.within(outside.module))

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call ``hook(module, args)`` before `forward`; a result that is not None replaces the positional arguments.

        Args:
            hook: the function to call; a result that is no tuple becomes the only positional argument.
            prepend: call this hook before earlier hooks instead of after them.
            with_kwargs: call ``hook(module, args, kwargs)``, which must return None or new ``(args, kwargs)``.
        """
        handle = hooks.registered(self._forward_pre_hooks, hook, prepend)
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.number)
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Call ``hook(module, args, result)`` after `forward`; a returned value other than None replaces `result`.

        Args:
            hook: the function to call.
            prepend: call this hook before earlier hooks instead of after them.
            with_kwargs: call ``hook(module, args, kwargs, result)``.
            always_call: call the hook also if `forward` or a hook raises, with the result None if there is none.
        """
        handle = hooks.registered(self._forward_hooks, hook, prepend)
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.number)
        if always_call:
            self._hooks_always_called.add(handle.number)
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[[Any, Any], Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_output)`` when the gradients of a call's results are known.

        ``grad_output`` is a tuple with None where there is no gradient.  A result of the hook that is not None replaces
        ``grad_output``.  The hook is not called if no gradient reaches the results, nor, with a warning, if the
        results are neither a tensor nor a tuple.
        """
        return hooks.registered(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[[Any, Any, Any], Any], prepend: bool = False) -> Handle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of a call's arguments are known.

        Both are tuples of gradients, of the positional arguments and of the results, with None where there is none,
        also for a list or dict of tensors.  A result of the hook that is not None replaces ``grad_input``.  The hook is
        not called if no gradient reaches the results; nor if some arguments require gradients, but none reaches them;
        nor, with a warning, if the results are neither a tensor nor a tuple.
        """
        return hooks.registered(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Handle:
        """The same as `register_full_backward_hook`.

        ``grad_input`` has the gradients of the module's arguments; PyTorch's hook gets those of the module's last op.
        """
        return self.register_full_backward_hook(hook)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Not supported: raise an error that says how to compile a module as a graph.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"compile: {type(self).__name__} is not compiled in place; make a graph that calls it, such as "
            "nn.Graph.trace(module), or derive a class from nn.Graph, and call the graph instead"
        )

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._make_room(name, "_parameters")
            self.register_parameter(name, value)
        elif name in own.get("_parameters", ()):
            self._replace("_parameters", name, value)
        elif isinstance(value, Module):
            self._make_room(name, "_modules")
            own["_modules"][name] = hooks.on_registering("module", self, name, value) if hooks.OF_ALL else value
        elif name in own.get("_modules", ()):
            self._replace("_modules", name, value)
        elif isinstance(value, Buffer):
            self._make_room(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif name in own.get("_buffers", ()):
            self._replace("_buffers", name, value)
        else:
            object.__setattr__(self, name, value)
            if own.get(WATCHED):
                changed()

    def _make_room(self, name: str, registry: str) -> None:
        """Remove the attribute, parameter, buffer or submodule `name`, except a member of `registry`.

        Raises AttributeError if ``super().__init__()`` has not been called.
        """
        own = self.__dict__
        if registry not in own:
            raise AttributeError(
                f"cannot assign the {_REGISTRIES[registry]} {name!r} before {type(self).__name__} has called "
                "super().__init__()"
            )
        own.pop(name, None)
        for other in _REGISTRIES:
            if other != registry:
                own[other].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def _replace(self, registry: str, name: str, value: Any) -> None:
        """Assign None, or to a buffer also a tensor, to the existing member `name` of `registry`.

        Raises TypeError for other values.
        """
        if value is not None and not (registry == "_buffers" and isinstance(value, Tensor)):
            kind = _REGISTRIES[registry]
            allowed = {"parameter": "an nn.Parameter", "buffer": "a tensor", "module": "an nn.Module"}[kind]
            raise TypeError(
                f"cannot assign {type(value).__name__} to the {kind} {name!r} of {type(self).__name__}; "
                f"assign {allowed} or None, or delete the attribute first"
            )
        if hooks.OF_ALL and registry != "_parameters":
            value = hooks.on_registering(_REGISTRIES[registry], self, name, value)
        self.__dict__[registry][name] = value

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_parameters" not in own:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; if it is a subclass of nn.Module, its "
                "__init__ must call super().__init__() first"
            )
        for registry in _REGISTRIES:
            if name in own[registry]:
                return own[registry][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for registry in _REGISTRIES:
            if name in self.__dict__.get(registry, ()):
                del self.__dict__[registry][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)
        if WATCHED in self.__dict__:
            changed()

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[:1].isdigit())

    # Registering

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add or replace a parameter as attribute `name`; None reserves the name for a later parameter.

        Raises:
            AttributeError: if ``super().__init__()`` has not been called.
            TypeError: if `param` is no `Parameter`, or `name` no string.
            KeyError: for a name that is empty, has a dot, or is that of an attribute of another kind.
            ValueError: if `param` is the result of a recorded op.
        """
        self._check_name("_parameters", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"parameter {name!r} must be an nn.Parameter or None, not {type(param).__name__}; "
                "wrap a tensor as nn.Parameter(tensor)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"parameter {name!r} must be a leaf, not the result of {param.grad_fn!r}; "
                "compute it in forward() instead, or detach it"
            )
        if hooks.OF_ALL and param is not None:
            param = hooks.on_registering("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add or replace a tensor that is part of the module's state but not trained.

        Args:
            name: the name of the attribute.
            tensor: the buffer; None reserves the name for a later buffer, and stays out of the state dict.
            persistent: whether the buffer is part of the state dict.

        Raises:
            AttributeError: if ``super().__init__()`` has not been called.
            TypeError: if `tensor` is no tensor, or `name` no string.
            KeyError: for a name that is empty, has a dot, or is that of an attribute of another kind.
        """
        self._check_name("_buffers", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"buffer {name!r} must be a tensor or None, not {type(tensor).__name__}")
        if hooks.OF_ALL:
            tensor = hooks.on_registering("buffer", self, name, tensor)
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add or replace a submodule as attribute `name`; None reserves the name for a later submodule.

        Raises:
            AttributeError: if ``super().__init__()`` has not been called.
            TypeError: if `module` is no `Module`, or `name` no string.
            KeyError: for a name that is empty, has a dot, or is that of an attribute of another kind.
        """
        self._check_name("_modules", name)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"module {name!r} must be an nn.Module or None, not {type(module).__name__}")
        if hooks.OF_ALL:
            module = hooks.on_registering("module", self, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as `add_module`."""
        self.add_module(name, module)

    def _check_name(self, registry: str, name: str) -> None:
        kind = _REGISTRIES[registry]
        if registry not in self.__dict__:
            raise AttributeError(
                f"cannot assign the {kind} {name!r} before {type(self).__name__} has called super().__init__()"
            )
        if not isinstance(name, str):
            raise TypeError(f"the name of a {kind} must be a string, not {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"the name of a {kind} must not be empty nor contain a dot, got {name!r}")
        if name not in self.__dict__[registry] and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}, which is no {kind}")

    # Looking at the members

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over this module, named `prefix`, and all modules below, whose dotted names begin with `prefix`.

        Each module comes once, and is added to `memo`, unless `remove_duplicate` is False.  Modules in `memo` are left
        out, and not searched for modules below them.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Iterate over this module and all modules below it, each once unless `remove_duplicate` is False."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over the submodules directly below this module, each once, with their names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Iterate over the submodules directly below this module, each once."""
        return (module for _, module in self.named_children())

    def _named_members(
        self,
        members: Callable[[Module], Mapping[str, Member | None]],
        prefix: str,
        recurse: bool,
        remove_duplicate: bool,
    ) -> Iterator[tuple[str, Member]]:
        seen: set[Member] = set()
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in members(module).items():
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over parameters and their names below `prefix`: of this module and, if `recurse`, of all below it.

        A parameter that appears several times comes once, unless `remove_duplicate` is False.
        """
        return self._named_members(lambda module: module._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, each once: of this module and, with `recurse`, of all modules below it."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over buffers and their names below `prefix`: of this module and, if `recurse`, of all below it.

        A buffer that appears several times comes once, unless `remove_duplicate` is False.
        """
        return self._named_members(lambda module: module._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, each once: of this module and, with `recurse`, of all modules below it."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the submodule under a dotted name; the empty name is this module's.

        Raises:
            AttributeError: if there is no such module.
        """
        module: Module = self
        for name in target.split(".") if target else ():
            child = module._modules.get(name)
            if child is None:
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r} (looking for {target!r})")
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the submodule under a dotted name or, unless `strict`, add a submodule under a new name.

        Raises:
            ValueError: if the part of the name behind the last dot is empty.
            AttributeError: if the parent module does not exist, or the name is that of another attribute or, with
                `strict`, a new one.
            TypeError: if `module` is no `Module`.
        """
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError(f"set_submodule: {target!r} names no submodule")
        if not isinstance(module, Module):
            raise TypeError(f"set_submodule: {target!r} must be an nn.Module, not {type(module).__name__}")
        parent = self.get_submodule(path)
        if name not in parent._modules and (strict or hasattr(parent, name)):
            raise AttributeError(f"{type(parent).__name__} has no submodule {name!r} (looking for {target!r})")
        parent.add_module(name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter under a dotted name.

        Raises:
            AttributeError: if there is no such parameter.
        """
        parameter: Parameter = self._member("_parameters", target)
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer under a dotted name.

        Raises:
            AttributeError: if there is no such buffer.
        """
        buffer: Tensor = self._member("_buffers", target)
        return buffer

    def _member(self, registry: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        member = module.__dict__[registry].get(name)
        if member is None:
            raise AttributeError(
                f"{type(module).__name__} has no {_REGISTRIES[registry]} {name!r} (looking for {target!r})"
            )
        return member

    # State

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return a dict of parameters, persistent buffers and extra state of this module and all below by dotted name.

        Args:
            destination: a dict to fill and return instead of a new one.
            prefix: a string to put before every name.
            keep_vars: include the parameters and buffers themselves; else detached tensors that share their memory.
                Parameters and buffers without a shape yet are always included themselves.
        """
        entries: dict[str, Any] = {} if destination is None else destination
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                entries[prefix + name] = parameter if keep_vars or is_lazy(parameter) else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                entries[prefix + name] = buffer if keep_vars or is_lazy(buffer) else buffer.detach()
        if self._has_extra_state():
            entries[prefix + state.EXTRA] = self.get_extra_state()
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=entries, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            changed_dict = hook(self, entries, prefix, {})
            if changed_dict is not None:
                entries = changed_dict
        return entries

    def _has_extra_state(self) -> bool:
        """Whether the class overrides `get_extra_state`, to save state besides tensors."""
        return type(self).get_extra_state is not Module.get_extra_state

    def get_extra_state(self) -> Any:
        """Return state for ``_extra_state`` in the state dict; raises NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} has no extra state; define get_extra_state()")

    def set_extra_state(self, state: Any) -> None:
        """Restore a result of `get_extra_state`; raises NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} takes no extra state; define set_extra_state(state)")

    def register_state_dict_pre_hook(self, hook: Callable[[Any, str, bool], object]) -> Handle:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict` reads this module's tensors."""
        return Handle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[[Any, Any, str, Any], object]) -> Handle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after `state_dict`; the hook may change the dict.

        The metadata is an empty dict.  If the hook returns anything but None, `state_dict` raises RuntimeError.
        """
        return Handle(self._state_dict_hooks, state.Returnless(hook))

    def _register_state_dict_hook(self, hook: Callable[[Any, Any, str, Any], Any]) -> Handle:
        """As `register_state_dict_post_hook`, but a result other than None becomes the result of `state_dict`.

        The `state_dict` of a module above ignores that result.
        """
        return Handle(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> Handle:
        """Call a hook before `load_state_dict` compares names; the hook may change the dict, a copy of the user's.

        Args:
            hook: called as ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                error_msgs)``; the hook may add to the last three, which are lists.
        """
        return Handle(self._load_state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., object], with_module: bool = False) -> Handle:
        """As `register_load_state_dict_pre_hook`, but the hook's first argument is the module only if `with_module`."""
        return Handle(self._load_state_dict_pre_hooks, hook if with_module else state.Moduleless(hook))

    def register_load_state_dict_post_hook(self, hook: Callable[[Any, state.IncompatibleKeys], object]) -> Handle:
        """Call ``hook(module, incompatible_keys)`` after loading; the hook may remove names from ``incompatible_keys``.

        With such a hook, `load_state_dict` raises a strict error for missing and unexpected names only after all other
        entries have been loaded, and only if names are left.
        """
        return Handle(self._load_state_dict_post_hooks, hook)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy values from a dict such as `state_dict` returns, after comparing all names and shapes.

        Args:
            state_dict: tensors or arrays of numpy, and extra state, under dotted names.
            strict: whether missing and unexpected names are an error.
            assign: replace the module's tensors instead of copying: by the given tensors (copies of arrays), or by
                parameters and `Buffer` objects that share their memory.  Make the optimizer afterwards: an optimizer
                made before would update the old tensors.

        Returns:
            The module's names that the dict lacks, ``missing_keys``, and names that the module lacks,
            ``unexpected_keys``.

        Raises:
            RuntimeError: for missing or unexpected names (if `strict`), and values that do not fit.
            TypeError: if `state_dict` is no mapping.
        """
        return state.load(self, state_dict, strict, assign)

    # Changing all members

    def train(self, mode: bool = True) -> Self:
        """Set `training` of this module and all modules below it to `mode`; raises ValueError if `mode` is no bool."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: the mode must be True or False, not {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """The same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of all parameters of this module and the modules below it.

        Raises:
            TypeError: if `requires_grad` is no bool.
            RuntimeError: if `requires_grad` is True, and a parameter is neither floating-point nor complex.
        """
        if requires_grad is not True and requires_grad is not False:
            raise TypeError(f"requires_grad_: requires_grad must be True or False, not {requires_grad!r}")
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or with ``set_to_none=False`` existing ones to zero."""
        zero_gradients(self.parameters(), set_to_none)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with every module below this module (once below each parent), and then with this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the values of parameters, gradients and buffers by results of `fn`; parameters stay the same objects.

        With `recurse`, the values of the modules below this module, too.
        """
        for module in self.children() if recurse else ():
            module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is None:
                    continue
                gradient = parameter.grad
                replace_data(parameter, fn(parameter))
                if gradient is not None:
                    parameter.grad = fn(gradient)
            for name, buffer in self._buffers.items():
                if isinstance(buffer, UninitializedTensorMixin):
                    replace_data(buffer, fn(buffer))
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters, gradients and buffers to a device, and cast floating-point and complex ones to a dtype.

        ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``; the module is changed and returned.
        ``to(memory_format=vmflow.channels_last)`` changes the memory layout of all tensors with the format's number
        of dimensions.

        Raises:
            TypeError: for a dtype that is neither floating-point nor complex, or arguments of other types.
            ValueError: for an unknown device.
            DeviceUnavailable: for a device that cannot be used.
        """
        dtype, device, _, format = parse_to(args, kwargs)
        if dtype is not None and dtype.category < dtypes.FLOATING:
            raise TypeError(f"a module can be cast to floating-point and complex dtypes only, not to {dtype.name}")
        if device is not None:
            device.require()

        def converted(tensor: Tensor) -> Tensor:
            kind = dtype if tensor.dtype.category >= dtypes.FLOATING else None
            result: Tensor = tensor.to(device=device, dtype=kind)
            if format is None or format is preserve_format or not fits_rank(format, result.ndim):
                return result
            return result.contiguous(format)

        return self._apply(converted)

    def to_global(self, placement: Any = None, sbp: Any = None) -> Self:
        """Spread all parameters, gradients and buffers over ranks; see `Tensor.to_global`.

        The module is changed and returned.  Tensors without dimensions, such as counters of batches, are broadcast
        where `sbp` splits others.  Local tensors become the ranks' parts of global tensors; to split a module that is
        the same on all ranks, broadcast it first:

            model.to_global(placement, sbp.broadcast).to_global(sbp=sbp.split(0))
        """
        return self._apply(lambda tensor: tensor.to_global(placement, sbp if tensor.ndim else _unsplit(sbp)))

    def type(self, dst_type: DType) -> Self:
        """Cast all parameters, gradients and buffers to a dtype.

        Raises:
            TypeError: if `dst_type` is no dtype.
            RuntimeError: for a dtype that has no gradients, if a parameter requires a gradient.
        """
        dtypes.checked("type", dst_type)
        if dst_type.category < dtypes.FLOATING and any([parameter.requires_grad for parameter in self.parameters()]):
            raise RuntimeError(
                f"type: parameters that require gradients cannot be {dst_type.name}; call requires_grad_(False) first"
            )
        return self._apply(lambda tensor: tensor.to(dst_type))

    def _cast_floating(self, dtype: DType) -> Self:
        return self._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    def float(self) -> Self:
        """Cast the floating-point parameters, gradients and buffers to float32."""
        return self._cast_floating(dtypes.float32)

    def double(self) -> Self:
        """Cast the floating-point parameters, gradients and buffers to float64."""
        return self._cast_floating(dtypes.float64)

    def half(self) -> Self:
        """Cast the floating-point parameters, gradients and buffers to float16."""
        return self._cast_floating(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast the floating-point parameters, gradients and buffers to bfloat16."""
        return self._cast_floating(dtypes.bfloat16)

    def to_empty(self, *, device: Device | str | None, recurse: bool = True) -> Self:
        """Give all parameters, gradients and buffers new memory on a device, uninitialised, to be filled before use.

        Args:
            device: the new device; None to keep the device of each tensor.
            recurse: whether to do the same for the modules below this module.
        """
        return self._apply(
            lambda tensor: (
                tensor.new_empty((0,), device=device) if is_lazy(tensor) else empty_like(tensor, device=device)
            ),
            recurse,
        )

    def share_memory(self) -> Self:
        """Not supported: tensors live in the memory of one process.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "share_memory: tensors are not shared between processes, since the order of their use is kept in one; give "
            "each process a copy, and exchange values by state_dict()"
        )

    def cpu(self) -> Self:
        """Move all parameters, gradients and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: Device | str | int | None = None) -> Self:
        """Move all parameters, gradients and buffers to a CUDA device, by default the current one.

        Raises:
            ValueError: if `device` is no CUDA device.
            DeviceUnavailable: if there is no such device.
        """
        return self.to(cuda_device(device))

    # How it is shown

    def extra_repr(self) -> str:
        """The text in the module's repr before its submodules; subclasses override the method to show settings."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): {module!r}" for name, module in self._modules.items()]
        return tree(self._get_name(), extra.split("\n") if extra else [], children)

    def _repr_html_(self) -> str:
        from .module_tree import html_of  # imported here, because only notebooks need it

        return html_of(self)


def _unsplit(sbp: Any) -> Any:
    """Return an sbp, or a tuple of sbps, with broadcast in place of each split; None stays None."""
    from vmflow.distributed.sbp import Sbp, broadcast  # imported here, because few programs need it

    if isinstance(sbp, Sbp):
        return broadcast if sbp.is_split else sbp
    return sbp if sbp is None else tuple([_unsplit(part) for part in sbp])


def tree(name: str, lines: list[str], children: list[str]) -> str:
    """Format a module's repr: `name`, and in brackets the `lines` of settings and the reprs of `children`.

    Lines and reprs are indented, on lines of their own, unless there is no child and at most one line.
    """
    if not children and len(lines) <= 1:
        return f"{name}({''.join(lines)})"
    inside = "\n".join(lines + children).replace("\n", "\n  ")
    return f"{name}(\n  {inside}\n)"


def unusual_settings(module: Module, usual: Mapping[str, Any]) -> str:
    """Return ``, name=value`` for each attribute in `usual` whose value differs from the value there."""
    values = {name: getattr(module, name) for name in usual}
    return "".join([f", {name}={value}" for name, value in values.items() if value != usual[name]])
