"""Running instructions: arrays in and out, failures passed on, memory given back, whole builds."""

from __future__ import annotations

import gc
import logging
import random
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vmflow as flow
from tests.support import weak_storage
from vmflow.errors import InternalError, VirtualMachineClosed
from vmflow.instructions import (
    AccessBlobByCallback,
    Blob,
    Dependence,
    Failure,
    Instruction,
    InstructionsBuilder,
    ReleaseTensor,
    Storage,
    op_call,
    physical_run,
)
from vmflow.instructions.blob import meta
from vmflow.streams import ControlStreamPolicy, CpuStreamPolicy, Stream
from vmflow.vm import VirtualMachine

CPU = flow.device("cpu")

Array = NDArray[Any]


def fresh(*shape: int, dtype: flow.dtype = flow.float64) -> Blob:
    """A blob whose storage was never written."""
    return Blob(Storage(), meta(shape, dtype, CPU))


def filled(values: Any, dtype: flow.dtype = flow.float64) -> Blob:
    array = np.array(values, dtype.numpy)
    return Blob(Storage(None, array), meta(array.shape, dtype, CPU))


def part(whole: Blob, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Blob:
    return Blob(whole.storage, meta(shape, whole.meta.dtype, CPU), strides, offset)


def failed(blob: Blob, error: BaseException | None = None) -> Blob:
    """Poison its storage, as if somebody had looked already."""
    blob.storage.failure = Failure(error or ValueError("spoiled"))
    blob.storage.failure.observed = True
    return blob


def never(*arguments: Any) -> Any:
    raise AssertionError("the kernel must not be called")


# OpCall: one result


def test_all_threads_get_the_same_dependence_of_a_storage() -> None:
    storages = [Storage() for _ in range(300)]
    begin = threading.Barrier(4)

    def ask() -> list[Dependence]:
        begin.wait()
        return [storage.dependence for storage in storages]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = [value.result() for value in [pool.submit(ask) for _ in range(4)]]
    finally:
        sys.setswitchinterval(before)
    for each, *others in zip(*found, strict=True):
        assert all(other is each for other in others)


def test_the_dependence_of_a_storage_belongs_to_its_machine() -> None:
    one, other = object(), object()
    storage = Storage(one)
    assert storage.dependence.machine is one
    moved = Dependence(other)
    storage.take_over(None, moved, None, deque())
    assert storage.machine is other
    assert storage.dependence is moved


def test_a_small_result_is_allocated_by_the_kernel() -> None:
    given: list[Any] = []
    made = np.array([5.0, 7.0])

    def kernel(*arguments: Any) -> Array:
        given.extend(arguments)
        return made

    first, second, output = filled([1.0, 2.0]), filled([3.0, 4.0]), fresh(2)
    op_call("it", kernel, (first, second), (output,), (10, 2.5)).compute()
    assert given[0] is first.storage.array
    assert given[1] is second.storage.array
    assert given[2:] == [10, 2.5, None]
    assert output.storage.array is made


def test_a_large_result_is_written_into_memory_allocated_for_it() -> None:
    x, output = filled(np.arange(10_000.0)), fresh(10_000)
    outs: list[Array] = []

    def kernel(x: Array, out: Array) -> Array:
        outs.append(out)
        return np.negative(x, out=out)

    op_call("neg", kernel, (x,), (output,)).compute()
    assert output.storage.array is outs[0]
    np.testing.assert_array_equal(output.array(), -np.arange(10_000.0))


def test_a_result_in_place_keeps_its_memory() -> None:
    x = filled([1.0, 2.0, 3.0])
    memory = x.storage.array
    op_call("add", np.add, (x, x), (x,)).compute()
    assert x.storage.array is memory
    assert x.array().tolist() == [2.0, 4.0, 6.0]


def test_another_array_than_the_destination_is_copied() -> None:
    x = filled([1.0, 2.0, 3.0])
    memory = x.storage.array
    op_call("reverse", lambda x, out: x[::-1].copy(), (x,), (x,)).compute()
    assert x.storage.array is memory
    assert x.array().tolist() == [3.0, 2.0, 1.0]


def test_a_result_of_a_narrower_dtype_is_cast_into_the_destination() -> None:
    x = filled([1, 2, 3], flow.uint8)
    op_call("add", lambda x, y, out: x.astype(np.int64) + y, (x, filled([10, 20, 30], flow.int64)), (x,)).compute()
    assert x.array().dtype == np.uint8
    assert x.array().tolist() == [11, 22, 33]


@pytest.mark.parametrize("as_scalar", [True, False])
def test_a_result_without_dimensions_is_an_array(as_scalar: bool) -> None:
    output = fresh()

    def kernel(x: Array, out: Array | None) -> Any:
        return np.float64(x.sum()) if as_scalar else np.asarray(x.sum())

    op_call("sum", kernel, (filled([1.0, 2.0]),), (output,)).compute()
    array = output.storage.array
    assert isinstance(array, np.ndarray)
    assert array.shape == ()
    assert array.dtype == np.float64
    assert array[()] == 3.0


def test_a_result_without_dimensions_in_place() -> None:
    x = filled(2.0)
    op_call("mul", np.multiply, (x, x), (x,)).compute()
    assert x.array() == 4.0


def test_strided_inputs_give_a_contiguous_result() -> None:
    x = filled([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    turned = part(x, (3, 2), (1, 3))
    output = fresh(3, 2)
    op_call("neg", np.negative, (turned,), (output,)).compute()
    assert output.array().flags.c_contiguous, "numpy itself would have chosen the inputs' layout"
    assert output.array().tolist() == [[-1, -4], [-2, -5], [-3, -6]]


def test_broadcast_and_offset_inputs() -> None:
    x = filled([1.0, 2.0, 3.0, 4.0])
    rows = part(x, (2, 2), (0, 1), 2)
    output = fresh(2, 2)
    op_call("add", np.add, (rows, part(x, (2, 2), (2, 1))), (output,)).compute()
    assert output.array().tolist() == [[4, 6], [6, 8]]


def test_a_part_is_written_alone() -> None:
    x = filled([[1.0, 2.0], [3.0, 4.0]])
    column = part(x, (2,), (2,), 1)
    op_call("neg", np.negative, (column,), (column,)).compute()
    assert x.array().tolist() == [[1, -2], [3, -4]]


def test_overlapping_parts_of_one_storage() -> None:
    """As if the inputs were read as a whole before anything is written."""
    x = filled([1.0, 2.0, 3.0, 4.0])
    op_call("add", np.add, (part(x, (3,), (1,), 1), part(x, (3,), (1,))), (part(x, (3,), (1,), 1),)).compute()
    assert x.array().tolist() == [1, 3, 5, 7]


def test_no_elements() -> None:
    x = filled(np.empty((0, 3)))
    output = fresh(3, 0)
    op_call("neg", np.negative, (part(x, (3, 0), (1, 3)),), (output,)).compute()
    assert output.array().shape == (3, 0)


def test_an_op_without_inputs() -> None:
    output = fresh(3)
    op_call("fill", lambda value, out: np.full(3, value), (), (output,), (7.0,)).compute()
    assert output.array().tolist() == [7, 7, 7]


def test_bfloat16_through_a_view() -> None:
    x = filled([1.0, 2.0, 3.0, 4.0], flow.bfloat16)
    odd = part(x, (2,), (2,), 1)
    op_call("add", np.add, (odd, odd), (odd,)).compute()
    assert x.array().astype(np.float32).tolist() == [1, 4, 3, 8]


# OpCall: several results


def test_several_results_into_fresh_storages() -> None:
    outputs = fresh(2), fresh(2, dtype=flow.int64)
    given: list[Any] = []

    def kernel(x: Array, out: Any) -> tuple[Array, ...]:
        given.append(out)
        return np.sort(x), np.argsort(x)

    op_call("sort", kernel, (filled([2.0, 1.0]),), outputs, several=True).compute()
    assert given == [None]
    assert outputs[0].array().tolist() == [1, 2]
    assert outputs[1].array().tolist() == [1, 0]


def test_several_results_are_made_contiguous() -> None:
    outputs = fresh(3, 2), fresh()

    def kernel(x: Array, out: Any) -> tuple[Any, ...]:
        return (x * 2).T, x.sum()

    op_call("turn", kernel, (filled([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),), outputs, several=True).compute()
    assert outputs[0].array().flags.c_contiguous
    assert outputs[0].array().tolist() == [[2, 8], [4, 10], [6, 12]]
    assert outputs[1].array().shape == ()
    assert outputs[1].array() == 21


@pytest.mark.parametrize("own", [True, False])
def test_several_results_into_existing_memory(own: bool) -> None:
    """Either written by the kernel where they belong, or returned in arrays of its own."""
    first, second = filled([0.0, 0.0]), filled([[9.0, 9.0], [9.0, 9.0]])
    column = part(second, (2,), (2,))
    memory = first.storage.array

    def kernel(x: Array, out: tuple[Array, Array]) -> tuple[Array, Array]:
        if own:
            return x + 1, x + 2
        np.add(x, 1, out[0])
        np.add(x, 2, out[1])
        return out

    op_call("two", kernel, (filled([1.0, 2.0]),), (first, column), several=True).compute()
    assert first.storage.array is memory
    assert first.array().tolist() == [2, 3]
    assert second.array().tolist() == [[3, 9], [4, 9]]


def test_a_kernel_that_returns_too_few_results_fails() -> None:
    outputs = fresh(1), fresh(1)
    with pytest.raises(ValueError, match="zip"):
        op_call("two", lambda out: (np.ones(1),), (), outputs, several=True).compute()


# OpCall: poison


def test_a_failure_among_the_inputs_is_handed_on_to_every_output() -> None:
    bad = failed(fresh(2))
    outputs = fresh(2), filled([1.0, 2.0])
    op_call("it", never, (filled([1.0, 2.0]), bad), outputs, several=True).compute()
    assert outputs[0].storage.failure is outputs[1].storage.failure is bad.storage.failure


def test_of_two_failures_the_first_is_handed_on() -> None:
    first, second, output = failed(fresh(2)), failed(fresh(2)), fresh(2)
    op_call("it", never, (first, second), (output,)).compute()
    assert output.storage.failure is first.storage.failure


def test_a_poisoned_view_is_as_bad_as_the_whole() -> None:
    bad, output = failed(fresh(2, 2)), fresh(2)
    op_call("it", never, (part(bad, (2,), (2,)),), (output,)).compute()
    assert output.storage.failure is bad.storage.failure


def test_an_in_place_op_does_not_mend_its_failed_operand() -> None:
    x = failed(filled([1.0, 2.0]))
    failure = x.storage.failure
    op_call("add", never, (x, filled([1.0, 2.0])), (x,)).compute()
    assert x.storage.failure is failure


@pytest.mark.parametrize("had_memory", [True, False])
def test_a_write_of_the_whole_mends(had_memory: bool) -> None:
    x = failed(filled([1.0, 2.0]) if had_memory else fresh(2))
    op_call("copy", np.positive, (filled([3.0, 4.0]),), (x,)).compute()
    assert x.storage.failure is None
    assert x.array().tolist() == [3, 4]


@pytest.mark.parametrize("had_memory", [True, False])
def test_a_write_of_a_part_does_not_mend(had_memory: bool) -> None:
    x = failed(filled([1.0, 2.0]) if had_memory else fresh(2))
    failure = x.storage.failure
    op_call("copy", never, (filled([3.0]),), (part(x, (1,), (1,)),)).compute()
    assert x.storage.failure is failure
    assert had_memory or x.storage.array is None, "the part must not pass for the whole"


@pytest.mark.parametrize("had_memory", [True, False])
def test_of_several_results_a_whole_one_mends_and_a_part_does_not(had_memory: bool) -> None:
    whole = failed(filled([1.0, 2.0]) if had_memory else fresh(2))
    broken = failed(filled([1.0, 2.0]) if had_memory else fresh(2))
    failure = broken.storage.failure

    def kernel(x: Array, out: Any) -> tuple[Array, Array]:
        return x + 1, x[:1]

    outputs = whole, part(broken, (1,), (1,), 1)
    op_call("two", kernel, (filled([3.0, 4.0]),), outputs, several=True).compute()
    assert whole.storage.failure is None
    assert whole.array().tolist() == [4, 5]
    assert broken.storage.failure is failure
    assert had_memory or broken.storage.array is None


def test_fail_poisons_every_output() -> None:
    outputs = fresh(1), filled([1.0])
    failure = Failure(ValueError("no"))
    failure.observed = True
    op_call("it", never, (), outputs, several=True).fail(failure)
    assert outputs[0].storage.failure is outputs[1].storage.failure is failure


def test_a_part_of_a_storage_that_was_never_written_is_an_error() -> None:
    with pytest.raises(InternalError, match=r"float64\[1\].*part of a storage that was never written as a whole"):
        op_call("copy", np.positive, (filled([3.0]),), (part(fresh(2), (1,), (1,)),)).compute()


def test_description() -> None:
    described = op_call("add", never, (filled([[1.0]]), filled(1, flow.int32)), (fresh(1, 1),), (2.5,)).describe()
    assert described == "add(float64[1, 1], int32[], 2.5) -> float64[1, 1] on cpu"


# AccessBlobByCallback


def test_a_const_access_sees_the_array_itself() -> None:
    x = filled([1.0, 2.0])
    seen: list[Array] = []
    AccessBlobByCallback(x, seen.append).compute()
    assert seen[0] is x.storage.array
    AccessBlobByCallback(part(x, (1,), (1,), 1), seen.append, "const").compute()
    assert seen[1].tolist() == [2.0]
    assert np.shares_memory(seen[1], seen[0])


def test_a_const_access_to_a_failure_is_left_out() -> None:
    AccessBlobByCallback(failed(filled([1.0])), never).compute()
    AccessBlobByCallback(failed(fresh(1)), never).compute()


def test_a_mut_access_writes_allocates_and_mends() -> None:
    existing, new = failed(filled([1.0, 2.0])), failed(fresh(2))
    for blob in (existing, new):
        AccessBlobByCallback(blob, lambda array: array.fill(7), "mut").compute()
        assert blob.storage.failure is None
        assert blob.array().tolist() == [7, 7]


def test_a_mut_access_to_a_part() -> None:
    x = filled([1.0, 2.0, 3.0])
    AccessBlobByCallback(part(x, (2,), (2,)), lambda array: array.fill(7), "mut").compute()
    assert x.array().tolist() == [7, 2, 7]


@pytest.mark.parametrize("had_memory", [True, False])
def test_a_mut_access_to_a_part_of_a_failure_is_left_out(had_memory: bool) -> None:
    x = failed(filled([1.0, 2.0]) if had_memory else fresh(2))
    failure = x.storage.failure
    AccessBlobByCallback(part(x, (1,), (1,)), never, "mut").compute()
    assert x.storage.failure is failure
    assert had_memory or x.storage.array is None


def test_a_failed_mut_access_poisons_and_a_failed_const_access_does_not() -> None:
    x = filled([1.0])
    failure = Failure(ValueError("no"))
    failure.observed = True
    AccessBlobByCallback(x, never).fail(failure)
    assert x.storage.failure is None
    AccessBlobByCallback(x, never, "mut").fail(failure)
    assert x.storage.failure is failure


def test_access_modifiers() -> None:
    with pytest.raises(ValueError, match="modifier must be 'const' or 'mut', not 'mut2'"):
        AccessBlobByCallback(fresh(1), never, "mut2")
    assert AccessBlobByCallback(fresh(1), never, "mut").describe() == "access_blob_by_callback(float64[1], mut)"


# On a machine


@pytest.fixture(params=["never", "always"])
def machine(request: pytest.FixtureRequest) -> Iterator[VirtualMachine]:
    machine = VirtualMachine("policies", cpu_worker=request.param, gather=32)
    yield machine
    machine.drain()
    machine.engine.check_invariants()
    assert machine.engine.idle()
    machine.close()


def run(machine: VirtualMachine, build: Callable[[InstructionsBuilder], Instruction]) -> None:
    machine.wait(physical_run(machine, build))


def test_accesses_come_in_their_turn(machine: VirtualMachine) -> None:
    x = filled([0.0])
    seen: list[float] = []

    def build(builder: InstructionsBuilder) -> Instruction:
        for value in (1.0, 2.0, 3.0):
            builder.access_blob_by_callback(x, lambda array, value=value: array.fill(value), "mut")  # type: ignore[misc]
            last = builder.access_blob_by_callback(x, lambda array: seen.append(array.item()))
        return last

    run(machine, build)
    assert seen == [1, 2, 3]


def test_a_mut_callback_that_raises_poisons(machine: VirtualMachine) -> None:
    x = filled([0.0])

    def raising(array: Array) -> None:
        raise ZeroDivisionError("in the callback")

    run(machine, lambda builder: builder.access_blob_by_callback(x, raising, "mut"))
    failure = x.storage.failure
    assert failure is not None
    with pytest.raises(ZeroDivisionError, match="in the callback") as caught:
        failure.throw()
    assert "while running access_blob_by_callback(float64[1], mut)" in caught.value.__notes__
    assert "test_policies.py" in caught.value.__notes__[1]


def test_a_const_callback_that_raises_is_reported_and_spoils_nothing(
    machine: VirtualMachine, caplog: pytest.LogCaptureFixture
) -> None:
    x = filled([5.0])

    def raising(array: Array) -> None:
        raise ZeroDivisionError("in the callback")

    run(machine, lambda builder: builder.access_blob_by_callback(x, raising))
    run(machine, lambda builder: builder.op_call("neg", np.negative, (x,), (x,)))
    assert x.array().tolist() == [-5]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_release_drops_memory_behind_the_readers(machine: VirtualMachine) -> None:
    x, outputs = filled(np.arange(5.0)), [fresh(5) for _ in range(4)]
    memory = weakref.ref(x.storage.array)

    def build(builder: InstructionsBuilder) -> Instruction:
        for output in outputs:
            builder.op_call("neg", np.negative, (x,), (output,))
        builder._add(machine.stream(CPU), ReleaseTensor(x.storage), writes=[x.storage])
        return builder.op_call("copy", np.positive, (outputs[0],), (fresh(5),))

    run(machine, build)
    machine.drain()
    assert x.storage.array is None
    assert memory() is None
    assert all(output.array().tolist() == [0, -1, -2, -3, -4] for output in outputs)


def test_release_forgets_a_failure() -> None:
    x = failed(filled([1.0]))
    failure = x.storage.failure
    assert failure is not None
    gone = weakref.ref(failure)
    del failure
    ReleaseTensor(x.storage).compute()
    assert x.storage.failure is None
    assert x.storage.array is None
    assert gone() is None


# physical_run


def test_a_build_that_raises_issues_nothing(machine: VirtualMachine) -> None:
    x, before = filled([1.0]), machine.engine.total_inserted
    run(machine, lambda builder: builder.op_call("neg", np.negative, (x,), (x,)))
    writer = x.storage.writer
    output = fresh(1)

    def build(builder: InstructionsBuilder) -> None:
        builder.op_call("neg", never, (x,), (x,))
        builder.op_call("neg", never, (x,), (output,))
        raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        physical_run(machine, build)
    machine.drain()
    assert x.storage.writer is writer
    assert output.storage.writer is None
    assert output.storage.settled()
    assert x.array().tolist() == [-1]
    names = [detail.split()[0] for event, _, detail in machine.engine.story.events() if event == "launched"]
    assert names.count("neg") == 1
    assert machine.engine.total_inserted - before == names.count("neg") + names.count("global_sync")


def test_the_result_of_build_is_returned(machine: VirtualMachine) -> None:
    assert physical_run(machine, lambda builder: "anything") == "anything"


def test_writers_are_the_last_in_program_order(machine: VirtualMachine) -> None:
    x, y = filled([1.0]), fresh(1)

    def build(builder: InstructionsBuilder) -> tuple[Instruction, ...]:
        first = builder.op_call("neg", np.negative, (x,), (x,))
        second = builder.op_call("neg", np.negative, (x,), (y,))
        third = builder.access_blob_by_callback(x, lambda array: array.fill(9), "mut")
        builder.access_blob_by_callback(x, lambda array: None)
        return first, second, third

    _, second, third = physical_run(machine, build)
    machine.wait(second)
    machine.wait(third)
    machine.drain()
    assert (x.array().item(), y.array().item()) == (9, 1)
    assert x.storage.settled()
    assert y.storage.settled()


def test_a_closed_machine_refuses_all_and_nothing_waits_for_ever() -> None:
    machine = VirtualMachine("closed")
    outputs = fresh(1), fresh(1), fresh(1)
    machine.close()

    def build(builder: InstructionsBuilder) -> None:
        for output in outputs:
            builder.op_call("fill", never, (), (output,))

    with pytest.raises(VirtualMachineClosed, match="fill was issued to the virtual machine 'closed', which is closed"):
        physical_run(machine, build)
    for output in outputs:
        assert output.storage.settled()
        assert output.storage.failure is None, "nothing was changed"


class Recorder:
    """A machine that only notes its instructions, and is interrupted as it accepts the first."""

    def __init__(self) -> None:
        self.issued: list[Instruction] = []

    def stream(self, device: flow.device, kind: str = "compute") -> Stream:
        return Stream("recorder", device, CpuStreamPolicy())

    def control_stream(self) -> Stream:
        return Stream("control", None, ControlStreamPolicy())

    def access(self, storage: Storage, stream: Stream) -> Dependence:
        return storage.dependence

    def require_open(self, name: str) -> None:
        """It always is."""

    def issue(self, instruction: Instruction, written: Storage | None = None) -> None:
        self.issued.append(instruction)
        if len(self.issued) == 1:
            raise KeyboardInterrupt


def test_an_interrupt_does_not_leave_half_of_a_build_behind() -> None:
    recorder = Recorder()
    outputs = fresh(1), fresh(1), fresh(1)

    def build(builder: InstructionsBuilder) -> None:
        for output in outputs:
            builder.op_call("fill", never, (), (output,))

    with pytest.raises(KeyboardInterrupt):
        physical_run(recorder, build)
    assert [output.storage.writer for output in outputs] == recorder.issued


# Failure


def _failure(error: BaseException) -> Failure:
    """A failure as the machine makes it, out of a kernel's frame."""

    def kernel(array: Array) -> None:
        raise error

    def compute() -> None:
        kernel(np.zeros(3))

    try:
        compute()
    except type(error) as caught:
        return Failure(caught)
    raise AssertionError


@pytest.fixture
def _no_collection() -> Iterator[None]:
    """Objects must be freed by reference counting, immediately."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collection")
def test_a_failure_nobody_looked_at_is_reported_once_when_the_last_holder_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = fresh(1), fresh(1)
    first.storage.failure = second.storage.failure = _failure(ValueError("unseen"))
    del first
    assert caplog.records == []
    del second
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("vmflow", logging.ERROR)
    assert record.getMessage() == "the result of a failed instruction was never looked at"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "unseen"
    assert "in kernel" in caplog.text, "with the lines where it happened"


@pytest.mark.usefixtures("_no_collection")
def test_a_failure_somebody_looked_at_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    failure = _failure(ValueError("seen"))
    with pytest.raises(ValueError, match="seen"):
        failure.throw()
    del failure
    gc.collect()
    assert caplog.records == []


def test_reporting_twice_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    failure = _failure(ValueError("unseen"))
    failure.report()
    failure.report()
    del failure
    gc.collect()
    assert len(caplog.records) == 1


@pytest.mark.usefixtures("_no_collection")
def test_a_failure_holds_lines_and_no_frames() -> None:
    """Frames would hold arrays, their callers, and through these the failure itself."""
    failure = _failure(ValueError("no"))
    failure.observed = True
    names = []
    trace = failure.origin
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        assert trace.tb_frame.f_code.co_filename == __file__
        assert trace.tb_frame.f_locals == {}
        assert trace.tb_frame.f_back is None
        trace = trace.tb_next
    assert names == ["compute", "kernel"], "without the lines of the driver"
    gone = weakref.ref(failure)
    del failure, trace
    assert gone() is None


@pytest.mark.usefixtures("_no_collection")
def test_a_failed_op_frees_its_inputs_and_is_reported_immediately(caplog: pytest.LogCaptureFixture) -> None:
    x = flow.ones(3)
    indices = flow.tensor([7])
    y = x[indices]
    flow.synchronize()
    memory = weak_storage(x)
    del x
    assert memory() is None, "the failure in y does not keep the op's inputs"
    assert caplog.records == []
    del y
    assert len(caplog.records) == 1


def test_a_failure_is_raised_as_the_original_exception_each_time() -> None:
    error = ValueError("no")
    failure = _failure(error)
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="no") as caught:
            failure.throw()
        assert caught.value is error
        depth, trace = 0, caught.value.__traceback__
        while trace is not None:
            depth, trace = depth + 1, trace.tb_next
        depths.append(depth)
    assert len(set(depths)) == 1, "raising again starts from the lines where it happened"


def test_a_failure_of_an_exception_that_was_never_raised() -> None:
    failure = Failure(ValueError("made up"))
    assert failure.origin is None
    with pytest.raises(ValueError, match="made up"):
        failure.throw()


def test_a_failure_forgets_the_exception_that_its_driver_was_handling() -> None:
    """A waiter in an except block drives, and its exception is unrelated to the kernel's."""
    outer = KeyError("the caller's own trouble")
    try:
        raise outer
    except KeyError:
        failure = _failure(ValueError("in the kernel"))
    assert outer.__traceback__ is not None
    assert outer.__traceback__.tb_frame.f_locals["outer"] is outer, "it is the caller's, and is left alone"
    assert failure.error.__context__ is None
    failure.observed = True


@pytest.mark.usefixtures("_no_collection")
def test_a_failure_keeps_the_exception_that_it_was_raised_from() -> None:
    arrays: list[weakref.ref[Array]] = []

    def inner(array: Array) -> None:
        arrays.append(weakref.ref(array))
        raise KeyError("deeper")

    def kernel() -> None:
        try:
            inner(np.zeros(3))
        except KeyError as error:
            raise ValueError("in the kernel") from error

    try:
        kernel()
    except ValueError as error:
        failure = Failure(error)
    cause = failure.error.__cause__
    assert isinstance(cause, KeyError)
    assert cause is failure.error.__context__
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_next is not None
    assert cause.__traceback__.tb_next.tb_frame.f_code.co_name == "inner"
    assert arrays[0]() is None
    failure.observed = True


# Random programs with failures, compared with a model


@pytest.mark.parametrize("tens", range(6))
def test_random_programs_with_failures(tens: int, machine: VirtualMachine) -> None:
    """Each storage holds the expected numbers, or the failure that spoiled it first."""
    for seed in range(10 * tens, 10 * tens + 10):
        _random_program_with_failures(random.Random(seed), machine)


Model = list[list[float] | BaseException]


def _random_program_with_failures(choose: random.Random, machine: VirtualMachine) -> None:
    blobs = [filled([float(number), number + 0.5]) for number in range(4)]
    model: Model = [blob.array().tolist() for blob in blobs]

    def build(builder: InstructionsBuilder) -> None:
        for step in range(40):
            target, source, other = (choose.randrange(4) for _ in range(3))
            kind = choose.choices((_add, _fill, _negate_part, _raise), (6, 3, 4, 1))[0]
            kind(builder, blobs, model, target, source, other, step)

    physical_run(machine, build)
    machine.drain()
    for blob, expected in zip(blobs, model, strict=True):
        failure = blob.storage.failure
        if isinstance(expected, BaseException):
            assert failure is not None
            assert failure.error is expected
            failure.observed = True
        else:
            assert failure is None
            assert blob.array().tolist() == expected


def _add(
    builder: InstructionsBuilder, blobs: list[Blob], model: Model, target: int, source: int, other: int, step: int
) -> None:
    builder.op_call("add", np.add, (blobs[source], blobs[other]), (blobs[target],))
    first, second = model[source], model[other]
    if isinstance(first, BaseException):
        model[target] = first
    elif isinstance(second, BaseException):
        model[target] = second
    else:
        model[target] = [a + b for a, b in zip(first, second, strict=True)]


def _fill(
    builder: InstructionsBuilder, blobs: list[Blob], model: Model, target: int, source: int, other: int, step: int
) -> None:
    builder.op_call("fill", lambda value, out: np.full(2, value), (), (blobs[target],), scalars=(float(step),))
    model[target] = [float(step)] * 2


def _negate_part(
    builder: InstructionsBuilder, blobs: list[Blob], model: Model, target: int, source: int, other: int, step: int
) -> None:
    """One half of the target becomes minus the other half of the source."""
    half = step % 2
    read, written = part(blobs[source], (1,), (1,), 1 - half), part(blobs[target], (1,), (1,), half)
    builder.op_call("neg", np.negative, (read,), (written,))
    given, before = model[source], model[target]
    if isinstance(given, BaseException):
        model[target] = given
    elif not isinstance(before, BaseException):
        model[target] = [before[0], -given[0]] if half else [-given[1], before[1]]


def _raise(
    builder: InstructionsBuilder, blobs: list[Blob], model: Model, target: int, source: int, other: int, step: int
) -> None:
    error = ValueError(f"step {step}")

    def kernel(*arguments: Any) -> Any:
        raise error

    builder.op_call("raise", kernel, (blobs[source],), (blobs[target],))
    given = model[source]
    model[target] = given if isinstance(given, BaseException) else error


def test_a_failure_in_code_that_belongs_to_no_line_keeps_the_error() -> None:
    """The compiler makes some up, and Ctrl-C may come there."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    code = interrupted.__code__
    units = len(code.co_code) // 2
    # By entries of eight instructions that have no place in the source.
    nowhere = FunctionType(code.replace(co_linetable=b"\xff" * (units // 8) + bytes([0xF8 | (units % 8 - 1) % 8])), {})
    with pytest.raises(KeyboardInterrupt) as raised:
        nowhere()
    assert [number for _, number in traceback.walk_tb(raised.tb)][-1] is None
    with pytest.raises(KeyboardInterrupt):
        Failure(raised.value).throw()
