"""Gradient accumulation in graphs: cuts a call's arguments into micro-batches, and joins the micro-batches' results.

Both are part of building, not a pass: `build` has to see the shapes of one micro-batch.  Ops with the phase "micro"
run once for each micro-batch; the optimizers' ops have the phase "step" and run once per call.  Three kinds of ops
connect the phases: "unpack" hands out the slices of arguments, "accumulate" sums gradients, and "pack" joins results.
The first micro-batch's gradient is copied, and later gradients are added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmflow.tensors import Tensor

if TYPE_CHECKING:
    from vmflow.autograd.node import AutogradMeta

    from .lazy import JobBuilder


def cut(builder: JobBuilder, inputs: Sequence[Tensor], names: Sequence[str], count: int) -> list[Tensor]:
    """Begin the phase "micro", whose recorded ops run once per micro-batch, and cut the arguments into micro-batches.

    Args:
        builder: the builder of the job.
        inputs: the whole tensor arguments of the call.
        names: the names of the arguments, for errors.
        count: the number of micro-batches.

    Returns:
        For each argument, the slice along its first dimension that the running micro-batch sees.

    Raises:
        ValueError: if an argument is 0-d, or its first dimension is not a multiple of `count`.
    """
    builder.begin_micro_batches(count)
    return parts(builder, inputs, names)


def parts(builder: JobBuilder, inputs: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    """Record "unpack" of arguments or a loader's batch, with the errors of `cut`; return a micro-batch's slices."""
    count = builder.micro_batches
    shapes = [_part(builder.name, tensor, name, count) for tensor, name in zip(inputs, names, strict=True)]
    return builder.gather("unpack", inputs, shapes) if inputs else []


def require_parts(builder: JobBuilder, inputs: Sequence[Tensor]) -> None:
    """Raise ValueError if neither the arguments nor batches of loaders have a tensor to cut into micro-batches."""
    if not inputs and not any([outlet.metas for outlet in builder.outlets]):
        raise ValueError(
            f"graph {builder.name!r}: with set_gradient_accumulation_steps({builder.micro_batches}) the arguments are "
            "cut into micro-batches, but there is no tensor among them; make the batch an argument of build()"
        )


def _part(graph: str, whole: Tensor, name: str, count: int) -> tuple[int, ...]:
    shape = tuple(whole.shape)
    if not shape or shape[0] % count:
        problem = f"has {shape[0]} along its first dimension" if shape else "has no dimension"
        raise ValueError(
            f"graph {graph!r}: set_gradient_accumulation_steps({count}) cuts each argument into {count} equal parts "
            f"along its first dimension, but {name} of shape {list(shape)} {problem}; give a multiple of {count}"
        )
    return shape[0] // count, *shape[1:]


def put_together(builder: JobBuilder, outputs: Sequence[Tensor], leaves: Sequence[AutogradMeta]) -> list[Tensor]:
    """End the phase "micro": ops recorded later run once per call, and find the summed gradients in the leaves' `grad`.

    Args:
        builder: the builder of the job.
        outputs: the results of `build` for one micro-batch.
        leaves: the autograd leaves; a `grad` that is not None becomes the sum of the gradients of the micro-batches.

    Returns:
        The results of all micro-batches, joined along the first dimension; scalars become elements of a vector.
    """
    parts = [builder.whole(tensor) for tensor in outputs]
    owners = list(dict.fromkeys([leaf for leaf in leaves if leaf.grad is not None]))
    gradients = [builder.whole(leaf.grad) for leaf in owners if leaf.grad is not None]
    sums = builder.gather("accumulate", gradients, [tuple(gradient.shape) for gradient in gradients])
    count = builder.micro_batches
    packed = builder.gather("pack", parts, [_packed(tuple(part.shape), count) for part in parts])
    builder.end_micro_batches()
    for owner, total in zip(owners, sums, strict=True):
        owner.replace(total)
    return packed


def _packed(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (shape[0] * count, *shape[1:]) if shape else (count,)
