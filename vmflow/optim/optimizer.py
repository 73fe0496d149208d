"""`Optimizer`, the base class: parameter groups with settings, the state of each parameter, and saving both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeAlias, TypedDict

import numpy as np

from vmflow.autograd import enable_grad
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.interpreter import eagerly
from vmflow.kernels.problems.updates import COSTS
from vmflow.kernels.updates import Rule, choose_update
from vmflow.multi_tensor import Update, by_device, issue_together, zero_gradients
from vmflow.nn.utils import clip_grad_norm_
from vmflow.ops.creation import creation
from vmflow.scopes import scope
from vmflow.tensors import Handle, Tensor
from vmflow.transfers import spread_like

from .parameter_checks import check_is_tensor, listed

Parameters = Iterable[Tensor] | Iterable[dict[str, Any]]

# Hooks are called with the optimizer and the arguments of `step`; a pre-hook's result, unless None, replaces those
# arguments.
StepPreHook: TypeAlias = "Callable[[Optimizer, tuple[Any, ...], dict[str, Any]], tuple[Any, dict[str, Any]] | None]"
StepPostHook: TypeAlias = "Callable[[Optimizer, tuple[Any, ...], dict[str, Any]], None]"


# A step of parameters: an update, or a function that issues the ops which compute the step, and returns the update.
Step: TypeAlias = "Update | Callable[[], Update]"


class Execution(TypedDict, total=False):
    """PyTorch's settings of how a step is carried out, and OneFlow's `contiguous_params`.

    In vmflow one instruction changes all parameters of a device, so these settings have no effect, but
    ``differentiable=True`` is an error.
    """

    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool
    contiguous_params: bool


NUMBERS: Final = (int, float, np.number)
_EXECUTION: Final = frozenset(Execution.__annotations__)


# The first value of the scalar tensor "step", in which most optimizers count the steps of each parameter.
COUNTS: Final = {"step": 0.0}


def with_gradients(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def rate_of(group: dict[str, Any]) -> float | None:
    """The group's learning rate as a setting of a kernel; None for a tensor, which is an input of kernels instead."""
    rate = group["lr"]
    return None if isinstance(rate, Tensor) else rate


class Optimizer:
    """The base of optimizers, which change parameters by their gradients.  Subclasses define `update`.

    Args:
        params: tensors; or parameter groups: dicts with "params" and settings that replace the defaults.
        defaults: the settings that groups have unless they give their own.
        execution: see `Execution`.

    A parameter group may also have "clip_grad_max_norm" and "clip_grad_norm_type", for `clip_grad`.

    Attributes:
        shaped: the names under which `state` may keep tensors of the parameter's shape.
        counts: the names under which `state` may keep numbers in scalar tensors, with their first values.
        param_groups: a dict per group: "params" and the settings, which may be changed at any time.
        state: for each parameter, a dict of the tensors, and of other values, that the optimizer keeps for it.

    Raises:
        TypeError: if `params` is a single tensor, a dict, a set or a module other than a `ParameterList`, or is no
            iterable of tensors or groups; for unknown arguments.
        ValueError: if `params` is a generator that has been used up, or holds a parameter twice or one that is no leaf;
            for ``differentiable=True``; in subclasses, for settings out of range.

    `params` may be empty: a step then changes nothing.

    Example:
        >>> p = flow.tensor([1.0], requires_grad=True)
        >>> optimizer = flow.optim.SGD([{"params": [p], "lr": 0.25}], lr=0.5)
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """

    shaped: tuple[str, ...] = ()
    counts: ClassVar[Mapping[str, float]] = COUNTS

    def __init__(self, params: Parameters, defaults: dict[str, Any], execution: Execution | None = None) -> None:
        _check_execution(type(self).__name__, execution or {})
        self.defaults = defaults
        self._pre_hooks: dict[int, StepPreHook] = {}
        self._post_hooks: dict[int, StepPostHook] = {}
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._rules: dict[tuple[int, str, Device], Rule] = {}
        # The defaults are checked even if all groups replace them, because groups that are added later may use them.
        self.check_group({**defaults, "params": []})
        given = listed(type(self).__name__, params)
        for group in given if given and isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group: a dict with "params", tensors or one tensor, and settings that replace the defaults.

        Raises:
            TypeError, ValueError: as for the class.
        """
        name = type(self).__name__
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(f"{name}: a group must be a dict with the key 'params', got {param_group!r:.100}")
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else listed(name, params)
        seen = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        for position, parameter in enumerate(params):
            check_is_tensor(name, position, parameter)
            if not parameter.is_leaf:
                raise ValueError(
                    f"{name}: parameter {position} of shape {list(parameter.shape)} is the result of an op; "
                    "only leaves can be optimized"
                )
            if id(parameter) in seen:
                raise ValueError(f"{name}: parameter {position} of shape {list(parameter.shape)} is given twice")
            seen.add(id(parameter))
        group = {**self.defaults, **param_group, "params": params}
        self.check_group(group)
        self.param_groups.append(group)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError if a setting of a parameter group is out of range; the base class checks nothing."""

    def update(self, group: dict[str, Any]) -> Step | None:
        """Return one step of the parameters of a group that have gradients; None if no parameter has a gradient.

        If ops compute the step, the result is a function that issues the ops and returns the `Update`.  The function is
        called without recording for autograd, and a graph that is being built contains its ops.

        All parameters are on one device: for a group whose parameters are on several, `update` is called once for each
        device, with a copy of the group's dict whose "params" are those of the device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no update()")

    def _remembered(
        self, parameter: Tensor, shaped: Mapping[str, complex], counts: Mapping[str, float] = COUNTS
    ) -> dict[str, Any]:
        """Return a parameter's dict in `state`, after adding missing entries with their first values.

        Args:
            parameter: a parameter of the optimizer.
            shaped: the names of tensors of the parameter's shape, with the first value of all their elements.
            counts: the names of scalar tensors, with their first values.
        """
        state = self.state[parameter]
        for name, value in counts.items():
            if name not in state:
                state[name] = creation.full((), value, device=parameter.device)
        for name, fill in shaped.items():
            if name not in state:
                state[name] = creation.full_like(parameter, fill, requires_grad=False)
        return state

    def _group_update(
        self,
        group: dict[str, Any],
        rule: str,
        settings: Any,
        shaped: Mapping[str, complex],
        counts: Mapping[str, float] = COUNTS,
    ) -> Step | None:
        """Return the step of a parameter group by the update rule `rule`; None if no parameter has a gradient.

        Args:
            group: a parameter group of the optimizer, or its part on one device.
            rule, settings: the name and the settings of the rule; see `vmflow.kernels.problems.updates`.
            shaped, counts: see `_remembered`.
        """
        parameters = with_gradients(group)
        if not parameters:
            return None
        # Rules without state skip `_remembered`, which would make an empty entry in `self.state`.
        states = [self._remembered(parameter, shaped, counts) for parameter in parameters] if shaped or counts else []
        inputs: list[Any] = [_gradient_of(parameter) for parameter in parameters]
        outputs = [*parameters]
        for name in (*shaped, *counts):
            outputs += [state[name] for state in states]
        kernel = self._rule_of(parameters[0], rule).kernel(settings)
        cost = COSTS.get(rule, 1) * sum([parameter.numel() for parameter in parameters])
        update = Update(f"{type(self).__name__}.step", kernel, inputs, outputs, cost)
        if settings.lr is None:
            lr, device = group["lr"], parameters[0].device
            # Kernels of all devices can read a rate in the host's memory.
            if lr.device is not device and lr.device.type != "cpu":
                return lambda: replace(update, inputs=[*inputs, lr.to(device)])
            inputs.append(lr)
        return update

    def _assignment(self, values: list[Tensor], outputs: list[Tensor]) -> Update:
        """Return a step that copies `values`, which ops have computed, into `outputs`: parameters and their state."""
        values = [
            value.to_global(sbp=output.sbp) if output.is_global else value
            for value, output in zip(values, outputs, strict=True)
        ]
        kernel = self._rule_of(outputs[0], "assign").kernel()
        return Update(
            f"{type(self).__name__}.step", kernel, values, outputs, sum([output.numel() for output in outputs]) // 4
        )

    def _rule_of(self, first: Tensor, name: str) -> Rule:
        """The update rule `name` for a step whose first output is `first`, chosen at the first call and then cached."""
        key = id(first), name, first.device
        found = self._rules.get(key)
        if found is None:
            found = self._rules[key] = choose_update(name, first.device)
        return found

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one optimization step, and return the result of `closure`, or None without it.

        One instruction changes all parameters of a device, or none: if a cancelled scope drops this instruction, or one
        that computes a gradient, parameters and state stay as they were.

        Args:
            closure: a function, called before the step, that computes the gradients anew and returns the loss.
        """
        return self._hooked_step(None, *(() if closure is None else (closure,)))

    def step_unless(self, skip: Tensor) -> Any:
        """Take a step that changes nothing if the value of `skip` is not zero; this call does not wait for the value.

        Args:
            skip: a tensor of one element, read when the step's instruction runs.

        Raises:
            ValueError: for a `skip` of another number of elements.
        """
        if skip.numel() != 1:
            raise ValueError(
                f"{type(self).__name__}.step_unless: skip must be a tensor of one element, not {list(skip.shape)}"
            )
        return self._hooked_step(skip)

    def _hooked_step(self, skip: Tensor | None, *args: Any) -> Any:
        kwargs: dict[str, Any] = {}
        for before in list(self._pre_hooks.values()):
            replaced = before(self, args, kwargs)
            if replaced is not None:
                args, kwargs = self._checked_arguments(replaced)
        result = self.take_step(skip, *args, **kwargs)
        for after in list(self._post_hooks.values()):
            after(self, args, kwargs)
        return result

    def _checked_arguments(self, replaced: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not isinstance(replaced, tuple) or len(replaced) != 2 or not isinstance(replaced[1], dict):
            raise TypeError(
                f"{type(self).__name__}: a hook before the step must return None or the new (args, kwargs), "
                f"got {replaced!r:.100}"
            )
        return tuple(replaced[0]), replaced[1]

    def take_step(self, skip: Tensor | None, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step without calling hooks; see `step` and `step_unless`."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        mode = MODE.get()
        groups = [part for group in self.param_groups for part in _parts(group)]
        if mode.scope is None and mode.interpreter is None:
            updates = [self.update(group) for group in groups]
        else:
            # State that `update` makes is kept for later steps, so a surrounding scope must not cancel it, and a graph
            # that is being built must not record the ops that make it.
            with scope(shield=True), eagerly():
                updates = [self.update(group) for group in groups]
        issue_together([_computed(update) for update in updates if update is not None], skip)
        return loss

    def register_step_pre_hook(self, hook: StepPreHook) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; the hook may return other (args, kwargs), or None.

        Returns:
            A handle whose `remove()` removes the hook.  Copies of the optimizer have no hooks.
        """
        return Handle(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: StepPostHook) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` after each step has been issued.

        Returns:
            A handle whose `remove()` removes the hook.  Copies of the optimizer have no hooks.
        """
        return Handle(self._post_hooks, hook)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pre_hooks": {}, "_post_hooks": {}, "_rules": {}}

    def clip_grad(self, error_if_nonfinite: bool = False) -> None:
        """Clip the gradients of each group that has "clip_grad_max_norm", as `nn.utils.clip_grad_norm_` does.

        The order of the norm is the group's "clip_grad_norm_type", 2 by default.

        Args:
            error_if_nonfinite: wait for the norms, and raise if one is infinite or NaN.

        Raises:
            ValueError: if no group has "clip_grad_max_norm".
            RuntimeError: with `error_if_nonfinite`, for a norm that is not finite.
        """
        clipped = [group for group in self.param_groups if group.get("clip_grad_max_norm") is not None]
        if not clipped:
            raise ValueError(
                f"{type(self).__name__}.clip_grad: no group says how far to clip; "
                "give 'clip_grad_max_norm' (and 'clip_grad_norm_type') in the groups"
            )
        for group in clipped:
            limit, order = group["clip_grad_max_norm"], group.get("clip_grad_norm_type", 2.0)
            clip_grad_norm_(group["params"], limit, order, error_if_nonfinite)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or with ``set_to_none=False`` existing ones to zero."""
        zero_gradients([parameter for group in self.param_groups for parameter in group["params"]], set_to_none)

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`: "state" and "param_groups", with numbers in place of the parameters.

        The tensors are the optimizer's own, not copies.
        """
        numbers: dict[Tensor, int] = {}
        groups: list[dict[str, Any]] = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers[parameter] = len(numbers)
            groups.append({**group, "params": [numbers[parameter] for parameter in group["params"]]})
        state = {
            numbers[parameter]: dict(remembered)
            for parameter, remembered in self.state.items()
            if parameter in numbers and remembered
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy settings and state from the state dict of an optimizer of like parameters, after checking the dict.

        Raises:
            ValueError: if the numbers of groups or parameters differ, state belongs to no parameter, an entry of
                `shaped` is no tensor of its parameter's shape, or a setting is out of range.
            KeyError: if `state_dict` has no "state" or no "param_groups", or a group no "params".
        """
        name = type(self).__name__
        for key in ("state", "param_groups"):
            if key not in state_dict:
                raise KeyError(f"{name}: not the state dict of an optimizer: it has no {key!r}")
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(f"{name}: the state dict has {len(saved)} groups, the optimizer {len(self.param_groups)}")
        owners: dict[Any, Tensor] = {}
        for position, (group, have) in enumerate(zip(saved, self.param_groups, strict=True)):
            if len(group["params"]) != len(have["params"]):
                raise ValueError(
                    f"{name}: group {position} has {len(group['params'])} parameters in the state dict and "
                    f"{len(have['params'])} in the optimizer"
                )
            owners.update(zip(group["params"], have["params"], strict=True))
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        for number, remembered in state_dict["state"].items():
            if number not in owners:
                raise ValueError(f"{name}: the state dict remembers parameter {number!r}, which is in no group")
            owner = owners[number]
            state[owner] = {
                key: self._restored(number, key, value, owner) for key, value in remembered.items() if value is not None
            }
        groups = [
            {**self.defaults, **{key: _copied(value) for key, value in group.items()}, "params": have["params"]}
            for group, have in zip(saved, self.param_groups, strict=True)
        ]
        for group in groups:
            self.check_group(group)
        self.state = state
        self.param_groups = groups
        self._rules = {}

    def _restored(self, number: Any, key: str, value: Any, parameter: Tensor) -> Any:
        """Return `value`, entry `key` of the state of parameter `number`, with copies of tensors and lists.

        A number of `counts` becomes a tensor on the parameter's device; other tensors get the dtype and device of a
        floating-point or complex parameter.
        """
        if key in self.counts:
            counted = value.detach() if isinstance(value, Tensor) else creation.tensor(float(value))
            return counted.to(parameter.device, copy=True)
        if key in self.shaped and (not isinstance(value, Tensor) or value.shape != parameter.shape):
            found = f"has shape {list(value.shape)}" if isinstance(value, Tensor) else f"is {type(value).__name__}"
            raise ValueError(
                f"{type(self).__name__}: {key!r} of parameter {number!r} {found}; "
                f"a tensor of shape {list(parameter.shape)} is needed"
            )
        if isinstance(value, list):
            return [self._restored(number, key, item, parameter) for item in value]
        if isinstance(value, Tensor) and (parameter.is_floating_point() or parameter.is_complex()):
            if key in self.shaped:
                value = spread_like(value, parameter)
            return value.detach().to(dtype=parameter.dtype, device=parameter.device, copy=True)
        return _copied(value)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for position, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {position}"] if position else [f"Parameter Group {position}"]
            lines += [f"    {key}: {value}" for key, value in sorted(group.items()) if key != "params"]
        return "\n".join([*lines, ")"])


def _parts(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameter group itself if its parameters are on one device, else a group like it for each device."""
    if len({parameter.device for parameter in group["params"]}) <= 1:
        return [group]
    return [{**group, "params": parameters} for parameters in by_device(group["params"]).values()]


def _gradient_of(parameter: Tensor) -> Tensor:
    """The gradient of a parameter, spread over ranks as the parameter is: a user's gradient may be spread otherwise."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient._blob.meta.spread is parameter._blob.meta.spread or not parameter.is_global:
        return gradient
    return gradient.to_global(parameter.placement, parameter.sbp)


def _computed(update: Step) -> Update:
    if isinstance(update, Update):
        return update
    mode = MODE.get()
    MODE.set(mode.replace(grad=False, autocast=None))
    try:
        return update()
    finally:
        MODE.set(MODE.get().replace(grad=mode.grad, autocast=mode.autocast))


def _check_execution(name: str, execution: Mapping[str, Any]) -> None:
    for key in execution:
        if key not in _EXECUTION:
            raise TypeError(f"{name}: got an unexpected keyword argument {key!r}")
    if execution.get("differentiable"):
        raise ValueError(
            f"{name}: differentiable=True is not possible: a step changes the parameters in place, by an instruction "
            "that autograd does not record; compute new tensors from the old ones to differentiate through a step"
        )


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value.detach().clone() if isinstance(value, Tensor) else value


def are_numbers(value: Any, count: int) -> bool:
    """Whether a setting is a tuple or list of `count` numbers."""
    fits = isinstance(value, (tuple, list)) and len(value) == count
    return fits and all([isinstance(part, NUMBERS) for part in value])


def check_not_negative(name: str, group: dict[str, Any], *keys: str) -> None:
    """Raise ValueError unless the settings `keys` of a group are numbers >= 0; "lr" may be a tensor of one element."""
    for key in keys:
        value = group[key]
        if key == "lr" and isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"{name}: lr must be a number or a tensor of one element, not {list(value.shape)}")
        elif not isinstance(value, NUMBERS) or not value >= 0:
            raise ValueError(f"{name}: {key} must be a number that is not negative, got {value!r}")
