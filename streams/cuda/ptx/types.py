"""The scalar types of PTX that are known here, and their dtypes."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DType = np.dtype[Any]

Kind = Literal["bits", "signed", "unsigned", "float", "predicate"]


class Scalar(NamedTuple):
    """One scalar type.

    Attributes:
        name: without its dot, such as "s32".
        kind: the meaning of its bits.
        size: in bytes.
        dtype: of arrays of such values; of the two numbers of a pair.
        bits: the dtype by which the bits of a value are read: unsigned integers of this size, or bool for "pred".
    """

    name: str
    kind: Kind
    size: int
    dtype: DType
    bits: DType

    @property
    def register(self) -> DType:
        """The dtype of an array that a register declared with this type holds.

        Registers of integers hold unsigned ones.  Floats of 16 bits, and pairs of them, are held in registers of
        integers.  Registers other than predicates have at least 16 bits.
        """
        if self.kind == "predicate" or (self.kind == "float" and self.size >= 4 and not self.is_pair):
            return self.dtype
        return UNSIGNED[max(self.size, 2)]

    @property
    def is_pair(self) -> bool:
        """Whether a value is two numbers of `dtype`."""
        return self.size > self.dtype.itemsize


UNSIGNED: Final[dict[int, DType]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
SIGNED: Final[dict[int, DType]] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}

BOOL: Final = np.dtype(bool)
BFLOAT16: Final[DType] = np.dtype(ml_dtypes.bfloat16)


def _scalars() -> dict[str, Scalar]:
    found = {"pred": Scalar("pred", "predicate", 1, BOOL, BOOL)}
    for size in (1, 2, 4, 8):
        unsigned, signed = UNSIGNED[size], SIGNED[size]
        found[f"b{8 * size}"] = Scalar(f"b{8 * size}", "bits", size, unsigned, unsigned)
        found[f"u{8 * size}"] = Scalar(f"u{8 * size}", "unsigned", size, unsigned, unsigned)
        found[f"s{8 * size}"] = Scalar(f"s{8 * size}", "signed", size, signed, unsigned)
    for size in (2, 4, 8):
        found[f"f{8 * size}"] = Scalar(f"f{8 * size}", "float", size, np.dtype(f"f{size}"), UNSIGNED[size])
    found["bf16"] = Scalar("bf16", "float", 2, BFLOAT16, UNSIGNED[2])
    # Two floats of 16 bits in one register of 32.
    found["f16x2"] = Scalar("f16x2", "float", 4, np.dtype(np.float16), UNSIGNED[4])
    found["bf16x2"] = Scalar("bf16x2", "float", 4, BFLOAT16, UNSIGNED[4])
    return found


SCALARS: Final[dict[str, Scalar]] = _scalars()
