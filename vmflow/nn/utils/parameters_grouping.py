"""`ContiguousParamsGroup`: makes many parameters, and their gradients, views of few large tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vmflow.autograd import no_grad
from vmflow.nn.parameter import Parameter
from vmflow.ops.creation.creation import zeros
from vmflow.tensors import Tensor

# The offset of each parameter in its large buffer is a multiple of this number of bytes, because kernels read aligned
# memory faster.
_ALIGNMENT = 512


class _Buffer(Parameter):
    """A large tensor with the values of several parameters, which are views of it.

    A backward pass adds to gradients in place, but makes a new tensor, outside `slopes`, for a parameter whose gradient
    is None.  Reading the buffer's `grad` copies such gradients into `slopes`.

    Attributes:
        members: pairs of a parameter and the part of `slopes` for its gradient.
        slopes: a tensor with the gradients of all parameters.
    """

    def __init__(self, values: Tensor, slopes: Tensor, members: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__(values, requires_grad=False)
        self.slopes = slopes
        self.members = members

    @property
    def grad(self) -> Tensor | None:
        """The gradients of all parameters in one tensor, `slopes`; gradients outside are copied into `slopes` first.

        Reading never gives None.  Assigning None makes all gradients 0.
        """
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
    """Makes the parameters of a group, and their gradients, contiguous in memory.

    Afterwards each parameter is a view of a large buffer, and its gradient a view of another buffer.  Loops over many
    small tensors become loops over few large ones:

        group = ContiguousParamsGroup([list(model.parameters())])
        optimizer = flow.optim.SGD(group.grouped_parameters, lr=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    An optimizer whose update depends on norms of parameters, such as `LAMB`, treats a buffer as one parameter.

    Args:
        params_group_list: lists of parameters, or one list.  Parameters of a list share a buffer if they have the same
            dtype and device; parameters that require no gradient are left as they are.

    Raises:
        TypeError: for anything else than tensors.
        ValueError: for parameters that are global, or not of a floating-point dtype.
    """

    def __init__(self, params_group_list: Iterable[Tensor] | Iterable[Iterable[Tensor]]) -> None:
        self._buffers: list[_Buffer] = []
        for group in _checked(params_group_list):
            by_kind: dict[Any, list[Tensor]] = {}
            for parameter in group:
                by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
            self._buffers += [_grouped(members) for members in by_kind.values()]

    @property
    def grouped_parameters(self) -> list[Tensor]:
        """The large buffers with the parameters' values, for an optimizer; their `grad` are the gradients' buffers."""
        return [*self._buffers]

    @property
    def grouped_parameters_grad(self) -> list[Tensor | None]:
        """The large buffers with the parameters' gradients; none of them is None."""
        return [buffer.grad for buffer in self._buffers]


def _checked(groups: Any) -> list[list[Tensor]]:
    """Return `groups` as lists of parameters, each parameter once, without those that require no gradient."""
    lists = [[groups]] if isinstance(groups, Tensor) else list(groups)
    if lists and all([isinstance(entry, Tensor) for entry in lists]):
        lists = [lists]
    seen: set[Tensor] = set()
    checked: list[list[Tensor]] = []
    for entry in lists:
        members = list(entry) if isinstance(entry, Iterable) and not isinstance(entry, Tensor) else [entry, None]
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
        trained = [member for member in dict.fromkeys(members) if member.requires_grad and member not in seen]
        seen.update(trained)
        checked.append(trained)
    return checked


def _grouped(members: list[Tensor]) -> _Buffer:
    """Copy parameters of one dtype and device into a new buffer, make them views of it, and return the buffer."""
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
            part, slope = [whole.narrow(0, start, count).reshape(shape) for whole in (values, gradients)]
            part.copy_(member)
            member.data = part
            parts.append((member, slope))
            start += size
    buffer = _Buffer(values, gradients, parts)
    buffer.grad  # noqa: B018 (the property gathers the gradients)
    return buffer
