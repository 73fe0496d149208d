"""Checking a function's gradients against differences of its values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vmflow import autograd as _autograd
from vmflow.ops.shape.joining import stack
from vmflow.tensors import Tensor

from .functional import as_tensors
from .grad_mode import enable_grad, no_grad

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class GradcheckError(RuntimeError):
    """Raised by gradient checks: a gradient does not agree with the function's differences, or two passes differ.

    Example:
        >>> issubclass(flow.autograd.GradcheckError, RuntimeError)
        True
    """


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of a function agree with central differences of its values.

    Without `fast_mode`, each element of each input that requires a gradient is moved by `eps` both ways.  Waits for the
    values.

    Args:
        func: from the inputs to a tensor or a tuple of tensors, of which the floating-point ones are checked.
        inputs: a tensor, or a tuple of tensors and anything else; warns if one that requires a gradient is not float64.
        eps: how far to move an element.
        atol, rtol: the difference allowed for an element, ``atol + rtol * |numerical|``.
        raise_exception: whether to raise, or to return False.
        nondet_tol: by how much two backward passes may differ.
        check_undefined_grad, check_grad_dtypes, check_batched_grad, masked: PyTorch's; ignored.
        check_backward_ad: must be True.
        check_forward_ad, check_batched_forward_grad: must be False.
        fast_mode: move each of these inputs along one random direction, and compare one random combination of each
            Jacobian's elements.

    Raises:
        GradcheckError: with `raise_exception`, if they do not agree, or two backward passes differ.
        TypeError: for complex inputs that require a gradient; if `inputs` is no tensor or sequence, or `func` returns
            anything but tensors.
        ValueError: if no input requires a gradient; for forward-mode differentiation.

    Example:
        >>> x = flow.tensor([1.0, 2.0], dtype=flow.float64, requires_grad=True)
        >>> flow.autograd.gradcheck(lambda x: x * x, x)
        True
    """
    if check_forward_ad or check_batched_forward_grad or not check_backward_ad:
        raise ValueError(
            "gradcheck: only backward passes can be checked, there is no forward-mode differentiation; leave out "
            "check_forward_ad, check_batched_forward_grad and check_backward_ad"
        )
    given = _as_tuple("gradcheck", inputs)
    moved = [place for place, value in enumerate(given) if isinstance(value, Tensor) and value.requires_grad]
    if not moved:
        raise ValueError("gradcheck: no input requires a gradient; make one with requires_grad=True")
    if any([given[place].dtype.is_complex for place in moved]):
        raise TypeError("gradcheck: complex inputs cannot be checked; check a function of real and imaginary parts")
    if any([given[place].dtype.itemsize < 8 for place in moved]):
        warnings.warn("gradcheck: differences of anything but float64 are too coarse to tell", stacklevel=2)
    try:
        compare = _compare_along if fast_mode else _compare
        compare(func, given, moved, eps, atol, rtol, nondet_tol)
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
    checked = [number for number, output in enumerate(outputs) if output.dtype.is_floating_point]
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


def _compare_along(
    func: Callable[..., Any],
    given: tuple[Any, ...],
    moved: list[int],
    eps: float,
    atol: float,
    rtol: float,
    nondet: float,
) -> None:
    """Compare ``u @ jacobian @ v`` by autograd and by differences, for unit vectors in random directions, the same in
    each call."""
    random = np.random.default_rng(0)
    with enable_grad():
        outputs, _ = as_tensors("gradcheck", func(*given))
    checked = [number for number, output in enumerate(outputs) if output.dtype.is_floating_point]
    wanted = [given[place] for place in moved]
    ways = [_direction(random, operand) for operand in wanted]
    slopes = [_slopes(func, given, place, way, checked, eps) for place, way in zip(moved, ways, strict=True)]
    for row, number in enumerate(checked):
        weights = _direction(random, outputs[number])
        exact, again = [_pulled_back(outputs[number], wanted, weights) for _ in range(2)]
        for column, place in enumerate(moved):
            if np.any(np.abs(exact[column] - again[column]) > nondet):
                raise GradcheckError(
                    f"gradcheck: two backward passes from result {number} to input {place} differ by up to "
                    f"{np.max(np.abs(exact[column] - again[column]))}"
                )
            way = ways[column].reshape(-1)
            found, expected = exact[column] @ way, weights.reshape(-1) @ slopes[column][row]
            # The largest difference if each element of the Jacobian were off by `atol`.
            allowed = atol * np.abs(way).sum() * np.abs(weights).sum()
            if not np.allclose(found, expected, rtol, allowed, equal_nan=True):
                raise GradcheckError(
                    f"gradcheck: along a random direction, the gradient of result {number} by input {place} is "
                    f"{found} by autograd, and {expected} by differences; fast_mode=False shows the elements"
                )


def _direction(random: np.random.Generator, like: Tensor) -> Array:
    drawn = random.standard_normal(tuple(like.shape))
    length = float(np.sqrt((drawn**2).sum()))
    return drawn / length if length else drawn


def _slopes(
    func: Callable[..., Any], given: tuple[Any, ...], place: int, way: Array, checked: list[int], eps: float
) -> list[Array]:
    """The derivatives of the checked results, as vectors, along the direction `way` of an input, by differences."""
    array = given[place].detach().numpy()
    above, below = [_values(func, given, place, array + step * way, checked) for step in (eps, -eps)]
    return [(high - low) / (2 * eps) for high, low in zip(above, below, strict=True)]


def _pulled_back(output: Tensor, inputs: list[Tensor], weights: Array) -> list[Array]:
    """Return the gradients of `output` weighted by `weights`, by each input, as flat arrays; zeros if unused."""
    if not output.requires_grad:
        return [np.zeros(operand.numel()) for operand in inputs]
    found = _autograd.grad(output, inputs, output.new_tensor(weights), retain_graph=True, allow_unused=True)
    return [
        np.zeros(operand.numel()) if gradient is None else gradient.detach().numpy().reshape(-1)
        for gradient, operand in zip(found, inputs, strict=True)
    ]


def _values(
    func: Callable[..., Any], given: tuple[Any, ...], place: int, array: Array, checked: list[int]
) -> list[Array]:
    """The results that are checked, as vectors, with `array` as input number `place`."""
    arguments = list(given)
    arguments[place] = given[place].detach().new_tensor(array).requires_grad_()
    with no_grad():
        outputs, _ = as_tensors("gradcheck", func(*arguments))
    return [outputs[number].detach().numpy().astype(np.float64).reshape(-1) for number in checked]


def _jacobian(output: Tensor, inputs: list[Tensor]) -> list[Array]:
    """Compute the Jacobian of `output` by autograd: for each input a matrix, with a row for each output element."""
    if not output.requires_grad:
        return [np.zeros((output.numel(), operand.numel())) for operand in inputs]
    rows: list[list[Array]] = []
    for place in range(output.numel()):
        weights = np.zeros(output.numel())
        weights[place] = 1
        rows.append(_pulled_back(output, inputs, weights.reshape(tuple(output.shape))))
    if not rows:
        return [np.zeros((0, operand.numel())) for operand in inputs]
    return [np.stack(matrix) for matrix in zip(*rows, strict=True)]


def _differences(
    func: Callable[..., Any], given: tuple[Any, ...], moved: list[int], checked: list[int], eps: float
) -> list[list[Array]]:
    """The Jacobians by central differences, of each checked result by each input that requires a gradient."""

    columns: list[list[Array]] = []
    for place in moved:
        array = given[place].detach().numpy()
        slopes: list[list[Array]] = []
        for index in np.ndindex(array.shape):
            ends: list[list[Array]] = []
            for step in (eps, -eps):
                shifted = array.copy()
                shifted[index] += step
                ends.append(_values(func, given, place, shifted, checked))
            slopes.append([(above - below) / (2 * eps) for above, below in zip(*ends, strict=True)])
        columns.append([np.stack(matrix, axis=1) for matrix in zip(*slopes, strict=True)] if slopes else [])
    sizes = [len(column) for column in columns]
    if 0 in sizes:  # an input without elements has no derivative to compare
        empty = [
            vector.reshape(-1, 1)[:, :0]
            for vector in _values(func, given, moved[0], given[moved[0]].detach().numpy(), checked)
        ]
        columns = [column or empty for column in columns]
    return [[column[row] for column in columns] for row in range(len(checked))]


def _as_tuple(name: str, inputs: Any) -> tuple[Any, ...]:
    """Return the inputs that the function `name` was given, a tensor or an iterable of any objects, as a tuple."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    if isinstance(inputs, str) or not hasattr(inputs, "__iter__"):
        raise TypeError(f"{name}: inputs must be a tensor or a tuple of inputs, not {type(inputs).__name__}")
    return tuple(inputs)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """As `gradcheck`, of the gradients of `func`, by those inputs and weights of results that require a gradient.

    Args:
        grad_outputs: a weight of the shape of each result that requires a gradient; by default normally distributed
            numbers, always the same.
        gen_non_contig_grad_outputs: let the default weights lie strided in memory.
        check_rev_over_rev: must be True.
        check_fwd_over_rev: must be False.

    Raises:
        GradcheckError: with `raise_exception`, if the second derivatives do not agree with the differences.
        TypeError: as `gradcheck`.
        RuntimeError: if `grad_outputs` do not fit.
        ValueError: if no input requires a gradient; for forward-mode differentiation.

    Example:
        >>> x = flow.tensor([1.0, 2.0], dtype=flow.float64, requires_grad=True)
        >>> flow.autograd.gradgradcheck(lambda x: x * x * x, x)
        True
    """
    if check_fwd_over_rev or not check_rev_over_rev:
        raise ValueError(
            "gradgradcheck: only backward passes of backward passes can be checked, there is no forward-mode "
            "differentiation; leave out check_fwd_over_rev and check_rev_over_rev"
        )
    given = _as_tuple("gradgradcheck", inputs)
    with enable_grad():
        outputs, _ = as_tensors("gradgradcheck", func(*given))
    places = [number for number, output in enumerate(outputs) if output.requires_grad]
    if grad_outputs is None:
        random = np.random.default_rng(0)
        weights = [outputs[place].new_tensor(random.standard_normal(tuple(outputs[place].shape))) for place in places]
        if gen_non_contig_grad_outputs:
            weights = [stack([weight, weight], -1)[..., 0].detach() for weight in weights]
        weights = [weight.requires_grad_() for weight in weights]
    else:
        weights = list(as_tensors("gradgradcheck", grad_outputs)[0])
    count = len(given)

    def gradients(*arguments: Any) -> Any:
        with enable_grad():
            wanted = [
                argument
                for place, argument in enumerate(arguments[:count])
                if isinstance(argument, Tensor) and argument.requires_grad
            ]
            results, _ = as_tensors("gradgradcheck", func(*arguments[:count]))
            found = _autograd.grad(
                [results[place] for place in places], wanted, arguments[count:], create_graph=True, allow_unused=True
            )
        return tuple(
            [
                argument.new_zeros(argument.shape) if gradient is None else gradient
                for gradient, argument in zip(found, wanted, strict=True)
            ]
        )

    return gradcheck(
        gradients,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        fast_mode=fast_mode,
    )
