"""Memory of CUDA devices lent to other libraries and borrowed from them: its owners, and the order of its uses."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import exchange
from vmflow.cuda import exchange as cuda_exchange
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.device import CudaDevice
from vmflow.streams.cuda.emulation.driver import EmulatedDriver
from vmflow.utils import dlpack
from vmflow.vm.virtual_machine import current_machine

from .emulated import Emulated, emulated

pytestmark = pytest.mark.emulated

MODES = ["lazy", "eager", "random"]
LAYOUTS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "part": lambda x: x[1:, ::2],
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "expanded": lambda x: x[:, :1].expand(3, 5),
    "empty": lambda x: x[:0],
}


class Foreign:
    """An array of another library, which has a stream of its own.

    Attributes:
        released: how often its memory was given back to it.
    """

    def __init__(self, driver: EmulatedDriver, array: DeviceArray, kept: Any, version: Any = (1, 0)) -> None:
        self.driver = driver
        self.array = array
        self.stream = driver.create_stream()
        self.version = version
        self.read_only = False
        self._kept = kept

    @classmethod
    def of(cls, driver: EmulatedDriver, values: np.ndarray) -> Foreign:
        """A new array with these values, which its stream has not copied yet."""
        staged = driver.pinned(max(values.nbytes, 1))[: values.nbytes]
        staged[...] = values.reshape(-1).view(np.uint8)
        block = driver.allocate(max(values.nbytes, 1))
        array = block.strided(values.shape, values.dtype)
        made = cls(driver, array, (block, staged))
        driver.copy(array, staged, made.stream)
        return made

    @classmethod
    def borrowing(cls, driver: EmulatedDriver, tensor: flow.Tensor) -> Foreign:
        """The memory of a tensor, by DLPack."""
        made = cls(driver, tensor, None)  # type: ignore[arg-type]
        capsule = tensor.__dlpack__(stream=driver.stream_address(made.stream), max_version=(1, 0))
        assert described(capsule) == (2, tensor.device.index)
        made._kept, _ = exchange._received(capsule)
        made.array = DeviceArray(made._kept.ctypes.data, made._kept.shape, made._kept.dtype, made._kept.strides)
        return made

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        if self.version is None and max_version is not None:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        event = self.driver.create_event()
        self.driver.record(event, self.stream)
        self.driver.stream_wait(self.driver.stream_at(stream), event)
        shown = exchange._shown(self, self.array.__cuda_array_interface__)
        return exchange._capsule_of(shown, self.__dlpack_device__(), False, self.version, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.driver.index

    def values(self) -> np.ndarray:
        """Its values when its stream has done all that it was handed."""
        staged = self.driver.pinned(max(self.array.nbytes, 1))[: self.array.nbytes]
        self.driver.copy(staged, self.array, self.stream)
        self.driver.synchronize_stream(self.stream)
        self.driver.host_access(staged, write=False)
        return staged.view(self.array.dtype).reshape(self.array.shape)

    def read(self) -> np.ndarray:
        """Let its stream read it, some time; returns the memory that it is read to."""
        staged = self.driver.pinned(self.array.nbytes)
        self.driver.copy(staged, self.array, self.stream)
        return staged

    def close(self) -> None:
        """Give the memory back."""
        self._kept = None


class Interface:
    """An array of another library that is known by ``__cuda_array_interface__`` only."""

    def __init__(self, array: DeviceArray, kept: Any, **more: Any) -> None:
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **more}
        self.kept = kept


def described(capsule: Any) -> tuple[int, int]:
    """The device that a capsule says it is on, at the places where DLPack 1.0 has it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # version, context, deleter, flags, data
    return tuple((ctypes.c_int32 * 2).from_address(pointer(capsule, b"dltensor_versioned") + 40))


def sample(dtype: flow.dtype = flow.float32) -> flow.Tensor:
    return flow.tensor(np.arange(12).reshape(3, 4) % 5).to(dtype)


@pytest.mark.parametrize("dtype", flow.dtypes.ALL, ids=lambda x: x.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_round_trip_shares_memory(dtype: flow.dtype, layout: str) -> None:
    with emulated("lazy"):
        x = LAYOUTS[layout](sample(dtype).cuda())
        y = flow.from_dlpack(_Forwarding(x))
        assert (y.device, y.dtype, y.shape) == (x.device, dtype, x.shape)
        assert y._blob.storage is not x._blob.storage
        assert y.data_ptr() == x.data_ptr()
        np.testing.assert_array_equal(y.numpy(), x.numpy())
        if layout != "expanded" and x.numel():
            y.fill_(1)
            y.tolist()
            np.testing.assert_array_equal(x.to(flow.complex128).numpy(), np.ones(x.shape))


class _Forwarding:
    """Hides that it is a tensor."""

    def __init__(self, x: flow.Tensor) -> None:
        self._x = x
        self.__dlpack__ = x.__dlpack__
        self.__dlpack_device__ = x.__dlpack_device__


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_ops_run_behind_the_lender_and_it_is_told_when_they_have_ended(mode: str, seed: int) -> None:
    with emulated(mode, seed) as devices:
        foreign = Foreign.of(devices.driver, np.arange(1000, dtype=np.float32))
        gone = weakref.ref(foreign)
        x = flow.from_dlpack(foreign)
        with flow.cuda.stream(flow.cuda.Stream()):
            y = x * 2
        z = x + y
        del x, foreign
        gc.collect()
        if mode == "lazy":
            assert gone() is not None, "it may use its memory again, and the ops have not run"
        np.testing.assert_array_equal(z.numpy(), 3 * np.arange(1000))
        devices.machine.drain()
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_a_borrower_runs_behind_the_ops_and_the_host_waits_for_nothing(mode: str, seed: int) -> None:
    with emulated(mode, seed) as devices:
        x = flow.tensor(np.arange(1000, dtype=np.float32)).cuda()
        devices.machine.drain()
        waits = devices.cuda.simulated.host_waits
        with flow.cuda.stream(flow.cuda.Stream()):
            y = x * 2
        foreign = Foreign.borrowing(devices.driver, y)
        assert devices.cuda.simulated.host_waits == waits
        np.testing.assert_array_equal(foreign.values(), 2 * np.arange(1000))
        foreign.close()


def churn(devices: Emulated) -> None:
    """Memory is lent, read elsewhere and given back, and written again by the next op."""
    read: list[np.ndarray] = []
    for _ in range(4):
        x = flow.ones(1000, device="cuda") * 2
        foreign = Foreign.borrowing(devices.driver, x)
        del x
        read.append(foreign.read())
        foreign.close()
        for written in [flow.full((1000,), 7.0, device="cuda") for _ in range(6)]:
            written.tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_memory_that_came_back_is_not_written_before_the_borrower_has_read_it(mode: str, seed: int) -> None:
    with emulated(mode, seed) as devices:
        churn(devices)


def test_a_device_that_forgets_the_borrower_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated("lazy") as devices:
        monkeypatch.setattr(CudaDevice, "give_back", lambda device, home, borrower: None)
        with pytest.raises(flow.RaceDetected):
            churn(devices)


def test_a_value_that_could_not_be_computed_is_not_lent() -> None:
    with emulated("lazy", nbytes=1 << 20) as devices:
        x = flow.zeros(1 << 20, device="cuda")  # of more bytes than there are
        with pytest.raises(flow.OutOfMemory):
            Foreign.borrowing(devices.driver, x)


def test_the_stream_of_a_borrower() -> None:
    with emulated("lazy") as devices:
        x = flow.ones(3).cuda()
        for stream in (None, 1, 2, -1):
            assert described(x.__dlpack__(stream=stream, max_version=(1, 0))) == (2, 0)
        with pytest.raises(BufferError, match="stream 0 could be either"):
            x.__dlpack__(stream=0)
        with pytest.raises(BufferError, match=r"requires a gradient.*use \.detach\(\)"):
            flow.ones(3, device="cuda", requires_grad=True).__dlpack__(stream=1)
        with pytest.raises(RuntimeError, match=r"requires a gradient"):
            flow.ones(3, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018
        assert described(flow.ones(3, device="cuda:1").__dlpack__(stream=1, max_version=(1, 0))) == (2, 1)
        copied = Foreign.borrowing(devices.driver, x)
        assert copied.array.pointer == x.data_ptr()
        capsule = x.__dlpack__(stream=-1, max_version=(1, 0), copy=True)
        assert flow.from_dlpack(capsule).data_ptr() != x.data_ptr()


def test_a_capsule_is_in_the_order_of_the_default_stream() -> None:
    with emulated("random", 2):
        y = flow.from_dlpack(dlpack.to_dlpack(flow.ones(1000).cuda() * 3))
        assert y.sum().item() == 3000


def test_copies_are_made_when_asked_for_and_where_writing_is_forbidden() -> None:
    with emulated("random", 1) as devices:
        foreign = Foreign.of(devices.driver, np.arange(4.0))
        assert flow.from_dlpack(foreign, copy=False).data_ptr() == foreign.array.pointer
        copied = flow.from_dlpack(foreign, copy=True)
        assert copied.data_ptr() != foreign.array.pointer
        assert copied.tolist() == [0, 1, 2, 3]
        assert flow.from_dlpack(foreign, device="cpu").tolist() == [0, 1, 2, 3]
        assert flow.from_dlpack(foreign, device="cuda:1").tolist() == [0, 1, 2, 3]
        with pytest.raises(BufferError, match="reaches cuda:1 by a copy only"):
            flow.from_dlpack(foreign, device="cuda:1", copy=False)
        foreign.version = None  # an exporter that does not say whether the memory may be written
        old = flow.from_dlpack(foreign)
        assert old.data_ptr() != foreign.array.pointer
        assert old.tolist() == [0, 1, 2, 3]
        with pytest.raises(BufferError, match="read-only has to be copied, and copy is False"):
            flow.from_dlpack(foreign, copy=False)


def test_memory_that_cannot_be_shared() -> None:
    with emulated("lazy") as devices:
        foreign = Foreign.of(devices.driver, np.arange(4.0))
        whole = foreign.array
        foreign.array = whole.strided((4,), whole.dtype, 24, (-8,))
        with pytest.raises(BufferError, match="negative stride"):
            flow.from_dlpack(foreign)
        for more in ({"data": (whole.pointer, True)}, {"mask": whole}):
            with pytest.raises(BufferError, match="read-only or masked cannot be shared; pass a copy"):
                flow.as_tensor(Interface(whole, foreign, **more))
        with pytest.raises(ValueError, match="no emulated device has memory at 0x10"):
            flow.as_tensor(Interface(whole, foreign, data=(16, False)))
        with pytest.raises(ValueError, match=f"no emulated device has memory at {whole.pointer + 32:#x}"):
            flow.as_tensor(Interface(whole, foreign, data=(whole.pointer + 32, False)))
        assert flow.as_tensor(Interface(whole, foreign, typestr="<u8")).dtype is flow.uint64
        with pytest.raises(TypeError, match="float128"):
            flow.as_tensor(Interface(whole, foreign, typestr="<f16"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_the_interface_of_cuda_arrays(mode: str, seed: int) -> None:
    with emulated(mode, seed) as devices:
        driver = devices.driver
        foreign = Foreign.of(driver, np.arange(1000.0))
        lent = Interface(foreign.array, foreign, stream=driver.stream_address(foreign.stream))
        x = flow.as_tensor(lent)
        assert x.data_ptr() == foreign.array.pointer
        assert x.dtype is flow.float64
        copy = flow.tensor(lent, dtype=flow.float32)
        assert copy.device.type == "cuda"
        assert copy.data_ptr() != x.data_ptr()
        y = x.add_(1)
        interface = y.__cuda_array_interface__
        assert interface["shape"] == (1000,)
        assert interface["data"] == (x.data_ptr(), False)
        assert interface["stream"] == flow.cuda.current_stream().cuda_stream
        event = driver.create_event()
        driver.record(event, driver.stream_at(interface["stream"]))
        driver.stream_wait(foreign.stream, event)
        np.testing.assert_array_equal(foreign.values(), np.arange(1000) + 1)
        np.testing.assert_array_equal(copy.numpy(), np.arange(1000))
        assert not hasattr(flow.ones(2, device="cuda", dtype=flow.bfloat16), "__cuda_array_interface__")


def test_memory_is_exchanged_in_the_order_of_the_current_stream() -> None:
    with emulated("lazy") as devices:
        x, side = flow.ones(3).cuda(), flow.cuda.Stream()
        foreign = Foreign.of(devices.driver, np.arange(3.0))
        with flow.cuda.stream(side):
            expected = side.on(current_machine())
            assert x.__cuda_array_interface__["stream"] == side.cuda_stream
            x.data_ptr()
            assert x._blob.storage.stream is expected
            for lent in (foreign, Interface(foreign.array, foreign)):
                y = flow.from_dlpack(lent) if lent is foreign else flow.as_tensor(lent)
                assert y._blob.storage.stream is expected


def test_an_array_without_elements_is_on_the_current_device_wherever_its_address_is() -> None:
    with emulated("lazy") as devices, flow.cuda.device(1):
        foreign = Foreign.of(devices.driver, np.arange(4.0))
        for address in (0, foreign.array.pointer, foreign.array.pointer + 32):
            empty = Interface(foreign.array, foreign, shape=(0, 3), data=(address, False), stream=77)
            x = flow.as_tensor(empty)
            assert (x.shape, x.dtype, x.device) == ((0, 3), flow.float64, flow.device("cuda:1"))
        for x in (flow.ones(3, 2, device="cuda")[3:, ::2], flow.ones(0, device="cuda")):
            interface = x.__cuda_array_interface__
            assert (interface["data"], interface["strides"]) == ((0, False), None)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (1, 3), (3, 1), (2, 3), ()])
@pytest.mark.parametrize("step", [4, 8, 100])
def test_arrays_are_contiguous_as_numpys_are(shape: tuple[int, ...], step: int) -> None:
    dtype = np.dtype(np.float32)
    strides = tuple([step * 3 ** (len(shape) - 1 - axis) for axis in range(len(shape))])
    host = np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, strides)
    assert DeviceArray(4096, shape, dtype, strides).contiguous == host.flags.c_contiguous


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_ops_go_to_the_stream_of_another_library(mode: str, seed: int) -> None:
    with emulated(mode, seed) as devices:
        driver = devices.driver
        foreign = Foreign.of(driver, np.arange(1000.0))
        address = driver.stream_address(foreign.stream)
        theirs = flow.cuda.ExternalStream(address)
        assert theirs.__cuda_stream__() == (0, address)
        assert flow.cuda.ExternalStream(theirs) == theirs
        x = flow.as_tensor(Interface(foreign.array, foreign))  # which names no stream: nothing has to be waited for
        with flow.cuda.stream(theirs):
            y = flow.as_tensor(Interface(foreign.array, foreign)) * 2
            y.data_ptr()  # it has been launched, and stands behind their copy
        assert (y + 0).sum().item() == 999_000
        del x
        for wrong in (0, -1, True, "compute"):
            with pytest.raises(ValueError, match="expected the address of a stream"):
                flow.cuda.ExternalStream(wrong)


def test_an_address_is_not_to_be_had_of_a_graph_that_is_built() -> None:
    class Asks(flow.nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            x.data_ptr()
            return x

    with pytest.raises(RuntimeError, match="has no memory yet"):
        Asks()(flow.ones(2))


def test_a_stream_at_an_address_that_is_none() -> None:
    with emulated():
        side = flow.cuda.ExternalStream(77)
        with pytest.raises(ValueError, match="cuda:0 has no stream at 0x4d"), flow.cuda.stream(side):
            flow.ones(2, device="cuda")
    assert cuda_exchange.DEFAULT_STREAM == 1
