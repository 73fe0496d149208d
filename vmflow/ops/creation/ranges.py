"""New tensors from a few numbers: `logspace`, `tril_indices`, `triu_indices` and `empty_strided`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from vmflow import dtypes, interpreter as _interpreter
from vmflow.arguments import whole_number
from vmflow.devices import device as Device
from vmflow.dtypes import dtype as DType
from vmflow.instructions.blob import TensorMeta
from vmflow.ops.declaration import function
from vmflow.ops.destination import out_as_made
from vmflow.ops.elementwise.arithmetic import pow
from vmflow.ops.elementwise.inference import CHEAP, number
from vmflow.ops.shape.strided import as_strided
from vmflow.ops.shape.view import sizes
from vmflow.ops.table import Attributes, Form, Inferred, Kinds, Metas, OpExpr, Size

from .creation import empty, linspace, one_number, sized_meta

if TYPE_CHECKING:
    from vmflow.tensors import Tensor


@function()
@out_as_made()
def logspace(
    start: complex,
    end: complex,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    placement: Any = None,
    sbp: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Make a vector of `steps` values from ``base ** start`` to ``base ** end``, with exponents at equal distances.

    Raises:
        TypeError: for the dtype bool; for another than a complex one if a limit is complex; if `steps` is no integer.
        ValueError: if `steps` is negative.

    Example:
        >>> flow.logspace(0, 2, 3)
        tensor([  1.,  10., 100.])
    """
    if steps < 0:
        raise ValueError(f"logspace: steps cannot be negative, got {steps}")
    if dtype is dtypes.bool_:
        raise TypeError("logspace is not defined for bool tensors; give a dtype of numbers")
    limits = one_number("logspace", start), one_number("logspace", end)
    wide, kind = dtypes.float64, dtype or dtypes.get_default_dtype()
    if any([isinstance(limit, complex) for limit in limits]):
        wide, kind = dtypes.complex128, dtype or dtypes.promote_types(kind, dtypes.complex64)
        if not kind.is_complex:
            raise TypeError(f"logspace: complex limits give complex numbers, not {kind.name}")
    exponents = linspace(*limits, steps, dtype=wide, device=device, placement=placement, sbp=sbp)
    values = pow(float(number("logspace", base)), exponents).to(kind)
    if placement is not None:
        values = values.to_global(placement, sbp)  # `pow` sums partial sums first, and so changes the sbp
    return values.requires_grad_() if requires_grad else values


@function()
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType = dtypes.int64,
    device: Device | str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """List the indices of a matrix's n elements on and below a diagonal: a (2, n) tensor of their rows and columns.

    Args:
        row, col: the matrix's sizes.
        offset: of the diagonal; above the main one if positive.
        dtype: int64 or int32.
        device: of the result.

    Raises:
        ValueError: if a size is negative.
        TypeError: for another dtype, or if a size or `offset` is no integer.

    Example:
        >>> flow.tril_indices(2, 2)
        tensor([[0, 1, 1],
                [0, 0, 1]])
    """
    return _triangle("tril_indices", row, col, offset, True, dtype, device)


@function()
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType = dtypes.int64,
    device: Device | str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """List the indices of a matrix's n elements on and above a diagonal, (2, n); see `tril_indices`.

    Raises:
        ValueError: if a size is negative.
        TypeError: for another dtype, or if a size or `offset` is no integer.

    Example:
        >>> flow.triu_indices(2, 2)
        tensor([[0, 0, 1],
                [0, 1, 1]])
    """
    return _triangle("triu_indices", row, col, offset, False, dtype, device)


def _triangle(
    name: str, row: int, col: int, offset: int, lower: bool, dtype: DType, device: Device | str | None
) -> Tensor:
    row, col, offset = [
        whole_number(name, what, value) for what, value in (("row", row), ("col", col), ("offset", offset))
    ]
    if row < 0 or col < 0:
        raise ValueError(f"{name}: sizes cannot be negative, got {row} and {col}")
    if dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"{name}: dtype must be vmflow.int64 or vmflow.int32, not {dtype!r}")
    output = sized_meta(name, (2, _number_in_triangle(row, col, offset, lower)), dtype, device)
    return _interpreter.dispatch(_TRIANGLE_PLACES, (), (output, row, col, offset, lower))


def _number_in_triangle(row: int, col: int, offset: int, lower: bool) -> int:
    """Count the elements of a (row, col) matrix on and below the diagonal `offset` if `lower`, else on and above it."""

    def below(rows: int) -> int:
        """Count the elements below the main diagonal in the first `rows` rows; rows after row `col` count in full."""
        whole = min(max(rows, 0), col + 1)
        return whole * (whole - 1) // 2 + max(rows - col - 1, 0) * col

    begin = offset + lower
    count = below(row + begin) - below(begin)
    return count if lower else row * col - count


def _infer_triangle_places(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    output, row, col, offset, lower = cast("tuple[TensorMeta, int, int, int, bool]", attributes)
    if output.dtype not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"triangle_places: expected int64 or int32, not {output.dtype.name}")
    if output.shape != (2, _number_in_triangle(row, col, offset, lower)):
        raise ValueError(f"triangle_places: {list(output.shape)} is not how many there are in {row} x {col}")
    return Inferred(output, (row + output.numel) * CHEAP * 4)


# Attributes: (meta of the result, rows, columns, diagonal, whether to list the elements on and below the diagonal)
_TRIANGLE_PLACES = OpExpr(
    "triangle_places", _infer_triangle_places, Form(0, tuple[TensorMeta, Size, Size, int, bool]), "creation"
)


@function()
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make an uninitialized tensor with these sizes and strides, in elements.

    Raises:
        ValueError: if a size or stride is negative, or there are not as many strides as sizes.

    Example:
        >>> flow.empty_strided((2, 3), (1, 2)).stride()
        (1, 2)
    """
    shape, strides = sizes("empty_strided", (tuple(size),)), sizes("empty_strided", (tuple(stride),))
    if len(shape) != len(strides) or any([number < 0 for number in (*shape, *strides)]):
        raise ValueError(
            f"empty_strided: as many sizes as strides are needed, none negative, got {list(shape)} and {list(strides)}"
        )
    reach = 0 if 0 in shape else 1 + sum([(number - 1) * step for number, step in zip(shape, strides, strict=True)])
    made = as_strided(empty(reach, dtype=dtype, device=device), shape, strides)
    return made.requires_grad_() if requires_grad else made
