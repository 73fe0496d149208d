"""`Variables`: the memory of the variables that a job was built with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from vmflow.instructions.blob import Blob, Storage
from vmflow.tensor_fields import TensorFields, blob_of
from vmflow.tensors import Tensor

from .job import Job


@final
class Variables:
    """The memory of a job's variables, valid until ``tensor.data`` of one of them changes.

    Args:
        bindings: by buffer, the tensors outside.
        job: the job of the variables.
        changed: the buffers that the job writes.

    Attributes:
        storages: by buffer.
        written: the storages that the job changes; their blobs are `written_blobs`.
        read: the storages that the job only reads; their blobs are `read_blobs`.
        changed: `written`, as a set.
        held: the tensors with their blobs when this was made; see `still_have`.

    Raises:
        ValueError: if a tensor's shape, dtype, device or layout has changed since the graph was built.
    """

    def __init__(self, bindings: dict[int, Tensor], job: Job, changed: frozenset[int]) -> None:
        self.held: list[tuple[TensorFields, Blob]] = [(tensor, blob_of(tensor)) for tensor in bindings.values()]
        for number, (_, blob) in zip(bindings, self.held, strict=True):
            _check_variable(job, number, blob)
        blobs = {number: blob for number, (_, blob) in zip(bindings, self.held, strict=True)}
        self.storages: Mapping[int, Storage] = {number: blob.storage for number, blob in blobs.items()}
        self.written_blobs = tuple([blob for number, blob in blobs.items() if number in changed])
        self.read_blobs = tuple([blob for number, blob in blobs.items() if number not in changed])
        self.written = [blob.storage for blob in self.written_blobs]
        self.read = [blob.storage for blob in self.read_blobs]
        self.changed = frozenset(self.written)


def _check_variable(job: Job, number: int, blob: Blob) -> None:
    buffer = job.buffers[number]
    old, new = buffer.meta, blob.meta
    name = f"{job.name}: {buffer.name or 'a tensor'}"
    again = "close() the graph, so that its next call builds it again"
    if (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        raise ValueError(
            f"{name} was {old!r} on {old.device} when the graph was built, and is now {new!r} on {new.device}; {again}"
        )
    if blob.strides is not None:
        raise ValueError(f"{name} has become a view of another tensor, which a built graph cannot see; {again}")
