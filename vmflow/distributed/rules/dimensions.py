"""Sharding rules of ops that work along some dimensions: the others may be split.

A sum or a count may also split the dimensions that it reduces.  Linear ops may take partial sums.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

from vmflow.distributed.sbp import broadcast, partial_sum, split
from vmflow.distributed.signatures import Call, Signature, rule_of, rule_of_family
from vmflow.dtypes import FLOATING

from .elementwise import aligned

_SUM: Final = Signature((partial_sum,), (partial_sum,))


def _others(call: Call, along: Collection[int], linear: bool = False) -> list[Signature]:
    """Signatures that split one dimension, not of `along`, in all operands and results; `linear` adds `_linear`'s."""
    signatures = [
        Signature((split(dim),) * len(call.inputs), (split(dim),) * len(call.outputs))
        for dim in range(len(call.inputs[0].shape))
        if dim not in along
    ]
    return signatures + _linear(call) if linear else signatures


def _linear(call: Call) -> list[Signature]:
    """Signature of a linear op: partial sums give partial sums; none if an operand or result is of integers or bool."""
    if any([meta.dtype.category < FLOATING for meta in (*call.inputs, *call.outputs)]):
        return []
    return [Signature((partial_sum,) * len(call.inputs), (partial_sum,) * len(call.outputs))]


# Reductions


@rule_of_family("reduction")
def _reduction(call: Call) -> list[Signature]:
    (source,) = call.inputs
    dims, keepdim = cast("tuple[Any, bool]", call.attributes)
    if dims is None:
        dims = tuple(range(len(source.shape)))
    elif isinstance(dims, int):
        dims = (dims,)
    name, same = call.op.name, source.dtype is call.outputs[0].dtype
    found = []
    for dim in range(len(source.shape)):
        if dim not in dims:
            own = dim if keepdim else dim - sum([other < dim for other in dims])
            found.append(Signature((split(dim),), (split(own),)))
        elif name == "sum" and same:
            found.append(Signature((split(dim),), (partial_sum,)))
    if name in ("sum", "mean") and same and source.dtype.category >= FLOATING:
        found.append(_SUM)
    return found


@rule_of("count_nonzero")
def _count(call: Call) -> list[Signature]:
    return [Signature((split(dim),), (partial_sum,)) for dim in range(len(call.inputs[0].shape))]


@rule_of("bincount")
def _bincount(call: Call) -> list[Signature]:
    return [Signature((split(0),) * len(call.inputs), (partial_sum,))]


# Ops along some dimensions


@rule_of_family("softmax", "running")
def _along_first_attribute(call: Call) -> list[Signature]:
    return _others(call, (cast(int, call.attributes[0]),), call.op.name == "cumsum" and _keeps_dtype(call))


@rule_of("recurrence")
def _recurrence(call: Call) -> list[Signature]:
    """Signatures of a linear recurrence with operands (factors, terms); it is linear in the terms."""
    found = _others(call, (cast(int, call.attributes[0]),))
    return [*found, Signature((broadcast, partial_sum), (partial_sum,))]


@rule_of("argsort", "mode", "weighted_half")
def _along_one(call: Call) -> list[Signature]:
    return _others(call, (cast(int, call.attributes[0]),), call.op.name == "weighted_half")


@rule_of("topk")
def _topk(call: Call) -> list[Signature]:
    return _others(call, (cast(int, call.attributes[1]),))


@rule_of("element_of_rank")
def _element_of_rank(call: Call) -> list[Signature]:
    return _others(call, (cast(int, call.attributes[2]),))


@rule_of("cat")
def _cat(call: Call) -> list[Signature]:
    return _others(
        call, (cast(int, call.attributes[0]),), all([each.dtype is call.outputs[0].dtype for each in call.inputs])
    )


@rule_of("flip", "fft", "rfft", "irfft")
def _along_several(call: Call) -> list[Signature]:
    return _others(call, cast("tuple[int, ...]", call.attributes[0]), True)


@rule_of("roll")
def _roll(call: Call) -> list[Signature]:
    return _others(call, cast("tuple[int, ...]", call.attributes[1]), True)


@rule_of("triangle")
def _triangle(call: Call) -> list[Signature]:
    rank = len(call.inputs[0].shape)
    return _others(call, (rank - 2, rank - 1), True)


@rule_of("pad")
def _pad(call: Call) -> list[Signature]:
    # No signature takes partial sums: each summand would be padded with the constant.
    return _others(call, _padded(call.attributes))


@rule_of("pad_borders", "pad_borders_gradient")
def _pad_borders(call: Call) -> list[Signature]:
    return _others(call, _padded(cast("tuple[Any, ...]", call.attributes[1])), True)


def _padded(pairs: tuple[Any, ...]) -> list[int]:
    return [dim for dim, pair in enumerate(pairs) if pair != (0, 0)]


@rule_of("repeat")
def _repeat(call: Call) -> list[Signature]:
    (times,) = cast("tuple[tuple[int, ...]]", call.attributes)
    extra = len(times) - len(call.inputs[0].shape)
    found = [
        Signature((split(dim),), (split(dim + extra),))
        for dim in range(len(call.inputs[0].shape))
        if times[dim + extra] == 1
    ]
    return found + _linear(call)


@rule_of("scatter_slices")
def _scatter_slices(call: Call) -> list[Signature]:
    return _others(call, (cast(int, call.attributes[1]),), True)


@rule_of("scatter_diagonal")
def _scatter_diagonal(call: Call) -> list[Signature]:
    _, _, first, second = cast("tuple[Any, int, int, int]", call.attributes)
    rest = [dim for dim in range(len(call.outputs[0].shape)) if dim not in (first, second)]
    return [Signature((split(old),), (split(new),)) for old, new in enumerate(rest)] + _linear(call)


def _keeps_dtype(call: Call) -> bool:
    return all([operand.dtype is call.outputs[0].dtype for operand in call.inputs])


# Ops on batches of matrices or images


@rule_of_family("decompositions")
@rule_of("inv", "det")
def _on_matrices(call: Call) -> list[Signature]:
    rank = len(call.inputs[0].shape)
    return _others(call, (rank - 2, rank - 1))


@rule_of("pivots_to_permutation")
def _on_rows(call: Call) -> list[Signature]:
    return _others(call, (len(call.inputs[0].shape) - 1,))


@rule_of("pinv")
def _pinv(call: Call) -> list[Signature]:
    """Signatures that split a stack of matrices; the operands `rtol` and `atol` broadcast with the stack."""
    leading = tuple(call.outputs[0].shape[:-2])
    return [
        Signature(
            tuple(
                [
                    aligned(dim, len(leading), tuple(each.shape[: len(each.shape) - cut]), size)
                    for each, cut in zip(call.inputs, (2, 0, 0), strict=True)
                ]
            ),
            (split(dim),),
        )
        for dim, size in enumerate(leading)
    ]


@rule_of("solve", "solve_triangular")
def _solve(call: Call) -> list[Signature]:
    """Signatures of `solve` and `solve_triangular`: (matrices, right sides); their leading dimensions broadcast."""
    (output,) = call.outputs
    leading = tuple(output.shape[:-2])
    columns = len(call.inputs[1].shape) - 1
    found = [
        Signature(
            tuple([aligned(dim, len(leading), tuple(operand.shape[:-2]), size) for operand in call.inputs]),
            (split(dim),),
        )
        for dim, size in enumerate(leading)
    ]
    found.append(Signature((broadcast, split(columns)), (split(len(output.shape) - 1),)))
    return [*found, Signature((broadcast, partial_sum), (partial_sum,))]


# Prefixes of the names of poolings that are linear in their first operand; other poolings take maxima.
_LINEAR_POOLINGS: Final = ("avg_", "adaptive_avg_", "plane_")


@rule_of_family("pooling", "resampling")
def _on_planes(call: Call) -> list[Signature]:
    """Signatures of ops on (samples, channels, ...): samples or channels may be split.

    For `plane_gather`, the other dimensions of the indices may be split; for `plane_scatter`, those of both operands.
    """
    found = [Signature((split(dim),) * len(call.inputs), (split(dim),) * len(call.outputs)) for dim in (0, 1)]
    if call.op.family == "resampling" or call.op.name.startswith(_LINEAR_POOLINGS):
        others = (broadcast,) * (len(call.inputs) - 1)
        found.append(Signature((partial_sum, *others), (partial_sum,)))
    planes = [split(dim) for dim in range(2, len(call.inputs[0].shape))]
    if call.op.name == "plane_gather":
        found += [Signature((broadcast, plane), (plane,)) for plane in planes]
    elif call.op.name == "plane_scatter":
        found += [Signature((plane, plane), (partial_sum,)) for plane in planes]
    return found


@rule_of_family("unfolding")
def _on_windows(call: Call) -> list[Signature]:
    """Signatures of `im2col` and `col2im`.

    The rows of the matrix of windows are in channel order, so an even split of channels is one of rows.

    The split must be even for all ranks, since each axis of the mesh may split the channels.
    """
    found = [Signature((split(0),), (split(0),)), *_linear(call)]
    channels = min(call.inputs[0].shape[1], call.outputs[0].shape[1])
    return found if channels % call.ranks else [*found, Signature((split(1),), (split(1),))]
