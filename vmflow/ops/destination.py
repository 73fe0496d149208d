"""The argument ``out``: results of functions written into an existing tensor.

As in PyTorch, a call with `out` records no gradient, and is an error where a gradient would have to be recorded.
Unlike in PyTorch, `out` is not resized: it must have the result's shape, and a dtype that can hold the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.operands import check_fits, not_tensors
from vmflow.transfers import beside

from .copying import copy_
from .declaration import Declared
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
    """Run an op of one result with a kernel that writes the result directly into `out`; return `out`.

    Args:
        op: an op of one result.
        out: a tensor of the result's shape, of a dtype that can hold it; may be among the inputs.
        inputs, attributes, scalars: as of `vmflow.interpreter.dispatch`.

    Raises:
        TypeError: if `out` is no tensor, or on another device.
        RuntimeError: if a gradient would have to be recorded, or the result does not fit.
    """
    check_destination(op.name.removesuffix("_scalar"), out, inputs)
    return _interpreter.dispatch_into(op, out, inputs, attributes, scalars)


def delivered(name: str, out: Tensor, inputs: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
    """Compute the result of a function of several ops by `compute`, copy it into `out`, and return `out`.

    Args:
        name: of the function, for errors.
        out: a tensor of the result's shape, of a dtype that can hold it.
        inputs: the arguments of the function; `check_destination` checks `out` against the tensors among them.
        compute: returns the result.
    """
    check_destination(name, out, tuple([operand for operand in inputs if isinstance(operand, _tensors.Tensor)]))
    result = compute()
    check_fits(name, result._blob.meta, out)
    return copy_(out, result)


_Results = TypeVar("_Results", bound=tuple[Any, ...])


def delivered_all(name: str, out: Any, inputs: tuple[Any, ...], compute: Callable[[], _Results]) -> _Results:
    """Copy the results of `compute`, a tuple, into the tensors `out`; return `out` as a tuple of the results' type.

    Raises:
        TypeError: if `out` is no tuple or list.
        ValueError: if `out` has more or fewer tensors than there are results.
    """
    if not isinstance(out, (tuple, list)):
        raise TypeError(f"{name}: out must be a tuple of tensors, not {type(out).__name__}")
    tensors = tuple([operand for operand in inputs if isinstance(operand, _tensors.Tensor)])
    for target in out:
        check_destination(name, target, tensors)
    results = compute()
    if len(results) != len(out):
        raise ValueError(f"{name}: out must be {len(results)} tensors, got {len(out)}")
    for target, result in zip(out, results, strict=True):
        check_fits(name, result._blob.meta, target)
    for target, result in zip(out, results, strict=True):
        copy_(target, result)
    together: Callable[..., _Results] = type(results)
    return together(*out)


def check_destination(name: str, out: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Raise TypeError unless `out` and inputs are tensors of one device; RuntimeError if gradients are recorded."""
    if not isinstance(out, _tensors.Tensor):
        raise TypeError(f"{name}: out must be a tensor, not {type(out).__name__}")
    for operand in inputs:
        if not isinstance(operand, _tensors.Tensor):
            raise not_tensors(name, (operand,))
    if any([operand.device is not out.device for operand in inputs]):
        raise TypeError(f"{name}: out is on {out.device}, but the result is not; make it there")
    if MODE.get().grad and any([operand.requires_grad for operand in (out, *inputs)]):
        raise RuntimeError(
            f"{name}: functions with out=... do not support automatic differentiation, but one of the tensors requires "
            "a gradient; detach() it, work under vmflow.no_grad(), or leave out=... away"
        )


def out_by_copy(name: str | None = None) -> Callable[[Declared], Declared]:
    """Add the argument ``out`` to the decorated function: its result is computed and then copied into `out`.

    Args:
        name: the function's public name, for errors, by default the decorated function's.

    Raises:
        TypeError: when called, if `out` is no tensor or on another device.
        RuntimeError: when called, if a gradient would be recorded, or the result does not fit `out`'s shape or dtype.

    Example:
        >>> def double(input): return input + input
        >>> result = flow.zeros(2)
        >>> flow.random.out_by_copy()(double)(flow.tensor([1.0, 2.0]), out=result) is result
        True
    """
    return _with_out(delivered, name)


def out_as_made() -> Callable[[Declared], Declared]:
    """Add the argument ``out`` to the decorated creation function; its default dtype and device become those of `out`.

    Raises:
        TypeError: when called, if another dtype or device than `out` has is asked for, or `out` is no tensor.
        RuntimeError: when called, if a gradient would be recorded, or `out` is not of the result's shape.

    Example:
        >>> result = flow.zeros(2)
        >>> flow.full((2,), 7.0, out=result) is result
        True
    """

    def declare(function: Declared) -> Declared:
        @functools.wraps(function)
        def with_out(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            if out is None:
                return function(*args, **kwargs)
            name, operands = function.__name__, (*args, *kwargs.values())
            if isinstance(out, _tensors.Tensor):
                for key, own in (("dtype", out.dtype), ("device", out.device)):
                    requested = kwargs.get(key)
                    if requested is not None and (Device(requested) if key == "device" else requested) is not own:
                        raise TypeError(f"{name}: out is of the {key} {own}, and {requested} was asked for")
                    kwargs[key] = own
            requires_grad = kwargs.pop("requires_grad", False)
            made = delivered(name, out, operands, lambda: beside(function(*args, **kwargs), out))
            return made.requires_grad_() if requires_grad else made

        return cast(Declared, with_out)

    return declare


def outs_by_copy(name: str | None = None) -> Callable[[Declared], Declared]:
    """Add the argument ``out``, a tuple of tensors into which the decorated function's tuple of results is copied."""
    return _with_out(delivered_all, name)


def _with_out(deliver: Callable[..., Any], name: str | None) -> Callable[[Declared], Declared]:
    def declare(function: Declared) -> Declared:
        called = name or function.__name__

        @functools.wraps(function)
        def with_out(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            if out is None:
                return function(*args, **kwargs)
            return deliver(called, out, _operands((*args, *kwargs.values())), lambda: function(*args, **kwargs))

        return cast(Declared, with_out)

    return declare


def _operands(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Flatten the arguments of a call by one level: elements of lists and tuples become arguments of their own."""
    operands: list[Any] = []
    for argument in arguments:
        operands += argument if isinstance(argument, (list, tuple)) else (argument,)
    return tuple(operands)
