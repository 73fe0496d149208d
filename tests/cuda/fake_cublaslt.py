"""The bindings of cuBLASLt without a GPU: they compute products by numpy, by the layouts and in the memory that these
name.

The rules of cuBLASLt are checked: matrices lie column by column, fit each other and the memory, and pointers are
aligned as was told when the algorithm was chosen.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from enum import IntEnum
from itertools import count
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.cublaslt import Library
from vmflow.streams.cuda.emulation.products import rounded_to_tf32


class CudaDataType(IntEnum):
    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_R_16F = 2
    CUDA_C_32F = 4
    CUDA_C_64F = 5
    CUDA_R_16BF = 14


DTYPES = {
    CudaDataType.CUDA_R_32F: np.dtype(np.float32),
    CudaDataType.CUDA_R_64F: np.dtype(np.float64),
    CudaDataType.CUDA_R_16F: np.dtype(np.float16),
    CudaDataType.CUDA_C_32F: np.dtype(np.complex64),
    CudaDataType.CUDA_C_64F: np.dtype(np.complex128),
    CudaDataType.CUDA_R_16BF: np.dtype(ml_dtypes.bfloat16),
}


class FakeCublas:
    """The enumerations of ``nvmath.bindings.cublas``."""

    class ComputeType(IntEnum):
        COMPUTE_32F = 68
        COMPUTE_64F = 70
        COMPUTE_32F_FAST_TF32 = 77

    class Operation(IntEnum):
        N = 0
        T = 1


class Operation:
    """The descriptor of a product."""

    def __init__(self, compute: int, scale: int) -> None:
        self.compute = FakeCublas.ComputeType(compute)
        self.scale = DTYPES[CudaDataType(scale)]
        self.attributes: dict[int, int] = {}


class Layout:
    """The descriptor of a matrix."""

    def __init__(self, kind: int, rows: int, columns: int, leading: int) -> None:
        assert rows > 0
        assert columns > 0
        assert leading >= rows, "columns overlap"
        self.dtype = DTYPES[CudaDataType(kind)]
        self.rows, self.columns, self.leading = rows, columns, leading
        self.attributes: dict[int, int] = {}


class Chosen(NamedTuple):
    """The product for which an algorithm was chosen."""

    operation: int
    layouts: tuple[int, ...]
    alignments: tuple[int, ...]


class Preference:
    """The descriptor of the constraints on an algorithm."""

    def __init__(self) -> None:
        self.attributes: dict[int, int] = {}


class FakeCublasLt:
    """``nvmath.bindings.cublasLt``.

    Attributes:
        calls: how often each function was called.
        memory: the arrays that may be read and written; others have to be kept away from.
        refuses: asked for each product whether there is no algorithm; or None.
        fails: the status that `matmul` fails with; 0 for none.
        computed: the compute type and the stream of each product.
        workspaces: the address of the workspace of each product.
        masks: the reduction schemes that each algorithm was limited to; None for no limit.
    """

    class MatmulDescAttribute(IntEnum):
        TRANSA = 3
        TRANSB = 4
        EPILOGUE = 7
        BIAS_POINTER = 8
        BIAS_DATA_TYPE = 26

    class MatrixLayoutAttribute(IntEnum):
        BATCH_COUNT = 5
        STRIDED_BATCH_OFFSET = 6

    class MatmulPreferenceAttribute(IntEnum):
        MAX_WORKSPACE_BYTES = 1
        REDUCTION_SCHEME_MASK = 3
        MIN_ALIGNMENT_A_BYTES = 5
        MIN_ALIGNMENT_B_BYTES = 6
        MIN_ALIGNMENT_C_BYTES = 7
        MIN_ALIGNMENT_D_BYTES = 8

    class Epilogue(IntEnum):
        DEFAULT = 1
        BIAS = 4

    class ReductionScheme(IntEnum):
        COMPUTE_TYPE = 2

    class cuBLASLtError(Exception):
        def __init__(self, status: int) -> None:
            super().__init__(f"status {status}")
            self.status = status

    widths: ClassVar[Mapping[type[IntEnum], Mapping[int, int]]] = {
        MatmulDescAttribute: {3: 4, 4: 4, 7: 4, 8: 8, 26: 4},
        MatrixLayoutAttribute: {5: 4, 6: 8},
        MatmulPreferenceAttribute: {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
    }

    matmul_heuristic_result_dtype = np.dtype(
        [
            ("algo", [("data_", "<u8", (8,))]),
            ("workspace_size", "<u8"),
            ("state", "<i4"),
            ("waves_count", "<f4"),
            ("reserved", "<i4", (4,)),
        ]
    )

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.memory: list[NDArray[Any]] = []
        self.refuses: Callable[[Operation, list[Layout]], bool] | None = None
        self.fails = 0
        self.computed: list[tuple[str, int]] = []
        self.workspaces: list[int] = []
        self.masks: list[int | None] = []
        self._numbers = count(1000)
        self._things: dict[int, Any] = {}
        self._algorithms: dict[int, Chosen] = {}

    @property
    def library(self) -> Library:
        return Library(self, FakeCublas, CudaDataType)

    @property
    def alive(self) -> int:
        """How many descriptors have not been destroyed."""
        return len(self._things) - self.calls["create"]

    def _add(self, name: str, thing: Any) -> int:
        self.calls[name] += 1
        number = next(self._numbers)
        self._things[number] = thing
        return number

    def create(self) -> int:
        return self._add("create", "handle")

    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        return self._add("matmul_desc_create", Operation(compute_type, scale_type))

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        return self._add("matrix_layout_create", Layout(kind, rows, columns, leading))

    def matmul_preference_create(self) -> int:
        return self._add("matmul_preference_create", Preference())

    def matmul_desc_destroy(self, number: int) -> None:
        assert isinstance(self._things.pop(number), Operation)

    def matrix_layout_destroy(self, number: int) -> None:
        assert isinstance(self._things.pop(number), Layout)

    def matmul_preference_destroy(self, number: int) -> None:
        assert isinstance(self._things.pop(number), Preference)

    def matmul_desc_set_attribute(self, number: int, attribute: int, address: int, size: int) -> None:
        self._set(number, Operation, self.MatmulDescAttribute(attribute), address, size)

    def matrix_layout_set_attribute(self, number: int, attribute: int, address: int, size: int) -> None:
        self._set(number, Layout, self.MatrixLayoutAttribute(attribute), address, size)

    def matmul_preference_set_attribute(self, number: int, attribute: int, address: int, size: int) -> None:
        self._set(number, Preference, self.MatmulPreferenceAttribute(attribute), address, size)

    def _set(self, number: int, kind: type[Any], attribute: IntEnum, address: int, size: int) -> None:
        thing: Any = self._things[number]
        assert isinstance(thing, kind)
        assert size == self.widths[type(attribute)][attribute]
        thing.attributes[attribute] = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)

    def matmul_algo_get_heuristic(
        self,
        handle: int,
        operation: int,
        first: int,
        second: int,
        third: int,
        result: int,
        preference: int,
        wanted: int,
        results: int,
        returned: int,
    ) -> None:
        self.calls["matmul_algo_get_heuristic"] += 1
        assert self._things[handle] == "handle"
        assert wanted == 1
        numbers = (first, second, third, result)
        layouts = [self._things[number] for number in numbers]
        if self._epilogue(operation) == self.Epilogue.BIAS:
            pointer = self._things[operation].attributes[self.MatmulDescAttribute.BIAS_POINTER]
            assert pointer > 0
            assert pointer % 16 == 0
            if layouts[0].dtype.kind == "c":
                raise self.cuBLASLtError(15)
        if self.refuses is not None and self.refuses(self._things[operation], layouts):
            raise self.cuBLASLtError(15)
        told: dict[int, int] = self._things[preference].attributes
        kinds = self.MatmulPreferenceAttribute
        alignments = (
            told[kinds.MIN_ALIGNMENT_A_BYTES],
            told[kinds.MIN_ALIGNMENT_B_BYTES],
            told[kinds.MIN_ALIGNMENT_C_BYTES],
            told[kinds.MIN_ALIGNMENT_D_BYTES],
        )
        self.masks.append(told.get(kinds.REDUCTION_SCHEME_MASK))
        found = np.zeros(1, self.matmul_heuristic_result_dtype)
        algorithm = next(self._numbers)
        found["algo"]["data_"][0, 0] = algorithm
        found["workspace_size"] = told[kinds.MAX_WORKSPACE_BYTES]
        ctypes.memmove(results, found.ctypes.data, found.nbytes)
        ctypes.memmove(returned, np.ones(1, np.int32).ctypes.data, 4)
        self._algorithms[algorithm] = Chosen(operation, numbers, alignments)

    def _epilogue(self, operation: int) -> int:
        attributes: dict[int, int] = self._things[operation].attributes
        return attributes.get(self.MatmulDescAttribute.EPILOGUE, self.Epilogue.DEFAULT)

    def matmul(
        self,
        handle: int,
        operation: int,
        alpha: int,
        a: int,
        first: int,
        b: int,
        second: int,
        beta: int,
        c: int,
        third: int,
        d: int,
        result: int,
        algorithm: int,
        workspace: int,
        workspace_size: int,
        stream: int,
    ) -> None:
        self.calls["matmul"] += 1
        assert self._things[handle] == "handle"
        if self.fails:
            raise self.cuBLASLtError(self.fails)
        chosen = self._algorithms[int.from_bytes(ctypes.string_at(algorithm, 8), "little")]
        assert (chosen.operation, chosen.layouts) == (operation, (first, second, third, result))
        description: Operation = self._things[operation]
        attributes = description.attributes
        bias = attributes.get(self.MatmulDescAttribute.BIAS_POINTER, 0)
        for address, alignment in zip((a, b, c, d, bias), (*chosen.alignments, 16), strict=True):
            assert address % alignment == 0, "an algorithm for other alignments"
        self._inside(workspace, workspace_size)
        for address, expected in ((alpha, 1), (beta, 0)):
            (factor,) = np.frombuffer(ctypes.string_at(address, description.scale.itemsize), description.scale)
            assert factor == expected
        left, right, out = [
            self._matrices(address, self._things[number]) for address, number in ((a, first), (b, second), (d, result))
        ]
        wide = description.scale
        factors = [matrices.astype(wide) for matrices in (left, right)]
        if description.compute == FakeCublas.ComputeType.COMPUTE_32F_FAST_TF32:
            factors = [rounded_to_tf32(matrices) for matrices in factors]
        for position, kind in enumerate((self.MatmulDescAttribute.TRANSA, self.MatmulDescAttribute.TRANSB)):
            if attributes[kind] == FakeCublas.Operation.T:
                factors[position] = factors[position].mT
        assert len(left) == len(right) == len(out)
        product = np.matmul(*factors)
        assert product.shape == out.shape
        if self._epilogue(operation) == self.Epilogue.BIAS:
            dtype = DTYPES[CudaDataType(attributes[self.MatmulDescAttribute.BIAS_DATA_TYPE])]
            added = self._inside(bias, out.shape[-2] * dtype.itemsize).view(dtype)
            product = product + added.astype(wide)[:, None]
        out[...] = product.astype(out.dtype)
        self.workspaces.append(workspace)
        self.computed.append((description.compute.name, stream))

    def _matrices(self, address: int, layout: Layout) -> NDArray[Any]:
        """The matrices of a layout, as (how many, rows, columns)."""
        matrices = layout.attributes.get(self.MatrixLayoutAttribute.BATCH_COUNT, 1)
        step = layout.attributes.get(self.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, 0)
        assert step >= 0
        size = layout.dtype.itemsize
        last = (matrices - 1) * step + (layout.columns - 1) * layout.leading + layout.rows
        flat = self._inside(address, last * size).view(layout.dtype)
        strides = (step * size, size, layout.leading * size)
        return np.lib.stride_tricks.as_strided(flat, (matrices, layout.rows, layout.columns), strides)

    def _inside(self, address: int, size: int) -> NDArray[Any]:
        """Bytes of the memory that may be used."""
        for block in self.memory:
            start = address - block.ctypes.data
            if start >= 0 and start + size <= block.nbytes:
                return block[start : start + size]
        raise AssertionError(f"{size} bytes at {address:#x} are in no array")

    def block(self, nbytes: int) -> DeviceArray:
        """A block of the memory that may be used."""
        block = np.empty(nbytes + 256, np.uint8)
        start = -block.ctypes.data % 256
        aligned = block[start : start + nbytes]
        self.memory.append(aligned)
        return DeviceArray(int(aligned.ctypes.data), (nbytes,), aligned.dtype, owner=block)

    def array(self, values: NDArray[Any], offset: int = 0) -> DeviceArray:
        """An array of the device with these values, laid out as `values` are: only their own bytes may be used.

        Args:
            values: of any strides that are not negative.
            offset: of bytes from an aligned address.
        """
        span = sum([(size - 1) * stride for size, stride in zip(values.shape, values.strides, strict=True)])
        block = self.block(span + values.itemsize + offset)
        made = block.strided(values.shape, values.dtype, offset, values.strides)
        view(made)[...] = values
        return made


def view(array: DeviceArray) -> NDArray[Any]:
    """The numbers of an array that lies in memory of the host."""
    low, high = array.extent()
    flat = np.frombuffer(memoryview((ctypes.c_char * (high - low)).from_address(low)), array.dtype)
    return np.lib.stride_tricks.as_strided(flat, array.shape, array.strides)
