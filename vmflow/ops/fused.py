"""The op `fused`: several elementwise ops as one op.

Its attributes list the ops, called its steps, and the steps whose results are results of `fused`.  The kernels are in
`vmflow.kernels.numpy.fused` and `vmflow.kernels.cuda.fused`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from vmflow.dtypes import FLOATING
from vmflow.kernels.problems.elementwise import Elementwise
from vmflow.kernels.problems.fused import Fused, FusedStep

from .elementwise.inference import ELEMENTWISE
from .table import OPS, Attributes, Form, Inferred, Kinds, Metas, OpExpr, OpPlan, Size, decoded

# One elementwise op inside a fused op: (its name in the op table, its attributes, its scalars as strings, see
# `table.encoded`, the numbers of its operands).  Operands are numbered: first the fused op's inputs, then the results
# of its steps.
Step: TypeAlias = tuple[str, tuple[Any, ...], tuple[tuple[str, ...], ...], tuple[int, ...]]

# Ops that can be fused, though they are not in `ELEMENTWISE`.
_OTHERS: Final = frozenset({"cast", "where"})

# These ops may raise an error for integers, such as for a division by 0.  For integers they are not fused, so that the
# error names the line that called the op.
_MAY_FAIL: Final = frozenset({"floor_divide", "trunc_divide", "remainder", "fmod", "pow"})


def can_fuse(op: str, metas: Metas) -> bool:
    """Return whether an op on inputs of these metas may be a step of a fused op.

    Args:
        op: the op's name in the op table.
        metas: the metas of the op's inputs.
    """
    if op.removesuffix("_scalar") in _MAY_FAIL and all([meta.dtype.category < FLOATING for meta in metas]):
        return False
    return op in ELEMENTWISE or op in _OTHERS


def infer_fused(steps: tuple[Step, ...], outputs: tuple[int, ...], metas: Metas) -> Inferred:
    """Infer a fused op: run the inference of each step, starting from `metas`, the metas of the fused op's inputs.

    The results of the fused op are the results of the steps at the indices `outputs`.

    Raises:
        ValueError: if the steps' results are not all of one shape.
    """
    known = list(metas)
    fused_steps: list[FusedStep] = []
    for name, attributes, scalars, operands in steps:
        operand_metas = tuple([known[operand] for operand in operands])
        numbers = tuple([decoded(scalar) for scalar in scalars])
        plan = _plan(name, attributes, operand_metas, tuple([type(number) for number in numbers]))
        (output,) = plan.outputs
        # The dtype in which an elementwise op computes may differ from the result's: comparisons give bools, absolute
        # values of complex numbers real ones.
        compute = plan.details.compute if isinstance(plan.details, Elementwise) else output.dtype
        kernel, cost = plan.kernel, plan.cost
        fused_steps.append(FusedStep(name, attributes, numbers, operands, output, compute, kernel, cost))
        known.append(output)
        if output.shape != fused_steps[0].output.shape:
            first = list(fused_steps[0].output.shape)
            raise ValueError(f"fused: all steps must have one shape, not {first} and {list(output.shape)}")
    made = tuple([fused_steps[output].output for output in outputs])
    total = sum([step.cost for step in fused_steps])
    return Inferred(made if len(made) > 1 else made[0], total, Fused(tuple(fused_steps), outputs))


def _plan(name: str, attributes: Attributes, metas: Metas, kinds: Kinds) -> OpPlan:
    op = OPS[name]
    key = (metas, attributes, kinds, None)
    plan = op.known.get(key)
    return plan if plan is not None else op.plan(key, attributes, metas, kinds)


def _infer(attributes: Attributes, metas: Metas, kinds: Kinds) -> Inferred:
    steps, outputs = attributes
    return infer_fused(steps, outputs, metas)  # type: ignore[arg-type]


FUSED: Final = OpExpr("fused", _infer, Form((0, None), tuple[tuple[Step, ...], tuple[Size, ...]]), "fused")
