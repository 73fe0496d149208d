"""`Function`: an op whose forward and backward the user writes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from vmflow.context import MODE
from vmflow.operands import changed_leaf, check_tensors
from vmflow.ops.copying import broadcasts_to, conform, zeros_of
from vmflow.tensors import Tensor

from . import views
from .grad_mode import no_grad
from .history import check_history, edge_of
from .node import AutogradMeta, Edge, Node, SavedTensor, packing_here


class FunctionContext:
    """Carries tensors and attributes from `Function.forward` to `Function.backward`; attributes may be set freely.

    Attributes:
        needs_input_grad: for each argument but ``ctx`` that `apply` passes to `forward` by position, whether it
            requires a gradient.

    Example:
        >>> flow.autograd.FunctionContext().needs_input_grad
        ()
    """

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._saved: list[SavedTensor | tuple[SavedTensor, int] | None] = []
        self._non_differentiable: set[int] = set()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._node: FunctionNode | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors, such as inputs or outputs, for backward, which finds the last call's in `saved_tensors`.

        Raises:
            TypeError: if one is neither a tensor nor None.
        """
        check_tensors("save_for_backward", optional=tensors)
        self._to_save = tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """These outputs have no gradient."""
        self._non_differentiable = {id(output) for output in outputs}

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Declare that forward changes these inputs in place and returns them."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether backward gets zeros (the default) or None for outputs that are tensors and have no gradient."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that `save_for_backward` kept, and None in place of those that were None.

        Raises:
            RuntimeError: if a tensor was changed in place after `forward`, or a backward pass has freed the tensors.
            TypeError, RuntimeError: if the result of an `unpack_hook` does not fit.
        """
        node = self._node
        if node is None:
            return self._to_save
        if node.released:
            raise RuntimeError(
                f"the backward pass went through {node.title} a second time, but its saved tensors were freed the "
                "first time; pass retain_graph=True to the first backward()"
            )
        return tuple([_unpack(saved, node) for saved in self._saved])


def _unpack(saved: SavedTensor | tuple[SavedTensor, int] | None, node: FunctionNode) -> Tensor | None:
    if saved is None:
        return None
    if isinstance(saved, tuple):
        return saved[0].unpack(node, saved[1])
    return saved.unpack(node)


class FunctionNode(Node):
    """The backward step of a `Function`."""

    __slots__ = ("context", "function", "output_metas", "released")

    def __init__(
        self, function: type[Function], context: FunctionContext, edges: tuple[Edge, ...], outputs: Sequence[Any]
    ) -> None:
        super().__init__(f"{function.__name__}Backward", edges, len(outputs))
        self.function = function
        self.context = context
        # Outputs that are no tensors have a place, too, since `backward` gets an argument for each output.
        self.output_metas = tuple([output._blob.meta if isinstance(output, Tensor) else None for output in outputs])
        self.released = False

    def where(self) -> str:
        """For messages."""
        return f"{self.function.__name__}.apply"

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        if self.context._materialize:
            gradients = [
                zeros_of(meta) if gradient is None and meta is not None else gradient
                for gradient, meta in zip(gradients, self.output_metas, strict=True)
            ]
        results = self.function.backward(self.context, *gradients)
        given = results if isinstance(results, tuple) else (results,)
        if len(given) > len(self.edges) and all(gradient is None for gradient in given[len(self.edges) :]):
            given = given[: len(self.edges)]
        if len(given) != len(self.edges):
            raise RuntimeError(
                f"{self.title} returned {len(given)} gradients, but forward was given {len(self.edges)} arguments; "
                "return one for each, None where there is none"
            )
        for position, result in enumerate(given):
            self._check(position, result)
        return [
            conform(result, meta) if result is not None and needed and meta is not None else None
            for result, needed, meta in zip(given, self.context.needs_input_grad, self.input_metas, strict=True)
        ]

    def _check(self, position: int, result: Any) -> None:
        """Raise unless `result` is None, or can be the gradient of the argument at this position, or is not wanted.

        A gradient of a shape to which the argument broadcasts is accepted; `backward` sums it.
        """
        if result is None or not self.context.needs_input_grad[position]:
            return
        if not isinstance(result, Tensor):
            raise TypeError(f"{self.title} returned {type(result).__name__} for argument {position}, not a tensor")
        meta = self.input_metas[position]
        if result.device is not meta.device:
            raise RuntimeError(
                f"{self.title} returned a gradient on {result.device} for argument {position}, which is on "
                f"{meta.device}"
            )
        if not broadcasts_to(meta.shape, result.shape):
            raise RuntimeError(
                f"{self.title} returned a gradient of shape {list(result.shape)} for argument {position}, which has "
                f"shape {list(meta.shape)}; return one of the argument's shape"
            )

    @property
    def input_metas(self) -> tuple[Any, ...]:
        """The meta of each positional argument that is a tensor, None for the others."""
        metas: tuple[Any, ...] = self.context.__dict__["_input_metas"]
        return metas

    def release(self) -> None:
        self.released = True
        self.context._saved = []


class Function:
    """Base of ops with a gradient of their own: define `forward` and `backward` as static methods, and call `apply`.

    `forward` returns one output or a tuple, and runs without recording.  `backward` gets one gradient per output, None
    for an output that is no tensor, and returns one per positional argument, None where there is none; it is recorded
    if the pass is run with ``create_graph=True``.
    A class that defines `setup_context` has a `forward` without ``ctx``; arguments given by name or by default, but not
    keyword-only ones, then count as positional.

    Example:
        >>> class Double(flow.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return x * 2
        ...     @staticmethod
        ...     def backward(ctx, gradient):
        ...         return gradient * 2
        >>> x = flow.tensor(3.0, requires_grad=True)
        >>> Double.apply(x).backward()
        >>> x.grad
        tensor(2.)
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("define forward(ctx, ...) as a static method")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Called after a ``forward(...)`` without ``ctx``, to save the values on `ctx` that `backward` needs.

        `inputs` are the arguments of `forward`, also those given by name or by default, but not keyword-only ones;
        `output` is its result.
        """
        raise NotImplementedError("define setup_context(ctx, inputs, output) as a static method")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("define backward(ctx, ...) as a static method")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`, and `setup_context` if the class defines it.

        If autograd records and a positional argument requires a gradient, make a node that calls `backward`.

        Raises:
            RuntimeError: if the op is recorded and `mark_dirty` was called for a leaf that requires a gradient, or its
                view; or as `check_history`.
        """
        separate = cls.setup_context is not Function.setup_context
        if separate:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        recording = MODE.get().grad
        operands = tuple([arg for arg in args if isinstance(arg, Tensor)])
        if recording:
            check_history(cls.__name__, operands)
        edges = tuple([edge_of(arg) if isinstance(arg, Tensor) else None for arg in args])
        context = FunctionContext()
        context.needs_input_grad = tuple([edge is not None for edge in edges])
        context.__dict__["_input_metas"] = tuple([arg._blob.meta if isinstance(arg, Tensor) else None for arg in args])
        with no_grad():
            if separate:
                returned = cls.forward(*args, **kwargs)
                cls.setup_context(context, args, returned)
            else:
                returned = cls.forward(context, *args, **kwargs)
        single = not isinstance(returned, tuple)
        outputs: list[Any] = [returned] if single else list(returned)
        dirty = {id(tensor) for tensor in context._dirty}
        as_is = {id(operand) for operand in operands} - dirty
        if not (recording and any(context.needs_input_grad)):
            outputs = [_as_it_is(output, recording) if id(output) in as_is else output for output in outputs]
        else:
            for tensor in context._dirty:
                if any([part is not None and part.is_leaf and part.requires_grad for part in (tensor, tensor._base)]):
                    raise changed_leaf(cls.__name__, tensor.shape)
                tensor._blob.storage.history += 1
            # An input that is returned as it is keeps its own history: the output is another tensor object.
            outputs = [_as_it_is(output, False) if id(output) in as_is else output for output in outputs]
            node = FunctionNode(cls, context, edges, outputs)
            context._node = node
            context._saved = [_pack(tensor, outputs) for tensor in context._to_save]
            for index, output in enumerate(outputs):
                if (
                    isinstance(output, Tensor)
                    and output.dtype.category >= 2
                    and id(output) not in context._non_differentiable
                ):
                    made = AutogradMeta(True, node, index, output._blob.storage.history)
                    output._autograd = made.follow(output._autograd) if id(output) in dirty else made
                    if output._base is not None and id(output) in dirty:
                        views.rebase(output._base, output)
            context._to_save = ()
        return outputs[0] if single else tuple(outputs)


def _as_it_is(tensor: Tensor, is_view: bool) -> Tensor:
    """Another tensor object without history, of an input that is returned as it is.

    Args:
        tensor: the input.
        is_view: whether the result is a view of the input.  A result with a history of its own must not be a view:
            updating a view's history would replace it.
    """
    alias = tensor.detach()
    if is_view:
        alias._base = views.base_for(tensor)
    return alias


def _pack(tensor: Tensor | None, outputs: Sequence[Any]) -> SavedTensor | tuple[SavedTensor, int] | None:
    if tensor is None:
        return None
    for index, output in enumerate(outputs):
        if output is tensor:
            return SavedTensor(tensor, False, packing=packing_here()), index
    return SavedTensor(tensor, True, packing=packing_here())


class _Once(Node):
    """A node that raises: the end of a second derivative that does not exist."""

    def where(self) -> str:
        """For messages."""
        return self.title

    def backward(self, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
        raise RuntimeError(
            f"{self.title} is marked @once_differentiable, and so has no second derivative; differentiate once, or "
            "write a backward of differentiable ops and leave the decorator away"
        )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `Function.backward` that cannot itself be differentiated.

    The results of `backward` have no history.  If a gradient given to `backward` has one, differentiating the results
    by it raises RuntimeError.  The decorator itself raises no errors.

    Example:
        >>> class Exp(flow.autograd.Function):
        ...     @staticmethod
        ...     @flow.autograd.once_differentiable
        ...     def backward(ctx, gradient):
        ...         return gradient * ctx.saved_tensors[0]
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            returned = backward(ctx, *gradients)
        node = ctx._node
        if not MODE.get().grad or not isinstance(node, FunctionNode):
            return returned
        results = _ending_at(node, gradients, returned if isinstance(returned, tuple) else (returned,))
        return results if isinstance(returned, tuple) else results[0]

    return wrapped


def _ending_at(node: FunctionNode, gradients: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `results` of `backward` such that differentiating them is an error, if any of `gradients` has a history.

    The tensors are other objects on the same memory: a result may be one of the gradients, or a saved tensor, which
    keep their histories.
    """
    edges = tuple([edge_of(gradient) if isinstance(gradient, Tensor) else None for gradient in gradients])
    if not any([edge is not None for edge in edges]):
        return results
    end = _Once(node.title, edges, len(results))
    ending = list(results)
    for index, result in enumerate(results):
        if isinstance(result, Tensor) and result.dtype.category >= 2:
            ending[index] = alias = result.detach()
            alias._autograd = AutogradMeta(True, end, index, alias._blob.storage.history)
    return tuple(ending)
