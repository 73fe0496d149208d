"""Products of matrices by cuBLASLt, through the bindings of nvmath-python; CUDA graphs can hold such products.

cuBLASLt stores its matrices column by column, so that a matrix of contiguous rows is a transposed one to it.  Products
of one kind share a plan: layouts, the operation, and the algorithm that cuBLASLt prefers.  Each stream and each graph
that computes products has a workspace of its own, which its products use one after the other.

The bindings call themselves experimental; nothing else in vmflow uses them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np

from .arrays import DeviceArray
from .precision import allows_tf32

# The most plans that are kept.
MOST_PLANS: Final = 1024

# The compute capability of Hopper GPUs, and the bytes of a workspace for them and later ones, and for older ones.
# NVIDIA recommends 32 MiB and 4 MiB; older GPUs get 8 MiB here.
_HOPPER: Final = 9
_WORKSPACE: Final = 32 << 20
_SMALL_WORKSPACE: Final = 8 << 20

# Bytes of the workspace that algorithms are not told of: with a bias, some need a few more than they report.
_MARGIN: Final = 256

# Kernels of cuBLASLt make use of no larger alignment, in bytes, than this.  Larger ones are not reported, so that the
# same algorithm is chosen for all addresses that are multiples of it.
_ALIGNMENT: Final = 16

_MOST_MATRICES: Final = 2**31 - 1
_HALF_SIZE: Final = 2
_SINGLE: Final = (np.dtype(np.float32), np.dtype(np.complex64))

# Errors by which cuBLASLt refuses a product before it has begun: CUBLAS_STATUS_INVALID_VALUE, _ARCH_MISMATCH and
# _NOT_SUPPORTED.
_REFUSALS: Final = frozenset({7, 8, 15})


class Library(NamedTuple):
    """The parts of nvmath-python that are used.

    Attributes:
        lt: ``nvmath.bindings.cublasLt``.
        cublas: ``nvmath.bindings.cublas``, for its enumerations.
        types: ``nvmath.CudaDataType``.
    """

    lt: Any
    cublas: Any
    types: Any


def find_library() -> Library:
    """The installed bindings.

    Raises:
        ImportError: if no bindings are installed.
    """
    from nvmath import CudaDataType
    from nvmath.bindings import cublas, cublasLt

    return Library(cublasLt, cublas, CudaDataType)


def workspace_size(major: int) -> int:
    """The bytes of a workspace on a GPU of this major compute capability."""
    return _WORKSPACE if major >= _HOPPER else _SMALL_WORKSPACE


class _Capture:
    """A stream that is captured.

    Attributes:
        workspace: of the graph, which may be launched on another stream; None without the library or memory for it.
        used: whether a product of the graph has asked for the workspace.
    """

    def __init__(self, workspace: DeviceArray | None) -> None:
        self.workspace = workspace
        self.used = False


@final
class Products:
    """Computes products on one device, which has to be the current device of the calling thread.

    The library is looked for at the first product or capture.

    Args:
        workspace: the bytes of a workspace.
        allocate: takes a number of bytes from the memory of the device.
        find: finds the library.
    """

    def __init__(
        self, workspace: int, allocate: Callable[[int], DeviceArray], find: Callable[[], Library] = find_library
    ) -> None:
        self._workspace_bytes = workspace
        self._allocate = allocate
        self._find = find
        self._planner: _Planner | str | None = None
        self._plans: OrderedDict[_Kind, _Plan | str] = OrderedDict()
        self._workspaces: dict[int, DeviceArray] = {}
        self._captures: dict[int, _Capture] = {}
        # The lock is held by all public methods, since the address of a bias is set in its plan and then used.
        self._lock = threading.Lock()

    def begin_capture(self, stream: int) -> None:
        """Prepare for the stream's capture: if the library is found, allocate a workspace, which a capture forbids."""
        with self._lock:
            workspace = self._new_workspace() if isinstance(self._found(), _Planner) else None
            self._captures[stream] = _Capture(workspace)

    def end_capture(self, stream: int) -> DeviceArray | None:
        """End the stream's capture; returns the workspace that the graph has to keep, or None if it needs none."""
        with self._lock:
            capture = self._captures.pop(stream)
            return capture.workspace if capture.used else None

    def multiply(
        self,
        left: DeviceArray,
        right: DeviceArray,
        out: DeviceArray,
        bias: DeviceArray | None,
        stream: int,
    ) -> str | None:
        """Hand a product to a stream.

        Args:
            left, right, out, bias: see `Driver.multiply`.
            stream: its ``cudaStream_t``.

        Returns:
            None; or if nothing was handed over, the reason why cuBLASLt cannot compute this product.

        Raises:
            RuntimeError: if cuBLASLt fails.
        """
        with self._lock:
            planner = self._found()
            if isinstance(planner, str):
                return planner
            plan = self._plan(planner, left, right, out, bias)
            if isinstance(plan, str):
                return plan
            workspace = self._workspace(stream)
            if workspace is None:
                return f"the device has no {self._workspace_bytes} bytes for a workspace"
            try:
                planner.run(plan, left, right, out, bias, workspace, stream)
            except planner.library.lt.cuBLASLtError as error:
                if error.status not in _REFUSALS:
                    raise RuntimeError(f"{_described(left, right, out, bias)} failed: {error}") from error
                return f"cuBLASLt refuses {_described(left, right, out, bias)}: {error}"
        return None

    def _found(self) -> _Planner | str:
        """Find the library and return the planner of products; or the reason why there is none, as a text."""
        if self._planner is None:
            try:
                self._planner = _Planner(self._find(), self._workspace_bytes)
            except ImportError as error:
                self._planner = f"nvmath-python cannot be imported: {error}"
            except Exception as error:
                # The bindings have errors of their own for each library that cannot be loaded.
                self._planner = f"nvmath-python cannot load cuBLASLt: {error}"
        return self._planner

    def _workspace(self, stream: int) -> DeviceArray | None:
        """The workspace of a stream, or while it is captured, of the graph; None if the device has no memory for it."""
        capture = self._captures.get(stream)
        if capture is not None:
            capture.used = True
            return capture.workspace
        found = self._workspaces.get(stream)
        if found is None:
            found = self._new_workspace()
            if found is not None:
                self._workspaces[stream] = found
        return found

    def _new_workspace(self) -> DeviceArray | None:
        try:
            return self._allocate(self._workspace_bytes)
        except MemoryError:
            return None

    def _plan(
        self, planner: _Planner, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None
    ) -> _Plan | str:
        """The plan of a product, or the reason why there can be no plan."""
        kind = _kind(left, right, out, bias)
        known = self._plans.get(kind)
        if known is not None:
            self._plans.move_to_end(kind)
            return known
        plan = self._plans[kind] = planner.plan(kind, left, right, out, bias)
        if len(self._plans) > MOST_PLANS:
            # The plan used least recently may go: cuBLASLt has copied all parts that running products and graphs need.
            _, oldest = self._plans.popitem(last=False)
            if isinstance(oldest, _Plan):
                oldest.made.close()
        return plan


class _Kind(NamedTuple):
    """The properties that all products of one plan share.

    Attributes:
        layouts: dtypes, shapes and strides; those that follow from the others are left out.
        alignment: the largest power of two that divides the addresses of matrices, up to the largest that matters.
        biased: 0 without a bias, 1 if its address does not suit cuBLASLt, else 16.
        tf32: whether factors may be rounded to TensorFloat32.
    """

    layouts: tuple[object, ...]
    alignment: int
    biased: int
    tf32: bool


def _kind(left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None) -> _Kind:
    layouts = (left.dtype, out.dtype, left.shape, left.strides, right.shape, right.strides, out.strides)
    addresses = _ALIGNMENT | left.pointer | right.pointer | out.pointer
    biased = 0 if bias is None else 1 if bias.pointer % _ALIGNMENT else _ALIGNMENT
    return _Kind(layouts, addresses & -addresses, biased, left.dtype in _SINGLE and allows_tf32())


def _described(left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None) -> str:
    plus = "" if bias is None else f" plus {bias.dtype}{list(bias.shape)}"
    return (
        f"the product {left.dtype}{list(left.shape)} @ {right.dtype}{list(right.shape)}{plus} "
        f"-> {out.dtype}{list(out.shape)} of strides {left.strides}, {right.strides} and {out.strides}"
    )


class Stored(NamedTuple):
    """A matrix, or several of one layout, as cuBLASLt stores them: column by column.

    Attributes:
        transposed: whether the stored matrix is the transposed one, because rows are contiguous.
        rows, columns: of the stored matrix.
        leading: elements from each of its columns to the next.
        matrices: the number of matrices.
        step: elements from each matrix to the next.
    """

    transposed: bool
    rows: int
    columns: int
    leading: int
    matrices: int
    step: int


def stored(array: DeviceArray) -> Stored:
    """Describe an array's matrices as cuBLASLt stores them; along rows or columns, elements must lie side by side."""
    (rows, columns), (down, across), size = array.shape[-2:], array.strides[-2:], array.itemsize
    count, step = (array.shape[0], array.strides[0] // size) if array.ndim == 3 else (1, 0)
    if (columns == 1 or across == size) and (rows == 1 or down >= columns * size):
        return Stored(True, columns, rows, columns if rows == 1 else down // size, count, step)
    return Stored(False, rows, columns, rows if columns == 1 else across // size, count, step)


class _Plan(NamedTuple):
    """The computation of products of one kind.

    Attributes:
        swapped: whether cuBLASLt gets the right factor as its first.
        operation, first, second, result: descriptors.
        made: destroys the descriptors when it is closed.
        found: cuBLASLt's record of the algorithm.
        algorithm: the address of the algorithm in it.
        one, zero: the addresses of alpha and beta, the factors of the product and of the result's previous content.
        bias: holds the address of the bias, which each run with a bias sets.
        bias_at: where cuBLASLt reads that address.
    """

    swapped: bool
    operation: int
    first: int
    second: int
    result: int
    made: ExitStack
    found: np.ndarray[Any, Any]
    algorithm: int
    one: int
    zero: int
    bias: np.ndarray[Any, Any]
    bias_at: int


# For each dtype, alpha and beta: the factors of the product and of the result's previous content; never freed.
_FACTORS: Final = {name: np.array([1, 0], name) for name in ("float32", "float64", "complex64", "complex128")}


# For each dtype of matrices, the dtype of alpha and beta; sums are computed in it, too.
_SCALES: Final = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}

# The two matrices in the order of cuBLASLt, and the result.
_Arrays: TypeAlias = "tuple[DeviceArray, DeviceArray, DeviceArray]"


@final
class _Planner:
    """Makes plans and runs them.

    Args:
        library: see `Library`.
        workspace: the bytes of a workspace.

    Attributes:
        library: see above.
    """

    def __init__(self, library: Library, workspace: int) -> None:
        lt, _, types = library
        self.library = library
        self._workspace_bytes = workspace
        self._handle = lt.create()
        self._bias_pointer = int(lt.MatmulDescAttribute.BIAS_POINTER)
        self._types = {
            "float16": types.CUDA_R_16F,
            "bfloat16": types.CUDA_R_16BF,
            "float32": types.CUDA_R_32F,
            "float64": types.CUDA_R_64F,
            "complex64": types.CUDA_C_32F,
            "complex128": types.CUDA_C_64F,
        }

    def plan(
        self, kind: _Kind, left: DeviceArray, right: DeviceArray, out: DeviceArray, bias: DeviceArray | None
    ) -> _Plan | str:
        """The plan of products of such arrays, or the reason why there can be no plan.

        Raises:
            RuntimeError: if cuBLASLt fails with an error that is no refusal.
        """
        lt = self.library.lt
        described = _described(left, right, out, bias)
        result = stored(out)
        if bias is not None and not result.transposed:
            return f"cuBLASLt adds a bias to rows that lie side by side, unlike those of {described}"
        if bias is not None and bias.pointer % _ALIGNMENT:
            # However the matrices lie, cuBLASLt may choose an algorithm that needs an aligned bias.
            return f"cuBLASLt takes a bias at a multiple of {_ALIGNMENT} bytes, unlike that of {described}"
        if result.matrices > _MOST_MATRICES:
            return f"cuBLASLt does not count the matrices of {described}"
        # out = left @ right, or if the transposed matrices are stored: out.T = right.T @ left.T
        arrays = (right, left, out) if result.transposed else (left, right, out)
        with ExitStack() as made:
            try:
                operation = self._operation(kind, arrays, bias, made)
                layouts = [self._layout(array, made) for array in arrays]
                found = self._algorithm(kind, operation, layouts, out)
            except lt.cuBLASLtError as error:
                if error.status not in _REFUSALS:
                    raise RuntimeError(f"cuBLASLt cannot plan {described}: {error}") from error
                return f"cuBLASLt has no algorithm for {described}: {error}"
            if found is None:
                return f"cuBLASLt has no algorithm for {described}"
            factors = _FACTORS[_SCALES[left.dtype.name]]
            first, second, to = layouts
            bias_pointer = np.zeros(1, np.int64)
            return _Plan(
                swapped=result.transposed,
                operation=operation,
                first=first,
                second=second,
                result=to,
                made=made.pop_all(),
                found=found,
                algorithm=found["algo"].ctypes.data,
                one=factors.ctypes.data,
                zero=factors[1:].ctypes.data,
                bias=bias_pointer,
                bias_at=bias_pointer.ctypes.data,
            )

    def run(
        self,
        plan: _Plan,
        left: DeviceArray,
        right: DeviceArray,
        out: DeviceArray,
        bias: DeviceArray | None,
        workspace: DeviceArray,
        stream: int,
    ) -> None:
        """Hand a product to a stream."""
        lt = self.library.lt
        if bias is not None:
            plan.bias[0] = bias.pointer
            lt.matmul_desc_set_attribute(plan.operation, self._bias_pointer, plan.bias_at, plan.bias.nbytes)
        first, second = (right, left) if plan.swapped else (left, right)
        lt.matmul(
            self._handle,
            plan.operation,
            plan.one,
            first.pointer,
            plan.first,
            second.pointer,
            plan.second,
            plan.zero,
            out.pointer,
            plan.result,
            out.pointer,
            plan.result,
            plan.algorithm,
            workspace.pointer,
            self._workspace_bytes,
            stream,
        )

    def _operation(self, kind: _Kind, arrays: _Arrays, bias: DeviceArray | None, made: ExitStack) -> int:
        """The descriptor of the product itself."""
        lt, cublas, _ = self.library
        first, second, out = arrays
        scale = _SCALES[first.dtype.name]
        if scale in ("float64", "complex128"):
            compute = cublas.ComputeType.COMPUTE_64F
        else:
            compute = cublas.ComputeType.COMPUTE_32F_FAST_TF32 if kind.tf32 else cublas.ComputeType.COMPUTE_32F
        operation = int(lt.matmul_desc_create(compute, self._types[scale]))
        made.callback(lt.matmul_desc_destroy, operation)
        put = partial(_set, lt.matmul_desc_set_attribute, operation)
        for attribute, factor in ((lt.MatmulDescAttribute.TRANSA, first), (lt.MatmulDescAttribute.TRANSB, second)):
            as_is = stored(factor).transposed == stored(out).transposed
            put(attribute, np.int32(cublas.Operation.N if as_is else cublas.Operation.T))
        if bias is not None:
            put(lt.MatmulDescAttribute.EPILOGUE, np.uint32(lt.Epilogue.BIAS))
            put(lt.MatmulDescAttribute.BIAS_DATA_TYPE, np.int32(self._types[bias.dtype.name]))
            # cuBLASLt may read the bias's address when it chooses an algorithm.
            put(lt.MatmulDescAttribute.BIAS_POINTER, np.int64(bias.pointer))
        return operation

    def _layout(self, array: DeviceArray, made: ExitStack) -> int:
        """The descriptor of a matrix, or of a batch of them."""
        lt = self.library.lt
        matrix = stored(array)
        layout = int(
            lt.matrix_layout_create(self._types[array.dtype.name], matrix.rows, matrix.columns, matrix.leading)
        )
        made.callback(lt.matrix_layout_destroy, layout)
        if matrix.matrices > 1:
            put = partial(_set, lt.matrix_layout_set_attribute, layout)
            put(lt.MatrixLayoutAttribute.BATCH_COUNT, np.int32(matrix.matrices))
            put(lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, np.int64(matrix.step))
        return layout

    def _algorithm(
        self, kind: _Kind, operation: int, layouts: list[int], out: DeviceArray
    ) -> np.ndarray[Any, Any] | None:
        """The record of the algorithm that cuBLASLt prefers; None if it has none."""
        lt = self.library.lt
        first, second, result = layouts
        found = np.zeros(1, lt.matmul_heuristic_result_dtype)
        count = np.zeros(1, np.int32)
        with ExitStack() as made:
            preference = self._preference(kind, out, made)
            lt.matmul_algo_get_heuristic(
                self._handle,
                operation,
                first,
                second,
                result,
                result,
                preference,
                len(found),
                found.ctypes.data,
                count.ctypes.data,
            )
        return found if count[0] and not found["state"][0] else None

    def _preference(self, kind: _Kind, out: DeviceArray, made: ExitStack) -> int:
        """The descriptor of the constraints on an algorithm."""
        lt = self.library.lt
        preference = int(lt.matmul_preference_create())
        made.callback(lt.matmul_preference_destroy, preference)
        put = partial(_set, lt.matmul_preference_set_attribute, preference)
        put(lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, np.uint64(self._workspace_bytes - _MARGIN))
        if out.itemsize == _HALF_SIZE:
            # Allow only algorithms that add up partial sums in float32, too, and round once.
            put(lt.MatmulPreferenceAttribute.REDUCTION_SCHEME_MASK, np.uint32(lt.ReductionScheme.COMPUTE_TYPE))
        put(lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_A_BYTES, np.uint32(kind.alignment))
        put(lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_B_BYTES, np.uint32(kind.alignment))
        put(lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_C_BYTES, np.uint32(kind.alignment))
        put(lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_D_BYTES, np.uint32(kind.alignment))
        return preference


def _set(setter: Callable[..., object], descriptor: int, attribute: int, value: np.generic) -> None:
    """Set an attribute of a descriptor, which copies the value."""
    held = np.array([value])
    setter(descriptor, attribute, held.ctypes.data, held.nbytes)
