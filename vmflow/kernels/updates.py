"""Chooses kernels of updates, which change many arrays in place: `choose_update` finds the `Rule` of an update.

Updates, such as steps of optimizers, are not ops: a rule is chosen by its name and device alone, and its kernel sees
shapes and dtypes when it runs.  Apart from the arrays, a kernel needs only the rule's settings; see
`vmflow.kernels.problems.updates`.

A device's package, see `vmflow.kernels.choosing`, has a package `updates` of modules, which declare the rules.
The package `updates` is imported when the device's first update is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from .choosing import PACKAGES, declare_family, leave, origin_of

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array

# A kernel that changes the outputs in place: kernel(arrays of the inputs, arrays of the outputs); see
# `vmflow.instructions.multi_tensor_update`.
UpdateKernel: TypeAlias = "Callable[[list[Array], list[Array]], object]"

# The function of a rule: change(the rule's memory and settings, if it has them, arrays of the inputs, arrays of the
# outputs).
Change = TypeVar("Change", bound=Callable[..., object])


class Rule(NamedTuple):
    """One device's kernel of an update such as "adam", for any settings.

    A rule may remember facts from one update to the next, such as the arrays' addresses: a caller that changes the same
    arrays again and again keeps a rule for them.

    Attributes:
        change: the function that changes the arrays; see `Change`.
        memory: a tuple of the object in which `change` remembers facts, its first argument; empty if `change` has none.
    """

    change: Callable[..., object]
    memory: tuple[Any, ...] = ()

    def kernel(self, *settings: Any) -> UpdateKernel:
        """Return the kernel for an update's `settings`: one object from `problems.updates`, or no argument."""
        return partial(self.change, *self.memory, *settings)


# The declared rules: by package and name, the function that changes arrays, and the function that makes the rule's
# memory, or None.
_RULES: Final[dict[str, dict[str, tuple[Callable[..., object], Callable[[], Any] | None]]]] = {
    package: {} for package in PACKAGES.values()
}

# A cache of the rules with empty `memory` that `choose_update` has returned, by name and device: some callers choose a
# rule for each batch.
_CHOSEN: Final[dict[tuple[str, Device], Rule]] = {}


def declares_rule(
    rule: str, memory: Callable[[], Any] | None = None, package: str = "vmflow.kernels.numpy"
) -> Callable[[Change], Change]:
    """Declare that the decorated function changes arrays in place by the update named `rule`.

    Args:
        rule: the update's name, such as "clip".
        memory: makes the object in which the function remembers facts between updates; None if it needs none.
        package: the device's package of kernels.

    Raises:
        ValueError: if another function has declared this rule.
    """

    def declare(change: Change) -> Change:
        before, _ = _RULES[package].setdefault(rule, (change, memory))
        if origin_of(before) != origin_of(change):
            raise ValueError(f"the update {rule!r} has two kernels in {package}")
        _RULES[package][rule] = change, memory
        return change

    return declare


_NOTHING: Final = Rule(leave)


def choose_update(rule: str, device: Device) -> Rule:
    """Return the `Rule` of the update named `rule`, for arrays on `device`; a new one at each call if it has a memory.

    On the meta device, the rule of any name does nothing.

    Raises:
        DeviceUnavailable: if the device cannot compute.
        NotImplementedError: if the device has no such rule.
    Example:
        >>> import numpy as np
        >>> from vmflow.kernels.problems.updates import Clip
        >>> from vmflow.kernels.updates import choose_update
        >>> clip = choose_update("clip", flow.device("cpu")).kernel(Clip(2.0))
        >>> array = np.array([-3.0, 1.0, 5.0])
        >>> clip([], [array])
        >>> array
        array([-2.,  1.,  2.])
    """
    chosen = _CHOSEN.get((rule, device))
    if chosen is not None:
        return chosen
    if device.type == "meta":
        return _NOTHING
    device.require()
    package = PACKAGES[device.type]
    if rule not in _RULES[package]:
        declare_family(f"{package}.updates")
    if rule not in _RULES[package]:
        raise NotImplementedError(f"the update {rule!r} has no kernel for {device}")
    change, memory = _RULES[package][rule]
    if memory is not None:
        return Rule(change, (memory(),))
    found = _CHOSEN[rule, device] = Rule(change)
    return found
