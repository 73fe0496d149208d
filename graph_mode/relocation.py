"""What a job is on another device than the one that it was recorded on."""

from __future__ import annotations

from typing import Any, Final

import attrs

from vmflow.devices import device as Device
from vmflow.instructions.blob import TensorMeta, meta

from .job import Buffer, Job, JobOp, Operand

_HOST: Final = Device("cpu")


def device_of(job: Job) -> Device:
    """Where it runs: on the CPU, or on one device beside that.

    Raises:
        ValueError: if it runs on several.
    """
    found = sorted({buffer.meta.device for buffer in job.buffers.values()} - {_HOST}, key=str)
    if len(found) > 1:
        raise ValueError(
            f"it runs on {' and '.join(map(str, found))}, and map_location can put a graph of one device on another; "
            "leave it out"
        )
    return found[0] if found else _HOST


def relocated(job: Job, old: Device, new: Device) -> Job:
    """The same job with one device in place of another."""

    def operand(it: Operand) -> Operand:
        return attrs.evolve(it, meta=moved(it.meta, old, new))

    def op(it: JobOp) -> JobOp:
        inputs, outputs = [tuple([operand(one) for one in several]) for several in (it.inputs, it.outputs)]
        attributes = moved(it.attributes, old, new)
        if it.kind == "transfer" and inputs[0].meta.device is outputs[0].meta.device:
            # Nothing is moved any more: what is left is the copy, as `clone` makes it.
            return attrs.evolve(it, op="cast", kind="call", inputs=inputs, outputs=outputs, attributes=attributes)
        return attrs.evolve(it, inputs=inputs, outputs=outputs, attributes=attributes)

    def buffer(it: Buffer) -> Buffer:
        return attrs.evolve(it, meta=moved(it.meta, old, new))

    return attrs.evolve(
        job,
        buffers={number: buffer(it) for number, it in job.buffers.items()},
        ops=tuple([op(it) for it in job.ops]),
    )


def moved(value: Any, old: Device, new: Device) -> Any:
    """A device, the meta of a tensor or an op's attribute, with one device in place of another."""
    if isinstance(value, Device):
        return new if value is old else value
    if isinstance(value, TensorMeta):
        return meta(value.shape, value.dtype, new) if value.device is old else value
    if not isinstance(value, tuple):
        return value
    parts = [moved(it, old, new) for it in value]
    if all([part is it for part, it in zip(parts, value, strict=True)]):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
