"""Failures on purpose."""

from __future__ import annotations

from typing import Any

import vmflow as flow
from vmflow.instructions.builder import physical_run
from vmflow.vm.virtual_machine import current_machine


def failed_tensor() -> flow.Tensor:
    """A tensor of one element whose kernel raised ZeroDivisionError("planted")."""
    tensor = flow.zeros(1)

    def kernel(out: Any) -> Any:
        raise ZeroDivisionError("planted")

    physical_run(current_machine(), lambda builder: builder.op_call("planted", kernel, (), (tensor._blob,)))
    return tensor
