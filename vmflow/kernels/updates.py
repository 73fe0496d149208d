"""Chooses updates, which change many arrays in place: `choose_update` finds the `Rule` that makes their kernels.

Most updates are steps of optimizers.  They are not ops: a rule is chosen by its name alone, without metas, and its
kernel sees the arrays when it runs.  All else that a kernel needs are the rule's settings; see
`vmflow.kernels.problems.updates`.

A device's package, see `vmflow.kernels.choosing`, has a package `updates` of modules, which declare the rules.  It is
imported when the first update is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from .choosing import PACKAGES, declare_family, leave, origin_of

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array

# kernel(arrays of the inputs, arrays of the outputs); see `vmflow.instructions.multi_tensor_update`.
UpdateKernel: TypeAlias = "Callable[[list[Array], list[Array]], object]"

# change(memory if the rule has one, settings if it has some, arrays of the inputs, arrays of the outputs).
Change = TypeVar("Change", bound=Callable[..., object])


class Rule(NamedTuple):
    """How some arrays are changed.

    A rule may remember facts from one update to the next, such as the arrays' addresses: a caller that changes the same
    arrays again and again keeps a rule for them.

    Attributes:
        change: changes the arrays; see `Change`.
        memory: its first argument, if any.
    """

    change: Callable[..., object]
    memory: tuple[Any, ...] = ()

    def kernel(self, *settings: Any) -> UpdateKernel:
        """The kernel of one update, for settings of the type that the rule has in `vmflow.kernels.problems.updates`."""
        return partial(self.change, *self.memory, *settings)


# For each package and name of a rule, the function that changes arrays, and the one that makes the rule's memory, or
# None.
_RULES: Final[dict[str, dict[str, tuple[Callable[..., object], Callable[[], Any] | None]]]] = {
    package: {} for package in PACKAGES.values()
}

# For each name and device, the rules without memory that were chosen: some are chosen for each batch.
_CHOSEN: Final[dict[tuple[str, Device], Rule]] = {}


def declares_rule(
    rule: str, memory: Callable[[], Any] | None = None, package: str = "vmflow.kernels.numpy"
) -> Callable[[Change], Change]:
    """Declare that the decorated function changes arrays by this rule; see `choosing.builds`.

    Args:
        rule: its name.
        memory: makes the memory of a rule that has one.
        package: of the device.

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
    """The rule of this name, for arrays on that device.

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
