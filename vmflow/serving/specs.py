"""`TensorSpec`: declares an input, and converts a caller's values to arrays that fit the declaration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite, prod
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from vmflow import dtypes
from vmflow.dtypes import BOOL, COMPLEX, FLOATING, INTEGER, dtype as DType
from vmflow.instructions.blob import Array
from vmflow.tensors import Tensor

from .errors import InvalidInput

# The category of each kind of numpy's numbers, also of dtypes that vmflow lacks, such as longdouble.
_CATEGORIES: Final = {"b": BOOL, "i": INTEGER, "u": INTEGER, "f": FLOATING, "c": COMPLEX}


def _plain(sizes: Iterable[int | Dim]) -> tuple[Any, ...]:
    return tuple(int(size) if isinstance(size, np.integer) else size for size in sizes)


@attrs.frozen
class Dim:
    """A dimension that differs from request to request, such as the length of a text.

    A request is padded to the smallest size that is large enough, and batched with others padded to that size.

    Attributes:
        name: identifies the dimension in several inputs and outputs.
        sizes: to which the dimension is padded, ascending; the last is the longest that is accepted.

    Raises:
        ValueError: if the sizes are not different positive integers, ascending.
        TypeError: if `sizes` is a number.

    Example:
        >>> length = flow.serving.Dim("length", (16, 64))
        >>> length.padded(10), length.padded(64), length.padded(65)
        (16, 64, None)
    """

    name: str
    sizes: tuple[int, ...] = attrs.field(converter=_plain)

    @sizes.validator
    def _check(self, attribute: object, sizes: tuple[int, ...]) -> None:
        if (
            not sizes
            or not all([type(size) is int and size > 0 for size in sizes])
            or list(sizes) != sorted(set(sizes))
        ):
            raise ValueError(f"Dim {self.name!r}: sizes must be different positive integers, ascending, not {sizes}")

    def padded(self, size: int) -> int | None:
        """The smallest of the sizes that is not below `size`; None if there is none."""
        place = bisect_left(self.sizes, size)
        return self.sizes[place] if place < len(self.sizes) else None


@attrs.frozen
class TensorSpec:
    """One input of one request, without the dimension of the batch.

    Attributes:
        shape: sizes, and `Dim` where they differ.
        dtype: of the array; values are converted to the same or a wider kind: integers to floats, not the reverse.
        pad: the value that a `Dim` is filled up with, converted to `dtype`, within whose range it must be.
        finite: whether nan and inf are refused.

    Raises:
        ValueError: for a size that is neither a `Dim` nor an integer from 0 on.
        TypeError: if `dtype` is no dtype of vmflow, or `shape` is a number.

    Example:
        >>> text = flow.serving.TensorSpec((flow.serving.Dim("length", (4, 8)),), flow.int64, pad=-1)
        >>> sizes = {}
        >>> text.padded(text.array("text", [7, 8, 9], sizes), {"length": 4}), sizes
        (array([ 7,  8,  9, -1]), {'length': 3})
    """

    shape: tuple[int | Dim, ...] = attrs.field(converter=_plain)
    dtype: DType = attrs.field(default=dtypes.float32)
    pad: float = 0
    finite: bool = True

    @shape.validator
    def _check(self, attribute: object, shape: tuple[int | Dim, ...]) -> None:
        for size in shape:
            if not isinstance(size, Dim) and (type(size) is not int or size < 0):
                raise ValueError(f"TensorSpec: a size must be an integer from 0 on or a Dim, not {size!r}")

    @dtype.validator
    def _check_dtype(self, attribute: object, dtype: DType) -> None:
        dtypes.checked("TensorSpec", dtype)

    def array(self, name: str, value: Any, sizes: dict[str, int]) -> Array:
        """A copy of the value as an array, checked and not yet padded.

        Args:
            name: of the input, for messages; "" if it has none.
            value: a numpy array, a tensor, a number, or nested lists of numbers.
            sizes: of each `Dim` known so far, by name; those of this value are added.

        Raises:
            InvalidInput: if the value is none of these, or has another shape or kind; for integers out of the range of
                an integer dtype or of float64; and, if `finite`, for numbers that are nan, infinite or out of range.
        """
        to = self.dtype.numpy
        if type(value) is np.ndarray and value.dtype is to:
            if value.shape != self.shape:
                self._check_shape(name, value.shape, sizes)
            copy: Array = value.copy()
            self._check_finite(name, copy)
            return copy
        if isinstance(value, Tensor):
            value = value.detach().numpy()
        array = value if isinstance(value, np.ndarray) else _array_of(name, value, self)
        if array.dtype.name == dtypes.bfloat16.name:  # no number to numpy
            array = array.astype(np.float32)
        category = _CATEGORIES.get(array.dtype.kind)
        if category is None:
            raise InvalidInput(f"{_about(name)}expected numbers, got an array of {array.dtype}")
        self._check_shape(name, array.shape, sizes)
        if category > self.dtype.category:
            raise InvalidInput(f"{_about(name)}{array.dtype} values do not fit into {self.dtype.name}")
        converted = self._converted(name, array)
        self._check_finite(name, converted)
        return converted

    def _check_finite(self, name: str, array: Array) -> None:
        if not self.finite or self.dtype.category < FLOATING:
            return
        if self.dtype.category == FLOATING and isfinite(np.vdot(array, array)):
            return  # a finite sum of squares has finite terms; this takes half the time of the next check
        if not np.isfinite(array).all():
            raise InvalidInput(f"{_about(name)}there are values that are nan or infinite")

    def _converted(self, name: str, array: Array) -> Array:
        to = self.dtype.numpy
        if to.kind in "iu" and array.dtype.kind in "iu" and array.size:
            limits = np.iinfo(to)
            if array.min() < limits.min or array.max() > limits.max:
                raise InvalidInput(f"{_about(name)}there are values that do not fit into {self.dtype.name}")
        with np.errstate(all="ignore"):  # values out of range become infinite, which is refused later if `finite`
            return array.astype(to, order="C", copy=True)

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
        """The array filled up with `pad` to these sizes of each `Dim`, by name; the same array if it has them."""
        shape = self.padded_shape(sizes)
        if array.shape == shape:
            return array
        filled = np.full(shape, self.pad, self.dtype.numpy)
        filled[tuple([slice(size) for size in array.shape])] = array
        return filled

    def padded_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape with these sizes of each `Dim`, by name."""
        return tuple([sizes[size.name] if isinstance(size, Dim) else size for size in self.shape])

    def nbytes(self) -> int:
        """The bytes of the largest array that fits this spec."""
        return prod(self.largest()) * self.dtype.itemsize

    def largest(self) -> list[int]:
        """The shape with the largest sizes."""
        return [size.sizes[-1] if isinstance(size, Dim) else size for size in self.shape]

    def shown(self) -> str:
        """The shape as text, with the names of each `Dim`."""
        return "[" + ", ".join([size.name if isinstance(size, Dim) else str(size) for size in self.shape]) + "]"


def _about(name: str) -> str:
    """Return the beginning of an error message about the input of this name."""
    return f"{name}: " if name else ""


def _array_of(name: str, value: Any, spec: TensorSpec) -> Array:
    if isinstance(value, (str, bytes)) or value is None:
        raise InvalidInput(f"{_about(name)}expected numbers, got {type(value).__name__}")
    try:
        array = np.asarray(value, spec.dtype.numpy if isinstance(value, list) and not value else None)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{_about(name)}expected numbers of shape {spec.shown()}: {error}") from None
    if array.dtype == object and all([type(entry) in (int, float, bool) for entry in array.flat]):
        return _with_large_integers(name, array, spec)
    return array


def _with_large_integers(name: str, array: Array, spec: TensorSpec) -> Array:
    """Convert numbers, some of them too large for numpy's integers, to float64, unless `spec` is of integers or bools.

    Raises:
        InvalidInput: for such a `spec`, or numbers that are too large for float64.
    """
    if spec.dtype.category >= FLOATING:
        with suppress(OverflowError):
            return array.astype(np.float64)
    raise InvalidInput(f"{_about(name)}there are values that do not fit into {spec.dtype.name}")


# One input, several in order, or several by name: as the model takes them.
Specs: TypeAlias = TensorSpec | Sequence[TensorSpec] | Mapping[str, TensorSpec]


class Signature:
    """The inputs of a session, and the form in which callers pass them.

    Args:
        inputs: see `Specs`.

    Attributes:
        specs: the `TensorSpec` of each input, in order.
        names: of the inputs; for messages, "inputs[0]" and so on for a sequence, "" for a single one.
        dims: each `Dim` of the inputs, by its name.
        named: whether the model takes its inputs by name.
        single: whether there is one input, which callers pass without a container.
    """

    def __init__(self, inputs: Specs) -> None:
        self.named = isinstance(inputs, Mapping)
        self.single = isinstance(inputs, TensorSpec)
        if isinstance(inputs, Mapping):
            self.names, self.specs = tuple(inputs), tuple(inputs.values())
        elif isinstance(inputs, TensorSpec):
            self.names, self.specs = ("",), (inputs,)
        else:
            self.specs = tuple(inputs) if isinstance(inputs, Iterable) else ()
            self.names = tuple([f"inputs[{place}]" for place in range(len(self.specs))])
        if not self.specs or not all([isinstance(spec, TensorSpec) for spec in self.specs]):
            raise TypeError("inputs must be a TensorSpec, or several in a sequence or by name")
        self.dims: dict[str, Dim] = {}
        for spec in self.specs:
            for dim in spec.shape:
                if isinstance(dim, Dim) and self.dims.setdefault(dim.name, dim) != dim:
                    raise ValueError(f"the dimension {dim.name!r} is declared in two ways")

    def arrays(self, inputs: Any) -> tuple[tuple[Array, ...], dict[str, int]]:
        """The arrays of one request, in order, and the size of each `Dim`, by name.

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
            InvalidInput: if there are more or fewer inputs, other names, or another container.
        """
        if self.single:
            return [inputs]
        if self.named:
            if not isinstance(inputs, Mapping):
                raise InvalidInput(f"expected inputs by name ({', '.join(self.names)}), got {type(inputs).__name__}")
            wrong = sorted([str(name) for name in inputs.keys() ^ set(self.names)])
            if wrong:
                raise InvalidInput(
                    f"expected the inputs {', '.join(self.names)}; missing or unknown: {', '.join(wrong)}"
                )
            return [inputs[name] for name in self.names]
        if not isinstance(inputs, (tuple, list)) or len(inputs) != len(self.specs):
            raise InvalidInput(f"expected {len(self.specs)} inputs in a list")
        return inputs

    def padded_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes to which each `Dim` of these sizes is padded, by name."""
        padded = {}
        for name, dim in self.dims.items():
            size = dim.padded(sizes[name])
            assert size is not None  # checked with the shape
            padded[name] = size
        return padded

    def packed(self, arrays: Sequence[Array]) -> Any:
        """The arrays in the form in which callers pass them: one array, a tuple or a dict."""
        if self.single:
            return arrays[0]
        return dict(zip(self.names, arrays, strict=True)) if self.named else tuple(arrays)

    def nbytes(self) -> int:
        """The bytes of the input arrays of the largest request."""
        return sum([spec.nbytes() for spec in self.specs])
