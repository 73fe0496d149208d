"""Memory shared with numpy, PyTorch and JAX: its contents, its lifetime, and the order of its uses."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.planted import failed_tensor
from tests.vm.gates import PATIENCE, eager, entered
from vmflow import exchange, nn
from vmflow.instructions.builder import physical_run
from vmflow.utils import dlpack
from vmflow.vm.virtual_machine import VirtualMachine, current_machine

NUMPY_DTYPES = [value for value in flow.dtypes.ALL if value is not flow.bfloat16]
LAYOUTS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "part": lambda x: x[1:, ::2],
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "expanded": lambda x: x[:, :1].expand(3, 5),
    "empty": lambda x: x[:0],
}


def sample(dtype: flow.dtype = flow.float32) -> flow.Tensor:
    return flow.tensor(np.arange(12).reshape(3, 4) % 5, device="cpu").to(dtype)


# numpy reads tensors


@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_numpy_sees_the_memory(dtype: flow.dtype, layout: str) -> None:
    base = sample(dtype)
    seen = LAYOUTS[layout](base)
    array = np.asarray(seen)
    np.testing.assert_array_equal(array, seen.numpy())
    assert array.dtype == dtype.numpy
    assert array.shape == seen.shape
    if array.size:
        assert np.shares_memory(array, base._array())
        assert array.flags.writeable
        array[...] = 1
        assert seen.to(flow.float64).numpy().all() if not dtype.is_complex else seen.numpy().all()


def test_copies_are_made_when_asked_for_and_never_when_forbidden() -> None:
    x = sample()
    assert np.shares_memory(x.__array__(copy=False), x._array())
    for array in (np.array(x), x.__array__(copy=True), np.asarray(x, np.float64), x.numpy()):
        assert not np.shares_memory(array, x._array())
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="cannot be lent to numpy as float64 without a copy"):
        x.__array__(np.float64, copy=False)
    there = x.to("sim")
    assert not hasattr(there, "__array_interface__")
    np.testing.assert_array_equal(np.asarray(there), x.numpy())
    np.testing.assert_array_equal(np.asarray(there, np.int64), x.numpy())
    with pytest.raises(ValueError, match="on sim:0 cannot be lent to numpy"):
        there.__array__(copy=False)


def test_numpy_does_not_read_tensors_that_require_a_gradient() -> None:
    x = flow.ones(2, requires_grad=True)
    for tensor in (x, x * 1, x.to("sim")):
        for read in (np.asarray, np.array, np.sin, np.mean, lambda value: value.__array__(copy=True)):
            with pytest.raises(RuntimeError, match=r"use \.numpy\(\) for a copy of the values, or \.detach\(\)"):
                read(tensor)
    np.testing.assert_array_equal(np.asarray(x.detach()), [1, 1])


def test_a_copy_for_numpy_is_detached_even_if_a_gradient_is_required() -> None:
    x = flow.ones(2, requires_grad=True)
    y = x * 2
    array = y.numpy()
    array[0] = 9
    np.testing.assert_array_equal(x.numpy(), [1, 1])
    np.testing.assert_array_equal(x.numpy(force=True), [1, 1])
    np.testing.assert_array_equal(nn.Parameter(flow.ones(2)).numpy(), [1, 1])
    y.sum().backward()
    assert y.tolist() == [2, 2]
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


def test_numpys_functions_give_arrays_and_operators_do_not_mix() -> None:
    x = flow.tensor([0.0, 1.0], device="cpu")
    sines = np.sin(x)
    assert type(sines) is np.ndarray
    np.testing.assert_allclose(sines, np.sin(np.array([0, 1], np.float32)))
    assert type(np.add(x, np.ones(2))) is np.ndarray
    # These would call methods of the same name, which take other arguments.
    numpy: Any = np
    assert numpy.mean(x, axis=0, keepdims=True).tolist() == [0.5]
    assert numpy.sum(x) == 1
    assert type(numpy.concatenate([x, x])) is np.ndarray
    assert numpy.concatenate((x, np.ones(1, np.float32)), axis=0).tolist() == [0, 1, 1]
    assert numpy.allclose(x, [0, 1])
    assert numpy.clip(a=x, a_min=0.5, a_max=None).tolist() == [0.5, 1]
    with pytest.raises(TypeError, match="add: expected a tensor or a number, got ndarray"):
        np.ones(2, np.float32) + x
    assert type(np.float64(2) * x) is flow.Tensor
    array = np.zeros(2)
    np.add(array, x, out=array)
    np.testing.assert_array_equal(array, [0, 1])


def test_the_other_interfaces() -> None:
    x = sample()
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="on cpu has no __cuda_array_interface__"):
        x.__cuda_array_interface__  # noqa: B018
    interface = x.t().__array_interface__
    assert (interface["shape"], interface["strides"], interface["typestr"]) == ((4, 3), (4, 16), "<f4")
    assert not hasattr(sample(flow.bfloat16), "__array_interface__")


@pytest.mark.host
def test_a_failure_is_raised_where_the_memory_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError, match="planted"):
        np.asarray(failed_tensor())
    with pytest.raises(ZeroDivisionError, match="planted"):
        np.from_dlpack(failed_tensor())


# Its lifetime, and the order of its uses


@pytest.mark.host
@pytest.mark.parametrize("borrow", [np.asarray, np.from_dlpack, lambda x: np.asarray(x.t()).T])
def test_lent_memory_is_not_given_to_anybody_else(borrow: Any) -> None:
    x = flow.randn(300, 400, generator=flow.Generator().manual_seed(1))  # large enough for the allocator
    expected = x.numpy()
    assert x._blob.storage.allocation is not None
    array = borrow(x)
    assert np.shares_memory(array, x._blob.storage.array)
    x.data = flow.zeros(2)  # lets go of the memory as `del` does, but keeps the object
    gc.collect()
    for _ in range(5):
        flow.full((300, 400), 7.0).add_(1).sum().item()
    np.testing.assert_array_equal(array, expected)
    del array
    gc.collect()
    current_machine().drain()


@pytest.mark.host
def test_memory_comes_back_when_the_borrower_lets_go() -> None:
    with entered(VirtualMachine("own")) as machine:
        before = flow.memory_allocated()
        array = np.asarray(flow.ones(300, 400))
        machine.drain()
        assert flow.memory_allocated() - before >= array.nbytes
        del array
        gc.collect()
        # Something has to be lively for a release to be behind.
        flow.ones(3).sum().item()
        machine.drain()
        machine.drain()
        assert flow.memory_allocated() == before


@pytest.mark.host
def test_lent_memory_outlives_its_machine() -> None:
    with entered(VirtualMachine("short")):
        array = np.asarray(flow.full((300, 400), 2.0))
    gc.collect()
    flow.zeros(300, 400).sum().item()
    assert (array == 2).all()


@pytest.mark.host
@pytest.mark.parametrize("borrow", [np.asarray, np.from_dlpack])
def test_lending_waits_for_readers(borrow: Any) -> None:
    seen: list[float] = []
    with entered(VirtualMachine("quiet", cpu_worker="never", gather=1000)) as machine:
        x = flow.ones(4)
        x.numpy()
        # The machine is not driven before a wait: the reader has not run.
        physical_run(
            machine, lambda builder: builder.access_blob_by_callback(x._blob, lambda value: seen.append(value[0]))
        )
        assert seen == []
        array = borrow(x)
        assert seen == [1.0]
        array[0] = 9
        assert x[0].item() == 9


@pytest.mark.host
def test_lending_does_not_wait_for_other_work() -> None:
    opened = threading.Event()
    outcome: list[bool] = []
    with entered(eager()) as machine:
        x, other = flow.ones(4), flow.ones(4)
        x.numpy()
        physical_run(
            machine,
            lambda builder: builder.access_blob_by_callback(
                other._blob, lambda value: outcome.append(opened.wait(PATIENCE))
            ),
        )
        array = np.asarray(x)
        assert outcome == []
        opened.set()
        other.add_(1).numpy()
    assert outcome == [True]
    assert array.tolist() == [1, 1, 1, 1]


# Tensors over numpy's memory


def test_writes_are_seen_on_both_sides() -> None:
    array = np.arange(6.0)
    x = flow.from_numpy(array)
    x.add_(1)
    x.numpy()
    np.testing.assert_array_equal(array, np.arange(1.0, 7.0))
    array[0] = 50
    assert x[0].item() == 50


async def test_writes_are_seen_after_awaiting() -> None:
    array = np.zeros((200, 300))
    x = flow.from_numpy(array)
    await x.add_(2)
    assert (array == 2).all()


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, ::2],
        lambda tensor: tensor.T,
        lambda x: x[1:, 1:3],
        lambda x: np.lib.stride_tricks.as_strided(x, (2, 3), (32, 8)),
        lambda x: np.from_dlpack(x[1:, ::3]),
        lambda tensor: np.from_dlpack(tensor.T),
    ],
)
def test_strided_arrays(part: Any) -> None:
    array = np.arange(24.0).reshape(4, 6)
    seen = part(array)
    expected = seen + 1
    x = flow.from_numpy(seen)
    np.testing.assert_array_equal(x.numpy(), seen)
    x.add_(1)
    x.numpy()
    np.testing.assert_array_equal(seen, expected)
    assert np.shares_memory(x._array(), array)


def test_arrays_that_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="negative stride"):
        flow.from_numpy(np.arange(3.0)[::-1])
    locked = np.arange(3.0)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        flow.from_numpy(locked)


# DLPack


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda x: x.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dlpack_with_numpy(dtype: flow.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype))
    array = np.from_dlpack(x)
    np.testing.assert_array_equal(array, x.numpy())
    assert array.dtype == dtype.numpy
    again = flow.from_dlpack(array)
    assert (again.dtype, again.shape, again.device.type) == (dtype, x.shape, "cpu")
    if array.size:
        assert np.shares_memory(again._array(), x._array())
    if array.size and layout != "expanded":  # whose elements share one place
        again.fill_(1)
        again.numpy()
        assert x.numpy().all()


@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dlpack_with_pytorch(dtype: flow.dtype, layout: str) -> None:
    torch = pytest.importorskip("torch")
    x = LAYOUTS[layout](sample(dtype))
    there = torch.from_dlpack(x)
    assert there.dtype is getattr(torch, dtype.name)
    assert there.tolist() == x.tolist()
    again = flow.from_dlpack(there)
    assert (again.dtype, again.shape) == (dtype, x.shape)
    assert again.tolist() == x.tolist()
    if x.numel():
        there.fill_(1)
        assert again.to(flow.complex64).numpy().all()
        assert np.shares_memory(again._array(), x._array())


def test_dlpack_with_jax() -> None:
    jax = pytest.importorskip("jax")
    x = sample()
    there = jax.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(there), x.numpy())
    again = flow.from_dlpack(there * 2)
    np.testing.assert_array_equal(again.numpy(), x.numpy() * 2)
    again.add_(1)  # JAX's arrays do not change: this is a copy, or memory that is marked as writable
    assert again[0, 0].item() == 1
    narrow = flow.from_dlpack(there.astype("bfloat16"))
    assert narrow.dtype is flow.bfloat16
    assert narrow.tolist() == x.tolist()


@pytest.mark.parametrize(("code", "dtype", "bits"), [(10, np.uint8, 8), (5, np.uint32, 32)])
def test_capsules_of_dtypes_that_are_unknown_are_refused(code: int, dtype: Any, bits: int) -> None:
    capsule = np.zeros(4, dtype).__dlpack__()
    exchange._described(capsule).code = code  # an 8-bit floating-point dtype, and pairs of 16-bit numbers
    with pytest.raises(TypeError, match=f"vmflow has no dtype for DLPack's type code {code} of {bits} bits"):
        flow.from_dlpack(capsule)
    capsule = np.zeros(4, np.complex64).__dlpack__()
    exchange._described(capsule).bits = 32
    with pytest.raises(TypeError, match="vmflow has no dtype for DLPack's type code 5 of 32 bits"):
        flow.from_dlpack(capsule)


def test_capsules_of_devices_that_the_host_cannot_read_are_refused() -> None:
    capsule = np.arange(4.0).__dlpack__()
    exchange._described(capsule).device_type = 10  # ROCm
    with pytest.raises(BufferError, match="kind 10 cannot be read by the host; copy it to the CPU first"):
        flow.from_dlpack(capsule)
    exchange._described(capsule).device_type = 3  # pinned by CUDA
    assert flow.from_dlpack(capsule).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_capsules() -> None:
    x = sample(flow.bfloat16)
    capsule = dlpack.to_dlpack(x)
    again = dlpack.from_dlpack(capsule)
    assert again.dtype is flow.bfloat16
    assert again.tolist() == x.tolist()
    with pytest.raises(BufferError, match="nobody has taken yet, got one named b'used_dltensor'"):
        flow.from_dlpack(capsule)
    versioned = x.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(versioned)
    # Only these say whether the memory may be written.
    assert np.shares_memory(dlpack.from_dlpack(versioned)._array(), x._array())
    assert not np.shares_memory(again._array(), x._array())


def test_devices_copies_and_streams() -> None:
    x = sample()
    assert x.__dlpack_device__() == (1, 0)
    assert not np.shares_memory(np.from_dlpack(x, copy=True), x._array())
    there = x.to("sim")
    assert there.__dlpack_device__() == (12, 0)
    with pytest.raises(BufferError, match=r"dl_device=\(1, 0\), or use \.cpu\(\)"):
        there.__dlpack__()
    np.testing.assert_array_equal(np.from_dlpack(there, device="cpu"), x.numpy())
    with pytest.raises(BufferError, match="by a copy only"):
        there.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"device \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream must be None"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"use \.detach"):
        flow.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="no word for the device meta"):
        flow.exchange.dlpack_device(type("Fake", (), {"device": flow.device("meta")})())


def test_importing_where_to_and_whether_to_copy() -> None:
    array = np.arange(3.0)
    assert np.shares_memory(flow.from_dlpack(array, copy=False)._array(), array)
    assert not np.shares_memory(flow.from_dlpack(array, copy=True)._array(), array)
    there = flow.from_dlpack(array, device="sim")
    assert (there.device.type, there.tolist()) == ("sim", [0, 1, 2])
    with pytest.raises(BufferError, match="reaches sim:0 by a copy only"):
        flow.from_dlpack(array, device="sim", copy=False)
    backwards = array[::-1]
    assert flow.from_dlpack(backwards).tolist() == [2, 1, 0]
    with pytest.raises(BufferError, match="has to be copied, and copy is False"):
        flow.from_dlpack(backwards, copy=False)
    x = sample()
    assert flow.from_dlpack(x)._blob is x._blob
    assert flow.from_dlpack(x, copy=True)._blob.storage is not x._blob.storage
    with pytest.raises(TypeError, match="expected an object with __dlpack__ or a capsule, got list"):
        flow.from_dlpack([1.0])


def test_read_only_memory_is_copied() -> None:
    locked = np.arange(3.0)
    locked.flags.writeable = False
    x = flow.from_dlpack(locked)
    x.add_(1)
    assert x.tolist() == [1, 2, 3]
    assert locked.tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="copy is False"):
        flow.from_dlpack(locked, copy=False)


class _Elsewhere:
    """A producer on a device that cannot be used here, which copies to the CPU unless it must not."""

    def __dlpack__(self, *, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise BufferError("the elements reach the CPU by a copy only")
        return np.arange(3.0).__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 10, 0


def test_a_producer_elsewhere_is_told_not_to_copy() -> None:
    assert flow.from_dlpack(_Elsewhere()).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="by a copy only"):
        flow.from_dlpack(_Elsewhere(), copy=False)


class _BeforeVersions:
    """A producer that knows none of the newer arguments, on a device of its choice."""

    def __init__(self, array: Any, device: tuple[int, int]) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_old_producers() -> None:
    array = np.arange(3.0)
    x = flow.from_dlpack(_BeforeVersions(array, (1, 0)))
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="is not on the CPU"):
        flow.from_dlpack(_BeforeVersions(array, (2, 0)))
