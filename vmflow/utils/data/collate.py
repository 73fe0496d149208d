"""Make a batch out of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vmflow import dtypes
from vmflow.ops.creation import creation
from vmflow.ops.shape.joining import stack
from vmflow.tensors import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Put samples together: their values at the same place become one tensor with a new first dimension.

    Tensors are stacked on their device; numpy's arrays and scalars, and Python's numbers (as float64 if the first is a
    float) become tensors on the default device; strings and bytes stay a list; dicts and other mappings, named tuples,
    tuples and lists are collated item by item.  Tuples become lists, as in PyTorch.  The first sample decides which of
    these applies.

    Raises:
        TypeError: for anything else; pass a `collate_fn` of your own to `DataLoader` then.
        ValueError: if shapes or lengths differ.
        KeyError: if a key of the first mapping is missing from another.
        IndexError: for no samples.

    Example:
        >>> flow.utils.data.default_collate([(1, "a"), (2, "b")])
        [tensor([1, 2]), ['a', 'b']]
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch), 0)
    if isinstance(first, (np.ndarray, np.generic)) and not isinstance(first, (np.str_, np.bytes_)):
        return creation.from_array(_stacked(batch), creation.chosen_device(None))
    if isinstance(first, float):
        return creation.tensor(list(batch), dtype=dtypes.float64)
    if isinstance(first, (int, complex)):
        return creation.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        columns = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return _like(first, columns)
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            lengths = sorted({len(sample) for sample in batch})
            raise ValueError(f"default_collate: sequences at one place must have one length, got {lengths}")
        columns_in_order = [default_collate(column) for column in zip(*batch, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*columns_in_order)
        return columns_in_order
    raise TypeError(
        "default_collate: samples may be made of tensors, numpy arrays, numbers, strings, mappings and sequences, "
        f"not {type(first).__name__}; pass a collate_fn"
    )


def _stacked(arrays: Sequence[Any]) -> Any:
    shapes = {np.shape(array) for array in arrays}
    if len(shapes) > 1:
        found = ", ".join(str(list(shape)) for shape in sorted(shapes))
        raise ValueError(f"default_collate: arrays at one place must have one shape, got {found}")
    stacked = np.stack(arrays)
    dtypes.from_numpy(stacked.dtype)  # raises for a dtype that no tensor can have
    return stacked if stacked.dtype.isnative else stacked.astype(stacked.dtype.newbyteorder("="))


def _like(mapping: Any, columns: dict[Any, Any]) -> Any:
    """Return the columns as a mapping of the class of `mapping`, if that can be made from a dict; else as a dict."""
    try:
        return type(mapping)(columns)
    except TypeError:
        return columns


def default_convert(data: Any) -> Any:
    """Turn numpy's arrays and scalars in one sample into tensors, also in mappings, tuples and lists; keep the rest.

    Arrays of strings or objects are kept.

    Raises:
        TypeError: for an array or scalar of another dtype that no tensor can have.

    Example:
        >>> import numpy
        >>> flow.utils.data.default_convert((numpy.array([1, 2]), "a"))
        (tensor([1, 2]), 'a')
    """
    if isinstance(data, np.ndarray) and data.dtype.kind not in "SUO":
        return creation.tensor(data)
    if isinstance(data, np.generic) and not isinstance(data, (np.str_, np.bytes_)):
        return creation.tensor(data)
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        converted = [default_convert(datum) for datum in data]
        return type(data)(*converted) if hasattr(data, "_fields") else tuple(converted)
    if isinstance(data, list):
        return [default_convert(datum) for datum in data]
    return data
