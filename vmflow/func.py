"""``vmflow.func``: functions that make a function's derivatives by autograd, or handle the parameters of modules.

Derivatives nest: ``grad(grad(f))`` is the second one.  If the function uses outer tensors that require a gradient, the
derivative can be differentiated by these tensors, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from . import autograd as _autograd
from .autograd import functional as _functional
from .autograd.functional import as_tensors
from .autograd.grad_mode import enable_grad
from .autograd.history import edge_of
from .autograd.node import AutogradMeta, Edge, Node
from .nn.module import Module
from .nn.utils.stateless import functional_call as functional_call
from .ops.shape.joining import stack
from .tensor_fields import autograd_of as _autograd_of
from .tensors import Tensor

# The leaves that the innermost derivative under way has made, and those that derivatives within it have made.
_made: Final[ContextVar[list[AutogradMeta] | None]] = ContextVar("vmflow.func.made", default=None)


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Make a function that computes the gradient of `func`, whose result must be a single element.

    Args:
        func: returns a tensor of one element; with `has_aux`, a pair of such a tensor and anything else.
        argnums: the positions of the arguments to differentiate by; for a tuple, the gradient is a tuple.
        has_aux: whether `func` returns a pair, whose second value is passed on after the gradient.

    Raises:
        TypeError: at the call, if an argument to differentiate by is no tensor.
        ValueError: at the call, if there is no such argument.
        RuntimeError: at the call, if `func` does not return a tensor of one element, or an argument to differentiate
            by is of integers or bools.

    Example:
        >>> flow.func.grad(lambda x: x * x)(flow.tensor(3.0))
        tensor(6.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Make a function that computes the gradient and the result of `func`, as a pair; see `grad`.

    With `has_aux`, the second part is the pair that `func` returns.

    Raises:
        TypeError, ValueError, RuntimeError: as `grad`.

    Example:
        >>> flow.func.grad_and_value(lambda x: x * x)(flow.tensor(3.0))
        (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        with enable_grad(), _transforming() as made:
            arguments, chosen = _stand_ins("grad", args, argnums)
            result = func(*arguments, **kwargs)
            value, rest = result if has_aux else (result, None)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise RuntimeError("grad: the function must return a single element; see jacrev for several")
            found = _pulled_back((value,), chosen, (value.new_ones(value.shape),))
        found = tuple([_freed(gradient, made) for gradient in found])
        value, rest = _freed(value, made), _freed_within(rest, made)
        return found[0] if isinstance(argnums, int) else found, (value, rest) if has_aux else value

    return both


def vjp(func: Callable[..., Any], *primals: Tensor, has_aux: bool = False) -> tuple[Any, ...]:
    """Compute ``func(*primals)``, and make a function that multiplies vectors with `func`'s Jacobian from the left.

    The Jacobian is conjugated for complex primals, as in PyTorch.

    Args:
        func: from tensors to a tensor or a tuple; with `has_aux`, a pair of such a result and anything else.
        primals: tensors.
        has_aux: whether `func` returns a pair, whose second value is passed on as the third result.

    Raises:
        TypeError: if a primal or a result of `func` is no tensor.
        RuntimeError: for primals of integers or bools; from the second result, if the vectors do not fit.

    Example:
        >>> output, multiply = flow.func.vjp(lambda x: x * x, flow.tensor([1.0, 2.0]))
        >>> multiply(flow.ones(2))
        (tensor([2., 4.]),)
    """
    with enable_grad(), _transforming() as made:
        arguments, chosen = _stand_ins("vjp", primals, tuple(range(len(primals))))
        result = func(*arguments)
        outputs, single = as_tensors("vjp", result[0] if has_aux else result)

    def multiplied(*cotangents: Any) -> tuple[Tensor, ...]:
        given = cotangents[0] if len(cotangents) == 1 and isinstance(cotangents[0], (tuple, list)) else cotangents
        if [vector.shape for vector in given] != [output.shape for output in outputs]:
            raise RuntimeError(
                f"vjp: the function returned shapes {[list(output.shape) for output in outputs]}, and the vectors have "
                f"{[list(vector.shape) for vector in given]}"
            )
        with enable_grad(), _transforming() as again:
            again += made
            found = _pulled_back(outputs, chosen, tuple(given))
        return tuple([_freed(gradient, made) for gradient in found])

    shown = tuple([_freed(output, made) for output in outputs])
    first = shown[0] if single else shown
    return (first, multiplied, _freed_within(result[1], made)) if has_aux else (first, multiplied)


def jvp(
    func: Callable[..., Any],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Compute ``func(*primals)``, and its Jacobian times the tangents; each op must be twice differentiable.

    Args:
        func: from tensors to a tensor or a tuple; with `has_aux`, a pair of such a result and anything else.
        primals: tensors.
        tangents: tensors of the shapes of `primals`.
        strict: raise if there is a result that depends on no primal, or a primal on which no result depends.
        has_aux: whether `func` returns a pair, whose second value is passed on as the third result.

    Raises:
        TypeError: if a primal, a tangent or a result of `func` is no tensor.
        RuntimeError: for primals or results of integers or bools; if the tangents do not fit; by `strict`.

    Example:
        >>> flow.func.jvp(lambda x: x * x, (flow.tensor([1.0, 2.0]),), (flow.ones(2),))
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    rest: list[Any] = []

    def without_aux(*arguments: Tensor) -> Any:
        result, aux = func(*arguments)
        rest.append(aux)
        return result

    chosen = without_aux if has_aux else func
    with _transforming() as made:
        outputs, products, single, leaves = _functional.pushed_forward(
            chosen, tuple(primals), tuple(tangents), True, strict
        )
        made += _leaves(leaves)
    shown = [tuple([_freed(tensor, made) for tensor in part]) for part in (outputs, products)]
    found = tuple([part[0] if single else part for part in shown])
    return (*found, _freed_within(rest[0], made)) if has_aux else found


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Make a function that computes `func`'s Jacobian by each chosen argument, conjugated for complex arguments.

    Args:
        func: returns a tensor or a tuple of tensors; with `has_aux`, a pair of such a result and anything else.
        argnums: the positions of the arguments to differentiate by; for a tuple, there is a tuple for each result.
        has_aux: whether `func` returns a pair, whose second value is passed on after the Jacobian.
        chunk_size: makes no difference.

    Raises:
        ValueError: if `chunk_size` is less than 1; at the call, if there is no such argument.
        TypeError: at the call, if a chosen argument or a result is no tensor.
        RuntimeError: at the call, if a chosen argument is of integers or bools.

    Example:
        >>> flow.func.jacrev(lambda x: x * x)(flow.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"jacrev: chunk_size must be 1 or more, or None, not {chunk_size}")

    @functools.wraps(func)
    def rows(*args: Any, **kwargs: Any) -> Any:
        with enable_grad(), _transforming() as made:
            arguments, chosen = _stand_ins("jacrev", args, argnums)
            result = func(*arguments, **kwargs)
            result, rest = result if has_aux else (result, None)
            outputs, single = as_tensors("jacrev", result)
            found: list[Any] = []
            for output in outputs:
                parts = tuple([_freed(row, made) for row in _functional.rows("jacrev", output, chosen, True, False)])
                found.append(parts[0] if isinstance(argnums, int) else parts)
        jacobian = found[0] if single else tuple(found)
        return (jacobian, _freed_within(rest, made)) if has_aux else jacobian

    return rows


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """Make a function that computes the second derivatives of `func`: the Jacobian of its Jacobian.

    Raises:
        ValueError, TypeError, RuntimeError: at the call, as `jacrev`.

    Example:
        >>> flow.func.hessian(lambda x: (x**3).sum())(flow.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Stack the parameters of several models of the same structure, and their buffers.

    Args:
        models: modules of one class, all in training mode or all in evaluation mode.

    Returns:
        Two dicts by name, of parameters and of buffers; dimension 0 of each tensor counts the models.  The stacked
        parameters are leaves that require a gradient if the models' parameters do.

    Raises:
        ValueError: if there are no models, or if their classes, modes, names, shapes or `requires_grad` differ.
        RuntimeError: if their devices differ.

    Example:
        >>> parameters, buffers = flow.func.stack_module_state([flow.nn.Linear(2, 3), flow.nn.Linear(2, 3)])
        >>> parameters["weight"].shape
        vmflow.Size([2, 3, 2])
    """
    given = list(models)
    if not given:
        raise ValueError("stack_module_state: give at least one model")
    for position, model in enumerate(given):
        if type(model) is not type(given[0]) or model.training != given[0].training:
            raise ValueError(
                f"stack_module_state: model {position} is {type(model).__name__} "
                f"({'training' if model.training else 'eval'}), unlike model 0, which is {type(given[0]).__name__} "
                f"({'training' if given[0].training else 'eval'})"
            )
    parameters = _stacked([dict(model.named_parameters()) for model in given])
    return parameters, _stacked([dict(model.named_buffers()) for model in given])


def _stacked(states: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for position, state in enumerate(states):
        if list(state) != list(states[0]):
            raise ValueError(f"stack_module_state: the tensors of model {position} have other names than those of 0")
    for name in states[0]:
        tensors: list[Tensor] = [state[name] for state in states]
        if len({tensor.requires_grad for tensor in tensors}) > 1:
            raise ValueError(f"stack_module_state: {name!r} requires a gradient in some of the models only")
        found[name] = stack(tensors).detach().requires_grad_(tensors[0].requires_grad)
    return found


@contextmanager
def _transforming() -> Iterator[list[AutogradMeta]]:
    """A block that computes a derivative; yields the list of the leaves made by it and by derivatives within it.

    The results of an inner derivative may keep a history that leads to leaves of both derivatives: so the outer one has
    to know the inner one's leaves when it frees its own results.
    """
    made: list[AutogradMeta] = []
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)
        around = _made.get()
        if around is not None:
            around += made


def _leaves(tensors: Iterable[Tensor]) -> list[AutogradMeta]:
    """Return the autograd data of the tensors that are leaves."""
    return [meta for tensor in tensors if tensor.is_leaf and (meta := _autograd_of(tensor)) is not None]


def _stand_ins(
    name: str, args: tuple[Any, ...], argnums: int | tuple[int, ...]
) -> tuple[list[Any], tuple[Tensor, ...]]:
    """Replace the arguments at `argnums` by new tensors to differentiate by; return all arguments, and the new tensors.

    Called in `_transforming`.  `name` is that of the public function, for errors.
    """
    arguments = list(args)
    places = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for place in places:
        if not -len(args) <= place < len(args):
            raise ValueError(f"{name}: there is no argument {place} among {len(args)}")
        given = args[place]
        if not isinstance(given, Tensor):
            raise TypeError(f"{name}: argument {place} must be a tensor, not {type(given).__name__}")
        # A view keeps the argument's autograd history, so that outer derivatives pass through it.
        arguments[place] = given.view(given.shape) if given.requires_grad else given.detach().requires_grad_()
    chosen = tuple([arguments[place] for place in places])
    made = _made.get()
    assert made is not None
    made += _leaves(chosen)
    return arguments, chosen


def _pulled_back(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], by: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    pairs = [(output, weight) for output, weight in zip(outputs, by, strict=True) if output.requires_grad]
    found: tuple[Tensor | None, ...] = (None,) * len(inputs)
    if pairs:
        roots, weights = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = _autograd.grad(roots, inputs, weights, retain_graph=True, create_graph=True, allow_unused=True)
    return tuple(
        [
            operand.new_zeros(operand.shape) if gradient is None else gradient
            for gradient, operand in zip(found, inputs, strict=True)
        ]
    )


def _freed(result: Tensor, made: list[AutogradMeta]) -> Tensor:
    """Detach `result` if its autograd history leads only to leaves in `made`, see `_transforming`.

    A history that leads to other tensors is kept for outer derivatives.
    """
    own = {id(leaf) for leaf in made}
    waiting: list[Edge] = [edge_of(result)]
    seen: set[Node] = set()
    while waiting:
        edge = waiting.pop()
        if edge is None:
            continue
        if edge.node is None:
            if id(edge) not in own:
                return result
        elif edge.node not in seen:
            seen.add(edge.node)
            waiting += edge.node.edges
    return result.detach()


def _freed_within(value: Any, made: list[AutogradMeta]) -> Any:
    """Apply `_freed` to `value`, or to the tensors inside its tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return _freed(value, made)
    if type(value) in (tuple, list):
        return type(value)([_freed_within(item, made) for item in value])
    if type(value) is dict:
        return {key: _freed_within(item, made) for key, item in value.items()}
    return value
