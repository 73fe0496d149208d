"""Derivatives of functions rather than of results: Jacobians, Hessians and their products with vectors.

The results of `vjp`, `jvp`, `jacobian`, `hessian`, `vhp` and `hvp` are detached from the graph unless
``create_graph=True``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from vmflow import autograd as _autograd
from vmflow.ops.shape.joining import stack
from vmflow.tensors import Tensor

from .grad_mode import enable_grad

if TYPE_CHECKING:
    Tensors: TypeAlias = tuple[Tensor, ...]


def as_tensors(name: str, given: Any) -> tuple[Tensors, bool]:
    """A tensor, or a list or tuple of tensors, as a tuple; and whether it was one tensor, of any shape.

    Raises:
        TypeError: if `given` is neither.

    Example:
        >>> flow.autograd.functional.as_tensors("sum", flow.ones(2))
        ((tensor([1., 1.]),), True)
    """
    if isinstance(given, Tensor):
        return (given,), True
    if not isinstance(given, (tuple, list)) or not all([isinstance(tensor, Tensor) for tensor in given]):
        raise TypeError(f"{name}: expected a tensor or a tuple of tensors, got {type(given).__name__}")
    return tuple(given), False


def _differentiable(inputs: Tensors, create_graph: bool) -> Tensors:
    """Return inputs that require gradients: detached ones, but with `create_graph` views of those that already do."""
    if create_graph:
        return tuple(
            [
                tensor.view(tensor.shape) if tensor.requires_grad else tensor.detach().requires_grad_()
                for tensor in inputs
            ]
        )
    return tuple([tensor.detach().requires_grad_() for tensor in inputs])


def _gradients(name: str, outputs: Tensors, inputs: Tensors, by: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """The gradients of `outputs` weighted by `by`; zeros for an input that is not used.

    If `strict`, such an input, or an output that requires no gradient, is an error.
    """
    pairs = [(output, weight) for output, weight in zip(outputs, by, strict=True) if output.requires_grad]
    if strict and len(pairs) < len(outputs):
        raise RuntimeError(f"{name}: a result does not depend on the inputs, which strict=True forbids")
    found: tuple[Tensor | None, ...] = (None,) * len(inputs)
    if pairs:
        roots, weights = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = _autograd.grad(roots, inputs, weights, retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and None in [gradient if gradient is None else 0 for gradient in found]:
        raise RuntimeError(f"{name}: the results do not depend on an input, which strict=True forbids")
    return tuple(
        [
            operand.new_zeros(operand.shape) if gradient is None else gradient
            for gradient, operand in zip(found, inputs, strict=True)
        ]
    )


def _weights(name: str, given: Any, like: Tensors) -> Tensors:
    if given is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{name}: v can be left out for a single element only")
        return (like[0].new_ones(like[0].shape),)
    weights, _ = as_tensors(name, given)
    if [weight.shape for weight in weights] != [tensor.shape for tensor in like]:
        shown = " and ".join([str([list(tensor.shape) for tensor in tensors]) for tensors in (weights, like)])
        raise RuntimeError(f"{name}: v must have the shapes of the tensors that it multiplies, got {shown}")
    return weights


def _shown(results: Tensors, single: bool, create_graph: bool) -> Any:
    shown = results if create_graph else tuple([result.detach() for result in results])
    return shown[0] if single else shown


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)``, and `v` times its conjugated Jacobian, or the real part of that for real inputs.

    Args:
        func: from tensors to a tensor or a tuple.
        inputs: a tensor or a tuple.
        v: of the shapes of the results; can be left out for a single element.
        create_graph: whether both returned values can be differentiated in turn.
        strict: raise if a result requires no gradient, or an input has no result that depends on it; else zeros.

    Raises:
        TypeError: if inputs, results or `v` are no tensors.
        RuntimeError: for inputs of integers or bools; if `v` does not fit, or by `strict`.

    Example:
        >>> flow.autograd.functional.vjp(lambda x: x * x, flow.tensor([1.0, 2.0]), flow.ones(2))
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    given, single = as_tensors("vjp", inputs)
    with enable_grad():
        stand_ins = _differentiable(given, create_graph)
        outputs, single_output = as_tensors("vjp", func(*stand_ins))
        found = _gradients("vjp", outputs, stand_ins, _weights("vjp", v, outputs), create_graph, strict)
    return _shown(outputs, single_output, create_graph), _shown(found, single, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)``, and its Jacobian times `v`, by differentiating the backward pass.

    The arguments are those of `vjp`, but that `v` has the shapes of the inputs; each op must be twice differentiable.

    Raises:
        TypeError: as `vjp`.
        RuntimeError: for inputs or results of integers or bools; if `v` does not fit, or by `strict`.

    Example:
        >>> flow.autograd.functional.jvp(lambda x: x * x, flow.tensor([1.0, 2.0]), flow.ones(2))
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    outputs, found, single_output, _ = pushed_forward(func, inputs, v, create_graph, strict)
    return _shown(outputs, single_output, create_graph), _shown(found, single_output, create_graph)


def pushed_forward(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Tensors, Tensors, bool, Tensors]:
    """Compute `jvp` of inputs of any shapes, with all that `vmflow.func.jvp` needs.

    Returns:
        The results of `func`; the products; whether `func` returned a single tensor; and the tensors made here that the
        histories of results and products lead to.

    Raises:
        TypeError, RuntimeError: as `jvp`.

    Example:
        >>> one = flow.tensor(1.0)
        >>> flow.autograd.functional.pushed_forward(lambda x: x * x, (one,), (one,), False, False)[1]
        (tensor(2.),)
    """
    given, _ = as_tensors("jvp", inputs)
    with enable_grad():
        stand_ins = _differentiable(given, create_graph)
        outputs, single_output = as_tensors("jvp", func(*stand_ins))
        weights = tuple([output.new_zeros(output.shape).requires_grad_() for output in outputs])
        transposed = _gradients("jvp", outputs, stand_ins, weights, True, strict)
        found = _gradients("jvp", transposed, weights, _weights("jvp", v, stand_ins), create_graph, False)
    return outputs, found, single_output, (*stand_ins, *weights)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivatives of the results' elements by the inputs' elements: conjugated, and the real part for real inputs.

    Args:
        func: from tensors to a tensor or a tuple.
        inputs: a tensor or a tuple.
        create_graph: whether the Jacobian can be differentiated in turn.
        strict: raise where a result does not depend on an input, instead of giving zeros.
        vectorize: ignored.
        strategy: "reverse-mode".

    Returns:
        For each result and each input, a tensor whose shape is the result's followed by the input's; a tuple for a
        tuple of inputs, and a tuple of these for a tuple of results.

    Raises:
        TypeError: as `vjp`.
        ValueError: for another strategy.
        RuntimeError: for inputs of integers or bools, or by `strict`.

    Example:
        >>> flow.autograd.functional.jacobian(lambda x: x * x, flow.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if strategy != "reverse-mode":
        raise ValueError(f"jacobian: the strategy must be 'reverse-mode', not {strategy!r}")
    given, single = as_tensors("jacobian", inputs)
    with enable_grad():
        stand_ins = _differentiable(given, create_graph)
        outputs, single_output = as_tensors("jacobian", func(*stand_ins))
        found = [rows("jacobian", output, stand_ins, create_graph, strict) for output in outputs]
    shown = tuple([_shown(parts, single, create_graph) for parts in found])
    return shown[0] if single_output else shown


def rows(name: str, output: Tensor, inputs: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """The Jacobian of `output` by each of `inputs`, each of the output's shape followed by the input's.

    Raises:
        RuntimeError: by `strict`, if the output, unless empty, does not depend on an input.

    Example:
        >>> x = flow.tensor([3.0], requires_grad=True)
        >>> flow.autograd.functional.rows("jacobian", x * x, (x,), False, True)
        (tensor([[6.]]),)
    """
    flat = output.reshape(-1)
    one = flat.new_ones(())
    each = [_gradients(name, (flat[place],), inputs, (one,), create_graph, strict) for place in range(flat.shape[0])]
    if not each:
        return tuple([operand.new_zeros((*output.shape, *operand.shape)) for operand in inputs])
    return tuple([stack(list(row)).reshape((*output.shape, *row[0].shape)) for row in zip(*each, strict=True)])


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function whose result is a single element; see `jacobian`.

    Raises:
        TypeError, ValueError: as `jacobian`.
        RuntimeError: as `jacobian`, or if the result is not a single element.

    Example:
        >>> flow.autograd.functional.hessian(lambda x: (x**3).sum(), flow.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    _, single = as_tensors("hessian", inputs)

    def slope(*stand_ins: Tensor) -> Any:
        (output,) = _one_element("hessian", func(*stand_ins))
        found = _gradients("hessian", (output,), stand_ins, (output.new_ones(output.shape),), True, strict)
        return found[0] if single else found

    return jacobian(slope, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def _one_element(name: str, result: Any) -> Tensors:
    outputs, _ = as_tensors(name, result)
    if len(outputs) != 1 or outputs[0].numel() != 1:
        raise RuntimeError(
            f"{name}: the function must return a single element, not {[list(output.shape) for output in outputs]}"
        )
    return outputs


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)``, a single element, and `v` times its Hessian.

    The arguments are those of `vjp`, but that `v` has the inputs' shapes.

    Raises:
        TypeError: as `vjp`.
        RuntimeError: as `vjp`, or if the result is not a single element.

    Example:
        >>> flow.autograd.functional.vhp(lambda x: (x**3).sum(), flow.tensor([1.0, 2.0]), flow.ones(2))
        (tensor(9.), tensor([ 6., 12.]))
    """
    given, single = as_tensors("vhp", inputs)
    with enable_grad():
        stand_ins = _differentiable(given, create_graph)
        outputs = _one_element("vhp", func(*stand_ins))
        slopes = _gradients("vhp", outputs, stand_ins, (outputs[0].new_ones(outputs[0].shape),), True, strict)
        found = _gradients("vhp", slopes, stand_ins, _weights("vhp", v, stand_ins), create_graph, strict)
    return _shown(outputs, True, create_graph), _shown(found, single, create_graph)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """``func(*inputs)``, a single element, and its Hessian, which is symmetric, times `v`; see `vhp`.

    Raises:
        TypeError, RuntimeError: as `vhp`.

    Example:
        >>> flow.autograd.functional.hvp(lambda x: (x**3).sum(), flow.tensor([1.0, 2.0]), flow.ones(2))
        (tensor(9.), tensor([ 6., 12.]))
    """
    return vhp(func, inputs, v, create_graph, strict)
