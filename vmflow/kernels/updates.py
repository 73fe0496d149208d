"""The door to what changes many arrays in place: `choose_update` finds the `Rule`, which makes the kernels of updates.

Such are the steps of optimizers above all.  They are not ops, and see arrays only when they run: no metas are told.
What a kernel has to know beside the arrays are the rule's settings; see `vmflow.kernels.problems.updates`.

A device's package, see `vmflow.kernels.choosing`, has a package `updates` of modules, which declare the rules.  It is
imported when the first update is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from .choosing import PACKAGES, declare_family, origin_of

if TYPE_CHECKING:
    from vmflow.devices import device as Device
    from vmflow.instructions.blob import Array

# kernel(arrays of the inputs, arrays of the outputs); see `vmflow.instructions.multi_tensor_update`.
UpdateKernel: TypeAlias = "Callable[[list[Array], list[Array]], object]"

# builder(settings), or builder(memory, settings) of a rule that has a memory.
UpdateBuilder: TypeAlias = Callable[..., UpdateKernel]


@final
class Rule:
    """How some arrays are changed.

    It may remember something from one update to the next, such as where the arrays lie: whoever changes the same arrays
    again and again keeps a rule for them.

    Args:
        builder: makes the kernel.
        memory: what it is given before the settings, if anything.

    Attributes:
        kernel: called with the settings, of the type that the rule has in `vmflow.kernels.problems.updates`, and with
            nothing for a rule that has none: the kernel of one update.
    """

    __slots__ = ("kernel",)

    def __init__(self, builder: UpdateBuilder, *memory: Any) -> None:
        self.kernel: UpdateBuilder = partial(builder, *memory) if memory else builder


# By package, the rules by name, or what makes them where they have a memory.
_RULES: Final[dict[str, dict[str, Rule | Callable[[], Rule]]]] = {"vmflow.kernels.numpy": {}}

# By package and name, which function is the builder.
_DECLARED: Final[dict[tuple[str, str], tuple[str, str]]] = {}

# By name and device, those without a memory, once they were chosen: some are chosen for each batch.
_CHOSEN: Final[dict[tuple[str, Device], Rule]] = {}


def builds_update(
    rule: str, memory: Callable[[], Any] | None = None, package: str = "vmflow.kernels.numpy"
) -> Callable[[UpdateBuilder], UpdateBuilder]:
    """Declare the decorated function the builder of this rule's kernels, or again that it is; see `choosing.builds`.

    Args:
        rule: its name.
        memory: makes the memory of a rule, where it has one.
        package: of the device.

    Raises:
        ValueError: if another function is the builder already.
    """
    rules = _RULES[package]

    def declare(builder: UpdateBuilder) -> UpdateBuilder:
        if _DECLARED.setdefault((package, rule), origin_of(builder)) != origin_of(builder):
            raise ValueError(f"the update {rule!r} has two builders in {package}")
        rules[rule] = Rule(builder) if memory is None else lambda: Rule(builder, memory())
        return builder

    return declare


def choose_update(rule: str, device: Device) -> Rule:
    """The rule of this name, for arrays on that device.

    Raises:
        DeviceUnavailable: if nothing can be computed there.
        NotImplementedError: if the device has no such rule.
    """
    chosen = _CHOSEN.get((rule, device))
    if chosen is not None:
        return chosen
    device.require()
    package = PACKAGES[device.type]
    rules = _RULES[package]
    if rule not in rules:
        declare_family(f"{package}.updates")
    found = rules.get(rule)
    if found is None:
        raise NotImplementedError(f"the update {rule!r} has no kernel for {device}")
    if not isinstance(found, Rule):
        return found()
    _CHOSEN[rule, device] = found
    return found
