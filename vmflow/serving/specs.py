"""`TensorSpec`: the declaration of an input, and the conversion of a caller's values to arrays that fit it.

Everything is checked before memory is allocated for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite, prod
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from vmflow import dtypes
from vmflow.dtypes import BOOL, FLOATING, INTEGER, dtype as DType
from vmflow.instructions.blob import Array
from vmflow.tensors import Tensor

from .errors import InvalidInput

# By numpy's kinds: also of those for which vmflow has no dtype, as the longest floating-point one.
_CATEGORIES: Final = {"b": BOOL, "i": INTEGER, "u": INTEGER, "f": FLOATING}


@attrs.frozen
class Dim:
    """A dimension that differs from request to request, such as the length of a text.

    A request is padded to the next of the sizes, and batched with others that were padded to the same.

    Attributes:
        name: by which the same dimension is known in several inputs and outputs.
        sizes: to which it is padded, ascending; the last is the longest that is taken.
    """

    name: str
    sizes: tuple[int, ...] = attrs.field(converter=tuple[int, ...])

    @sizes.validator
    def _check(self, attribute: object, sizes: tuple[int, ...]) -> None:
        if (
            not sizes
            or list(sizes) != sorted(set(sizes))
            or not all([type(size) is int and size > 0 for size in sizes])
        ):
            raise ValueError(f"Dim {self.name!r}: sizes must be different positive integers, ascending, not {sizes}")

    def padded(self, size: int) -> int | None:
        """The next of the sizes; None if this is more than the largest."""
        place = bisect_left(self.sizes, size)
        return self.sizes[place] if place < len(self.sizes) else None


@attrs.frozen
class TensorSpec:
    """One input of one request, without the dimension of the batch.

    Attributes:
        shape: sizes, and `Dim` where they differ.
        dtype: to which values are converted if that loses nothing in kind: integers become floats, not the reverse.
        pad: the value that a `Dim` is filled up with.
        finite: whether nan and inf are refused.
    """

    shape: tuple[int | Dim, ...] = attrs.field(converter=tuple[int | Dim, ...])
    dtype: DType = dtypes.float32
    pad: float = 0
    finite: bool = True

    @shape.validator
    def _check(self, attribute: object, shape: tuple[int | Dim, ...]) -> None:
        for value in shape:
            if not isinstance(value, Dim) and (type(value) is not int or value < 0):
                raise ValueError(f"TensorSpec: a size must be an integer from 0 on or a Dim, not {value!r}")

    def array(self, name: str, value: Any, sizes: dict[str, int]) -> Array:
        """A copy of the value as an array, checked and not yet padded.

        Args:
            name: of the input, for messages; "" if it has none.
            value: a numpy array, a tensor, a number, or nested lists of numbers.
            sizes: of the dimensions known so far, by name; those of this value are added.

        Raises:
            InvalidInput: if it is something else, of another shape or kind, or not finite.
        """
        to = self.dtype.numpy
        if type(value) is np.ndarray and value.dtype is to:
            if value.shape != self.shape:
                self._check_shape(name, value.shape, sizes)
            made: Array = value.copy()
            self._check_finite(name, made)
            return made
        if isinstance(value, Tensor):
            value = value.detach().numpy()
        found = value if isinstance(value, np.ndarray) else _array_of(name, value, self)
        category = self.dtype.category if found.dtype == to else _CATEGORIES.get(found.dtype.kind)
        if category is None:
            raise InvalidInput(f"{_about(name)}expected numbers, got an array of {found.dtype}")
        self._check_shape(name, found.shape, sizes)
        if category > self.dtype.category:
            raise InvalidInput(f"{_about(name)}{found.dtype} values do not fit into {self.dtype.name}")
        made = self._converted(name, found)
        self._check_finite(name, made)
        return made

    def _check_finite(self, name: str, array: Array) -> None:
        if not self.finite or self.dtype.category < FLOATING:
            return
        if self.dtype.category == FLOATING and isfinite(np.vdot(array, array)):
            return  # as no sum of squares is of which one is not; this takes half the time
        if not np.isfinite(array).all():
            raise InvalidInput(f"{_about(name)}there are values that are nan or infinite")

    def _converted(self, name: str, found: Array) -> Array:
        to = self.dtype.numpy
        if to.kind in "iu" and found.dtype.kind in "iu" and found.size:
            limits = np.iinfo(to)
            if found.min() < limits.min or found.max() > limits.max:
                raise InvalidInput(f"{_about(name)}there are values that do not fit into {self.dtype.name}")
        with np.errstate(all="ignore"):  # values that do not fit become infinite, and are refused then
            return found.astype(to, order="C", copy=True)

    def _check_shape(self, name: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        if len(shape) != len(self.shape):
            raise InvalidInput(f"{_about(name)}expected shape {self.shown()}, got {list(shape)}")
        for have, want in zip(shape, self.shape, strict=True):
            if not isinstance(want, Dim):
                if have != want:
                    raise InvalidInput(f"{_about(name)}expected shape {self.shown()}, got {list(shape)}")
                continue
            if not 0 < have <= want.sizes[-1]:
                raise InvalidInput(f"{_about(name)}{want.name} is {have}, and must be from 1 to {want.sizes[-1]}")
            if sizes.setdefault(want.name, have) != have:
                raise InvalidInput(f"{_about(name)}{want.name} is {have} here, and {sizes[want.name]} in another input")

    def padded(self, array: Array, sizes: Mapping[str, int]) -> Array:
        """Filled up to these sizes of the named dimensions."""
        shape = self.padded_shape(sizes)
        if array.shape == shape:
            return array
        made = np.full(shape, self.pad, self.dtype.numpy)
        made[tuple([slice(value) for value in array.shape])] = array
        return made

    def padded_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with these sizes of the named dimensions."""
        return tuple([sizes[value.name] if isinstance(value, Dim) else value for value in self.shape])

    def nbytes(self) -> int:
        """Of the largest that is taken."""
        return prod(self.largest()) * self.dtype.itemsize

    def largest(self) -> list[int]:
        """The shape with the largest sizes."""
        return [value.sizes[-1] if isinstance(value, Dim) else value for value in self.shape]

    def shown(self) -> str:
        """The shape, for people."""
        return "[" + ", ".join([value.name if isinstance(value, Dim) else str(value) for value in self.shape]) + "]"


def _about(name: str) -> str:
    """The beginning of a message about an input."""
    return f"{name}: " if name else ""


def _array_of(name: str, value: Any, spec: TensorSpec) -> Array:
    if isinstance(value, (str, bytes)) or value is None:
        raise InvalidInput(f"{_about(name)}expected numbers, got {type(value).__name__}")
    try:
        found = np.asarray(value, spec.dtype.numpy if isinstance(value, list) and not value else None)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{_about(name)}expected numbers of shape {spec.shown()}: {error}") from None
    if found.dtype == object and all([type(entry) in (int, float, bool) for entry in found.flat]):
        return _with_large_integers(name, found, spec)
    return found


def _with_large_integers(name: str, found: Array, spec: TensorSpec) -> Array:
    """Numbers of which some are integers that numpy has no dtype for; to a client they are numbers like others."""
    if spec.dtype.category >= FLOATING:
        with suppress(OverflowError):
            return found.astype(np.float64)
    raise InvalidInput(f"{_about(name)}there are values that do not fit into {spec.dtype.name}")


# One, several in order, or several by name: as the model is called with them.
Specs: TypeAlias = TensorSpec | Sequence[TensorSpec] | Mapping[str, TensorSpec]


class Signature:
    """The inputs of a session, and how it is called with them.

    Args:
        inputs: see `Specs`.

    Attributes:
        specs: in order.
        names: of them; where they have none, their places, and "" for a single one: for messages.
        dims: by name.
        named: whether the model takes them by name.
        single: whether it takes one, which callers give without a container.
    """

    def __init__(self, inputs: Specs) -> None:
        self.named = isinstance(inputs, Mapping)
        self.single = isinstance(inputs, TensorSpec)
        if isinstance(inputs, Mapping):
            self.names, self.specs = tuple(inputs), tuple(inputs.values())
        elif isinstance(inputs, TensorSpec):
            self.names, self.specs = ("",), (inputs,)
        else:
            self.specs = tuple(inputs)
            self.names = tuple([f"inputs[{place}]" for place in range(len(self.specs))])
        if not self.specs or not all([isinstance(value, TensorSpec) for value in self.specs]):
            raise TypeError("inputs must be a TensorSpec, or several in a sequence or by name")
        self.dims: dict[str, Dim] = {}
        for spec in self.specs:
            for dim in spec.shape:
                if isinstance(dim, Dim) and self.dims.setdefault(dim.name, dim) != dim:
                    raise ValueError(f"the dimension {dim.name!r} is declared in two ways")

    def arrays(self, inputs: Any) -> tuple[tuple[Array, ...], dict[str, int]]:
        """The arrays of one request, in order, and the sizes of its dimensions.

        Raises:
            InvalidInput: if the inputs do not fit.
        """
        sizes: dict[str, int] = {}
        if self.single:
            return (self.specs[0].array(self.names[0], inputs, sizes),), sizes
        values = self.values(inputs)
        return tuple(
            [spec.array(name, value, sizes) for name, spec, value in zip(self.names, self.specs, values, strict=True)]
        ), sizes

    def values(self, inputs: Any) -> Sequence[Any]:
        """The values of all inputs, in order.

        Raises:
            InvalidInput: if it is not as many, or not by these names.
        """
        if self.single:
            return [inputs]
        if self.named:
            if not isinstance(inputs, Mapping):
                raise InvalidInput(f"expected inputs by name ({', '.join(self.names)}), got {type(inputs).__name__}")
            wrong = sorted([str(operand) for operand in inputs.keys() ^ set(self.names)])
            if wrong:
                raise InvalidInput(
                    f"expected the inputs {', '.join(self.names)}; missing or unknown: {', '.join(wrong)}"
                )
            return [inputs[name] for name in self.names]
        if not isinstance(inputs, (tuple, list)) or len(inputs) != len(self.specs):
            raise InvalidInput(f"expected {len(self.specs)} inputs in a list")
        return inputs

    def padded_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to which the dimensions are padded."""
        found = {}
        for name, dim in self.dims.items():
            to = dim.padded(sizes[name])
            assert to is not None  # checked with the shape
            found[name] = to
        return found

    def given(self, arrays: Sequence[Array]) -> Any:
        """The arrays as callers give them."""
        if self.single:
            return arrays[0]
        return dict(zip(self.names, arrays, strict=True)) if self.named else tuple(arrays)

    def nbytes(self) -> int:
        """Of the largest request."""
        return sum([spec.nbytes() for spec in self.specs])
