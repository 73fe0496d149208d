"""Questions about tensors and dtypes, tensors like others, and ranges from a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow import dtypes

from .oracle import Array, KernelContract, check, sample


def test_questions() -> None:
    tensor = flow.zeros(2, 3)
    assert flow.is_tensor(tensor)
    assert not flow.is_tensor(np.zeros(3))
    assert flow.is_floating_point(tensor)
    assert not flow.is_complex(tensor)
    assert flow.is_complex(flow.tensor(1j))
    assert flow.numel(tensor) == tensor.nelement() == 6
    assert tensor.ndimension() == 2
    assert not any([flow.ones(1, dtype=kind).is_signed() for kind in (flow.bool, flow.uint8, flow.uint16, flow.uint64)])
    assert all([flow.is_signed(flow.ones(1, dtype=kind)) for kind in (flow.int8, flow.float16, flow.complex64)])
    assert flow.is_nonzero(flow.tensor([[0.5]]))
    assert not flow.tensor(0).is_nonzero()
    with pytest.raises(RuntimeError, match=r"a tensor of shape \[2, 3\] has 6 elements, not one"):
        flow.is_nonzero(tensor)


def test_result_type() -> None:
    small = flow.zeros(2, dtype=flow.int8)
    assert flow.result_type(small, 1) is flow.int8
    assert flow.result_type(small, 1.0) is flow.float32
    assert flow.result_type(1, 2) is flow.int64
    assert flow.result_type(True, flow.tensor(1.0, dtype=flow.float64)) is flow.float64
    assert flow.result_type(small, flow.zeros((), dtype=flow.int64)) is flow.int8
    assert flow.result_type(small, flow.zeros(1, dtype=flow.int64)) is flow.int64
    for first in dtypes.ALL:
        for second in dtypes.ALL:
            one, other = flow.zeros(1, dtype=first), flow.zeros((), dtype=second)
            assert flow.result_type(one, other) is (one + other).dtype if first.name != "bool" else True
    with pytest.raises(TypeError, match="result_type"):
        flow.result_type("a", 1)  # type: ignore[arg-type]


def test_can_cast_agrees_with_in_place_ops() -> None:
    for source in dtypes.ALL:
        for target in dtypes.ALL:
            tensor = flow.zeros(2, dtype=target)
            fits = flow.can_cast(source, target)
            integers = source.category == target.category == dtypes.INTEGER
            if integers and flow.uint64 in (source, target) and source.is_signed != target.is_signed:
                with pytest.raises(TypeError, match="no integer dtype holds both"):
                    tensor.mul_(flow.zeros(2, dtype=source))
                continue
            if target is flow.bool:
                assert fits == (source is flow.bool)
                continue
            if fits:
                tensor.mul_(flow.zeros(2, dtype=source))
            else:
                with pytest.raises(RuntimeError, match="cannot be written in place"):
                    tensor.mul_(flow.zeros(2, dtype=source))


def test_broadcast_shapes() -> None:
    assert flow.broadcast_shapes((2, 1), 3, ()) == (2, 3)
    assert flow.broadcast_shapes() == ()
    assert isinstance(flow.broadcast_shapes((1,)), flow.Size)
    with pytest.raises(ValueError, match="do not broadcast"):
        flow.broadcast_shapes((2,), (3,))
    with pytest.raises(ValueError, match="cannot be negative"):
        flow.broadcast_shapes((-1,))


def test_names_of_types(contract: KernelContract) -> None:
    assert flow.zeros(1).type() == "vmflow.FloatTensor"
    assert flow.zeros(1, dtype=flow.bool).type() == "vmflow.BoolTensor"
    assert len({flow.zeros(1, dtype=value).type() for value in dtypes.ALL}) == len(dtypes.ALL)
    check(flow.ones(2).type(flow.int64), [1, 1], "int64")


def test_new_tensors_like_another(contract: KernelContract) -> None:
    tensor = flow.zeros(2, dtype=flow.float64)
    check(tensor.new_zeros(2, 3), np.zeros((2, 3)), "float64")
    check(tensor.new_ones((2, 3)), np.ones((2, 3)), "float64")
    check(tensor.new_ones(size=(2,), dtype=flow.int8), [1, 1], "int8")
    check(tensor.new_full((2,), 2.5), [2.5, 2.5], "float64")
    check(tensor.new_tensor([1, 2]), [1, 2], "float64")
    assert tensor.new_empty(2, 3).shape == (2, 3)
    assert tensor.new_empty(()).dtype is flow.float64
    leaves = (
        tensor.new_zeros(1, requires_grad=True),
        tensor.new_ones(1, requires_grad=True),
        tensor.new_full((1,), 1, requires_grad=True),
        tensor.new_empty(1, requires_grad=True),
        tensor.new_tensor([1], requires_grad=True),
    )
    assert all(leaf.requires_grad and leaf.is_leaf for leaf in leaves)
    for made in (tensor.new_zeros(1, device="sim"), tensor.new_empty(1, device="sim")):
        assert made.device.type == "sim"
    check(tensor.new_tensor([1], device="sim"), [1], "float64")
    with pytest.raises(ValueError, match="new_empty: sizes cannot be negative"):
        tensor.new_empty(-1)
    with pytest.raises(TypeError, match="new_zeros: unexpected arguments shape"):
        tensor.new_zeros(shape=(2,))


def test_sums_to_a_size(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    tensor = flow.tensor(array)
    check(tensor.sum_to_size(1, 4), array.sum((0, 1)).reshape(1, 4), "float64")
    check(tensor.sum_to_size((3, 1)), array.sum(0).sum(1, keepdims=True), "float64")
    check(tensor.sum_to_size(()), array.sum(), "float64")
    check(tensor.sum_to_size(2, 3, 4), array, "float64")
    check_gradients(lambda a: a.sum_to_size(2, 1, 4), array)
    for wrong in ((2,), (1, 2, 3, 4), (2, 3, 5)):
        with pytest.raises(ValueError, match="broadcast"):
            tensor.sum_to_size(wrong)


def test_conjugated_transposes(contract: KernelContract) -> None:
    array = sample((2, 3), "complex64")
    check(flow.tensor(array).H, array.T.conj(), "complex64")
    check(flow.tensor(array)[None].mH, array.T.conj()[None], "complex64")
    check(flow.tensor(2.0).H, 2.0, "float32")
    with pytest.raises(RuntimeError, match="expected a matrix"):
        _ = flow.zeros(2, 2, 2).H


def test_second_names(contract: KernelContract) -> None:
    array = sample((2, 3, 4), "float64")
    tensor = flow.tensor(array)
    check(flow.swapdims(tensor, 0, 2), array.swapaxes(0, 2), "float64")
    check(flow.moveaxis(tensor, 0, -1), np.moveaxis(array, 0, -1), "float64")
    check(tensor.moveaxis((0, 1), (1, 0)), np.moveaxis(array, (0, 1), (1, 0)), "float64")
    check(tensor.clone().swapdims_(0, 1), array.swapaxes(0, 1), "float64")
    check(flow.concatenate([tensor, tensor], 1), np.concatenate([array, array], 1), "float64")


def test_logarithmic_ranges(contract: KernelContract) -> None:
    check(flow.logspace(0, 3, 4), [1, 10, 100, 1000], "float32")
    check(flow.logspace(-1, 1, 5, 2.0, dtype=flow.float64), np.logspace(-1, 1, 5, base=2.0), "float64")
    check(flow.logspace(0, 3, 4, dtype=flow.int64), [1, 10, 100, 1000], "int64")
    check(flow.logspace(1, 2, 1), [10], "float32")
    check(flow.logspace(1, 2, 0), [], "float32")
    assert flow.logspace(0, 1, 2, requires_grad=True).is_leaf
    with pytest.raises(ValueError, match="steps cannot be negative"):
        flow.logspace(0, 1, -1)


def test_places_of_triangles(contract: KernelContract) -> None:
    for row, column in ((3, 3), (2, 4), (4, 2), (0, 3)):
        for offset in (-1, 0, 2):
            lower, upper = np.tril_indices(row, offset, column), np.triu_indices(row, offset, column)
            check(flow.tril_indices(row, column, offset), np.stack(lower), "int64")
            check(flow.triu_indices(row, column, offset, dtype=flow.int32), np.stack(upper), "int32")
    with pytest.raises(ValueError, match="sizes cannot be negative"):
        flow.tril_indices(-1, 2)
    with pytest.raises(TypeError, match=r"must be vmflow.int64 or vmflow.int32"):
        flow.triu_indices(1, 2, dtype=flow.float32)


def test_strided_memory(contract: KernelContract) -> None:
    tensor = flow.empty_strided((2, 3), (1, 2), dtype=flow.float64)
    assert tensor.stride() == (1, 2)
    tensor.copy_(flow.arange(6.0).reshape(2, 3))
    check(tensor, np.arange(6.0).reshape(2, 3), "float64")
    assert flow.empty_strided((), ()).shape == ()
    assert flow.empty_strided((0, 2), (5, 5)).shape == (0, 2)
    with pytest.raises(ValueError, match="as many sizes as strides"):
        flow.empty_strided((2,), ())


def _torch_calls() -> list[tuple[str, Callable[[Any, Any], Any], Array]]:
    matrix, cube = arrays_for(3, (4, 5), (2, 3, 4))
    return [
        ("unfold", lambda lib, x: x.unfold(1, 2, 3), matrix),
        ("as_strided", lambda lib, x: x.as_strided((3, 3), (2, 1), 1), matrix),
        ("rot90", lambda lib, x: lib.rot90(x, 3, (0, 2)), cube),
        ("diag_embed", lambda lib, x: lib.diag_embed(x, -1, 0, -1), matrix),
        ("combinations", lambda lib, x: lib.combinations(x[0], 3, True), matrix),
        ("quantile", lambda lib, x: lib.quantile(x, 0.37, 1, True, interpolation="midpoint"), matrix),
        ("nanmedian", lambda lib, x: lib.nanmedian(x, 0)[0], matrix),
        ("histc", lambda lib, x: lib.histc(x, 7, -1, 1), matrix),
        ("bucketize", lambda lib, x: lib.bucketize(x, lib.linspace(-1, 1, 5).to(lib.float64), right=True), matrix),
        ("block_diag", lambda lib, x: lib.block_diag(x, x[0]), matrix),
        ("masked_scatter", lambda lib, x: x.masked_scatter(x > 0, x * 2), matrix),
        ("slice_scatter", lambda lib, x: x.slice_scatter(x[:, :2] * 2, 1, 1, 5, 2), matrix),
        ("sum_to_size", lambda lib, x: x.sum_to_size(3, 1), cube),
        ("logspace", lambda lib, x: lib.logspace(-2, 3, 11, 3.0, dtype=lib.float64), matrix),
    ]


@pytest.mark.parametrize(
    ("name", "call", "array"), _torch_calls(), ids=lambda name: name if isinstance(name, str) else ""
)
def test_same_as_pytorch(name: str, call: Callable[[Any, Any], Any], array: Array) -> None:
    torch = pytest.importorskip("torch")
    found, expected = call(flow, flow.tensor(array)), call(torch, torch.tensor(array))
    check(found, expected.numpy(), str(expected.dtype).removeprefix("torch."), tolerance=1e-12)
