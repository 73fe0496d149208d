"""Checking gradients against differences of the function's values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vmflow import autograd as _autograd
from vmflow.tensors import Tensor

from .functional import as_tensors
from .grad_mode import enable_grad, no_grad

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vmflow.tensors import Tensor

    Array = NDArray[Any]


class GradcheckError(RuntimeError):
    """A gradient does not agree with the differences."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Whether the gradients of a function agree with central differences of its values.

    Each element of each input that requires a gradient is moved by `eps` both ways.  Waits for the values.

    Args:
        func: from the inputs to a tensor or a tuple of tensors, of which those that require a gradient are checked.
        inputs: a tensor, or a tuple of tensors and anything else; float64, or the differences tell little.
        eps: how far to move an element.
        atol, rtol: the difference allowed, ``atol + rtol * |numerical|``.
        raise_exception: whether to raise, or to return False.
        nondet_tol: by how much two backward passes may differ.

    Raises:
        GradcheckError: if they do not agree.
        TypeError: for complex inputs.
        ValueError: if no input requires a gradient.
    """
    given: tuple[Any, ...] = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    moved = [place for place, it in enumerate(given) if isinstance(it, Tensor) and it.requires_grad]
    if not moved:
        raise ValueError("gradcheck: no input requires a gradient; make one with requires_grad=True")
    if any([given[place].dtype.is_complex for place in moved]):
        raise TypeError("gradcheck: complex inputs cannot be checked; check a function of real and imaginary parts")
    if any([given[place].dtype.itemsize < 8 for place in moved]):
        warnings.warn("gradcheck: differences of anything but float64 are too coarse to tell", stacklevel=2)
    try:
        _compare(func, given, moved, eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(
    func: Callable[..., Any],
    given: tuple[Any, ...],
    moved: list[int],
    eps: float,
    atol: float,
    rtol: float,
    nondet: float,
) -> None:
    with enable_grad():
        outputs, _ = as_tensors("gradcheck", func(*given))
    wanted = [given[place] for place in moved]
    checked = [number for number, it in enumerate(outputs) if it.dtype.is_floating_point]
    numerical = _differences(func, given, moved, checked, eps)
    for row, number in enumerate(checked):
        exact = _jacobian(outputs[number], wanted)
        again = _jacobian(outputs[number], wanted)
        for column, place in enumerate(moved):
            if np.any(np.abs(exact[column] - again[column]) > nondet):
                raise GradcheckError(
                    f"gradcheck: two backward passes from result {number} to input {place} differ by up to "
                    f"{np.max(np.abs(exact[column] - again[column]))}"
                )
            found, expected = exact[column], numerical[row][column]
            if not np.allclose(found, expected, rtol, atol, equal_nan=True):
                raise GradcheckError(
                    f"gradcheck: the Jacobian of result {number} by input {place} is\n{found}\nby autograd, and\n"
                    f"{expected}\nby differences"
                )


def _jacobian(output: Tensor, inputs: list[Tensor]) -> list[Array]:
    """By autograd, one matrix for each input: a row for each element of the output."""
    if not output.requires_grad:
        return [np.zeros((output.numel(), it.numel())) for it in inputs]
    rows: list[list[Array]] = []
    for place in range(output.numel()):
        weights = np.zeros(output.numel())
        weights[place] = 1
        by = output.new_tensor(weights).reshape(output.shape)
        found = _autograd.grad(output, inputs, by, retain_graph=True, allow_unused=True)
        rows.append(
            [
                np.zeros(it.numel()) if one is None else one.detach().numpy().reshape(-1)
                for one, it in zip(found, inputs, strict=True)
            ]
        )
    if not rows:
        return [np.zeros((0, it.numel())) for it in inputs]
    return [np.stack(it) for it in zip(*rows, strict=True)]


def _differences(
    func: Callable[..., Any], given: tuple[Any, ...], moved: list[int], checked: list[int], eps: float
) -> list[list[Array]]:
    """The same by central differences, for each result that is checked and each input that is moved."""

    def values(place: int, array: Array) -> list[Array]:
        arguments = list(given)
        arguments[place] = given[place].detach().new_tensor(array).requires_grad_()
        with no_grad():
            outputs, _ = as_tensors("gradcheck", func(*arguments))
        return [outputs[number].detach().numpy().astype(np.float64).reshape(-1) for number in checked]

    columns: list[list[Array]] = []
    for place in moved:
        array = given[place].detach().numpy()
        slopes: list[list[Array]] = []
        for index in np.ndindex(array.shape):
            ends: list[list[Array]] = []
            for step in (eps, -eps):
                shifted = array.copy()
                shifted[index] += step
                ends.append(values(place, shifted))
            slopes.append([(above - below) / (2 * eps) for above, below in zip(*ends, strict=True)])
        columns.append([np.stack(it, axis=1) for it in zip(*slopes, strict=True)] if slopes else [])
    sizes = [len(it) for it in columns]
    if 0 in sizes:  # an input without elements has nothing to differ
        empty = [it.reshape(-1, 1)[:, :0] for it in values(moved[0], given[moved[0]].detach().numpy())]
        columns = [it or empty for it in columns]
    return [[column[row] for column in columns] for row in range(len(checked))]


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """As `gradcheck`, of the gradients themselves, by the inputs and by what they are weighted with.

    Args:
        grad_outputs: the weights of the results; by default normally distributed numbers, always the same.
    """
    given: tuple[Any, ...] = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    with enable_grad():
        outputs, _ = as_tensors("gradgradcheck", func(*given))
    places = [number for number, it in enumerate(outputs) if it.requires_grad]
    if grad_outputs is None:
        random = np.random.default_rng(0)
        weights = [
            outputs[it].new_tensor(random.standard_normal(tuple(outputs[it].shape))).requires_grad_() for it in places
        ]
    else:
        weights = list(as_tensors("gradgradcheck", grad_outputs)[0])
    count = len(given)

    def gradients(*arguments: Any) -> Any:
        with enable_grad():
            wanted = [it for place, it in enumerate(arguments[:count]) if isinstance(it, Tensor) and it.requires_grad]
            results, _ = as_tensors("gradgradcheck", func(*arguments[:count]))
            found = _autograd.grad(
                [results[it] for it in places], wanted, arguments[count:], create_graph=True, allow_unused=True
            )
        return tuple([it.new_zeros(it.shape) if one is None else one for one, it in zip(found, wanted, strict=True)])

    return gradcheck(
        gradients,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )
