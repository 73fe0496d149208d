"""The affine map against loops, and its fused gradient against the recorded one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.support import arrays_for, check_gradients
from vmflow.ops.nn.linear import linear
from vmflow.ops.table import OPS

pytestmark = pytest.mark.usefixtures("contract")


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 2, 3), (0, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_linear(shape: tuple[int, ...], biased: bool) -> None:
    x, w, b = arrays_for(1, shape, (2, 3), (2,))
    expected = np.zeros((*shape[:-1], 2))
    for place in np.ndindex(expected.shape):
        expected[place] = sum(x[(*place[:-1], k)] * w[place[-1], k] for k in range(3)) + (b[place[-1]] if biased else 0)
    result = linear(flow.tensor(x), flow.tensor(w), flow.tensor(b) if biased else None)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
    if x.size:
        operands = (x, w, b) if biased else (x, w)
        check_gradients(linear, *operands)
        check_gradients(linear, *operands, second=True)


def test_no_features() -> None:
    result = linear(flow.zeros(2, 0), flow.zeros(3, 0), flow.tensor([1.0, 2.0, 3.0]))
    assert result.tolist() == [[1.0, 2.0, 3.0]] * 2


def test_a_single_output() -> None:
    x, w = arrays_for(2, (4, 3), (3,))
    result = linear(flow.tensor(x), flow.tensor(w), flow.tensor(0.5, dtype=flow.float64))
    np.testing.assert_allclose(result.numpy(), x @ w + 0.5)
    check_gradients(linear, x, w)


@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]
)
def test_only_the_gradients_asked_for(wanted: tuple[bool, bool, bool]) -> None:
    arrays = arrays_for(3, (4, 3), (2, 3), (2,))
    tensors = [flow.tensor(array, requires_grad=want) for array, want in zip(arrays, wanted, strict=True)]
    linear(*tensors).sum().backward()
    expected = [np.tile(arrays[1].sum(0), (4, 1)), np.tile(arrays[0].sum(0), (2, 1)), np.full(2, 4.0)]
    for tensor, want, value in zip(tensors, wanted, expected, strict=True):
        assert (tensor.grad is not None) == want
        if tensor.grad is not None:
            np.testing.assert_allclose(tensor.grad.numpy(), value, rtol=1e-12)


def test_strided_operands() -> None:
    x, w, g = arrays_for(4, (3, 4, 5), (3, 2), (5, 4, 2))
    source, weight = (flow.tensor(value, requires_grad=True) for value in (x, w))
    result = linear(source.permute(2, 1, 0), weight.T)
    np.testing.assert_allclose(result.detach().numpy(), x.transpose(2, 1, 0) @ w, rtol=1e-12)
    (result.permute(1, 0, 2) * flow.tensor(g.transpose(1, 0, 2).copy())).sum().backward()
    assert source.grad is not None
    assert weight.grad is not None
    np.testing.assert_allclose(source.grad.numpy(), (g @ w.T).transpose(2, 1, 0), rtol=1e-12)
    np.testing.assert_allclose(weight.grad.numpy(), np.einsum("irn,nro->io", x, g), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [flow.float16, flow.bfloat16])
def test_half_precision_adds_up_in_single(dtype: flow.dtype) -> None:
    """2560 ones: sums in half precision would stop at 2048, and at 256."""
    x = flow.ones(2560, 2560, dtype=dtype, requires_grad=True)
    weight, bias = flow.ones(1, 2560, dtype=dtype, requires_grad=True), flow.zeros(1, dtype=dtype, requires_grad=True)
    result = linear(x, weight, bias)
    assert result.dtype is dtype
    assert set(result.detach().float().numpy().reshape(-1)) == {2560.0}
    result.sum().backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert bias.grad.item() == 2560.0
    assert set(weight.grad.float().numpy().reshape(-1)) == {2560.0}


def test_complex_operands() -> None:
    generator = np.random.default_rng(5)
    x, w = (generator.standard_normal((2, *shape)) for shape in ((4, 3), (2, 3)))
    source, weight = (flow.tensor(value[0] + 1j * value[1], requires_grad=True) for value in (x, w))
    result = linear(source, weight)
    np.testing.assert_allclose(result.detach().numpy(), (x[0] + 1j * x[1]) @ (w[0] + 1j * w[1]).T, rtol=1e-12)
    result.backward(flow.ones(4, 2, dtype=flow.complex128))
    assert source.grad is not None
    np.testing.assert_allclose(source.grad.numpy(), np.ones((4, 2)) @ (w[0] - 1j * w[1]), rtol=1e-12)


@pytest.mark.parametrize(
    ("error", "message", "operands"),
    [
        (ValueError, r"\[2, 3\] does not fit a weight of shape \[4, 2\]", ((2, 3), (4, 2))),
        (ValueError, r"\[2, 3\] does not fit a weight of shape \[4, 3, 1\]", ((2, 3), (4, 3, 1))),
        (ValueError, r"does not fit a weight", ((), (4, 3))),
        (ValueError, r"bias of shape \[3\] does not fit.*expected \[4\]", ((2, 3), (4, 3), (3,))),
    ],
)
def test_shapes_that_do_not_fit(error: type[Exception], message: str, operands: Any) -> None:
    with pytest.raises(error, match=f"linear: .*{message}"):
        linear(*[flow.zeros(shape) for shape in operands])


def test_dtypes_must_agree_and_be_numbers() -> None:
    with pytest.raises(TypeError, match=r"linear: .*float32, float64"):
        linear(flow.ones(2, 3), flow.ones(4, 3).double())
    with pytest.raises(TypeError, match=r"linear: .*bool"):
        linear(flow.ones(2, 3).bool(), flow.ones(4, 3).bool())


def test_a_single_output_of_no_tensor() -> None:
    with pytest.raises(TypeError, match="linear: expected tensors, got list"):
        linear([1.0], flow.ones(1))  # type: ignore[arg-type]


@pytest.mark.host_arrays
def test_a_result_with_gaps_is_written_where_it_is_wanted() -> None:
    x, weight, bias = flow.ones(2, 3, 4), flow.ones(5, 4), flow.ones(5)
    metas = tuple([tensor._blob.meta for tensor in (x, weight, bias)])
    out = np.zeros((2, 3, 10), np.float32)[..., ::2]
    result = (
        OPS["linear"]
        .plan((metas, (), (), None), (), metas, ())
        .kernel.function(*[tensor.numpy() for tensor in (x, weight, bias)], out)
    )
    np.testing.assert_array_equal(result, np.full((2, 3, 5), 5.0))
