"""Declarations of elementwise functions and their ops.

One declaration makes the function of `vmflow`, the method of `Tensor`, the in-place method, the argument `out`, and the
parts of the docstring that follow from the operands and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.context import MODE
from vmflow.dtypes import BOOL, COMPLEX, INTEGER
from vmflow.operands import advice, described, not_tensors
from vmflow.ops.copying import clone, copy_
from vmflow.ops.declaration import METHODS, declaring_module, public
from vmflow.ops.destination import written
from vmflow.ops.table import Attributes, OpExpr

from .inference import REVERSED, SAME, TO_BOOL, TO_FLOAT, TO_REAL, elementwise, number

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .inference import Scalar

    # Called with the function's name and the operands; raises an error for operands that it refuses.
    Check: TypeAlias = Callable[[str, Any, Any], None]

    class UnaryFunction(Protocol):
        """A function of one tensor, and its op."""

        op: OpExpr

        def __call__(self, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...

    class PairFunction(Protocol):
        """A function of two tensors, and its op."""

        op: OpExpr

        def __call__(self, input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...

    class BinaryFunction(Protocol):
        """A function of two operands, of which one may be a number, and its ops."""

        op: Binary

        def __call__(self, input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor: ...


class Binary:
    """An op of two operands, of which one may be a Python number.

    Attributes:
        tensors: the op on two tensors.
        scalar: the op on a tensor and a number; its attributes are `REVERSED` if the number stands first.
    """

    __slots__ = ("name", "scalar", "tensors")

    def __init__(self, name: str, result: str = SAME, **options: Any) -> None:
        self.name = name
        self.tensors = elementwise(name, result, operands=2, **options)
        self.scalar = elementwise(f"{name}_scalar", result, scalars=1, **options)

    def of(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """Dispatch the op.  A named method: calling the object itself takes Python three times as long."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def written(self, out: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """The op with its result in `out`; see `vmflow.ops.destination`."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return written(self.tensors, out, (input, other))
            return written(self.scalar, out, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return written(self.scalar, out, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def into(self, input: Tensor, other: Tensor | Scalar) -> Tensor:
        """``input = input op other``, in place."""
        if isinstance(other, _tensors.Tensor):
            return into(self.tensors, input, (input, other))
        return into(self.scalar, input, (input,), (), (number(self.name, other),))


def into(
    op: OpExpr,
    target: Tensor,
    inputs: tuple[Tensor, ...],
    attributes: Attributes = (),
    scalars: tuple[Any, ...] = (),
) -> Tensor:
    """Write the result of an op into `target`, which may be among the inputs, and return it.

    Unlike `dispatch_into`, this copies the target first where the gradient needs its old values.
    """
    looks_back = op.saves_inputs or op.rule is None
    if looks_back and MODE.get().grad and any([operand.requires_grad for operand in (target, *inputs)]):
        if op.rule is None:
            return copy_(target, _interpreter.dispatch(op, inputs, attributes, scalars))
        inputs = tuple(
            [
                clone(operand) if operand is target and place in op.saves_inputs else operand
                for place, operand in enumerate(inputs)
            ]
        )
    return _interpreter.dispatch_into(op, target, inputs, attributes, scalars)


def check_tensors(name: str, *operands: Any) -> None:
    """Raise TypeError unless all operands are tensors; called before their attributes are read."""
    for operand in operands:
        if not isinstance(operand, _tensors.Tensor):
            raise not_tensors(name, operands)


def listed_tensors(name: str, sequence: Any) -> tuple[Tensor, ...]:
    """The tensors of a sequence.

    Raises:
        TypeError: if it is no sequence of tensors; also for a single tensor, as the caller may or may not mean its
            rows.
    """
    if isinstance(sequence, _tensors.Tensor):
        raise TypeError(
            f"{name}: expected a sequence of tensors, got one tensor of shape {list(sequence.shape)}; put it into a "
            "list, or take its rows with unbind()"
        )
    if isinstance(sequence, str) or not hasattr(sequence, "__iter__"):
        raise TypeError(f"{name}: expected a sequence of tensors, got {described(sequence)}{advice((sequence,))}")
    tensors = tuple(sequence)
    check_tensors(name, *tensors)
    return tensors


# Names of the dtypes' categories, in their order.
_CATEGORIES: Final = ("bool", "integer", "floating-point", "complex")

# The returned tensor, by the rule for its dtype: of one operand, and of two.
_RETURNS: Final = {
    SAME: (
        "A tensor of the input's shape and dtype.",
        "A tensor of the broadcast shape and the common dtype.",
    ),
    TO_FLOAT: (
        "A tensor of the input's shape and dtype; integers and bools give the default dtype.",
        "A tensor of the broadcast shape and the common dtype; integers and bools give the default dtype.",
    ),
    TO_BOOL: ("A bool tensor of the input's shape.", "A bool tensor of the broadcast shape."),
    TO_REAL: (
        "A tensor of the input's shape and dtype; complex dtypes give the real one.",
        "A tensor of the broadcast shape and the common dtype; complex dtypes give the real one.",
    ),
}

# An expression, and the text that Python prints for its value; None if the declaration has the whole docstring.
Example: TypeAlias = tuple[str, str] | None


def _documented(
    doc: str,
    example: Example,
    result: str,
    wrong: str,
    raises: tuple[str, ...] = (),
    *,
    two: bool = True,
    least: int = BOOL,
    most: int = COMPLEX,
    **_: Any,
) -> str:
    """The docstring of a declared function.

    Args:
        doc, example: see `unary`.
        result: see `elementwise`.
        wrong: the operands that raise TypeError.
        raises: further errors, each with its condition.
        two: whether there are two operands.
        least, most: the categories that the op takes.
    """
    if example is None:
        return doc
    result = SAME if result == TO_FLOAT and least > INTEGER else result
    refused = [name for category, name in enumerate(_CATEGORIES) if not least <= category <= most]
    if refused:
        owner = "their common dtype" if two else "its dtype"
        wrong = f"{wrong}, or {owner} is {' or '.join(refused)}"
    errors = [f"TypeError: if {wrong}.", *raises]
    if two:
        errors += [
            "ValueError: if the shapes do not broadcast.",
            "RuntimeError: if the tensors are on different devices.",
        ]
    lines = "\n    ".join(errors)
    call, printed = example
    return (
        f"{doc}\n\nReturns:\n    {_RETURNS[result][two]}\n\nRaises:\n    {lines}\n\n"
        f"Example:\n    >>> {call}\n    {printed}\n"
    )


def unary(
    name: str,
    result: str = SAME,
    *,
    doc: str,
    example: Example = None,
    also: tuple[str, ...] = (),
    in_place: bool = True,
    **options: Any,
) -> UnaryFunction:
    """Declare a function of one tensor.

    Args:
        name: of the function and its op.
        result: see `elementwise`.
        doc: the docstring's first paragraphs; all of it without `example`.
        example: an expression, and the text that Python prints for its value.
        also: further names; see `public`.
        in_place: whether to declare an in-place method.
        options: of `elementwise`.
    """
    op = elementwise(name, result, **options)

    def function(input: Tensor, *, out: Tensor | None = None) -> Tensor:
        if out is not None:
            return written(op, out, (input,))
        return _interpreter.dispatch(op, (input,))

    if in_place:
        change_by(op, also)
    text = _documented(doc, example, result, "`input` is no tensor", two=False, **options)
    return cast("UnaryFunction", _published(function, op, name, text, also))


def pair(
    name: str,
    result: str = SAME,
    *,
    doc: str,
    example: Example = None,
    also: tuple[str, ...] = (),
    in_place: bool = False,
    **options: Any,
) -> PairFunction:
    """Declare a function of two tensors; see `unary`."""
    op = elementwise(name, result, operands=2, **options)

    def function(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        if out is not None:
            return written(op, out, (input, other))
        return _interpreter.dispatch(op, (input, other))

    if in_place:
        change_by_pair(op, also=also)
    text = _documented(doc, example, result, "an operand is no tensor", **options)
    return cast("PairFunction", _published(function, op, name, text, also))


def binary(
    name: str,
    result: str = SAME,
    *,
    doc: str,
    example: Example = None,
    raises: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    reflected: str | None = None,
    in_place: bool = True,
    check: Check | None = None,
    **options: Any,
) -> BinaryFunction:
    """Declare a function of two operands, of which one may be a number.

    Args:
        name, result, doc, example, also, in_place, options: see `unary`.
        raises: errors besides those for wrong dtypes, shapes and devices, each with its condition.
        reflected: see `public`.
        check: called first with the name and the operands; raises an error for operands that it refuses.
    """
    op = Binary(name, result, **options)

    if check is None:

        def function(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
            if out is not None:
                return op.written(out, input, other)
            return op.of(input, other)
    else:

        def function(input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor:
            check(name, input, other)
            if out is not None:
                return op.written(out, input, other)
            return op.of(input, other)

    if in_place:
        change_by_binary(op, check, also)
    text = _documented(doc, example, result, "neither operand is a tensor", raises, **options)
    return cast("BinaryFunction", _published(function, op, name, text, also, reflected))


def _published(
    function: Any, op: OpExpr | Binary, name: str, doc: str, also: tuple[str, ...], reflected: str | None = None
) -> Any:
    """Name the function as if it were written out in the module that declares it, and publish it."""
    function.__module__ = declaring_module()
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = doc
    function.op = op
    return public(*also, reflected=reflected)(function)


# In place


def change_by(op: OpExpr, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method of an op of one tensor; `also` are further names of its function."""

    def form(input: Tensor) -> Tensor:
        return into(op, input, (input,))

    _enter_form(form, op.name, also)


def change_by_pair(op: OpExpr, check: Check | None = None, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method of an op of two tensors; for `check` and `also`, see `binary`."""

    def form(input: Tensor, other: Tensor) -> Tensor:
        if check is not None:
            check(f"{op.name}_", input, other)
        return into(op, input, (input, other))

    _enter_form(form, op.name, also)


def change_by_binary(op: Binary, check: Check | None = None, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method of an op of a tensor and a tensor or number; see `binary` for the arguments."""

    def form(input: Tensor, other: Tensor | Scalar) -> Tensor:
        if check is not None:
            check(f"{op.name}_", input, other)
        return op.into(input, other)

    _enter_form(form, op.name, also)


def _enter_form(form: Callable[..., Tensor], name: str, also: tuple[str, ...]) -> None:
    form.__module__ = declaring_module()
    form.__name__ = form.__qualname__ = f"{name}_"
    form.__doc__ = f"In-place `{name}`."
    for alias in (name, *[other for other in also if not other.startswith("__")]):
        METHODS[f"{alias}_"] = form
