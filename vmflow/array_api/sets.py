"""Different values by the array API standard: on the host, since how many there are depends on the data.

These wait for their input.  Values come in ascending order; every nan is a value of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vmflow import dtypes
from vmflow.ops.creation import tensor
from vmflow.tensors import Tensor


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different values, where each is first, which of them each element is, and how often each occurs."""
    array: Any = x.detach().numpy()
    if x.dtype is dtypes.bfloat16:
        array = array.astype(np.float32)
    found = np.unique_all(array)
    values = tensor(found.values, dtype=x.dtype, device=x.device)
    indices, inverse, counts = [
        tensor(it, dtype=dtypes.int64, device=x.device) for it in (found.indices, found.inverse_indices, found.counts)
    ]
    return UniqueAll(values, indices, inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different values, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different values, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different values."""
    return unique_all(x).values
