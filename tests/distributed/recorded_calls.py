"""Calls of all ops, as the rows of the op tests and their gradients make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.ops import test_coverage as coverage
from tests.ops.oracle import Row
from vmflow import interpreter
from vmflow.context import MODE
from vmflow.ops.table import OpExpr, ViewExpr

Array = NDArray[Any]


class Recorded(NamedTuple):
    """A call of an op.

    Attributes:
        op, attributes, scalars: which.
        operands: its arrays.
    """

    op: OpExpr
    attributes: tuple[Any, ...]
    scalars: tuple[Any, ...]
    operands: tuple[Array, ...]

    def __str__(self) -> str:
        shapes = [f"{each.dtype}{list(each.shape)}" for each in self.operands]
        return f"{self.op.name} of {', '.join(shapes)} with {self.attributes}"

    def run(self, operands: list[Array], attributes: tuple[Any, ...]) -> list[Array]:
        """The results for other operands."""
        tensors = tuple([flow.tensor(each) for each in operands])
        if isinstance(self.op, ViewExpr):
            return [interpreter.dispatch_view(self.op, tensors[0], attributes).numpy()]
        return [each.numpy() for each in interpreter.dispatch_several(self.op, tensors, attributes, self.scalars)]


@contextmanager
def _recording(calls: list[Recorded]) -> Iterator[None]:
    """Within the block, every call of an op is added to the list."""
    busy = False

    def noted(name: str, place: int) -> Any:
        dispatch = getattr(interpreter, name)

        def call(op: OpExpr, *arguments: Any) -> Any:
            nonlocal busy
            if not busy and MODE.get().interpreter is None:
                busy = True
                given = arguments[place]
                tensors = given if isinstance(given, tuple) else (given,)
                operands = tuple([np.array(each.detach().numpy(), order="C") for each in tensors])
                attributes, scalars = (*arguments[place + 1 :], (), ())[:2]
                calls.append(Recorded(op, attributes, scalars, operands))
                busy = False
            return dispatch(op, *arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "dispatch_view", noted("dispatch_view", 0))
        patch.setattr(interpreter, "dispatch", noted("dispatch", 0))
        patch.setattr(interpreter, "dispatch_several", noted("dispatch_several", 0))
        patch.setattr(interpreter, "dispatch_into", noted("dispatch_into", 1))
        yield


def _calls_of(row: Row) -> Iterator[Recorded]:
    dtype = next((name for name in ("float64", "complex128") if name in row.dtypes), row.dtypes[0])
    for shapes in row.shapes:
        calls: list[Recorded] = []
        operands = [flow.tensor(each) for each in row.operands(shapes, dtype)]
        with _recording(calls):
            row.call(*operands)
            leaves = [each.requires_grad_() if each.is_floating_point() else each for each in operands]
            result = row.call(*leaves)
            if result.requires_grad:
                with suppress(RuntimeError):  # an op without a gradient
                    result.backward(flow.randn_like(result).detach())
        yield from calls


def recorded_calls() -> dict[str, list[Recorded]]:
    """By the name of the op, its calls, each form of them once."""
    found: dict[str, list[Recorded]] = {}
    seen: set[Any] = set()
    for row in [row for rows in coverage.ROWS.values() for row in rows]:
        for call in _calls_of(row):
            key = (
                call.op.name,
                repr(call.attributes),
                tuple(map(type, call.scalars)),
                tuple([(each.shape, each.dtype) for each in call.operands]),
            )
            if key not in seen:
                seen.add(key)
                found.setdefault(call.op.name, []).append(call)
    return found
