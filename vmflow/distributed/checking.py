"""Checked mode: ranks compare their calls of ops of global tensors.

An op that needs no exchange runs on parts without contact to other ranks.  If ranks have come to different places of
the program, the next exchange fails, or nothing does.  In checked mode the results of the first op that differs fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmflow.instructions.blob import TensorMeta
from vmflow.ops.table import Attributes, OpExpr
from vmflow.streams.channel import Operation
from vmflow.tensors import Tensor

from .collectives import exchange
from .global_tensors import local_mode, part_of
from .process import current_process


def compared(
    op: OpExpr, metas: Sequence[TensorMeta], attributes: Attributes, scalars: tuple[Any, ...]
) -> Tensor | None:
    """Compare a call with those of the other ranks of its placement.

    Returns:
        A tensor without elements, which fails with `CollectiveMismatch` if the calls differ; None if this rank is not
        in the placement, or alone there.
    """
    asked = [value for value in attributes if isinstance(value, TensorMeta)]
    spreads = [meta.spread for meta in (*metas, *asked) if meta.spread is not None]
    group = spreads[0].placement.group
    if len(group) < 2 or current_process().rank not in group:
        return None
    operands = ", ".join([f"{meta!r} {meta.spread!r}" for meta in metas])
    return exchange(Operation("barrier", group, note=f"{op.name}({operands}) with {(*attributes, *scalars)}"), None)


def depend(result: Tensor, verdict: Tensor | None) -> None:
    """Make `result` fail if `verdict`, the empty tensor of `compared`, does: write it to an empty slice of `result`."""
    if verdict is None:
        return
    with local_mode():
        part = part_of(result)
        nothing = part.unsqueeze(0)[:0] if part.ndim == 0 else part[:0]
        nothing.copy_(verdict.reshape((0,) + (1,) * (nothing.ndim - 1)))
