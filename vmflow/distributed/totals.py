"""Numbers that are computed from many tensors together, such as the norm of all gradients, if some are global."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmflow.context import MODE
from vmflow.tensor_fields import meta_of
from vmflow.tensors import Tensor

from .collectives import gathered, reduced
from .global_tensors import local_mode, updated_part
from .process import current_process
from .sbp import broadcast
from .spread import Spread


def norms_of_ranks(name: str, tensors: Sequence[Tensor], norm_of: Callable[[Sequence[Tensor]], Tensor]) -> list[Tensor]:
    """Return tensors that together have the norm of all elements of `tensors`.

    The elements of global tensors are counted once, also if several ranks have them.  Ranks outside of the placements
    count none of these.  All ranks of the placements must call this.

    Args:
        name: shown in errors.
        tensors: local and global ones; local ones count on their rank only.
        norm_of: computes the norm of local tensors, a scalar.

    Raises:
        RuntimeError: for a partial sum, on the ranks of the placements.
    """
    spread = [tensor for tensor in tensors if tensor.is_global]
    group = _that_differ(spread)
    if not group:
        return list(tensors)
    # All ranks refuse a partial sum, also those that do not count the tensor.
    parts = [updated_part(name, tensor) for tensor in spread]
    counted = [part for part, tensor in zip(parts, spread, strict=True) if _counts(meta_of(tensor).spread)]
    local = [tensor for tensor in tensors if not tensor.is_global]
    with local_mode():
        # The norm of the ranks' norms is the norm of all elements.
        norm = norm_of(counted)
        return [*local, gathered(norm, group, (1,) * len(group))]


def largest_of_ranks(value: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Return the largest `value`, a local scalar that each rank has computed from its parts of `tensors`.

    All ranks of the tensors' placements must call this; others keep their value.
    """
    return _largest(value, _that_differ([tensor for tensor in tensors if tensor.is_global]))


def largest_of_groups(value: Tensor, groups: Sequence[tuple[int, ...]]) -> Tensor:
    """Return the largest `value`, a local scalar, among the ranks of all groups.

    All ranks of the groups must call this, those of one group with equal values; others keep their value.
    """
    ranks = tuple(sorted({rank for group in groups for rank in group}))
    return _largest(value, ranks if len(set(groups)) > 1 and current_process().rank in ranks else ())


def _largest(value: Tensor, ranks: tuple[int, ...]) -> Tensor:
    if not ranks:
        return value
    with local_mode():
        return reduced(value, ranks, "max")


def _that_differ(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The ranks of the placements of global tensors; none if this rank need not hear from others.

    It need not if all ranks have the same whole tensors, if it is outside of the placements, or while a graph is being
    built.
    """
    spreads = {meta_of(tensor).spread for tensor in tensors}
    group = tuple(sorted({rank for spread in spreads for rank in spread.placement.group}))
    alike = all([set(spread.placement.group) == set(group) and _is_whole(spread) for spread in spreads])
    elsewhere = current_process().rank not in group or MODE.get().interpreter is not None
    return () if alike or elsewhere else group


def _is_whole(spread: Spread) -> bool:
    return all([sbp == broadcast for sbp in spread.sbp])


def _counts(spread: Spread) -> bool:
    """Whether this rank is the first of those that have the same part."""
    here = spread.placement.coordinates(current_process().rank)
    return here is not None and all([sbp.is_split or not place for sbp, place in zip(spread.sbp, here, strict=True)])
