"""The precision of float32 and complex64 matrix products on CUDA devices; the names are PyTorch's.

The setting applies when a product is handed to a device.  A captured graph keeps the setting under which it was
captured.
"""

from __future__ import annotations

from typing import Final

PRECISIONS: Final = ("highest", "high", "medium")


class _Setting:
    of_products = "highest"


def get_float32_matmul_precision() -> str:
    """The last setting of `set_float32_matmul_precision`; at first "highest".

    Example:
        >>> flow.get_float32_matmul_precision()
        'highest'
    """
    return _Setting.of_products


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how float32 and complex64 matrices are multiplied on CUDA devices.

    Args:
        precision: "highest" takes the factors as they are.  "high" and "medium" may round them to TensorFloat32, which
            has 10 bits of mantissa; sums are in float32 in any case.

    Raises:
        ValueError: for any other value.

    Example:
        >>> flow.set_float32_matmul_precision("high")
        >>> flow.get_float32_matmul_precision()
        'high'
        >>> flow.set_float32_matmul_precision("highest")
    """
    if precision not in PRECISIONS:
        raise ValueError(f"the precision of products is 'highest', 'high' or 'medium', not {precision!r}")
    _Setting.of_products = precision


def allows_tf32() -> bool:
    """Whether factors of matrix products may be rounded to TensorFloat32."""
    return _Setting.of_products != "highest"
