"""`Tensor.backward`, and `Tensor.detach` and `Tensor.detach_` as functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmflow import autograd as _autograd
from vmflow.operands import check_tensors
from vmflow.ops.declaration import function, method

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@function()
def detach(input: Tensor) -> Tensor:
    """A tensor of the same shape and memory, without history: `Tensor.detach`.

    Raises:
        TypeError: if `input` is no tensor.

    Example:
        >>> flow.detach(flow.ones(2, requires_grad=True)).requires_grad
        False
    """
    check_tensors("detach", input)
    return input.detach()


@function()
def detach_(input: Tensor) -> Tensor:
    """Forget the history: `Tensor.detach_`."""
    check_tensors("detach_", input)
    return input.detach_()


@method()
def backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Accumulate the gradients of this tensor into the leaves from which it was made.

    Args:
        gradient: of the final value by this tensor, of its shape and device, cast to its dtype; may be left out for a
            single element.
        retain_graph: whether to allow another pass; by default as `create_graph`.
        create_graph: whether the pass itself is recorded.
        inputs: accumulate into these, and no other leaves; see `vmflow.autograd.backward`.

    Raises:
        TypeError, RuntimeError: as `vmflow.autograd.backward`.

    Example:
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> x.grad
        tensor(6.)
    """
    _autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)
