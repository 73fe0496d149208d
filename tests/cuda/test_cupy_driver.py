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
from vmflow.streams.cuda.cublaslt import Library, Products
from vmflow.streams.cuda.driver import CannotCapture
from vmflow.streams.cuda.emulation.array_module import ARRAY_MODULE, NotInCupy

from .fake_cublaslt import FakeCublasLt, view

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: see the extra cuda")
cupyx = pytest.importorskip("cupyx", reason="CuPy is not installed: see the extra cuda")

from vmflow.streams.cuda.cupy_driver import _packed  # noqa: E402 (which needs CuPy)

SOURCE: Final = ast.parse((Path(package.__file__).parent / "cupy_driver.py").read_text())
MODULES: Final = {"cupy": cupy, "cupyx": cupyx, "runtime": cupy.cuda.runtime, "cuda_driver": cupy.cuda.driver}
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
    if inspect.isfunction(function):
        return inspect.signature(function)
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


@pytest.mark.parametrize(
    ("name", "call"), calls(), ids=lambda name: name if isinstance(name, str) else str(name.lineno)
)
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


class Stream:
    """A stream that is not there."""

    ptr = 0x77

    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...

    def begin_capture(self) -> None: ...

    def end_capture(self) -> str:
        return "graph"


def missing() -> Library:
    raise ImportError


def test_functions_raise_errors_for_matrices_that_cannot_be_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    from vmflow.streams.cuda.cupy_driver import CupyDriver

    monkeypatch.setattr(cupy.cuda.runtime, "setDevice", lambda index: None)
    driver = CupyDriver.__new__(CupyDriver)
    driver.index = 0
    driver._captured = set()
    seen: list[Any] = []
    driver.call("inv", lambda module: seen.append((module, cupyx.geterr()["linalg"])), (), (), Stream(), seen.append)
    assert seen == [(cupy, "raise")]
    assert cupyx.geterr()["linalg"] == "ignore"


@pytest.mark.parametrize("kind", ["float32", "float16 to float32", "float32, biased", "float16, biased"])
@pytest.mark.parametrize("installed", [True, False])
def test_products_that_cublaslt_refuses_are_cupys(kind: str, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmflow.streams.cuda.cupy_driver import CupyDriver

    calls: list[tuple[Any, ...]] = []
    for module, name in ((cupy.cuda.runtime, "setDevice"), (cupy, "matmul"), (cupy, "add")):
        monkeypatch.setattr(module, name, lambda *arguments, out=None, name=name: calls.append((name, *arguments, out)))
    monkeypatch.setattr(cupy.ndarray, "astype", lambda array, dtype: (array, dtype), raising=False)
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype: (shape, dtype))
    fake = FakeCublasLt()
    driver, stream = CupyDriver.__new__(CupyDriver), Stream()
    driver.index = 0
    driver._captured = set()
    driver._products = Products(1 << 10, fake.block, (lambda: fake.library) if installed else missing)
    factors = np.ones((2, 2), np.float16 if "16" in kind else np.float32)
    out = fake.array(np.zeros((2, 2), np.float16 if kind == "float16, biased" else np.float32))
    bias = fake.array(np.ones(2, out.dtype)) if "biased" in kind else None
    left, right = fake.array(factors), fake.array(factors)
    driver.multiply(left, right, out, bias, stream)
    computed = [call for call in calls if call[0] != "setDevice"]
    if installed:
        assert not computed
        np.testing.assert_array_equal(view(out), 2 if bias is None else 3)
    else:
        assert [call[0] for call in computed] == ["matmul", *([] if bias is None else ["add"])]
        _, one, other, product = computed[0]
        assert computed[-1][-1].data.ptr == out.pointer
        if kind == "float16, biased":
            # The sums are rounded once, with the bias.
            assert [one[1], other[1], product] == [np.float32, np.float32, ((2, 2), np.float32)]
        if bias is not None:
            assert computed[1][1] is product
    driver.begin_capture(stream)
    if installed:
        driver.multiply(left, right, out, bias, stream)
        fake.refuses = lambda operation, layouts: True
        left, out = [array.strided((1, 2), array.dtype) for array in (left, out)]
    with pytest.raises(CannotCapture, match="no algorithm" if installed else "cannot be imported"):
        driver.multiply(left, right, out, bias, stream)
    graph = driver.end_capture(stream)
    assert graph.graph == "graph"
    assert (graph.workspace is not None) == installed


def test_names_that_stand_in_for_cupys_may_be_none() -> None:
    assert ARRAY_MODULE.newaxis is None
    with pytest.raises(NotInCupy, match=r"CuPy has no cupy\.busday_count"):
        _ = ARRAY_MODULE.busday_count
