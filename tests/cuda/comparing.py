"""The same op on the CPU and on an emulated CUDA device."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from vmflow import interpreter
from vmflow.dtypes import by_name
from vmflow.ops.table import OPS

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
FLOATS = ("float16", "bfloat16", "float32", "float64")

# Relative, and absolute where values are near 1.
_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-5, "complex64": 3e-5}


def some_of(names: Sequence[Any], dtypes: Sequence[str]) -> list[Any]:
    """The parameters (name, dtype): each name with float32 and with one more dtype; the others are "exhaustive".

    The kernels of a name differ by their types alone, and compiling one takes up to a tenth of a second.  The second
    dtype depends on the name's text, so that a hundred names have all dtypes.
    """
    parameters = []
    for name in names:
        others = [dtype for dtype in dtypes if dtype != "float32"]
        kept = ("float32", others[zlib.crc32(str(name).encode()) % len(others)])
        marks = {dtype: () if dtype in kept else pytest.mark.exhaustive for dtype in dtypes}
        parameters += [pytest.param(name, dtype, marks=marks[dtype]) for dtype in dtypes]
    return parameters


def on_cpu(numbers: Any) -> flow.Tensor:
    """The numbers as a tensor on the CPU, wherever the tests run."""
    return flow.tensor(numbers, device="cpu")


def values(seed: int, shape: tuple[int, ...], dtype: str, low: float = -3.0, high: float = 3.0) -> flow.Tensor:
    """Random numbers on the CPU."""
    generator = np.random.default_rng(seed)
    numbers: Any = generator.uniform(low, high, shape)
    if dtype.startswith("complex"):
        numbers = numbers + 1j * generator.uniform(low, high, shape)
    if dtype in ("uint8", "bool"):
        numbers = np.abs(numbers)
    return on_cpu(np.asarray(numbers).astype(by_name(dtype).numpy))


def in_layouts(tensor: flow.Tensor) -> Iterator[flow.Tensor]:
    """The tensor on the device, in memory that is contiguous, has gaps, or is transposed."""
    yield tensor.to("cuda")
    if tensor.ndim:
        yield flow.stack([tensor, tensor], -1).to("cuda")[..., 1]
    if tensor.ndim == 2:
        yield tensor.t().contiguous().to("cuda").t()


def results(op: str, tensors: tuple[flow.Tensor, ...], attributes: Any, scalars: tuple[Any, ...]) -> list[NDArray[Any]]:
    """The results of an op, as arrays of the host."""
    found = interpreter.dispatch_several(OPS[op], tensors, attributes, scalars)
    return [result.to("cpu").numpy() for result in found]


def compare(
    op: str,
    tensors: tuple[flow.Tensor, ...],
    attributes: Any = (),
    scalars: tuple[Any, ...] = (),
    *,
    exact: bool = False,
    tolerance: float | None = None,
) -> None:
    """Compare the op on the device with that on the CPU: up to rounding, and exactly where there is none.

    Args:
        op: its name in the op table.
        tensors: on the CPU; if there is one, it lies in several ways on the device.
        attributes, scalars: of the call.
        exact: whether floating-point numbers are equal too.
        tolerance: of floating-point numbers, if it is another than usual.
    """
    try:
        expected = results(op, tensors, attributes, scalars)
    except (TypeError, ZeroDivisionError):
        return  # not an op of these operands
    given = (
        [(laid,) for laid in in_layouts(tensors[0])]
        if len(tensors) == 1
        else [[tensor.to("cuda") for tensor in tensors]]
    )
    for on_device in given:
        found = results(op, tuple(on_device), attributes, scalars)
        for have, want in zip(found, expected, strict=True):
            equal(have, want, exact=exact, tolerance=tolerance)


def equal(have: NDArray[Any], want: NDArray[Any], *, exact: bool = False, tolerance: float | None = None) -> None:
    """Compare two arrays; see `compare`."""
    assert have.dtype == want.dtype
    assert have.shape == want.shape
    if exact or want.dtype.kind in "biu":
        np.testing.assert_array_equal(have, want)
        return
    limit = _TOLERANCE.get(want.dtype.name, 1e-11) if tolerance is None else tolerance
    wide = "complex128" if want.dtype.kind == "c" else "float64"
    np.testing.assert_allclose(have.astype(wide), want.astype(wide), rtol=limit, atol=limit)


def on_both(call: Callable[[str], flow.Tensor], *, exact: bool = False) -> None:
    """Compare the results of a function of the device's name."""
    equal(call("cuda").to("cpu").numpy(), call("cpu").numpy(), exact=exact)
