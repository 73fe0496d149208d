"""``out=``: results that go into the memory of a tensor that is there already.

As in PyTorch, nothing is recorded for gradients; where something would have to be, it is an error.  Unlike PyTorch's,
the tensor is not resized: it must have the result's shape, and a dtype that can hold the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import vmflow.tensors as _tensors
from vmflow import interpreter as _interpreter
from vmflow.context import MODE

from .table import Attributes, OpExpr

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


def written(
    op: OpExpr,
    out: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Run an op of one result, whose kernel writes straight into `out`, which is returned.

    Args:
        op: of one result.
        out: see the module; it may be among the inputs.
        inputs, attributes, scalars: as of `dispatch`.

    Raises:
        TypeError: if `out` is no tensor, or on another device.
        RuntimeError: if a gradient would have to be recorded, or the result does not fit.
    """
    check_destination(op.name.removesuffix("_scalar"), out, inputs)
    return _interpreter.dispatch_into(op, out, inputs, attributes, scalars)


def delivered(name: str, out: Tensor, inputs: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
    """As `written`, for a function made of several ops: compute the result and copy it.

    Args:
        name: of the function.
        out: see the module.
        inputs: what the function was given; what is no tensor does not matter.
        compute: gives the result.
    """
    from .copying import copy_

    check_destination(name, out, tuple([it for it in inputs if isinstance(it, _tensors.Tensor)]))
    result = compute()
    _interpreter.check_fits(name, result._blob.meta, out)
    return copy_(out, result)


def check_destination(name: str, out: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Raise TypeError unless `out` is a tensor on the inputs' device; RuntimeError if a gradient would be recorded."""
    if not isinstance(out, _tensors.Tensor):
        raise TypeError(f"{name}: out must be a tensor, not {type(out).__name__}")
    for given in inputs:
        if not isinstance(given, _tensors.Tensor):
            raise TypeError(f"{name}: expected tensors, got {type(given).__name__}")
    if any([it.device is not out.device for it in inputs]):
        raise TypeError(f"{name}: out is on {out.device}, but the result is not; make it there")
    if MODE.get().grad and any([it.requires_grad for it in (out, *inputs)]):
        raise RuntimeError(
            f"{name}: functions with out=... do not support automatic differentiation, but one of the tensors requires "
            "a gradient; detach() it, work under vmflow.no_grad(), or leave out=... away"
        )
