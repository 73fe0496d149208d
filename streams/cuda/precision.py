"""How float32 matrices are multiplied on CUDA devices: exactly, or with factors of fewer bits; the names are PyTorch's.

The setting counts at the moment when a product is handed to a device.  A captured graph keeps the one under which it
was captured.
"""

from __future__ import annotations

from typing import Final

PRECISIONS: Final = ("highest", "high", "medium")


class _Setting:
    of_products = "highest"


def get_float32_matmul_precision() -> str:
    """The last setting of `set_float32_matmul_precision`; at first "highest"."""
    return _Setting.of_products


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 and complex64 matrices are multiplied on CUDA devices.

    Args:
        precision: "highest" takes the factors as they are.  "high" and "medium" may round them to TensorFloat32, which
            has 10 bits of mantissa; sums are in float32 all the same.

    Raises:
        ValueError: for anything else.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"the precision of products is 'highest', 'high' or 'medium', not {precision!r}")
    _Setting.of_products = precision


def allows_tf32() -> bool:
    """Whether factors may be rounded to TensorFloat32."""
    return _Setting.of_products != "highest"
