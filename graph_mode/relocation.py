"""Moves a job to another device than the one on which it was recorded."""

from __future__ import annotations

from typing import Any, Final

import attrs

from vmflow.devices import device as Device
from vmflow.instructions.blob import TensorMeta, meta

from .job import Buffer, Job, JobOp, Operand

_HOST: Final = Device("cpu")


def device_of(job: Job) -> Device:
    """The device of a job: the CPU, or the only other device.

    Raises:
        ValueError: if there are several others.
    """
    devices = sorted({buffer.meta.device for buffer in job.buffers.values()} - {_HOST}, key=str)
    if len(devices) > 1:
        raise ValueError(
            f"the job runs on {' and '.join(map(str, devices))}, but map_location can only move a graph of one device; "
            "leave it out"
        )
    return devices[0] if devices else _HOST


def relocated(job: Job, old: Device, new: Device) -> Job:
    """The job with the device `new` in place of `old`."""

    def moved_operand(operand: Operand) -> Operand:
        return attrs.evolve(operand, meta=moved(operand.meta, old, new))

    def moved_op(op: JobOp) -> JobOp:
        inputs = tuple([moved_operand(operand) for operand in op.inputs])
        outputs = tuple([moved_operand(operand) for operand in op.outputs])
        attributes = moved(op.attributes, old, new)
        if op.kind == "transfer" and {operand.meta.device for operand in (*inputs, *outputs)} == {new}:
            # Both devices are the same now, so that the transfer becomes a copy, as by `clone`.
            return attrs.evolve(op, op="cast", kind="call", inputs=inputs, outputs=outputs, attributes=attributes)
        return attrs.evolve(op, inputs=inputs, outputs=outputs, attributes=attributes)

    def moved_buffer(buffer: Buffer) -> Buffer:
        return attrs.evolve(buffer, meta=moved(buffer.meta, old, new))

    return attrs.evolve(
        job,
        buffers={number: moved_buffer(buffer) for number, buffer in job.buffers.items()},
        ops=tuple([moved_op(op) for op in job.ops]),
    )


def moved(value: Any, old: Device, new: Device) -> Any:
    """A device, the meta of a tensor or an op's attribute, with the device `new` in place of `old`."""
    if isinstance(value, Device):
        return new if value is old else value
    if isinstance(value, TensorMeta):
        return meta(value.shape, value.dtype, new) if value.device is old else value
    if not isinstance(value, tuple):
        return value
    parts = [moved(part, old, new) for part in value]
    if all([part is before for part, before in zip(parts, value, strict=True)]):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
