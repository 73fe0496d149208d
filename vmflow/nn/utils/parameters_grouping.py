"""`ContiguousParamsGroup`: parameters, and their gradients, as views of few large tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vmflow.autograd import no_grad
from vmflow.nn.parameter import Parameter
from vmflow.ops.creation.creation import zeros
from vmflow.tensors import Tensor

# Where a parameter begins in its buffer is a multiple of so many bytes, since kernels read aligned memory faster.
_ALIGNMENT = 512


class _Buffer(Parameter):
    """The values of several parameters.

    Its gradient is made of theirs, wherever these are: a backward pass adds to a gradient that is there, and makes one
    that is not.

    Attributes:
        members: the parameters with the parts of `slopes` for their gradients.
        slopes: the gradients of all.
    """

    def __init__(self, values: Tensor, slopes: Tensor, members: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__(values, requires_grad=False)
        self.slopes = slopes
        self.members = members

    @property
    def grad(self) -> Tensor | None:
        """The gradients of all members."""
        for member, part in self.members:
            if member.grad is not part:
                with no_grad():
                    part.zero_() if member.grad is None else part.copy_(member.grad)
                member.grad = part
        return self.slopes

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        with no_grad():
            self.slopes.zero_() if gradient is None else self.slopes.copy_(gradient)
        for member, part in self.members:
            member.grad = part


class ContiguousParamsGroup:
    """Puts parameters that belong together, and their gradients, behind each other in memory.

    Afterwards each parameter is a view of a buffer, and its gradient one of another buffer.  A walk through many small
    tensors becomes one through few large ones:

        group = ContiguousParamsGroup([list(model.parameters())])
        optimizer = flow.optim.SGD(group.grouped_parameters, lr=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    A rule that goes by whole parameters, such as that of `LAMB`, takes a buffer for one.

    Args:
        params_group_list: lists of parameters, or one list.  Those of a list share a buffer if they have the same dtype
            and device; those that require no gradient are left as they are.

    Raises:
        TypeError: for anything else than parameters.
        ValueError: for parameters that are global, or not of a floating-point dtype.
    """

    def __init__(self, params_group_list: Iterable[Tensor] | Iterable[Iterable[Tensor]]) -> None:
        self._buffers: list[_Buffer] = []
        for group in _checked(params_group_list):
            alike: dict[Any, list[Tensor]] = {}
            for parameter in group:
                alike.setdefault((parameter.dtype, parameter.device), []).append(parameter)
            self._buffers += [_grouped(members) for members in alike.values()]

    @property
    def grouped_parameters(self) -> list[Tensor]:
        """The buffers of values, whose gradients are those of gradients."""
        return [*self._buffers]

    @property
    def grouped_parameters_grad(self) -> list[Tensor | None]:
        """The buffers of gradients."""
        return [buffer.grad for buffer in self._buffers]


def _checked(groups: Any) -> list[list[Tensor]]:
    """Each parameter that is trained, once, in the list it is in."""
    given = [[groups]] if isinstance(groups, Tensor) else list(groups)
    if given and all([isinstance(each, Tensor) for each in given]):
        given = [given]
    seen: set[Tensor] = set()
    found: list[list[Tensor]] = []
    for each in given:
        members = list(each) if isinstance(each, Iterable) and not isinstance(each, Tensor) else [each, None]
        for member in members:
            if not isinstance(member, Tensor):
                raise TypeError(
                    "ContiguousParamsGroup: expected a list of parameters or lists of them, got one with a "
                    f"{type(member).__name__}"
                )
            if member.is_global:
                raise ValueError("ContiguousParamsGroup: global parameters cannot be grouped; group local ones")
            if not member.is_floating_point():
                raise ValueError(
                    f"ContiguousParamsGroup: only floating-point parameters can be grouped, got {member.dtype.name}"
                )
        trained = [member for member in members if member.requires_grad and member not in seen]
        seen.update(trained)
        found.append(trained)
    return found


def _grouped(members: list[Tensor]) -> _Buffer:
    """A buffer of these parameters, which have the same dtype and device."""
    first = members[0]
    step = _ALIGNMENT // first.dtype.itemsize
    sizes = [-(-member.numel() // step) * step for member in members]
    values = zeros(sum(sizes), dtype=first.dtype, device=first.device)
    gradients = zeros(sum(sizes), dtype=first.dtype, device=first.device)
    parts: list[tuple[Tensor, Tensor]] = []
    start = 0
    with no_grad():
        for member, size in zip(members, sizes, strict=True):
            shape, count = tuple(member.shape), member.numel()
            part, slope = [buffer.narrow(0, start, count).reshape(shape) for buffer in (values, gradients)]
            part.copy_(member)
            member.data = part
            parts.append((member, slope))
            start += size
    made = _Buffer(values, gradients, parts)
    made.grad  # noqa: B018 (which takes the gradients that there are)
    return made
