"""Products by cuBLASLt: the arguments of its bindings, by a stand-in, and that the installed ones have all names."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow.streams.cuda as package
from vmflow.streams.cuda import cublaslt, precision
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.cublaslt import Library, Products, find_library, stored, workspace_size

from .fake_cublaslt import FakeCublasLt, view

WORKSPACE: Final = 1 << 12
STREAM: Final = 0x77

# By name, the dtypes of the factors and of the result.
KINDS: Final = {
    "float16": (np.dtype(np.float16), np.dtype(np.float16)),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.bfloat16)),
    "float16 to float32": (np.dtype(np.float16), np.dtype(np.float32)),
    "bfloat16 to float32": (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)),
    "float32": (np.dtype(np.float32), np.dtype(np.float32)),
    "float64": (np.dtype(np.float64), np.dtype(np.float64)),
    "complex64": (np.dtype(np.complex64), np.dtype(np.complex64)),
    "complex128": (np.dtype(np.complex128), np.dtype(np.complex128)),
}
LAYOUTS: Final = ("rows", "columns", "rows with gaps", "columns with gaps")
SHAPES: Final = ((2, 3, 4), (1, 1, 1), (1, 3, 2), (4, 1, 3), (3, 2, 1), (1, 5, 1))


@contextmanager
def tf32() -> Iterator[None]:
    """A block in which factors may be rounded."""
    before = precision.get_float32_matmul_precision()
    precision.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        precision.set_float32_matmul_precision(before)


def products_of(fake: FakeCublasLt) -> Products:
    return Products(WORKSPACE, fake.block, lambda: fake.library)


def numbers(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> NDArray[Any]:
    """Small integers, whose products and sums are exact in every dtype."""
    random = np.random.default_rng(seed)
    found = random.integers(-3, 4, shape).astype(np.float64)
    if dtype.kind == "c":
        found = found + 1j * random.integers(-3, 4, shape)
    return found.astype(dtype)


def matrices_of(dtype: np.dtype[Any], result: np.dtype[Any] | None = None) -> list[NDArray[Any]]:
    """Two factors, and their product, which is to be computed."""
    return [numbers((2, 3), dtype, 1), numbers((3, 4), dtype, 2), numbers((2, 4), result or dtype, 3)]


def laid_out(values: NDArray[Any], layout: str) -> NDArray[Any]:
    """The same matrices in another layout."""
    flipped = values.mT if "columns" in layout else values
    gap = 3 if "gaps" in layout else 0
    room = np.zeros((*flipped.shape[:-1], flipped.shape[-1] + gap), values.dtype)
    room[..., : flipped.shape[-1]] = flipped
    made = room[..., : flipped.shape[-1]]
    return made.mT if "columns" in layout else made


def multiply(
    products: Products, arrays: Sequence[DeviceArray], bias: DeviceArray | None = None, stream: int = STREAM
) -> str | None:
    left, right, out = arrays
    return products.multiply(left, right, out, bias, stream)


def check(arrays: Sequence[NDArray[Any]], bias: NDArray[Any] | None = None, offset: int = 0) -> FakeCublasLt:
    """Compare with numpy's product, to the bit."""
    fake = FakeCublasLt()
    left, right, _ = arrays
    one, other, to = [fake.array(array, offset * array.itemsize) for array in arrays]
    added = None if bias is None else fake.array(bias)
    assert multiply(products_of(fake), (one, other, to), added) is None
    wide = np.complex128 if left.dtype.kind == "c" else np.float64
    expected = np.matmul(left.astype(wide), right.astype(wide)) + (0 if bias is None else bias.astype(wide))
    np.testing.assert_array_equal(view(to).astype(wide), expected)
    return fake


def each_laid_out(arrays: Sequence[NDArray[Any]]) -> Iterator[list[NDArray[Any]]]:
    """The same matrices in all layouts."""
    for layouts in product(LAYOUTS, LAYOUTS, LAYOUTS):
        yield [laid_out(array, layout) for array, layout in zip(arrays, layouts, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_layouts(kind: str) -> None:
    for arrays in each_laid_out(matrices_of(*KINDS[kind])):
        check(arrays)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    dtype = np.dtype(np.float32)
    shapes = (rows, inner), (inner, columns), (rows, columns)
    for arrays in each_laid_out([numbers(value, dtype, seed) for seed, value in enumerate(shapes)]):
        check(arrays)


@pytest.mark.parametrize("kind", ["bfloat16", "float32", "complex128"])
@pytest.mark.parametrize("repeated", ["neither", "left", "right"])
def test_batches(kind: str, repeated: str) -> None:
    dtype, result = KINDS[kind]
    one = numbers((1 if repeated == "left" else 3, 2, 3), dtype, 1)
    other = numbers((1 if repeated == "right" else 3, 3, 4), dtype, 2)
    for left, right, out in each_laid_out([one, other, numbers((3, 2, 4), result, 3)]):
        check((np.broadcast_to(left, (3, 2, 3)), np.broadcast_to(right, (3, 3, 4)), out))


@pytest.mark.parametrize("kind", [name for name in KINDS if "complex" not in name])
@pytest.mark.parametrize("matrices", [(), (1,), (3,)])
@pytest.mark.parametrize("layout", ["rows", "rows with gaps"])
def test_a_bias_is_added_to_rows(kind: str, matrices: tuple[int, ...], layout: str) -> None:
    dtype, result = KINDS[kind]
    for rows in (1, 2):
        left, right = numbers((*matrices, rows, 3), dtype, 1), numbers((*matrices, 3, 4), dtype, 2)
        out = laid_out(numbers((*matrices, rows, 4), result, 3), layout)
        check((left, laid_out(right, "columns"), out), numbers((4,), result, 4))


@pytest.mark.parametrize("offset", range(9))
def test_arrays_that_are_not_aligned(offset: int) -> None:
    dtype = np.dtype(np.float16)
    bias = numbers((4,), dtype, 4)
    check(matrices_of(dtype), bias, offset)


def test_sums_of_half_precision_are_rounded_once() -> None:
    halves, singles = [check(matrices_of(given, to)) for given, to in (KINDS["float16"], KINDS["float16 to float32"])]
    assert halves.masks == [FakeCublasLt.ReductionScheme.COMPUTE_TYPE]
    assert singles.masks == [None]


def test_the_stream_is_handed_on() -> None:
    dtype = np.dtype(np.float64)
    fake = check(matrices_of(dtype))
    assert fake.computed == [("COMPUTE_64F", STREAM)]


# TensorFloat32


@pytest.mark.parametrize(
    ("kind", "compute"),
    [
        ("float16", "COMPUTE_32F"),
        ("float32", "COMPUTE_32F_FAST_TF32"),
        ("float64", "COMPUTE_64F"),
        ("complex64", "COMPUTE_32F_FAST_TF32"),
        ("complex128", "COMPUTE_64F"),
    ],
)
def test_factors_are_rounded_only_where_that_is_allowed(kind: str, compute: str) -> None:
    dtype, result = KINDS[kind]
    fake = FakeCublasLt()
    products = products_of(fake)
    arrays = [fake.array(array) for array in matrices_of(dtype, result)]
    for _ in range(2):
        multiply(products, arrays)
        with tf32():
            multiply(products, arrays)
    exact = compute.removesuffix("_FAST_TF32")
    assert [name for name, _ in fake.computed] == [exact, compute] * 2
    assert fake.calls["matmul_algo_get_heuristic"] == len({exact, compute})


# The plans that are kept


def operands(fake: FakeCublasLt, columns: int = 4) -> list[DeviceArray]:
    dtype = np.dtype(np.float32)
    return [fake.array(numbers(shape, dtype, seed)) for seed, shape in enumerate([(2, 3), (3, columns), (2, columns)])]


def test_a_product_is_planned_once() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    for _ in range(3):
        left, right, out = operands(fake)
        bias = fake.array(numbers((4,), out.dtype, len(fake.computed)))
        assert multiply(products, (left, right, out), bias) is None
        np.testing.assert_array_equal(view(out), view(left) @ view(right) + view(bias))
    assert fake.calls["matmul"] == 3
    assert {name: made for name, made in fake.calls.items() if name != "matmul"} == {
        "create": 1,
        "matmul_desc_create": 1,
        "matrix_layout_create": 3,
        "matmul_preference_create": 1,
        "matmul_algo_get_heuristic": 1,
    }


def test_plans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "MOST_PLANS", 3)
    fake = FakeCublasLt()
    products = products_of(fake)
    planned = []
    for columns in (1, 2, 3, 1, 4, 1, 2):
        left, right, out = operands(fake, columns)
        assert multiply(products, (left, right, out)) is None
        np.testing.assert_array_equal(view(out), view(left) @ view(right))
        planned.append(fake.calls["matmul_algo_get_heuristic"])
    # The fourth kind takes the place of the second one, which was used least recently.
    assert planned == [1, 2, 3, 3, 4, 4, 5]
    assert fake.alive == 3 * 4


def test_each_stream_and_each_graph_has_a_workspace() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    arrays = operands(fake)
    for stream in (1, 2, 1, 2):
        assert multiply(products, arrays, stream=stream) is None
    kept = []
    for _ in range(2):
        products.begin_capture(1)
        for stream in (1, 2, 1):
            assert multiply(products, arrays, stream=stream) is None
        kept.append(products.end_capture(1))
    assert multiply(products, arrays, stream=1) is None
    first, second = [workspace.pointer for workspace in kept if workspace is not None]
    used = fake.workspaces
    assert used == [*used[:2] * 2, first, used[1], first, second, used[1], second, used[0]]
    assert len(set(used)) == 4


def test_a_graph_without_products_keeps_no_workspace() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    products.begin_capture(STREAM)
    assert products.end_capture(STREAM) is None


def test_the_size_of_a_workspace() -> None:
    assert [workspace_size(major) >> 20 for major in (8, 9, 10, 12)] == [8, 32, 32, 32]


# Refusals


def test_without_the_bindings_products_are_refused() -> None:
    def missing() -> Library:
        raise ImportError("No module named 'nvmath'")

    fake = FakeCublasLt()
    products = Products(WORKSPACE, fake.block, missing)
    blocks = len(fake.memory)
    products.begin_capture(STREAM)
    assert products.end_capture(STREAM) is None
    assert len(fake.memory) == blocks
    assert multiply(products, operands(fake)) == "nvmath-python cannot be imported: No module named 'nvmath'"


def test_bindings_that_find_no_library() -> None:
    asked: list[int] = []

    def broken() -> Library:
        asked.append(1)
        raise RuntimeError("libcublasLt.so is not there")

    fake = FakeCublasLt()
    products = Products(WORKSPACE, fake.block, broken)
    for _ in range(2):
        refusal = multiply(products, operands(fake))
        assert refusal == "nvmath-python cannot load cuBLASLt: libcublasLt.so is not there"
    assert asked == [1]


def test_products_without_an_algorithm_are_refused_by_shapes_and_dtypes() -> None:
    fake = FakeCublasLt()
    fake.refuses = lambda operation, layouts: layouts[0].rows == 4
    products = products_of(fake)
    for _ in range(2):
        refusal = multiply(products, operands(fake, 4))
        assert refusal is not None
        for part in ("no algorithm", "float32[2, 3] @ float32[3, 4] -> float32[2, 4]", "(12, 4), (16, 4) and (16, 4)"):
            assert part in refusal
    assert fake.calls["matmul_algo_get_heuristic"] == 1
    assert fake.alive == 0
    assert multiply(products, operands(fake, 5)) is None


def test_a_bias_that_is_not_aligned_is_refused() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    values = numbers((4,), np.dtype(np.float32), 4)
    refusals = [multiply(products, operands(fake), fake.array(values, offset)) for offset in (0, 4, 8, 16, 12)]
    assert [refusal is None for refusal in refusals] == [True, False, False, True, False]
    assert "takes a bias at a multiple of 16 bytes" in str(refusals[1])


def test_a_bias_of_complex_numbers_or_along_columns_is_refused() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    for dtype, layout in ((np.dtype(np.complex64), "rows"), (np.dtype(np.float32), "columns")):
        shapes = ((2, 3), (3, 4), (2, 4))
        left, right, out = [numbers(shape, dtype, seed) for seed, shape in enumerate(shapes)]
        arrays = [fake.array(array) for array in (left, right, laid_out(out, layout), numbers((4,), dtype, 4))]
        refusal = multiply(products, arrays[:3], arrays[3])
        assert refusal is not None
        assert f"plus {dtype}[4]" in refusal


@pytest.mark.parametrize("status", [7, 8, 15])
def test_a_product_that_is_refused_in_the_end(status: int) -> None:
    fake = FakeCublasLt()
    fake.fails = status
    refusal = multiply(products_of(fake), operands(fake))
    assert refusal is not None
    assert f"float32[2, 4] of strides (12, 4), (16, 4) and (16, 4): status {status}" in refusal


def test_a_failure_is_an_error_by_shapes_and_dtypes() -> None:
    fake = FakeCublasLt()
    fake.fails = 14
    with pytest.raises(RuntimeError, match=r"float32\[2, 3\] @ float32\[3, 4\].* failed: status 14"):
        multiply(products_of(fake), operands(fake))


def test_no_memory_is_taken_while_a_stream_is_captured() -> None:
    fake = FakeCublasLt()
    products = products_of(fake)
    arrays = operands(fake)
    products.begin_capture(STREAM)
    blocks = len(fake.memory)
    assert multiply(products, arrays) is None
    assert len(fake.memory) == blocks


def test_without_memory_for_a_workspace_products_are_refused() -> None:
    room: list[bool] = []

    def allocate(nbytes: int) -> DeviceArray:
        if not room:
            raise MemoryError
        return fake.block(nbytes)

    fake = FakeCublasLt()
    products = Products(WORKSPACE, allocate, lambda: fake.library)
    arrays = operands(fake)
    refusal = f"the device has no {WORKSPACE} bytes for a workspace"
    assert multiply(products, arrays) == refusal
    products.begin_capture(STREAM)
    room.append(True)
    assert multiply(products, arrays) == refusal
    assert products.end_capture(STREAM) is None
    assert multiply(products, arrays) is None


# The stand-in finds mistakes


@pytest.mark.parametrize("field", ["transposed", "leading", "step"])
def test_a_wrong_layout_is_found(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(array: DeviceArray) -> cublaslt.Stored:
        right = stored(array)
        changes: dict[str, Any] = {
            "transposed": not right.transposed,
            "leading": right.leading + 1,
            "step": right.step + 1,
        }
        return right._replace(**{field: changes[field]}) if array.shape == (3, 3, 3) else right

    dtype = np.dtype(np.float64)
    arrays = [numbers(shape, dtype, seed) for seed, shape in enumerate([(3, 2, 3), (3, 3, 3), (3, 2, 3)])]
    check(arrays)
    monkeypatch.setattr(cublaslt, "stored", wrong)
    with pytest.raises(AssertionError):
        check(arrays)


# The installed bindings


def test_all_that_is_used_of_the_bindings_is_there() -> None:
    pytest.importorskip("nvmath", reason="nvmath-python is not installed: see the extra cuda")
    library = find_library()
    for name in used():
        module, *rest = name.split(".")
        value = getattr(library, module)
        for part in rest:
            value = getattr(value, part)
    widths: dict[str, Any] = {
        "MatmulDescAttribute": library.lt.get_matmul_desc_attribute_dtype,
        "MatrixLayoutAttribute": library.lt.get_matrix_layout_attribute_dtype,
        "MatmulPreferenceAttribute": library.lt.get_matmul_preference_attribute_dtype,
    }
    for enumeration, dtype_of in widths.items():
        for attribute, width in FakeCublasLt.widths[getattr(FakeCublasLt, enumeration)].items():
            assert np.dtype(dtype_of(attribute)).itemsize == width
    fake = FakeCublasLt().library
    for name in [entry for entry in used() if entry.count(".") == 2 or entry.startswith("types")]:
        module, *rest = name.split(".")
        have, want = getattr(library, module), getattr(fake, module)
        for part in rest:
            have, want = getattr(have, part), getattr(want, part)
        assert int(have) == int(want), name
    error = library.lt.cuBLASLtError.__new__(library.lt.cuBLASLtError, 15)
    with suppress(RuntimeError):  # where there is no library to ask for the name of the status
        error.__init__(15)
    assert error.status == 15
    assert library.lt.matmul_heuristic_result_dtype == FakeCublasLt.matmul_heuristic_result_dtype


def test_functions_of_the_bindings_take_our_arguments() -> None:
    pytest.importorskip("nvmath", reason="nvmath-python is not installed: see the extra cuda")
    library = find_library()
    looked_at = 0
    for node in ast.walk(SOURCE):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("lt."):
            function = getattr(library.lt, ast.unparse(node.func).removeprefix("lt."))
            inside = function.__doc__.strip().split("\n")[0].partition("(")[2].partition(")")[0]
            assert not node.keywords
            assert len(node.args) == len([value for value in inside.split(",") if value.strip()]), ast.unparse(
                node.func
            )
            looked_at += 1
    assert looked_at >= 6


SOURCE: Final = ast.parse((Path(package.__file__).parent / "cublaslt.py").read_text(encoding="utf-8"))


def used() -> set[str]:
    """The names of the bindings in the adapter."""
    found = {ast.unparse(node) for node in ast.walk(SOURCE) if isinstance(node, ast.Attribute)}
    found = {name for name in found if name.split(".")[0] in Library._fields}
    return {name for name in found if not any(other.startswith(f"{name}.") for other in found)}


def test_the_names_are_looked_at() -> None:
    assert {"lt.matmul", "lt.Epilogue.BIAS", "cublas.Operation.T", "types.CUDA_R_16BF"} <= used()
