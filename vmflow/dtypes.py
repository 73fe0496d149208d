"""`dtype`: the type of a tensor's elements, and the rules by which two operands' dtypes give a result's dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .context import MODE

# Categories of dtypes in ascending order: in promotion, the higher category wins.
BOOL: Final = 0
INTEGER: Final = 1
FLOATING: Final = 2
COMPLEX: Final = 3


class dtype:
    """The type of a tensor's elements: ``vmflow.float32`` and so on; there is one object of each.

    Programs use these objects, which raises no errors, and make none.

    Attributes:
        name: "float32" and so on.
        numpy: the numpy dtype of the elements (for bfloat16, that of the package ml_dtypes).
        itemsize: bytes per element.
        category: BOOL, INTEGER, FLOATING or COMPLEX.

    Example:
        >>> flow.float32.itemsize, flow.float32.is_floating_point
        (4, True)
    """

    __slots__ = ("_find", "category", "itemsize", "name", "numpy")

    numpy: np.dtype[Any]
    _find: Callable[[], Any]

    def __init__(self, name: str, scalar: Any, category: int) -> None:
        self.name = name
        self.numpy = np.dtype(scalar)
        self.itemsize = self.numpy.itemsize
        self.category = category

    @classmethod
    def _found_later(cls, name: str, find: Callable[[], Any], itemsize: int, category: int) -> dtype:
        """Make a dtype that calls `find` for its numpy dtype when `numpy` is first read."""
        made = cls.__new__(cls)
        made.name, made.itemsize, made.category, made._find = name, itemsize, category, find
        return made

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for attributes that are not set, such as `numpy` of bfloat16 before its first use.
        if name != "numpy":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = self.numpy = np.dtype(self._find())
        _BY_NUMPY[found] = self
        return found

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOATING

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def is_signed(self) -> bool:
        return self.category >= FLOATING or self.name.startswith("int")

    def to_real(self) -> dtype:
        """The dtype of an element's real part: float32 for complex64; the same dtype if it is not complex."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def __repr__(self) -> str:
        return f"vmflow.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return by_name, (self.name,)


def _bfloat16() -> Any:
    import ml_dtypes  # imported on first use, as importing it takes time

    return ml_dtypes.bfloat16


bool_ = dtype("bool", np.bool_, BOOL)
uint8 = dtype("uint8", np.uint8, INTEGER)
uint16 = dtype("uint16", np.uint16, INTEGER)
uint32 = dtype("uint32", np.uint32, INTEGER)
uint64 = dtype("uint64", np.uint64, INTEGER)
int8 = dtype("int8", np.int8, INTEGER)
int16 = dtype("int16", np.int16, INTEGER)
int32 = dtype("int32", np.int32, INTEGER)
int64 = dtype("int64", np.int64, INTEGER)
float16 = dtype("float16", np.float16, FLOATING)
bfloat16 = dtype._found_later("bfloat16", _bfloat16, 2, FLOATING)
float32 = dtype("float32", np.float32, FLOATING)
float64 = dtype("float64", np.float64, FLOATING)
complex64 = dtype("complex64", np.complex64, COMPLEX)
complex128 = dtype("complex128", np.complex128, COMPLEX)

ALL: Final = (
    bool_,
    uint8,
    uint16,
    uint32,
    uint64,
    int8,
    int16,
    int32,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)
_BY_NAME: Final = {kind.name: kind for kind in ALL}
_BY_NUMPY: Final = {kind.numpy: kind for kind in ALL if kind is not bfloat16}


def is_half(d: dtype) -> bool:
    """Whether `d` is a 16-bit floating-point dtype: float16 or bfloat16."""
    return d is float16 or d is bfloat16


def by_name(name: str) -> dtype:
    """The dtype called `name`."""
    return _BY_NAME[name]


def from_numpy(array_dtype: Any) -> dtype:
    """The vmflow dtype of a numpy dtype of any byte order, or of a type or name that numpy converts to one.

    Raises:
        TypeError: if vmflow has no such dtype (strings, objects, dates, ...), or numpy does not know it.
    """
    found = _BY_NUMPY.get(array_dtype) if isinstance(array_dtype, np.dtype) else None
    if found is None:  # no numpy dtype, one of another byte order, one that vmflow lacks, or bfloat16 at first
        if array_dtype == bfloat16.name:
            return bfloat16  # np.dtype("bfloat16") would fail unless ml_dtypes has been imported
        given = np.dtype(array_dtype)
        if given.name == bfloat16.name and given == bfloat16.numpy:
            return bfloat16
        found = _BY_NUMPY.get(given.newbyteorder("="))
    if found is None:
        raise TypeError(f"no vmflow dtype holds numpy's {np.dtype(array_dtype)}; supported are {', '.join(_BY_NAME)}")
    return found


def get_default_dtype() -> dtype:
    """The default dtype of new floating-point tensors in this thread or task; float32 without `set_default_dtype`.

    Example:
        >>> flow.get_default_dtype()
        vmflow.float32
    """
    return MODE.get().dtype or float32


def set_default_dtype(d: dtype) -> None:
    """Make `d` the dtype of new floating-point tensors, unless the call or the data, such as an array, gives one.

    The setting, a context variable, holds for this thread or task, and for tasks that it starts later.

    Raises:
        TypeError: if `d` is not a floating-point dtype.

    Example:
        >>> flow.set_default_dtype(flow.float32)
        >>> flow.tensor(1.0).dtype
        vmflow.float32
    """
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(f"the default dtype must be a floating-point dtype such as vmflow.float32, not {d!r}")
    MODE.set(MODE.get().replace(dtype=d))


def of_scalar(kind: type) -> dtype:
    """The dtype of a tensor made of a Python number of type `kind`; TypeError unless bool, int, float or complex."""
    if issubclass(kind, bool):
        return bool_
    if issubclass(kind, int):
        return int64
    if issubclass(kind, float):
        return get_default_dtype()
    if issubclass(kind, complex):
        return complex128 if get_default_dtype() is float64 else complex64
    raise TypeError(f"expected a number, got {kind.__name__}")


def promote_types(first: dtype, second: dtype) -> dtype:
    """The dtype to which two dtypes promote: the one of higher category, else the smallest that holds both.

    As in PyTorch, a higher category wins without widening, except that float64 with complex64 is complex128.

    int64 with float16 is float16; float16 with bfloat16 is float32.

    Raises:
        TypeError: for uint64 with a signed integer, since no integer dtype holds the values of both; if an argument is
            no dtype.

    Example:
        >>> flow.promote_types(flow.uint8, flow.int8)
        vmflow.int16
    """
    if first is second:
        return checked("promote_types", first)
    found = _PROMOTED.get((first, second))
    if found is None:
        found = _PROMOTED[first, second] = _promote(checked("promote_types", first), checked("promote_types", second))
    return found


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {}


def _promote(first: dtype, second: dtype) -> dtype:
    low, high = sorted((first, second), key=lambda kind: kind.category)
    if low.category == high.category:
        if {low, high} == {float16, bfloat16}:
            return float32
        if bfloat16 in (low, high):
            return high if low is bfloat16 else low
        if low.category == INTEGER and uint64 in (low, high) and (low.is_signed or high.is_signed):
            raise TypeError(
                f"no integer dtype holds both {low.name} and {high.name}; convert one of them, for example with "
                ".to(vmflow.int64)"
            )
        return from_numpy(np.promote_types(low.numpy, high.numpy))
    if high is complex64 and low is float64:
        return complex128
    return high


def promote_unsized(tensor: dtype, other: dtype) -> dtype:
    """The result dtype of an op on a tensor of dtype `tensor` and a number or 0-d tensor of dtype `other`.

    `other` can raise the category (integer to floating point) but never widens within a category.
    """
    if other.category <= tensor.category:
        return tensor
    if other.category == COMPLEX and tensor.category == FLOATING:
        return complex128 if tensor is float64 else complex64
    return promote_types(tensor, other)


def promote_scalar(tensor: dtype, kind: type) -> dtype:
    """The result dtype of an op on a tensor of dtype `tensor` and a Python number of type `kind`."""
    return promote_unsized(tensor, of_scalar(kind))


class finfo:
    """Limits of a floating-point dtype: ``bits, eps, max, min, tiny, smallest_normal, resolution``.

    For a complex dtype they are those of its real part, for None those of the default dtype.

    Raises:
        TypeError: if `type` is neither None nor a floating-point or complex dtype.

    Example:
        >>> flow.finfo(flow.float16).max
        65504.0
    """

    def __init__(self, type: dtype | None = None) -> None:
        chosen = (get_default_dtype() if type is None else checked("finfo", type)).to_real()
        if not chosen.is_floating_point:
            raise TypeError(f"finfo needs a floating-point dtype, not {chosen!r}; use iinfo for integers")
        limits_of: Any = np.finfo
        if chosen is bfloat16:
            from ml_dtypes import finfo as limits_of
        limits = limits_of(chosen.numpy)
        self.dtype = chosen.name
        self.bits = int(limits.bits)
        self.eps = float(limits.eps)
        self.max = float(limits.max)
        self.min = float(limits.min)
        self.tiny = self.smallest_normal = float(limits.smallest_normal)
        self.resolution = float(f"1e-{int(-math.log10(self.eps))}")

    def __repr__(self) -> str:
        return f"finfo(dtype={self.dtype}, eps={self.eps:g}, min={self.min:g}, max={self.max:g}, tiny={self.tiny:g})"


class iinfo:
    """Limits of an integer dtype: ``bits, max, min``.

    Raises:
        TypeError: if `type` is no integer dtype.

    Example:
        >>> flow.iinfo(flow.int8)
        iinfo(min=-128, max=127, dtype=int8)
    """

    def __init__(self, type: dtype) -> None:
        if checked("iinfo", type).category != INTEGER:
            raise TypeError(f"iinfo needs an integer dtype, not {type!r}; use finfo for floating point")
        limits = np.iinfo(type.numpy)
        self.dtype = type.name
        self.bits = limits.bits
        self.max = int(limits.max)
        self.min = int(limits.min)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def checked(name: str, given: Any) -> dtype:
    """Return `given` if it is a dtype; the error names the function `name`.

    Raises:
        TypeError: if `given` is no dtype.
    """
    if not isinstance(given, dtype):
        raise TypeError(f"{name}: dtype must be a vmflow dtype such as vmflow.float32, not {type(given).__name__}")
    return given
