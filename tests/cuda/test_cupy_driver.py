"""The functions that `CupyDriver` calls are in the installed CuPy and take its arguments.  Calling them needs a GPU."""

from __future__ import annotations

import ast
import ctypes
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import vmflow.streams.cuda as package
from vmflow.streams.cuda.arrays import DeviceArray

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: see the extra cuda")

from vmflow.streams.cuda.cupy_driver import _packed  # noqa: E402 (which needs CuPy)

SOURCE: Final = ast.parse((Path(package.__file__).parent / "cupy_driver.py").read_text())
MODULES: Final = {"cupy": cupy, "runtime": cupy.cuda.runtime, "cuda_driver": cupy.cuda.driver}
# The length of tuples that are spread into arguments.
DIMENSIONS: Final = 3


def names() -> Iterator[tuple[str, ast.Attribute]]:
    """All names of CuPy's modules in the driver."""
    for node in ast.walk(SOURCE):
        if isinstance(node, ast.Attribute) and ast.unparse(node).split(".")[0] in MODULES:
            yield ast.unparse(node), node


def found(name: str) -> Any:
    module, *rest = name.split(".")
    value = MODULES[module]
    for part in rest:
        value = getattr(value, part)
    return value


def signature(function: Any) -> inspect.Signature | None:
    """How it may be called: functions in Cython tell it in the first line of their documentation."""
    is_class = isinstance(function, type) and "(" not in _first_line(function)
    documented = getattr(function, "__init__") if is_class else function  # noqa: B009 (mypy distrusts the attribute)
    line = _first_line(documented)
    if "(" not in line:
        return None
    inside = line[line.index("(") + 1 : line.rindex(")")]
    parameters = []
    for text in filter(None, map(str.strip, inside.split(","))):
        declared, equals, _ = text.partition("=")
        name = declared.split()[-1].partition(":")[0]
        if name.isidentifier() and name not in ("self", "cls"):  # no "/", "*" or "**kwargs"
            default = None if equals else inspect.Parameter.empty
            parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters)


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().split("\n")[0].split("->")[0]


def calls() -> list[tuple[str, ast.Call]]:
    by_function = {node: name for name, node in names()}
    return [
        (by_function[node.func], node)
        for node in ast.walk(SOURCE)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func in by_function
    ]


@pytest.mark.parametrize("name", sorted({name for name, _ in names()}))
def test_a_name_is_there(name: str) -> None:
    found(name)


@pytest.mark.parametrize(("name", "call"), calls(), ids=lambda it: it if isinstance(it, str) else str(it.lineno))
def test_arguments_are_taken(name: str, call: ast.Call) -> None:
    known = signature(found(name))
    if known is None:
        pytest.skip(f"{name} of CuPy does not tell how it is called")
    spread = sum([isinstance(argument, ast.Starred) for argument in call.args])
    count = len(call.args) + (DIMENSIONS - 1) * spread
    known.bind(*[None] * count, **{str(keyword.arg): None for keyword in call.keywords})


def test_the_signatures_are_looked_at() -> None:
    assert len([name for name, _ in calls() if signature(found(name)) is not None]) >= 20
    with pytest.raises(TypeError):
        signature(cupy.cuda.runtime.streamWaitEvent).bind(1)  # type: ignore[union-attr]


def test_errors_carry_a_status() -> None:
    error = cupy.cuda.runtime.CUDARuntimeError(700)
    assert error.status == 700
    assert "illegal" in str(error)


def test_arguments_of_a_kernel_lie_in_eight_bytes_each() -> None:
    packed, addresses = _packed([7, -1, 2.5, DeviceArray(0x1234, (1,), np.dtype(np.float32)), 1 << 40])
    kinds: tuple[Any, ...] = (ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_int64, ctypes.c_int64)
    values = [kind.from_address(address).value for kind, address in zip(kinds, addresses, strict=True)]
    assert values == [7, -1, 2.5, 0x1234, 1 << 40]
    del packed
    assert not _packed([])[1]
