"""The calls of all ops in the coverage table, for any device: their results and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

import vmflow as flow
from vmflow.dtypes import INTEGER, by_name

from .stand_ins import do_without_test_libraries

if TYPE_CHECKING:
    from tests.ops.oracle import Row
    from tests.ops.test_coverage import Made

SEED: Final = 3


@dataclass(frozen=True)
class Case:
    """One call of an op with operands of a dtype.

    Attributes:
        op: its name in the op table.
        label: of the row, which tells calls of one op apart.
        dtype: of all operands, or of the result.
        drawn: whether the numbers are random.
        graded: whether it has gradients.
    """

    op: str
    label: str
    dtype: str
    row: Row | None
    made: Made | None = None
    drawn: bool = False
    graded: bool = False

    def results(self, device: str) -> list[NDArray[Any]]:
        """The result on a device, as an array of the host."""
        with flow.device(device):
            if self.row is not None:
                return [_landed(self.row.call(*self.tensors(device)))]
            assert self.made is not None
            flow.manual_seed(SEED)
            found = self.made[0](by_name(self.dtype))
            # The numbers in new memory are unknown.
            return [] if self.op == "empty" else [_landed(found)]

    def gradients(self, device: str) -> list[NDArray[Any]]:
        """The gradients of all operands on a device, of the result weighted by fixed random numbers."""
        assert self.row is not None
        with flow.device(device):
            tensors = [tensor.requires_grad_() for tensor in self.tensors(device)]
            result = self.row.call(*tensors)
            if not result.requires_grad:
                return []
            weights = np.random.default_rng(7).uniform(0.5, 1.5, tuple(result.shape))
            weight = flow.tensor(weights.astype(np.float32)).to(result.dtype)
            total = (result * weight).sum()
            if total.dtype.is_complex:
                total = flow.view_as_real(total).sum()
            found = flow.autograd.grad(total, tensors, allow_unused=True)
            return [_landed(gradient) for gradient in found if gradient is not None]

    def tensors(self, device: str) -> list[flow.Tensor]:
        """The operands on a device."""
        assert self.row is not None
        return [flow.tensor(array, device=device) for array in self.row.operands(self.row.usual(), self.dtype)]


def cases(dtypes: Sequence[str] = (), ops: Sequence[str] = ()) -> Iterator[Case]:
    """The calls of all ops in the coverage table, dtype by dtype, or all of an op where no dtypes are given.

    Args:
        dtypes: the most important first; none for all.
        ops: the names of ops; none for all.
    """
    made, rows = _tables()
    names = sorted(ops or {*made, *rows})
    if not dtypes:
        for name in names:
            yield from _of_op(name, rows.get(name, ()), made.get(name))
    for dtype in dtypes:
        for name in names:
            yield from [case for case in _of_op(name, rows.get(name, ()), made.get(name)) if case.dtype == dtype]


def op_names() -> list[str]:
    """The ops of the coverage table."""
    made, rows = _tables()
    return sorted({*made, *rows})


def _of_op(op: str, rows: Sequence[Row], made: Made | None) -> Iterator[Case]:
    for row in rows:
        for dtype in row.dtypes:
            yield Case(op, row.label, dtype, row, graded=bool(row.order) and by_name(dtype).category > INTEGER)
    if made is not None:
        for dtype in made[1]:
            yield Case(op, "", dtype, None, made, drawn=True)


def _tables() -> tuple[dict[str, Made], dict[str, list[Row]]]:
    do_without_test_libraries()
    from tests.ops.test_coverage import MADE, ROWS  # whose modules import these libraries

    return MADE, ROWS


def _landed(tensor: flow.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().to("cpu").numpy()
    return array
