"""The functions `unary`, `pair` and `binary`, with which other modules declare elementwise functions and their ops.

One declaration makes the function of `vmflow`, the method of `Tensor`, an in-place method if wanted, and the
sections of the docstring that follow from the operands and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from vmflow import interpreter as _interpreter, tensors as _tensors
from vmflow.context import MODE
from vmflow.dtypes import BOOL, COMPLEX, INTEGER
from vmflow.operands import not_tensors
from vmflow.ops.copying import clone, copy_
from vmflow.ops.declaration import METHODS, declaring_module, public
from vmflow.ops.destination import written
from vmflow.ops.table import Attributes, OpExpr

from .inference import REVERSED, SAME, TO_BOOL, TO_FLOAT, TO_REAL, elementwise, number

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

    from .inference import Scalar

    # The type of the argument `check` of `binary`.
    Check: TypeAlias = Callable[[str, Any, Any], None]

    class UnaryFunction(Protocol):
        """The type of functions declared by `unary`: called with a tensor and `out`, with the op as attribute `op`."""

        op: OpExpr

        def __call__(self, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...

    class PairFunction(Protocol):
        """The type of functions declared by `pair`: called with two tensors, with the op as attribute `op`."""

        op: OpExpr

        def __call__(self, input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...

    class BinaryFunction(Protocol):
        """The type of functions declared by `binary`, of two operands, one perhaps a number; `op` holds both ops."""

        op: Binary

        def __call__(self, input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor: ...


class Binary:
    """A pair of ops for one elementwise function: of two tensors, and of a tensor and a Python number.

    Attributes:
        name: of the function.
        tensors: the op on two tensors.
        scalar: the op on a tensor and a number; its attributes are `REVERSED` if the number is the first operand.
    """

    __slots__ = ("name", "scalar", "tensors")

    def __init__(self, name: str, result: str = SAME, **options: Any) -> None:
        self.name = name
        self.tensors = elementwise(name, result, operands=2, **options)
        self.scalar = elementwise(f"{name}_scalar", result, scalars=1, **options)

    def of(self, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """Dispatch the op for these operands.  A named method, since Python calls `__call__` more slowly."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return _interpreter.dispatch(self.tensors, (input, other))
            return _interpreter.dispatch(self.scalar, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return _interpreter.dispatch(self.scalar, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def written(self, out: Tensor, input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
        """Run the op for these operands, write its result into `out`, and return `out`."""
        if isinstance(other, _tensors.Tensor):
            if isinstance(input, _tensors.Tensor):
                return written(self.tensors, out, (input, other))
            return written(self.scalar, out, (other,), REVERSED, (number(self.name, input),))
        if isinstance(input, _tensors.Tensor):
            return written(self.scalar, out, (input,), (), (number(self.name, other),))
        raise TypeError(f"{self.name}: expected a tensor, got {type(input).__name__} and {type(other).__name__}")

    def into(self, input: Tensor, other: Tensor | Scalar) -> Tensor:
        """Run the op for these operands, and write its result over `input`, as an in-place method does."""
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
    """Run an op in place: write its result into `target`, which may be among the inputs, and return `target`.

    While autograd records, this function, unlike `dispatch_into`, first copies old values that the op's gradient reads;
    the result of an op without a gradient rule is computed apart, and copied into `target`.
    """
    if not isinstance(target, _tensors.Tensor):
        raise not_tensors(f"{op.name}_", (target,))
    looks_back = op.saves_inputs or op.rule is None
    if looks_back and MODE.get().grad and _interpreter.any_requires_grad((target, *inputs)):
        if op.rule is None:
            return copy_(target, _interpreter.dispatch(op, inputs, attributes, scalars))
        inputs = tuple(
            [
                clone(operand) if operand is target and place in op.saves_inputs else operand
                for place, operand in enumerate(inputs)
            ]
        )
    return _interpreter.dispatch_into(op, target, inputs, attributes, scalars)


# Names, in docstrings, of the categories of dtypes, from BOOL to COMPLEX.
_CATEGORIES: Final = ("bool", "integer", "floating-point", "complex")

# For docstrings: a description of the returned tensor, for each rule for its dtype, of a function of one operand and of
# two.
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

# The example of a docstring: an expression, and the text that Python prints for its value.  None if the declaration
# gives the whole docstring.
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
    """Compose the docstring of a declared elementwise function from its description, errors and example.

    Args:
        doc, example: see `unary`.
        result: the rule for the result's dtype, see `elementwise`.
        wrong: a condition on operands that raises TypeError.
        raises: further errors, each with its condition.
        two: whether the function has two operands.
        least, most: the lowest and the highest category of dtypes that the op takes.
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
    """Declare an elementwise function of one tensor: its op, public function, method and in-place method.

    Args:
        name: of the function and its op.
        result: the rule for the result's dtype, see `elementwise`.
        doc: the docstring's first paragraphs; all of it without `example`.
        example: an expression, and the text that Python prints for its value.
        also: further names; see `public`.
        in_place: whether to declare an in-place method.
        options: further arguments of `elementwise`.
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
    """Declare an elementwise function of two tensors; for the arguments, see `unary`."""
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
    """Declare an elementwise function of two operands, one of which may be a Python number.

    Args:
        name, result, doc, example, also, in_place, options: see `unary`.
        raises: errors besides those for wrong dtypes, shapes and devices, each with its condition.
        reflected: see `public`.
        check: a function called first with the name and both operands, which raises errors for operands it refuses.
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
    """Give a generated function name, module and docstring as if the declaring module defined it; make it public."""
    function.__module__ = declaring_module()
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    function.__doc__ = doc
    function.op = op
    return public(*also, reflected=reflected)(function)


# In place


def change_by(op: OpExpr, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method, such as ``exp_``, of an op of one tensor.

    `also` are more names of the op's function; each without leading underscores, with "_" added, names the method, too.
    """

    def form(input: Tensor) -> Tensor:
        return into(op, input, (input,))

    _enter_form(form, op.name, also)


def change_by_pair(op: OpExpr, check: Check | None = None, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method of an op of two tensors, such as ``hypot_``; for `check` and `also`, see `binary`."""

    def form(input: Tensor, other: Tensor) -> Tensor:
        if not isinstance(input, _tensors.Tensor) or not isinstance(other, _tensors.Tensor):
            raise not_tensors(f"{op.name}_", (input, other))
        if check is not None:
            check(f"{op.name}_", input, other)
        return into(op, input, (input, other))

    _enter_form(form, op.name, also)


def change_by_binary(op: Binary, check: Check | None = None, also: tuple[str, ...] = ()) -> None:
    """Declare the in-place method, such as ``add_``, of an op of a tensor and a tensor or number; see `binary`."""

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
