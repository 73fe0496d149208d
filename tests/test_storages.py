"""Storages, kinds of tensors, and tensors handed to PyTorch and back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.planted import failed_tensor
from tests.support import run_program
from vmflow import nn
from vmflow.kernels.cuda import nvrtc

pytestmark = pytest.mark.host


# Storages


def test_views_have_one_storage() -> None:
    x = flow.arange(12.0).reshape(3, 4)
    views = [x, x[1:], x.t(), x[2, 3], x[0].expand(2, 4), x.detach(), x[:0]]
    assert len({view.untyped_storage() for view in views}) == 1
    assert {view.untyped_storage().nbytes() for view in views} == {48}
    assert {view.storage().size() for view in views} == {12}
    assert {view.untyped_storage().data_ptr() for view in views if view.numel()} == {x.data_ptr()}
    others: list[Any] = [x.clone(), x + 0, x.double(), x.storage()]
    assert all(
        value != x.untyped_storage() for value in [others[0].untyped_storage(), others[1].untyped_storage(), others[3]]
    )


def test_a_storage_is_read_as_bytes_or_elements() -> None:
    x = flow.tensor([1, 256], dtype=flow.int16)[1:]
    assert x.untyped_storage().tolist() == [1, 0, 0, 1]
    assert list(x.storage()) == [1, 256]
    assert (x.storage()[1], x.untyped_storage()[0]) == (256, 1)
    assert repr(x.storage()) == "<TypedStorage of 2 elements of vmflow.int16 on cpu>"
    x.add_(1)
    assert x.storage().tolist() == [1, 257]
    assert flow.empty(0).untyped_storage().tolist() == []


def test_a_storage_keeps_the_memory() -> None:
    memory = (flow.ones(100_000) * 3).untyped_storage()
    more = [flow.zeros(100_000) for _ in range(3)]
    assert flow.UntypedStorage.tolist(memory)[:4] == list(np.float32(3).tobytes())
    assert len(more) == 3


async def test_the_size_of_a_storage_without_data() -> None:
    async with flow.VirtualMachine(gather=32):
        part = flow.zeros(2, 3, device="meta")[1]
        with pytest.warns(flow.BlockingCallWarning):
            assert part.untyped_storage().nbytes() == 24
        assert (part.storage().size(), len(part.untyped_storage())) == (6, 24)
    assert repr(part.storage()) == "<TypedStorage of 6 elements of vmflow.float32 on meta>"


def test_storages_on_another_device() -> None:
    x = flow.arange(4.0, device="sim:1")[1:]
    memory = x.storage()
    assert (memory.nbytes(), memory.size(), memory.tolist(), str(memory.device)) == (16, 4, [0, 1, 2, 3], "sim:1")
    assert memory.cpu().device.type == "cpu"
    with pytest.raises(RuntimeError, match="has no address"):
        memory.data_ptr()


def test_a_failed_tensor_has_no_storage_to_read() -> None:
    with pytest.raises(ZeroDivisionError, match="planted"):
        failed_tensor()[0:1].untyped_storage().nbytes()


def test_a_tensor_of_a_graph_has_no_storage() -> None:
    class Asks(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            with pytest.raises(RuntimeError, match="has no memory yet"):
                (x + 1).untyped_storage().nbytes()
            return x + 2

    assert Asks()(flow.ones(2)).tolist() == [3, 3]


# Kinds of tensors


def test_kinds_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"vmflow\.FloatTensor makes no tensors on cuda:0"):
        flow.FloatTensor([1], device="cuda")
    with pytest.raises(ValueError, match=r"vmflow\.cuda\.FloatTensor makes no tensors on cpu"):
        flow.cuda.FloatTensor([1], device="cpu")
    for wrong in ("FloatTensor", "torch.cuda.StrangeTensor", "vmflow.float32", 3, None, flow.Tensor):
        with pytest.raises(TypeError, match="expected a dtype or a kind of tensors such as"):
            flow.set_default_tensor_type(wrong)  # type: ignore[arg-type]
    for wrong in ("", flow.Tensor, 3):
        with pytest.raises(TypeError, match="expected a dtype or a kind of tensors such as"):
            flow.ones(1).type(wrong)
    with pytest.raises(TypeError, match="floating-point dtype"):
        flow.set_default_tensor_type(flow.LongTensor)
    assert flow.ones(1).dtype is flow.float32
    assert not isinstance(3, flow.FloatTensor)  # type: ignore[arg-type]


def test_kinds_of_the_cpu_have_no_other_default_device() -> None:
    with flow.device("sim"):
        assert flow.FloatTensor(2).device == flow.FloatTensor([1.0]).device == flow.device("cpu")


def test_kinds_without_a_cuda_device() -> None:
    program = """
        import vmflow as flow

        assert flow.device("auto") is flow.device("cpu")
        for ask in (lambda: flow.cuda.FloatTensor([1]), lambda: flow.set_default_tensor_type("torch.cuda.HalfTensor")):
            try:
                ask()
            except flow.DeviceUnavailable:
                pass
            else:
                raise AssertionError
        assert flow.ones(1).type() == "vmflow.FloatTensor"
        """
    run_program(program, VMFLOW_CUDA="off")


@pytest.mark.skipif(nvrtc.find() is None, reason="an emulated device needs NVRTC: see the extra cuda-check")
def test_kinds_on_a_cuda_device() -> None:
    program = """
        import vmflow as flow

        assert flow.device("auto") is flow.device("cuda")
        x = flow.cuda.IntTensor([1, 2])
        assert x.type() == "vmflow.cuda.IntTensor" and x.tolist() == [1, 2]
        assert isinstance(x, flow.cuda.IntTensor) and not isinstance(x, flow.IntTensor)
        assert x.type(flow.FloatTensor).device.type == "cpu"
        assert flow.ones(2).type("torch.cuda.HalfTensor").type() == "vmflow.cuda.HalfTensor"
        assert x[1:].untyped_storage().nbytes() == 8
        assert x[1:].untyped_storage().data_ptr() == x.data_ptr()
        assert x[1:].storage().tolist() == [1, 2]
        flow.set_default_tensor_type(flow.cuda.DoubleTensor)
        assert flow.ones(2).type() == "vmflow.cuda.DoubleTensor"
        assert str(flow.get_default_device()) == "cuda:0"
        """
    run_program(program, VMFLOW_CUDA="emulated")


def test_the_best_device_has_no_index() -> None:
    with pytest.raises(ValueError, match="'auto' has no index"):
        flow.device("auto", 1)
    with pytest.raises(ValueError, match="unknown device type 'auto'"):
        flow.device("auto:1")


def test_random_numbers_into_a_tensor_that_does_not_fit() -> None:
    x = flow.zeros(2)
    asks: list[Any] = [
        lambda: flow.rand(3, out=x),
        lambda: flow.multinomial(flow.ones(3), 2, out=flow.zeros(3, dtype=flow.int64)),
    ]
    for ask in asks:
        with pytest.raises(RuntimeError):
            ask()
    with pytest.raises(
        TypeError, match=r"rand: out is of the dtype vmflow\.float32, and vmflow\.float64 was asked for"
    ):
        flow.rand(2, out=x, dtype=flow.float64)
    with pytest.raises(TypeError, match="of the device cpu, and sim:1 was asked for"):
        flow.rand(2, out=x, device="sim:1")
    with pytest.raises(TypeError, match="out must be a tensor"):
        flow.rand(2, out=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="randn: expected a floating-point"):
        flow.randn(2, out=flow.zeros(2, dtype=flow.int64))
    assert x.tolist() == [0, 0]
    there = flow.empty(4, device="sim:1")
    flow.manual_seed(3)
    assert flow.rand(4, out=there) is there
    flow.manual_seed(3)
    assert flow.rand(4).tolist() == there.tolist()


def test_arrays_that_are_no_single_number() -> None:
    with pytest.raises(TypeError, match="expected a tensor or a number"):
        flow.ones(2).fill_(np.ones(1))  # type: ignore[arg-type]


def test_switches_that_are_none() -> None:
    for wrong in (1, None, "error"):
        with pytest.raises(TypeError, match="must be True or False"):
            flow.use_deterministic_algorithms(wrong)  # type: ignore[arg-type]
    for number in (3, -1, "strict"):
        with pytest.raises(ValueError, match="expected 0 or 'default'"):
            flow.set_deterministic_debug_mode(number)
    with pytest.raises(TypeError, match="expected a number or a name"):
        flow.set_deterministic_debug_mode(1.0)  # type: ignore[arg-type]
    assert flow.get_deterministic_debug_mode() == 0


# PyTorch


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("name", [*DTYPES, "complex64", "complex128"])
def test_memory_is_shared_with_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.ones(3, 4, dtype=getattr(torch, name)).t()[1:]
    ours = flow.utils.tensor.from_torch(theirs)
    assert (ours.dtype, tuple(ours.shape), ours.stride()) == (getattr(flow, name), (3, 3), (1, 4))
    assert ours.data_ptr() == theirs.data_ptr()
    again = flow.utils.tensor.to_torch(ours)
    assert (again.dtype, again.stride(), again.data_ptr()) == (theirs.dtype, (1, 4), theirs.data_ptr())


def test_tensors_that_pytorch_cannot_share() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    assert not flow.utils.tensor.from_torch(layer.weight).requires_grad
    assert flow.utils.tensor.from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    leaf = flow.ones(2, requires_grad=True)
    assert flow.utils.tensor.to_torch(leaf).tolist() == [1, 1]
    for wrong in (flow.ones(2), np.ones(2), [1.0]):
        with pytest.raises(TypeError, match="from_torch: expected a tensor of PyTorch's"):
            flow.utils.tensor.from_torch(wrong)
    with pytest.raises(TypeError, match=r"to_torch: expected a tensor of vmflow's, got torch\.Tensor"):
        flow.utils.tensor.to_torch(torch.ones(2))


def test_without_pytorch_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    calls: list[Any] = [
        lambda: flow.utils.tensor.from_torch(3),
        lambda: flow.utils.tensor.to_torch(flow.ones(2)),
    ]
    for call in calls:
        with pytest.raises(ImportError, match="needs PyTorch; install it with: pip install torch"):
            call()
