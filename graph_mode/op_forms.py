"""Checks that an op from a file has the operands and attributes of a call; see `vmflow.ops.table.Form`.

An op's inference relies on checks by the public function that calls the op: of the number of operands, and of the types
of attributes.  Files may hold anything, so this module checks the same before the inference runs.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from vmflow.instructions.blob import Size, TensorMeta
from vmflow.ops.table import Form

from .job_parts import Drawn

# Integers among attributes and scalars have 64 bits.
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1


def misfit(form: Form, inputs: Sequence[TensorMeta], attributes: Any, scalars: tuple[Any, ...]) -> str | None:
    """Describe the first difference between a call and this form; None if there is none.

    Args:
        form: the form of the op.
        inputs: the metas of the input tensors.
        attributes: the attributes of the call.
        scalars: numbers; or only `Drawn` for an op that draws random numbers.
    """
    for name, count, expected in (("inputs", len(inputs), form.inputs), ("scalars", len(scalars), form.scalars)):
        least, most = (expected, expected) if isinstance(expected, int) else expected
        if count < least or (most is not None and count > most):
            allowed = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            return f"expected {allowed} {name}, found {count}"
    for scalar in scalars:
        if isinstance(scalar, Drawn) != form.draws:
            return f"{scalar!r} is {'no place in a random sequence' if form.draws else 'drawn, and no number'}"
        if isinstance(scalar, int) and not _LOWEST <= scalar <= _HIGHEST:
            return f"{scalar} is no integer of 64 bits"
    # A 0-d tensor counts as having one dimension.
    metas = [*inputs, *[attribute for attribute in attributes if isinstance(attribute, TensorMeta)]]
    rank = max([len(meta.shape) for meta in metas], default=0) or 1
    return None if _fit_attributes(form, attributes, rank) else f"its attributes cannot be {attributes!r}"


def _fit_attributes(form: Form, attributes: Any, rank: int) -> bool:
    if form.attributes is not None and form.rest is None:
        return fits(attributes, form.attributes, rank)
    count = 0 if form.attributes is None else len(get_args(form.attributes))
    if type(attributes) is not tuple or len(attributes) < count or (form.rest is None and attributes):
        return False
    first, others = attributes[:count], attributes[count:]
    return (not count or fits(first, form.attributes, rank)) and all([fits(other, form.rest, rank) for other in others])


def fits(value: Any, declared: Any, rank: int) -> bool:
    """Whether a value is of a type: Any, a class, an annotated int, or tuples, unions and (for strings) literals.

    An int has 64 bits, and counts as a float; a bool counts as neither.  A `Size` counts as a tuple.  No other value
    of a subclass fits.

    Args:
        value: the value of an attribute.
        declared: the type.
        rank: the number of dimensions, for attributes that are dimensions.
    """
    if declared is Any:
        return True
    if declared is int:
        return type(value) is int and _LOWEST <= value <= _HIGHEST
    if declared is float:
        return type(value) is float or fits(value, int, rank)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        least, most = (0, rank - 1) if arguments[1] == "dim" else arguments[1:]
        return type(value) is int and bool(least <= value <= most)
    if origin is Literal:
        return type(value) is str and value in arguments
    if origin in (Union, types.UnionType):
        return any([fits(value, argument, rank) for argument in arguments])
    if origin is tuple:
        return type(value) in (tuple, Size) and _fit_each(value, arguments, rank)
    if declared is None or declared is type(None):
        return value is None
    if type(value) is not declared:
        return False
    # The fields of a named tuple have declared types, too.
    kind: Any = declared
    return not isinstance(value, tuple) or _fit_each(value, _fields(kind), rank)


def _fit_each(values: tuple[Any, ...], declared: tuple[Any, ...], rank: int) -> bool:
    if len(declared) == 2 and declared[1] is ...:
        return all([fits(value, declared[0], rank) for value in values])
    return len(values) == len(declared) and all(
        [fits(value, kind, rank) for value, kind in zip(values, declared, strict=True)]
    )


@cache
def _fields(declared: Any) -> tuple[Any, ...]:
    """The types of a named tuple's fields."""
    return tuple(get_type_hints(declared, include_extras=True).values())
