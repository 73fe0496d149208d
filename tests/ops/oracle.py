"""Helpers of the op tests: samples of every dtype and layout, comparison with numpy, and the contract of kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import check_gradients
from vmflow.dtypes import BOOL, COMPLEX, INTEGER, by_name
from vmflow.kernels.choosing import Kernel, Problem, choose
from vmflow.ops.table import OPS, Attributes, Inferred, Kinds, Metas, OpExpr, ViewExpr

Array = NDArray[Any]

REAL = ("float32", "float64", "float16", "bfloat16")
FRACTIONAL = (*REAL, "complex64", "complex128")
INTEGERS = ("int64", "uint8", "int8", "int16", "int32", "uint16", "uint32", "uint64")
NUMBERS = (*FRACTIONAL, *INTEGERS)
SIGNED = ("int64", "int8", "int16", "int32")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
ALL = (*NUMBERS, "bool")
ORDERED = (*REAL, *INTEGERS, "bool")

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (5,), (2, 0, 3), (3, 4), (2, 3, 4))

_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "complex64": 4e-6, "float64": 1e-13}


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0, low: float = -3.0, high: float = 3.0) -> Array:
    """Numbers of a dtype, the same for the same arguments."""
    generator = np.random.default_rng([seed, *shape])
    kind = by_name(dtype)
    if kind.category == BOOL:
        return np.asarray(generator.random(shape) < 0.5)
    if kind.category == INTEGER:
        lowest = math.ceil(low) if kind.is_signed else max(math.ceil(low), 0)
        return np.asarray(generator.integers(lowest, max(math.floor(high), lowest) + 1, shape)).astype(kind.numpy)
    numbers = generator.uniform(low, high, shape)
    if kind.category == COMPLEX:
        numbers = numbers + 1j * generator.uniform(low, high, shape)
    return np.asarray(numbers).astype(kind.numpy)


def widened(array: Array) -> Array:
    """In the widest dtype of its category, in which the oracle computes."""
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def values(tensor: flow.Tensor) -> Array:
    """The tensor's elements, in a dtype that numpy compares."""
    return widened(tensor.detach().numpy())


def check(
    found: flow.Tensor | None,
    expected: Any,
    dtype: str,
    shape: tuple[int, ...] | None = None,
    tolerance: float | None = None,
) -> None:
    """Compare dtype, shape and values with those of the oracle."""
    assert found is not None
    assert found.dtype is by_name(dtype), f"{found.dtype} is not {dtype}"
    expected = np.asarray(expected)
    assert tuple(found.shape) == (expected.shape if shape is None else shape)
    if by_name(dtype).category <= INTEGER:
        np.testing.assert_array_equal(found.numpy(), expected.astype(by_name(dtype).numpy))
        return
    limit = _TOLERANCE.get(dtype, 1e-13) if tolerance is None else tolerance
    # The oracle's numbers may be too large for the dtype.
    with np.errstate(over="ignore"):
        rounded = widened(np.asarray(expected).astype(by_name(dtype).numpy))
    if not np.allclose(values(found), rounded, rtol=limit, atol=limit, equal_nan=True):
        np.testing.assert_allclose(values(found), rounded, rtol=limit, atol=limit)


def layouts(array: Array) -> Iterator[tuple[str, flow.Tensor]]:
    """Tensors of these values that lie differently in memory."""
    yield "contiguous", flow.tensor(array)
    if array.ndim < 1:
        return
    spread = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    spread[..., ::2] = array
    yield "stepped", flow.tensor(spread)[..., ::2]
    later = np.concatenate([np.zeros_like(array[:1]), array]) if array.shape[0] else array
    yield "later", flow.tensor(later)[later.shape[0] - array.shape[0] :]
    if array.ndim > 1:
        yield "transposed", flow.tensor(np.ascontiguousarray(array.T)).T
    if array.size and (array == array[:1]).all():
        yield "expanded", flow.tensor(array[:1]).expand(array.shape)


def repeated(array: Array) -> Array:
    """The first row, or element, repeated, so that `layouts` has an expanded form."""
    return np.ascontiguousarray(np.broadcast_to(array[:1], array.shape)) if array.ndim and array.size else array


class KernelContract:
    """While entered, every kernel is run in all ways in which a machine may run it, and its results are inspected.

    With None for a destination it must return new C-contiguous memory of exactly the inferred dtype and shape, from
    which nothing is shared with the inputs.  With a destination it must give the same values.  It must not change its
    inputs, except where the destination is one.

    Attributes:
        seen: the names of the ops that ran.
        ran: by op, the dtype and the shape of each tensor that went in; the dtype is empty for views.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.ran: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
        self.broken: list[str] = []

    @contextmanager
    def entered(self) -> Iterator[KernelContract]:
        kept = {op: op.infer for op in OPS.values() if not isinstance(op, ViewExpr)}
        views = {op: op.view for op in OPS.values() if isinstance(op, ViewExpr)}
        for op, infer in kept.items():
            op.infer = self._wrapped(op, infer)
            op.forget()
        for op, view in views.items():
            op.view = self._noticed(op, view)
        try:
            yield self
        finally:
            for op, infer in kept.items():
                op.infer = infer
                op.forget()
            for op, view in views.items():
                op.view = view
        assert not self.broken, "\n".join(self.broken)

    def _noticed(self, op: ViewExpr, view: Any) -> Any:
        def noticed(attributes: Attributes, shape: tuple[int, ...], *rest: Any) -> Any:
            self.seen.add(op.name)
            self.ran.setdefault(op.name, set()).add(("", tuple(shape)))
            return view(attributes, shape, *rest)

        return noticed

    def _wrapped(self, op: OpExpr, infer: Callable[..., Inferred]) -> Callable[..., Inferred]:
        def wrapped(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
            self.seen.add(op.name)
            inferred = infer(attributes, metas, kinds)
            self.ran.setdefault(op.name, set()).update([(meta.dtype.name, tuple(meta.shape)) for meta in metas])
            assert inferred.cost >= 0
            if inferred.outputs[0].device.type == "cuda":
                return inferred  # its kernels launch, and read only memory of the device
            problem = Problem(op.name, op.family, attributes, metas, kinds, inferred.outputs, inferred.details)
            kernel = choose(problem, inferred.outputs[0].device)
            inferred.details = Kernel(self._checked(op, inferred, kernel.function, metas), keeps=kernel.keeps)
            return inferred

        return wrapped

    def _checked(self, op: OpExpr, inferred: Inferred, kernel: Callable[..., Any], metas: Metas) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            *operands, out = arguments
            arrays: list[Array] = operands[: len(metas)]
            scalars = operands[len(metas) :]
            if op.name == "empty":
                return kernel(*arguments)
            copies = [array.copy(order="C") for array in arrays]
            fresh = kernel(*copies, *scalars, None)
            self._inspect(op, inferred, metas, copies, fresh)
            given = [np.zeros(output.shape, output.dtype.numpy) for output in inferred.outputs]
            returned = kernel(*copies, *scalars, tuple(given) if inferred.several else given[0])
            self._same(op, fresh, returned, "with and without a destination")
            for array, copy in zip(arrays, copies, strict=True):
                self._same(op, array, copy, "as input and afterwards")
            result = kernel(*arguments)
            if not inferred.several:
                if out is not None and np.asarray(result).shape != out.shape:
                    self._broken(op, f"returned shape {np.asarray(result).shape} for a destination of {out.shape}")
                # Another memory layout may sum in another order.
                self._same(op, fresh, result, "of contiguous and of actual inputs")
            shares = out is not None and any(
                np.may_share_memory(out, array) for array in arrays if not inferred.several
            )
            if not shares:
                for array, copy in zip(arrays, copies, strict=True):
                    self._same(op, array, copy, "as input and after the call")
            return result

        return checked

    def _inspect(self, op: OpExpr, inferred: Inferred, metas: Metas, inputs: list[Array], fresh: Any) -> None:
        results = fresh if inferred.several else (fresh,)
        for result, output in zip(results, inferred.outputs, strict=True):
            if not output.shape:
                # A machine always gives 0-d results a destination, because numpy turns them into scalars.
                result = np.asarray(result)
            if not isinstance(result, np.ndarray):
                self._broken(op, f"returned a {type(result).__name__} for {output!r}")
                continue
            if result.dtype != output.dtype.numpy or result.shape != tuple(output.shape):
                self._broken(op, f"returned {result.dtype}{list(result.shape)} for {output!r} from {metas}")
            if not result.flags.c_contiguous:
                self._broken(op, f"returned strides {result.strides} for {output!r} from {metas}")
            if result.ndim and any(np.may_share_memory(result, array) for array in inputs):
                self._broken(op, f"shares memory with an input: {output!r} from {metas}")

    def _same(self, op: OpExpr, first: Any, second: Any, when: str) -> None:
        pairs = zip(first, second, strict=True) if isinstance(first, tuple) else [(first, second)]
        for one, other in pairs:
            if np.asarray(one).tobytes() == np.asarray(other).tobytes():
                continue
            limit = 1e-2 if np.asarray(one).dtype.itemsize == 2 else 1e-5
            left, right = widened(np.asarray(one)), widened(np.asarray(other))
            if left.shape != right.shape or not np.allclose(left, right, rtol=limit, atol=limit / 10, equal_nan=True):
                self._broken(op, f"differs {when}: {one!r} and {other!r}")

    def _broken(self, op: OpExpr, what: str) -> None:
        self.broken.append(f"{op.name}: {what}")


Shapes = tuple[tuple[int, ...], ...]
ONE: tuple[Shapes, ...] = tuple([(shape,) for shape in SHAPES])
TWO: tuple[Shapes, ...] = (
    ((), ()),
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((2, 1, 3), (4, 1)),
    ((5,), ()),
    ((), (5,)),
    ((0,), (1,)),
    ((2, 0), (2, 1)),
)


@dataclass(frozen=True)
class Row:
    """A case of one op: its call, numpy's result, and the dtypes and shapes for which it is defined.

    Attributes:
        op: the name in the op table; the call must run it.
        call: from tensors to the result.
        oracle: from widened numpy arrays to the values.
        dtypes: of all operands.
        result: "same" as the operands', "float", "real", "wide" (integers become int64), or the name of a dtype.
        shapes: each a combination of the operands' shapes.
        domain: the range of each operand's elements; the last holds for the rest.
        order: how many times it can be differentiated, up to 2.
        graded: shapes for the gradients, by default the `usual` ones, made smaller.
        tolerance: for the comparison, instead of the dtype's own.
    """

    op: str
    call: Callable[..., flow.Tensor]
    oracle: Callable[..., Any]
    dtypes: tuple[str, ...] = ALL
    result: str = "same"
    shapes: tuple[Shapes, ...] = ONE
    domain: tuple[tuple[float, float], ...] = ((-3.0, 3.0),)
    order: int = 0
    graded: Shapes | None = None
    tolerance: float | None = None
    label: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return f"{self.op}{self.label}"

    def operands(self, shapes: Shapes, dtype: str) -> list[Array]:
        """Samples for the operands."""
        ranges = [*self.domain, *[self.domain[-1]] * len(shapes)]
        return [sample(shape, dtype, seed, *ranges[seed]) for seed, shape in enumerate(shapes)]

    def result_dtype(self, dtype: str) -> str:
        kind = by_name(dtype)
        if self.result == "float":
            return "float32" if kind.category <= INTEGER else dtype
        if self.result == "wide":
            return "int64" if kind.category <= INTEGER else dtype
        if self.result == "real":
            return kind.to_real().name
        return dtype if self.result == "same" else self.result

    def check_forward(self) -> None:
        """Compare with the oracle, for all dtypes in one shape and all shapes in one dtype, in all layouts."""
        usual = self.usual()
        for dtype in self.dtypes:
            self.compare(self.operands(usual, dtype), dtype)
        first = self.dtypes[0]
        for shapes in self.shapes:
            self.compare(self.operands(shapes, first), first)
            self.compare([repeated(array) for array in self.operands(shapes, first)], first)

    def compare(self, arrays: list[Array], dtype: str) -> None:
        """Compare with the oracle in all layouts."""
        wide = [widened(array) for array in arrays]
        if by_name(self.result_dtype(dtype)).category > INTEGER:
            # numpy computes functions of bools in half precision.
            wide = [array.astype(np.float64) if array.dtype.kind == "b" else array for array in wide]
        with np.errstate(all="ignore"):
            expected = self.oracle(*wide)
        for operands in _rotated([dict(layouts(array)) for array in arrays]):
            check(self.call(*operands), expected, self.result_dtype(dtype), tolerance=self.tolerance)

    def check_gradient(self) -> None:
        """Compare the gradients, and their own, with numerical ones."""
        # Two of each dimension are enough, and numerical gradients cost two calls an element.
        shapes = self.graded or tuple([tuple([min(size, 2) for size in shape]) for shape in self.usual()])
        check_gradients(self.call, *self.operands(shapes, "float64"), second=self.order > 1)

    def usual(self) -> Shapes:
        """The first combination of shapes that are neither empty nor 0-d, or the first if all are."""
        return next((value for value in self.shapes if all(math.prod(shape) > 1 for shape in value)), self.shapes[0])


def _rotated(choices: list[dict[str, flow.Tensor]]) -> Iterator[list[flow.Tensor]]:
    """Each layout of the first operand together with another of the next."""
    count = max([len(choice) for choice in choices], default=1)
    for turn in range(count):
        yield [list(choice.values())[(turn + place) % len(choice)] for place, choice in enumerate(choices)]


RowTest = Callable[[Row, KernelContract], None]


def forward_test(rows: Sequence[Row], composed: Sequence[Row] = ()) -> RowTest:
    """The test of each row's results.

    Args:
        rows: whose calls must run their op.
        composed: whose calls are made of other ops.
    """

    @pytest.mark.parametrize("row", [*rows, *composed], ids=str)
    def test(row: Row, contract: KernelContract) -> None:
        row.check_forward()
        assert row.op in contract.seen or row in composed

    return test


def gradient_test(rows: Sequence[Row]) -> RowTest:
    """The test of the gradients of each row that can be differentiated."""

    @pytest.mark.parametrize("row", [row for row in rows if row.order], ids=str)
    def test(row: Row, contract: KernelContract) -> None:
        row.check_gradient()

    return test
